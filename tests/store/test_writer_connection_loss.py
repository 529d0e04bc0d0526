"""The connection breaks around COMMIT: the caller learns what really happened, or that it cannot be known yet."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from uuid import uuid4

import pytest

import deltars
from deltars.errors import CommitUnknown, DatabaseError, ValidationError
from deltars.protocol import Action
from deltars.uri import parse_catalog_uri
from tests.store.conftest import OpenLog
from tests.support.dump import Dump
from tests.support.log import Log, added, every_kind, removed
from tests.support.tap import Tap, tapped
from tests.support.together import Meanwhile
from tests.support.wire import Verdict
from tests.support.witness import postgres_connection

pytestmark = [pytest.mark.backends("postgres"), pytest.mark.promise("N1", "N3", "N7")]

WRITING = "dl_table_versions ("

COMMITS: dict[str, list[Action]] = {
    # With nothing to remove, the write and COMMIT travel together.
    "together": [added("a")],
    "apart": [added("a"), removed("old")],
    "bulk": [added(f"{i}") for i in range(30)],
}
SHAPES = pytest.mark.parametrize("actions", COMMITS.values(), ids=COMMITS)


def _log(open_log: OpenLog, tap: Tap, **settings: float) -> Log:
    log = open_log(tap=tap, copy_threshold=20, **settings).create()  # type: ignore[arg-type]
    log.append("old", version=1)
    return log


def _at(text: str, verdict: Verdict) -> Callable[[str], Verdict]:
    """The first statement of this text meets this fate."""
    waiting = iter([verdict])

    def judge(statement: str) -> Verdict:
        is_it = statement == text if text == "COMMIT" else text in statement
        return next(waiting, Verdict.PASS) if is_it else Verdict.PASS

    return judge


def _but_for_markers(dump: Dump) -> Dump:
    return {**dump, "dl_transactions": [row for row in dump["dl_transactions"] if "aborted" not in row]}


@SHAPES
def test_connection_cut_before_commit_reached_the_server_is_told_as_not_committed(
    open_log: OpenLog, tap: Tap, actions: list[Action]
) -> None:
    log = _log(open_log, tap)
    before = log.dump()
    txn_id = uuid4()
    with tap.judging(_at("COMMIT", Verdict.CUT_BEFORE)), pytest.raises(DatabaseError) as caught:
        log.commit(actions, version=2, txn_id=txn_id)
    assert caught.value.retryable
    assert (caught.value.stage, caught.value.txn_id) == ("commit", txn_id)
    assert "did not commit, and never will" in str(caught.value)
    assert _but_for_markers(log.dump()) == before
    # Settled: that id never commits; the same work under another does.
    with pytest.raises(ValidationError, match="settled as aborted"):
        log.commit(actions, version=2, txn_id=txn_id)
    assert log.catalog.resolve(txn_id) is None
    assert log.commit(actions, version=2).version == 2


@SHAPES
def test_connection_cut_after_the_server_committed_is_a_commit(
    open_log: OpenLog, tap: Tap, actions: list[Action]
) -> None:
    log = _log(open_log, tap)
    with tap.judging(_at("COMMIT", Verdict.CUT_AFTER)):
        result = log.commit(actions, version=2)
    assert (result.version, log.version) == (2, 2)
    commit_ts = log.one("SELECT commit_ts FROM dl_table_versions WHERE table_id = ? AND version = 2")
    assert result.commit_ts == commit_ts
    assert log.append("next").version == 3


@pytest.mark.parametrize("ends", ["committed", "rolled back"])
@SHAPES
def test_commit_that_is_still_under_way_when_the_connection_breaks_is_waited_for(
    open_log: OpenLog, tap: Tap, migrated_uri: str, actions: list[Action], ends: str
) -> None:
    """One look would say `absent`: the server is still at it, and done seconds later."""
    log = _log(open_log, tap)
    before = log.dump()
    _delay_commit(migrated_uri, seconds=1.0, fails=ends == "rolled back")
    started = time.monotonic()
    with tap.judging(_at("COMMIT", Verdict.CUT_DURING)):
        outcome = Meanwhile(log.commit, actions, version=2).outcome()
    assert 0.8 < time.monotonic() - started < 20
    if ends == "committed":
        assert isinstance(outcome, deltars.CommitResult)
        assert log.version == 2
    else:
        assert isinstance(outcome, DatabaseError)
        assert "never will" in str(outcome)
        assert _but_for_markers(log.dump()) == before


@SHAPES
def test_outcome_that_cannot_be_known_in_time_is_settled_later(
    open_log: OpenLog, tap: Tap, migrated_uri: str, actions: list[Action]
) -> None:
    log = _log(open_log, tap, timeout=1.0)
    _delay_commit(migrated_uri, seconds=4.0)
    for _ in range(5):
        txn_id, started = uuid4(), time.monotonic()
        with (
            tap.judging(_at("COMMIT", Verdict.CUT_DURING)),
            pytest.raises((CommitUnknown, DatabaseError)) as caught,
        ):
            log.commit(actions, version=2, txn_id=txn_id)
        assert time.monotonic() - started < 3.5
        # On a busy machine the server's own time-out may come first, and then the outcome is known.
        if isinstance(caught.value, CommitUnknown):
            break
    assert isinstance(caught.value, CommitUnknown)
    assert (caught.value.txn_id, caught.value.stage) == (txn_id, "commit")
    assert "catalog.resolve" in str(caught.value)
    assert not caught.value.retryable
    # From PostgreSQL 17 on the transaction's own time-out ends such a COMMIT.
    patient = open_log(name="other").catalog
    assert patient.resolve(txn_id) is None
    assert patient.resolve(txn_id) is None
    assert log.version == 1
    assert log.one("SELECT count(*) FROM dl_table_versions WHERE table_id = ?") == 2


def test_outcome_that_was_unknown_may_turn_out_to_be_a_commit(postgres16_catalog_uri: str, tmp_path: Path) -> None:
    """Before PostgreSQL 17 no time-out ends a COMMIT."""
    with (
        deltars.connect(postgres16_catalog_uri, warehouse=str(tmp_path), migrate=True) as patient,
        tapped(postgres16_catalog_uri) as tap,
        deltars.connect(tap.uri, timeout=1.0) as catalog,
    ):
        log = Log(catalog, postgres16_catalog_uri).create()
        _delay_commit(postgres16_catalog_uri, seconds=3.0)
        with tap.judging(_at("COMMIT", Verdict.CUT_DURING)), pytest.raises(CommitUnknown) as caught:
            log.append("a", version=1)
        assert log.version == 0
        resolved = patient.resolve(caught.value.txn_id)  # type: ignore[arg-type]
        assert resolved is not None
        assert resolved.versions_by_id == {log.table_id: 1}
        assert (log.version, log.live()) == (1, ["a"])


def test_outcome_is_unknown_while_the_server_is_out_of_reach(open_log: OpenLog, tap: Tap) -> None:
    log = _log(open_log, tap, timeout=1.5)
    txn_id = uuid4()
    down = False

    def judge(statement: str) -> Verdict:
        nonlocal down
        if statement == "COMMIT" and not down:
            down = True
            return Verdict.CUT_AFTER
        return Verdict.CUT_BEFORE if down else Verdict.PASS

    with tap.judging(judge), pytest.raises(CommitUnknown) as caught:
        log.append("a", version=2, txn_id=txn_id)
    assert caught.value.txn_id == txn_id
    resolved = log.catalog.resolve(txn_id)
    assert resolved is not None
    assert resolved.versions_by_id == {log.table_id: 2}
    # Asked to commit the same again, the writer finds that it has.
    assert log.append("a", version=2, txn_id=txn_id).version == 2
    assert log.version == 2


@SHAPES
def test_backend_terminated_in_the_middle_of_a_commit_leaves_nothing(
    open_log: OpenLog, tap: Tap, migrated_uri: str, actions: list[Action]
) -> None:
    log = _log(open_log, tap)
    before = log.dump()
    with tap.holding(WRITING) as hold:
        writing = Meanwhile(log.commit, actions, version=2)
        hold.wait_until_reached()
        assert _terminate_writers(migrated_uri) == 1
        hold.release()
        error = writing.error()
    assert isinstance(error, DatabaseError)
    assert error.retryable
    assert _but_for_markers(log.dump()) == before
    assert log.commit(actions, version=2).version == 2


def test_backend_terminated_during_commit_is_settled(open_log: OpenLog, tap: Tap, migrated_uri: str) -> None:
    log = _log(open_log, tap)
    _delay_commit(migrated_uri, seconds=30)
    before = log.dump()
    writing = Meanwhile(log.append, "a", version=2)
    _wait_for_sleep(migrated_uri)
    assert _terminate_writers(migrated_uri) == 1
    error = writing.error()
    assert isinstance(error, DatabaseError)
    assert "never will" in str(error)
    assert _but_for_markers(log.dump()) == before


@SHAPES
def test_connection_cut_at_any_statement_leaves_all_or_nothing_and_the_caller_knows_which(
    open_log: OpenLog, tap: Tap, actions: list[Action]
) -> None:
    log = _log(open_log, tap)
    with tap.recording() as statements:
        log.commit([*actions], version=2)
    log.commit([added("old")], version=3)
    kept = log.dump()
    for number in range(1, len(statements) + 1):
        for verdict in (Verdict.CUT_BEFORE, Verdict.CUT_DURING, Verdict.CUT_AFTER):
            before, version = log.dump(), log.version
            committed = _try(log, tap, actions, version + 1, number, verdict)
            if committed:
                assert log.version == version + 1
                log.commit([added("old")])
            else:
                assert _but_for_markers(log.dump()) == _but_for_markers(before)
    # The last statement is COMMIT, and cut after it the commit stands.
    assert len(log.dump()["dl_table_versions"]) > len(kept["dl_table_versions"])


def _try(log: Log, tap: Tap, actions: list[Action], version: int, number: int, verdict: Verdict) -> bool:
    start = len(tap.statements)
    with tap.judging(lambda _: verdict if len(tap.statements) - start == number else Verdict.PASS):
        try:
            return log.commit(actions, version=version).version == version
        except DatabaseError:
            return False


def test_pooled_connection_that_died_meanwhile_is_replaced(open_log: OpenLog, tap: Tap, migrated_uri: str) -> None:
    log = _log(open_log, tap)
    assert _terminate_writers(migrated_uri) >= 1
    time.sleep(0.2)
    assert log.append("a", version=2).version == 2


def test_commits_of_every_kind_survive_a_lost_answer_whole(open_log: OpenLog, tap: Tap) -> None:
    log = _log(open_log, tap)
    with tap.judging(_at("COMMIT", Verdict.CUT_AFTER)):
        log.commit(every_kind(2, gone=["old"]), version=2)
    for name in ("add_files", "remove_files", "cdc_files", "metadata_updates", "txn_actions", "domain_metadata"):
        assert log.one(f"SELECT count(*) FROM dl_{name} WHERE table_id = ? AND version = 2") >= 1, name
    # What the writer remembers of the table is what was committed.
    assert log.append("next").version == 3


def _delay_commit(uri: str, *, seconds: float, fails: bool = False) -> None:
    """The server's COMMIT itself takes seconds: a deferred trigger sleeps, and may then refuse."""
    end = "RAISE EXCEPTION 'refused at commit'" if fails else "RETURN NULL"
    with postgres_connection(parse_catalog_uri(uri)) as session:
        session.execute(
            f"CREATE FUNCTION nap() RETURNS trigger LANGUAGE plpgsql AS"
            f" $$ BEGIN PERFORM pg_sleep({seconds}); {end}; END $$".encode()
        )
        session.execute(
            "CREATE CONSTRAINT TRIGGER slow AFTER INSERT ON dl_table_versions"
            " DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION nap()"
        )


_WRITERS = "FROM pg_stat_activity WHERE datname = current_database() AND application_name LIKE 'deltars%'"


def _terminate_writers(uri: str) -> int:
    """Every session of deltars' own; how many there were."""
    with postgres_connection(parse_catalog_uri(uri)) as session:
        return len(session.execute(f"SELECT pg_terminate_backend(pid) {_WRITERS}").fetchall())


def _wait_for_sleep(uri: str) -> None:
    deadline = time.monotonic() + 20
    with postgres_connection(parse_catalog_uri(uri)) as session:
        while not session.execute(f"SELECT 1 {_WRITERS} AND wait_event = 'PgSleep'").fetchall():
            assert time.monotonic() < deadline, "no COMMIT is being delayed"
            time.sleep(0.02)
