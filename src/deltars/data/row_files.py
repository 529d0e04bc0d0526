"""Rows of Parquet, CSV and JSON-lines files, as one stream of Arrow batches in the types of a table.

    files ──opened by pyarrow, in the table's types──▶ batches ──fitted to the columns that the files have──▶ one stream

Columns are found by name, ignoring case. A column that the files lack is not in the stream, so that the table's default
applies. Text is read in the table's types from the start: "007" stays text in a string column. For a new table, a CSV
column with such a value is text, and not a number. Every error names the file, and the row where pyarrow knows it.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Literal, NamedTuple, TypeAlias, get_args

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as csv
import pyarrow.json as json
import pyarrow.parquet as pq

from deltars.data.write_schema import file_schema, fit
from deltars.errors import DeltarsError, SchemaMismatch, ValidationError

RowFormat: TypeAlias = Literal["parquet", "csv", "json"]
FORMATS: tuple[str, ...] = get_args(RowFormat)

BLOCK_BYTES = 4 << 20
"""How much text is parsed at once. pyarrow infers types, and finds the columns of JSON, from the first block."""

_SUFFIXES: Mapping[str, RowFormat] = {
    ".parquet": "parquet",
    ".pq": "parquet",
    ".csv": "csv",
    ".tsv": "csv",
    ".json": "json",
    ".jsonl": "json",
    ".ndjson": "json",
}
_COMPRESSED = (".gz", ".bz2", ".zst")
_DELIMITERS = {";": "';'", "\t": "tabs", "|": "'|'"}
"""What separates the fields of many files named .csv, beside the comma."""
_NO_NUMBER = r"^-?0[0-9]"
"""Digits that a number does not keep: zip codes, phone numbers, ids."""
_NO_DOUBLE = rf"{_NO_NUMBER}|^-?[0-9]{{16,}}$"
"""As above, and integers with more digits than a double keeps."""
_ENCODING = "Give the encoding, such as latin-1, or convert the file to UTF-8."
_CSV_PLACE = re.compile(r"In CSV column #(\d+): Row #(\d+): ")


class _Text(NamedTuple):
    """How the text of CSV files is to be read."""

    delimiter: str | None
    encoding: str


class RowFiles:
    """Rows of files, read once. `schema` has the columns of the files in the types of the table, if there is one."""

    def __init__(
        self,
        paths: Sequence[str],
        *,
        table: pa.Schema | None = None,
        format: RowFormat | None = None,
        delimiter: str | None = None,
        encoding: str | None = None,
        merge: bool = False,
        report: Callable[[int], None] | None = None,
    ) -> None:
        """Open the files. `table` has the types to read; without it they come from the first file.

        `delimiter` separates the fields of CSV: by default a comma, or a tab in a .tsv file. `encoding` is that of CSV:
        by default UTF-8. `merge` keeps columns that the table lacks. `report` is called with the number of rows read
        so far.
        """
        self._sources = [(path, _format_of(path, format)) for path in paths]
        self._text = text = _Text(delimiter, encoding or "utf8")
        self._report = report
        self.failure: DeltarsError | None = None
        """The error that ended the stream: a writer that reads it through Arrow's interface sees only its text."""
        path, kind = self._sources[0]
        with _located(path, text):
            first = _open(path, kind, table, text).schema
        refuse_repeated(path, first.names)
        if kind == "csv" and table is None:
            _refuse_bytes(path, first)
        if kind == "csv" and delimiter is None:
            _refuse_other_delimiter(path, first.names)
        self.schema = _columns(path, first, table, merge=merge)
        if table is None:
            self.schema = self._with_text(self.schema)

    def reader(self) -> pa.RecordBatchReader:
        """Return the rows of all files, one file after the other. They are read as the stream is consumed."""
        return pa.RecordBatchReader.from_batches(file_schema(self.schema), self._batches())

    def _with_text(self, inferred: pa.Schema) -> pa.Schema:
        """Return the schema of a new table, with text where a number would not keep the digits of a CSV file.

        All files are read for it: pyarrow infers the types from the first block alone.
        """
        doubtful = {
            field.name.lower(): _NO_DOUBLE if pa.types.is_floating(field.type) else _NO_NUMBER
            for field in inferred
            if pa.types.is_integer(field.type) or pa.types.is_floating(field.type)
        }
        text = set()
        for path in [path for path, kind in self._sources if kind == "csv"]:
            with _located(path, self._text):
                names = [name for name in _headers(path, self._text) if name.lower() in doubtful]
                for batch in _as_text(path, names, self._text) if names else ():
                    for name, values in zip(names, batch.columns, strict=True):
                        if pc.any(pc.match_substring_regex(values, doubtful[name.lower()])).as_py():
                            text.add(name.lower())
        return pa.schema(
            [pa.field(field.name, pa.string()) if field.name.lower() in text else field for field in inferred]
        )

    def _batches(self) -> Iterator[pa.RecordBatch]:
        rows = 0
        try:
            for path, kind in self._sources:
                for batch in self._file(path, kind):
                    yield batch
                    rows += batch.num_rows
                    if self._report is not None:
                        self._report(rows)
        except DeltarsError as error:
            self.failure = error
            raise

    def _file(self, path: str, kind: RowFormat) -> Iterator[pa.RecordBatch]:
        with _located(path, self._text):
            reader = _open(path, kind, self.schema, self._text)
        names = [name.lower() for name in reader.schema.names]
        refuse_repeated(path, reader.schema.names)
        others = [name for name in reader.schema.names if name.lower() not in map(str.lower, self.schema.names)]
        missing = [name for name in self.schema.names if name.lower() not in names]
        # JSON leaves out what is null, so only its additional columns show that a file is another one.
        if others or (missing and kind != "json"):
            raise SchemaMismatch(
                f"{path} has other columns than {self._sources[0][0]}: {', '.join(others or missing)}",
                field=(others or missing)[0],
                hint="Load files with different columns one by one.",
            )
        first = 1
        while True:
            with _located(path, self._text):
                batch = next(reader, None)
            if batch is None:
                return
            with _located(path, self._text, rows=(first, first + batch.num_rows - 1)):
                fitted = fit(_parsed(batch, self.schema), self.schema)
            first += batch.num_rows
            yield fitted


def refuse_repeated(path: str, names: Sequence[str]) -> None:
    seen: set[str] = set()
    for name in names:
        if name.lower() in seen:
            raise ValidationError(f"{path} has the column {name} twice; column names ignore case", field=name)
        seen.add(name.lower())


def _format_of(path: str, given: RowFormat | None) -> RowFormat:
    if given is not None:
        return given
    name = path.lower()
    for suffix in _COMPRESSED:
        name = name.removesuffix(suffix)
    found = _SUFFIXES.get(os.path.splitext(name)[1])
    if found is None:
        raise ValidationError(
            f"the name of {path} does not show its format",
            field="format",
            hint=f"Give the format: {', '.join(FORMATS)}. Known names end in {', '.join(_SUFFIXES)}.",
        )
    return found


def _columns(path: str, found: pa.Schema, table: pa.Schema | None, *, merge: bool) -> pa.Schema:
    if table is None:
        # A column without a value has no type yet.
        return pa.schema([_named(field, field.name) for field in found])
    known = {field.name.lower(): field for field in table}
    extra = [field for field in found if field.name.lower() not in known]
    if extra and not merge:
        raise SchemaMismatch(
            f"{path} has the column {extra[0].name}, which the table lacks; its columns are {', '.join(table.names)}",
            field=extra[0].name,
            hint="Drop it in the file, or add it to the table: merge_schema=True.",
        )
    return pa.schema([known.get(field.name.lower()) or _named(field, field.name) for field in found])


def _named(field: pa.Field, name: str) -> pa.Field:
    """Return a column of a new table: text where no value shows the type, and times of the table's precision."""
    kind = field.type
    if pa.types.is_null(kind):
        kind = pa.string()
    elif pa.types.is_timestamp(kind):
        kind = pa.timestamp("us", kind.tz)
    return pa.field(name, kind)


def _open(path: str, kind: RowFormat, table: pa.Schema | None, text: _Text) -> Any:
    """Return a stream of a file's batches, in the table's types where pyarrow can read them."""
    if kind == "parquet":
        return _parquet(path)
    source = pa.input_stream(path, compression="detect")
    if kind == "csv":
        return csv.open_csv(
            source,
            # In one thread, pyarrow knows the row of an error.
            read_options=_csv_reading(text),
            parse_options=_csv_syntax(path, text),
            convert_options=csv.ConvertOptions(
                column_types=_csv_types(path, table, text),
                null_values=[""],
                strings_can_be_null=True,
                quoted_strings_can_be_null=False,
            ),
        )
    _refuse_array(path)
    return json.open_json(
        source,
        read_options=json.ReadOptions(use_threads=False, block_size=BLOCK_BYTES),
        parse_options=json.ParseOptions(
            explicit_schema=None if table is None else pa.schema([_json_field(field) for field in table])
        ),
    )


def _parquet(path: str) -> pa.RecordBatchReader:
    file = pq.ParquetFile(path, coerce_int96_timestamp_unit="us")
    return pa.RecordBatchReader.from_batches(file.schema_arrow, file.iter_batches())


def _csv_types(path: str, table: pa.Schema | None, text: _Text) -> dict[str, pa.DataType]:
    """Return the table's type of each column, by the name that the file's header has."""
    if table is None:
        return {}
    known = {field.name.lower(): field.type for field in table}
    types = {name: known[name.lower()] for name in _headers(path, text) if name.lower() in known}
    for name, kind in types.items():
        if pa.types.is_nested(kind):
            raise ValidationError(
                f"the column {name} is of type {kind}, which CSV cannot hold",
                field=name,
                hint="Load a Parquet file or JSON lines.",
            )
    return types


def _headers(path: str, text: _Text) -> list[str]:
    reader = csv.open_csv(
        pa.input_stream(path, compression="detect"),
        read_options=_csv_reading(text),
        parse_options=_csv_syntax(path, text),
    )
    names: list[str] = reader.schema.names
    return names


def _as_text(path: str, names: Sequence[str], text: _Text) -> Iterable[pa.RecordBatch]:
    """Return these columns of a CSV file, as text."""
    reader: Iterable[pa.RecordBatch] = csv.open_csv(
        pa.input_stream(path, compression="detect"),
        read_options=_csv_reading(text),
        parse_options=_csv_syntax(path, text),
        convert_options=csv.ConvertOptions(include_columns=names, column_types=dict.fromkeys(names, pa.string())),
    )
    return reader


def _csv_syntax(path: str, text: _Text) -> csv.ParseOptions:
    usual = "\t" if ".tsv" in path.lower() else ","
    return csv.ParseOptions(delimiter=text.delimiter or usual, newlines_in_values=True)


def _csv_reading(text: _Text) -> csv.ReadOptions:
    return csv.ReadOptions(use_threads=False, block_size=BLOCK_BYTES, encoding=text.encoding)


def _refuse_bytes(path: str, found: pa.Schema) -> None:
    """Refuse a column of CSV that pyarrow takes for bytes, because it is not UTF-8."""
    for field in found:
        if pa.types.is_binary(field.type):
            raise ValidationError(f"{path}: the column {field.name} is not UTF-8", field="files", hint=_ENCODING)


def _refuse_array(path: str) -> None:
    with pa.input_stream(path, compression="detect") as source:
        if bytes(source.read(64)).lstrip(b"\xef\xbb\xbf \t\r\n").startswith(b"["):
            raise ValidationError(
                f"{path} is a JSON array; each line must be one object",
                field="files",
                hint=f"Convert it: jq -c '.[]' {path} > rows.jsonl",
            )


def _refuse_other_delimiter(path: str, names: Sequence[str]) -> None:
    """Refuse a header that is one column only because another character separates the fields."""
    used = next((shown for character, shown in _DELIMITERS.items() if character in names[0]), None)
    if len(names) == 1 and used is not None:
        raise ValidationError(
            f"the fields of {path} seem to be separated by {used}: its header is the one column {names[0]!r}",
            field="delimiter",
            hint="Give the delimiter, or ',' if the column has this name.",
        )


def _json_field(field: pa.Field) -> pa.Field:
    # pyarrow reads no dates in JSON, so they are read as text and parsed.
    return pa.field(field.name, pa.string() if pa.types.is_date(field.type) else field.type)


def _parsed(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Return a batch with dates in place of their text."""
    wanted = {field.name.lower(): field.type for field in schema}
    arrays = [
        column.cast(pa.date32())
        if pa.types.is_string(column.type) and pa.types.is_date(wanted[name.lower()])
        else column
        for name, column in zip(batch.schema.names, batch.columns, strict=True)
    ]
    return pa.RecordBatch.from_arrays(arrays, names=batch.schema.names)


@contextmanager
def _located(path: str, text: _Text, rows: tuple[int, int] | None = None) -> Iterator[None]:
    """Add the file, and the rows if they are known, to an error; turn pyarrow's errors into ours."""
    place = path if rows is None else f"{path}, rows {rows[0]:,} to {rows[1]:,}"
    try:
        yield
    except DeltarsError as error:
        if path not in error.message:
            error.message = f"{place}: {error.message}"
        raise
    except UnicodeDecodeError as error:
        raise ValidationError(f"{place} is not in the given encoding: {error}", field="files", hint=_ENCODING) from None
    except FileNotFoundError:
        raise ValidationError(f"there is no file {path}", field="files") from None
    except OSError as error:
        raise ValidationError(f"{path} cannot be read: {error}", field="files") from error
    except pa.ArrowException as error:
        names = _headers(path, text) if _CSV_PLACE.search(str(error)) else []
        said = _CSV_PLACE.sub(lambda found: f"row {found[2]}, column {names[int(found[1])]}: ", str(error))
        said = said.partition(" If these timestamps")[0]
        hint = "Write times with a zone, such as 2026-01-31T12:00:00Z." if "zone offset" in said else None
        hint = _ENCODING if "invalid UTF8" in said else hint
        raise ValidationError(f"{place}: {said}", field="files", hint=hint) from error
