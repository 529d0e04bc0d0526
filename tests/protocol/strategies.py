"""Hypothesis strategies for what the Delta log holds."""

from __future__ import annotations

import math
import struct
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

from hypothesis import strategies as st

from deltars.protocol import (
    Action,
    AddFile,
    ArrayType,
    CdcFile,
    CheckpointMetadata,
    CommitInfo,
    DataType,
    DeletionVector,
    DomainMetadata,
    Format,
    MapType,
    Metadata,
    PrimitiveType,
    Protocol,
    RemoveFile,
    Sidecar,
    StructField,
    StructType,
    Txn,
)

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=40)
longs = st.integers(-(2**63), 2**63 - 1)
maybe_long = st.none() | longs
maybe_text = st.none() | texts
properties = st.dictionaries(texts, texts, max_size=3)
tags = st.none() | st.dictionaries(texts, maybe_text, max_size=3)
partition_values = st.dictionaries(texts, maybe_text, max_size=3)
json_values = st.recursive(
    st.none() | st.booleans() | longs | texts | st.floats(allow_nan=False, allow_infinity=False),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=6,
)

deletion_vectors = st.builds(
    DeletionVector,
    storage_type=st.sampled_from("uip"),
    path_or_inline_dv=texts,
    offset=st.none() | st.integers(0, 2**31 - 1),
    size_in_bytes=longs,
    cardinality=longs,
)

adds = st.builds(
    AddFile,
    path=texts,
    partition_values=partition_values,
    size=longs,
    modification_time=longs,
    data_change=st.booleans(),
    stats=maybe_text,
    tags=tags,
    deletion_vector=st.none() | deletion_vectors,
    base_row_id=maybe_long,
    default_row_commit_version=maybe_long,
    clustering_provider=maybe_text,
)

removes = st.builds(
    RemoveFile,
    path=texts,
    deletion_timestamp=maybe_long,
    data_change=st.booleans(),
    extended_file_metadata=st.none() | st.booleans(),
    partition_values=st.none() | partition_values,
    size=maybe_long,
    stats=maybe_text,
    tags=tags,
    deletion_vector=st.none() | deletion_vectors,
    base_row_id=maybe_long,
    default_row_commit_version=maybe_long,
)

commit_infos = st.builds(
    CommitInfo,
    in_commit_timestamp=maybe_long,
    timestamp=maybe_long,
    operation=maybe_text,
    operation_parameters=st.none() | st.dictionaries(texts, json_values, max_size=3),
    read_version=maybe_long,
    isolation_level=maybe_text,
    is_blind_append=st.none() | st.booleans(),
    data_change=st.none() | st.booleans(),
    operation_metrics=st.none() | properties,
    user_metadata=maybe_text,
    tags=st.none() | properties,
    engine_info=maybe_text,
    txn_id=maybe_text,
    extra=st.dictionaries(texts.map(lambda text: f"x-{text}"), json_values, max_size=2)
    | st.just({"extra": 1, "commitTs": 2}),
)

actions: st.SearchStrategy[Action] = st.one_of(
    adds,
    removes,
    st.builds(
        CdcFile,
        path=texts,
        partition_values=partition_values,
        size=longs,
        data_change=st.just(False),
        tags=tags,
    ),
    st.builds(
        Metadata,
        id=texts,
        name=maybe_text,
        description=maybe_text,
        format=st.builds(Format, provider=texts, options=properties),
        schema_string=texts,
        partition_columns=st.lists(texts, max_size=3),
        configuration=properties,
        created_time=maybe_long,
    ),
    st.builds(
        Protocol,
        min_reader_version=st.integers(1, 3),
        min_writer_version=st.integers(1, 7),
        reader_features=st.none() | st.lists(texts, max_size=3),
        writer_features=st.none() | st.lists(texts, max_size=3),
    ),
    st.builds(Txn, app_id=texts, version=longs, last_updated=maybe_long),
    st.builds(DomainMetadata, domain=texts, configuration=texts, removed=st.booleans()),
    commit_infos,
)

checkpoint_actions = st.one_of(
    st.builds(CheckpointMetadata, version=longs, tags=tags),
    st.builds(Sidecar, path=texts, size_in_bytes=longs, modification_time=longs, tags=tags),
)


def decimal_types() -> st.SearchStrategy[PrimitiveType]:
    return st.integers(1, 38).flatmap(
        lambda precision: st.integers(0, precision).map(lambda scale: PrimitiveType.decimal(precision, scale))
    )


ORDINARY_TYPES = (
    "string", "long", "integer", "short", "byte", "float", "double", "boolean", "binary",
    "date", "timestamp", "timestamp_ntz",
)  # fmt: skip


def primitive_types(
    names: tuple[str, ...] = (*ORDINARY_TYPES, "void", "variant"),
) -> st.SearchStrategy[PrimitiveType]:
    return st.sampled_from(names).map(PrimitiveType) | decimal_types()


def data_types(leaves: st.SearchStrategy[Any], metadata: st.SearchStrategy[Any]) -> st.SearchStrategy[DataType]:
    def nested(inner: st.SearchStrategy[DataType]) -> st.SearchStrategy[DataType]:
        return st.one_of(
            st.builds(ArrayType, inner, st.booleans()),
            st.builds(MapType, inner, inner, st.booleans()),
            struct_types(inner, metadata),
        )

    return st.recursive(leaves, nested, max_leaves=6)


def struct_types(inner: st.SearchStrategy[Any], metadata: st.SearchStrategy[Any]) -> st.SearchStrategy[StructType]:
    fields = st.builds(StructField, texts, inner, st.booleans(), metadata)
    return st.lists(fields, max_size=4, unique_by=lambda column: column.name).map(
        lambda columns: StructType(tuple(columns))
    )


field_metadata = st.dictionaries(texts, json_values, max_size=2)
schemas = struct_types(data_types(primitive_types(), field_metadata), field_metadata)
arrow_schemas = struct_types(data_types(primitive_types(ORDINARY_TYPES), st.just({})), st.just({}))


def to_single(number: float) -> float:
    return float(struct.unpack("f", struct.pack("f", number))[0])


nasty_texts = st.sampled_from(
    ["", " ", "a/b", "..", "a:colon", "100%", "/%20%f", "it's", 'say "x"', "a=b", "😀", "é", "\\",
     "\x00", "\x7f", "\n", "\x85", "null", "__HIVE_DEFAULT_PARTITION__", "a+b c#d?e", "{[^]}",
     "x" * 40, "😀" * 40, "~" * 33, "\U0010ffff" * 70]
)  # fmt: skip
_dates = st.dates() | st.sampled_from([date.min, date.max, date(1970, 1, 1), date(1582, 10, 10)])
_AROUND_SUMMER_TIME = [  # as clocks in New York and on Lord Howe jump and turn back, by UTC and by the wall
    datetime(2026, 3, 8, 2, 30), datetime(2026, 3, 8, 7), datetime(2026, 11, 1, 1, 30), datetime(2026, 11, 1, 5, 30),
    datetime(2026, 10, 3, 15, 30), datetime(2026, 10, 4, 2, 15), datetime(2026, 4, 4, 15, 0),
]  # fmt: skip
_moments = st.datetimes() | st.sampled_from(
    [datetime.min, datetime.max, datetime(1969, 12, 31, 23, 59, 59, 999999), *_AROUND_SUMMER_TIME]
)


def values_of(type_: PrimitiveType) -> st.SearchStrategy[Any]:
    """Values of a type as Python holds them, the extreme ones included."""
    bits = {"byte": 8, "short": 16, "integer": 32, "long": 64}
    match type_.name:
        case "string":
            return texts | nasty_texts | st.text(st.sampled_from("az~\x7f\x80é￿😀\U0010ffff"), max_size=80)
        case "binary":
            return st.binary(max_size=20) | texts.map(str.encode)
        case "boolean":
            return st.booleans()
        case "byte" | "short" | "integer" | "long" as name:
            return st.integers(-(1 << bits[name] - 1), (1 << bits[name] - 1) - 1)
        case "float":
            extreme = [to_single(0.1), to_single(3.4028234e38), -0.0, math.inf]
            return st.floats(width=32) | st.sampled_from(extreme)
        case "double":
            extreme = [math.nan, math.inf, -math.inf, -0.0, 5e-324, 1.7976931348623157e308]
            return st.floats() | st.sampled_from(extreme)
        case "date":
            return _dates
        case "timestamp":
            return _moments.map(lambda moment: moment.replace(tzinfo=UTC))
        case "timestamp_ntz":
            return _moments
        case _:
            largest = 10**type_.precision - 1
            return st.integers(-largest, largest).map(lambda number: Decimal(f"{number}e-{type_.scale}"))


def same(left: Any, right: Any) -> bool:
    """Equal, where NaN equals itself and −0.0 is not 0.0."""
    if isinstance(left, float) and isinstance(right, float):
        return struct.pack("d", left) == struct.pack("d", right) or (math.isnan(left) and math.isnan(right))
    return bool(left == right) and type(left) is type(right)
