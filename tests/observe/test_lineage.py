"""OpenLineage: a committed transaction is a run, with the tables that it read and wrote. It never fails a commit."""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from uuid import UUID

import pyarrow as pa
import pytest
from openlineage.client import OpenLineageClient
from openlineage.client.transport.http import HttpConfig, HttpTransport

import deltars
from deltars import observe
from deltars.observe import lineage as lineage_module
from deltars.observe.lineage import LineageEvents, _place
from tests.support.children import in_child

pytestmark = pytest.mark.backends("sqlite")
ROWS = pa.table({"id": pa.array([1, 2], pa.int64())})


class Receiver:
    """An HTTP server that takes events, as Marquez does."""

    def __init__(self) -> None:
        self.events: list[dict[str, Any]] = []
        self.is_broken = False
        self.may_answer = threading.Event()
        self.may_answer.set()
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                receiver.may_answer.wait(60)
                if not receiver.is_broken:
                    receiver.events.append(json.loads(body))
                self.send_response(500 if receiver.is_broken else 201)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, format: str, *args: Any) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.server.serve_forever, args=(0.01,), daemon=True).start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server.server_port}"


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    receiver = Receiver()
    yield receiver
    receiver.may_answer.set()
    receiver.server.shutdown()
    receiver.server.server_close()


@pytest.fixture
def events(receiver: Receiver) -> Iterator[LineageEvents]:
    config = HttpConfig(url=receiver.url, timeout=30, retry={"total": 0})
    exporter = LineageEvents(OpenLineageClient(transport=HttpTransport(config)))
    observe.attach(exporter)
    yield exporter
    observe.detach(exporter)


def test_transaction_is_a_run_with_what_it_read_and_wrote(
    catalog: deltars.Catalog, receiver: Receiver, events: LineageEvents
) -> None:
    catalog.write("orders", ROWS)
    catalog.write("old", ROWS)
    assert events.flush(60)
    receiver.events.clear()
    with catalog.begin(committer="nightly", isolation="serializable") as tx:
        tx.write("totals", pa.Table.from_batches(tx.to_arrow("orders", where="id > 1").to_batches()))
        tx.drop_table("old")
    assert events.flush(60)
    begun, ended = receiver.events
    assert (begun["eventType"], ended["eventType"]) == ("START", "COMPLETE")
    assert begun["eventTime"] < ended["eventTime"]
    assert ended["run"]["runId"] == str(tx.id)
    assert (ended["job"]["name"], ended["job"]["namespace"]) == ("nightly", catalog.uri)
    [read] = ended["inputs"]
    assert (read["namespace"], read["name"]) == ("file", catalog.table("orders").location.removeprefix("file://"))
    assert read["facets"]["version"]["datasetVersion"] == "0"
    dropped, written = ended["outputs"]
    assert dropped["facets"]["lifecycleStateChange"]["lifecycleStateChange"] == "DROP"
    facets = written["facets"]
    assert facets["symlinks"]["identifiers"] == [{"namespace": catalog.uri, "name": "totals", "type": "TABLE"}]
    assert facets["schema"]["fields"] == [{"name": "id", "type": "long", "fields": []}]
    assert facets["lifecycleStateChange"]["lifecycleStateChange"] == "CREATE"
    statistics = written["outputFacets"]["outputStatistics"]
    assert (statistics["rowCount"], statistics["fileCount"]) == (1, 1)
    assert statistics["size"] == sum(catalog.table("totals").files()["size"].to_pylist())


def test_row_change_reads_its_table_and_overwrite_replaces_it(
    catalog: deltars.Catalog, receiver: Receiver, events: LineageEvents
) -> None:
    catalog.write("t", ROWS)
    catalog.table("t").update({"id": "id + 1"}, "id = 1")
    catalog.write("t", ROWS, "overwrite")
    assert events.flush(60)
    update, overwrite = receiver.events[3], receiver.events[5]
    assert [one["facets"]["version"]["datasetVersion"] for one in (*update["inputs"], *update["outputs"])] == ["0", "1"]
    assert update["job"]["name"] == "t"
    assert "lifecycleStateChange" not in update["outputs"][0]["facets"]
    assert overwrite["outputs"][0]["facets"]["lifecycleStateChange"]["lifecycleStateChange"] == "OVERWRITE"


def test_only_commits_are_delivered(catalog: deltars.Catalog, receiver: Receiver, events: LineageEvents) -> None:
    for _ in range(2):  # the second repeats the first
        with catalog.begin(txn_id=UUID(int=7)) as tx:
            tx.write("t", ROWS)
    with catalog.begin() as tx:
        tx.to_arrow("t")
    tx = catalog.begin()
    tx.write("t", ROWS)
    tx.rollback()
    assert events.flush(60)
    assert {event["run"]["runId"] for event in receiver.events} == {str(UUID(int=7))}


def test_server_that_fails_or_hangs_fails_and_delays_no_commit(
    catalog: deltars.Catalog,
    receiver: Receiver,
    events: LineageEvents,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    receiver.is_broken = True
    with caplog.at_level(logging.WARNING, "deltars.observe"):
        catalog.write("t", ROWS)
        assert events.flush(60)
        assert "are dropped" in caplog.text
        monkeypatch.setattr(events, "_waiting", type(events._waiting)(2))
        events._thread = None
        receiver.may_answer.clear()
        for _ in range(5):
            catalog.write("t", ROWS)
        assert not events.flush(0.01)
        assert "2 wait already" in caplog.text.replace(str(lineage_module.WAITING), "2")
        receiver.is_broken = False
        receiver.may_answer.set()
        assert events.flush(60)
    assert catalog.table("t").count() == 12


def test_forked_process_delivers_its_own_commits(
    catalog: deltars.Catalog, receiver: Receiver, events: LineageEvents
) -> None:
    catalog.write("t", ROWS)
    assert events.flush(60)

    def commit() -> None:
        with deltars.connect(catalog.uri) as mine:
            mine.write("u", ROWS)
        assert events.flush(20)

    assert in_child(commit) == 0
    assert receiver.events[-1]["job"]["name"] == "u"


def test_setting_turns_it_on_once_for_the_process(
    migrated_uri: str, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENLINEAGE_URL", receiver.url)
    monkeypatch.setenv("DELTARS_OPENLINEAGE", "true")
    monkeypatch.setenv("OPENLINEAGE_NAMESPACE", "lake")
    for _ in range(2):
        with deltars.connect(migrated_uri) as catalog:
            catalog.write("t", ROWS)
    exporter = observe.openlineage()
    try:
        assert exporter.flush(60)
    finally:
        observe.detach(exporter)
        observe.exporters._lineage.clear()
    assert [event["job"]["namespace"] for event in receiver.events] == ["lake"] * 4


@pytest.mark.parametrize(
    ("location", "place"),
    [
        ("/data/lake/t", ("file", "/data/lake/t")),
        ("file:///data/lake/t/", ("file", "/data/lake/t")),
        ("s3://bucket/lake/t", ("s3://bucket", "lake/t")),
        ("abfss://lake@account.dfs.core.windows.net/t", ("abfss://lake@account.dfs.core.windows.net", "t")),
    ],
)
def test_dataset_is_named_by_its_store_and_path(location: str, place: tuple[str, str]) -> None:
    assert _place(location) == place
