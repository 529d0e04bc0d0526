"""Functions that enable metrics, spans and lineage. Their packages are imported only when one of these is called."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from deltars.errors import ConfigError
from deltars.observe.channel import attach

if TYPE_CHECKING:
    from openlineage.client import OpenLineageClient
    from opentelemetry.trace import TracerProvider
    from prometheus_client import CollectorRegistry

    from deltars.observe.lineage import LineageEvents
    from deltars.observe.metrics import Metrics
    from deltars.observe.spans import Spans

_turning_on = threading.Lock()
_metrics: dict[CollectorRegistry, Metrics] = {}
_spans: dict[TracerProvider | None, Spans] = {}
_lineage: dict[OpenLineageClient | None, LineageEvents] = {}


def prometheus(*, registry: CollectorRegistry | None = None, port: int | None = None) -> Metrics:
    """Collect metrics of this process in a `prometheus_client` registry: the default one, or yours.

    With a `port` they are also served there, at `/metrics`. Port 0 picks a free one, which `.port` returns. Calling it
    again changes nothing.
    """
    try:
        from deltars.observe.metrics import Metrics, default_registry
    except ImportError as error:
        raise _not_installed("metrics", "metrics", error) from error
    chosen = default_registry() if registry is None else registry
    with _turning_on:
        metrics = _metrics.get(chosen)
        if metrics is None:
            metrics = _metrics[chosen] = Metrics(chosen)
            attach(metrics)
        if port is not None and metrics.port is None:
            try:
                metrics.serve(port)
            except (OSError, OverflowError) as error:
                raise ConfigError(f"metrics cannot be served at port {port}: {error}") from error
    return metrics


def opentelemetry(*, tracer_provider: TracerProvider | None = None) -> Spans:
    """Record a span for every transaction, commit and publication, with the global tracer provider or with yours."""
    try:
        from deltars.observe.spans import Spans
    except ImportError as error:
        raise _not_installed("tracing", "metrics", error) from error
    with _turning_on:
        spans = _spans.get(tracer_provider)
        if spans is None:
            spans = _spans[tracer_provider] = Spans(tracer_provider)
            attach(spans)
    return spans


def openlineage(*, client: OpenLineageClient | None = None) -> LineageEvents:
    """Deliver an OpenLineage run for every committed transaction, with the default client or with yours.

    OpenLineage's own environment variables or `openlineage.yml` set up the default client. Commits do not wait for the
    delivery, and never fail by it; `.flush()` waits.
    """
    try:
        from deltars.observe.lineage import LineageEvents
    except ImportError as error:
        raise _not_installed("lineage events", "openlineage", error) from error
    with _turning_on:
        lineage = _lineage.get(client)
        if lineage is None:
            lineage = _lineage[client] = LineageEvents(client)
            attach(lineage)
    return lineage


def _not_installed(what: str, extra: str, error: ImportError) -> ConfigError:
    return ConfigError(
        f"{what} need a package that is not installed: {error.name}", hint=f"pip install 'deltars[{extra}]'"
    )
