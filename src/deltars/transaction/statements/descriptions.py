"""DESCRIBE and SHOW: rows with the names that Spark and Delta give them."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from deltars.log.snapshot import HistoryEntry
from deltars.predicate.statements.tree import (
    DescribeDetail,
    DescribeHistory,
    DescribeTable,
    ShowColumns,
    ShowCreate,
    ShowPartitions,
    ShowProperties,
    ShowTables,
)
from deltars.predicate.tree import literal_sql
from deltars.protocol import (
    ArrayType,
    DataType,
    MapType,
    StructField,
    StructType,
    column_mapping,
    supported_features,
)
from deltars.protocol.actions import decode_partition_values
from deltars.protocol.char_varchar import CHAR_VARCHAR
from deltars.protocol.clustering import clustering_columns
from deltars.protocol.engine_info import ENGINE_INFO
from deltars.protocol.properties import property_name
from deltars.transaction.staged_table import StagedTable
from deltars.transaction.statements.rows import ArrowRows, Rows
from deltars.transaction.view import View

if TYPE_CHECKING:
    from deltars.transaction.statements.execution import Execution

_TEXTS = pa.map_(pa.string(), pa.string())
_TIME = pa.timestamp("us", "UTC")
_JOB = pa.struct(
    [(name, pa.string()) for name in ("jobId", "jobName", "jobRunId", "runId", "jobOwnerId", "triggerType")]
)
_HISTORY = pa.schema(
    [
        ("version", pa.int64()), ("timestamp", _TIME), ("userId", pa.string()), ("userName", pa.string()),
        ("operation", pa.string()), ("operationParameters", _TEXTS), ("job", _JOB),
        ("notebook", pa.struct([("notebookId", pa.string())])), ("clusterId", pa.string()),
        ("readVersion", pa.int64()), ("isolationLevel", pa.string()), ("isBlindAppend", pa.bool_()),
        ("operationMetrics", _TEXTS), ("userMetadata", pa.string()), ("engineInfo", pa.string()),
    ]
)  # fmt: skip
_DETAIL = pa.schema(
    [
        ("format", pa.string()), ("id", pa.string()), ("name", pa.string()), ("description", pa.string()),
        ("location", pa.string()), ("createdAt", _TIME), ("lastModified", _TIME),
        ("partitionColumns", pa.list_(pa.string())), ("clusteringColumns", pa.list_(pa.string())),
        ("numFiles", pa.int64()), ("sizeInBytes", pa.int64()), ("properties", _TEXTS),
        ("minReaderVersion", pa.int32()), ("minWriterVersion", pa.int32()),
        ("tableFeatures", pa.list_(pa.string())),
    ]
)  # fmt: skip
_COLUMNS = pa.schema([("col_name", pa.string()), ("data_type", pa.string()), ("comment", pa.string())])
_TABLES = pa.schema([("namespace", pa.string()), ("tableName", pa.string()), ("isTemporary", pa.bool_())])
_INFO = pa.schema([("info_name", pa.string()), ("info_value", pa.string())])
_PARTITIONS = pa.schema([("partition", pa.string())])
_CREATE = pa.schema([("createtab_stmt", pa.string())])
_PROPERTIES = pa.schema([("key", pa.string()), ("value", pa.string())])
_SPARK_TYPES = {"long": "bigint", "integer": "int", "short": "smallint", "byte": "tinyint"}
_NULL = "__HIVE_DEFAULT_PARTITION__"
_ISOLATION = {
    "serializable": "Serializable",
    "strict": "Serializable",
    "write_serializable": "WriteSerializable",
    "snapshot": "SnapshotIsolation",
}

Description: TypeAlias = (
    DescribeTable
    | DescribeHistory
    | DescribeDetail
    | ShowTables
    | ShowProperties
    | ShowColumns
    | ShowPartitions
    | ShowCreate
)


def describe(execution: Execution, action: Description) -> Rows:
    match action:
        case ShowTables(pattern, namespace):
            names = execution.tx._table_names()
            return _table(_TABLES, [row for row in map(_named, names) if _is_listed(row, pattern, namespace)])
        case DescribeHistory(name, limit):
            table = execution.readable(name)
            view = execution.tx._view_for(str(name))
            return _table(_HISTORY, [_entry(one) for one in view.session.reader.history(table.table_id, limit=limit)])
    table = execution.readable(action.table)
    view = execution.tx._view_for(str(action.table))
    match action:
        case DescribeDetail():
            return _table(_DETAIL, [_detail(view, table)])
        case DescribeTable(_, is_extended, None):
            return _table(_COLUMNS, _described(view, table, is_extended))
        case DescribeTable(_, _, str() as column):
            return _table(_INFO, _described_column(execution, table, action, column))
        case ShowPartitions():
            return _table(_PARTITIONS, _partitions(execution, view, table, action))
        case ShowCreate():
            return _table(_CREATE, [{"createtab_stmt": create_statement(view, table)}])
        case ShowProperties(_, key):
            return _table(_PROPERTIES, _properties(table, key))
    assert table.metadata is not None
    return _table(pa.schema([("col_name", pa.string())]), [{"col_name": name} for name in table.metadata.schema.names])


def _table(schema: pa.Schema, rows: list[dict[str, Any]]) -> Rows:
    return ArrowRows(pa.Table.from_pylist(rows, schema))


def _named(name: str) -> dict[str, Any]:
    namespace, _, last = name.rpartition(".")
    return {"namespace": namespace, "tableName": last, "isTemporary": False}


def _is_listed(row: Mapping[str, Any], pattern: str | None, namespace: str | None) -> bool:
    """Return whether a table has the namespace, and matches the pattern: * is any text, | separates patterns."""
    if namespace is not None and row["namespace"].lower() != namespace.lower():
        return False
    if pattern is None:
        return True
    parts = [".*".join(map(re.escape, part.strip().split("*"))) for part in pattern.split("|")]
    return any(re.fullmatch(part, row["tableName"], re.IGNORECASE) for part in parts)


def _entry(entry: HistoryEntry) -> dict[str, Any]:
    return {
        "version": entry.version,
        "timestamp": entry.committed_at,
        "userName": entry.committer,
        "operation": entry.operation,
        "operationParameters": _texts(entry.operation_params),
        "readVersion": entry.read_version,
        "isolationLevel": _ISOLATION.get(entry.isolation or "", entry.isolation),
        "isBlindAppend": entry.is_blind_append,
        "operationMetrics": _texts(entry.metrics),
        "userMetadata": entry.user_metadata,
        "engineInfo": ENGINE_INFO,
    }


def _texts(values: Mapping[str, Any]) -> list[tuple[str, str]]:
    return [(key, value if isinstance(value, str) else json.dumps(value)) for key, value in values.items()]


def _detail(view: View, table: StagedTable) -> dict[str, Any]:
    metadata, protocol = table.metadata, table.protocol
    assert metadata is not None
    assert protocol is not None
    num_files, size = _size(view, table)
    is_mapped = column_mapping(metadata.configuration) != "none"
    clustered = clustering_columns(view.domains(table), metadata.schema, is_mapped=is_mapped)
    created = metadata.created_time
    return {
        "format": "delta",
        "id": metadata.id,
        "name": table.name,
        "description": metadata.description,
        "location": table.location,
        "createdAt": None if created is None else datetime.fromtimestamp(created / 1000, UTC),
        "lastModified": view.committed_at(table),
        "partitionColumns": list(metadata.partition_columns),
        "clusteringColumns": [".".join(path) for path in clustered],
        "numFiles": num_files,
        "sizeInBytes": size,
        "properties": sorted(metadata.configuration.items()),
        "minReaderVersion": protocol.min_reader_version,
        "minWriterVersion": protocol.min_writer_version,
        "tableFeatures": sorted(supported_features(protocol)),
    }


def _size(view: View, table: StagedTable) -> tuple[int, int]:
    """Return the number and the size of the files, with what is staged."""
    if not table.is_changed:
        totals = view.totals(table)
        return totals.num_files, totals.size_bytes
    files = view.files_to_move(table, None)
    return files.num_rows, int(pc.sum(files["size"]).as_py() or 0)


def _described(view: View, table: StagedTable, is_extended: bool) -> list[dict[str, Any]]:
    metadata = table.metadata
    assert metadata is not None
    fields = {field.name: field for field in metadata.schema.fields}
    rows = [_column(field.name, _declared(field), field.metadata.get("comment")) for field in fields.values()]
    if metadata.partition_columns:
        rows += [_column("# Partition Information", "", ""), _column("# col_name", "data_type", "comment")]
        rows += [
            _column(name, _declared(fields[name]), fields[name].metadata.get("comment"))
            for name in metadata.partition_columns
        ]
    if is_extended:
        properties = ",".join(f"{key}={value}" for key, value in sorted(metadata.configuration.items()))
        rows += [
            _column("", "", ""),
            _column("# Detailed Table Information", "", ""),
            _column("Name", table.name, ""),
            _column("Comment", metadata.description or "", ""),
            _column("Location", table.location, ""),
            _column("Provider", "delta", ""),
            _column("Table Properties", f"[{properties}]", ""),
        ]
    return rows


def _described_column(
    execution: Execution, table: StagedTable, action: DescribeTable, column: str
) -> list[dict[str, Any]]:
    assert table.metadata is not None
    fields = {field.name.lower(): field for field in table.metadata.schema.fields}
    field = fields.get(column.strip("`").lower())
    if field is None:
        raise execution.binder.source.error_at(
            f"there is no column {column}",
            action.table.position,
            hint=f"The columns are: {', '.join(table.metadata.schema.names)}.",
        )
    values = {"col_name": field.name, "data_type": _declared(field), "comment": field.metadata.get("comment", "NULL")}
    return [{"info_name": name, "info_value": value} for name, value in values.items()]


def _partitions(execution: Execution, view: View, table: StagedTable, action: ShowPartitions) -> list[dict[str, Any]]:
    """Return each partition as Spark shows it: day=2026-01-31/region=eu."""
    assert table.metadata is not None
    columns = table.metadata.partition_columns
    if not columns:
        raise execution.binder.source.error_at(
            f"{table.name} has no partitions", action.table.position, hint="DESCRIBE DETAIL shows its files."
        )
    by_name = {field.name: field.physical_name for field in table.metadata.schema.fields}
    found = set()
    for values in view.files_to_move(table, None)["partition_values"].to_pylist():
        given = decode_partition_values(values)
        found.add(tuple(given.get(by_name[name]) for name in columns))
    shown = ["/".join(f"{name}={value}" for name, value in zip(columns, row, strict=True)) for row in found]
    return [{"partition": text.replace("=None", f"={_NULL}")} for text in sorted(shown)]


def create_statement(view: View, table: StagedTable) -> str:
    """Return the statement that creates a table with the same columns, partitions and properties."""
    metadata = table.metadata
    assert metadata is not None
    is_mapped = column_mapping(metadata.configuration) != "none"
    lines = [f"CREATE TABLE {_quoted(table.name)} ("]
    lines += [",\n".join(f"  {_column_text(field)}" for field in metadata.schema.fields) + ")", "USING delta"]
    clustered = clustering_columns(view.domains(table), metadata.schema, is_mapped=is_mapped)
    if metadata.partition_columns:
        lines.append(f"PARTITIONED BY ({', '.join(metadata.partition_columns)})")
    if clustered:
        lines.append(f"CLUSTER BY ({', '.join('.'.join(path) for path in clustered)})")
    if metadata.description is not None:
        lines.append(f"COMMENT {literal_sql(metadata.description)}")
    lines.append(f"LOCATION {literal_sql(table.location)}")
    properties = [
        f"  {literal_sql(key)} = {literal_sql(value)}" for key, value in sorted(metadata.configuration.items())
    ]
    return "\n".join([*lines, "TBLPROPERTIES (", ",\n".join(properties) + ")"]) + "\n"


def _column_text(field: StructField) -> str:
    text = f"{_quoted(field.name)} {_declared(field).upper()}"
    text += "" if field.nullable else " NOT NULL"
    comment = field.metadata.get("comment")
    return text if comment is None else f"{text} COMMENT {literal_sql(comment)}"


def _quoted(name: str) -> str:
    return ".".join(part if part.isidentifier() else f"`{part.replace('`', '``')}`" for part in name.split("."))


def _declared(field: StructField) -> str:
    """Return a column's type as Spark shows it: bigint, struct<x:int>, varchar(80)."""
    return str(field.metadata.get(CHAR_VARCHAR) or _type(field.type))


def _type(type_: DataType) -> str:
    match type_:
        case ArrayType(element):
            return f"array<{_type(element)}>"
        case MapType(key, value):
            return f"map<{_type(key)},{_type(value)}>"
        case StructType(fields):
            return f"struct<{','.join(f'{field.name}:{_type(field.type)}' for field in fields)}>"
    return _SPARK_TYPES.get(str(type_), str(type_))


def _column(name: str, type_: str, comment: str | None) -> dict[str, Any]:
    return {"col_name": name, "data_type": type_, "comment": comment}


def _properties(table: StagedTable, key: str | None) -> list[dict[str, Any]]:
    assert table.metadata is not None
    known = table.metadata.configuration
    if key is None:
        return [{"key": name, "value": value} for name, value in sorted(known.items())]
    name = property_name(key)
    missing = f"Table {table.name} does not have property: {key}"
    return [{"key": key, "value": known.get(name, missing)}]


__all__ = ["describe"]
