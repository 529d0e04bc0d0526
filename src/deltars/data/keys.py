"""Equal keys of a merge's two sides, as Spark compares them.

    source rows ──comparison type, normalised──▶ codes 0, 1, 2, …, one for each distinct key
    target rows ──the same────────────────────▶ the code of its key, or null if no source row has it

-0.0 equals 0.0, NaN equals NaN, and null equals nothing. Arrow's own functions see all three differently.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types

from deltars.data.row_change import KeyValues
from deltars.predicate import Column
from deltars.protocol import DataType, PrimitiveType, type_to_arrow

MAX_VALUES = 1_000_000
"""Most values of a key that `key_values` lists."""

_DIGITS = {8: 3, 16: 5, 32: 10, 64: 20}
_MAX_DIGITS = 38
_BITS = {pa.float32(): pa.int32(), pa.float64(): pa.int64()}


def comparison_type(target: DataType, source: DataType) -> pa.DataType | None:
    """Return the type in which Spark compares keys of these types, or None if only Spark can compare them."""
    if not isinstance(target, PrimitiveType) or not isinstance(source, PrimitiveType):
        return None
    if target.name in ("void", "variant"):
        return None
    if source.name == "void":
        return type_to_arrow(target)
    kinds = [type_to_arrow(target), type_to_arrow(source)]
    if all(map(types.is_integer, kinds)):
        return pa.int64()
    if kinds[0] == kinds[1]:
        return kinds[0]
    if any(map(types.is_float64, kinds)) and all(types.is_integer(k) or types.is_floating(k) for k in kinds):
        return pa.float64()
    if all(types.is_integer(kind) or types.is_decimal(kind) for kind in kinds):
        decimals = [kind if types.is_decimal(kind) else pa.decimal128(_DIGITS[kind.bit_width], 0) for kind in kinds]
        scale = max(kind.scale for kind in decimals)
        digits = max(kind.precision - kind.scale for kind in decimals) + scale
        # Beyond 38 digits Spark rounds.
        return pa.decimal128(digits, scale) if digits <= _MAX_DIGITS else None
    # Spark's settings decide how an integer and a float, or a date and a timestamp, are compared.
    return None


def values_of(column: Column, rows: pa.RecordBatch) -> pa.Array:
    """Return the values of a column, or of a field of a struct, which is null where the struct is."""
    top, *below = column.path
    values = rows.column(top)
    return pc.struct_field(values, below) if below else values


def normalised(values: pa.Array, kind: pa.DataType) -> pa.Array:
    """Return the values in the comparison type, with one zero and one NaN."""
    if types.is_null(values.type):
        return pa.nulls(len(values), kind)
    if types.is_decimal(kind) and types.is_integer(values.type):
        values = values.cast(pa.int64()).cast(pa.decimal128(19, 0))
    # As in Java, a long becomes the nearest double.
    values = values.cast(kind, safe=not types.is_floating(kind))
    if not types.is_floating(kind):
        return values
    return pc.if_else(pc.is_nan(values), pa.scalar(math.nan, kind), pc.add(values, pa.scalar(0.0, kind)))


def key_values(column: Column, values: pa.Array) -> KeyValues | None:
    """Return the distinct values of a key, normalised. None if Python has no such values, as dates after 9999."""
    distinct = values.unique().drop_null()
    distinct = distinct.take(pc.sort_indices(distinct))
    listed = distinct if len(distinct) <= MAX_VALUES else pa.concat_arrays([distinct[:1], distinct[-1:]])
    try:
        found = listed.to_pylist()
    except (OverflowError, ValueError, pa.ArrowInvalid):
        return None
    return KeyValues(column, found[0], found[-1], found if len(distinct) <= MAX_VALUES else None)


class KeyIndex:
    """The keys of the source's rows, to look up those of the target's."""

    def __init__(self, keys: Sequence[pa.Array], kinds: Sequence[pa.DataType], is_candidate: pa.Array | None) -> None:
        """Take one array for each key. Rows that are not candidates match nothing."""
        self._kinds = kinds
        self._distinct: list[pa.Array] = []
        self._pairs: list[pa.Array] = []
        codes = self._encoded(keys, is_new=True)
        if is_candidate is not None:
            codes = pc.if_else(is_candidate, codes, pa.scalar(None, pa.int64()))
        self.codes = codes
        """Code of each source row; null if it matches nothing."""
        numbers = pc.subtract(pc.cumulative_sum(pa.repeat(pa.scalar(1, pa.int64()), len(codes))), 1)
        rows = pa.table({"code": codes, "row": numbers}).drop_null()
        groups = rows.group_by("code", use_threads=False).aggregate([("row", "list")]).sort_by("code")
        self._groups = groups["row_list"].combine_chunks()
        self._known = groups["code"].combine_chunks()

    def find(self, keys: Sequence[pa.Array]) -> pa.Array:
        """Return the place of each target row's key among the keys that can match; null if it has none."""
        return pc.index_in(self._encoded(keys, is_new=False), value_set=self._known)

    def source_rows(self, found: pa.Array) -> tuple[pa.Array, pa.Array]:
        """Return the pairs of matching rows: the place in `found`, and the number of the source row."""
        lists = self._groups.take(found)
        return pc.list_parent_indices(lists), pc.list_flatten(lists)

    def matched_rows(self, found: pa.Array) -> pa.Array:
        """Return the numbers of the source rows that match a target row."""
        return pc.list_flatten(self._groups.take(found))

    def _encoded(self, keys: Sequence[pa.Array], *, is_new: bool) -> pa.Array:
        codes = None
        for place, (values, kind) in enumerate(zip(keys, self._kinds, strict=True)):
            values = normalised(values, kind)
            values = values.view(_BITS[kind]) if kind in _BITS else values
            if is_new:
                self._distinct.append(values.unique().drop_null())
            code = _code(values, self._distinct[place])
            if codes is None:
                codes = code
                continue
            # Codes are below 2**31, so that a pair fits 64 bits.
            pair = pc.add(pc.multiply(codes, len(self._distinct[place])), code)
            if is_new:
                self._pairs.append(pair.unique().drop_null())
            codes = _code(pair, self._pairs[place - 1])
        assert codes is not None
        return codes


def _code(values: pa.Array, distinct: pa.Array) -> pa.Array:
    return pc.index_in(values, value_set=distinct).cast(pa.int64())
