"""Dictionaries of data files: which columns get one, and which text stays encoded while a file is written again.

    data file ──codes and a dictionary──> rows that stay ──codes and a dictionary──> new data file

Text that stays encoded is not decoded, hashed and compared row by row. A dictionary of values that hardly repeat takes
much memory until the Parquet writer gives it up, so such columns get none.
"""

from __future__ import annotations

from collections.abc import Collection

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyarrow import types

ENCODED_TEXT = pa.dictionary(pa.int32(), pa.string())

_WRITER = "parquet-cpp-arrow"
"""Writer whose dictionaries have every value once. If a value is there twice, pyarrow reads wrong codes."""
_PLAIN_BYTES = 4
"""Least size of a text without a dictionary: that of its length."""
_SMALL_BYTES = 16 * 1024
"""Largest dictionary in a file that is kept. Every batch has its own copy of it."""

_LARGE_ROWS = 128 * 1024
"""With fewer rows than these, no dictionary becomes too large."""
_BLOCKS, _BLOCK_ROWS = 8, 1024
"""Sample of a row group. Within a block, values of sorted rows repeat too."""
_FEW_REPEATED = 0.03
"""With a smaller share of repeated values in the sample, a column gets no dictionary.

A sample from 131,072 different values has 3 %. With more values of eight bytes, the writer gives a dictionary up.
"""


def encoded_columns(file: pq.ParquetFile) -> list[str]:
    """Return the columns of text that have a small dictionary in every row group."""
    footer: pq.FileMetaData = file.metadata
    if not (footer.created_by or "").startswith(_WRITER):
        return []
    places = {footer.schema.column(at).path: at for at in range(footer.num_columns)}
    groups = [footer.row_group(ordinal) for ordinal in range(footer.num_row_groups)]
    return [
        field.name
        for field in file.schema_arrow
        if types.is_string(field.type)
        and field.name in places
        and all(_is_encoded(group.column(places[field.name])) for group in groups)
    ]


def _is_encoded(chunk: pq.ColumnChunkMetaData) -> bool:
    if not chunk.has_dictionary_page or chunk.total_uncompressed_size > _PLAIN_BYTES * chunk.num_values:
        return False
    return bool(chunk.data_page_offset - chunk.dictionary_page_offset <= _SMALL_BYTES)


def encoded_names(schema: pa.Schema) -> frozenset[str]:
    """Return the columns whose text is encoded."""
    return frozenset(field.name for field in schema if field.type == ENCODED_TEXT)


def with_encoded(schema: pa.Schema, names: Collection[str]) -> pa.Schema:
    """Return the schema in which the text of these columns is encoded."""
    if not names:
        return schema
    return pa.schema([field.with_type(ENCODED_TEXT) if field.name in names else field for field in schema])


def with_own_dictionaries(rows: pa.Table) -> pa.Table:
    """Return the rows with one dictionary a column, of the values that these rows have.

    The Parquet writer would decode what comes with a second dictionary. And it writes a dictionary whole: what was
    deleted must not stay in the file.
    """
    places = [place for place, field in enumerate(rows.schema) if types.is_dictionary(field.type)]
    if not all(_is_alike(rows.column(place)) for place in places):
        rows = rows.unify_dictionaries()
    for place in places:
        rows = rows.set_column(place, rows.schema.field(place), _without_unused(rows.column(place)))
    return rows


def _is_alike(column: pa.ChunkedArray) -> bool:
    first = column.chunk(0).dictionary
    return all(chunk.dictionary.equals(first) for chunk in column.chunks)


def _without_unused(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return a column of one dictionary without the values that no row has."""
    codes = [chunk.indices for chunk in column.chunks]
    used, dictionary = pa.chunked_array(codes).unique().drop_null(), column.chunk(0).dictionary
    if len(used) == len(dictionary):
        return column
    left = dictionary.take(used)
    return pa.chunked_array([pa.DictionaryArray.from_arrays(pc.index_in(chunk, used), left) for chunk in codes])


def used_values(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return the distinct values of encoded text, without null. A dictionary may have values that no row has."""
    return pa.chunked_array(
        [chunk.dictionary.take(chunk.indices.unique().drop_null()) for chunk in column.chunks], column.type.value_type
    )


def unique_columns(rows: pa.Table, names: Collection[str]) -> frozenset[str]:
    """Return which of these columns have values that hardly repeat in a sample of the rows."""
    if rows.num_rows < _LARGE_ROWS:
        return frozenset()
    step = rows.num_rows // _BLOCKS
    sample = pa.concat_tables([rows.slice(block * step, _BLOCK_ROWS) for block in range(_BLOCKS)])
    return frozenset(
        field.name
        for field, column in zip(sample.schema, sample.columns, strict=True)
        if field.name in names and not types.is_dictionary(field.type) and _is_unique(column)
    )


def _is_unique(column: pa.ChunkedArray) -> bool:
    return len(column) - len(column.unique()) < _FEW_REPEATED * len(column)
