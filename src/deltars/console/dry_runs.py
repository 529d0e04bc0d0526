"""What a piece of advice would do, in a sentence: the result of its dry run. Nothing is changed."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from deltars.catalog import Table
from deltars.catalog.charts import size_text
from deltars.errors import DeltarsError
from deltars.log.maintenance import Advice, MaintenanceVerb


def command_of(advice: Advice) -> str:
    """Return the command that tries it in a terminal, or does it where nothing can be tried."""
    match advice.verb:
        case MaintenanceVerb.PUBLISH:
            return "deltars mirror once"
        case MaintenanceVerb.REPAIR:
            return f"deltars verify {advice.table}"
    return f"deltars {advice.verb.value} {advice.table}{' --full' if advice.is_full else ''} --dry-run"


def advised(advice: Advice) -> dict[str, Any]:
    """Return a piece of advice with its command."""
    return {**asdict(advice), "command": command_of(advice)}


def dry_run(table: Table, advice: Advice) -> str:
    try:
        return _sentence(table, advice)
    except DeltarsError as error:
        return f"It cannot be tried: {error.message}."


def _sentence(table: Table, advice: Advice) -> str:
    match advice.verb:
        case MaintenanceVerb.OPTIMIZE:
            done = table.optimize(dry_run=True)
            return (
                f"Would write {_counted(done.num_files_removed, 'file')} ({size_text(done.files_removed.total_size)})"
                f" again in {_counted(done.num_bins, 'group')}; the target size is {size_text(done.target_size)}."
            )
        case MaintenanceVerb.VACUUM:
            # The dry run of vacuum lists `_delta_log`, and may find and record that it diverged: no page writes.
            what = f"Would delete about {_counted(advice.num_files, 'file')} ({size_text(advice.size_bytes)})"
            return f"{what}, and what a listing of the directory finds." if advice.is_full else f"{what}."
        case MaintenanceVerb.EXPIRE:
            [left] = table.expire(dry_run=True).tables
            gone = _counted(left.num_expired_versions, "version")
            return f"Would delete {gone}: the history would begin with version {left.first_version}."
        case MaintenanceVerb.PUBLISH:
            return f"Would publish the versions up to {table.version}."
        case MaintenanceVerb.REPAIR:
            return "A person must decide: compare the log with the catalog first."


def _counted(number: int, what: str) -> str:
    return f"{number:,} {what}{'' if number == 1 else 's'}"
