"""Commands that create, fill, change and drop a table."""

from __future__ import annotations

import os.path
from collections.abc import Sequence

import click

import deltars
from deltars.cli.options import pairs, table_argument, with_common_options
from deltars.cli.output import Output
from deltars.cli.progress import counting
from deltars.cli.tables import catalog_with
from deltars.uri import is_uri, parse_table_uri


@click.command
@table_argument
@click.option("--schema", required=True, metavar="DDL", help="Columns, as in SQL: 'id BIGINT NOT NULL, day DATE'.")
@click.option("--partition-by", metavar="COLUMNS", help="Partition columns, separated by commas.")
@click.option("--property", "settings", multiple=True, metavar="NAME=VALUE", help="A property; may be repeated.")
@click.option("--location", metavar="LOCATION", help="Directory or URL.  [default: a directory of the warehouse]")
@click.option("--comment", metavar="TEXT", help="Description of the table.")
@click.option("--if-not-exists", is_flag=True, help="Do nothing if there is a table of this name.")
@with_common_options
def create(
    table: str,
    schema: str,
    partition_by: str | None,
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
    name = parse_table_uri(table)[1] if is_uri(table) else table
    with catalog_with(table, catalog) as opened:
        made = opened.create_table(
            name,
            schema,
            location=None if location is None else os.path.abspath(location) if ":" not in location else location,
            partition_by=_names(partition_by),
            properties=properties,
            description=comment,
            if_not_exists=if_not_exists,
        )
        output.record({"table": made.name, "version": made.version, "location": made.location, "id": made.id})


@click.command
@table_argument
@click.option("--delete-data", is_flag=True, help="Also delete its data files and its _delta_log.")
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
@with_common_options
def drop(table: str, delete_data: bool, yes: bool, catalog: str | None, output: Output) -> None:
    """Remove TABLE from the catalog. Asks for confirmation. Its files stay, unless you give --delete-data.

    If --delete-data is interrupted, run it again.

    \b
    Example:
      deltars drop features
      deltars drop scratch --delete-data --yes
    """
    with catalog_with(table, catalog) as opened:
        known = opened.table(table) if opened.table_exists(table) or not delete_data else None
        if known is not None:
            fate = "deletes its files" if delete_data else "keeps its files"
            click.echo(
                f"This drops {known.name} of {opened.uri}, with all its versions, and {fate} at {known.location}.",
                err=True,
            )
            if not yes:
                click.confirm("Drop it?", abort=True, err=True)
        opened.drop_table(table, delete_data=delete_data)
        output.record({"table": known.name if known else table, "dropped": True, "data_deleted": delete_data})


@click.command
@table_argument
@click.argument("files", nargs=-1, required=True, metavar="FILE...")
@click.option("--mode", type=click.Choice(["append", "overwrite"]), default="append", show_default=True)
@click.option("--create", is_flag=True, help="Create the table from the first file if it does not exist.")
@click.option("--partition-by", metavar="COLUMNS", help="Partition columns of a new table, separated by commas.")
@click.option("--merge-schema", is_flag=True, help="Add columns that only the files have to the table.")
@click.option("--format", "form", type=click.Choice(["parquet", "csv", "json"]), help="[default: by the files' names]")
@click.option("--txn-id", metavar="TEXT", help="Makes the command repeatable: a second run with this id loads nothing.")
@with_common_options
def load(
    table: str,
    files: tuple[str, ...],
    mode: str,
    create: bool,
    partition_by: str | None,
    merge_schema: bool,
    form: str | None,
    txn_id: str | None,
    catalog: str | None,
    output: Output,
) -> None:
    """Load the rows of Parquet, CSV or JSON-lines files into TABLE, all of them in one transaction.

    Columns are found by name, and read in the table's types. A CSV file begins with a header; an empty field is null,
    and "" is an empty string. In JSON, each line is one row. Files may be compressed (.gz, .bz2, .zst).

    \b
    Example:
      deltars load features 2026-01-*.parquet
      deltars load events events.csv.gz --create --partition-by day
      deltars load labels labels.jsonl --mode overwrite --txn-id labels-2026-01-31
    """
    # Imported late: --help must stay fast.
    from deltars.data.row_files import RowFiles
    from deltars.protocol import schema_to_arrow

    with catalog_with(table, catalog) as opened, counting(f"Loading {table}", "rows") as report:
        is_new = create and not opened.table_exists(table)
        if partition_by is not None and not is_new:
            raise click.UsageError("--partition-by goes with --create, for a table that does not exist yet.")
        schema = None if is_new else schema_to_arrow(_existing(opened, table).schema)
        rows = RowFiles(files, table=schema, format=form, merge=merge_schema, report=report)  # type: ignore[arg-type]
        try:
            with opened.begin(isolation="serializable", txn_id=txn_id, committer="deltars load") as tx:
                tx.write(
                    table,
                    rows.reader(),
                    "overwrite" if mode == "overwrite" else "append",
                    merge_schema=merge_schema,
                    partition_by=_names(partition_by) or None,
                )
        except Exception as error:
            # The writer reads the rows through Arrow, which keeps only the text of our errors.
            if rows.failure is not None and error is not rows.failure:
                raise rows.failure from None
            raise
        loaded = opened.transaction(tx.id).tables[0]
    output.record(
        {"table": loaded.table, "version": loaded.version, "rows": loaded.records_added, "txn_id": tx.id},
    )


def _existing(opened: deltars.Catalog, table: str) -> deltars.Table:
    try:
        return opened.table(table)
    except deltars.TableNotFound as error:
        error.hint = f"{error.hint} --create creates it from the first file."
        raise


def _names(columns: str | None) -> Sequence[str]:
    return [name.strip() for name in columns.split(",")] if columns else ()
