"""Events as OpenTelemetry spans. The only module that imports it.

    deltars.transaction                begin … committed
      ├─ COMMIT lake|public            the database transaction, with the seconds of each stage
      └─ deltars.publish features      one per table, after the commit, usually in another thread

Spans of a transaction are linked by its id, so no span is passed from function to function. Attributes follow
OpenTelemetry's conventions for databases; additional ones begin with `deltars.`.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Mapping
from typing import TypeAlias
from uuid import UUID

from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.trace import Span, SpanKind, Status, StatusCode, TracerProvider

from deltars.errors import DatabaseError, DeltarsError
from deltars.observe.events import (
    CommitEnded,
    Event,
    Outcome,
    PublicationFailed,
    Source,
    TransactionBegun,
    TransactionEnded,
    VersionPublished,
)

REMEMBERED = 10_000
"""Most transactions whose span is remembered. A publication of an older transaction begins a new trace."""

Value: TypeAlias = str | int | float

_NOT_AN_ERROR = (Outcome.COMMITTED, Outcome.REPEATED, Outcome.ROLLED_BACK, Outcome.EMPTY)


class Spans:
    def __init__(self, provider: TracerProvider | None = None) -> None:
        self._tracer = trace.get_tracer("deltars", tracer_provider=provider)
        self._known: OrderedDict[UUID, Span] = OrderedDict()
        self._lock = threading.Lock()

    def __call__(self, event: Event) -> None:
        match event:
            case TransactionBegun():
                # A child of the caller's current span.
                span = self._tracer.start_span(
                    "deltars.transaction",
                    attributes={**_where(event.source, event.txn_id), "deltars.isolation": event.isolation},
                    start_time=event.began_ns,
                )
                with self._lock:
                    self._known[event.txn_id] = span
                    while len(self._known) > REMEMBERED:
                        self._known.popitem(last=False)
            case TransactionEnded():
                self._end_transaction(event)
            case CommitEnded():
                self._commit(event)
            case VersionPublished():
                attributes: dict[str, Value] = {
                    **_where(event.source, event.txn_id),
                    "db.collection.name": event.table,
                    "deltars.version": event.version,
                    "deltars.mirror.lag_seconds": event.lag_s,
                }
                self._record(
                    f"deltars.publish {event.table}", event.txn_id, attributes, event.began_ns, event.duration_s
                )
            case PublicationFailed() if event.txn_id is not None:
                span = self._start(f"deltars.publish {event.table}", event.txn_id, _where(event.source, event.txn_id))
                span.set_attributes({"db.collection.name": event.table, "deltars.version": event.version})
                _mark(span, event.error)
                span.end()

    def _end_transaction(self, event: TransactionEnded) -> None:
        with self._lock:
            # It is kept, because its publications follow.
            span = self._known.get(event.txn_id)
        if span is None:
            return
        span.set_attribute("deltars.outcome", event.outcome.value)
        span.set_attribute("deltars.tables", sorted(event.versions))
        if event.outcome not in _NOT_AN_ERROR and event.error is not None:
            _mark(span, event.error)
        span.end()

    def _commit(self, event: CommitEnded) -> None:
        attributes: dict[str, Value] = {
            **_where(event.source, event.txn_id),
            "db.operation.name": "COMMIT",
            "deltars.outcome": event.outcome.value,
            "deltars.tables": len(event.tables),
            "deltars.added_files": event.added_files,
            "deltars.removed_files": event.removed_files,
        }
        for stage, seconds in event.stages.items():
            attributes[f"deltars.stage.{stage}_seconds"] = seconds
        if event.conflict is not None:
            attributes["error.type"] = event.conflict
        self._record(
            f"COMMIT {event.source.namespace}",
            event.txn_id,
            attributes,
            event.began_ns,
            event.duration_s,
            kind=SpanKind.CLIENT,
            error=event.error,
        )

    def _record(
        self,
        name: str,
        txn_id: UUID,
        attributes: Mapping[str, Value],
        began_ns: int,
        duration_s: float,
        *,
        kind: SpanKind = SpanKind.INTERNAL,
        error: BaseException | None = None,
    ) -> None:
        """Record a span of an operation that is over."""
        span = self._start(name, txn_id, attributes, began_ns, kind)
        if error is not None:
            _mark(span, error)
        span.end(began_ns + round(duration_s * 1e9))

    def _start(
        self,
        name: str,
        txn_id: UUID,
        attributes: Mapping[str, Value],
        began_ns: int | None = None,
        kind: SpanKind = SpanKind.INTERNAL,
    ) -> Span:
        with self._lock:
            parent = self._known.get(txn_id)
        # Without a transaction (raw commits, the reconciler), the parent is this thread's current span.
        context: Context | None = None if parent is None else trace.set_span_in_context(parent)
        return self._tracer.start_span(name, context, kind, attributes, start_time=began_ns)


def _where(source: Source, txn_id: UUID) -> dict[str, Value]:
    attributes: dict[str, Value] = {
        "db.system.name": source.system,
        "db.namespace": source.namespace,
        "deltars.txn_id": str(txn_id),
    }
    if source.host is not None:
        attributes["server.address"] = source.host
    if source.port is not None:
        attributes["server.port"] = source.port
    return attributes


def _mark(span: Span, error: BaseException) -> None:
    span.set_attribute("error.type", type(error).__name__)
    if isinstance(error, DatabaseError) and error.sqlstate is not None:
        span.set_attribute("db.response.status_code", error.sqlstate)
    if isinstance(error, DeltarsError) and error.stage is not None:
        span.set_attribute("deltars.stage", error.stage)
    span.set_status(Status(StatusCode.ERROR, str(error)))
