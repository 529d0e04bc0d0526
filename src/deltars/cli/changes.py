"""Commands that change rows of one table."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

import click

from deltars.cli.options import with_common_options
from deltars.cli.output import Output
from deltars.cli.tables import catalog_with

if TYPE_CHECKING:
    import deltars

_WHERE = click.option("--where", metavar="CONDITION", help="Only rows for which this is true. Spark SQL.")
_ALL = click.option("--all", "every", is_flag=True, help="Every row.")


@click.command
@click.argument("table")
@_WHERE
@_ALL
@with_common_options
def delete(table: str, where: str | None, every: bool, catalog: str | None, output: Output) -> None:
    """Delete rows of TABLE, in one transaction. Small changes need no Spark.

    \b
    Example:
      deltars delete features --where "customer = 'ada'"
      deltars delete staging --all
    """
    _check_extent(where, every)
    with catalog_with(table, catalog) as opened:
        with opened.begin(isolation="serializable") as tx:
            metrics = tx.delete(table, where)
        _report(table, tx.result, metrics, output)


@click.command
@click.argument("table")
@click.option(
    "--set", "settings", multiple=True, required=True, metavar="COLUMN=EXPRESSION", help="New value; may be repeated."
)
@_WHERE
@_ALL
@with_common_options
def update(
    table: str, settings: tuple[str, ...], where: str | None, every: bool, catalog: str | None, output: Output
) -> None:
    """Give columns of TABLE new values, in one transaction. A value is an expression in Spark SQL.

    \b
    Example:
      deltars update features --set "score=score + 1" --where "id = 7"
      deltars update features --set "segment='new'" --all
    """
    _check_extent(where, every)
    values = {}
    for setting in settings:
        column, separator, value = setting.partition("=")
        if not separator or not column.strip() or not value.strip():
            raise click.BadParameter(f"{setting!r} is not COLUMN=EXPRESSION", param_hint="--set")
        values[column.strip()] = value.strip()
    with catalog_with(table, catalog) as opened:
        with opened.begin(isolation="serializable") as tx:
            metrics = tx.update(table, values, where)
        _report(table, tx.result, metrics, output)


def _check_extent(where: str | None, every: bool) -> None:
    """Refuse a change of every row that was not asked for."""
    if (where is None) != every:
        raise click.UsageError("give either --where CONDITION or --all")


def _report(table: str, result: deltars.TransactionResult, metrics: deltars.ChangeMetrics, output: Output) -> None:
    """Print the new version and what it changed. If no row matched, there is no new version, and no transaction."""
    name, version = next(iter(result.versions.items()), (table, None))
    shown = {name: value for name, value in asdict(metrics).items() if name != "operation_metrics"}
    txn_id = None if version is None else result.txn_id
    output.record({"table": name, "version": version, **shown, "txn_id": txn_id})
