"""Pruning: which files may have a matching row, by their partition values and statistics.

    predicate ──partition values of a file──▶ remaining predicate ──statistics──▶ keep or skip the file

A file is kept if anything is not known: an `Unknown` condition, a column without statistics, statistics that cannot be
read. Deletion vectors need no special case: statistics then include deleted rows, so they are only wider than
necessary. Row groups have statistics of the same form and use the same code.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping, Sequence
from decimal import Decimal
from functools import lru_cache
from typing import Any, TypeAlias

import msgspec
import pyarrow as pa

from deltars.log.arrow_values import array_of
from deltars.log.bounds import once_single
from deltars.log.read_set import Added
from deltars.log.value_ranges import ANYTHING, Span, is_below_nan, partition_span, span_test, stats_span, widened
from deltars.predicate import (
    FALSE,
    TRUE,
    And,
    Column,
    Comparison,
    Constant,
    In,
    IsNull,
    Like,
    Or,
    Predicate,
    StartsWith,
    Unknown,
    columns_of,
    conjunction,
    disjunction,
    grouped,
)
from deltars.protocol import Metadata, physical_paths

_LEAVES = (Comparison, In, StartsWith, IsNull)
_PARTS = ("minValues", "maxValues", "nullCount")

_Path: TypeAlias = tuple[str, ...]
_Values: TypeAlias = list[Any]
"""numRecords, then minimum, maximum and null count of each column."""
_FileTest: TypeAlias = Callable[[_Values], bool]


class Pruner:
    """Pruner of one table's files by one condition."""

    def __init__(self, predicate: Predicate, metadata: Metadata) -> None:
        schema = metadata.schema
        physical = physical_paths(schema)
        columns = [column for column in columns_of(_prunable(predicate)) if column.path in physical]
        self.predicate = predicate
        self._grouped = grouped(predicate)
        self.metadata = metadata
        self._once_single = once_single(schema)
        self._partition = {
            column: physical[column.path][0] for column in columns if column.path[0] in metadata.partition_columns
        }
        self._data = [column for column in columns if column not in self._partition]
        self._read = _StatsReader([physical[column.path] for column in self._data])
        self._decisions: dict[str | None, bool | _FileTest] = {}
        self._tests: dict[Predicate, _FileTest] = {}

    def keeps(
        self, partition_values: Mapping[str, str | None], stats: str | None, num_records: int | None = None
    ) -> bool:
        """Return whether the file may have a matching row."""
        decision = self._decision(partition_values)
        return decision if isinstance(decision, bool) else decision(self._read(stats, num_records))

    def could_match(self, file: Added) -> bool:
        """Return whether a transaction that read by this condition would have read a concurrently added file."""
        return self._keeps_text(file.partition_values if self._partition else None, file.stats, None)

    def keep(self, files: pa.Table) -> pa.BooleanArray:
        """Return whether each file may have a matching row. `partition_values` and `stats` are columns of JSON text.

        A column with the number of rows (`num_records`, or `num_rows` of a row group) is used if `stats` has none.
        """
        stats = files["stats"].to_pylist()
        count = next((name for name in ("num_records", "num_rows") if name in files.column_names), None)
        records = files[count].to_pylist() if count else [None] * files.num_rows
        if not self._partition:
            texts: list[str | None] = [None] * files.num_rows
        else:
            texts = files["partition_values"].to_pylist()
        return array_of(list(map(self._keeps_text, texts, stats, records)), pa.bool_())

    def _keeps_text(self, partition_values: str | None, stats: str | None, num_records: int | None) -> bool:
        decision = self._decisions.get(partition_values)
        if decision is None:
            values = msgspec.json.decode(partition_values) if partition_values else {}
            decision = self._decisions[partition_values] = self._decision(values)
        return decision if isinstance(decision, bool) else decision(self._read(stats, num_records))

    # -- partition values --------------------------------------------------------------------------------------------

    def _decision(self, partition_values: Mapping[str, str | None]) -> bool | _FileTest:
        """Return whether files with these values are kept, or a test of their statistics if that is still open."""
        spans = {
            column: partition_span(partition_values[name], column.type) if name in partition_values else ANYTHING
            for column, name in self._partition.items()
        }
        left = self._reduced(self._grouped, spans)
        return left == TRUE if isinstance(left, Constant) else self._test(left)

    def _reduced(self, predicate: Predicate, spans: Mapping[Column, Span]) -> Predicate:
        match predicate:
            case And(parts):
                return conjunction(self._reduced(part, spans) for part in parts)
            case Or(parts):
                return disjunction(self._reduced(part, spans) for part in parts)
            case Constant(value):
                return TRUE if value else FALSE
            case Unknown() | Like():
                return TRUE
            case leaf if leaf.column in spans:
                return Constant(span_test(leaf)(spans[leaf.column]))
            case leaf:
                return leaf if leaf.column in self._data else TRUE

    # -- statistics --------------------------------------------------------------------------------------------------

    def _test(self, predicate: Predicate) -> _FileTest:
        test = self._tests.get(predicate)
        if test is None:
            test = self._tests[predicate] = self._compiled(predicate, frozenset())
        return test

    def _compiled(self, predicate: Predicate, without_nan: frozenset[Column]) -> _FileTest:
        if isinstance(predicate, And):
            limited = {part.column for part in predicate.parts if isinstance(part, _LEAVES) and is_below_nan(part)}
            every = [self._compiled(part, without_nan | limited) for part in predicate.parts]
            return lambda values: all(test(values) for test in every)
        if isinstance(predicate, Or):
            some = [self._compiled(part, without_nan) for part in predicate.parts]
            return lambda values: any(test(values) for test in some)
        assert isinstance(predicate, _LEAVES)
        column = predicate.column
        test = span_test(predicate, nan_matches=column not in without_nan)
        place, span = 1 + 3 * self._data.index(column), _span_of(column, self._once_single)
        return lambda values: test(span(values[place], values[place + 1], values[place + 2], values[0]))


class ColumnSpans:
    """The range of one column's values in each file."""

    def __init__(self, column: Column, metadata: Metadata) -> None:
        schema = metadata.schema
        physical = physical_paths(schema).get(column.path)
        self._column = column
        self._partition = physical[0] if physical and column.path[0] in metadata.partition_columns else None
        self._read = _StatsReader([physical]) if physical else None
        self._span = _span_of(column, once_single(schema))

    def of(self, partition_values: str | None, stats: str | None) -> Span:
        """Return the range in a file with these partition values, as JSON text, and statistics."""
        if self._read is None:
            return ANYTHING
        if self._partition is None:
            records, minimum, maximum, nulls = self._read(stats, None)
            return self._span(minimum, maximum, nulls, records)
        values = msgspec.json.decode(partition_values) if partition_values else {}
        if self._partition not in values:
            return ANYTHING
        return partition_span(values[self._partition], self._column.type)


def _span_of(column: Column, once_single: Collection[_Path]) -> Callable[[Any, Any, Any, Any], Span]:
    """Return the function from a column's statistics to its span."""
    span = stats_span(column.type, is_nested=len(column.path) > 1)
    if column.path not in once_single:
        return span
    return lambda minimum, maximum, nulls, records: widened(span(minimum, maximum, nulls, records))


def _prunable(predicate: Predicate) -> Predicate:
    """Return the predicate with TRUE in place of conditions that statistics cannot decide."""
    match predicate:
        case And(parts):
            return And(tuple(map(_prunable, parts)))
        case Or(parts):
            return Or(tuple(map(_prunable, parts)))
        case Unknown() | Like():
            return TRUE
    return predicate


class _StatsReader:
    """Reader of some columns of statistics in JSON."""

    def __init__(self, paths: list[_Path]) -> None:
        self._paths = paths
        self._decode = _decoder(tuple(paths)).decode
        names = _field_names(_tree(paths))
        self._places = [names[path] for path in paths]

    def __call__(self, stats: str | None, num_records: int | None) -> _Values:
        if stats is None:
            return [num_records] + [None] * 3 * len(self._paths)
        try:
            document: Any = self._decode(stats)
        except (msgspec.DecodeError, msgspec.ValidationError, ArithmeticError):
            return self._read_irregular(stats, num_records)
        values: _Values = [num_records if document.numRecords is None else document.numRecords]
        parts = (document.minValues, document.maxValues, document.nullCount)
        for place in self._places:
            for found in parts:
                for name in place:
                    found = None if found is None else getattr(found, name)
                values.append(found)
        return values

    def _read_irregular(self, stats: str, num_records: int | None) -> _Values:
        """Read what is usable of statistics that do not have the usual form."""
        try:
            document = json.loads(stats, parse_float=Decimal)
        except (ValueError, RecursionError):
            document = None
        document = document if isinstance(document, dict) else {}
        records = document.get("numRecords")
        values: _Values = [num_records if records is None else records]
        for path in self._paths:
            for part in _PARTS:
                found = document.get(part)
                for name in path:
                    found = found.get(name) if isinstance(found, dict) else None
                values.append(found)
        return values


@lru_cache(maxsize=100)
def _decoder(paths: tuple[_Path, ...]) -> msgspec.json.Decoder[Any]:
    """Return a decoder for these columns. It is cached, because creating its struct types is slow."""
    part = _struct(_tree(paths)) | None
    document = msgspec.defstruct("Stats", [("numRecords", Any, None), *((name, part, None) for name in _PARTS)])
    # Numbers with a decimal point are decoded as Decimal, because only some column types may be read as float.
    return msgspec.json.Decoder(document, float_hook=Decimal)


def _tree(paths: Sequence[_Path]) -> dict[str, Any]:
    tree: dict[str, Any] = {}
    for path in paths:
        inner = tree
        for name in path[:-1]:
            inner = inner.setdefault(name, {})
        inner[path[-1]] = None
    return tree


def _struct(tree: Mapping[str, Any]) -> Any:
    """Return a struct type with these columns only. Its fields are named f0, f1, …, since any text may be a column."""
    fields = [(f"f{i}", Any if inner is None else _struct(inner) | None, None) for i, inner in enumerate(tree.values())]
    return msgspec.defstruct(
        "Columns", fields, rename=dict(zip((f"f{i}" for i in range(len(tree))), tree, strict=True))
    )


def _field_names(tree: Mapping[str, Any], path: _Path = (), fields: _Path = ()) -> dict[_Path, _Path]:
    found: dict[_Path, _Path] = {}
    for i, (name, inner) in enumerate(tree.items()):
        here, field = (*path, name), (*fields, f"f{i}")
        found |= {here: field} if inner is None else _field_names(inner, here, field)
    return found
