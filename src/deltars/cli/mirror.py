"""`deltars mirror`: publishes commits to `_delta_log` outside the processes that commit."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

import click

import deltars
from deltars.cli.options import table_argument, with_common_options
from deltars.cli.output import Output, Record
from deltars.cli.progress import working
from deltars.cli.services import observe_service, run_until_signal

if TYPE_CHECKING:  # --help must stay fast
    from deltars.mirror import Reconciliation
    from deltars.store.mirror.status import MirrorStatus


@click.group
def mirror() -> None:
    """Publish commits to _delta_log, repair what is missing there, and show how far each table is published.

    A transaction publishes its commit itself, unless the mirror mode is "async" or "off". "mirror run" and
    "mirror once" publish what is left: because of these modes, of a crash, or of storage that was unreachable.

    \b
    Example:
      deltars mirror status
      deltars mirror run
    """


@mirror.command
@click.option("--poll", default=1.0, show_default=True, metavar="SECONDS", help="How often to look for new commits.")
@click.option(
    "--inspect",
    default=300.0,
    show_default=True,
    metavar="SECONDS",
    help="How often to look for missing files and repair them.",
)
@click.option(
    "--alert-after",
    default=60.0,
    show_default=True,
    metavar="SECONDS",
    help="Log an error if a table lags longer than this.",
)
@click.option(
    "--metrics-port", type=click.IntRange(0, 65535), metavar="PORT", help="Serve Prometheus metrics on this port."
)
@click.option("--log-json", is_flag=True, help="Log JSON, one object per line.")
@with_common_options
def run(
    catalog: str | None,
    poll: float,
    inspect: float,
    alert_after: float,
    metrics_port: int | None,
    log_json: bool,
    output: Output,
) -> None:
    """Publish commits of all tables until SIGTERM or SIGINT. Several of these processes may run at once.

    \b
    Example:
      deltars mirror run --catalog deltasql://postgres/lake/public
      deltars mirror run --metrics-port 9100 --log-json
    """
    observe_service(metrics_port, log_json=log_json)
    with deltars.connect(catalog, migrate=False) as opened:
        reconciler = opened.reconciler(poll_s=poll, inspect_s=inspect, lag_alert_s=alert_after)
        run_until_signal(reconciler, f"publishing the tables of {opened.uri}")
    click.echo("stopped", err=True)


@mirror.command
@with_common_options
@click.pass_context
def once(context: click.Context, catalog: str | None, output: Output) -> None:
    """Publish all pending commits, repair what is missing, and exit.

    Exits with 1 if a table could not be published or inspected.

    \b
    Example:
      deltars mirror once --json
    """
    with deltars.connect(catalog, migrate=False) as opened, working("Publishing and inspecting"):
        names = {table.id: table.name for table in opened.tables()}
        done = opened.reconciler().once()
    records: list[Record] = [
        {
            "table": names.get(outcome.table_id, str(outcome.table_id)),
            "result": outcome.publication.value,
            "version": outcome.published_version,
            "detail": outcome.failure and outcome.failure.error,
        }
        for outcome in done.outcomes
    ]
    records += [
        {"table": repair.table, "result": "repaired", "version": None, "detail": f"{repair.what}: {repair.file}"}
        for repair in done.repairs
    ]
    records += [{"table": None, "result": "error", "version": None, "detail": error} for error in done.errors]
    output.records(records, ("table", "result", "version", "detail"), none="Everything is published.")
    context.exit(1 if _has_failed(done) else 0)


@mirror.command
@with_common_options
def status(catalog: str | None, output: Output) -> None:
    """Show how far each table is published, and how long the oldest unpublished commit has waited.

    \b
    Example:
      deltars mirror status
      deltars mirror status --json | jq '.[] | select(.behind > 0)'
    """
    with deltars.connect(catalog, migrate=False) as opened:
        output.records(
            [_record(table) for table in opened.mirror_status()],
            columns=("name", "state", "current_version", "published_version", "behind", "lag_s", "last_error"),
            none=f"{opened.uri} has no tables yet.",
        )


@mirror.command("accept-log")
@table_argument
@click.option("--discard", is_flag=True, help="Discard the catalog's versions that contradict the log.")
@with_common_options
@click.pass_context
def accept_log(context: click.Context, table: str, discard: bool, catalog: str | None, output: Output) -> None:
    """Make the catalog agree with the _delta_log of TABLE, after an older backup of the database was restored.

    Discards the catalog's versions that contradict the log, imports the versions that the catalog lacks, and lists
    both. It discards versions only with --discard; without it, it changes nothing in that case, and exits with 1.

    \b
    Example:
      deltars mirror accept-log features
      deltars mirror accept-log features --discard
    """
    with deltars.connect(catalog, migrate=False) as opened:
        found = opened.compare_log(table)
        is_refused = bool(found.discarded) and not discard
        if not is_refused:
            with working(f"Importing the log of {table}"):
                found = opened.accept_log(table, discard=discard)
    records: list[Record] = [
        {
            "version": version.version,
            "what": "would be discarded" if is_refused else "discarded",
            "txn_id": version.txn_id,
            "operation": version.operation,
            "committer": version.committer,
            "other_tables": ", ".join(version.other_tables),
        }
        for version in found.discarded
    ]
    what = "would be imported from the log" if is_refused else "imported from the log"
    columns = ("version", "what", "txn_id", "operation", "committer", "other_tables")
    records += [dict.fromkeys(columns) | {"version": version, "what": what} for version in found.taken]
    output.records(records, columns, none=f"The catalog agrees with the log of {table}.")
    if is_refused:
        click.echo("Nothing was changed. To discard these versions and accept the log, add --discard.", err=True)
        context.exit(1)


@mirror.command
@table_argument
@with_common_options
def clean(table: str, catalog: str | None, output: Output) -> None:
    """Delete the published log files of TABLE that are older than its delta.logRetentionDuration (default 30 days).

    The catalog keeps the whole history. Readers of _delta_log can no longer read versions before the oldest checkpoint
    that is kept.

    \b
    Example:
      deltars mirror clean features
    """
    with deltars.connect(catalog, migrate=False) as opened, working("Deleting old log files"):
        files = opened.table(table).clean_up_log()
    output.records([{"file": file} for file in files], ("file",), none="No log file is old enough.")


def _record(status: MirrorStatus) -> Record:
    waits = status.pending_since
    return asdict(status) | {
        "behind": status.current_version - status.published_version,
        "lag_s": None if waits is None else round(max(0, status.now - waits) / 1_000_000, 1),
    }


def _has_failed(done: Reconciliation) -> bool:
    return bool(done.errors) or any(outcome.publication == "failed" for outcome in done.outcomes)
