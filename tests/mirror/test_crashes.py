"""Whatever happens between any two steps, the log ends complete: nothing missing, twice or out of order."""

from __future__ import annotations

import os
import signal
import threading
from pathlib import Path
from uuid import UUID

import pytest
from deltalake import DeltaTable

from deltars.mirror import Publication, Publisher, Reconciler
from deltars.mirror.publisher import STAGED_AT_ONCE
from deltars.mirror.verify import Verifier
from tests.mirror.ledger import CREATE, Ledger, added, check_log, version_names
from tests.mirror.steps import DyingAt, FailingOneIn, stepping
from tests.support.children import in_child
from tests.support.soak import record, scaled, seed

# DuckDB has one process, and its statements are tried by the publisher's tests.
pytestmark = [pytest.mark.backends("postgres", "sqlite"), pytest.mark.promise("N6")]

VERSIONS = 5


def committed_tables(ledger: Ledger, turn: object) -> dict[str, UUID]:
    """Two tables with a past, a transaction over both, and checkpoints due."""
    tables = {name: ledger.create_table(name, CREATE) for name in (f"a {turn}", f"b {turn}")}
    for _ in range(VERSIONS - 2):
        for table in tables.values():
            ledger.append(table)
    ledger.commit({table: [added("both.parquet")] for table in tables.values()})
    return tables


def check_finished(ledger: Ledger, tables: dict[str, UUID], version_maps: int) -> None:
    publisher = Publisher(ledger.database, checkpoint_interval=2)
    for name, table in tables.items():
        assert ledger.log_of(name) == version_names(VERSIONS)
        assert [version for version, _ in ledger.mirror_log(table)] == list(range(VERSIONS))
        assert ledger.files_of(name, "_last_checkpoint") == ["_last_checkpoint"]
        assert DeltaTable(ledger.warehouse / name).version() == VERSIONS - 1
        findings = Verifier(ledger.database, publisher).verify(table, deep=True).findings
        assert [finding for finding in findings if "data file" not in finding.detail] == []
        status = publisher.status.read(table)
        assert (status.published_version, status.lease_owner) == (VERSIONS - 1, None)
    assert len(list((ledger.warehouse / "_deltars" / "txns").iterdir())) == version_maps
    entries = {path.stem for path in (ledger.warehouse / "_deltars" / "tables").iterdir()}
    assert entries >= {str(table) for table in tables.values()}


@pytest.mark.soak(on=["postgres"])
@pytest.mark.backends("postgres", "sqlite")
def test_process_killed_before_any_call_to_the_storage_leaves_a_log_that_is_finished_later(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger.database.close()
    stride = scaled(5, soak=1)
    ended, turn, kills = -signal.SIGKILL, seed() % stride, 0
    while ended == -signal.SIGKILL:
        kills += 1
        turn += stride
        tables = committed_tables(ledger, turn)

        def publish(turn: int = turn, tables: dict[str, UUID] = tables) -> None:
            publisher = Publisher(ledger.database, checkpoint_interval=2)
            with stepping(monkeypatch, DyingAt(turn)):
                for table in tables.values():
                    publisher.publish_pending(table)

        ended = in_child(publish)
        for name, table in tables.items():
            names = ledger.log_of(name)
            assert names == version_names(len(names))
            if names:
                assert DeltaTable(ledger.warehouse / name).version() == len(names) - 1
            # As if the lease of the dead had run out.
            ledger.set_status(table, lease_until=1)
        reconciler = Reconciler(ledger.database, Publisher(ledger.database, checkpoint_interval=2))
        outcomes = reconciler.once().outcomes
        assert all(outcome.publication is Publication.PUBLISHED for outcome in outcomes)
        check_finished(ledger, tables, version_maps=kills)
        assert reconciler.once().repairs == []
        for table in tables.values():
            ledger.registry.drop(table)
    assert ended == 0
    assert turn > 30
    record(f"publisher killed before every step, {ledger.database.backend.name}", kills=kills - 1, lost=0)


@pytest.mark.every_case_on("sqlite")
@pytest.mark.parametrize("every", [2, 5])
def test_storage_that_fails_now_and_then_delays_and_breaks_nothing(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch, every: int
) -> None:
    tables = committed_tables(ledger, every)
    failing = FailingOneIn(every)
    publisher = Publisher(ledger.database, checkpoint_interval=2)
    reconciler = Reconciler(ledger.database, publisher)
    with stepping(monkeypatch, failing):
        outcomes = publisher.publish_all(dict.fromkeys(tables.values(), VERSIONS - 1), wait_s=30)
        publisher.close()
        assert {outcome.publication for outcome in outcomes.values()} <= {Publication.PUBLISHED, Publication.FAILED}
        for _ in range(200):
            if all(not status.is_pending for status in publisher.status.overview()):
                break
            for table in tables.values():
                ledger.set_status(table, next_attempt_at=None)
            reconciler.once()
    assert failing.failures > 2
    reconciler.once()
    check_finished(ledger, tables, version_maps=1)


@pytest.mark.backends("sqlite")
def test_answer_lost_after_the_file_was_written_is_recognised_the_next_time(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    tables = committed_tables(ledger, "lost")
    lost = FailingOneIn(2, "the connection was reset")
    publisher = Publisher(ledger.database, checkpoint_interval=2)
    with stepping(monkeypatch, lambda what, path: None, lost):
        for _ in range(100):
            if all(not status.is_pending for status in publisher.status.overview()):
                break
            for table in tables.values():
                publisher.publish_pending(table)
    assert lost.failures > 1
    Reconciler(ledger.database, publisher).once()
    check_finished(ledger, tables, version_maps=1)


@pytest.mark.backends("postgres", "sqlite", "duckdb")
@pytest.mark.requirement("M-10", "M-16")
def test_tables_are_published_after_the_commit_a_few_at_a_time_and_a_failing_one_holds_up_none(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    tables = {name: ledger.create_table(name) for name in "abcdef"}
    versions = ledger.commit({table: [added("x.parquet")] for table in tables.values()}).versions
    assert all(ledger.log_of(name) == [] for name in tables)
    threads: set[str] = set()

    def note(what: str, path: str) -> None:
        threads.add(threading.current_thread().name)

    (ledger.warehouse / "c").mkdir(parents=True)
    (ledger.warehouse / "c" / "_delta_log").write_bytes(b"in the way")
    with stepping(monkeypatch, note):
        outcomes = Publisher(ledger.database).publish_all(versions, concurrency=2, wait_s=60)
    assert len(threads) == 2
    published = {name for name, table in tables.items() if outcomes[table].publication is Publication.PUBLISHED}
    assert published == set("abdef")
    failure = outcomes[tables["c"]].failure
    assert failure is not None
    assert (failure.table_id, failure.version) == (str(tables["c"]), 0)
    assert all(ledger.log_of(name) == version_names(2) for name in published)
    record = ledger.registry.find(tables["c"])
    assert record is not None
    assert record.current_version == 1


@pytest.mark.backends("sqlite")
def test_no_version_of_a_backlog_has_a_name_before_its_content_is_synced_and_the_one_before_has_one(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Contents are synced together, names are given one by one: a power cut leaves the first versions, or all."""
    table, count = ledger.create_table("t"), STAGED_AT_ONCE + 5
    for _ in range(count - 1):
        ledger.append(table)
    synced: set[str] = set()
    named: list[str] = []
    fsync, link = os.fsync, os.link

    def note_sync(descriptor: int) -> None:
        fsync(descriptor)
        synced.add(os.readlink(f"/proc/self/fd/{descriptor}"))

    def note_name(staged: str, file: str) -> None:
        assert staged in synced
        link(staged, file)
        named.append(Path(file).name)

    monkeypatch.setattr(os, "fsync", note_sync)
    monkeypatch.setattr(os, "link", note_name)
    assert Publisher(ledger.database).publish_pending(table).published_version == count - 1
    assert [name for name in named if name.endswith(".json") and name[0] == "0"] == version_names(count)
    assert str(ledger.warehouse / "t" / "_delta_log") in synced
    assert not ledger.files_of("t", "*#*")
    check_log(ledger, table)
