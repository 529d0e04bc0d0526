"""Row-level changes and what may come between: a restore, another clock, Ctrl-C, a lost connection, another attempt."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import permutations, product
from pathlib import Path
from typing import Any
from uuid import uuid4

import pyarrow as pa
import pytest

import deltars
from deltars.data.parquet_file import DataFileWriter
from deltars.errors import DatabaseError, TransactionClosed, VersionConflict, VersionNotFound
from deltars.transaction import changed_files, row_change, settle
from deltars.transaction.staged_table import StagedTable
from deltars.transaction.view import View
from tests.support.backup import Backup, take_backup
from tests.support.clock import clock_of
from tests.support.interrupts import Clock
from tests.support.postgres import PostgresServer
from tests.support.soak import is_soak, record, seed
from tests.support.tap import tapped
from tests.support.wire import Verdict

VECTORS = {"delta.enableDeletionVectors": "true"}
STORAGES = pytest.mark.parametrize("properties", [{}, VECTORS], ids=["rewritten", "vectors"])

Change = Callable[[deltars.Transaction], Any]
BackUp = Callable[[deltars.Catalog], Backup]


@pytest.fixture
def living(catalog_uri: str, tmp_path: Path) -> Iterator[deltars.Catalog]:
    """The catalog of this process. Its commits are not published."""
    warehouse = str(tmp_path / "warehouse")
    with deltars.connect(catalog_uri, warehouse=warehouse, migrate=True, mirror="off") as opened:
        yield opened


@pytest.fixture
def back_up(backend: str, tmp_path: Path, request: pytest.FixtureRequest) -> BackUp:
    server: PostgresServer | None = request.getfixturevalue("postgres_server") if backend == "postgres" else None
    return lambda catalog: take_backup(catalog, tmp_path / f"backup-{uuid4()}", server)


def _table(catalog: deltars.Catalog, properties: dict[str, str] = VECTORS) -> deltars.Table:
    """Rows 0 to 9 in one file, which has a vector: row 10 is deleted."""
    table = catalog.create_table("t", "id BIGINT, v BIGINT", properties=properties)
    table.write(pa.table({"id": list(range(11)), "v": [0] * 11}))
    table.delete("id = 10")
    return table


def _rows(table: deltars.Table) -> dict[int, int]:
    found = table.to_arrow()
    ids: list[int] = found["id"].to_pylist()
    assert len(ids) == len(set(ids)), "a row is there twice"
    return dict(zip(ids, found["v"].to_pylist(), strict=True))


def _merge(tx: deltars.Transaction, rows: dict[int, int]) -> Any:
    source = pa.table({"id": list(rows), "v": list(rows.values())})
    merge = tx.merge("t", source, "t.id = s.id")
    return merge.when_matched_update({"v": "t.v + s.v"}).when_not_matched_insert_all().execute()


CHANGES: dict[str, Change] = {
    "delete": lambda tx: tx.delete("t", "id = 1"),
    "update": lambda tx: tx.update("t", {"v": "v + 1"}, "id = 2"),
    "merge": lambda tx: _merge(tx, {3: 1, 50: 1}),
    "purge": lambda tx: tx.purge("t"),
}
DONE = {0: 0, 2: 1, 3: 1, 4: 0, 5: 0, 6: 0, 7: 0, 8: 0, 9: 0, 50: 1}
"""The rows after all of these changes."""


# -- restored, and another clock ---------------------------------------------------------------------------------------


def _elsewhere(catalog: deltars.Catalog, change: Callable[[deltars.Catalog], object]) -> None:
    """By another process's catalog: nothing of it is known here."""
    with deltars.connect(catalog._session.uri.with_secrets(), mirror="off") as other:
        change(other)


def test_a_change_from_before_a_restore_does_not_commit_onto_another_version(
    living: deltars.Catalog, back_up: BackUp
) -> None:
    table = living.create_table("t", "id BIGINT, v BIGINT", properties=VECTORS)
    saved = back_up(living)
    for ids in (range(11), range(20, 30)):
        table.write(pa.table({"id": list(ids), "v": [0] * len(ids)}))
    table.delete("id = 10")
    open_ones = {name: living.begin(isolation="serializable") for name in CHANGES}
    late = living.begin(isolation="serializable")
    for name, tx in open_ones.items():
        CHANGES[name](tx)
    saved.restore()

    def otherwise(other: deltars.Catalog) -> None:
        """As many versions as were lost, and one more."""
        again = other.table("t")
        for number in range(4):
            again.write(pa.table({"id": [number], "v": [100]}))

    _elsewhere(living, otherwise)
    for name, tx in open_ones.items():
        with pytest.raises(VersionConflict, match="version 3 of the table was replaced") as caught:
            tx.commit()
        assert caught.value.retryable, name
    # A statement that comes after the restore changes no rows of the other version either.
    with pytest.raises(VersionNotFound, match="version 3 of the table was replaced"):
        late.update("t", {"v": 1}, "id = 2")
    assert _rows(living.table("t")) == dict.fromkeys(range(4), 100)
    assert living.table("t").version == 4


@pytest.mark.backends("sqlite")
def test_a_restore_while_rows_are_compared_is_a_conflict(
    living: deltars.Catalog, back_up: BackUp, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = _table(living)
    saved = back_up(living)
    tx = living.begin(isolation="serializable")
    CHANGES["update"](tx)
    table.update({"v": 7}, "id = 5")
    settled = settle._Round.settled

    def and_then(self: Any) -> Any:
        found = settled(self)
        saved.restore()
        _elsewhere(living, lambda other: other.table("t").update({"v": 8}, "id = 6"))
        return found

    with monkeypatch.context() as patch:
        patch.setattr(settle._Round, "settled", and_then)
        with pytest.raises(VersionConflict, match="was replaced"):
            tx.commit()
    assert _rows(table) == {**dict.fromkeys(range(10), 0), 6: 8}


def test_changes_commit_in_order_though_the_clock_is_set_back(living: deltars.Catalog) -> None:
    table = _table(living)
    with clock_of(living) as clock:
        first, second = (living.begin(isolation="serializable") for _ in range(2))
        for name in ("delete", "update"):
            CHANGES[name](first)
        CHANGES["merge"](second)
        clock.set(-3 * 86_400)
        first.commit()
        # It lost the race, and is settled by rows under the wrong clock.
        second.commit()
        table.purge()
        history = table.history()
        assert [entry.version for entry in history] == [5, 4, 3, 2, 1, 0]
        times = [entry.commit_ts for entry in history]
        assert times == sorted(times, reverse=True)
        assert len(set(times)) == len(times)
        assert _rows(table) == DONE
        found = table.to_arrow(version=3)
        assert sorted(found["id"].to_pylist()) == [0, *range(2, 10)]


# -- Ctrl-C ------------------------------------------------------------------------------------------------------------

PLACES: dict[str, tuple[Any, str]] = {
    "files chosen": (View, "change_files"),
    "rows found": (row_change.RowChange, "_planes"),
    "files written": (row_change, "without_rows"),
    "vectors written": (changed_files, "write_vectors"),
    "file closed": (DataFileWriter, "close"),
    "counted": (row_change.RowChange, "_measured"),
    "actions made": (row_change.RowChange, "steps"),
    "step added": (StagedTable, "with_step"),
    "staged": (View, "keep"),
}


@contextmanager
def _interrupted(place: Any, name: str, *, after: bool) -> Iterator[list[str]]:
    """A KeyboardInterrupt before the call begins, or after it has done its work. What came is told."""
    original: Callable[..., Any] = getattr(place, name)
    came: list[str] = []

    def interrupted(*arguments: Any, **options: Any) -> Any:
        answer = original(*arguments, **options) if after or came else None
        if not came:
            came.append(name)
            raise KeyboardInterrupt
        return answer

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(place, name, interrupted)
        yield came


@pytest.mark.backends("sqlite")
@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@STORAGES
def test_an_interrupted_change_is_staged_whole_or_not_at_all(
    living: deltars.Catalog, properties: dict[str, str], after: bool
) -> None:
    """The transaction goes on: the statement can be repeated, and what was staged before it stays."""
    for what, (place, name) in PLACES.items():
        table, notes = _table(living, properties), list[str]()
        with living.begin(isolation="serializable") as tx:
            for change in CHANGES.values():
                with _interrupted(place, name, after=after) as came:
                    try:
                        change(tx)
                    except KeyboardInterrupt as interrupt:
                        notes += interrupt.__notes__
                    if came and not (what == "staged" and after):
                        change(tx)
        assert set(notes) <= {f"deltars: table t, transaction {tx.id}"}
        assert _rows(table) == DONE, what
        assert table.version == 3
        living.drop_table("t")


@pytest.mark.backends("sqlite")
@STORAGES
def test_an_interrupt_that_leaves_the_block_changes_nothing(
    catalog: deltars.Catalog, properties: dict[str, str]
) -> None:
    table = _table(catalog, properties)
    before, published = _rows(table), sorted(Path(table.location, "_delta_log").glob("*.json"))
    for place, name in PLACES.values():
        with _interrupted(place, name, after=False) as came:
            try:
                with catalog.begin(isolation="serializable") as tx:
                    tx.update("t", {"v": 9}, "id = 8")
                    for change in CHANGES.values():
                        change(tx)
                    raise KeyboardInterrupt
            except KeyboardInterrupt:
                pass
        assert came or name in ("write_vectors", "close")
        with pytest.raises(TransactionClosed):
            tx.delete("t", "id = 0")
        with pytest.raises(TransactionClosed, match="did not commit"):
            _ = tx.result
    assert (_rows(table), table.version) == (before, 2)
    assert sorted(Path(table.location, "_delta_log").glob("*.json")) == published
    assert not table.verify(deep=True).findings


@pytest.mark.backends("sqlite")
def test_an_interrupt_while_rows_are_compared_is_known_to_have_changed_nothing(
    catalog: deltars.Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = _table(catalog)
    tx = catalog.begin(isolation="serializable")
    CHANGES["update"](tx)
    table.update({"v": 7}, "id = 5")
    with _interrupted(settle._Round, "_replaced", after=True), pytest.raises(KeyboardInterrupt) as caught:
        tx.commit()
    assert caught.value.__notes__ == [f"deltars: transaction {tx.id} did not commit"]
    assert "rolled back" in repr(tx)
    assert _rows(table) == {**dict.fromkeys(range(10), 0), 5: 7}


@pytest.mark.soak
@pytest.mark.backends("sqlite")
@STORAGES
def test_an_interrupt_at_any_moment_leaves_all_or_nothing_of_a_statement(
    catalog: deltars.Catalog, properties: dict[str, str]
) -> None:
    """Each statement adds one to a row. The small size draws places; the long one takes every place."""
    table = _table(catalog, properties)
    statements: list[Change] = [
        lambda tx: tx.update("t", {"v": "v + 1"}, "id = 2"),
        lambda tx: _merge(tx, {2: 1}),
    ]
    interrupts = 0
    for (statement, other), is_first in product(permutations(statements), [True, False]):
        before = [] if is_first else [other]
        for moment in _moments(catalog, before, statement):
            tx, expected, version = catalog.begin(isolation="serializable"), _rows(table)[2], table.version
            for change in before:
                change(tx)
            staged = tx._view.changed if tx._view else []
            with Clock(moment):
                try:
                    statement(tx)
                    is_staged = True
                except KeyboardInterrupt:
                    interrupts += 1
                    # It may come after the statement was staged, and before it returned.
                    is_staged = tx._view is not None and tx._view.changed != staged
            # The transaction goes on.
            other(tx)
            tx.commit()
            expected += len(before) + is_staged + 1
            assert _rows(table) == {**dict.fromkeys(range(10), 0), 2: expected}, f"moment {moment}"
            assert table.version == version + 1
    assert interrupts
    assert not table.verify(deep=True).findings
    record("statements interrupted at any moment", interrupts=interrupts)


def _moments(catalog: deltars.Catalog, before: list[Change], statement: Change) -> list[int]:
    """The moments at which to interrupt a statement that follows others: one for each place, or for some."""
    tx = catalog.begin(isolation="serializable")
    for change in before:
        change(tx)
    with Clock() as clock:
        statement(tx)
    tx.rollback()
    return clock.places if is_soak() else random.Random(seed()).sample(clock.places, k=5)


# -- after COMMIT ------------------------------------------------------------------------------------------------------


@contextmanager
def _cut(living: deltars.Catalog, verdict: Verdict) -> Iterator[deltars.Catalog]:
    """The catalog by a connection that is cut at the COMMIT of the first version that is written."""
    waiting: list[Verdict] = []

    def judge(statement: str) -> Verdict:
        if "dl_table_versions (" in statement and not waiting:
            waiting.extend([Verdict.PASS, verdict])
        return waiting.pop() if statement == "COMMIT" and len(waiting) == 2 else Verdict.PASS

    with (
        tapped(living._session.uri.with_secrets()) as tap,
        deltars.connect(tap.uri, mirror="off") as catalog,
        tap.judging(judge),
    ):
        yield catalog


def _change_all(tx: deltars.Transaction) -> None:
    for change in CHANGES.values():
        change(tx)


@pytest.mark.backends("postgres")
@pytest.mark.promise("N2", "N7")
def test_changes_are_made_once_though_the_connection_is_cut_at_commit(living: deltars.Catalog) -> None:
    table = _table(living)
    before = _rows(table)
    with _cut(living, Verdict.CUT_BEFORE) as cut:
        tx = cut.begin(isolation="serializable")
        _change_all(tx)
        with pytest.raises(DatabaseError, match="did not commit, and never will") as caught:
            tx.commit()
    assert caught.value.retryable
    assert (_rows(table), table.version) == (before, 2)
    with _cut(living, Verdict.CUT_AFTER) as cut, cut.begin(isolation="serializable") as tx:
        _change_all(tx)
    assert tx.result.versions == {"t": 3}
    assert _rows(table) == DONE


@pytest.mark.backends("postgres")
@pytest.mark.parametrize("verdict", [Verdict.CUT_BEFORE, Verdict.CUT_AFTER])
def test_united_vectors_are_committed_once_though_the_connection_is_cut(
    living: deltars.Catalog, verdict: Verdict
) -> None:
    """The first try lost to another change of the file; the connection is cut at the COMMIT of the second."""
    table = _table(living)
    with _cut(living, verdict) as cut:
        tx = cut.begin(isolation="serializable")
        CHANGES["update"](tx)
        table.update({"v": 7}, "id = 5")
        if verdict is Verdict.CUT_AFTER:
            assert tx.commit().versions == {"t": 4}
        else:
            with pytest.raises(DatabaseError, match="did not commit"):
                tx.commit()
    expected = {**dict.fromkeys(range(10), 0), 5: 7}
    assert _rows(table) == (expected | {2: 1} if verdict is Verdict.CUT_AFTER else expected)


@pytest.mark.backends("sqlite")
def test_a_mirror_that_is_down_undoes_no_change_and_catches_up(catalog: deltars.Catalog) -> None:
    table = _table(catalog)
    log = Path(table.location, "_delta_log")
    log.rename(away := log.with_name("away"))
    log.touch()
    attempts: list[int] = []

    def change(tx: deltars.Transaction) -> deltars.Transaction:
        attempts.append(1)
        _change_all(tx)
        return tx

    result = catalog.run(change, isolation="serializable").result
    assert (result.versions, attempts) == ({"t": 3}, [1])
    assert result.mirror["t"].failure is not None
    with pytest.raises(deltars.MirrorFailure):
        result.raise_for_mirror()
    assert _rows(table) == DONE
    log.unlink()
    away.rename(log)
    table.delete("id = 50")
    assert [(log / f"{version:020}.json").exists() for version in (3, 4)] == [True, True]
    assert not table.verify(deep=True).findings


# -- once more ---------------------------------------------------------------------------------------------------------


@pytest.mark.backends("sqlite", "postgres")
@STORAGES
def test_every_attempt_sees_the_rows_of_its_own_moment(catalog: deltars.Catalog, properties: dict[str, str]) -> None:
    """The winner takes one of the matching rows away, changes another, and brings a new one."""
    table = _table(catalog, properties)
    seen: list[tuple[int | None, int | None]] = []

    def change(tx: deltars.Transaction) -> None:
        updated = tx.update("t", {"v": "v + 1"}, "id >= 7").rows_updated
        merged = _merge(tx, {3: 1, 9: 1, 60: 1, 61: 1}).rows_inserted
        seen.append((updated, merged))
        if len(seen) == 1:
            with catalog.begin(isolation="serializable") as winner:
                winner.delete("t", "id = 7")
                winner.update("t", {"v": 40}, "id = 8")
                _merge(winner, {60: 5})

    catalog.run(change, isolation="serializable")
    assert seen == [(3, 2), (3, 1)]
    assert _rows(table) == {**dict.fromkeys(range(7), 0), 3: 1, 8: 41, 9: 2, 60: 7, 61: 1}
    assert table.version == 4


@pytest.mark.backends("sqlite")
@STORAGES
def test_one_source_serves_many_merges_and_many_transactions(
    catalog: deltars.Catalog, properties: dict[str, str]
) -> None:
    table = _table(catalog, properties)
    source = pa.table({"id": [3, 50], "v": [1, 1]})

    def merge(tx: deltars.Transaction) -> None:
        builder = tx.merge("t", source, "t.id = s.id").when_matched_update({"v": "t.v + s.v"})
        builder.when_not_matched_insert_all().execute()

    for _ in range(2):
        with catalog.begin() as tx:
            merge(tx)
            merge(tx)
    assert _rows(table) == {**dict.fromkeys(range(10), 0), 3: 4, 50: 4}
    txn_id = uuid4()
    for _ in range(2):
        with catalog.begin(txn_id=txn_id) as tx:
            merge(tx)
    assert _rows(table)[3] == 5
