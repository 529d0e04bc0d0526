"""Spans: a transaction from begin to the mirror is one trace, with the names that databases have in OpenTelemetry."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

import deltars
from deltars import observe
from deltars.observe import spans as spans_module
from deltars.observe.spans import Spans
from tests.mirror.ledger import added

SYSTEMS = {"postgres": "postgresql", "sqlite": "sqlite", "duckdb": "duckdb"}


class Traces:
    def __init__(self) -> None:
        self.provider = TracerProvider()
        self._memory = InMemorySpanExporter()
        self.provider.add_span_processor(SimpleSpanProcessor(self._memory))

    def named(self, start: str) -> list[ReadableSpan]:
        found = [span for span in self._memory.get_finished_spans() if span.name.startswith(start)]
        return sorted(found, key=lambda span: span.name)


@pytest.fixture
def traces() -> Iterator[Traces]:
    traces = Traces()
    spans = Spans(traces.provider)
    observe.attach(spans)
    yield traces
    observe.detach(spans)


@pytest.fixture
def tables(catalog: deltars.Catalog, traces: Traces) -> deltars.Catalog:
    for name in "ab":
        catalog.create_table(name, "id BIGINT")
    return catalog


def attributes(span: ReadableSpan) -> dict[str, object]:
    return dict(span.attributes or {})


def test_transaction_its_commit_and_its_publications_are_one_trace_below_the_callers_span(
    tables: deltars.Catalog, traces: Traces, backend: str
) -> None:
    tracer = traces.provider.get_tracer("job")
    with tracer.start_as_current_span("nightly") as nightly, tables.begin() as tx:
        tx.stage("a", [added("1"), added("2")])
        tx.stage("b", [added("1")])
    tables.close()
    [transaction] = traces.named("deltars.transaction")
    [commit] = [span for span in traces.named("COMMIT") if attributes(span)["deltars.txn_id"] == str(tx.id)]
    published = [span for span in traces.named("deltars.publish") if attributes(span)["deltars.version"] == 1]
    assert [span.name for span in published] == ["deltars.publish a", "deltars.publish b"]
    ours = [transaction, commit, *published]
    assert {span.context.trace_id for span in ours} == {nightly.get_span_context().trace_id}
    assert transaction.parent is not None
    assert transaction.parent.span_id == nightly.get_span_context().span_id
    assert {span.parent.span_id for span in ours[1:] if span.parent} == {transaction.context.span_id}

    source = tables._session.database.source
    for span in ours:
        assert attributes(span)["db.system.name"] == SYSTEMS[backend]
        assert attributes(span)["db.namespace"] == source.namespace
        assert attributes(span)["deltars.txn_id"] == str(tx.id)
        assert span.status.status_code is StatusCode.UNSET
    assert commit.kind is SpanKind.CLIENT
    assert attributes(commit)["db.operation.name"] == "COMMIT"
    assert attributes(commit)["deltars.added_files"] == 3
    stages = [attributes(commit)[f"deltars.stage.{stage}_seconds"] for stage in ("validate", "lock", "check", "commit")]
    assert all(isinstance(seconds, float) and seconds > 0 for seconds in stages)
    assert [attributes(span)["db.collection.name"] for span in published] == ["a", "b"]
    # In time, too: begun, committed, published.
    times = [(span.start_time or 0, span.end_time or 0) for span in ours]
    assert all(begun < ended for begun, ended in times)
    assert times[0][0] <= times[1][0] < min(begun for begun, _ in times[2:])


@pytest.mark.backends("sqlite")
def test_failure_is_on_the_spans_with_its_type_and_stage(tables: deltars.Catalog, traces: Traces) -> None:
    stale = tables.begin()
    stale.stage("a", [added("1")], expected_version=7)
    with pytest.raises(deltars.VersionConflict):
        stale.commit()
    [transaction] = traces.named("deltars.transaction")
    [commit] = [span for span in traces.named("COMMIT") if attributes(span)["deltars.txn_id"] == str(stale.id)]
    assert transaction.status.status_code is StatusCode.ERROR
    assert attributes(transaction)["error.type"] == attributes(commit)["error.type"] == "VersionConflict"
    assert attributes(transaction)["deltars.stage"] == "check"


@pytest.mark.backends("sqlite")
def test_failed_publication_is_a_span_of_the_transactions_trace(
    tables: deltars.Catalog, traces: Traces, tmp_path: Path
) -> None:
    (tmp_path / "warehouse" / "a" / "_delta_log" / f"{1:020}.json").write_text("foreign")
    with tables.begin() as tx:
        tx.stage("a", [added("1")])
    [transaction] = traces.named("deltars.transaction")
    [failed] = [span for span in traces.named("deltars.publish a") if span.status.status_code is StatusCode.ERROR]
    assert failed.context.trace_id == transaction.context.trace_id
    assert attributes(failed)["error.type"] == "MirrorFailure"
    assert attributes(failed)["deltars.txn_id"] == str(tx.id)
    # The commit stands.
    assert transaction.status.status_code is StatusCode.UNSET


@pytest.mark.backends("sqlite")
def test_no_more_transactions_are_remembered_than_the_limit(
    tables: deltars.Catalog, traces: Traces, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(spans_module, "REMEMBERED", 1)
    first, second = tables.begin(mirror="off"), tables.begin(mirror="off")
    for tx in (first, second):
        tx.stage("a", [added(str(tx.id))], expected_version=0 if tx is first else 1)
        tx.commit()
    # The first was forgotten: its commit has a trace of its own, and nothing fails.
    [transaction] = traces.named("deltars.transaction")
    assert attributes(transaction)["deltars.txn_id"] == str(second.id)
    commits = {attributes(span)["deltars.txn_id"]: span for span in traces.named("COMMIT")}
    assert commits[str(first.id)].parent is None
    assert commits[str(second.id)].parent is not None
