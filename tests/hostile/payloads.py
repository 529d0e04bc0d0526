"""Values that were chosen to break things: texts, numbers, Python objects and frames.

texts()    a few hundred seeds, each alone, before, after and inside a valid text: more than 1,000
values()   what a caller passes by mistake: other types, limits of 64 bits, endless and nested containers
frames()   Arrow tables with odd names, types and contents
"""

from __future__ import annotations

import datetime as dt
import json
import random
from collections.abc import Iterator, Sequence
from decimal import Decimal
from functools import cache
from pathlib import Path
from typing import Any
from uuid import UUID

import pyarrow as pa

MEGABYTE = 1 << 20
DEPTH = 20_000

_WRITTEN: dict[str, list[str]] = json.loads((Path(__file__).parent / "texts.json").read_text())
_CONTROLS = [chr(code) for code in (*range(32), *range(127, 160))]


def _nested(depth: int) -> list[str]:
    return [
        "(" * depth + "id = 1" + ")" * depth,
        "(" * depth,
        "NOT " * depth + "id = 1",
        " AND ".join(["id = 1"] * (depth // 4)),
        " OR ".join(f"id = {number}" for number in range(depth // 4)),
        "id = " + "-" * 2 + "1 + " * (depth // 4) + "1",
        "id IN (" + ", ".join(map(str, range(depth))) + ")",
        "CASE WHEN id = 1 THEN " * (depth // 40) + "1" + " END" * (depth // 40),
        "id " + "ARRAY<" * depth + "INT" + ">" * depth,
        "id " + "STRUCT<a: " * (depth // 10) + "INT" + ">" * (depth // 10),
        "ARRAY<" * (depth // 10) + "INT" + ">" * (depth // 10),
        "[" * depth + "]" * depth,
        '{"a":' * depth + "1" + "}" * depth,
        '{"type":"array","containsNull":true,"elementType":' * depth + '"long"' + "}" * depth,
        "SELECT * FROM (" * (depth // 40) + "SELECT 1" + ")" * (depth // 40),
        "`" * depth,
        "." * depth,
        "a." * depth + "a",
        "/" * depth,
        "../" * depth,
        "%2e%2e%2f" * (depth // 10),
    ]


def _sizes() -> list[str]:
    return [
        "a" * MEGABYTE,
        "é" * (MEGABYTE // 2),
        "'" * MEGABYTE,
        " " * MEGABYTE,
        "\\" * MEGABYTE,
        "a" * 1_024,
        "a" * 65_536,
        "a/" * 3_000,
        "1" * 5_000,
        '{"a":' + "1" * 5_000 + "}",
        "日" * 85,
        "日" * 86,
    ]


@cache
def seeds() -> tuple[str, ...]:
    """Return each text once, as it is."""
    kinds = (*_WRITTEN.values(), _CONTROLS, _nested(DEPTH), _nested(300), _sizes())
    return tuple(dict.fromkeys(text for kind in kinds for text in kind))


@cache
def texts() -> tuple[str, ...]:
    """Return all texts: each seed alone, before, after and inside a valid one."""
    short = [text for text in seeds() if len(text) < 300]
    mixed = (form for text in short for form in (f"{text}a", f"a{text}", f"a{text}b"))
    return tuple(dict.fromkeys([*seeds(), *mixed]))


class Text(str):
    """A text of a subclass, as NumPy and others make them."""


class Number(int):
    """A number of a subclass."""


def _nested_list(depth: int) -> list[Any]:
    found: list[Any] = []
    for _ in range(depth):
        found = [found]
    return found


def _recursive() -> list[Any]:
    found: list[Any] = []
    found.append(found)
    return found


@cache
def values() -> tuple[Any, ...]:
    """Return objects of every kind, also those that are right for some parameters."""
    numbers = [
        -(2**63) - 1,
        -(2**63),
        -(2**31) - 1,
        -1,
        0,
        1,
        2,
        7,
        2**31 - 1,
        2**31,
        2**53 + 1,
        2**63 - 1,
        2**63,
        2**64,
        10**30,
        10**5_000,
    ]
    floats = [0.0, -0.0, 0.5, -1.0, 1e-320, 1e308, float("nan"), float("inf"), float("-inf")]
    utc = dt.UTC
    times: list[Any] = [
        dt.datetime.min,
        dt.datetime.max,
        dt.datetime.min.replace(tzinfo=utc),
        dt.datetime.max.replace(tzinfo=utc),
        dt.datetime(9999, 12, 31, 23, 59, 59, 999_999, dt.timezone(dt.timedelta(hours=-23))),
        dt.datetime(1, 1, 1, tzinfo=dt.timezone(dt.timedelta(hours=23))),
        dt.datetime(2026, 1, 1),
        dt.datetime(2026, 1, 1, tzinfo=utc),
        dt.date.min,
        dt.date.max,
        dt.time(1),
        dt.timedelta.min,
        dt.timedelta.max,
        dt.timedelta(0),
        dt.timedelta(microseconds=-1),
    ]
    containers: list[Any] = [
        [],
        (),
        {},
        set(),
        frozenset(),
        [None],
        [""],
        ["id"],
        ["id", "id"],
        ["nothing"],
        ("features",),
        ["features", "features"],
        [1],
        [[]],
        [b"x"],
        ["\0"],
        ["\ud800"],
        ["a" * MEGABYTE],
        ["id"] * 2_000,
        {"id"},
        {"id": None},
        {"id": 1},
        {"id": "1"},
        {"id": "id"},
        {"name": "'x'"},
        {1: 2},
        {None: None},
        {"": ""},
        {"\0": "\0"},
        {"\ud800": "\ud800"},
        {"a": "\0"},
        {"a": "\ud800"},
        {"a": {"b": {}}},
        {"delta.appendOnly": "maybe"},
        {"delta.nothing": "x"},
        {"delta.checkpointInterval": "-1"},
        {"delta.minWriterVersion": "99"},
        {"delta.columnMapping.mode": "name"},
        {"delta.feature.nothing": "supported"},
        {"deltars.nothing": "x"},
        {"a" * 70_000: "x"},
        _nested_list(50),
        _nested_list(DEPTH),
        _recursive(),
        range(3),
        iter([]),
        (one for one in ["id"]),
        {"deep": _nested_list(DEPTH)},
    ]
    objects: list[Any] = [
        None,
        True,
        False,
        b"",
        b"\xff",
        bytearray(b"x"),
        1j,
        Decimal("NaN"),
        Decimal("1e400"),
        Decimal("0.1"),
        UUID(int=0),
        UUID(int=2**128 - 1),
        Path("x"),
        Path("/etc/passwd"),
        object(),
        object,
        type,
        int,
        len,
        print,
        ...,
        NotImplemented,
        lambda *given: None,
        Exception("x"),
        Text("features"),
        Text("\0"),
        Number(1),
        memoryview(b"x"),
        pa.scalar(1),
        pa.array([1]),
        pa.schema([]),
        pa.table({}),
        __builtins__,
    ]
    return (*numbers, *floats, *times, *containers, *objects)


def _invalid_utf8() -> pa.Array:
    return pa.Array.from_buffers(
        pa.string(), 1, [None, pa.array([0, 2], pa.int32()).buffers()[1], pa.py_buffer(b"\xff\xfe")]
    )


def _array(values: Sequence[Any], type: pa.DataType | None = None) -> pa.Table:
    return pa.table({"id": pa.array([1] * len(values), pa.int64()), "name": pa.array(values, type)})


@cache
def frames() -> tuple[Any, ...]:
    """Return frames that fit the table of `world.py` (id BIGINT, name STRING), nearly fit it, or do not."""
    ids = pa.array([1, 2], pa.int64())
    odd_types = [
        pa.null(),
        pa.bool_(),
        pa.uint64(),
        pa.float16(),
        pa.float64(),
        pa.decimal128(38, 38),
        pa.decimal256(76, 0),
        pa.date32(),
        pa.date64(),
        pa.time32("s"),
        pa.time64("ns"),
        pa.timestamp("s"),
        pa.timestamp("ns", "Mars/Olympus"),
        pa.timestamp("us", "UTC"),
        pa.duration("us"),
        pa.month_day_nano_interval(),
        pa.binary(),
        pa.binary(3),
        pa.large_string(),
        pa.string_view(),
        pa.list_(pa.int8()),
        pa.list_(pa.int8(), 2),
        pa.large_list(pa.int8()),
        pa.struct([]),
        pa.struct([("a", pa.int8())]),
        pa.map_(pa.string(), pa.string()),
        pa.dictionary(pa.int8(), pa.string()),
        pa.run_end_encoded(pa.int32(), pa.string()),
        pa.dense_union([pa.field("a", pa.int8())]),
        pa.list_(pa.null()),
    ]
    found: list[Any] = []
    for type in odd_types:
        try:
            found.append(pa.table({"id": ids, "name": pa.nulls(2, type)}))
        except (pa.ArrowException, NotImplementedError):
            continue
    found += [_array([text]) for text in seeds() if is_unicode(text)]
    named = [text for text in seeds() if is_unicode(text) and len(text) < 100_000]
    found += [pa.table({text: ids}) for text in named]
    found += [
        pa.table({}),
        pa.table({"id": pa.array([], pa.int64())}),
        pa.table([ids, ids], ["id", "id"]),
        pa.table([ids, ids], ["id", "ID"]),
        pa.table({"id": [None]}),
        pa.table({"id": [2**63 - 1]}),
        pa.table({"id": [-(2**63)]}),
        pa.table({"id": pa.array([2**64 - 1], pa.uint64())}),
        pa.table({"id": ids, "name": pa.chunked_array([_invalid_utf8(), _invalid_utf8()])}),
        _array([None]),
        _array([]),
        _array(["a" * MEGABYTE * 4]),
        pa.table({f"c{number}": ids for number in range(2_000)}),
        ids,
        pa.RecordBatch.from_pydict({"id": ids}),
        pa.table({"id": ids}).to_reader(),
        pa.table({"id": ids}).to_pandas(),
        {"id": [1]},
        [{"id": 1}],
        [],
        "features",
        1,
        None,
        pa.table({"id": ids.dictionary_encode()}),
        pa.table({"id": pa.array([1.5])}),
        pa.table({"id": pa.array([float("nan")])}),
        pa.table({"id": pa.array(["1"])}),
        pa.table({"id": pa.array(["x"])}),
    ]
    return tuple(found)


def is_unicode(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def sample(rng: random.Random, pool: Sequence[Any], count: int) -> Iterator[Any]:
    """Yield `count` different entries of a pool, or all of them if it has fewer."""
    yield from rng.sample(pool, min(count, len(pool)))
