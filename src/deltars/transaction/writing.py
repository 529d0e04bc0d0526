"""How a frame becomes staged actions.

write(df, options) ── written before by the same application? ──▶ nothing
                   ── schema: as it is, merged, or replaced ────▶ metadata
                   ── the frame's rows, checked ────────────────▶ data files, added
                   └─ overwrite: what they take the place of ───▶ removed
                        static     every file
                        dynamic    the files of the partitions that were written
                        replace_where    the rows that match: whole files, or rewritten without them
"""

from __future__ import annotations

import math
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import msgspec
import pyarrow as pa

from deltars.data.conditions import Condition, conditions_of
from deltars.data.files import Scan, WriteTarget, WrittenFile
from deltars.errors import DeltarsError, SchemaMismatch, ValidationError
from deltars.log.pruning import Pruner
from deltars.predicate import (
    Column,
    In,
    IsNull,
    Predicate,
    Unknown,
    columns_of,
    conjunction,
    disjunction,
    leaves_of,
    negation,
)
from deltars.protocol import (
    Action,
    Metadata,
    RemoveFile,
    StructType,
    Txn,
    as_names,
    merged,
    parse_partition_value,
)
from deltars.protocol.column_rules import is_computed
from deltars.protocol.properties import boolean_property
from deltars.transaction.metadata import changed, metadata_actions
from deltars.transaction.plane import DataPlane
from deltars.transaction.removal import removes_of
from deltars.transaction.staging import StagedTable, Step
from deltars.transaction.view import View
from deltars.transaction.write_options import WriteOptions

MANY_PARTITIONS = 100


class TableWrite:
    """One frame on its way into one table."""

    def __init__(
        self,
        view: View,
        table: StagedTable,
        plane: DataPlane,
        options: WriteOptions,
    ) -> None:
        self._view = view
        self._table = table
        self._plane = plane
        self._options = options

    def is_done(self) -> bool:
        """Whether the same application has committed this, or something later, before."""
        options = self._options
        if options.app_id is None or options.app_version is None:
            return False
        seen = self._view.progress(self._table, options.app_id)
        return seen is not None and seen >= options.app_version

    def run(self, frame: Any) -> tuple[list[Action], Step, list[WrittenFile]]:
        """The actions to stage, how history tells of them, and the files written."""
        options = self._options
        data = self._plane.schema(frame)
        metadata = self._metadata(data)
        self._refuse_unpartitioned(data, metadata)
        predicate = None
        if options.replace_where is not None:
            predicate = self._plane.condition(frame, options.replace_where, metadata.schema)
            self._refuse_false_feed(metadata, predicate)
        conditions = conditions_of(metadata, data.names)
        if options.replace_where is not None:
            conditions.append(Condition("replace_where", options.replace_where))
        written = self._write(self._completed(frame, metadata), self._target(metadata), conditions)
        removed: list[RemoveFile] = []
        rewritten: list[WrittenFile] = []
        if options.mode == "overwrite" and self._table.exists:
            replaced = self._replaced(metadata, written, predicate)
            if predicate is not None:
                rewritten = self._rewrite(frame, _partly(replaced, predicate, metadata), metadata)
            removed = removes_of(replaced)
        actions: list[Action] = []
        if options.app_id is not None and options.app_version is not None:
            now = int(time.time() * 1000)
            actions.append(Txn(app_id=options.app_id, version=options.app_version, last_updated=now))
        if metadata is not self._table.metadata:
            assert self._table.protocol is not None
            actions += metadata_actions(self._table.protocol, metadata)
        files = [*written, *rewritten]
        actions += [*removed, *(file.add for file in files)]
        return actions, self._step(metadata, written, rewritten, removed), files

    # -- schema ----------------------------------------------------------------------------------------------------

    def _metadata(self, data: StructType) -> Metadata:
        """The table's metadata as this write leaves it: the same object where it changes nothing."""
        options, metadata = self._options, self._table.metadata
        if metadata is None:
            raise ValidationError(
                "nothing was committed to the table yet: stage its version 0 first", table=self._table.name
            )
        schema, columns = metadata.schema, list(metadata.partition_columns)
        wanted = None if options.partition_by is None else list(as_names(options.partition_by))
        if options.overwrite_schema:
            schema = data
            columns = [_spelled(schema, name) for name in (columns if wanted is None else wanted)]
        elif wanted is not None and [name.lower() for name in wanted] != [name.lower() for name in columns]:
            raise ValidationError(
                f"the table is partitioned by {columns or 'nothing'}, not by {wanted}",
                table=self._table.name,
                field="partition_by",
                hint="Leave partition_by out, or use mode='overwrite' with overwrite_schema=True.",
            )
        elif options.merge_schema:
            can_widen = boolean_property(metadata.configuration, "delta.enableTypeWidening")
            schema = merged(schema, data, can_widen=can_widen)
        if schema == metadata.schema and columns == list(metadata.partition_columns):
            return metadata
        return changed(metadata, schema_string=schema.to_json(), partition_columns=columns)

    def _refuse_unpartitioned(self, data: StructType, metadata: Metadata) -> None:
        """Any other column that is missing is null; all rows in the partition of nulls are nobody's intention."""
        present = {name.lower() for name in data.names}
        missing = [
            name
            for name in metadata.partition_columns
            if name.lower() not in present and not is_computed(metadata.schema[name])
        ]
        if missing:
            raise SchemaMismatch(
                f"the data lacks the column {missing[0]}, which the table is partitioned by;"
                f" its columns are {', '.join(data.names)}",
                table=self._table.name,
                field=missing[0],
                hint=f"Add {missing[0]} to the frame; as a column of nulls if that is what is meant.",
            )

    def _refuse_false_feed(self, metadata: Metadata, predicate: Predicate) -> None:
        """A row that is only written once more has not changed; a feed of files alone would say that it did."""
        if not self._table.exists or not boolean_property(metadata.configuration, "delta.enableChangeDataFeed"):
            return
        if _partly(self._view.files(self._table, predicate), predicate, metadata).num_rows:
            raise ValidationError(
                "rows that replace_where leaves alone share files with others, and would have to be written again:"
                " the table's change data feed would show them as changed",
                table=self._table.name,
                field="replace_where",
                hint="Let replace_where be about partition columns, or set delta.enableChangeDataFeed to false.",
            )

    # -- files -----------------------------------------------------------------------------------------------------

    def _target(self, metadata: Metadata) -> WriteTarget:
        options = self._options
        target = WriteTarget(
            root=self._table.location,
            schema=metadata.schema,
            partition_columns=tuple(metadata.partition_columns),
            properties=metadata.configuration,
            storage_options=self._view.engine.settings.storage_options,
            max_records_per_file=options.max_records_per_file,
        )
        chosen = {"target_file_size": options.target_file_size, "compression": options.compression}
        return target.with_options(**{name: value for name, value in chosen.items() if value is not None})

    def _completed(self, frame: Any, metadata: Metadata) -> Any:
        with self._located():
            return self._plane.completed(frame, metadata.schema)

    def _write(self, frame: Any, target: WriteTarget, conditions: Sequence[Condition]) -> list[WrittenFile]:
        with self._located():
            return self._plane.write(frame, target, conditions)

    @contextmanager
    def _located(self) -> Iterator[None]:
        try:
            yield
        except DeltarsError as error:
            raise error.located(
                table=self._table.name, txn_id=self._view.txn_id, stage="write data"
            ) from error.__cause__

    def _replaced(self, metadata: Metadata, written: Sequence[WrittenFile], predicate: Predicate | None) -> pa.Table:
        """The files that the new ones take the place of, or may."""
        if not self._options.is_dynamic:
            return self._view.files(self._table, predicate)
        if not metadata.partition_columns:
            return self._view.files(self._table, None)
        partitions = {_partition(file.add.partition_values, metadata) for file in written}
        found = self._view.files(self._table, _of_partitions(partitions, metadata))
        # The condition keeps a file in doubt; here it must be of a partition that was written.
        texts = found["partition_values"].to_pylist()
        return found.filter(
            pa.array([_partition(msgspec.json.decode(text), metadata) in partitions for text in texts], pa.bool_())
        )

    def _rewrite(self, frame: Any, files: pa.Table, metadata: Metadata) -> list[WrittenFile]:
        """The rows that stay, of files that hold others too."""
        if not files.num_rows or self._options.replace_where is None:
            return []
        scan = Scan.of(
            metadata,
            files,
            root=self._table.location,
            table=self._table.name,
            version=self._table.version,
            storage_options=self._view.engine.settings.storage_options,
        )
        staying = self._plane.without(frame, scan, self._options.replace_where)
        return self._write(staying, self._target(metadata), ())

    def _step(
        self,
        metadata: Metadata,
        written: Sequence[WrittenFile],
        rewritten: Sequence[WrittenFile],
        removed: Sequence[RemoveFile],
    ) -> Step:
        options = self._options
        columns = ",".join(f'"{column}"' for column in metadata.partition_columns)
        params: dict[str, Any] = {"partitionBy": f"[{columns}]"}
        if not self._table.new:
            params["mode"] = options.mode.capitalize()
        if options.replace_where is not None:
            params["predicate"] = options.replace_where
        metrics = {
            "numFiles": len(written) + len(rewritten),
            "numOutputBytes": sum(file.add.size for file in (*written, *rewritten)),
            "numOutputRows": sum(group.num_rows for file in written for group in file.row_groups),
        }
        if removed:
            metrics["numRemovedFiles"] = len(removed)
        return Step("CREATE TABLE AS SELECT" if self._table.new else "WRITE", params, metrics)


def _partly(files: pa.Table, predicate: Predicate, metadata: Metadata) -> pa.Table:
    """Those of the files that may hold rows which do not match: all of them, unless their partitions tell."""
    partition = set(metadata.partition_columns)
    is_told = all(column.path[0] in partition for column in columns_of(predicate)) and not any(
        isinstance(leaf, Unknown) for leaf in leaves_of(predicate)
    )
    return files.filter(Pruner(negation(predicate), metadata).keep(files)) if is_told else files


def _partition(values: Mapping[str, str | None], metadata: Metadata) -> tuple[Any, ...]:
    """The values of a partition, as they compare: one moment may be written in two ways."""
    fields = {field.name: field for field in metadata.schema.fields}
    columns = [fields[name] for name in metadata.partition_columns]
    parsed = (parse_partition_value(values.get(field.physical_name), field.type) for field in columns)
    # One object for every NaN, which is equal to nothing but itself.
    return tuple(math.nan if isinstance(value, float) and math.isnan(value) else value for value in parsed)


def _of_partitions(partitions: Collection[tuple[Any, ...]], metadata: Metadata) -> Predicate:
    """The rows of these partitions; of many, by several columns, also those whose values are mixed from theirs."""
    fields = {field.name: field for field in metadata.schema.fields}
    columns = [Column((name,), fields[name].type) for name in metadata.partition_columns]
    is_one = len(columns) == 1 or len(partitions) > MANY_PARTITIONS
    each = [partitions] if partitions and is_one else [[one] for one in partitions]
    return disjunction(
        conjunction(_one_of(column, values) for column, values in zip(columns, zip(*some, strict=True), strict=True))
        for some in each
    )


def _one_of(column: Column, values: Collection[Any]) -> Predicate:
    found = sorted({value for value in values if value is not None}, key=str)
    parts: list[Predicate] = [In(column, tuple(found))] if found else []
    return disjunction([*parts, *([IsNull(column)] if None in values else [])])


def _spelled(schema: StructType, name: str) -> str:
    for field in schema.fields:
        if field.name.lower() == name.lower():
            return field.name
    raise ValidationError(
        f"there is no column {name!r} to partition by; the columns are {', '.join(schema.names)}",
        field="partition_by",
        hint="Say partition_by=[…] for the new schema.",
    )
