"""Columns of a checkpoint, and the conversion of actions to its rows. Pure.

Each kind of action has a struct column. A row holds one action; its other columns are null.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any

import msgspec
import pyarrow as pa

from deltars.errors import ValidationError
from deltars.log.arrow_values import array_of, falses
from deltars.protocol import (
    DomainMetadata,
    Metadata,
    PrimitiveType,
    Protocol,
    StructType,
    Txn,
    decode_stats,
    parse_partition_value,
)
from deltars.protocol.arrow import type_to_arrow
from deltars.protocol.stats import has_bounds

_MAP = pa.map_(pa.string(), pa.string())
_STRINGS = pa.list_(pa.field("element", pa.string()))
_VECTOR = pa.struct(
    [
        ("storageType", pa.string()),
        ("pathOrInlineDv", pa.string()),
        ("offset", pa.int32()),
        ("sizeInBytes", pa.int32()),
        ("cardinality", pa.int64()),
    ]
)
_TXN = pa.struct([("appId", pa.string()), ("version", pa.int64()), ("lastUpdated", pa.int64())])
_REMOVE = pa.struct(
    [
        ("path", pa.string()),
        ("deletionTimestamp", pa.int64()),
        ("dataChange", pa.bool_()),
        ("extendedFileMetadata", pa.bool_()),
        ("partitionValues", _MAP),
        ("size", pa.int64()),
        ("deletionVector", _VECTOR),
        ("baseRowId", pa.int64()),
        ("defaultRowCommitVersion", pa.int64()),
    ]
)
_METADATA = pa.struct(
    [
        ("id", pa.string()),
        ("name", pa.string()),
        ("description", pa.string()),
        ("format", pa.struct([("provider", pa.string()), ("options", _MAP)])),
        ("schemaString", pa.string()),
        ("partitionColumns", _STRINGS),
        ("configuration", _MAP),
        ("createdTime", pa.int64()),
    ]
)
_PROTOCOL = pa.struct(
    [
        ("minReaderVersion", pa.int32()),
        ("minWriterVersion", pa.int32()),
        ("readerFeatures", _STRINGS),
        ("writerFeatures", _STRINGS),
    ]
)
_DOMAIN = pa.struct([("domain", pa.string()), ("configuration", pa.string()), ("removed", pa.bool_())])


class CheckpointSchema:
    def __init__(self, metadata: Metadata, *, stats_as_json: bool, stats_as_struct: bool) -> None:
        self._schema = metadata.schema
        self._partition_columns = metadata.partition_columns
        self._stats_as_json = stats_as_json
        add = [
            ("path", pa.string()),
            ("partitionValues", _MAP),
            ("size", pa.int64()),
            ("modificationTime", pa.int64()),
            ("dataChange", pa.bool_()),
            ("tags", _MAP),
            ("deletionVector", _VECTOR),
            ("baseRowId", pa.int64()),
            ("defaultRowCommitVersion", pa.int64()),
            ("clusteringProvider", pa.string()),
        ]
        self._stats_type = _stats_type(self._schema, self._partition_columns) if stats_as_struct else None
        self._parsed_type = self._partition_type() if stats_as_struct and self._partition_columns else None
        if stats_as_json:
            add.append(("stats", pa.string()))
        if self._stats_type is not None:
            add.append(("stats_parsed", self._stats_type))
        if self._parsed_type is not None:
            add.append(("partitionValues_parsed", self._parsed_type))
        self._add = pa.struct(add)
        self.arrow = pa.schema(
            [
                ("txn", _TXN),
                ("add", self._add),
                ("remove", _REMOVE),
                ("metaData", _METADATA),
                ("protocol", _PROTOCOL),
                ("domainMetadata", _DOMAIN),
            ]
        )

    @cached_property
    def repeating_columns(self) -> list[str]:
        """Leaf columns worth a dictionary: their values repeat, or are few."""
        single = {"add.path", "add.stats", "add.size", "remove.path", "remove.size"}
        return [
            path for path in _leaf_paths(self.arrow) if path not in single and not path.startswith("add.stats_parsed.")
        ]

    def state(
        self, protocol: Protocol, metadata: Metadata, txns: Sequence[Txn], domains: Sequence[DomainMetadata]
    ) -> pa.RecordBatch:
        """Return a row for each action that is no file."""
        rows: list[dict[str, Any]] = [
            {"protocol": msgspec.to_builtins(protocol)},
            {"metaData": _metadata(metadata)},
            *({"txn": msgspec.to_builtins(txn)} for txn in txns),
            *({"domainMetadata": msgspec.to_builtins(domain)} for domain in domains),
        ]
        arrays = [array_of([row.get(field.name) for row in rows], field.type) for field in self.arrow]
        return pa.RecordBatch.from_arrays(arrays, schema=self.arrow)

    def removes(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return rows of remove actions, without statistics and tags."""
        return self._only(
            "remove",
            {
                "path": batch["path"],
                "deletionTimestamp": batch["deletion_timestamp"],
                "dataChange": falses(batch.num_rows),
                "extendedFileMetadata": batch["extended_file_metadata"],
                "partitionValues": _maps(batch["partition_values"]),
                "size": batch["size"],
                "deletionVector": _documents(batch["deletion_vector"], _VECTOR),
                "baseRowId": batch["base_row_id"],
                "defaultRowCommitVersion": batch["default_row_commit_version"],
            },
        )

    def adds(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        columns = {
            "path": batch["path"],
            "partitionValues": _maps(batch["partition_values"]),
            "size": batch["size"],
            "modificationTime": batch["modification_time"],
            # A checkpoint changes no data: it only lists the files.
            "dataChange": falses(batch.num_rows),
            "tags": _maps(batch["tags"]),
            "deletionVector": _documents(batch["deletion_vector"], _VECTOR),
            "baseRowId": batch["base_row_id"],
            "defaultRowCommitVersion": batch["default_row_commit_version"],
            "clusteringProvider": batch["clustering_provider"],
        }
        if self._stats_as_json:
            columns["stats"] = batch["stats"]
        if self._stats_type is not None:
            parsed = [None if text is None else self._parsed_stats(text) for text in batch["stats"].to_pylist()]
            columns["stats_parsed"] = array_of(parsed, self._stats_type)
        if self._parsed_type is not None:
            columns["partitionValues_parsed"] = _distinct(
                batch["partition_values"], self._parsed_type, self._parsed_values
            )
        return self._only("add", columns)

    def _only(self, name: str, columns: dict[str, pa.Array]) -> pa.RecordBatch:
        """Return rows that have only this action."""
        count = len(columns["path"])
        type_ = self.arrow.field(name).type
        fields = [type_.field(position) for position in range(type_.num_fields)]
        struct = pa.StructArray.from_arrays([columns[field.name] for field in fields], fields=fields)
        arrays = [struct if field.name == name else pa.nulls(count, field.type) for field in self.arrow]
        return pa.RecordBatch.from_arrays(arrays, schema=self.arrow)

    def _partition_type(self) -> pa.StructType:
        fields = [self._schema[name] for name in self._partition_columns]
        return pa.struct([pa.field(field.physical_name, type_to_arrow(field.type)) for field in fields])

    def _parsed_values(self, text: str) -> dict[str, Any]:
        values: dict[str, str | None] = msgspec.json.decode(text)
        fields = [self._schema[name] for name in self._partition_columns]
        return {
            field.physical_name: parse_partition_value(values.get(field.physical_name), field.type) for field in fields
        }

    def _parsed_stats(self, text: str) -> dict[str, Any] | None:
        try:
            stats = decode_stats(text, self._schema)
        except ValidationError:
            # An imported file may have any text as statistics, and statistics are optional.
            return None
        return {
            "numRecords": stats.num_records,
            "minValues": stats.min_values,
            "maxValues": stats.max_values,
            "nullCount": stats.null_count,
            "tightBounds": stats.tight_bounds,
        }


def _stats_type(schema: StructType, partition_columns: Sequence[str]) -> pa.StructType:
    """Return the type of `stats_parsed`: nested like the data, with physical names, without partition columns."""
    data = StructType(tuple(field for field in schema.fields if field.name not in partition_columns))
    bounds = _like(data, lambda type_: type_to_arrow(type_) if has_bounds(type_) else None)
    fields = [pa.field("numRecords", pa.int64())]
    if bounds is not None:
        fields += [pa.field("minValues", bounds), pa.field("maxValues", bounds)]
    counts = _like(data, lambda type_: pa.int64())
    if counts is not None:
        fields.append(pa.field("nullCount", counts))
    return pa.struct([*fields, pa.field("tightBounds", pa.bool_())])


def _like(schema: StructType, leaf: Callable[[Any], pa.DataType | None]) -> pa.StructType | None:
    """Return a struct of the same shape with the leaf types of `leaf`. Return None if it would be empty."""
    fields = []
    for field in schema.fields:
        type_ = _like(field.type, leaf) if isinstance(field.type, StructType) else leaf(field.type)
        is_void = isinstance(field.type, PrimitiveType) and field.type.name == "void"
        if type_ is not None and not is_void:
            fields.append(pa.field(field.physical_name, type_))
    return pa.struct(fields) if fields else None


def _metadata(metadata: Metadata) -> dict[str, Any]:
    document: dict[str, Any] = msgspec.to_builtins(metadata)
    document["format"] = msgspec.to_builtins(metadata.format)
    return document


def _maps(column: pa.Array) -> pa.Array:
    return _distinct(column, _MAP, lambda text: list(msgspec.json.decode(text).items()))


def _documents(column: pa.Array, type_: pa.DataType) -> pa.Array:
    return _distinct(column, type_, msgspec.json.decode)


def _distinct(column: pa.Array, type_: pa.DataType, parse: Callable[[str], Any]) -> pa.Array:
    """Convert JSON texts to values of a type. Parse each distinct text once: many files share partition values."""
    if column.null_count == len(column):
        return pa.nulls(len(column), type_)
    encoded = column.dictionary_encode()
    values = array_of([parse(text) for text in encoded.dictionary.to_pylist()], type_)
    return values.take(encoded.indices)


def _leaf_paths(schema: pa.Schema) -> list[str]:
    paths: list[str] = []

    def walk(path: str, type_: pa.DataType) -> None:
        if pa.types.is_struct(type_):
            for field in type_:
                walk(f"{path}.{field.name}", field.type)
        elif pa.types.is_map(type_):
            paths.extend((f"{path}.key_value.key", f"{path}.key_value.value"))
        elif pa.types.is_list(type_):
            paths.append(f"{path}.list.element")
        else:
            paths.append(path)

    for field in schema:
        walk(field.name, field.type)
    return paths
