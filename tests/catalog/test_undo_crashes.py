"""Restore, tag, untag and copy, interrupted before any call to storage or database: done or not, never in between."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
import pytest
from sqlalchemy import update

import deltars
from deltars.store.schema import dl_mirror_status
from tests.mirror.steps import DyingAt, FailingAt, Step, stepping, stepping_statements
from tests.support.children import in_child
from tests.support.soak import record, scaled, seed

pytestmark = [pytest.mark.backends("sqlite"), pytest.mark.soak, pytest.mark.timeout(scaled(300, soak=3_600))]

GOOD = {"a": [1], "b": [1]}
BAD = {"a": [1, 2], "b": [2]}


@contextmanager
def interrupted(monkeypatch: pytest.MonkeyPatch, step: Step) -> Iterator[None]:
    with stepping(monkeypatch, step), stepping_statements(monkeypatch, step):
        yield


@pytest.fixture
def uri(migrated_uri: str, catalog: deltars.Catalog) -> str:
    """A catalog with the tag `good` and, since then, a bad load of both tables."""
    for name in "ab":
        catalog.create_table(name, "id BIGINT").write(pa.table({"id": [1]}))
    catalog.tag("good")
    load(catalog)
    catalog.close()
    return migrated_uri


def load(catalog: deltars.Catalog) -> None:
    with catalog.begin() as tx:
        tx.write("a", pa.table({"id": [2]}))
        tx.write("b", pa.table({"id": [2]}), "overwrite")


def contents(catalog: deltars.Catalog) -> dict[str, list[int]]:
    return {table.name: sorted(table.to_arrow()["id"].to_pylist()) for table in catalog.tables()}


def repaired(catalog: deltars.Catalog) -> None:
    """As if the leases of the dead had run out."""
    with catalog._session.database.write(30) as connection:
        connection.execute(update(dl_mirror_status).values(lease_until=1, next_attempt_at=None))
    assert catalog.reconciler().once().errors == []


def published_tags(catalog: deltars.Catalog) -> set[str]:
    assert catalog.warehouse is not None
    return {path.stem for path in (Path(catalog.warehouse) / "_deltars" / "tags").glob("*.json")}


def every_interruption(
    uri: str,
    monkeypatch: pytest.MonkeyPatch,
    work: Callable[[deltars.Catalog], object],
    check: Callable[[deltars.Catalog], None],
    *,
    every: int = 25,
) -> None:
    """Interrupt `work` before one call after the other, by kill -9 and by errors. Each time `check` what is left.

    Only `every` so many calls are tried, but all of them in a soak.
    """

    def run(step: Step) -> None:
        with interrupted(monkeypatch, step), deltars.connect(uri) as opened:
            work(opened)

    stride = scaled(every, soak=1)
    turn, kills, ended = seed() % stride, 0, -signal.SIGKILL
    while ended == -signal.SIGKILL:
        turn += stride
        kills += 1
        ended = in_child(lambda turn=turn: run(DyingAt(turn)))  # type: ignore[misc]
        with deltars.connect(uri) as opened:
            check(opened)
    assert ended == 0
    turn, failing = seed() % stride, FailingAt(0)
    while failing.has_failed:
        turn += stride
        failing = FailingAt(turn)
        try:
            run(failing)
        except deltars.DeltarsError:
            assert failing.has_failed
        with deltars.connect(uri) as opened:
            check(opened)
    record(f"{check.__qualname__.split('.')[0]}, interrupted", kills=kills - 1, lost=0)


@pytest.mark.promise("N3")
def test_interrupted_restore_changed_every_table_or_none(uri: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def check(catalog: deltars.Catalog) -> None:
        assert contents(catalog) in (GOOD, BAD)
        repaired(catalog)
        assert all(table.verify().is_ok for table in catalog.tables())
        catalog.restore("good")
        assert contents(catalog) == GOOD
        load(catalog)

    every_interruption(uri, monkeypatch, lambda catalog: catalog.restore("good"), check)
    with deltars.connect(uri) as opened:
        assert all(table.verify(deep=True).is_ok for table in opened.tables())


def test_interrupted_tag_is_there_or_not(uri: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def check(catalog: deltars.Catalog) -> None:
        versions = catalog.snapshot().versions
        names = {tag.name for tag in catalog.tags()}
        assert names in ({"good"}, {"good", "bad"})
        repaired(catalog)
        assert published_tags(catalog) == names
        load(catalog)
        if "bad" in names:
            assert catalog.snapshot("bad").versions == versions
            catalog.untag("bad")
        catalog.tag("bad")
        catalog.untag("bad")

    every_interruption(uri, monkeypatch, lambda catalog: catalog.tag("bad"), check)


def test_interrupted_untag_is_done_or_not(uri: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def check(catalog: deltars.Catalog) -> None:
        names = {tag.name for tag in catalog.tags()}
        assert names in ({"good"}, set())
        repaired(catalog)
        assert published_tags(catalog) == names
        if not names:
            catalog.tag("good")

    every_interruption(uri, monkeypatch, lambda catalog: catalog.untag("good"), check)


def test_interrupted_copy_leaves_nothing_that_a_full_vacuum_does_not_delete(
    uri: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def copied(catalog: deltars.Catalog) -> None:
        catalog.copy_tables({"a": "c", "b": "d"})

    def check(catalog: deltars.Catalog) -> None:
        found = contents(catalog)
        assert found in (BAD, BAD | {"c": BAD["a"], "d": BAD["b"]})
        repaired(catalog)
        assert all(table.verify(deep=True).is_ok for table in catalog.tables())
        warehouse = Path(str(catalog.warehouse))
        for note in warehouse.glob("_deltars/copies/*"):
            os.utime(note, (0, 0))
        catalog.vacuum(full=True)
        assert contents(catalog) == found
        kept = {Path(table.location).name for table in catalog.tables()}
        there = {place.name for place in warehouse.iterdir() if place.name != "_deltars" and place.name not in dropped}
        assert there == kept
        assert not list(warehouse.glob("_deltars/copies/*"))
        for name in found.keys() - BAD.keys():
            dropped.add(Path(catalog.table(name).location).name)
            catalog.drop_table(name)

    dropped: set[str] = set()
    every_interruption(uri, monkeypatch, copied, check, every=80)


def test_interrupted_replacement_leaves_the_old_table_or_the_new_one(uri: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def replaced(catalog: deltars.Catalog) -> None:
        catalog.copy_table("a", "b", replace=True)

    def check(catalog: deltars.Catalog) -> None:
        assert contents(catalog) in (BAD, {"a": BAD["a"], "b": BAD["a"]})
        repaired(catalog)
        assert all(table.verify(deep=True).is_ok for table in catalog.tables())
        for note in Path(str(catalog.warehouse)).glob("_deltars/copies/*"):
            os.utime(note, (0, 0))
        catalog.vacuum(full=True)
        assert not list(Path(str(catalog.warehouse)).glob("_deltars/copies/*"))
        assert catalog.table("b").id == place.id
        catalog.table("b").write(pa.table({"id": BAD["b"]}), "overwrite")
        assert contents(catalog) == BAD

    with deltars.connect(uri) as opened:
        place = opened.table("b")
    every_interruption(uri, monkeypatch, replaced, check, every=80)
