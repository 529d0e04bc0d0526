"""The leaves of a Parquet file: the columns that it really has, one for each value that is not nested further.

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
        """As writers are told it. A dot inside a name looks like one between two of them."""
        return ".".join(self.path)


def leaves(schema: pa.Schema) -> Iterator[Leaf]:
    return _leaves(schema, ())


def names_without_floats(schema: pa.Schema) -> list[str]:
    """The leaves that may have footer statistics and dictionaries.

    Floats have neither. Footers leave NaN out of the maximum, and a dictionary tells 0.0 and -0.0 apart; Spark skips
    rows by both, although to Spark NaN is the greatest number and the two zeros are equal.
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
