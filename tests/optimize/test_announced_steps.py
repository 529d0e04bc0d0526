"""Steps of OPTIMIZE are announced as writers: a full vacuum keeps their files, or they cannot be committed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import deltars
from deltars.data.compaction import write_bins
from deltars.errors import CommitUnknown, FilesMissing
from deltars.mirror.vacuum_plan import KeptReason
from deltars.session import CatalogSession
from deltars.transaction import optimize
from tests.vacuum.lake import files, ids, live, rows
from tests.vacuum.test_writers import announced, old_orphans, quick_beats, silent_since, until

pytestmark = pytest.mark.backends("sqlite")

__all__ = ["quick_beats"]


@pytest.fixture
def table(catalog: deltars.Catalog) -> deltars.Table:
    """Three files with a row each."""
    table = catalog.create_table("t", "id BIGINT")
    for number in range(3):
        table.write(rows(number))
    return table


def after_writing(monkeypatch: pytest.MonkeyPatch, act: Callable[[], object]) -> None:
    """Act when the files of a step are written, and before they are committed."""
    real = write_bins

    def write(*arguments: Any) -> Any:
        written = real(*arguments)
        act()
        return written

    monkeypatch.setattr(optimize, "write_bins", write)


def test_files_of_a_step_that_takes_days_survive_a_full_vacuum(
    catalog: deltars.Catalog, table: deltars.Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    def vacuum() -> None:
        until(lambda: announced(catalog))
        assert [writer.table_id for writer in announced(catalog)] == [table.id]
        assert len(old_orphans(table)) == 1
        done = table.vacuum(full=True)
        assert (done.files, done.kept[KeptReason.WRITER].files) == ((), 1)

    after_writing(monkeypatch, vacuum)
    assert table.optimize().num_files_added == 1
    assert announced(catalog) == []
    assert ids(table) == [0, 1, 2]
    assert table.verify(deep=True).is_ok


def test_step_that_was_taken_for_dead_is_not_committed(
    catalog: deltars.Catalog, table: deltars.Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    # No beat may come between the two statements below.
    catalog._session.heartbeat.every_s = 0.3

    def bury() -> None:
        until(lambda: announced(catalog))
        silent_since(catalog, 2)
        assert old_orphans(table)
        assert table.vacuum(full=True).num_files == 1

    before = table.version
    after_writing(monkeypatch, bury)
    with pytest.raises(FilesMissing, match="took this transaction for dead"):
        table.optimize()
    assert table.version == before
    assert announced(catalog) == []
    assert ids(table) == [0, 1, 2]
    assert files(table) == live(table)
    monkeypatch.undo()
    assert table.optimize().num_files_added == 1


@pytest.mark.parametrize("is_committed", [True, False])
def test_step_of_unknown_outcome_stays_announced_unless_it_was_committed(
    catalog: deltars.Catalog, table: deltars.Table, monkeypatch: pytest.MonkeyPatch, is_committed: bool
) -> None:
    after_writing(monkeypatch, lambda: until(lambda: announced(catalog)))
    real = CatalogSession.commit

    def lose_the_answer(session: CatalogSession, commit: Any, **options: Any) -> Any:
        if is_committed:
            real(session, commit, **options)
        raise CommitUnknown(txn_id=commit.txn_id, stage="commit")

    monkeypatch.setattr(CatalogSession, "commit", lose_the_answer)
    with pytest.raises(CommitUnknown):
        table.optimize()
    monkeypatch.setattr(CatalogSession, "commit", real)
    # The commit withdraws the announcement itself. Without one, the files may be committed a moment later.
    assert len(announced(catalog)) == (0 if is_committed else 1)
    old_orphans(table)
    assert table.vacuum(full=True).files == ()
    assert ids(table) == [0, 1, 2]
    assert table.verify(deep=True).is_ok


def test_announcement_ends_with_a_step_that_fails_or_loses(
    catalog: deltars.Catalog, table: deltars.Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail() -> None:
        until(lambda: announced(catalog))
        raise ZeroDivisionError

    after_writing(monkeypatch, fail)
    with pytest.raises(ZeroDivisionError):
        table.optimize()
    assert announced(catalog) == []
    monkeypatch.undo()

    def overwrite() -> None:
        until(lambda: announced(catalog))
        table.write(rows(7), "overwrite")

    after_writing(monkeypatch, overwrite)
    assert table.optimize().retried == 1
    assert announced(catalog) == []
    assert ids(table) == [7]
