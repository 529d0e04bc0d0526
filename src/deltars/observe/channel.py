"""Delivery of events to the log and to exporters.

    transaction, store, mirror ── emit ──▶ the log, if its level includes the event
                                      └──▶ every attached exporter: metrics, spans, yours

Code that emits an event does not know the exporters. An exception in an exporter is logged and never fails a commit.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TypeAlias

from deltars.observe.events import Event
from deltars.observe.logs import is_logged, log_event

Exporter: TypeAlias = Callable[[Event], None]

_exporters: tuple[Exporter, ...] = ()
_log = logging.getLogger(__name__)


def attach(exporter: Exporter) -> None:
    """Call the exporter with every further event of this process, in the thread where the event happens."""
    global _exporters
    _exporters = (*_exporters, exporter)


def detach(exporter: Exporter) -> None:
    global _exporters
    _exporters = tuple(other for other in _exporters if other is not exporter)


def is_watched() -> bool:
    """Return whether an exporter is attached. Events that cost a query are emitted only then."""
    return bool(_exporters)


def is_heard(kind: type[Event]) -> bool:
    """Return whether an exporter is attached, or events of this kind are logged also if all went well.

    Most processes do neither, so the events of every commit are made only if one of them does.
    """
    return bool(_exporters) or is_logged(kind)


def emit(event: Event) -> None:
    for exporter in (log_event, *_exporters):
        try:
            exporter(event)
        except Exception:
            # The event is past, so the error must not reach the caller.
            _log.exception("an exporter failed on a %s event", type(event).__name__)
