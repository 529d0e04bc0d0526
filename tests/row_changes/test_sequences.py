"""Random sequences of transactions over three tables, against a model of every table at every version."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable
from copy import deepcopy
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, QueryBuilder
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

import deltars
from tests.row_changes import model
from tests.row_changes.model import Condition, Row
from tests.support.postgres import PostgresServer
from tests.support.soak import record, scaled
from tests.support.templates import CatalogTemplates

TABLES = ("plain", "vectors", "parts")
SCHEMA = pa.schema([("id", pa.int64()), ("p", pa.string()), ("v", pa.int64())])
WIDE = SCHEMA.append(pa.field("extra", pa.int64()))
VECTORS = {"delta.enableDeletionVectors": "true"}


def _frame(rows: list[Row]) -> pa.Table:
    return pa.Table.from_pylist([{name: row[name] for name in ("id", "p", "v")} for row in rows], schema=SCHEMA)


def _sorted(rows: list[Row]) -> list[str]:
    return sorted(repr([row.get(name) for name in ("id", "p", "v", "extra")]) for row in rows)


class Sequences(RuleBasedStateMachine):
    """Statements are collected in an open transaction, and committed or rolled back at random moments."""

    open_catalog: Callable[[Path], deltars.Catalog]

    def __init__(self) -> None:
        super().__init__()
        self.place = Path(tempfile.mkdtemp())
        self.catalog = type(self).open_catalog(self.place)
        self.now: dict[str, list[Row]] = {name: [] for name in TABLES}
        self.versions: dict[str, dict[int, list[Row]]] = {}
        self.staged: dict[str, list[Row]] | None = None
        self.tx: deltars.Transaction | None = None
        self.widened: frozenset[str] = frozenset()
        self.widened_before: frozenset[str] = frozenset()

    @initialize()
    def create(self) -> None:
        for name in TABLES:
            self.catalog.create_table(
                name,
                "id BIGINT, p STRING, v BIGINT",
                partition_by=["p"] if name == "parts" else [],
                properties=VECTORS if name != "plain" else {},
            )
            self.versions[name] = {0: []}

    def _open(self) -> deltars.Transaction:
        if self.tx is None:
            self.tx = self.catalog.begin(isolation="serializable")
            self.staged = deepcopy(self.now)
            self.widened_before = self.widened
        return self.tx

    @rule(table=st.sampled_from(TABLES), rows=model.rows())
    def write(self, table: str, rows: list[Row]) -> None:
        self._open().write(table, _frame(rows))
        assert self.staged is not None
        self.staged[table] += rows

    @rule(table=st.sampled_from(TABLES), where=st.one_of(st.none(), model.conditions()))
    def delete(self, table: str, where: Condition | None) -> None:
        metrics = self._open().delete(table, None if where is None else where.sql)
        assert self.staged is not None
        left = model.deleted(self.staged[table], where)
        assert metrics.rows_deleted == len(self.staged[table]) - len(left)
        self.staged[table] = left

    @rule(table=st.sampled_from(TABLES), value=model.VALUES, where=st.one_of(st.none(), model.conditions()))
    def update(self, table: str, value: int | None, where: Condition | None) -> None:
        self._open().update(table, {"v": value}, None if where is None else where.sql)
        assert self.staged is not None
        self.staged[table] = model.updated(self.staged[table], value, where)

    @rule(
        table=st.sampled_from(TABLES),
        source=model.rows(unique_ids=True),
        delete_if=st.one_of(st.none(), model.conditions(prefix="t.")),
        inserts=st.booleans(),
        by_source=st.one_of(st.none(), st.none(), model.conditions(prefix="t.")),
    )
    def merge(
        self,
        table: str,
        source: list[Row],
        delete_if: Condition | None,
        inserts: bool,
        by_source: Condition | None,
    ) -> None:
        merge = self._open().merge(table, _frame(source), "t.id = s.id")
        if delete_if is not None:
            merge = merge.when_matched_delete(delete_if.sql)
        merge = merge.when_matched_update({"p": "s.p", "v": "s.v"})
        if inserts:
            merge = merge.when_not_matched_insert({"id": "s.id", "p": "s.p", "v": "s.v"})
        if by_source is not None:
            merge = merge.when_not_matched_by_source_delete(by_source.sql)
        merge.execute()
        assert self.staged is not None
        self.staged[table] = model.merged(
            self.staged[table], source, delete_if=delete_if, inserts=inserts, by_source=by_source
        )

    @rule(table=st.sampled_from(TABLES), value=model.VALUES, where=st.one_of(st.none(), model.conditions()))
    def set_extra(self, table: str, value: int | None, where: Condition | None) -> None:
        """Give rows a value in a column that the table may not have yet."""
        tx = self._open()
        assert self.staged is not None
        if table not in self.widened:
            tx.alter(table).add_columns("extra BIGINT")
            self.widened = self.widened | {table}
        tx.update(table, {"extra": value}, None if where is None else where.sql)
        self.staged[table] = [
            row | {"extra": value} if where is None or where.of(row) is True else row for row in self.staged[table]
        ]

    @rule(table=st.sampled_from(TABLES))
    def rewrite(self, table: str) -> None:
        """Move all rows to new files, in one step."""
        tx = self._open()
        assert self.staged is not None
        rows = pa.Table.from_pylist(self.staged[table], schema=WIDE if table in self.widened else SCHEMA)
        tx.write(table, rows, "overwrite")

    @rule(table=st.sampled_from(TABLES))
    def purge(self, table: str) -> None:
        self._open().purge(table)

    @precondition(lambda self: self.tx is not None)
    @rule()
    def commit(self) -> None:
        assert self.tx is not None
        assert self.staged is not None
        result = self.tx.commit()
        self.now, self.tx = self.staged, None
        for name, version in result.versions.items():
            self.versions[name][version] = list(self.now[name])
        self._check()

    @precondition(lambda self: self.tx is not None)
    @rule()
    def roll_back(self) -> None:
        assert self.tx is not None
        self.tx.rollback()
        self.tx, self.widened = None, self.widened_before

    def _check(self) -> None:
        for name in self.versions:
            assert _sorted(self.catalog.table(name).to_arrow().to_pylist()) == _sorted(self.now[name]), name

    def teardown(self) -> None:
        try:
            if self.tx is not None:
                self.tx.rollback()
            for name, versions in self.versions.items():
                table = self.catalog.table(name)
                assert table.version == max(versions)
                for version, rows in versions.items():
                    assert _sorted(table.to_arrow(version=version).to_pylist()) == _sorted(rows), (name, version)
                assert _sorted(_by_deltalake(table.location)) == _sorted(self.now[name]), name
        finally:
            self.catalog.close()
            shutil.rmtree(self.place)


def _by_deltalake(location: str) -> list[Row]:
    query = QueryBuilder().register("t", DeltaTable(location)).execute("SELECT * FROM t")
    found: list[Row] = pa.table(query.read_all()).to_pylist()
    return found


@pytest.mark.soak
@pytest.mark.timeout(7_200)
def test_every_version_is_as_a_model_says(
    backend: str, catalog_templates: CatalogTemplates, request: pytest.FixtureRequest
) -> None:
    def open_catalog(place: Path) -> deltars.Catalog:
        if backend == "postgres":
            server: PostgresServer = request.getfixturevalue("postgres_server")
            uri = server.create_catalog_uri(request.getfixturevalue("postgres_database"))
        else:
            uri = f"deltasql://{backend}/{place}/lake.{'db' if backend == 'sqlite' else 'duckdb'}"
        catalog_templates.lay_out(uri)
        return deltars.connect(uri, warehouse=str(place / "lake"))

    kind: Any = type("Machine", (Sequences,), {"open_catalog": staticmethod(open_catalog)})
    machine = kind.TestCase
    examples = scaled(5, soak=400) if backend == "sqlite" else scaled(1, soak=40)
    machine.settings = settings(max_examples=examples, stateful_step_count=scaled(8, soak=25), deadline=None)
    machine().runTest()
    record(f"sequences of row changes, {backend}", sequences=examples)
