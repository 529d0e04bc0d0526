"""Random sequences of writes, changes, restores, tags, vacuums and expiries, against a model of every version."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, QueryBuilder
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

import deltars
from deltars.errors import HistoryExpired
from tests.support.soak import scaled
from tests.support.templates import CatalogTemplates
from tests.support.vacuumed import vacuum

TABLES = ("plain", "vectors")

tables = st.sampled_from(TABLES)
some_ids = st.lists(st.integers(0, 30), min_size=1, max_size=4)


def rows(ids: list[int]) -> pa.Table:
    return pa.table({"id": pa.array(ids, pa.int64())})


class Sequences(RuleBasedStateMachine):
    open_catalog: Callable[[Path], deltars.Catalog]

    def __init__(self) -> None:
        super().__init__()
        self.place = Path(tempfile.mkdtemp())
        self.catalog = type(self).open_catalog(self.place)
        self.versions: dict[str, list[list[int]]] = {}
        """The ids in each version of each table."""
        self.tags: dict[str, dict[str, int]] = {}
        self.vacuumed = dict.fromkeys(TABLES, 0)
        self.first = dict.fromkeys(TABLES, 0)

    @initialize()
    def create(self) -> None:
        for name in TABLES:
            properties = {"delta.enableDeletionVectors": "true"} if name == "vectors" else {}
            self.catalog.create_table(name, "id BIGINT", properties=properties)
            self.versions[name] = [[]]

    def table(self, name: str) -> deltars.Table:
        return self.catalog.table(name)

    def note(self, name: str, ids: list[int]) -> None:
        if self.table(name).version == len(self.versions[name]):
            self.versions[name].append(sorted(ids))

    @rule(name=tables, ids=some_ids)
    def append(self, name: str, ids: list[int]) -> None:
        self.table(name).write(rows(ids))
        self.note(name, self.versions[name][-1] + ids)

    @rule(ids=some_ids)
    def overwrite_both(self, ids: list[int]) -> None:
        with self.catalog.begin() as tx:
            for name in TABLES:
                tx.write(name, rows(ids), "overwrite")
        for name in TABLES:
            self.note(name, ids)

    @rule(name=tables, least=st.integers(0, 30))
    def delete(self, name: str, least: int) -> None:
        self.table(name).delete(f"id >= {least}")
        self.note(name, [number for number in self.versions[name][-1] if number < least])

    @rule(name=tables, back=st.integers(0, 5))
    def restore(self, name: str, back: int) -> None:
        version = len(self.versions[name]) - 1 - back
        if version >= max(self.vacuumed[name], self.first[name]):
            self.table(name).restore(version)
            self.note(name, self.versions[name][version])

    @precondition(lambda self: self.tags)
    @rule(data=st.data())
    def restore_tag(self, data: st.DataObject) -> None:
        tag = data.draw(st.sampled_from(sorted(self.tags)))
        self.catalog.restore(tag)
        for name, version in self.tags[tag].items():
            self.note(name, self.versions[name][version])

    @rule()
    def tag(self) -> None:
        tag = f"tag{len(self.tags)}"
        while tag in self.tags:
            tag += "x"
        self.catalog.tag(tag)
        self.tags[tag] = {name: len(self.versions[name]) - 1 for name in TABLES}

    @precondition(lambda self: self.tags)
    @rule(data=st.data())
    def untag(self, data: st.DataObject) -> None:
        tag = data.draw(st.sampled_from(sorted(self.tags)))
        self.catalog.untag(tag)
        del self.tags[tag]

    @rule(name=tables, kept=st.integers(0, 4))
    def vacuum(self, name: str, kept: int) -> None:
        version = len(self.versions[name]) - 1 - kept
        if version > self.vacuumed[name]:
            vacuum(self.catalog, name, version)
            self.vacuumed[name] = version

    @rule(kept=st.integers(1, 6))
    def expire(self, kept: int) -> None:
        done = self.catalog.expire(timedelta(0), keep_versions=kept, force=True)
        for one in done.tables:
            assert one.first_version <= max(self.first[one.table], len(self.versions[one.table]) - kept)
            assert one.first_version >= self.first[one.table]
            self.first[one.table] = one.first_version
        self.check()

    def check(self) -> None:
        for name in TABLES:
            table, versions = self.table(name), self.versions[name]
            there = {entry.version for entry in table.history()}
            tagged = {cut[name] for cut in self.tags.values()}
            assert {*range(self.first[name], len(versions)), *tagged} <= there
            for version, ids in enumerate(versions):
                if version in tagged or version >= max(self.first[name], self.vacuumed[name]):
                    assert sorted(table.to_arrow(version=version)["id"].to_pylist()) == ids, (name, version)
                elif version not in there:
                    with pytest.raises(HistoryExpired):
                        table.to_arrow(version=version)
            for tag, cut in self.tags.items():
                found = self.catalog.snapshot(tag).to_arrow(name)
                assert sorted(found["id"].to_pylist()) == versions[cut[name]], (tag, name)
            outside = {len(versions) - 1, max(self.first[name], self.vacuumed[name]), *tagged}
            for version in sorted(outside):
                read = QueryBuilder().register("t", DeltaTable(table.location, version=version))
                found = pa.table(read.execute("select id from t").read_all())
                assert sorted(found["id"].to_pylist()) == versions[version], (name, version)
            assert [finding.detail for finding in table.verify(deep=True).findings] == []

    def teardown(self) -> None:
        if self.versions:
            self.check()
        self.catalog.close()
        shutil.rmtree(self.place)


@pytest.mark.soak
@pytest.mark.backends("sqlite")
@pytest.mark.timeout(scaled(300, soak=3_600))
def test_every_version_within_retention_and_every_tag_reads_as_its_model(catalog_templates: CatalogTemplates) -> None:
    def open_catalog(place: Path) -> deltars.Catalog:
        uri = f"deltasql://sqlite/{place}/lake.db"
        catalog_templates.lay_out(uri)
        return deltars.connect(uri, warehouse=str(place / "lake"))

    kind: Any = type("Machine", (Sequences,), {"open_catalog": staticmethod(open_catalog)})
    machine = kind.TestCase
    examples, steps = scaled(5, soak=150), scaled(15, soak=40)
    machine.settings = settings(max_examples=examples, stateful_step_count=steps, deadline=None)
    machine().runTest()
