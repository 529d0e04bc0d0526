"""Random sequences of writes, changes, restores, tags and vacuums: what is kept reads as its model."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

import deltars
from tests.support.soak import scaled
from tests.support.templates import CatalogTemplates
from tests.vacuum.lake import NOW, VECTORS, files, ids, put, rows

TABLES = ("plain", "vectors")
NUMBERS = st.sets(st.integers(0, 3_000), min_size=1, max_size=6)


class Sequences(RuleBasedStateMachine):
    """Each table's rows by version, and the tags; versions before `whole` may have lost files."""

    open_catalog: Callable[[Path], deltars.Catalog]

    def __init__(self) -> None:
        super().__init__()
        self.place = Path(tempfile.mkdtemp())
        self.catalog = type(self).open_catalog(self.place)
        self.versions: dict[str, dict[int, set[int]]] = {}
        self.whole = dict.fromkeys(TABLES, 0)
        self.tags: dict[str, dict[str, int]] = {}

    @initialize()
    def create(self) -> None:
        for name in TABLES:
            self.catalog.create_table(name, "id BIGINT", properties=VECTORS if name == "vectors" else {})
            self.catalog.write(name, rows(*range(3_000)))
            self.versions[name] = {0: set(), 1: set(range(3_000))}

    def _now(self, name: str) -> set[int]:
        return self.versions[name][max(self.versions[name])]

    def _committed(self, name: str, left: set[int]) -> None:
        table = self.catalog.table(name)
        if table.version not in self.versions[name]:
            self.versions[name][table.version] = left
        assert self._now(name) == left

    @rule(name=st.sampled_from(TABLES), numbers=NUMBERS, overwrite=st.booleans())
    def write(self, name: str, numbers: set[int], overwrite: bool) -> None:
        new = numbers if overwrite else numbers - self._now(name)
        if new:
            self.catalog.write(name, rows(*new), "overwrite" if overwrite else "append")
            self._committed(name, new if overwrite else self._now(name) | new)

    @rule(name=st.sampled_from(TABLES), divisor=st.sampled_from([2, 3, 7, 11]), rest=st.integers(0, 3))
    def delete(self, name: str, divisor: int, rest: int) -> None:
        self.catalog.table(name).delete(f"id % {divisor} = {rest}")
        self._committed(name, {number for number in self._now(name) if number % divisor != rest})

    @rule(name=st.sampled_from(TABLES), back=st.integers(0, 4))
    def restore(self, name: str, back: int) -> None:
        version = max(max(self.versions[name]) - back, 0)
        try:
            self.catalog.table(name).restore(version)
        except deltars.errors.FilesMissing:
            assert version < self.whole[name]
            return
        self._committed(name, self.versions[name][version])

    @rule(number=st.integers(0, 3))
    def tag(self, number: int) -> None:
        if f"tag{number}" in self.tags:
            self.catalog.untag(f"tag{number}")
            del self.tags[f"tag{number}"]
        else:
            self.catalog.tag(f"tag{number}")
            self.tags[f"tag{number}"] = {name: max(self.versions[name]) for name in TABLES}

    @precondition(lambda self: self.tags)
    @rule()
    def tag_again(self) -> None:
        """A tag of the cut of another tag is always possible."""
        name, versions = next(iter(self.tags.items()))
        if "copy" not in self.tags:
            self.catalog.tag("copy", as_of=name)
            self.tags["copy"] = versions

    @rule(name=st.sampled_from(TABLES), full=st.booleans(), seconds=st.sampled_from([0.0, 0.2, 1.0]))
    def vacuum(self, name: str, full: bool, seconds: float) -> None:
        table = self.catalog.table(name)
        orphan = put(table, "part-orphan.parquet", days_old=2)
        planned = table.vacuum(retention=timedelta(seconds=seconds), force=True, full=full, dry_run=True)
        done = table.vacuum(retention=timedelta(seconds=seconds), force=True, full=full)
        assert set(planned.files) <= set(done.files)
        assert self.whole[name] <= max(done.version, 0) <= max(self.versions[name])
        self.whole[name] = max(done.version, 0)  # -1: no version is old enough yet
        assert orphan.exists() is not full

    @rule()
    def vacuum_all(self) -> None:
        self.catalog.vacuum(**NOW, full=True)
        self.whole = {name: max(self.versions[name]) for name in TABLES}
        for name in TABLES:
            needed = [self.whole[name], *(versions[name] for versions in self.tags.values())]
            table = self.catalog.table(name)
            assert files(table, "*.parquet") == {
                path for version in needed for path in table.files(version)["path"].to_pylist()
            }

    def teardown(self) -> None:
        for name in self.versions:
            table = self.catalog.table(name)
            for version in range(self.whole[name], max(self.versions[name]) + 1):
                assert set(ids(table, version)) == self.versions[name][version], (name, version)
            for tag, versions in self.tags.items():
                assert set(ids(table, as_of=tag)) == self.versions[name][versions[name]], (name, tag)
            assert table.verify(deep=True).is_ok
            outside = DeltaTable(table.location)
            if name == "plain":
                assert set(outside.to_pyarrow_table()["id"].to_pylist()) == self._now(name)
        self.catalog.close()
        shutil.rmtree(self.place)


@pytest.mark.soak
@pytest.mark.backends("sqlite")
@pytest.mark.timeout(scaled(300, soak=7_200))
def test_versions_within_retention_and_tags_read_as_their_model(
    backend: str, catalog_templates: CatalogTemplates
) -> None:
    def open_catalog(place: Path) -> deltars.Catalog:
        uri = f"deltasql://sqlite/{place}/lake.db"
        catalog_templates.lay_out(uri)
        return deltars.connect(uri, warehouse=str(place / "lake"))

    kind: Any = type("Machine", (Sequences,), {"open_catalog": staticmethod(open_catalog)})
    machine = kind.TestCase
    steps, examples = scaled(10, soak=40), scaled(3, soak=300)
    machine.settings = settings(max_examples=examples, stateful_step_count=steps, deadline=None)
    machine().runTest()
