"""Random tables with row-level changes, and a model of the changes in plain Python.

tables() ──▶ Table: a scan of real files, and its live rows as dictionaries
Terms: pairs of SQL and a Python function of the rows, with Spark's three truth values and its order of NaN
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any, Literal, TypeAlias

import pyarrow as pa
from hypothesis import strategies as st

from deltars.data.row_change import Clause, ClauseKind, RowChanges
from deltars.data.scan import Scan
from deltars.protocol import ColumnMapping, PrimitiveType, StructField, StructType, schema_from_ddl, schema_to_arrow
from tests.support.scans import scan_of_files, write_file

Row: TypeAlias = Mapping[str, Any]
Pair: TypeAlias = Callable[[Any, Any], Any]

KEYS: dict[str, Sequence[Any]] = {
    "long": (0, 1, -1, 2**53 + 1),
    "integer": (0, 1, -1),
    "string": ("", "a", "é", "a "),
    "double": (0.0, -0.0, math.nan, 1.5),
    "float": (0.0, -0.0, math.nan, 1.5),
    "date": (date(1, 1, 1), date(2026, 1, 1), date(9999, 12, 31)),
    "timestamp": (datetime(1900, 1, 1, tzinfo=UTC), datetime(2026, 1, 1, 1, 2, 3, 456_789, UTC)),
    "timestamp_ntz": (datetime(1900, 1, 1), datetime(2026, 1, 1, 1, 2, 3, 456_789)),
    "decimal(10,2)": (Decimal("0.00"), Decimal("1.10"), Decimal("-1.10")),
    "boolean": (True, False),
    "binary": (b"", b"a", b"\xff"),
}
OTHERS = "v BIGINT, x DOUBLE, label STRING, price DECIMAL(10,2), s STRUCT<n: BIGINT, m: INT>, tags ARRAY<INT>, p INT"
SOURCE_TYPES = {"long": ("integer", "long"), "decimal(10,2)": ("decimal(12,4)", "decimal(10,2)", "integer")}


@dataclass(frozen=True)
class Table:
    scan: Scan
    files: Sequence[Sequence[Row | None]]
    """Rows of each file; None stands for a row that the file's vector deletes."""

    @property
    def rows(self) -> list[Row]:
        return [row for file in self.files for row in file if row is not None]

    def after(self, changes: RowChanges) -> Counter[str]:
        """The rows that are left, and those that came; a column that a frame lacks is null."""
        left = [
            row
            for place, file in enumerate(self.files)
            for number, row in enumerate(file)
            if row is not None and number not in changes.positions.get(place, ())
        ]
        for place, numbers in changes.positions.items():
            assert all(self.files[place][number] is not None for number in numbers), "a deleted row was matched again"
        came = [row for frame in changes.rows if isinstance(frame, pa.Table) for row in frame.to_pylist()]
        return bag([*left, *({name: row.get(name) for name in self.scan.schema.names} for row in came)])


def bag(rows: Sequence[Row]) -> Counter[str]:
    return Counter(repr(sorted((name, _shown(value)) for name, value in row.items())) for row in rows)


def _shown(value: Any) -> str:
    # Arrow has another object for UTC than Python.
    return value.isoformat() if isinstance(value, datetime) else repr(value)


def rows_of(draw: st.DrawFn, key_pool: Sequence[Any], most: int) -> list[dict[str, Any]]:
    row = st.fixed_dictionaries(
        {
            "k": st.sampled_from([*key_pool, None]),
            "v": st.sampled_from([None, 0, 1, 5]),
            "x": st.sampled_from([None, -0.0, 0.0, 2.5, math.nan]),
            "label": st.sampled_from([None, "", "a", "b"]),
            "price": st.sampled_from([None, Decimal("1.25"), Decimal("-3.00")]),
            "s": st.sampled_from([None, {"n": None, "m": 1}, {"n": 7, "m": None}]),
            "tags": st.sampled_from([None, [], [1, None]]),
            "p": st.sampled_from([None, 1, 2]),
        }
    )
    return draw(st.lists(row, max_size=most))


@st.composite
def tables(draw: st.DrawFn, root: Path, key: str) -> Table:
    mapping: ColumnMapping = draw(st.sampled_from(["none", "name"]))
    schema = _mapped(_schema(key)) if mapping == "name" else _schema(key)
    is_partitioned = draw(st.booleans())
    partitions = ["p"] if is_partitioned else []
    names = {field.name: field.physical_name if mapping == "name" else field.name for field in schema.fields}
    inside = StructType(tuple(field for field in schema.fields if field.name not in partitions))
    arrow = schema_to_arrow(inside, physical=mapping == "name")
    plain = schema_to_arrow(inside)
    files, contents = [], []
    for place in range(draw(st.integers(0, 3))):
        rows = rows_of(draw, KEYS[key], 6)
        value = draw(st.sampled_from([None, 1, 2]))
        if is_partitioned:
            rows = [{**row, "p": value} for row in rows]
        deleted = draw(st.sets(st.integers(0, len(rows) - 1))) if rows else set()
        table = pa.Table.from_pylist([{name: row[name] for name in inside.names} for row in rows], plain)
        arrays = [column.combine_chunks() for column in table.columns]
        stored = pa.Table.from_arrays([a.view(f.type) for a, f in zip(arrays, arrow, strict=True)], schema=arrow)
        values = {names["p"]: None if value is None else str(value)} if is_partitioned else {}
        files.append(write_file(root, f"{place}.parquet", stored, values, sorted(deleted)))
        contents.append([None if number in deleted else row for number, row in enumerate(rows)])
    return Table(scan_of_files(root, schema, files, partitions, mapping), contents)


def source_of(draw: st.DrawFn, key: str) -> tuple[pa.Table, list[dict[str, Any]]]:
    """A source, in one of the layouts that Arrow knows, and its rows."""
    type_ = draw(st.sampled_from(SOURCE_TYPES.get(key, (key,))))
    pool = [value for value in KEYS[key] if type_ != "integer" or (value == int(value) and abs(value) < 2**31)]
    rows = rows_of(draw, pool, 5)
    table = pa.Table.from_pylist(rows, schema_to_arrow(_schema(type_)))
    layouts = {"plain": None, "dictionary": None, "large": pa.large_string(), "view": pa.string_view()}
    layout = draw(st.sampled_from(sorted(layouts)))
    for name in ("k", "label"):
        place, column = table.column_names.index(name), table[name]
        if layout == "dictionary" and not pa.types.is_boolean(column.type):
            table = table.set_column(place, name, column.dictionary_encode())
        elif layouts[layout] is not None and pa.types.is_string(column.type):
            table = table.set_column(place, name, column.cast(layouts[layout]))
    return table, rows


def _schema(key: str) -> StructType:
    return StructType((StructField("k", PrimitiveType(key)), *schema_from_ddl(OTHERS).fields))


def _mapped(schema: StructType) -> StructType:
    return StructType(
        tuple(
            StructField(
                field.name,
                _mapped(field.type) if isinstance(field.type, StructType) else field.type,
                True,
                {"delta.columnMapping.physicalName": f"c-{field.name}", "delta.columnMapping.id": place},
            )
            for place, field in enumerate(schema.fields)
        )
    )


# -- terms ------------------------------------------------------------------------------------------------------------


def order(value: Any) -> Any:
    return (math.isnan(value), 0.0 if math.isnan(value) else value) if isinstance(value, float) else value


def equal(left: Any, right: Any) -> bool | None:
    return None if left is None or right is None else order(left) == order(right)


def less(left: Any, right: Any) -> bool | None:
    return None if left is None or right is None else bool(order(left) < order(right))


def either(*truths: bool | None) -> bool | None:
    return True if True in truths else None if None in truths else False


def both(*truths: bool | None) -> bool | None:
    return False if False in truths else None if None in truths else True


def plus(left: Any, right: Any) -> Any:
    return None if left is None or right is None else left + right


def with_field(struct: Any, **fields: Any) -> dict[str, Any]:
    return {"n": None, "m": None} | (struct or {}) | fields


Action: TypeAlias = Literal["update", "delete", "insert"]
CHANGES: Sequence[Action] = ["update", "delete"]
Condition: TypeAlias = tuple[str | None, Pair]
Values: TypeAlias = tuple[dict[str, str], Pair]

WHERE: Sequence[Condition] = [
    (None, lambda t, s: True),
    ("v > 0", lambda t, s: less(0, t["v"])),
    ("x >= 2.5 OR label = 'a'", lambda t, s: either(less(2.0, t["x"]), equal(t["label"], "a"))),
    ("p = 1", lambda t, s: equal(t["p"], 1)),
    ("NOT (v < p)", lambda t, s: {True: False, False: True, None: None}[less(t["v"], t["p"])]),
    ("S.N IS NULL AND k = K", lambda t, s: both(not t["s"] or t["s"]["n"] is None, None if t["k"] is None else True)),
    ("x = x AND v + 1 > p", lambda t, s: both(equal(t["x"], t["x"]), less(t["p"], plus(t["v"], 1)))),
    ("label IN ('a', NULL)", lambda t, s: equal(t["label"], "a") or None),
]
SET: Sequence[Values] = [
    ({"v": "v + 1"}, lambda t, s: {"v": plus(t["v"], 1)}),
    ({"label": "concat(label, '!')", "p": "2"}, lambda t, s: {"label": plus(t["label"], "!"), "p": 2}),
    ({"x": "CASE WHEN v > 0 THEN v ELSE x END"}, lambda t, s: {"x": float(t["v"]) if less(0, t["v"]) else t["x"]}),
    ({"s.n": "v", "tags": "NULL"}, lambda t, s: {"s": with_field(t["s"], n=t["v"]), "tags": None}),
    ({"price": "price * 1.5", "x": "0.5"}, lambda t, s: {"price": _half_up(t["price"]), "x": 0.5}),
    ({"k": "NULL", "v": "p", "p": "v"}, lambda t, s: {"k": None, "v": t["p"], "p": t["v"]}),
]
ON: Sequence[Condition] = [
    ("t.k = s.k", lambda t, s: equal(t["k"], s["k"])),
    ("S.K = T.K AND t.p = s.p", lambda t, s: both(equal(t["k"], s["k"]), equal(t["p"], s["p"]))),
    ("t.k = s.k AND t.p = 1 AND s.v >= 0", lambda t, s: both(
        equal(t["k"], s["k"]), equal(t["p"], 1), either(less(0, s["v"]), equal(0, s["v"])))),
    ("t.label = s.label AND t.v = s.v AND t.k = s.k", lambda t, s: both(
        equal(t["label"], s["label"]), equal(t["v"], s["v"]), equal(t["k"], s["k"]))),
]  # fmt: skip
MATCHED_IF: Sequence[Condition] = [
    (None, lambda t, s: True),
    ("s.v > t.v", lambda t, s: less(t["v"], s["v"])),
    ("t.x < s.x OR s.label IS NULL", lambda t, s: either(less(t["x"], s["x"]), s["label"] is None)),
    ("t.s.n = 7", lambda t, s: equal((t["s"] or {"n": None})["n"], 7)),
]
MATCHED_SET: Sequence[Values] = [
    ({"v": "t.v + s.v"}, lambda t, s: {"v": plus(t["v"], s["v"])}),
    ({"label": "coalesce(s.label, t.label)"}, lambda t, s: {"label": t["label"] if s["label"] is None else s["label"]}),
    ({"s.n": "s.v", "k": "s.k"}, lambda t, s: {"s": with_field(t["s"], n=s["v"]), "k": s["k"]}),
]
SOURCE_IF: Sequence[Condition] = [
    (None, lambda t, s: True),
    ("s.v > 0", lambda t, s: less(0, s["v"])),
    ("label = 'a' OR k IS NULL", lambda t, s: either(equal(s["label"], "a"), s["k"] is None)),
]
INSERT: Sequence[Values] = [
    ({"k": "s.k", "v": "s.v + 1"}, lambda t, s: {"k": s["k"], "v": plus(s["v"], 1)}),
    ({"label": "'new'", "s.m": "5"}, lambda t, s: {"label": "new", "s": {"n": None, "m": 5}}),
]


def _half_up(price: Decimal | None) -> Decimal | None:
    return None if price is None else (price * Decimal("1.5")).quantize(Decimal("0.01"), rounding="ROUND_HALF_UP")


# -- merge ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class ModelClause:
    clause: Clause
    condition: Pair
    values: Pair


@st.composite
def clauses(draw: st.DrawFn) -> list[ModelClause]:
    found = []
    kinds: dict[ClauseKind, tuple[Sequence[Condition], Sequence[Values]]] = {
        "matched": (MATCHED_IF, MATCHED_SET),
        "not_matched": (SOURCE_IF, INSERT),
        "not_matched_by_source": (WHERE, SET),
    }
    for kind, (conditions, values) in kinds.items():
        for _ in range(draw(st.integers(0, 2))):
            sql, holds = draw(st.sampled_from(conditions))
            action: Action = "insert" if kind == "not_matched" else draw(st.sampled_from(CHANGES))
            is_source = action != "delete" and kind != "not_matched_by_source" and draw(st.booleans())
            texts, new = draw(st.sampled_from(values))
            if is_source:
                texts, new = {}, lambda t, s: dict(s)
            if action == "delete":
                texts = {}
            found.append(ModelClause(Clause(kind, action, sql, texts, is_source), holds, new))
    return found


class DuplicateMatchError(Exception):
    """Several source rows change one target row."""


def merged(rows: Sequence[Row], source: Sequence[Row], on: Pair, clauses: Sequence[ModelClause]) -> Counter[str]:
    """The rows after the merge."""
    of = {
        kind: [c for c in clauses if c.clause.kind == kind]
        for kind in ("matched", "not_matched", "not_matched_by_source")
    }
    matched = of["matched"]
    only_delete = len(matched) == 1 and matched[0].clause.action == "delete" and matched[0].clause.condition is None
    result: list[Row] = []
    for row in rows:
        partners = [other for other in source if on(row, other) is True]
        if not partners:
            chosen = _first(of["not_matched_by_source"], row, {})
            result += [row] if chosen is None else _changed(chosen, row, {})
            continue
        applied = [(chosen, other) for other in partners if (chosen := _first(matched, row, other)) is not None]
        if len(applied) > 1 and not only_delete:
            raise DuplicateMatchError
        result += _changed(applied[0][0], row, applied[0][1]) if applied else [row]
    for other in source:
        if not any(on(row, other) is True for row in rows):
            chosen = _first(of["not_matched"], {}, other)
            empty = dict.fromkeys(other)
            result += [] if chosen is None else [empty | chosen.values({}, other)]
    return bag(result)


def _first(clauses: Sequence[ModelClause], row: Row, other: Row) -> ModelClause | None:
    return next((clause for clause in clauses if clause.condition(row, other) is True), None)


def _changed(chosen: ModelClause, row: Row, other: Row) -> list[Row]:
    return [] if chosen.clause.action == "delete" else [{**row, **chosen.values(row, other)}]
