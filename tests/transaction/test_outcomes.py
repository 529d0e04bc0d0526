"""What a transaction says of its end: committed, rolled back, or not known. Never the wrong one."""

from __future__ import annotations

import gc
import logging
import os
import signal
import subprocess
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pyarrow as pa
import pytest

import deltars
from deltars.errors import CommitUnknown, DatabaseError, TransactionClosed, VersionConflict
from deltars.mirror.outcome import Publication
from deltars.store.commit.writer import LogWriter
from tests.support.lake import Lake, OpenLake
from tests.support.log import added
from tests.support.tap import Tap
from tests.support.together import Meanwhile
from tests.support.wire import Verdict

FRAME = pa.table({"id": [1]})


@contextmanager
def interrupting(place: Any, name: str, error: BaseException, *, after: bool) -> Iterator[None]:
    """The method is interrupted once: before it begins, or after it has done its work."""
    original: Callable[..., Any] = getattr(place, name)
    waiting = [error]

    def interrupted(*arguments: Any, **options: Any) -> Any:
        answer = original(*arguments, **options) if after or not waiting else None
        if waiting:
            raise waiting.pop()
        return answer

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(place, name, interrupted)
        yield


def _staged(lake: Lake) -> deltars.Transaction:
    tx = lake.begin()
    tx.stage("a", [added("1")])
    tx.stage("b", [added("1")])
    return tx


# -- not known ---------------------------------------------------------------------------------------------------------


@pytest.mark.every_case_on("sqlite")
@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit, RuntimeError])
def test_interrupt_while_commit_is_sent_leaves_the_outcome_unknown(lake: Lake, error: type[BaseException]) -> None:
    """SQLAlchemy's COMMIT, or for PostgreSQL the statement that carries it, has been answered when it comes."""
    tx = _staged(lake)
    # `_write` is the last thing before COMMIT, or has it in it; the stage is "commit" only behind it.
    states = lake.catalog._session.writer._states
    with interrupting(states, "remember", error("now"), after=False), pytest.raises(error) as caught:
        tx.commit()
    assert lake.versions == {"a": 1, "b": 1, "c": 0}
    [note] = caught.value.__notes__
    assert f"catalog.resolve('{tx.id}')" in note
    assert f"{tx.id} outcome unknown (catalog.resolve('{tx.id}') finds out): a, b" in repr(tx)
    with pytest.raises(CommitUnknown, match=f"catalog.resolve\\('{tx.id}'\\)"):
        _ = tx.result
    for use in (tx.commit, tx.rollback, lambda: tx.stage("a", [])):
        with pytest.raises(TransactionClosed):
            use()
    resolved = lake.catalog.resolve(tx.id)
    assert resolved is not None
    assert resolved.versions == {"a": 1, "b": 1}


@pytest.mark.every_case_on("sqlite")
@pytest.mark.parametrize("error", [KeyboardInterrupt, RuntimeError])
def test_interrupt_before_commit_is_sent_is_known_to_have_undone_everything(
    lake: Lake, error: type[BaseException]
) -> None:
    tx, before = _staged(lake), lake.dump()
    with interrupting(LogWriter, "_plan", error("now"), after=True), pytest.raises(error) as caught:
        tx.commit()
    assert lake.dump() == before
    assert caught.value.__notes__ == [f"deltars: transaction {tx.id} did not commit"]
    assert f"{tx.id} rolled back" in repr(tx)
    with pytest.raises(TransactionClosed, match="did not commit"):
        _ = tx.result


@pytest.mark.backends("sqlite")
def test_interrupt_in_a_block_that_commits_is_not_told_as_rolled_back(lake: Lake) -> None:
    with (
        interrupting(LogWriter, "_commit", KeyboardInterrupt(), after=True),
        pytest.raises(KeyboardInterrupt) as caught,
        lake.begin() as tx,
    ):
        tx.write("a", FRAME)
    assert "outcome unknown" in repr(tx)
    assert str(tx.id) in caught.value.__notes__[0]


@pytest.mark.backends("sqlite")
@pytest.mark.parametrize("work", ["run", "write", "create_table", "set_properties"])
def test_every_way_to_commit_names_the_transaction_that_was_interrupted(lake: Lake, work: str) -> None:
    catalog = lake.catalog
    calls: dict[str, Callable[[], object]] = {
        "run": lambda: catalog.run(lambda tx: tx.write("a", FRAME)),
        "write": lambda: catalog.write("a", FRAME),
        "create_table": lambda: catalog.create_table("new", "id BIGINT"),
        "set_properties": lambda: catalog.set_properties("a", {"owner": "ada"}),
    }
    with (
        interrupting(LogWriter, "_commit", KeyboardInterrupt(), after=True),
        pytest.raises(KeyboardInterrupt) as caught,
    ):
        calls[work]()
    [note] = caught.value.__notes__
    txn_id = note.split("'")[1]
    assert catalog.resolve(txn_id) is not None


@pytest.mark.backends("postgres")
def test_connection_lost_during_commit_is_unknown_while_the_server_is_out_of_reach(
    open_lake: OpenLake, tap: Tap
) -> None:
    lake = open_lake("a", "b", tap=tap, timeout=1.5)
    tx = _staged(lake)
    down: list[int] = []

    def judge(statement: str) -> Verdict:
        if statement == "COMMIT" and not down:
            down.append(1)
            return Verdict.CUT_AFTER
        return Verdict.CUT_BEFORE if down else Verdict.PASS

    with tap.judging(judge), pytest.raises(CommitUnknown) as caught:
        tx.commit()
    assert caught.value.txn_id == tx.id
    assert "outcome unknown" in repr(tx)
    with pytest.raises(CommitUnknown, match=r"catalog\.resolve"):
        _ = tx.result
    resolved = lake.catalog.resolve(tx.id)
    assert resolved is not None
    assert resolved.versions == {"a": 1, "b": 1}


@pytest.mark.backends("postgres")
def test_ctrl_c_while_commit_is_on_its_way_is_unknown_and_can_be_resolved(open_lake: OpenLake, tap: Tap) -> None:
    lake = open_lake("a", "b", tap=tap)
    tx = _staged(lake)

    with tap.holding("COMMIT") as hold:

        def press_ctrl_c() -> None:
            hold.wait_until_reached()
            signal.raise_signal(signal.SIGINT)
            time.sleep(0.2)
            hold.release()

        pressing = Meanwhile(press_ctrl_c)
        with pytest.raises(KeyboardInterrupt) as caught:
            tx.commit()
        pressing.result()
    assert f"catalog.resolve('{tx.id}')" in caught.value.__notes__[0]
    assert "outcome unknown" in repr(tx)
    is_committed = lake.catalog.resolve(tx.id) is not None
    assert lake.versions == dict.fromkeys("ab", int(is_committed))


def test_unknown_outcome_is_told_to_those_who_watch(lake: Lake, caplog: pytest.LogCaptureFixture) -> None:
    tx = _staged(lake)
    states = lake.catalog._session.writer._states
    with (
        caplog.at_level(logging.DEBUG, "deltars"),
        interrupting(states, "remember", KeyboardInterrupt(), after=False),
        pytest.raises(KeyboardInterrupt),
    ):
        tx.commit()
    outcomes = {line.name: getattr(line, "outcome", None) for line in caplog.records}
    assert outcomes["deltars.transaction"] == outcomes["deltars.commit"] == "unknown"
    assert f"not known whether transaction {tx.id} committed" in caplog.text


# -- certain -----------------------------------------------------------------------------------------------------------


def test_lost_race_and_refused_commit_are_certain(lake: Lake) -> None:
    tx = _staged(lake)
    lake["a"].append()
    with pytest.raises(VersionConflict):
        tx.commit()
    assert f"{tx.id} rolled back" in repr(tx)
    with pytest.raises(TransactionClosed, match="did not commit"):
        _ = tx.result


@pytest.mark.backends("sqlite")
def test_database_error_that_was_rolled_back_is_certain(lake: Lake) -> None:
    tx = _staged(lake)
    with interrupting(LogWriter, "_write", DatabaseError("disk full"), after=False), pytest.raises(DatabaseError):
        tx.commit()
    assert f"{tx.id} rolled back" in repr(tx)
    assert lake.versions == {"a": 0, "b": 0, "c": 0}


# -- committed ---------------------------------------------------------------------------------------------------------


def test_interrupt_while_publishing_is_a_commit(open_lake: OpenLake) -> None:
    lake = open_lake("a", "b", "c", mirror="inline")
    tx, publisher = _staged(lake), lake.catalog._session.publisher
    with (
        interrupting(publisher, "publish_all", KeyboardInterrupt(), after=False),
        pytest.raises(KeyboardInterrupt) as caught,
    ):
        tx.commit()
    assert f"{tx.id} committed" in repr(tx)
    assert tx.result.versions == {"a": 1, "b": 1}
    assert caught.value.__notes__ == [
        f"deltars: transaction {tx.id} is committed; only its publication was interrupted"
    ]


def test_error_of_the_publisher_is_on_the_result_and_not_raised(open_lake: OpenLake) -> None:
    lake = open_lake("a", "b", "c", mirror="inline")
    publisher = lake.catalog._session.publisher
    tx = _staged(lake)
    with interrupting(publisher, "publish_all", RuntimeError("can't start new thread"), after=False):
        result = tx.commit()
    assert result.versions == tx.result.versions == {"a": 1, "b": 1}
    for outcome in result.mirror.values():
        assert outcome.publication is Publication.FAILED
        assert "can't start new thread" in str(outcome.failure)
    with pytest.raises(deltars.MirrorFailure):
        result.raise_for_mirror()
    with interrupting(publisher, "publish_all", RuntimeError("can't start new thread"), after=False):
        assert lake.catalog.create_table("new", "id BIGINT").version == 0
    with interrupting(publisher, "publish_registration", RuntimeError("no"), after=False):
        assert lake.catalog.write("newer", FRAME).versions == {"newer": 0}


# -- forgotten ---------------------------------------------------------------------------------------------------------


@pytest.mark.backends("sqlite")
def test_forgotten_transaction_with_work_is_warned_of(lake: Lake, caplog: pytest.LogCaptureFixture) -> None:
    tx = _staged(lake)
    txn_id = tx.id
    with pytest.warns(ResourceWarning, match=rf"transaction {txn_id} .* what it staged for a, b is lost"):  # noqa: PT031
        del tx
        gc.collect()
    assert f"{txn_id} was neither committed nor rolled back" in caplog.text


@pytest.mark.backends("sqlite")
@pytest.mark.parametrize("end", ["commit", "rollback", "conflict", "nothing staged"])
def test_transaction_that_ended_or_has_no_work_is_not_warned_of(lake: Lake, end: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        tx: Any = lake.begin()
        tx.files("a")
        if end != "nothing staged":
            tx.stage("a", [added("1")])
        if end == "conflict":
            lake["a"].append()
            with pytest.raises(VersionConflict):
                tx.commit()
        elif end != "nothing staged":
            getattr(tx, end)()
        del tx
        gc.collect()


_FORGETFUL = """
import sys, deltars, pyarrow as pa
tx = deltars.connect(sys.argv[1]).begin()
tx.write("a", pa.table({"id": [1]}))
"""


@pytest.mark.backends("sqlite")
def test_program_that_ends_with_an_open_transaction_says_so_and_nothing_else(lake: Lake) -> None:
    run = subprocess.run(
        [sys.executable, "-c", _FORGETFUL, lake.uri], capture_output=True, text=True, env=os.environ, check=True
    )
    assert "was neither committed nor rolled back: what it staged for a is lost" in run.stderr
    assert "Traceback" not in run.stderr
    assert "Exception ignored" not in run.stderr
    assert len(run.stderr.strip().splitlines()) == 1
