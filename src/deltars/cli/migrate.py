"""`deltars migrate`: manages the schema of a catalog in its database."""

from __future__ import annotations

import click

import deltars
from deltars.cli.options import with_common_options
from deltars.cli.output import Output
from deltars.config import configure

NAMES_SHOWN = 10


@click.group
def migrate() -> None:
    """Create, upgrade, show or remove the schema of a catalog.

    \b
    Example:
      deltars migrate status
      deltars migrate up --catalog deltasql://postgres/lake/public
    """


_no_views = click.option(
    "--no-views",
    is_flag=True,
    help="Do not create the views datasets, transactions, files, row_groups and partitions.",
)


@migrate.command
@_no_views
@with_common_options
def up(catalog: str | None, no_views: bool, output: Output) -> None:
    """Create the schema or upgrade it to this release, in one transaction.

    A new table gives no role of PostgreSQL a right to it: the command says which roles to grant again.

    \b
    Example:
      deltars migrate up --catalog 'deltasql://postgres/lake/public?host=db&user=owner'
    """
    before = deltars.migrate.status(catalog)
    after = deltars.migrate.up(catalog, views=not no_views)
    output.record({"catalog": _shown(catalog), "from": before.current, "to": after.current})
    for role in deltars.migrate.missing_grants(catalog):
        click.echo(
            f"The role {role.role} lacks rights on {', '.join(role.tables)}. Run: {role.command}"
            f" --catalog '{_shown(catalog)}'",
            err=True,
        )


@migrate.command
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
@with_common_options
def down(catalog: str | None, yes: bool, output: Output) -> None:
    """Remove the schema, and with it the log of every table. Asks for confirmation.

    Data files and the published _delta_log are kept.

    \b
    Example:
      deltars migrate down --catalog deltasql://postgres/scratch/public --yes
    """
    before = deltars.migrate.status(catalog)
    if before.current is not None:
        click.echo(_what_is_lost(catalog, is_readable=before.is_current), err=True)
        if not yes:
            click.confirm("Remove it?", abort=True, err=True)
    deltars.migrate.down(catalog)
    output.record({"catalog": _shown(catalog), "from": before.current, "to": None})


@migrate.command
@with_common_options
def status(catalog: str | None, output: Output) -> None:
    """Show which schema version the catalog has, and which one this release needs.

    The state is missing, older, current or newer.

    \b
    Example:
      deltars migrate status --json | jq -r .state
    """
    now = deltars.migrate.status(catalog)
    output.record({"catalog": _shown(catalog), "state": now.state, "schema": now.current, "needed": now.head})


@migrate.command
@_no_views
@with_common_options
def sql(catalog: str | None, no_views: bool, output: Output) -> None:
    """Print the SQL that creates the schema in an empty database. Does not connect to a database.

    \b
    Example:
      deltars migrate sql --catalog deltasql://postgres/lake/public > schema.sql
      psql --single-transaction -f schema.sql lake
    """
    output.text("sql", deltars.migrate.sql(catalog, views=not no_views))


@migrate.command
@click.option("--reader", metavar="ROLE", help="Role that may read.")
@click.option("--writer", metavar="ROLE", help="Role that may commit: insert and update, not delete.")
@click.option("--mirror", metavar="ROLE", help="Role that may read, and record what was published.")
@click.option("--table", "tables", multiple=True, metavar="TABLE", help="Limit reader and writer to it; repeatable.")
@with_common_options
def grants(
    catalog: str | None,
    reader: str | None,
    writer: str | None,
    mirror: str | None,
    tables: tuple[str, ...],
    output: Output,
) -> None:
    """Grant roles of a PostgreSQL server the rights they need, and no more. The roles must exist.

    Prints the statements, which are run in one transaction.

    \b
    Example:
      deltars migrate grants --catalog deltasql://postgres/lake/public --reader analysts --writer etl
      deltars migrate grants --reader guests --table features --table labels
    """
    if not (reader or writer or mirror):
        raise click.UsageError("Give at least one role: --reader, --writer or --mirror.")
    statements = deltars.migrate.grants(catalog, reader=reader, writer=writer, mirror=mirror, tables=tables or None)
    output.text("sql", "".join(f"{statement};\n" for statement in statements))


def _shown(catalog: str | None) -> str:
    return str(configure(catalog).uri)


def _what_is_lost(catalog: str | None, *, is_readable: bool) -> str:
    names = []
    if is_readable:
        with deltars.connect(catalog, migrate=False) as opened:
            names = [table.name for table in opened.tables()]
    shown = ", ".join(names[:NAMES_SHOWN]) + (", …" if len(names) > NAMES_SHOWN else "")
    tables = f" of {len(names)} {'table' if len(names) == 1 else 'tables'} ({shown})" if names else ""
    return (
        f"This removes {_shown(catalog)} with the log{tables}: every version, all history and all transactions.\n"
        "Data files and the published _delta_log are kept."
    )
