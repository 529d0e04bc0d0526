"""After COMMIT nothing looks like a failure: no thread to be had, a defect, no memory."""

from __future__ import annotations

import logging
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable

import deltars
from deltars.mirror import Publication, Publisher
from deltars.mirror.background import Background
from deltars.mirror.checksum_state import Checksums
from deltars.mirror.files.prefetch import prefetch
from deltars.store.mirror.status import MirrorStatusStore
from tests.mirror.ledger import Ledger, added, version_names
from tests.mirror.steps import stepping

ROWS = pa.table({"id": [1]})

OUTLIVES_MAIN = """
import sys, threading
import pyarrow as pa
import deltars

catalog = deltars.connect(sys.argv[1], mirror_checkpoint_interval=1)
catalog.create_table("a", "id BIGINT")
catalog.create_table("b", "id BIGINT")

def work():
    threading.main_thread().join()
    with catalog.begin() as tx:
        for name in sys.argv[2]:
            tx.write(name, pa.table({"id": [1]}))
    print({name: outcome.publication.value for name, outcome in tx.result.mirror.items()})

threading.Thread(target=work).start()
"""


@contextmanager
def no_threads() -> Iterator[None]:
    """No thread can be started: none finds room for a stack as large as this."""
    before = threading.stack_size(1 << 46)
    try:
        with pytest.raises(RuntimeError, match="can't start new thread"):
            threading.Thread(target=print).start()
        yield
    finally:
        threading.stack_size(before)


@pytest.mark.every_case_on("sqlite")
@pytest.mark.parametrize("tables", ["a", "ab"])
def test_commit_where_no_thread_can_be_started_is_published_by_the_caller(
    catalog: deltars.Catalog, tables: str, tmp_path: Path
) -> None:
    for name in tables:
        catalog.create_table(name, "id BIGINT")
    with no_threads(), catalog.begin() as tx:
        for name in tables:
            tx.write(name, ROWS)
    assert {name: outcome.publication for name, outcome in tx.result.mirror.items()} == dict.fromkeys(
        tables, Publication.PUBLISHED
    )
    for name in tables:
        assert DeltaTable(tmp_path / "warehouse" / name).version() == 1


@pytest.mark.backends("sqlite")
@pytest.mark.parametrize("tables", ["a", "ab"])
def test_commit_of_a_thread_that_outlives_the_main_one_is_published(
    catalog_uri: str, tables: str, tmp_path: Path
) -> None:
    deltars.connect(catalog_uri, warehouse=str(tmp_path / "warehouse")).close()
    done = subprocess.run(
        [sys.executable, "-c", OUTLIVES_MAIN, catalog_uri, tables], capture_output=True, text=True, timeout=60
    )
    assert done.stdout.strip() == str(dict.fromkeys(tables, "published")), done.stderr
    assert "Traceback" not in done.stderr
    for name in tables:
        assert DeltaTable(tmp_path / "warehouse" / name).version() == 1


@pytest.mark.backends("sqlite")
def test_checkpoint_that_gets_no_thread_is_left_to_the_reconciler_and_said(
    ledger: Ledger, caplog: pytest.LogCaptureFixture
) -> None:
    publisher = Publisher(ledger.database, checkpoint_interval=1)
    table = ledger.create_table("t")
    publisher.publish_pending(table)
    version = ledger.append(table)
    with no_threads():
        assert publisher.publish_all({table: version})[table].publication is Publication.PUBLISHED
        assert "is left to the reconciler: no thread could be started" in caplog.text
        publisher.close()
        # Whoever waits for it writes it without one.
        ledger.append(table)
        publisher.publish_pending(table)
    assert ledger.files_of("t", "*.checkpoint.parquet") == [f"{2:020}.checkpoint.parquet"]
    ledger.append(table)
    assert publisher.publish_all({table: 3})[table].publication is Publication.PUBLISHED
    publisher.close()
    assert len(ledger.files_of("t", "*.checkpoint.parquet")) == 2


def test_work_behind_that_gets_no_thread_keeps_nobody_waiting() -> None:
    behind, done = Background(), list[int]()
    with no_threads():
        assert not behind.start("t", done.append, 1)
        assert not behind.spawn(lambda: done.append(2))
        behind.wait()
        assert list(prefetch(iter(range(3)))) == [0, 1, 2]
    assert behind.start("t", done.append, 3)
    behind.wait()
    assert done == [3]


@pytest.mark.backends("sqlite")
def test_one_table_on_local_disk_is_published_in_the_callers_thread(
    ledger: Ledger, publisher: Publisher, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = ledger.create_table("t")
    threads = set()
    with stepping(monkeypatch, lambda what, path: threads.add(threading.current_thread())):
        assert publisher.publish_all({table: 0})[table].publication is Publication.PUBLISHED
    assert threads == {threading.current_thread()}


@pytest.mark.backends("sqlite")
def test_caller_leaves_versions_of_others_to_a_thread(
    ledger: Ledger, publisher: Publisher, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = ledger.create_table("t")
    publishing: dict[str, threading.Thread] = {}

    def note(what: str, path: str) -> None:
        if what == "create" and path.startswith("_delta_log/") and path.endswith(".json"):
            publishing.setdefault(path, threading.current_thread())
            if len(publishing) < 4:
                ledger.append(table)

    with stepping(monkeypatch, note):
        assert publisher.publish_all({table: 0})[table].published_version == 0
        publisher.close()
    here = threading.current_thread()
    assert [thread is here for thread in publishing.values()] == [True, False, False, False]
    assert ledger.log_of("t") == version_names(4)


@pytest.mark.backends("sqlite")
def test_commit_too_large_for_the_callers_thread_is_published_by_another(
    ledger: Ledger, publisher: Publisher, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("deltars.store.read.committed_versions.FILES_AT_ONCE", 2)
    table = ledger.create_table("t")
    publisher.publish_pending(table)
    version = ledger.append(table, "a", "b", "c")
    threads = set()
    with stepping(monkeypatch, lambda what, path: threads.add(threading.current_thread()) if what == "open" else None):
        assert publisher.publish_all({table: version}, wait_s=60)[table].publication is Publication.PUBLISHED
    assert threads
    assert threading.current_thread() not in threads
    version = ledger.append(table, "d", "e", "f")
    with no_threads():
        assert publisher.publish_all({table: version}, wait_s=60)[table].publication is Publication.PUBLISHED


@pytest.mark.backends("sqlite")
@pytest.mark.parametrize("error", [MemoryError(), RuntimeError("a defect"), KeyError("x")])
@pytest.mark.parametrize(
    ("place", "method", "expected"),
    [
        (MirrorStatusStore, "targets", Publication.PUBLISHED),
        (MirrorStatusStore, "claim", Publication.FAILED),
        (MirrorStatusStore, "advance", Publication.FAILED),
        (Checksums, "after", Publication.FAILED),
        (Background, "spawn", Publication.PENDING),
    ],
)
def test_whatever_goes_wrong_after_commit_is_an_outcome_and_a_line_of_the_log(
    catalog: deltars.Catalog,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    error: Exception,
    place: type,
    method: str,
    expected: Publication,
) -> None:
    catalog.create_table("t", "id BIGINT")
    catalog.create_table("u", "id BIGINT")

    def fail(*_: object, **__: object) -> None:
        raise error

    with monkeypatch.context() as patch, caplog.at_level(logging.WARNING, "deltars"):
        patch.setattr(place, method, fail)
        with catalog.begin() as tx:
            tx.write("t", ROWS)
            tx.write("u", ROWS)
    assert tx.result.versions == {"t": 1, "u": 1}
    assert {outcome.publication for outcome in tx.result.mirror.values()} == {expected}
    assert caplog.records
    failures = [outcome.failure for outcome in tx.result.mirror.values()]
    assert all(failure is not None and failure.error for failure in failures) == (expected is Publication.FAILED)


@pytest.mark.backends("sqlite")
def test_new_table_whose_registration_meets_a_defect_stands(
    catalog: deltars.Catalog, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(*_: object) -> None:
        raise RuntimeError("a defect")

    monkeypatch.setattr("deltars.mirror.warehouse.Warehouse.publish_registration", fail)
    with catalog.begin() as tx:
        tx.write("t", ROWS)
    assert tx.result.mirror["t"].publication is Publication.PUBLISHED
    assert catalog.create_table("u", "id BIGINT").version == 0
    assert "was not published because of a bug" in caplog.text


@pytest.mark.backends("sqlite")
def test_interrupted_caller_gives_the_lease_back(
    ledger: Ledger, publisher: Publisher, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = ledger.create_table("t")

    def interrupt(what: str, path: str) -> None:
        raise KeyboardInterrupt

    with stepping(monkeypatch, interrupt), pytest.raises(KeyboardInterrupt):
        publisher.publish_all({table: 0})
    assert publisher.status.read(table).lease_owner is None
    ledger.commit({table: [added("x")]})
    assert publisher.publish_pending(table).published_version == 1
