"""Checkpoint reader: yields the files of a checkpoint as Arrow columns, and everything else as actions.

classic, several parts, V2 in Parquet   rows with one struct column for each kind of action
V2 in JSON                              lines, as in a commit
sidecars of V2                          Parquet files with the add and remove actions
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from deltars.errors import DamagedLog, DeltarsError, ImportRefused
from deltars.importer.commits import open_log_file
from deltars.importer.listing import Checkpoint
from deltars.log.arrow_adds import canonical as canonical_columns
from deltars.protocol import (
    AddFile,
    CheckpointAction,
    CheckpointMetadata,
    DomainMetadata,
    Metadata,
    Protocol,
    RemoveFile,
    Sidecar,
    Txn,
    decode_checkpoint,
    is_absolute,
)
from deltars.protocol.foreign_actions import loosened
from deltars.protocol.log_files import sidecar_path
from deltars.storage import ObjectInfo, Storage
from deltars.storage.table_files import open_path, relative_path

BATCH_ROWS = 10_000
MAX_MANIFEST_BYTES = 512 * 1024 * 1024

_KINDS: dict[str, type] = {
    "metaData": Metadata,
    "protocol": Protocol,
    "txn": Txn,
    "domainMetadata": DomainMetadata,
    "remove": RemoveFile,
    "checkpointMetadata": CheckpointMetadata,
    "sidecar": Sidecar,
}
_ADD_FIELDS = dict(zip(AddFile.__struct_encode_fields__, AddFile.__struct_fields__, strict=True))
_HEADS = ("metaData", "protocol")


class CheckpointFiles:
    """Files of one checkpoint, in any of its forms."""

    def __init__(self, storage: Storage, checkpoint: Checkpoint) -> None:
        self._storage = storage
        self.checkpoint = checkpoint

    def is_readable(self) -> bool:
        """Return whether its files can be read as a checkpoint."""
        try:
            for _ in self._actions(("txn",)):
                break
        except ImportRefused:
            return False
        return True

    def head(self) -> tuple[Metadata, Protocol]:
        """Return metaData and protocol. Raise DamagedLog if one is missing."""
        found: dict[str, Any] = {}
        for action in self._actions(_HEADS):
            found.setdefault(type(action).__name__, action)
        for kind, name in ((Metadata, "metaData"), (Protocol, "protocol")):
            if kind.__name__ not in found:
                raise DamagedLog(f"the checkpoint of version {self.checkpoint.version} has no {name}", **self._where())
        return found["Metadata"], found["Protocol"]

    def others(self) -> Iterator[CheckpointAction]:
        """Yield the txn, domainMetadata and remove actions."""
        for action in self._actions(("txn", "domainMetadata", "remove", "sidecar")):
            if isinstance(action, Sidecar):
                yield from self._sidecar_actions(action)
            else:
                yield action

    def adds(self) -> Iterator[pa.Table]:
        """Yield the live files as columns with the names of `AddFile`'s fields."""
        for file in self.checkpoint.files:
            if file.path.endswith(".json"):
                yield from self._manifest_adds(file)
            else:
                yield from self._parquet_adds(file.path)
        for action in self._actions(("sidecar",)):
            assert isinstance(action, Sidecar)
            yield from self._parquet_adds(self._sidecar_path(action))

    def _actions(self, kinds: tuple[str, ...]) -> Iterator[CheckpointAction]:
        for file in self.checkpoint.files:
            if file.path.endswith(".json"):
                wanted = tuple(_KINDS[kind] for kind in kinds)
                yield from (action for action in self._manifest(file) if isinstance(action, wanted))
            else:
                yield from self._parquet_actions(file.path, kinds)

    def _sidecar_actions(self, sidecar: Sidecar) -> Iterator[CheckpointAction]:
        yield from self._parquet_actions(self._sidecar_path(sidecar), ("remove",))

    def _sidecar_path(self, sidecar: Sidecar) -> str:
        """Return the path of a sidecar, given as a name in `_sidecars` or as an absolute path inside the table."""
        if is_absolute(sidecar.path):
            try:
                return relative_path(self._storage, sidecar.path)
            except DeltarsError as error:
                raise self._damaged(sidecar.path, error) from error
        return sidecar_path(sidecar.path)

    def _manifest(self, file: ObjectInfo) -> list[CheckpointAction]:
        if file.size > MAX_MANIFEST_BYTES:
            raise DamagedLog(
                f"the JSON checkpoint {file.path} has {file.size:,} bytes; the limit is {MAX_MANIFEST_BYTES:,}",
                **self._where(),
            )
        try:
            with open_log_file(self._storage, file.path) as content:
                return decode_checkpoint(content.read())
        except (DeltarsError, RecursionError) as error:
            raise self._damaged(file.path, error) from error

    def _manifest_adds(self, file: ObjectInfo) -> Iterator[pa.Table]:
        adds = [action for action in self._manifest(file) if isinstance(action, AddFile)]
        if adds:
            rows = [msgspec.to_builtins(add) for add in adds]
            yield _add_columns(pa.array(rows, _ADD_TYPE))

    def _parquet_actions(self, path: str, kinds: tuple[str, ...]) -> Iterator[CheckpointAction]:
        for batch in self._rows(path, kinds):
            for name in batch.schema.names:
                column = batch.column(name)
                for row in self._documents(path, column.filter(column.is_valid())):
                    yield self._convert(path, name, row)

    def _documents(self, path: str, rows: pa.Array) -> list[dict[str, Any]]:
        try:
            documents: list[dict[str, Any]] = rows.to_pylist(maps_as_pydicts="strict")
            return documents
        except (KeyError, ValueError, OverflowError) as error:  # A key twice in a map, or a time beyond datetime.
            raise self._damaged(path, error) from error

    def _convert(self, path: str, name: str, row: Mapping[str, Any]) -> CheckpointAction:
        try:
            is_loose = name != "protocol"
            document = {key: value for key, value in row.items() if value is not None}
            fields = loosened(name, document) if is_loose else document
            action: CheckpointAction = msgspec.convert(fields, _KINDS[name], strict=not is_loose)
            return action
        except msgspec.ValidationError as error:
            raise DamagedLog(f"{path}: {name}: {error}", **self._where()) from error

    def _parquet_adds(self, path: str) -> Iterator[pa.Table]:
        for batch in self._rows(path, ("add",)):
            column = batch.column("add") if batch.num_columns else None
            if column is not None and column.null_count < len(column):
                try:
                    yield _add_columns(column.filter(column.is_valid()))
                except (DeltarsError, pa.ArrowException, KeyError) as error:
                    raise self._damaged(path, error) from error

    def _rows(self, path: str, kinds: tuple[str, ...]) -> Iterator[pa.RecordBatch]:
        try:
            with open_path(self._storage, path) as source, pq.ParquetFile(source) as file:
                wanted = [name for kind in kinds for name in _leaves(file.schema_arrow, kind)]
                if wanted:
                    for batch in file.iter_batches(BATCH_ROWS, columns=wanted):
                        # Strings in Parquet may be no UTF-8. Otherwise Arrow would notice only when they are used.
                        batch.validate(full=True)
                        yield batch
        except (DeltarsError, pa.ArrowException, OSError, UnicodeDecodeError) as error:
            if isinstance(error, DamagedLog):
                raise
            raise self._damaged(path, error) from error

    def _damaged(self, path: str, error: BaseException) -> DamagedLog:
        reason = error.message if isinstance(error, DeltarsError) else str(error)
        return DamagedLog(f"the checkpoint {path} cannot be read: {reason}", **self._where() | {"path": path})

    def _where(self) -> dict[str, Any]:
        return {"version": self.checkpoint.version, "path": self.checkpoint.files[0].path}


_ADD_TYPE = pa.struct(
    [
        ("path", pa.string()),
        ("partitionValues", pa.map_(pa.string(), pa.string())),
        ("size", pa.int64()),
        ("modificationTime", pa.int64()),
        ("dataChange", pa.bool_()),
        ("stats", pa.string()),
        ("tags", pa.map_(pa.string(), pa.string())),
        (
            "deletionVector",
            pa.struct(
                [
                    ("storageType", pa.string()),
                    ("pathOrInlineDv", pa.string()),
                    ("offset", pa.int32()),
                    ("sizeInBytes", pa.int32()),
                    ("cardinality", pa.int64()),
                ]
            ),
        ),
        ("baseRowId", pa.int64()),
        ("defaultRowCommitVersion", pa.int64()),
        ("clusteringProvider", pa.string()),
    ]
)


def _leaves(schema: pa.Schema, kind: str) -> list[str]:
    """Return the leaf columns to read for one kind of action. Of an add, skip parsed copies where the text exists."""
    if kind not in schema.names or not pa.types.is_struct(schema.field(kind).type):
        return []
    names = [field.name for field in schema.field(kind).type]
    if kind != "add":
        return [kind]
    statistics = "stats" if "stats" in names else "stats_parsed"
    return [f"add.{name}" for name in names if name in _ADD_FIELDS or name == statistics]


def _add_columns(adds: pa.StructArray) -> pa.Table:
    """Convert add structs to columns. Missing partition values become an empty map."""
    parts = {field.name: adds.field(index) for index, field in enumerate(adds.type)}
    columns = {field: parts[name] for name, field in _ADD_FIELDS.items() if name in parts}
    columns["partition_values"] = _as_json(columns["partition_values"], absent="{}")
    if "tags" in columns:
        columns["tags"] = _as_json(columns["tags"], absent=None)
    if "deletion_vector" in columns:
        columns["deletion_vector"] = _vectors(columns["deletion_vector"])
    if "stats" not in columns and "stats_parsed" in parts:
        columns["stats"] = pa.array(map(_stats_text, parts["stats_parsed"].to_pylist()), pa.string())
    columns["path"] = pc.replace_substring_regex(
        columns["path"].cast(pa.string()), r"^(?i:file):(?://(?:localhost)?)?/", "/"
    )
    return canonical_columns(pa.table(columns))


def _as_json(column: pa.Array, absent: str | None) -> pa.Array:
    encode = msgspec.json.encode
    known: dict[Any, str | None] = {None: absent, (): "{}"}
    texts = []
    for entries in column.to_pylist():
        key = None if entries is None else tuple(entries)
        if key is not None and key not in known:
            known[key] = encode(dict(key)).decode()
        texts.append(known[key])
    return pa.array(texts, pa.string())


def _vectors(column: pa.Array) -> pa.Array:
    if column.null_count == len(column):
        return pa.nulls(len(column), pa.string())
    documents = [
        None if row is None else {name: value for name, value in row.items() if value is not None and name in _VECTOR}
        for row in column.to_pylist()
    ]
    return pa.array([None if row is None else msgspec.json.encode(row).decode() for row in documents], pa.string())


_VECTOR = frozenset(("storageType", "pathOrInlineDv", "offset", "sizeInBytes", "cardinality"))


def _stats_text(stats: Mapping[str, Any] | None) -> str | None:
    """Return as JSON text the statistics that the checkpoint holds only as columns."""
    return None if stats is None else json.dumps(_without_nulls(stats), default=_plain)


def _without_nulls(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {name: _without_nulls(item) for name, item in value.items() if item is not None}
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    return value


def _plain(value: Any) -> Any:
    match value:
        case datetime():
            zone = "" if value.tzinfo is None else "Z"
            naive = value if value.tzinfo is None else value.astimezone(UTC).replace(tzinfo=None)
            return naive.isoformat(timespec="milliseconds") + zone
        case date():
            return value.isoformat()
        case Decimal():
            return int(value) if value == value.to_integral_value() else float(value)
        case _:
            return str(value)
