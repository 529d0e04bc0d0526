"""Log lines, metrics and spans of deltars, all made from the same events (`events`)."""

from deltars.observe.channel import Exporter, attach, detach, emit, is_watched
from deltars.observe.events import (
    BatchEnded,
    CommitEnded,
    Event,
    MaintenanceEnded,
    MaintenanceSeen,
    MirrorSeen,
    Outcome,
    PublicationFailed,
    Source,
    Stopwatch,
    TableLag,
    TransactionBegun,
    TransactionEnded,
    TransactionPublished,
    VersionPublished,
    WriteSkipped,
)
from deltars.observe.exporters import opentelemetry, prometheus
from deltars.observe.logs import JsonFormatter, error_fields, json_logs
from deltars.observe.pools import PoolUse, watch_pool

__all__ = [
    "BatchEnded",
    "CommitEnded",
    "Event",
    "Exporter",
    "JsonFormatter",
    "MaintenanceEnded",
    "MaintenanceSeen",
    "MirrorSeen",
    "Outcome",
    "PoolUse",
    "PublicationFailed",
    "Source",
    "Stopwatch",
    "TableLag",
    "TransactionBegun",
    "TransactionEnded",
    "TransactionPublished",
    "VersionPublished",
    "WriteSkipped",
    "attach",
    "detach",
    "emit",
    "error_fields",
    "is_watched",
    "json_logs",
    "opentelemetry",
    "prometheus",
    "watch_pool",
]
