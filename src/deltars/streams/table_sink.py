"""Writes of `format("deltasql")`: planned and committed by the driver's Python, written by tasks.

plan ──▶ TaskWrite, which tasks run ──▶ files ──▶ commit            a batch write: one transaction
                                              └──▶ commit_batch      a stream: each micro-batch exactly once
"""

from __future__ import annotations

import logging
import os
from collections.abc import Sequence
from typing import Any, TypeVar

import msgspec
import pyarrow as pa

from deltars.data.task_rows import PlannedError, TaskRows, TaskWrite
from deltars.data.write_target import WrittenFile
from deltars.errors import ConfigError, DeltarsError, ValidationError
from deltars.protocol import StructType
from deltars.storage import Storage, open_storage
from deltars.streams.batch import CommittedBatch, MicroBatch
from deltars.streams.options import Options
from deltars.transaction import Transaction

T = TypeVar("T")

_log = logging.getLogger(__name__)

_METADATA = "metadata"
"""File of a checkpoint that has the id of the query."""
_LAST_BATCH = "deltars-last-batch"
"""File of a checkpoint that has the batch committed last. Each batch is committed by another process."""


class TableSink:
    """Writes of one table: its rows have one schema, and are appended or replace others."""

    def __init__(self, options: Options, schema: StructType, columns: pa.Schema, *, overwrite: bool) -> None:
        self._options = options
        self._schema = schema
        self._columns = columns
        self._given: dict[str, Any] = {**options.write_options(), "mode": "overwrite" if overwrite else "append"}

    def plan(self, *, is_stream: bool) -> TaskWrite | None:
        """Return what tasks write, and check the options. None: the application has written this version before."""
        given = self._given if is_stream else {**self._given, **self._application}
        if is_stream:
            self._identity()
        try:
            with self._options.catalog(create=True).begin(isolation="serializable") as tx:
                tx.write(self._options.name, TaskRows(self._schema, self._columns), **given)  # type: ignore[arg-type]
        except PlannedError as planned:
            return planned.write
        return None

    def commit(self, files: Sequence[WrittenFile], digest: str | None) -> None:
        """Commit the files of a batch write."""
        with self._options.catalog(create=True).begin(isolation="serializable") as tx:
            self._write(tx, files, digest, self._application)

    def commit_batch(self, files: Sequence[WrittenFile], digest: str | None, batch_id: int) -> None:
        """Commit the files of a micro-batch, unless it was committed before."""
        app_id, query_id = self._identity()
        if not files and self._given["mode"] == "append":
            return
        catalog = self._options.catalog(create=True)
        last = self._in_checkpoint(_LAST_BATCH, CommittedBatch)
        if last is not None and last.app_id == app_id:
            last.refuse_lost(catalog)
        batch = MicroBatch(app_id, batch_id, query_id)
        result = batch.commit(
            catalog, {"isolation": "serializable"}, lambda: lambda tx: self._write(tx, files, digest, {})
        )
        committed = CommittedBatch.of(batch, result)
        if committed is not None and query_id is not None:
            self._note(committed)

    def _write(
        self, tx: Transaction, files: Sequence[WrittenFile], digest: str | None, application: dict[str, Any]
    ) -> None:
        rows: Any = TaskRows(self._schema, self._columns, files, digest)
        tx.write(self._options.name, rows, **self._given, **application)

    @property
    def _application(self) -> dict[str, Any]:
        """Options of `tx.write` that make a batch write idempotent."""
        app_id, version = self._options.text("txnAppId"), self._options.number("txnVersion")
        return {} if app_id is None and version is None else {"app_id": app_id, "app_version": version}

    def _identity(self) -> tuple[str, str | None]:
        """Return the name of the stream, and the id of its query if the checkpoint says it."""
        if self._options.text("txnVersion") is not None:
            raise ValidationError("a stream counts its batches itself", field="txnVersion", hint="Leave it out.")
        metadata = self._in_checkpoint(_METADATA, _Metadata)
        query_id = None if metadata is None else metadata.id
        named = self._options.text("txnAppId") or query_id
        if named is None:
            raise ConfigError(
                "the stream has no name, and the id of its query cannot be read from a checkpoint",
                hint='Write .option("checkpointLocation", …) on the stream itself, or name it:'
                ' .option("txnAppId", "orders-to-lake").',
            )
        return named, query_id

    def _note(self, batch: CommittedBatch) -> None:
        """Write the batch into the checkpoint. It is committed, so a checkpoint that takes no file must not fail it."""
        try:
            self._checkpoint().put(_LAST_BATCH, msgspec.json.encode(batch))
        except DeltarsError as error:
            _log.warning("a restored database will not be noticed: the checkpoint takes no file: %s", error)

    def _checkpoint(self) -> Storage:
        place = self._options.text("checkpointLocation")
        assert place is not None
        settings = self._options.catalog(create=True)._session.settings
        return open_storage(place if ":" in place else os.path.abspath(place), settings.storage_options)

    def _in_checkpoint(self, path: str, kind: type[T]) -> T | None:
        """Return what a file of the checkpoint says; None if there is none, or this process cannot read it."""
        if self._options.text("checkpointLocation") is None:
            return None
        try:
            return msgspec.json.decode(self._checkpoint().get(path), type=kind)
        except (DeltarsError, msgspec.MsgspecError):
            return None


class _Metadata(msgspec.Struct):
    """Spark's description of a query."""

    id: str
