"""How events reach those who watch.

    whoever does something ── emit ──▶ the log, where a level asks for it
                                  └──▶ every exporter that is attached: metrics, spans, yours

Who tells an event knows no exporter, and what an exporter does wrong never reaches a commit.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TypeAlias

from deltars.observe.events import Event
from deltars.observe.logs import log_event

Exporter: TypeAlias = Callable[[Event], None]

_exporters: tuple[Exporter, ...] = ()
_log = logging.getLogger(__name__)


def attach(exporter: Exporter) -> None:
    """From now on it is called with every event of this process, in the thread where that happens."""
    global _exporters
    _exporters = (*_exporters, exporter)


def detach(exporter: Exporter) -> None:
    global _exporters
    _exporters = tuple(other for other in _exporters if other is not exporter)


def is_watched() -> bool:
    """Whether anybody but the log listens: what it takes a query to know is told only then."""
    return bool(_exporters)


def emit(event: Event) -> None:
    for exporter in (log_event, *_exporters):
        try:
            exporter(event)
        except Exception:
            # The commit stands, or failed for a reason of its own.
            _log.exception("an exporter could not take a %s", type(event).__name__)
