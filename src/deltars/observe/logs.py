"""Events as log records of Python's `logging`, with their fields.

    logger               level              records
    deltars.transaction  INFO, WARNING      outcome of a transaction; skipped writes
    deltars.commit       DEBUG              outcome of a commit, and the duration of each stage
    deltars.mirror       DEBUG, ERROR       publications; failed publications
    deltars.stream       INFO, ERROR        outcome of a micro-batch
    deltars.maintenance  INFO, ERROR        what `maintain` did to a table; what it could not do

The fields (`txn_id`, `table`, `version`, `stage`, `duration_s` …) are attributes of the record, as with `extra` of
`logging`. Any formatter can show them, and `JsonFormatter` shows them all.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, TextIO

from deltars.errors import ConfigError, DeltarsError, brief
from deltars.observe.events import (
    BatchEnded,
    CommitEnded,
    Event,
    MaintenanceEnded,
    Outcome,
    PublicationFailed,
    TransactionEnded,
    TransactionPublished,
    VersionPublished,
    WriteSkipped,
)
from deltars.redaction import redacted

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
"""The fields that a record may have, in the order of the JSON."""

_transactions = logging.getLogger("deltars.transaction")
_commits = logging.getLogger("deltars.commit")
_mirror = logging.getLogger("deltars.mirror")
_streams = logging.getLogger("deltars.stream")
_maintenance = logging.getLogger("deltars.maintenance")


_WENT_WELL: dict[type, tuple[logging.Logger, int]] = {
    TransactionEnded: (_transactions, logging.INFO),
    CommitEnded: (_commits, logging.DEBUG),
    VersionPublished: (_mirror, logging.DEBUG),
}
"""Logger and level of the events of every commit, if all went well."""


def is_logged(kind: type[Event]) -> bool:
    """Return whether an event of this kind is logged if all went well."""
    found = _WENT_WELL.get(kind)
    return found is not None and found[0].isEnabledFor(found[1])


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
        case BatchEnded():
            _log_batch(event)
        case MaintenanceEnded():
            _maintenance.log(
                logging.INFO if event.error is None else logging.ERROR,
                "%s of table %s %s after %.1f s: %s",
                event.verb,
                event.table,
                event.outcome,
                event.duration_s,
                event.detail,
                extra=_fields(event, stage=event.verb, outcome=event.outcome),
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
            text = "transaction %s changed nothing, it was committed before: %s"
            _transactions.info(text, event.txn_id, dict(event.versions), extra=fields)
        case Outcome.ROLLED_BACK:
            _transactions.info("transaction %s was rolled back", event.txn_id, extra=fields)
        case Outcome.EMPTY:
            _transactions.debug("transaction %s had nothing to commit", event.txn_id, extra=fields)
        case Outcome.UNKNOWN:
            text = "it is not known whether transaction %s committed, check with catalog.resolve('%s'): %r"
            _transactions.warning(text, event.txn_id, event.txn_id, event.error, extra=fields)
        case _:
            _transactions.info("transaction %s did not commit: %s", event.txn_id, event.error, extra=fields)


def _log_skipped(event: WriteSkipped) -> None:
    """Log a skipped write. A repeated version is expected; one older than a written version may mean lost rows."""
    _transactions.log(
        logging.WARNING if event.is_late else logging.INFO,
        "transaction %s: the write of version %s of application %s to table %s was skipped, because version %s is"
        " already written",
        event.txn_id,
        event.app_version,
        event.app_id,
        event.table,
        event.known_version,
        extra=_fields(event, outcome="skipped"),
    )


def _log_batch(event: BatchEnded) -> None:
    what = f"did not commit: {event.error}" if event.error else _BATCHES.get(event.outcome, str(event.outcome))
    _streams.log(
        logging.INFO if event.error is None else logging.ERROR,
        "batch %s of %s %s%s",
        event.batch_id,
        event.app_id,
        what,
        f": {dict(event.versions)}" if event.versions else "",
        extra=_fields(event, outcome=str(event.outcome), versions=dict(event.versions)),
    )


_BATCHES = {
    Outcome.COMMITTED: "committed",
    Outcome.REPEATED: "changed nothing, it was committed before",
    Outcome.EMPTY: "changed nothing",
}


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
    """Return the fields of a record about the event."""
    txn_id = getattr(event, "txn_id", None)
    fields: dict[str, Any] = {"catalog": event.source.catalog, "txn_id": str(txn_id) if txn_id else None}
    if isinstance(event, VersionPublished | PublicationFailed | WriteSkipped | MaintenanceEnded):
        fields["table"] = event.table
    duration_s = getattr(event, "duration_s", None)
    if duration_s is not None:
        fields["duration_s"] = round(duration_s, 6)
    error = getattr(event, "error", None)
    if error is not None:
        fields["error"] = type(error).__name__
    return fields | {name: round(value, 6) if isinstance(value, float) else value for name, value in more.items()}


def error_fields(error: DeltarsError) -> dict[str, Any]:
    """Return the location of an error as fields, for `extra` of a log call."""
    return {
        "txn_id": None if error.txn_id is None else str(error.txn_id),
        "table": error.table or error.table_id,
        "version": error.version,
        "stage": error.stage,
        "error": type(error).__name__,
    }


class JsonFormatter(logging.Formatter):
    """Format each record as a line of JSON: `time`, `level`, `logger`, `message`, its fields, and any traceback."""

    def format(self, record: logging.LogRecord) -> str:
        document: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
        }
        attributes: Mapping[str, Any] = record.__dict__
        document |= {name: attributes[name] for name in FIELDS if attributes.get(name) is not None}
        if record.exc_info:
            # Errors of deltars have no credentials, but those of exporters may quote a URL.
            document["traceback"] = redacted(self.formatException(record.exc_info))
        return json.dumps(document, ensure_ascii=False, default=str)


def json_logs(level: int | str = logging.INFO, stream: TextIO | None = None) -> logging.Handler:
    """Write deltars' log records as lines of JSON to `stream`, by default standard error. Return the handler."""
    try:
        logging.Handler(level)
    except (ValueError, TypeError):
        raise ConfigError(f"there is no log level {brief(level)}", hint="Write logging.INFO, or 'INFO'.") from None
    if stream is not None and not hasattr(stream, "write"):
        raise ConfigError(f"stream must be an open text file, got {brief(stream)}")
    handler = logging.StreamHandler(stream)
    handler.setFormatter(JsonFormatter())
    logger = logging.getLogger("deltars")
    logger.addHandler(handler)
    logger.setLevel(level)
    # Otherwise the root logger's handlers would log each record again.
    logger.propagate = False
    return handler
