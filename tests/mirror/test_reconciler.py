"""The reconciler: what committers left undone is done, what others broke is mended, one bad table stops no other."""

from __future__ import annotations

import json
import logging
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from uuid import UUID

import msgspec
import pyarrow as pa
import pytest
from deltalake import DeltaTable

import deltars
from deltars.catalog import migrate
from deltars.mirror import Publication, Publisher, Reconciler, warehouse
from deltars.mirror.warehouse import Warehouse
from deltars.store.mirror.status import MirrorState, MirrorStatus, MirrorStatusStore
from tests.mirror.ledger import CREATE, Ledger, added, version_names
from tests.mirror.steps import Unsteady, stepping
from tests.support.soak import record, scaled, seed
from tests.support.together import Meanwhile

# DuckDB has one process, and its statements are tried by the publisher's tests.
pytestmark = pytest.mark.backends("postgres", "sqlite")

ROWS = pa.table({"id": [1]})
MINUTE_US = 60_000_000


@pytest.fixture
def reconciler(ledger: Ledger, publisher: Publisher) -> Reconciler:
    return Reconciler(ledger.database, publisher, poll_s=0.05)


def until(reached: Callable[[], bool], timeout_s: float = 30) -> None:
    deadline = time.monotonic() + timeout_s
    while not reached():
        assert time.monotonic() < deadline
        time.sleep(0.02)


@pytest.mark.backends("postgres", "sqlite", "duckdb")
@pytest.mark.requirement("M-11", "M-16")
def test_failed_publication_is_on_the_result_and_in_the_status_and_mended_by_the_reconciler(
    catalog: deltars.Catalog, tmp_path: Path
) -> None:
    log = tmp_path / "warehouse" / "t" / "_delta_log"
    catalog.create_table("t", "id BIGINT")
    log.rename(log.with_name("kept"))
    log.write_bytes(b"in the way")
    result = catalog.write("t", ROWS)
    outcome = result.mirror["t"]
    assert outcome.publication is Publication.FAILED
    with pytest.raises(deltars.MirrorFailure) as raised:
        result.raise_for_mirror()
    failure = raised.value
    assert (failure.table, failure.table_id, failure.version) == ("t", str(catalog.table("t").id), 1)
    assert "the published version 0 is missing" in failure.error
    # The commit stands.
    assert result.versions == {"t": 1}
    assert catalog.table("t").version == 1
    [status] = catalog.mirror_status()
    assert (status.state, status.published_version, status.attempts) == (MirrorState.FAILED, 0, 1)
    assert status.last_error == failure.error

    log.unlink()
    log.with_name("kept").rename(log)
    reconciler = catalog.reconciler(poll_s=0.05)
    running = Meanwhile(reconciler.run)
    until(lambda: catalog.mirror_status()[0].published_version == 1)
    reconciler.stop()
    running.result()
    [status] = catalog.mirror_status()
    assert (status.state, status.attempts, status.last_error) == (MirrorState.ACTIVE, 0, None)
    assert sorted(path.name for path in log.glob("*.json")) == version_names(2)


@pytest.mark.backends("postgres", "sqlite", "duckdb")
@pytest.mark.requirement("M-11")
def test_table_that_failed_is_not_tried_again_before_its_pause_is_over(
    ledger: Ledger, publisher: Publisher, reconciler: Reconciler
) -> None:
    table = ledger.create_table("t")
    ledger.set_status(table, state="failed", attempts=5, next_attempt_at=publisher.status.read(table).now + MINUTE_US)
    assert reconciler.once().outcomes == []
    ledger.set_status(table, next_attempt_at=1)
    assert [outcome.publication for outcome in reconciler.once().outcomes] == [Publication.PUBLISHED]


def test_missing_commits_are_written_again_byte_for_byte(ledger: Ledger, reconciler: Reconciler) -> None:
    table = ledger.create_table("t")
    for _ in range(4):
        ledger.append(table)
    reconciler.once()
    before = {version: ledger.version_file("t", version).read_bytes() for version in range(5)}
    times = {version: ledger.version_file("t", version).stat().st_mtime_ns for version in range(5)}
    for version in (0, 2, 4):
        ledger.version_file("t", version).unlink()
    repairs = reconciler.once().repairs
    assert [(repair.table, repair.what) for repair in repairs] == [("t", "a published commit was missing")] * 3
    assert {version: ledger.version_file("t", version).read_bytes() for version in range(5)} == before
    assert {version: ledger.version_file("t", version).stat().st_mtime_ns for version in range(5)} == times
    assert reconciler.once().repairs == []


def test_what_deltalake_cleans_up_and_checkpoints_is_mended(
    catalog: deltars.Catalog, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    for _ in range(13):
        catalog.write("t", ROWS)
    catalog._session.publisher.close()
    log = tmp_path / "warehouse" / "t" / "_delta_log"
    assert catalog.reconciler().once().repairs == []
    month = 40 * 86_400
    for file in log.iterdir():
        os.utime(file, (file.stat().st_mtime - month, file.stat().st_mtime - month))
    stranger = DeltaTable(log.parent)
    stranger.create_checkpoint()
    stranger.cleanup_metadata()
    left = sorted(path.name for path in log.glob("*.json"))
    assert len(left) < 13
    hint = json.loads((log / "_last_checkpoint").read_text())
    assert (hint["version"], "tags" in hint) == (12, False)

    with caplog.at_level(logging.WARNING, "deltars"):
        done = catalog.reconciler().once()
    assert sorted(path.name for path in log.glob("*.json")) == version_names(13)
    hint = json.loads((log / "_last_checkpoint").read_text())
    assert (hint["version"], hint["tags"]) == (12, {"deltars.sqlManaged": "true"})
    assert any(repair.what == "_last_checkpoint was another program's" for repair in done.repairs)
    assert "a published commit was missing; written from the catalog" in caplog.text
    assert catalog.reconciler().once().repairs == []
    assert DeltaTable(log.parent, version=3).version() == 3


def test_checkpoint_that_a_crash_left_out_is_written(ledger: Ledger, publisher: Publisher) -> None:
    table = ledger.create_table("t")
    for _ in range(12):
        ledger.append(table)
    publisher.publish_pending(table)
    log = ledger.warehouse / "t" / "_delta_log"
    (log / f"{12:020}.checkpoint.parquet").unlink()
    reconciler = Reconciler(ledger.database, publisher)
    assert [repair.what for repair in reconciler.once().repairs] == ["the last checkpoint was missing"]
    (log / "_last_checkpoint").unlink()
    assert [repair.what for repair in reconciler.once().repairs] == ["a checkpoint was due"]
    assert json.loads((log / "_last_checkpoint").read_text())["version"] == 12
    assert reconciler.once().repairs == []


def test_version_maps_and_entries_that_a_crash_left_out_are_written(ledger: Ledger, reconciler: Reconciler) -> None:
    tables = [ledger.create_table(name) for name in ("a", "b", "c")]
    for pair in (tables[:2], tables[1:]):
        ledger.commit({table: [added("x.parquet")] for table in pair})
    ledger.append(tables[0])
    reconciler.once()
    kept = ledger.warehouse / "_deltars"
    files = {path: path.read_bytes() for path in kept.rglob("*.json")}
    assert len(files) == 3 + 2 + 1  # and the mark of the catalog
    for path in files:
        path.unlink()
    ledger.registry.rename("c", "cc")
    done = Reconciler(ledger.database, Publisher(ledger.database)).once()
    assert len(done.repairs) == 5
    assert (kept / "catalog.json").read_bytes() == files[kept / "catalog.json"]
    names = {json.loads(path.read_text())["name"] for path in (kept / "tables").iterdir()}
    assert names == {"a", "b", "cc"}
    maps = [path for path in files if path.parent.name == "txns"]
    assert all(json.loads(path.read_text())["txnId"] == path.stem for path in maps)


def test_version_map_waits_for_the_last_table(ledger: Ledger, publisher: Publisher, reconciler: Reconciler) -> None:
    good, bad = ledger.create_table("good"), ledger.create_table("bad")
    ledger.commit({good: [added("x")], bad: [added("x")]})
    ledger.set_status(bad, next_attempt_at=publisher.status.read(bad).now + MINUTE_US)
    reconciler.once()
    assert not (ledger.warehouse / "_deltars" / "txns").exists()
    ledger.set_status(bad, next_attempt_at=None)
    reconciler.once()
    assert len(list((ledger.warehouse / "_deltars" / "txns").iterdir())) == 1


def test_rebuilt_catalog_without_a_table_that_was_dropped_gets_the_version_maps_that_can_be_read(
    catalog: deltars.Catalog, catalog_uri: str, tmp_path: Path
) -> None:
    for name in ("a", "b", "gone"):
        catalog.create_table(name, "id BIGINT")
    results = []
    for pair in (("a", "gone"), ("a", "b")):
        with catalog.begin() as tx:
            for name in pair:
                tx.write(name, ROWS)
        results.append(tx.result)
    gone = Path(catalog.table("gone").location)
    catalog.drop_table("gone")
    catalog.close()
    shutil.rmtree(gone)
    maps = tmp_path / "warehouse" / "_deltars" / "txns"
    shutil.rmtree(maps)
    migrate.down(catalog_uri)
    assert deltars.rebuild(str(tmp_path / "warehouse"), catalog_uri).gone == ("gone",)
    with deltars.connect(catalog_uri) as again:
        assert again.reconciler().once().errors == []
    assert [path.stem for path in maps.iterdir()] == [str(results[1].txn_id)]


@pytest.mark.backends("sqlite")
@pytest.mark.parametrize("why", ["dropped", "off", "diverged"])
def test_table_that_is_never_published_does_not_make_every_inspection_ask_for_all_later_version_maps(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch, why: str
) -> None:
    publisher = Publisher(ledger.database)
    a, b, stuck = (ledger.create_table(name) for name in ("a", "b", "stuck"))
    first = ledger.commit({a: [added("x")], stuck: [added("x")]}).commit_ts
    match why:
        case "diverged":
            ledger.set_status(stuck, state="diverged")
        case "dropped":
            ledger.registry.drop("stuck")
        case "off":
            ledger.commit({stuck: [msgspec.structs.replace(CREATE[1], configuration={"deltars.mirror": "off"})]})
    for _ in range(5):
        last = ledger.commit({a: [added("y")], b: [added("y")]}).commit_ts
    publisher.publish_pending(a)
    publisher.publish_pending(b)
    monkeypatch.setattr(warehouse, "SETTLED_US", 0)
    monkeypatch.setattr(warehouse, "FEW_MAPS", 3)
    assert publisher.warehouse.repair_version_maps() == ([], first if why == "diverged" else last)
    asked: list[str] = []
    with stepping(monkeypatch, lambda what, path: asked.append(path) if what == "head" else None):
        assert publisher.warehouse.repair_version_maps(first)[0] == []
    assert asked == []


@pytest.mark.backends("sqlite")
def test_table_that_the_database_fails_for_is_an_error_of_the_pass_and_stops_no_other(
    ledger: Ledger, publisher: Publisher, reconciler: Reconciler, monkeypatch: pytest.MonkeyPatch
) -> None:
    tables = [ledger.create_table(name) for name in ("a", "b", "c")]
    claim = MirrorStatusStore.claim

    def claim_or_fail(status: MirrorStatusStore, table_id: UUID, owner: str) -> tuple[bool, MirrorStatus]:
        if table_id == tables[1]:
            raise deltars.DatabaseError("the lock was not had in time")
        return claim(status, table_id, owner)

    monkeypatch.setattr(MirrorStatusStore, "claim", claim_or_fail)
    done = reconciler.once()
    assert {outcome.table_id for outcome in done.outcomes} == {tables[0], tables[2]}
    assert done.errors == [f"table {tables[1]} could not be published: the lock was not had in time"]


@pytest.mark.backends("sqlite")
def test_defect_in_an_inspection_is_logged_by_the_process_and_stops_no_other(
    ledger: Ledger, publisher: Publisher, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> list[str]:
        raise KeyError("a table")

    monkeypatch.setattr(Warehouse, "repair_registrations", fail)
    table = ledger.create_table("t")
    reconciler = Reconciler(ledger.database, publisher, poll_s=0.02)
    running = Meanwhile(reconciler.run)
    until(lambda: "the warehouse could not be inspected because of a bug in deltars" in caplog.text)
    until(lambda: publisher.status.read(table).published_version == 0)
    assert reconciler.once().errors == ["the warehouse could not be inspected: KeyError('a table')"]
    reconciler.stop()
    running.result()


def test_diverged_table_is_left_alone_and_the_others_go_on(ledger: Ledger, reconciler: Reconciler) -> None:
    tables = {name: ledger.create_table(name) for name in ("good", "bad")}
    reconciler.once()
    for table in tables.values():
        ledger.append(table)
    foreign = b'{"commitInfo":{"operation":"WRITE","engineInfo":"other"}}\n'
    ledger.version_file("bad", 1).write_bytes(foreign)
    outcomes = {outcome.table_id: outcome for outcome in reconciler.once().outcomes}
    assert outcomes[tables["good"]].publication is Publication.PUBLISHED
    assert outcomes[tables["bad"]].publication is Publication.FAILED
    ledger.append(tables["good"])
    assert [outcome.table_id for outcome in reconciler.once().outcomes] == [tables["good"]]
    assert ledger.version_file("bad", 1).read_bytes() == foreign
    ledger.version_file("bad", 0).unlink()
    assert reconciler.once().repairs == []


@pytest.mark.backends("sqlite")
def test_lag_of_more_than_a_minute_raises_one_alert_each_time(
    ledger: Ledger, publisher: Publisher, caplog: pytest.LogCaptureFixture
) -> None:
    alerts: list[tuple[str, bool]] = []

    def alert(status: MirrorStatus, lag_s: float) -> None:
        alerts.append((status.name, lag_s > 0.05))

    table = ledger.create_table("t")
    reconciler = Reconciler(ledger.database, publisher, lag_alert_s=0.05, on_lag=alert)
    later = publisher.status.read(table).now + MINUTE_US
    ledger.set_status(table, next_attempt_at=later, last_error="the storage is away")
    time.sleep(0.1)
    with caplog.at_level(logging.ERROR, "deltars"):
        reconciler.once()
        reconciler.once()
    assert alerts == [("t", True)]
    assert "the mirror of table t is 0 s behind: version -1 is published, 0 is committed (the storage is away)" in (
        caplog.text
    )
    ledger.set_status(table, next_attempt_at=None)
    reconciler.once()
    ledger.append(table)
    ledger.set_status(table, next_attempt_at=later)
    time.sleep(0.1)
    reconciler.once()
    assert len(alerts) == 2


@pytest.mark.backends("postgres", "sqlite", "duckdb")
@pytest.mark.requirement("M-27")
def test_tables_published_in_another_order_than_committed_do_no_harm(ledger: Ledger, publisher: Publisher) -> None:
    first, second = ledger.create_table("first"), ledger.create_table("second")
    for _ in range(3):
        ledger.append(first)
        ledger.commit({first: [added("x")], second: [added("y")]})
    publisher.publish_pending(second)
    assert (ledger.log_of("first"), ledger.log_of("second")) == ([], version_names(4))
    assert DeltaTable(ledger.warehouse / "second").version() == 3
    publisher.publish_pending(first)
    assert ledger.log_of("first") == version_names(7)
    for table in (first, second):
        versions = [version for version, _ in ledger.mirror_log(table)]
        assert versions == sorted(versions)
    assert len(list((ledger.warehouse / "_deltars" / "txns").iterdir())) == 3


@pytest.mark.backends("postgres", "sqlite")
def test_process_publishes_until_it_is_told_to_stop_and_ends_cleanly(
    catalog: deltars.Catalog, catalog_uri: str
) -> None:
    catalog.create_table("t", "id BIGINT")
    command = [sys.executable, "-m", "deltars.cli", "mirror", "run", "--poll", "0.1", "--catalog", catalog_uri]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    try:
        for _ in range(3):
            with catalog.begin(mirror="async") as tx:
                tx.write("t", ROWS)
        until(lambda: catalog.mirror_status()[0].published_version == 3, 60)
        process.send_signal(signal.SIGTERM)
        _, said = process.communicate(timeout=30)
    finally:
        process.kill()
    assert process.returncode == 0, said
    assert said.splitlines()[-1] == "stopped"
    assert catalog.mirror_status()[0].lease_owner is None


def test_stopping_in_a_backlog_gives_the_lease_back_and_loses_nothing(ledger: Ledger, publisher: Publisher) -> None:
    table = ledger.create_table("t")
    for _ in range(30):
        ledger.append(table)
    reconciler = Reconciler(ledger.database, publisher, poll_s=0.01)
    reconciler.stop()
    publisher.publish_pending(table, stop=reconciler._stop)
    status = publisher.status.read(table)
    assert (status.published_version, status.lease_owner) == (0, None)
    publisher.publish_pending(table)
    assert ledger.log_of("t") == version_names(31)


def test_checkpoint_that_takes_long_keeps_no_version_waiting(
    ledger: Ledger, publisher: Publisher, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = ledger.create_table("t")
    begun, go_on = threading.Event(), threading.Event()
    opened: list[str] = []

    def wait_at_checkpoint(what: str, path: str) -> None:
        if what == "open":
            opened.append(path)
            begun.set()
            assert go_on.wait(60)

    with stepping(monkeypatch, wait_at_checkpoint):
        reconciler = Reconciler(ledger.database, publisher, poll_s=0.02, inspect_s=3600)
        # What was never published needs no mending: the inspection at the start writes no checkpoint.
        running = Meanwhile(reconciler.run)
        for _ in range(10):
            ledger.append(table)
        until(begun.is_set)
        for version in range(11, 41):
            ledger.append(table)
            until(lambda version=version: publisher.status.read(table).published_version == version)  # type: ignore[misc]
        go_on.set()
        until(lambda: len(opened) == 2)
        reconciler.stop()
        running.result()
    assert ledger.log_of("t") == version_names(41)
    # Three more fell due meanwhile: the last of them stands for all.
    assert [int(Path(path).name[:20]) for path in opened][1:] == [40]


@pytest.mark.soak
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("storage", ["steady", "unsteady"])
@pytest.mark.promise("N6")
def test_several_reconcilers_and_committers_publish_each_version_once_and_in_order(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch, storage: str
) -> None:
    tables: dict[str, UUID] = {name: ledger.create_table(name) for name in ("a", "b", "c")}
    turns = scaled(8, soak=300) // 3 * 3
    trouble = Unsteady(seed()) if storage == "unsteady" else None
    seen: dict[str, list[int]] = {name: [] for name in tables}

    def commit(worker: int) -> None:
        publisher = Publisher(ledger.database)
        for turn in range(turns):
            table = list(tables.values())[(worker + turn) % 3]
            version = ledger.append(table)
            if turn % 2:
                publisher.publish_all({table: version}, wait_s=0.05)
        publisher.close()

    def look() -> None:
        for name, table in tables.items():
            if ledger.log_of(name):
                seen[name].append(DeltaTable(ledger.warehouse / name).version())
            # The pause after a failure is not what is tried here.
            ledger.set_status(table, next_attempt_at=None)

    with stepping(monkeypatch, trouble or (lambda what, path: None)):
        reconcilers = [Reconciler(ledger.database, Publisher(ledger.database), poll_s=0.01) for _ in range(3)]
        running = [Meanwhile(reconciler.run) for reconciler in reconcilers]
        committers = [Meanwhile(commit, worker) for worker in range(3)]
        while any(committer.is_running for committer in committers):
            look()
        for committer in committers:
            committer.result()
        while any(status.is_pending for status in reconcilers[0]._publisher.status.overview()):
            look()
        for reconciler, loop in zip(reconcilers, running, strict=True):
            reconciler.stop()
            loop.result()
    for name, table in tables.items():
        assert ledger.log_of(name) == version_names(turns + 1)
        assert [version for version, _ in ledger.mirror_log(table)] == list(range(turns + 1))
        assert seen[name] == sorted(seen[name])
    failures = trouble.failures if trouble else 0
    assert bool(trouble) == bool(failures)
    what = f"three reconcilers, three committers, {storage} storage, {ledger.database.backend.name}"
    record(what, versions=3 * turns, looks=sum(map(len, seen.values())), failed_calls=failures, lost=0)
