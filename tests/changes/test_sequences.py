"""Random transactions on tables with a change data feed: the feed of every version is what a model of rows says."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

import deltars
from tests.row_changes import model
from tests.row_changes.model import Condition, Row
from tests.support.soak import record, scaled
from tests.support.templates import CatalogTemplates

FEED = {"delta.enableChangeDataFeed": "true"}
VECTORS = {"delta.enableDeletionVectors": "true"}
TABLES: dict[str, dict[str, str]] = {
    "plain": FEED,
    "vectors": FEED | VECTORS,
    "parts": FEED,
    "mapped": FEED | VECTORS | {"delta.columnMapping.mode": "name"},
    "off": {},
}
SCHEMA = pa.schema([("id", pa.int64()), ("p", pa.string()), ("v", pa.int64())])
Event = tuple[str, str]


@dataclass(frozen=True)
class Life:
    """One row in a transaction: what it was before, if it was there, and what it is now, if it still is."""

    before: Row | None
    now: Row | None
    is_updated: bool = False


class Changed:
    """The rows of one table in a transaction, and whether updates can still be told from deletes and inserts."""

    def __init__(self, rows: list[Row]) -> None:
        self.lives = [Life(row, row) for row in rows]
        self.is_plain = False
        self.is_moved = False

    @property
    def rows(self) -> list[Row]:
        return [life.now for life in self.lives if life.now is not None]

    def insert(self, rows: list[Row]) -> None:
        self.lives += [Life(None, row) for row in rows]

    def change(self, change: Callable[[Row], Row | str | None]) -> None:
        """Delete a row for None, update it for another row, and leave it for "kept"."""
        kinds = set()
        for at, life in enumerate(self.lives):
            new = "kept" if life.now is None else change(life.now)
            if isinstance(new, str):
                continue
            if new is None:
                self.is_plain |= life.is_updated
            else:
                kinds.add(life.before is None)
            self.lives[at] = replace(life, now=new, is_updated=life.is_updated or (new is not None))
        for at, life in enumerate(self.lives):
            if life.before is None and life.is_updated:
                # A new row stays a new row, unless it was updated together with others.
                self.lives[at] = replace(life, is_updated=len(kinds) == 2)
        self.is_plain |= len(kinds) == 2

    def events(self, *, has_feed: bool) -> list[Event]:
        found: list[Event] = []
        for life in self.lives:
            before, now = _shown(life.before), _shown(life.now)
            if life.before is not None and life.now is not None:
                if life.is_updated:
                    types = ("delete", "insert") if self.is_plain or not has_feed else _IMAGES
                    found += [(types[0], before), (types[1], now)]
            elif life.before is not None:
                found.append(("delete", before))
            elif life.now is not None:
                found.append(("insert", now))
        return sorted(found) if has_feed else _net(found)


_IMAGES = ("update_preimage", "update_postimage")


def _net(events: list[Event]) -> list[Event]:
    left = list(events)
    for kind, row in events:
        other = ("insert" if kind == "delete" else "delete", row)
        if (kind, row) in left and other in left:
            left.remove((kind, row))
            left.remove(other)
    return sorted(left)


def _shown(row: Row | None) -> str:
    return "" if row is None else repr([row[name] for name in ("id", "p", "v")])


def _frame(rows: list[Row]) -> pa.Table:
    return pa.Table.from_pylist(rows, schema=SCHEMA)


class Sequences(RuleBasedStateMachine):
    open_catalog: Callable[[Path], deltars.Catalog]

    def __init__(self) -> None:
        super().__init__()
        self.place = Path(tempfile.mkdtemp())
        self.catalog = type(self).open_catalog(self.place)
        self.now: dict[str, list[Row]] = {name: [] for name in TABLES}
        self.feeds: dict[str, list[tuple[int, Event]]] = {name: [] for name in TABLES}
        self.staged: dict[str, Changed] = {}
        self.tx: deltars.Transaction | None = None

    @initialize()
    def create(self) -> None:
        for name, properties in TABLES.items():
            partitions = ["p"] if name in ("parts", "mapped") else []
            self.catalog.create_table(
                name, "id BIGINT, p STRING, v BIGINT", partition_by=partitions, properties=properties
            )

    def _open(self) -> deltars.Transaction:
        if self.tx is None:
            self.tx = self.catalog.begin(isolation="serializable")
            self.staged = {name: Changed(rows) for name, rows in self.now.items()}
        return self.tx

    @rule(table=st.sampled_from(list(TABLES)), rows=model.rows())
    def write(self, table: str, rows: list[Row]) -> None:
        self._open().write(table, _frame(rows))
        self.staged[table].insert(rows)

    @rule(table=st.sampled_from(list(TABLES)), rows=model.rows(max_size=3))
    def overwrite(self, table: str, rows: list[Row]) -> None:
        self._open().write(table, _frame(rows), "overwrite")
        self.staged[table].change(lambda row: None)
        self.staged[table].insert(rows)

    @rule(table=st.sampled_from(list(TABLES)), rows=model.rows(max_size=3), part=st.sampled_from(["a", "b"]))
    def replace(self, table: str, rows: list[Row], part: str) -> None:
        rows = [row | {"p": part} for row in rows]
        self._open().write(table, _frame(rows), "overwrite", replace_where=f"p = '{part}'")
        self.staged[table].change(lambda row: None if row["p"] == part else "kept")
        self.staged[table].insert(rows)

    @rule(table=st.sampled_from(list(TABLES)), where=st.one_of(st.none(), model.conditions()))
    def delete(self, table: str, where: Condition | None) -> None:
        self._open().delete(table, None if where is None else where.sql)
        self.staged[table].change(lambda row: None if where is None or where.of(row) is True else "kept")

    @rule(table=st.sampled_from(list(TABLES)), value=model.VALUES, where=st.one_of(st.none(), model.conditions()))
    def update(self, table: str, value: int | None, where: Condition | None) -> None:
        self._open().update(table, {"v": value}, None if where is None else where.sql)
        self.staged[table].change(lambda row: row | {"v": value} if where is None or where.of(row) is True else "kept")

    @rule(
        table=st.sampled_from(list(TABLES)),
        source=model.rows(unique_ids=True),
        delete_if=st.one_of(st.none(), model.conditions(prefix="t.")),
        inserts=st.booleans(),
        by_source=st.one_of(st.none(), st.none(), model.conditions(prefix="t.")),
    )
    def merge(
        self, table: str, source: list[Row], delete_if: Condition | None, inserts: bool, by_source: Condition | None
    ) -> None:
        merge = self._open().merge(table, _frame(source), "t.id = s.id")
        if delete_if is not None:
            merge = merge.when_matched_delete(delete_if.sql)
        merge = merge.when_matched_update({"p": "s.p", "v": "s.v"})
        if inserts:
            merge = merge.when_not_matched_insert_all()
        if by_source is not None:
            merge = merge.when_not_matched_by_source_delete(by_source.sql)
        merge.execute()
        there = {row["id"] for row in self.staged[table].rows if row["id"] is not None}
        by_id = {row["id"]: row for row in source if row["id"] is not None}

        def change(row: Row) -> Row | str | None:
            other = by_id.get(row["id"])
            if other is None:
                return None if by_source is not None and by_source.of(row) is True else "kept"
            is_deleted = delete_if is not None and delete_if.of(row) is True
            return None if is_deleted else row | {"p": other["p"], "v": other["v"]}

        self.staged[table].change(change)
        if inserts:
            self.staged[table].insert([row for row in source if row["id"] is None or row["id"] not in there])

    @rule(table=st.sampled_from(list(TABLES)))
    def purge(self, table: str) -> None:
        self._open().purge(table)

    @precondition(lambda self: self.tx is not None)
    @rule()
    def commit(self) -> None:
        assert self.tx is not None
        result = self.tx.commit()
        self.tx = None
        self.now = {name: changed.rows for name, changed in self.staged.items()}
        for name, version in result.versions.items():
            expected = self.staged[name].events(has_feed=name != "off")
            assert _events(self.catalog.table(name).changes(version).to_arrow()) == [(version, e) for e in expected]
            self.feeds[name] += [(version, event) for event in expected]

    @precondition(lambda self: self.tx is None)
    @rule(table=st.sampled_from(list(TABLES)))
    def optimize(self, table: str) -> None:
        self.catalog.table(table).optimize()

    def teardown(self) -> None:
        try:
            if self.tx is not None:
                self.tx.rollback()
            for name, feed in self.feeds.items():
                table = self.catalog.table(name)
                assert _events(table.changes(0).to_arrow()) == sorted(feed), name
                assert sorted(map(_shown, table.to_arrow().to_pylist())) == sorted(map(_shown, self.now[name]))
            for name in ("plain", "parts"):
                found = DeltaTable(self.catalog.table(name).location).load_cdf(starting_version=0)
                assert _events(pa.table(found.read_all())) == sorted(self.feeds[name]), name
        finally:
            self.catalog.close()
            shutil.rmtree(self.place)


def _events(rows: pa.Table) -> list[tuple[int, Event]]:
    return sorted((row["_commit_version"], (row["_change_type"], _shown(row))) for row in rows.to_pylist())


@pytest.mark.soak
@pytest.mark.timeout(7_200)
@pytest.mark.backends("sqlite")
def test_feed_of_every_version_is_as_a_model_says(catalog_templates: CatalogTemplates) -> None:
    def open_catalog(place: Path) -> deltars.Catalog:
        uri = f"deltasql://sqlite/{place}/lake.db"
        catalog_templates.lay_out(uri)
        return deltars.connect(uri, warehouse=str(place / "lake"))

    kind: Any = type("Machine", (Sequences,), {"open_catalog": staticmethod(open_catalog)})
    machine = kind.TestCase
    examples = scaled(8, soak=400)
    machine.settings = settings(max_examples=examples, stateful_step_count=scaled(12, soak=30), deadline=None)
    machine().runTest()
    record("sequences of changes with a feed", sequences=examples)
