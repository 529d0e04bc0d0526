"""Random tables and conditions on them, and a judge of rows that shares nothing with the code that prunes files.

    case() ──▶ Case(metadata, zone, files with their rows, the text of a where, which rows match)

The judge knows three truth values and Spark's order: NaN after every number and equal to itself, strings by bytes.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Context, Decimal
from typing import Any, TypeAlias
from zoneinfo import ZoneInfo

import msgspec
import pyarrow as pa
from hypothesis import strategies as st

from deltars.data.statistics import Statistics
from deltars.data.write_target import WriteTarget
from deltars.protocol import (
    Metadata,
    PrimitiveType,
    StructField,
    StructType,
    schema_to_arrow,
    serialize_partition_value,
)
from tests.protocol import strategies
from tests.support.writers import CUT_IN_TWO, NEAR_CUTOVER, WRITERS

Row: TypeAlias = Mapping[tuple[str, ...], Any]
Truth: TypeAlias = bool | None

NAMES = ("id", "Name", "c d", "é", "x.y", "select", "date", "value")
TYPES = (
    "string", "long", "integer", "short", "byte", "float", "double", "date", "timestamp", "timestamp_ntz", "boolean",
    "binary",
)  # fmt: skip
ZONES = ("UTC", "Europe/Berlin", "America/Sao_Paulo", "+05:30")
OPERATORS: dict[str, Callable[[Any, Any], bool]] = {
    "=": operator.eq, "==": operator.eq, "<>": operator.ne, "!=": operator.ne, "<": operator.lt, "<=": operator.le,
    ">": operator.gt, ">=": operator.ge,
}  # fmt: skip
_decode = msgspec.json.Decoder(float_hook=Decimal).decode
_encode = msgspec.json.Encoder(decimal_format="number").encode
"""Both keep a number digit by digit."""

_WIDE = Context(prec=100)
_GREATEST = {"byte": 2**7 - 1, "short": 2**15 - 1, "integer": 2**31 - 1, "long": 2**63 - 1}
_MOMENTS = (
    *(datetime(day.year, day.month, day.day, 7, 30) for day in NEAR_CUTOVER if day.year > 1),
    *(datetime(1969, 12, 31, 23, 59, 59, 999_500), datetime(1969, 12, 31, 23, 59, 59, 123_456), datetime(1970, 1, 1)),
    *(datetime(1883, 1, 1), datetime(1899, 12, 31, 23, 59, 59), datetime(1900, 1, 1), datetime(1936, 5, 5, 12)),
)
_ODD: dict[str, Sequence[Any]] = {
    "date": NEAR_CUTOVER,
    "timestamp": [moment.replace(tzinfo=UTC) for moment in _MOMENTS],
    "timestamp_ntz": _MOMENTS,
    "string": CUT_IN_TWO,
}
"""Values that writers are known to write odd bounds for."""
MIRRORED = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}


@dataclass(frozen=True)
class Condition:
    sql: str
    of: Callable[[Row], Truth]


@dataclass(frozen=True)
class File:
    partition_values: dict[str, str | None]
    stats: str | None
    rows: Sequence[Row]


@dataclass(frozen=True)
class Case:
    metadata: Metadata
    zone: str
    files: Sequence[File]
    condition: Condition

    def must_keep(self) -> list[bool]:
        """Of each file: whether one of its rows matches."""
        return [any(self.condition.of(row) is True for row in file.rows) for file in self.files]


# -- tables -----------------------------------------------------------------------------------------------------------


@st.composite
def schemas(draw: st.DrawFn) -> StructType:
    mapped = draw(st.booleans())
    counter = iter(range(100))

    def named(name: str, type_: Any) -> StructField:
        number = next(counter)
        metadata = {"delta.columnMapping.physicalName": f"col-{number}", "delta.columnMapping.id": number}
        return StructField(name, type_, True, metadata if mapped else {})

    def struct(depth: int) -> StructType:
        names = draw(st.lists(st.sampled_from(NAMES), unique=True, min_size=1, max_size=2 if depth else 4))
        fields = []
        for name in names:
            nests = depth < 2 and draw(st.integers(0, 4)) == 0
            fields.append(named(name, struct(depth + 1) if nests else draw(strategies.primitive_types(TYPES))))
        return StructType(tuple(fields))

    return struct(0)


def _nested(row: Row, schema: StructType, path: tuple[str, ...] = ()) -> dict[str, Any] | None:
    values: dict[str, Any] = {}
    for field in schema.fields:
        here = (*path, field.name)
        values[field.name] = _nested(row, field.type, here) if isinstance(field.type, StructType) else row[here]
    return values if not path or any(value is not None for value in values.values()) else None


def _stats(draw: st.DrawFn, rows: Sequence[Row], schema: StructType, partition_columns: Sequence[str]) -> str | None:
    """As our writer makes them, and as one meets them elsewhere."""
    hides_nan = any(value != value for row in rows for value in row.values()) and draw(st.booleans())
    kinds = [
        "ours",
        "ours",
        "ours",
        "none",
        "partial",
        "loose",
        "broken",
        "doubles",
        "struct nulls",
        *WRITERS,
        *WRITERS,
    ]
    kind = "without NaN" if hides_nan else draw(st.sampled_from(kinds))
    if kind == "none":
        return None
    data = StructType(tuple(field for field in schema.fields if field.name not in partition_columns))
    if kind == "without NaN":
        rows = [{path: None if value != value else value for path, value in row.items()} for row in rows]
    plain = StructType.from_json(_without_metadata(data).to_json())
    statistics = Statistics(WriteTarget("/", plain))
    table = pa.Table.from_pylist([_nested(row, plain) or {} for row in rows], schema=schema_to_arrow(plain))
    document: dict[str, Any] = _decode(statistics.encode(statistics.collect(table), len(rows)))
    if kind in WRITERS:
        _rewrite(document, rows, plain, WRITERS[kind])
    if kind == "struct nulls":
        _count_within_structs(document["nullCount"], rows, plain)
    for part in ("minValues", "maxValues", "nullCount"):
        document[part] = _renamed(document[part], data)
    if kind == "without NaN":
        # What a writer leaves out of its bounds it does not count as null either.
        document["nullCount"] = {}
    if kind == "partial":
        for part in list(document):
            if draw(st.booleans()):
                del document[part]
    if kind == "loose":
        document["tightBounds"] = False
    if kind == "doubles":
        # As delta-rs writes decimals: whole ones as 64 bits, others as doubles.
        document |= {part: _through_doubles(document[part]) for part in ("minValues", "maxValues")}
    text = _encode(document).decode()
    return text[: len(text) // 2] if kind == "broken" and draw(st.booleans()) else text


def _rewrite(
    document: dict[str, Any], rows: Sequence[Row], schema: StructType, writer: Callable[..., str | None]
) -> None:
    for path, type_ in schema.leaves():
        values = sorted((row[path] for row in rows if row[path] is not None), key=_key)
        for part, value, down in [("minValues", values[0], True), ("maxValues", values[-1], False)] if values else []:
            bound = writer(value, type_, down=down)
            if bound is not None:
                _put(document[part], path, bound)


def _count_within_structs(counts: dict[str, Any], rows: Sequence[Row], schema: StructType) -> None:
    """As writers do that look at the fields of a struct alone: where it is null, they count nothing."""
    for path, _ in schema.leaves():
        if len(path) > 1:
            there = [row for row in rows if any(row[other] is not None for other in row if other[:-1] == path[:-1])]
            _put(counts, path, sum(row[path] is None for row in there))


def _put(values: dict[str, Any], path: tuple[str, ...], value: Any) -> None:
    for name in path[:-1]:
        values = values.setdefault(name, {})
    values[path[-1]] = value


def _through_doubles(value: Any) -> Any:
    match value:
        case dict():
            return {name: _through_doubles(part) for name, part in value.items()}
        case int():
            return max(-(2**63), min(value, 2**63 - 1))
        case Decimal():
            return float(value)
        case _:
            return value


def _without_metadata(schema: StructType) -> StructType:
    return StructType(
        tuple(
            StructField(field.name, _without_metadata(field.type) if isinstance(field.type, StructType) else field.type)
            for field in schema.fields
        )
    )


def _renamed(values: Mapping[str, Any], schema: StructType) -> dict[str, Any]:
    return {
        field.physical_name: _renamed(values[field.name], field.type)
        if isinstance(field.type, StructType)
        else values[field.name]
        for field in schema.fields
        if field.name in values
    }


# -- conditions -------------------------------------------------------------------------------------------------------


def _key(value: Any) -> Any:
    match value:
        case float():
            return (math.isnan(value), 0.0 if math.isnan(value) else value)
        case str():
            return value.encode()
        case _:
            return value


def _compare(sign: str, left: Any, right: Any) -> Truth:
    return None if left is None or right is None else OPERATORS[sign](_key(left), _key(right))


def _not(truth: Truth) -> Truth:
    return None if truth is None else not truth


def _and(truths: Sequence[Truth]) -> Truth:
    return False if False in truths else None if None in truths else True


def _or(truths: Sequence[Truth]) -> Truth:
    return True if True in truths else None if None in truths else False


def _text(value: str) -> str:
    escaped = value.replace("\\", "\\\\").replace("'", "\\'").replace("\0", "\\0")
    return f"'{escaped}'"


def _quoted(path: Sequence[str]) -> str:
    return ".".join(f"`{name}`" for name in path)


Literal: TypeAlias = tuple[str, Any, Callable[[Any], Any]]
"""Its text, its value, and what the column becomes when it is compared with it."""


def _same(value: Any) -> Any:
    return value


def _double(value: Any) -> Any:
    return None if value is None else float(value)


def _literal(draw: st.DrawFn, value: Any, type_: PrimitiveType, zone: str) -> Literal:
    match type_.name:
        case "string":
            return _text(value), value, _same
        case "binary":
            return f"X'{value.hex()}'", value, _same
        case "boolean":
            return draw(st.sampled_from(["{}", "'{}'"])).format(str(value).lower()), value, _same
        case "byte" | "short" | "integer" | "long":
            near = value + draw(st.integers(-1, 1))
            forms: list[Literal] = [(str(near), near, _same), (f"'{near}'", near, _same)]
            forms += [(f"{near}.5BD", Decimal(f"{near}.5"), _same)]
            return draw(st.sampled_from([*forms, (f"CAST('{near}' AS DOUBLE)", float(near), _double)]))
        case "float" | "double":
            return f"CAST('{value!r}' AS DOUBLE)", value, _same
        case "date":
            return _date_literal(draw, value, zone)
        case "timestamp":
            return _moment_literal(draw, value, zone)
        case "timestamp_ntz":
            return draw(st.sampled_from(["TIMESTAMP_NTZ '{}'", "'{}'"])).format(value.isoformat(sep=" ")), value, _same
        case _:
            as_decimal: Literal = (f"{value:f}BD", value, _same)
            return draw(st.sampled_from([as_decimal, (f"CAST('{value}' AS DOUBLE)", float(value), _double)]))


def _zone(name: str) -> Any:
    return timezone(timedelta(hours=5, minutes=30)) if name == "+05:30" else ZoneInfo(name)


def _date_literal(draw: st.DrawFn, value: date, zone: str) -> Literal:
    forms: list[Literal] = [(f"DATE '{value}'", value, _same), (f"CAST('{value}' AS DATE)", value, _same)]
    forms.append((f"'{value}'", value, _same))
    if 1900 < value.year < 2100:
        at = datetime(value.year, value.month, value.day, draw(st.sampled_from([0, 12])), tzinfo=_zone(zone))

        def first_moment(day: date | None) -> datetime | None:
            if day is None:
                return None
            if not 2 < day.year < 9999:
                return datetime(day.year, day.month, day.day, tzinfo=UTC)
            return datetime(day.year, day.month, day.day, tzinfo=_zone(zone)).astimezone(UTC)

        forms.append((f"TIMESTAMP '{at.replace(tzinfo=None)}'", at.astimezone(UTC), first_moment))
    return draw(st.sampled_from(forms))


def _moment_literal(draw: st.DrawFn, value: datetime, zone: str) -> Literal:
    plain = value.astimezone(UTC).replace(tzinfo=None)
    forms: list[Literal] = [(f"TIMESTAMP '{plain.isoformat(sep=' ')}Z'", value, _same), (f"'{plain}Z'", value, _same)]
    if 1900 < value.year < 2100:
        elsewhere = value.astimezone(timezone(timedelta(hours=-8)))
        forms.append((f"'{elsewhere.isoformat()}'", value, _same))
        local = value.astimezone(_zone(zone)).replace(tzinfo=None, fold=0)
        forms.append((f"'{local}'", local.replace(tzinfo=_zone(zone)).astimezone(UTC), _same))
        day = datetime(local.year, local.month, local.day, tzinfo=_zone(zone)).astimezone(UTC)
        forms.append((f"DATE '{local.date()}'", day, _same))
    return draw(st.sampled_from(forms))


Pools: TypeAlias = Mapping[tuple[str, ...], tuple[PrimitiveType, Sequence[Any]]]


@st.composite
def _leaves(draw: st.DrawFn, pools: Pools, zone: str) -> Condition:
    path = draw(st.sampled_from(sorted(pools)))
    type_, pool = pools[path]
    column = _quoted(path)

    def literal() -> Literal:
        return _literal(draw, draw(st.sampled_from(pool)), type_, zone)

    kinds = ["compare", "compare", "compare", "null", "in", "between", "null-safe", "itself"]
    kinds += ["like"] if type_.name == "string" else []
    kinds += ["bare"] if type_.name == "boolean" else []
    match draw(st.sampled_from(kinds)):
        case "compare":
            sign = draw(st.sampled_from(sorted(OPERATORS)))
            text, value, seen = literal()
            if draw(st.booleans()):
                return Condition(f"{column} {sign} {text}", lambda row: _compare(sign, seen(row[path]), value))
            return Condition(
                f"{text} {MIRRORED.get(sign, sign)} {column}", lambda row: _compare(sign, seen(row[path]), value)
            )
        case "null":
            negated = draw(st.booleans())
            return Condition(f"{column} IS {'NOT ' * negated}NULL", lambda row: (row[path] is None) != negated)
        case "in":
            # Values of one kind, as people write them.
            values = draw(st.lists(st.sampled_from(pool), min_size=1, max_size=20))
            exact = [_exact_literal(value, type_) for value in values]
            nulls = [None] * draw(st.integers(0, 1))
            texts = ", ".join([*exact, *("NULL" for _ in nulls)])
            negated = draw(st.booleans())

            def found(row: Row) -> Truth:
                truth = _or([_compare("=", row[path], value) for value in [*values, *nulls]])
                return _not(truth) if negated else truth

            return Condition(f"{column} {'NOT ' * negated}IN ({texts})", found)
        case "between":
            (low, a, seen_a), (high, b, seen_b) = literal(), literal()
            return Condition(
                f"{column} BETWEEN {low} AND {high}",
                lambda row: _and([_compare(">=", seen_a(row[path]), a), _compare("<=", seen_b(row[path]), b)]),
            )
        case "null-safe":
            text, value, seen = draw(st.just(("NULL", None, _same)) | st.builds(literal))
            return Condition(
                f"{column} <=> {text}",
                lambda row: row[path] is None if value is None else _compare("=", seen(row[path]), value) or False,
            )
        case "itself":
            return Condition(f"{column} = {column}", lambda row: None if row[path] is None else True)
        case "like":
            prefix = draw(st.sampled_from(pool))[: draw(st.integers(0, 8))]
            pattern = prefix.replace("!", "!!").replace("%", "!%").replace("_", "!_") + "%"
            return Condition(
                f"{column} LIKE {_text(pattern)} ESCAPE '!'",
                lambda row: None if row[path] is None else row[path].startswith(prefix),
            )
        case _:
            return Condition(column, lambda row: row[path])


def _exact_literal(value: Any, type_: PrimitiveType) -> str:
    match value:
        case bool():
            return str(value).upper()
        case str():
            return _text(value)
        case bytes():
            return f"X'{value.hex()}'"
        case float():
            return f"CAST('{value!r}' AS DOUBLE)"
        case Decimal():
            return f"{value:f}BD"
        case datetime() if value.tzinfo is None:
            return f"TIMESTAMP_NTZ '{value.isoformat(sep=' ')}'"
        case datetime():
            return f"TIMESTAMP '{value.astimezone(UTC).replace(tzinfo=None).isoformat(sep=' ')}Z'"
        case date():
            return f"DATE '{value}'"
        case _:
            return str(value)


def _conditions(pools: Pools, zone: str) -> st.SearchStrategy[Condition]:
    def joined(word: str, judge: Callable[[Sequence[Truth]], Truth]) -> Callable[[list[Condition]], Condition]:
        def join(parts: list[Condition]) -> Condition:
            text = f" {word} ".join(f"({part.sql})" for part in parts)
            return Condition(text, lambda row: judge([part.of(row) for part in parts]))

        return join

    def extend(inner: st.SearchStrategy[Condition]) -> st.SearchStrategy[Condition]:
        several = st.lists(inner, min_size=2, max_size=3)
        return (
            several.map(joined("AND", _and))
            | several.map(joined("OR", _or))
            | inner.map(lambda part: Condition(f"NOT ({part.sql})", lambda row: _not(part.of(row))))
        )

    return st.recursive(_leaves(pools, zone), extend, max_leaves=5)


def _beside(value: Any, type_: PrimitiveType) -> Any:
    """The next number of a column of exact ones: the two may be one double."""
    if type(value) is int and value + 1 <= _GREATEST[type_.name]:
        return value + 1
    if isinstance(value, Decimal):
        unscaled = int(value.scaleb(type_.scale, _WIDE)) + 1
        return Decimal(unscaled).scaleb(-type_.scale, _WIDE) if unscaled < 10**type_.precision else None
    return None


@st.composite
def cases(draw: st.DrawFn) -> Case:
    schema = draw(schemas())
    zone = draw(st.sampled_from(ZONES))
    pools: dict[tuple[str, ...], tuple[PrimitiveType, Sequence[Any]]] = {}
    for path, type_ in schema.leaves():
        assert isinstance(type_, PrimitiveType)
        pool = draw(st.lists(strategies.values_of(type_), min_size=1, max_size=4))
        pool += [beside for value in pool if (beside := _beside(value, type_)) is not None]
        if type_.name in _ODD and draw(st.booleans()):
            pool += draw(st.lists(st.sampled_from(_ODD[type_.name]), min_size=1, max_size=3))
        # Often enough to meet a writer that hides it.
        pool += [math.nan] if type_.name in ("float", "double") and draw(st.booleans()) else []
        pools[path] = type_, pool
    partition_columns = [
        field.name
        for field in schema.fields[:-1]
        if isinstance(field.type, PrimitiveType) and field.type.name != "binary" and draw(st.integers(0, 2)) == 0
    ]
    files = draw(st.lists(_files(schema, pools, partition_columns), min_size=1, max_size=4))
    metadata = Metadata(id="m", schema_string=schema.to_json(), partition_columns=partition_columns, configuration={})
    return Case(metadata, zone, files, draw(_conditions(pools, zone)))


@st.composite
def _files(draw: st.DrawFn, schema: StructType, pools: Pools, partition_columns: Sequence[str]) -> File:
    fixed: dict[tuple[str, ...], Any] = {}
    partition_values: dict[str, str | None] = {}
    for name in partition_columns:
        type_, pool = pools[name,]
        value = draw(st.none() | st.sampled_from(pool))
        fixed[name,] = None if value == "" else value
        partition_values[schema[name].physical_name] = serialize_partition_value(value, type_)
    rows = [
        {path: fixed[path] if path in fixed else draw(_cell(pool)) for path, (_, pool) in pools.items()}
        for _ in range(draw(st.integers(0, 3)))
    ]
    return File(partition_values, _stats(draw, rows, schema, partition_columns), rows)


def _cell(pool: Sequence[Any]) -> st.SearchStrategy[Any]:
    return st.none() | st.sampled_from(pool)
