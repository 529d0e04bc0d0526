"""Commands on a whole catalog."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

import click

import deltars
from deltars.cli.options import namespace_names, with_common_options
from deltars.cli.output import Output
from deltars.config import ISOLATION_LEVELS, Isolation


@click.command
@click.option("--warehouse", metavar="LOCATION", help="Default location of tables: a directory or a URL.")
@click.option(
    "--isolation",
    type=click.Choice(ISOLATION_LEVELS),
    help="Isolation level of transactions that set none, stored in the catalog.",
)
@with_common_options
def init(catalog: str | None, warehouse: str | None, isolation: Isolation | None, output: Output) -> None:
    """Create a catalog, and set its warehouse: the default location of its tables.

    An existing catalog keeps its tables, and its schema is upgraded if it is older. The warehouse can be set only once.
    Without --warehouse, an embedded catalog gets a warehouse next to its file. The same command changes the isolation
    level later; it is "strict" until then.

    \b
    Example:
      deltars init --catalog deltasql://postgres/lake/public --warehouse s3://bucket/lake
      deltars init --isolation serializable
    """
    # A person types a path relative to where he is; the catalog stores an absolute one.
    place = Path(warehouse) if warehouse and ":" not in warehouse else warehouse
    with deltars.connect(catalog, warehouse=place, migrate=True) as opened:
        if isolation is not None:
            opened.set_default_isolation(isolation)
        output.record({"catalog": opened.uri, "warehouse": opened.warehouse, "isolation": opened.default_isolation})


@click.command
@click.option(
    "--namespace", metavar="NAME", shell_complete=namespace_names, help="Only tables of this namespace: NAME.table."
)
@with_common_options
def tables(namespace: str | None, catalog: str | None, output: Output) -> None:
    """List the tables of a catalog by name.

    \b
    Example:
      deltars tables
      deltars tables --namespace sales
      deltars tables --json | jq -r '.[].location'
    """
    with deltars.connect(catalog, migrate=False) as opened:
        output.records(
            [asdict(table._record) for table in opened.tables(namespace=namespace)],
            columns=("name", "current_version", "location", "table_id"),
            none=f"{opened.uri} has no tables yet.",
        )


@click.command
@with_common_options
def namespaces(catalog: str | None, output: Output) -> None:
    """List the namespaces of a catalog, with the number of their tables.

    \b
    Example:
      deltars namespaces
    """
    with deltars.connect(catalog, migrate=False) as opened:
        output.records(
            [{"namespace": name, "tables": len(opened.tables(namespace=name))} for name in opened.namespaces()],
            columns=("namespace", "tables"),
            none=f"{opened.uri} has no namespaces yet. The first table NAMESPACE.TABLE makes one.",
        )


@click.command
@click.argument("as_of", metavar="[TAG|TRANSACTION|TIME]", required=False)
@with_common_options
def cut(as_of: str | None, catalog: str | None, output: Output) -> None:
    """List the version of every table at one moment: now, of a tag, after a transaction (by its id), or at a time.

    The versions are consistent: they include all tables of a transaction, or none. A table whose version is expired is
    listed without one.

    \b
    Example:
      deltars cut
      deltars cut 2026-01-31T12:00:00Z
      deltars cut q3-training
      deltars cut 7d0f2c0e-3f0a-4c9e-9a53-6a3b1a0c9d11 --json
    """
    with deltars.connect(catalog, migrate=False) as opened:
        found = opened.snapshot(as_of)
        expired = [{"table_id": None, "name": name, "version": None, "commit_ts": None} for name in found.expired]
        tables = sorted([*map(asdict, found.tables()), *expired], key=lambda table: str(table["name"]))
        output.records(
            [table | {"as_of": found.as_of, "is_expired": table["version"] is None} for table in tables],
            columns=("name", "version", "table_id"),
            none="No table had a version at that time." if as_of else f"{opened.uri} has no tables yet.",
        )
    if expired:
        click.echo(f"Expired, so that it cannot be read as of then: {', '.join(found.expired)}.", err=True)
