"""Commands that create, fill, change and drop a table."""

from __future__ import annotations

import codecs
import os.path
import shutil
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager

import click

import deltars
from deltars.cli.options import pairs, table_argument, with_common_options
from deltars.cli.output import Output
from deltars.cli.progress import counting
from deltars.cli.start import keep_pandas_out
from deltars.cli.tables import catalog_with
from deltars.uri import is_uri, parse_table_uri


@click.command
@table_argument
@click.option("--schema", required=True, metavar="DDL", help="Columns, as in SQL: 'id BIGINT NOT NULL, day DATE'.")
@click.option("--partition-by", metavar="COLUMNS", help="Partition columns, separated by commas.")
@click.option(
    "--cluster-by", metavar="COLUMNS", help="Columns that optimize sorts the rows by, in place of partitions."
)
@click.option("--property", "settings", multiple=True, metavar="NAME=VALUE", help="A property; may be repeated.")
@click.option("--location", metavar="LOCATION", help="Directory or URL.  [default: a directory of the warehouse]")
@click.option("--comment", metavar="TEXT", help="Description of the table.")
@click.option("--if-not-exists", is_flag=True, help="Do nothing if there is a table of this name.")
@with_common_options
def create(
    table: str,
    schema: str,
    partition_by: str | None,
    cluster_by: str | None,
    settings: tuple[str, ...],
    location: str | None,
    comment: str | None,
    if_not_exists: bool,
    catalog: str | None,
    output: Output,
) -> None:
    """Create TABLE without rows. `deltars load TABLE FILE --create` creates one from a file.

    \b
    Example:
      deltars create features --schema 'id BIGINT NOT NULL, day DATE, score DOUBLE' --partition-by day
      deltars create events --schema 'id BIGINT' --property delta.appendOnly=true --if-not-exists
    """
    properties = pairs("--property", settings)
    with catalog_with(table, catalog) as opened:
        made = opened.create_table(
            _name(table),
            schema,
            location=None if location is None else os.path.abspath(location) if ":" not in location else location,
            partition_by=_names(partition_by),
            cluster_by=_names(cluster_by),
            properties=properties,
            description=comment,
            if_not_exists=if_not_exists,
        )
        output.record({"table": made.name, "version": made.version, "location": made.location, "id": made.id})


@click.command
@table_argument
@click.option("--delete-data", is_flag=True, help="Also delete its data files and its _delta_log.")
@click.option("--purge", is_flag=True, help="Also delete its files and its history: no snapshot has it any more.")
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
@with_common_options
def drop(table: str, delete_data: bool, purge: bool, yes: bool, catalog: str | None, output: Output) -> None:
    """Remove TABLE from the catalog. Asks for confirmation. Its files stay, unless you give --delete-data or --purge.

    If --delete-data or --purge is interrupted, run it again. `deltars purge-dropped` purges tables some time later.

    \b
    Example:
      deltars drop features
      deltars drop scratch --delete-data --yes
    """
    with catalog_with(table, catalog) as opened:
        deletes = delete_data or purge
        known = opened.table(table) if opened.table_exists(table) or not deletes else None
        if known is not None:
            fate = "deletes its files" if deletes else "keeps its files"
            click.echo(
                f"This drops {known.name} of {opened.uri}, with all its versions, and {fate} at {known.location}.",
                err=True,
            )
            if not yes:
                click.confirm("Drop it?", abort=True, err=True)
        opened.drop_table(table, delete_data=delete_data, purge=purge)
        output.record({"table": known.name if known else table, "dropped": True, "data_deleted": deletes})


def _as_delimiter(_context: click.Context, _parameter: click.Parameter, text: str | None) -> str | None:
    text = "\t" if text == "\\t" else text
    if text is not None and (len(text) != 1 or not text.isascii() or text in '"\r\n'):
        raise click.BadParameter(f"{text!r} is not one ASCII character, such as ';' or '\\t'.")
    return text


def _as_encoding(_context: click.Context, _parameter: click.Parameter, name: str | None) -> str | None:
    try:
        return None if name is None else codecs.lookup(name).name
    except LookupError:
        raise click.BadParameter(f"{name!r} is not an encoding, such as latin-1 or utf-16.") from None


@contextmanager
def _standard_input(form: str | None) -> Iterator[str]:
    """Yield a file with the bytes of standard input: the types of text are found before it is read."""
    if form is None:
        raise click.UsageError("- is standard input, which has no name: give --format parquet, csv or json.")
    with tempfile.TemporaryDirectory() as directory:
        path = os.path.join(directory, "standard-input")
        with open(path, "wb") as copy:
            shutil.copyfileobj(sys.stdin.buffer, copy)
        yield path


@click.command
@table_argument
@click.argument("files", nargs=-1, required=True, metavar="FILE...")
@click.option("--mode", type=click.Choice(["append", "overwrite"]), default="append", show_default=True)
@click.option("--create", is_flag=True, help="Create the table from the files if it does not exist.")
@click.option(
    "--schema", "ddl", metavar="DDL", help="Columns of a new table, as in SQL.  [default: inferred from the files]"
)
@click.option("--partition-by", metavar="COLUMNS", help="Partition columns of a new table, separated by commas.")
@click.option("--merge-schema", is_flag=True, help="Add columns that only the files have to the table.")
@click.option("--format", "form", type=click.Choice(["parquet", "csv", "json"]), help="[default: by the files' names]")
@click.option(
    "--delimiter",
    metavar="CHARACTER",
    callback=_as_delimiter,
    help="Separates the fields of CSV.  [default: a comma; a tab in .tsv]",
)
@click.option(
    "--encoding", metavar="NAME", callback=_as_encoding, help="Encoding of CSV, such as latin-1.  [default: UTF-8]"
)
@click.option(
    "--property", "settings", multiple=True, metavar="NAME=VALUE", help="A property of a new table; may be repeated."
)
@click.option("--txn-id", metavar="TEXT", help="Makes the command repeatable: a second run with this id loads nothing.")
@with_common_options
def load(
    table: str,
    files: tuple[str, ...],
    mode: str,
    create: bool,
    ddl: str | None,
    partition_by: str | None,
    merge_schema: bool,
    form: str | None,
    delimiter: str | None,
    encoding: str | None,
    settings: tuple[str, ...],
    txn_id: str | None,
    catalog: str | None,
    output: Output,
) -> None:
    """Load the rows of Parquet, CSV or JSON-lines files into TABLE, all of them in one transaction.

    Columns are found by name, and read in the table's types. A CSV file begins with a header; an empty field is null,
    and "" is an empty string. In JSON, each line is one row. Files may be compressed (.gz, .bz2, .zst). The file - is
    standard input.

    The types of a new table are those of --schema, or inferred: a column of CSV with a value such as 00123 is text.

    \b
    Example:
      deltars load features 2026-01-*.parquet
      deltars load events events.csv.gz --create --partition-by day
      deltars load shops shops.csv --create --schema 'id BIGINT NOT NULL, zip STRING' --delimiter ';'
      curl https://example.com/events.csv | deltars load events - --format csv
      deltars load labels labels.jsonl --mode overwrite --txn-id labels-2026-01-31
    """
    # Imported late: --help must stay fast.
    from deltars.data.row_files import RowFiles
    from deltars.protocol import as_schema, schema_to_arrow

    properties = pairs("--property", settings)
    keep_pandas_out()
    with ExitStack() as needed:
        opened = needed.enter_context(catalog_with(table, catalog))
        report = needed.enter_context(counting(f"Loading {table}", "rows"))
        earlier = None if txn_id is None else _earlier(opened, table, txn_id)
        if earlier is not None:
            click.echo(
                f"Nothing was loaded: the transaction {txn_id} was committed before. This is what it loaded then.",
                err=True,
            )
            return _report(earlier, output)
        is_new = create and not opened.table_exists(table)
        for option, value in (("--partition-by", partition_by), ("--schema", ddl), ("--property", settings)):
            if value and not is_new:
                raise click.UsageError(f"{option} goes with --create, for a table that does not exist yet.")
        wanted = as_schema(ddl) if ddl is not None else None if is_new else _existing(opened, table).schema
        rows = RowFiles(
            [needed.enter_context(_standard_input(form)) if file == "-" else file for file in files],
            table=None if wanted is None else schema_to_arrow(wanted),
            format=form,  # type: ignore[arg-type]
            delimiter=delimiter,
            encoding=encoding,
            merge=merge_schema,
            report=report,
        )
        try:
            with opened.begin(isolation="serializable", txn_id=txn_id) as tx:
                if ddl is not None:
                    tx.create_table(_name(table), ddl, partition_by=_names(partition_by), properties=properties)
                tx.write(
                    table,
                    rows.reader(),
                    "overwrite" if mode == "overwrite" else "append",
                    merge_schema=merge_schema,
                    partition_by=None if ddl is not None else _names(partition_by) or None,
                    properties=None if ddl is not None else properties or None,
                )
        except Exception as error:
            # The writer reads the rows through Arrow, which keeps only the text of our errors.
            if rows.failure is not None and error is not rows.failure:
                raise rows.failure from None
            raise
        return _report(opened.transaction(tx.id), output)


def _report(loaded: deltars.TransactionDetail, output: Output) -> None:
    change = loaded.tables[0]
    output.record(
        {"table": change.table, "version": change.version, "rows": change.records_added, "txn_id": loaded.txn_id},
    )


def _earlier(opened: deltars.Catalog, table: str, txn_id: str) -> deltars.TransactionDetail | None:
    """Return the transaction of this id, if it has committed and changed this table alone."""
    if not opened.table_exists(table):
        return None
    try:
        found = opened.transaction(txn_id)
    except (deltars.TransactionNotFound, deltars.ValidationError):
        return None  # begin() refuses a text that cannot be an id
    return found if [change.table_id for change in found.tables] == [opened.table(table).id] else None


def _existing(opened: deltars.Catalog, table: str) -> deltars.Table:
    try:
        return opened.table(table)
    except deltars.TableNotFound as error:
        error.hint = f"{error.hint} --create creates it from the first file."
        raise


def _name(table: str) -> str:
    """Return the name in a table's URI, or the name itself."""
    return parse_table_uri(table)[1] if is_uri(table) else table


def _names(columns: str | None) -> Sequence[str]:
    return [name.strip() for name in columns.split(",")] if columns else ()
