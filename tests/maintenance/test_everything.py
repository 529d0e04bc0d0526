"""Random sequences of writes, changes and maintenance, against a model of every table at every version.

Whatever happens: a version within the retention, and every version that a tag needs, reads as the model says. A version
that maintenance was allowed to take reads as the model says, or raises. Other readers agree, and `verify` finds
nothing.
"""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

import pyarrow as pa
import pytest
from deltalake import DeltaTable, QueryBuilder
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

import deltars
from tests.row_changes import model
from tests.row_changes.model import Condition, Row
from tests.support.clock import clock_of
from tests.support.soak import scaled
from tests.support.templates import CatalogTemplates

SCHEMA = pa.schema([("id", pa.int64()), ("p", pa.string()), ("v", pa.int64())])
VECTORS = {"delta.enableDeletionVectors": "true"}
KINDS: dict[str, dict[str, Any]] = {
    "plain": {},
    "vectors": {"properties": {**VECTORS, "delta.checkpointInterval": "3"}},
    "parts": {
        "partition_by": ["p"],
        "properties": {
            **VECTORS,
            "delta.deletedFileRetentionDuration": "interval 2 days",
            "delta.logRetentionDuration": "interval 4 days",
        },
    },
    "sorted": {"cluster_by": ["id"], "properties": {**VECTORS, "delta.logRetentionDuration": "interval 1 day"}},
}
"""Tables, and the retentions that `maintain` has for them, in days."""
RETENTIONS = {"plain": (7, 30), "vectors": (7, 30), "parts": (2, 4), "sorted": (7, 1)}
TABLES = st.sampled_from(sorted(KINDS))
MODES = st.sampled_from(["append", "overwrite"])
DAY_S = 86_400
START_S = -1_000.0 * DAY_S
"""The database's clock begins far behind this machine's, so that it can go on: a vacuum trusts the earlier one."""


def _frame(rows: list[Row]) -> pa.Table:
    return pa.Table.from_pylist(rows, schema=SCHEMA)


def _sorted(rows: list[Row]) -> list[str]:
    return sorted(repr([row[name] for name in SCHEMA.names]) for row in rows)


def _by_deltalake(location: str, version: int | None = None) -> list[Row]:
    query = QueryBuilder().register("t", DeltaTable(location, version=version)).execute("SELECT * FROM t")
    found: list[Row] = pa.table(query.read_all()).to_pylist()
    return found


@dataclass
class Model:
    """What a table was at each version, and which versions maintenance must not have taken."""

    rows: dict[int, list[Row]] = field(default_factory=dict)
    made_at_s: dict[int, float] = field(default_factory=dict)
    intact: set[int] = field(default_factory=set)

    @property
    def version(self) -> int:
        return max(self.rows)

    def add(self, version: int, rows: list[Row], now_s: float) -> None:
        for missing in range(max(self.rows, default=-1) + 1, version + 1):
            self.rows[missing], self.made_at_s[missing] = list(rows), now_s
            self.intact.add(missing)

    def vacuum(self, before_s: float) -> None:
        """Give up versions that were replaced before a time."""
        self.intact -= {v for v in self.intact if v < self.version and self.made_at_s[v + 1] <= before_s + 1}

    def expire(self, before_s: float, keep_versions: int | None) -> None:
        """Give up versions before the last one that is older than a time, but for the newest."""
        first = max((v for v, made_at in self.made_at_s.items() if made_at <= before_s + 1), default=-1)
        newest = self.version if keep_versions is None else self.version - keep_versions + 1
        self.intact -= {v for v in self.intact if v < min(first, newest)}


class Everything(RuleBasedStateMachine):
    open_catalog: Callable[[Path], deltars.Catalog]

    def __init__(self) -> None:
        super().__init__()
        self.place = Path(tempfile.mkdtemp())
        self.catalog = type(self).open_catalog(self.place)
        self.stack = ExitStack()
        self.clock = self.stack.enter_context(clock_of(self.catalog))
        self.offset_s = START_S
        self.clock.set(self.offset_s)
        self.models: dict[str, Model] = {}
        self.cuts: list[tuple[UUID, dict[str, int]]] = []
        self.tags: dict[str, dict[str, int]] = {}
        self.num_tags = 0

    # -- what is true ------------------------------------------------------------------------------------------------

    @property
    def now_s(self) -> float:
        return time.time() + self.offset_s

    def _is_kept(self, name: str, version: int) -> bool:
        pinned = {cut[name] for cut in self.tags.values()}
        return version in self.models[name].intact or version in pinned

    def _note(self, txn_id: UUID, changed: dict[str, list[Row]]) -> None:
        """Note what a transaction has made of tables, and the cut that it ends with."""
        before = {name: one.version for name, one in self.models.items()}
        for name, rows in changed.items():
            self.models[name].add(self.catalog.table(name).version, rows, self.now_s)
        cut = {name: one.version for name, one in self.models.items()}
        # A transaction that changed nothing left no trace.
        if cut != before:
            self.cuts.append((txn_id, cut))

    def _now(self, name: str) -> list[Row]:
        one = self.models[name]
        return one.rows[one.version]

    # -- writes ------------------------------------------------------------------------------------------------------

    @initialize()
    def create(self) -> None:
        for name, options in KINDS.items():
            self.catalog.create_table(name, "id BIGINT, p STRING, v BIGINT", **options)
            self.models[name] = Model()
            self.models[name].add(0, [], self.now_s)

    @rule(days=st.sampled_from([0.5, 1.5, 3.0, 8.0, 40.0]))
    def wait(self, days: float) -> None:
        self.offset_s = min(self.offset_s + days * DAY_S, -DAY_S)
        self.clock.set(self.offset_s)

    @rule(
        tables=st.sets(TABLES, min_size=1, max_size=2), rows=model.rows(), mode=st.sampled_from(["append", "overwrite"])
    )
    def write(self, tables: set[str], rows: list[Row], mode: Any) -> None:
        with self.catalog.begin() as tx:
            for name in sorted(tables):
                tx.write(name, _frame(rows), mode)
        self._note(tx.id, {name: rows + (self._now(name) if mode == "append" else []) for name in tables})

    @rule(name=TABLES, batches=st.lists(model.rows(max_size=3), min_size=2, max_size=12))
    def stream(self, name: str, batches: list[list[Row]]) -> None:
        for rows in batches:
            result = self.catalog.write(name, _frame(rows))
            self._note(result.txn_id, {name: self._now(name) + rows})

    @rule(name=TABLES, rows=model.rows())
    def write_unpublished(self, name: str, rows: list[Row]) -> None:
        with self.catalog.begin(mirror="off") as tx:
            tx.write(name, _frame(rows))
        self._note(tx.id, {name: self._now(name) + rows})

    @rule()
    def publish(self) -> None:
        done = self.catalog.reconciler().once()
        assert done.errors == []

    @rule(name=TABLES, where=st.one_of(st.none(), model.conditions()))
    def delete(self, name: str, where: Condition | None) -> None:
        with self.catalog.begin() as tx:
            tx.delete(name, None if where is None else where.sql)
        self._note(tx.id, {name: model.deleted(self._now(name), where)})

    @rule(name=TABLES, value=model.VALUES, where=st.one_of(st.none(), model.conditions()))
    def update(self, name: str, value: int | None, where: Condition | None) -> None:
        with self.catalog.begin() as tx:
            tx.update(name, {"v": value}, None if where is None else where.sql)
        self._note(tx.id, {name: model.updated(self._now(name), value, where)})

    @rule(name=TABLES, source=model.rows(unique_ids=True), inserts=st.booleans())
    def merge(self, name: str, source: list[Row], inserts: bool) -> None:
        with self.catalog.begin() as tx:
            merge = tx.merge(name, _frame(source), "t.id = s.id").when_matched_update({"p": "s.p", "v": "s.v"})
            if inserts:
                merge = merge.when_not_matched_insert({"id": "s.id", "p": "s.p", "v": "s.v"})
            merge.execute()
        rows = model.merged(self._now(name), source, delete_if=None, inserts=inserts, by_source=None)
        self._note(tx.id, {name: rows})

    # -- maintenance -------------------------------------------------------------------------------------------------

    @rule(name=TABLES, size=st.sampled_from([None, 1, 3_000]), by=st.sampled_from([(), ("v", "id")]))
    def optimize(self, name: str, size: int | None, by: tuple[str, ...]) -> None:
        before = self._now(name)
        self.catalog.table(name).optimize(target_size=size, zorder_by=by if name != "sorted" else ())
        self.models[name].add(self.catalog.table(name).version, before, self.now_s)
        self._check(name)

    @rule(name=TABLES, days=st.sampled_from([0, 1, 3]), full=st.booleans(), dry_run=st.booleans())
    def vacuum(self, name: str, days: int, full: bool, dry_run: bool) -> None:
        if not dry_run:
            self.models[name].vacuum(self.now_s - days * DAY_S)
        self.catalog.table(name).vacuum(retention=timedelta(days=days), full=full, force=True, dry_run=dry_run)
        self._check(name)

    @rule(
        name=st.one_of(st.none(), TABLES),
        days=st.sampled_from([0, 1, 3, 10]),
        keep=st.sampled_from([None, 1, 3]),
        dry_run=st.booleans(),
    )
    def expire(self, name: str | None, days: int, keep: int | None, dry_run: bool) -> None:
        names = sorted(KINDS) if name is None else [name]
        if not dry_run:
            for one in names:
                self.models[one].expire(self.now_s - days * DAY_S, keep)
        self.catalog.expire(timedelta(days=days), keep_versions=keep, tables=names, dry_run=dry_run, force=True)
        for one in names:
            self._check(one)

    @rule()
    def maintain(self) -> None:
        before = {name: self._now(name) for name in KINDS}
        for name, (deleted_days, log_days) in RETENTIONS.items():
            self.models[name].vacuum(self.now_s - deleted_days * DAY_S)
            self.models[name].expire(self.now_s - log_days * DAY_S, None)
        done = self.catalog.maintain()
        assert [one for one in done if one.outcome != "done"] == []
        for name, rows in before.items():
            self.models[name].add(self.catalog.table(name).version, rows, self.now_s)
        assert self.catalog.advise() == []
        for name in KINDS:
            self._check(name)

    # -- tags and restores -------------------------------------------------------------------------------------------

    @precondition(lambda self: self.cuts)
    @rule(data=st.data())
    def tag(self, data: st.DataObject) -> None:
        txn_id, cut = data.draw(st.sampled_from(self.cuts), label="cut")
        self.num_tags += 1
        tag = f"tag{self.num_tags}"
        must = all(self._is_kept(name, version) for name, version in cut.items())
        try:
            self.catalog.tag(tag, as_of=txn_id)
        except deltars.DeltarsError:
            if must:
                raise
        else:
            self.tags[tag] = cut

    @precondition(lambda self: self.tags)
    @rule(data=st.data())
    def untag(self, data: st.DataObject) -> None:
        tag = data.draw(st.sampled_from(sorted(self.tags)), label="tag")
        self.catalog.untag(tag)
        del self.tags[tag]

    @rule(name=TABLES, data=st.data())
    def restore(self, name: str, data: st.DataObject) -> None:
        one, table = self.models[name], self.catalog.table(name)
        version = data.draw(st.integers(0, one.version), label="version")
        must = self._is_kept(name, version)
        try:
            table.restore(version)
        except deltars.DeltarsError:
            if must:
                raise
        else:
            one.add(table.version, one.rows[version], self.now_s)
        self._check(name)

    @precondition(lambda self: self.tags)
    @rule(data=st.data())
    def restore_all(self, data: st.DataObject) -> None:
        tag = data.draw(st.sampled_from(sorted(self.tags)), label="tag")
        self.catalog.restore(tag)
        for name, version in self.tags[tag].items():
            one = self.models[name]
            one.add(self.catalog.table(name).version, one.rows[version], self.now_s)

    # -- checks ------------------------------------------------------------------------------------------------------

    def _check(self, name: str) -> None:
        """Read every version. Those that are kept must be as the model says; the others may be gone."""
        table, one = self.catalog.table(name), self.models[name]
        assert table.version == one.version, name
        for version, rows in one.rows.items():
            try:
                found = table.to_arrow(version=version).to_pylist()
            except deltars.DeltarsError:
                if self._is_kept(name, version):
                    raise
            else:
                assert _sorted(found) == _sorted(rows), (name, version)
        for tag, cut in self.tags.items():
            assert _sorted(table.to_arrow(as_of=tag).to_pylist()) == _sorted(one.rows[cut[name]]), (name, tag)

    def _check_outside(self, name: str) -> None:
        """Read what another reader must be able to read, and let `verify` compare everything."""
        table, one = self.catalog.table(name), self.models[name]
        for version in one.rows:
            if self._is_kept(name, version):
                assert _sorted(_by_deltalake(table.location, version)) == _sorted(one.rows[version]), (name, version)
        assert _sorted(_by_deltalake(table.location)) == _sorted(self._now(name)), name
        assert table.verify(deep=True).findings == (), name

    def teardown(self) -> None:
        try:
            if self.models:
                self.publish()
            for name in self.models:
                self._check(name)
                self._check_outside(name)
        finally:
            self.stack.close()
            self.catalog.close()
            shutil.rmtree(self.place)


@pytest.mark.soak
@pytest.mark.backends("sqlite")
def test_whatever_happens_kept_versions_and_tags_read_as_the_model_says(
    backend: str, catalog_templates: CatalogTemplates
) -> None:
    def open_catalog(place: Path) -> deltars.Catalog:
        uri = f"deltasql://{backend}/{place}/lake.db"
        catalog_templates.lay_out(uri)
        return deltars.connect(uri, warehouse=str(place / "lake"))

    kind: Any = type("Machine", (Everything,), {"open_catalog": staticmethod(open_catalog)})
    machine = kind.TestCase
    machine.settings = settings(
        max_examples=scaled(3, soak=500), stateful_step_count=scaled(12, soak=40), deadline=None
    )
    machine().runTest()
