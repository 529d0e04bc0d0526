"""What the data files of a table have in common. It follows from the table's definition, and is kept between writes.

    schema, partition columns, properties ──layout_of──> FileLayout: Arrow schemas, names, statistics

To compute it takes longer than to encode the rows of a small write.
"""

from __future__ import annotations

from collections.abc import Collection
from copy import copy

import pyarrow as pa

from deltars.data.dictionaries import with_encoded
from deltars.data.parquet_leaves import names_without_floats
from deltars.data.statistics import Statistics
from deltars.data.write_schema import file_schema
from deltars.data.write_target import WriteTarget
from deltars.errors import ValidationError
from deltars.protocol import PrimitiveType, StructType, needed_features, schema_to_arrow
from deltars.remembered import Remembered

MAX_KEPT = 100
"""Most layouts that are kept."""

# Table features that require work on every row that the writer does not implement yet.
_UNENFORCED = {
    "variantType": "variant columns",
}


class FileLayout:
    """Layout of the data files of one definition of a table. It does not change."""

    def __init__(self, target: WriteTarget) -> None:
        """Raise ValidationError if the table has a feature, column type or partitioning that cannot be written."""
        _check(target)
        self._schema = target.schema
        self._partition_columns = target.partition_columns
        self._properties = dict(target.properties)
        self.table_schema = schema_to_arrow(target.schema)
        self.data_columns = [name for name in target.schema.names if name not in target.partition_columns]
        data_schema = StructType(tuple(target.schema[name] for name in self.data_columns))
        self.file_schema: pa.Schema = file_schema(schema_to_arrow(data_schema, physical=target.is_mapped))
        self.columns_without_floats = names_without_floats(self.file_schema)
        self.statistics = Statistics(target)
        self.value_names = target.value_names()
        self.is_mapped = target.is_mapped

    def with_encoded_text(self, names: Collection[str]) -> FileLayout:
        """Return the layout for rows whose text in these columns is dictionary-encoded."""
        if not names:
            return self
        encoded = copy(self)
        encoded.table_schema = with_encoded(self.table_schema, names)
        in_files = {self.file_schema.names[at] for at, name in enumerate(self.data_columns) if name in names}
        encoded.file_schema = with_encoded(self.file_schema, in_files)
        return encoded

    def is_of(self, target: WriteTarget) -> bool:
        """Return whether this is the layout of the table's files."""
        return (
            self._schema is target.schema
            and self._partition_columns == target.partition_columns
            and self._properties == target.properties
        )


def layout_of(target: WriteTarget) -> FileLayout:
    """Return the layout of a table's files. Raise ValidationError if the table cannot be written."""
    # Not by the schema's value: to hash it takes longer than to compute the layout. A layout keeps its schema alive, so
    # no other schema gets the same id meanwhile.
    key = id(target.schema)
    found = _kept.get(key)
    if found is not None and found.is_of(target):
        return found
    layout = FileLayout(target)
    _kept[key] = layout
    return layout


_kept = Remembered[int, FileLayout](MAX_KEPT)


def _check(target: WriteTarget) -> None:
    needed = needed_features(target.schema, target.properties)
    for feature, words in _UNENFORCED.items():
        if feature in needed:
            raise ValidationError(f"writing to a table with {words} is not supported yet", field=feature)
    for path, column in target.schema.walk():
        if column.type == PrimitiveType("void"):
            raise ValidationError(
                f"column {'.'.join(path)} has no type (void)", field=".".join(path), hint="Cast it to a type."
            )
    for name in target.partition_columns:
        if name not in target.schema:
            raise ValidationError(f"the partition column {name} is not in the schema", field=name)
    if len(target.partition_columns) == len(target.schema.fields):
        raise ValidationError(
            "a table needs at least one column that is not a partition column", field="partition_columns"
        )
