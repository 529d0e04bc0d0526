"""Commands that say what tables need, and do it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict

import click
from click.core import ParameterSource

import deltars
from deltars.cli.options import all_option, chosen, tables_argument, with_common_options
from deltars.cli.output import Output, Record
from deltars.cli.progress import stepping, working
from deltars.cli.services import observe_service, run_until_signal

_ADVICE = ("table", "verb", "num_files", "size_bytes", "reason")
_STATISTICS = (
    "table",
    "num_files",
    "size_bytes",
    "small_files",
    "deleted_rows",
    "removed_files",
    "removed_bytes",
    "num_versions",
    "lag_s",
)
_RESULTS = ("table", "verb", "outcome", "num_files", "size_bytes", "duration_s", "detail")


@click.command
@tables_argument
@all_option
@click.option("--statistics", is_flag=True, help="Print the figures that the advice is made from, of every table.")
@with_common_options
def advise(tables: tuple[str, ...], every: bool, statistics: bool, catalog: str | None, output: Output) -> None:
    """Say what each TABLE needs, by default every table: optimize, vacuum, expire, publish or repair.

    It reads the catalog alone, and changes nothing. "deltars maintain" does what it says.

    \b
    Example:
      deltars advise
      deltars advise features --json
      deltars advise --statistics
    """
    wanted = chosen(tables, every)
    with deltars.connect(catalog, migrate=False) as opened, working("Reading statistics"):
        if statistics:
            records: list[Record] = [
                asdict(one) | {"deleted_share": one.deleted_share} for one in opened.statistics(wanted)
            ]
            none = f"{opened.uri} has no tables yet."
        else:
            records, none = [asdict(one) for one in opened.advise(wanted)], "No table needs anything."
    output.records(records, _STATISTICS if statistics else _ADVICE, none=none)


@click.command
@tables_argument
@all_option
@click.option("--dry-run", is_flag=True, help="Change nothing; print the plan.")
@click.option("--watch", is_flag=True, help="Run as a service until SIGTERM or SIGINT.")
@click.option(
    "--interval",
    type=click.FloatRange(min=0, min_open=True),
    default=600.0,
    show_default=True,
    metavar="SECONDS",
    help="With --watch: how often to look what the tables need.",
)
@click.option(
    "--metrics-port",
    type=click.IntRange(0, 65535),
    metavar="PORT",
    help="With --watch: serve Prometheus metrics on this port.",
)
@click.option("--log-json", is_flag=True, help="With --watch: log JSON, one object per line.")
@with_common_options
@click.pass_context
def maintain(
    context: click.Context,
    tables: tuple[str, ...],
    every: bool,
    dry_run: bool,
    watch: bool,
    interval: float,
    metrics_port: int | None,
    log_json: bool,
    catalog: str | None,
    output: Output,
) -> None:
    """Do what "deltars advise" says to each TABLE, by default to every table.

    Prints the plan, carries it out table by table, and prints what became of it. A table that fails does not keep the
    others from their turn; then the exit code is 1. It may be killed and run again at any time. Several of these
    processes may run at once: each table has a lease.

    \b
    Example:
      deltars maintain --dry-run
      deltars maintain features events
      deltars maintain --watch --interval 3600 --metrics-port 9101 --log-json
    """
    wanted = chosen(tables, every)
    if watch and dry_run:
        raise click.UsageError("--dry-run runs once: leave --watch out.")
    if not watch and (metrics_port is not None or log_json):
        raise click.UsageError("--metrics-port and --log-json need --watch.")
    given = {
        name for name in ("interval", "output") if context.get_parameter_source(name) is ParameterSource.COMMANDLINE
    }
    if not watch and "interval" in given:
        raise click.UsageError("--interval needs --watch.")
    if watch and "output" in given:
        raise click.UsageError("--json prints what one run did: with --watch, use --log-json.")
    if watch:
        _watch(catalog, wanted, interval, metrics_port, log_json=log_json)
        return
    with deltars.connect(catalog, migrate=False) as opened:
        with working("Reading statistics"):
            advice = opened.advise(wanted)
        for one in () if dry_run else advice:
            click.echo(f"{one.table}: {one.verb}: {one.reason}", err=True)
        with stepping(len(advice)) as step:

            def report(advice: deltars.Advice, result: deltars.MaintenanceResult | None) -> None:
                step(f"{advice.verb} {advice.table}", result is not None)

            done = opened.maintain(wanted, dry_run=dry_run, report=report)
    output.records([_record(one) for one in done], columns=_RESULTS, none="No table needs anything.")
    if dry_run:
        click.echo("Nothing was changed: this was a dry run.", err=True)
    context.exit(1 if any(one.outcome == "failed" for one in done) else 0)


def _watch(
    catalog: str | None, tables: Sequence[str] | None, interval: float, metrics_port: int | None, *, log_json: bool
) -> None:
    observe_service(metrics_port, log_json=log_json)
    with deltars.connect(catalog, migrate=False) as opened:
        maintainer = opened.maintainer(tables, interval_s=interval)
        run_until_signal(maintainer, f"maintaining the tables of {opened.uri}")
    click.echo("stopped", err=True)


def _record(one: deltars.MaintenanceResult) -> Record:
    return {
        "table": one.advice.table,
        "table_id": one.advice.table_id,
        "verb": one.advice.verb,
        "reason": one.advice.reason,
        "outcome": one.outcome,
        "num_files": one.advice.num_files if one.outcome == "planned" else one.num_files,
        "size_bytes": one.advice.size_bytes if one.outcome == "planned" else one.size_bytes,
        "duration_s": round(one.duration_s, 3),
        "detail": one.advice.reason if one.outcome == "planned" else one.detail,
    }
