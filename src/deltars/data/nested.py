"""Lists and maps around other values than their own."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types

Inside = Callable[[pa.Array, str], pa.Array]
"""From the values of one part (`element`, or `key` and `value`) to as many others."""


def with_values(array: pa.ListArray | pa.LargeListArray | pa.MapArray, type_: pa.DataType, inside: Inside) -> pa.Array:
    """The same lists or maps, as this type, around what is made of their values."""
    offsets, start, length = _window(array)
    if types.is_map(array.type):
        keys = inside(array.keys.slice(start, length), "key")
        values = inside(array.items.slice(start, length), "value")
        return pa.MapArray.from_arrays(offsets, keys, values, type=type_, mask=array.is_null())
    elements = inside(array.values.slice(start, length), "element")
    return pa.ListArray.from_arrays(offsets, elements, type=type_, mask=array.is_null())


def _window(array: pa.ListArray | pa.LargeListArray | pa.MapArray) -> tuple[pa.Array, int, int]:
    """Offsets from zero, and which of the child's values they cover: a slice has the child of the whole."""
    if not len(array):
        # Spark 4.1 sends no offsets for an empty array, as Arrow allows; who looks at them reads past their end.
        return pa.array([0], pa.int32()), 0, 0
    offsets = array.offsets
    start, end = offsets[0].as_py(), offsets[-1].as_py()
    return pc.subtract(offsets, start).cast(pa.int32()), start, end - start
