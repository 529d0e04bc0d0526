"""The leaf columns of a Parquet file: one for each value that is not nested further.

list     <column>.list.element
map      <column>.key_value.key    <column>.key_value.value
struct   <column>.<field>
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

import pyarrow as pa
from pyarrow import types


class Leaf(NamedTuple):
    path: tuple[str, ...]
    is_float: bool

    @property
    def name(self) -> str:
        """Name that Parquet writers take. A dot inside a name looks like a separator."""
        return ".".join(self.path)


def leaves(schema: pa.Schema) -> Iterator[Leaf]:
    return _leaves(schema, ())


def names_without_floats(schema: pa.Schema) -> list[str]:
    """Return the leaves that may have footer statistics and dictionaries: all except floats.

    Footers omit NaN from the maximum, and a dictionary distinguishes 0.0 from -0.0. Spark skips rows by both, although
    Spark treats NaN as the greatest number and the two zeros as equal.
    """
    found = list(leaves(schema))
    floats = {leaf.name for leaf in found if leaf.is_float}
    return [leaf.name for leaf in found if leaf.name not in floats]


def _leaves(fields: Iterable[pa.Field], above: tuple[str, ...]) -> Iterator[Leaf]:
    for field in fields:
        yield from _of_type(field.type, (*above, field.name))


def _of_type(kind: pa.DataType, path: tuple[str, ...]) -> Iterator[Leaf]:
    if types.is_struct(kind):
        yield from _leaves(kind, path)
    elif types.is_map(kind):
        yield from _of_type(kind.key_type, (*path, "key_value", "key"))
        yield from _of_type(kind.item_type, (*path, "key_value", "value"))
    elif types.is_list(kind) or types.is_large_list(kind):
        yield from _of_type(kind.value_type, (*path, "list", "element"))
    else:
        yield Leaf(path, bool(types.is_floating(kind)))
