"""Events as log lines of Python's own logging, their fields beside the message.

    logger               level              says
    deltars.transaction  INFO, WARNING      how a transaction ended; which writes were left out
    deltars.commit       DEBUG              how a commit ended, and how long each stage took
    deltars.mirror       DEBUG, ERROR       what was published; what could not be

The fields (`txn_id`, `table`, `version`, `stage`, `duration_s` …) are attributes of the record, as with logging's
`extra`: any formatter can show them, and `JsonFormatter` shows them all.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, TextIO

from deltars.errors import DeltarsError
from deltars.observe.events import (
    CommitEnded,
    Event,
    Outcome,
    PublicationFailed,
    TransactionEnded,
    TransactionPublished,
    VersionPublished,
    WriteSkipped,
)

FIELDS = (
    "catalog",
    "txn_id",
    "table",
    "version",
    "versions",
    "stage",
    "stages",
    "outcome",
    "duration_s",
    "lag_s",
    "skew_s",
    "error",
)
"""What a line may have beside its message, in the order of JSON."""

_transactions = logging.getLogger("deltars.transaction")
_commits = logging.getLogger("deltars.commit")
_mirror = logging.getLogger("deltars.mirror")


def log_event(event: Event) -> None:
    match event:
        case TransactionEnded() if _transactions.isEnabledFor(logging.INFO) or event.outcome is Outcome.UNKNOWN:
            _log_transaction(event)
        case WriteSkipped():
            _log_skipped(event)
        case CommitEnded() if _commits.isEnabledFor(logging.DEBUG):
            _log_commit(event)
        case VersionPublished() if _mirror.isEnabledFor(logging.DEBUG):
            _mirror.debug(
                "version %s of table %s is published, %.3f s after its commit",
                event.version,
                event.table,
                event.lag_s,
                extra=_fields(event, version=event.version, stage="publish", lag_s=event.lag_s),
            )
        case TransactionPublished() if _mirror.isEnabledFor(logging.DEBUG):
            _mirror.debug(
                "transaction %s is published, its %s tables within %.3f s",
                event.txn_id,
                event.tables,
                event.skew_s,
                extra=_fields(event, stage="publish", skew_s=event.skew_s),
            )
        case PublicationFailed():
            _mirror.error(
                "%s",
                event.error,
                extra=_fields(event, version=event.version, stage="publish", outcome=event.state),
            )


def _log_transaction(event: TransactionEnded) -> None:
    fields = _fields(event, outcome=str(event.outcome), versions=dict(event.versions))
    if len(event.versions) == 1:
        [(fields["table"], fields["version"])] = event.versions.items()
    if isinstance(event.error, DeltarsError):
        fields["stage"] = event.error.stage
    elif event.outcome in (Outcome.COMMITTED, Outcome.REPEATED):
        fields["stage"] = "commit"
    match event.outcome:
        case Outcome.COMMITTED:
            _transactions.info("transaction %s committed: %s", event.txn_id, dict(event.versions), extra=fields)
        case Outcome.REPEATED:
            said = "transaction %s changed nothing, it was committed before: %s"
            _transactions.info(said, event.txn_id, dict(event.versions), extra=fields)
        case Outcome.ROLLED_BACK:
            _transactions.info("transaction %s was rolled back", event.txn_id, extra=fields)
        case Outcome.EMPTY:
            _transactions.debug("transaction %s had nothing to commit", event.txn_id, extra=fields)
        case Outcome.UNKNOWN:
            said = "it is not known whether transaction %s committed, catalog.resolve('%s') tells: %r"
            _transactions.warning(said, event.txn_id, event.txn_id, event.error, extra=fields)
        case _:
            _transactions.info("transaction %s did not commit: %s", event.txn_id, event.error, extra=fields)


def _log_skipped(event: WriteSkipped) -> None:
    """Repeating a version is what versions are for; one that comes after a later one may be rows nobody has."""
    _transactions.log(
        logging.WARNING if event.is_late else logging.INFO,
        "transaction %s: the write of version %s of application %s to table %s was skipped, because its version %s is"
        " there",
        event.txn_id,
        event.app_version,
        event.app_id,
        event.table,
        event.known_version,
        extra=_fields(event, outcome="skipped"),
    )


def _log_commit(event: CommitEnded) -> None:
    stages = {name: round(seconds, 6) for name, seconds in event.stages.items()}
    _commits.debug(
        "the commit of transaction %s: %s after %.3f s",
        event.txn_id,
        event.outcome,
        event.duration_s,
        extra=_fields(event, stage=event.stage, stages=stages, outcome=str(event.outcome)),
    )


def _fields(event: Any, **more: Any) -> dict[str, Any]:
    """The fields that an event has of those a line can have."""
    fields: dict[str, Any] = {"catalog": event.source.catalog, "txn_id": str(event.txn_id) if event.txn_id else None}
    if isinstance(event, VersionPublished | PublicationFailed | WriteSkipped):
        fields["table"] = event.table
    duration_s = getattr(event, "duration_s", None)
    if duration_s is not None:
        fields["duration_s"] = round(duration_s, 6)
    error = getattr(event, "error", None)
    if error is not None:
        fields["error"] = type(error).__name__
    return fields | {name: round(value, 6) if isinstance(value, float) else value for name, value in more.items()}


def error_fields(error: DeltarsError) -> dict[str, Any]:
    """For `extra` of a line about an error: what it says of where it happened."""
    return {
        "txn_id": None if error.txn_id is None else str(error.txn_id),
        "table": error.table or error.table_id,
        "version": error.version,
        "stage": error.stage,
        "error": type(error).__name__,
    }


class JsonFormatter(logging.Formatter):
    """One JSON object a line: `time`, `level`, `logger`, `message`, the fields there are, and a traceback if any."""

    def format(self, record: logging.LogRecord) -> str:
        said: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
        }
        attributes: Mapping[str, Any] = record.__dict__
        said |= {name: attributes[name] for name in FIELDS if attributes.get(name) is not None}
        if record.exc_info:
            said["traceback"] = self.formatException(record.exc_info)
        return json.dumps(said, ensure_ascii=False, default=str)


def json_logs(level: int | str = logging.INFO, stream: TextIO | None = None) -> logging.Handler:
    """Write what deltars logs as JSON, a line each, to `stream` (standard error). Answers the handler."""
    handler = logging.StreamHandler(stream)
    handler.setFormatter(JsonFormatter())
    logger = logging.getLogger("deltars")
    logger.addHandler(handler)
    logger.setLevel(level)
    # Or the root logger's handlers would say it again.
    logger.propagate = False
    return handler
