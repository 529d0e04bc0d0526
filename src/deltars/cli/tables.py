"""Commands on one table. TABLE is a name, an id or a full deltasql:// URI."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from datetime import timedelta
from itertools import islice
from typing import TYPE_CHECKING

import click

import deltars
from deltars.cli.options import pairs, table_argument, with_common_options, with_format
from deltars.cli.output import Output, rows_of, rows_output
from deltars.cli.progress import counting
from deltars.cli.start import keep_pandas_out
from deltars.uri import is_uri, parse_table_uri

if TYPE_CHECKING:
    from deltars.catalog import Catalog


@click.command
@table_argument
@with_common_options
def show(table: str, catalog: str | None, output: Output) -> None:
    """Show the columns, partitions with their sizes, properties and features of TABLE.

    \b
    Example:
      deltars show features
      deltars show features --json | jq .columns
    """
    with catalog_with(table, catalog) as opened:
        detail = asdict(opened.table(table).detail(partitions=True))
    properties = [{"name": name, "value": value} for name, value in detail.pop("properties").items()]
    parts = {"columns": detail.pop("columns"), "partitions": detail.pop("partitions"), "properties": properties}
    output.report(detail, parts)


@click.command
@table_argument
@click.option("-n", "--limit", type=click.IntRange(min=1), metavar="N", help="List only the newest N commits.")
@with_common_options
def history(table: str, limit: int | None, catalog: str | None, output: Output) -> None:
    """List the commits of TABLE, newest first. TABLE is a name, an id or a full deltasql:// URI.

    \b
    Example:
      deltars history features --limit 10
      deltars history deltasql://postgres/lake/public/features
    """
    with catalog_with(table, catalog) as opened:
        output.records(
            [asdict(entry) for entry in opened.table(table).history(limit)],
            columns=("version", "committed_at", "operation", "committer", "txn_id"),
            none=f"{table} has no commits yet.",
        )


@click.command
@table_argument
@click.option(
    "-n",
    "--rows",
    "--limit",
    "rows",
    type=click.IntRange(min=1),
    default=10,
    show_default=True,
    metavar="N",
    help="Rows to print.",
)
@click.option("--where", metavar="CONDITION", help="Only matching rows. Spark SQL.")
@click.option("--columns", metavar="COLUMNS", help="Only these columns, separated by commas.")
@click.option("--version", type=int, metavar="N", help="Rows of this version.  [default: the current one]")
@click.option("--as-of", metavar="TAG|TXN|TIME", help="Rows at a tag, after a transaction, or at a time.")
@with_format
@with_common_options
def head(
    table: str,
    rows: int,
    where: str | None,
    columns: str | None,
    version: int | None,
    as_of: str | None,
    form: str | None,
    catalog: str | None,
    output: Output,
) -> None:
    """Print a few rows of TABLE, in no particular order. Needs no Spark.

    \b
    Example:
      deltars head features
      deltars head features -n 100 --where "day = '2026-01-01'" --columns id,score --format csv
      deltars head features --version 3
    """
    if version is not None and as_of is not None:
        raise click.UsageError("Give --version or --as-of, not both.")
    names = None if columns is None else [name.strip() for name in columns.split(",")]
    keep_pandas_out()
    with catalog_with(table, catalog) as opened:
        if as_of is not None:
            version = opened.snapshot(as_of).table(table).version
        reader = opened.table(table).to_arrow_batch_reader(version=version, where=where, columns=names)
        rows_output(output, form).records(
            islice(rows_of(reader), rows),
            columns=reader.schema.names,
            none="No matching rows." if where else f"{table} has no rows.",
        )


@click.command
@table_argument
@click.option("--where", metavar="CONDITION", help="Only files that may contain a matching row. Spark SQL.")
@click.option("--version", type=int, metavar="N", help="Files of this version.  [default: the current one]")
@with_common_options
def files(table: str, where: str | None, version: int | None, catalog: str | None, output: Output) -> None:
    """List the data files of TABLE, or only those that may match a condition.

    \b
    Example:
      deltars files features --where "day = '2026-01-01' AND id > 100"
      deltars files features --version 3 --json
    """
    with catalog_with(table, catalog) as opened:
        output.records(
            rows_of(opened.table(table).snapshot(version).select_files(where=where).to_batches()),
            columns=("path", "size", "num_records", "partition_values", "version"),
            none="No file can contain a matching row." if where else f"{table} has no files.",
        )


@click.command
@table_argument
@click.argument("from_version", metavar="V1", type=int)
@click.argument("to_version", metavar="[V2]", type=int, required=False)
@with_common_options
def diff(table: str, from_version: int, to_version: int | None, catalog: str | None, output: Output) -> None:
    """Show what changed in TABLE from version V1 to version V2, by default the current version.

    \b
    Example:
      deltars diff features 3 7
      deltars diff features 3 | grep ^files
    """
    with catalog_with(table, catalog) as opened:
        found = asdict(opened.table(table).diff(from_version, to_version))
    output.report(found, {"changes": found.pop("changes"), "files": found.pop("files")})


@click.command
@table_argument
@click.argument("name")
@with_common_options
def rename(table: str, name: str, catalog: str | None, output: Output) -> None:
    """Rename TABLE to NAME. Its id, location and history stay the same.

    \b
    Example:
      deltars rename features features_2026
    """
    with catalog_with(table, catalog) as opened:
        renamed = opened.rename_table(table, name)
        output.record({"name": renamed.name, "id": renamed.id, "location": renamed.location})


@click.command
@table_argument
@click.option("--set", "settings", multiple=True, metavar="NAME=VALUE", help="Set a property; may be repeated.")
@click.option("--unset", multiple=True, metavar="NAME", help="Remove a property; may be repeated.")
@with_common_options
def properties(
    table: str, settings: tuple[str, ...], unset: tuple[str, ...], catalog: str | None, output: Output
) -> None:
    """Show the properties of TABLE, or change them in one commit.

    \b
    Example:
      deltars properties features
      deltars properties features --set delta.appendOnly=true --unset owner
    """
    wanted = pairs("--set", settings)
    with catalog_with(table, catalog) as opened:
        for name in sorted({*unset} - opened.table(table).properties.keys()):
            click.echo(f"Note: {name} is not set.", err=True)
        found = opened.set_properties(table, wanted, unset=unset) if wanted or unset else opened.table(table)
        output.record(found.properties)


@click.command
@table_argument
@click.option("--deep", is_flag=True, help="Also read every commit, checksum, checkpoint and data file footer.")
@click.option("--orphans", is_flag=True, help="Also list files older than --min-age that belong to no version.")
@click.option(
    "--min-age",
    type=click.IntRange(min=0, max=1_000_000),
    default=24,
    show_default=True,
    metavar="HOURS",
    help="Ignore younger orphans: a running job may still commit them.",
)
@click.option("--chain", is_flag=True, help="Also compare the catalog's rows with the hashes that sealed them.")
@click.option("--head", metavar="HEAD", help="Head that an earlier --chain printed: the history up to it is the same.")
@with_common_options
@click.pass_context
def verify(
    context: click.Context,
    table: str,
    deep: bool,
    orphans: bool,
    min_age: int,
    chain: bool,
    head: str | None,
    catalog: str | None,
    output: Output,
) -> None:
    """Compare the catalog with the _delta_log and the data files of TABLE, in both directions. Changes nothing.

    Exits with 1 if there is a difference. Orphans do not count as differences.

    \b
    Example:
      deltars verify features
      deltars verify features --deep --orphans --json
      deltars verify features --orphans --min-age 0
      deltars verify features --chain
    """
    with catalog_with(table, catalog) as opened, counting(f"Comparing {table}", "files") as report:
        age = timedelta(hours=min_age)
        found = opened.table(table).verify(
            deep=deep, orphans=orphans, min_age=age, chain=chain if head is None else head, report=report
        )
    compared = f"{found.commits} commits and {found.data_files} data files of {found.table}"
    output.records(
        [asdict(finding) for finding in found.findings],
        columns=("problem", "file", "detail"),
        none=f"No difference: {compared} were compared.",
    )
    if found.young_files:
        click.echo(
            f"Ignored {found.young_files} orphans ({found.young_bytes} bytes) younger than {min_age} hours: a running"
            " job may still commit them. --min-age 0 lists them too.",
            err=True,
        )
    if found.chain_head is not None:
        unsealed = f" {found.unsealed_versions} versions are not sealed yet." if found.unsealed_versions else ""
        click.echo(f"The head of the hash chain is {found.chain_head}.{unsealed}", err=True)
    context.exit(0 if found.is_ok else 1)


@contextmanager
def catalog_with(table: str, catalog: str | None) -> Iterator[Catalog]:
    """Open the given catalog or, without one, the catalog in the table's URI."""
    named = parse_table_uri(table)[0].with_secrets() if catalog is None and is_uri(table) else catalog
    with deltars.connect(named, migrate=False) as opened:
        yield opened
