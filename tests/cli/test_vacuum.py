"""The command that deletes files which are no longer needed."""

from __future__ import annotations

import json

import pytest

import deltars
from tests.cli.conftest import Run
from tests.vacuum.lake import files, live, overwritten, put

pytestmark = pytest.mark.backends("sqlite")

NOW = ("--retention", "0 hours", "--force")


@pytest.fixture
def tables(catalog: deltars.Catalog, catalog_uri: str, monkeypatch: pytest.MonkeyPatch) -> dict[str, deltars.Table]:
    monkeypatch.setenv("DELTARS_CATALOG", catalog_uri)
    return {name: overwritten(catalog, name) for name in ("features", "labels")}


def test_dry_run_prints_each_file_and_why_and_deletes_none(run: Run, tables: dict[str, deltars.Table]) -> None:
    table = tables["features"]
    put(table, "part-orphan.parquet", days_old=2)
    planned = run("vacuum", "features", *NOW, "--full", "--dry-run")
    [orphan, *removed] = sorted(planned.stdout.splitlines(), key=lambda line: "removed" in line)
    assert orphan == "features\tpart-orphan.parquet\t1\torphan"
    assert {line.split("\t")[1] for line in removed} == live(table, 1) | live(table, 2)
    assert "features: 3 files" in planned.stderr
    assert "Nothing was deleted" in planned.stderr
    assert len(files(table)) == 4
    found = json.loads(run("vacuum", "features", *NOW, "--full", "--dry-run", "--json").stdout)
    assert {one["path"] for one in found} == {line.split("\t")[1] for line in planned.stdout.splitlines()}


def test_vacuum_prints_what_was_deleted_and_kept(run: Run, tables: dict[str, deltars.Table]) -> None:
    kept = run("vacuum", "--all")
    assert (kept.exit_code, kept.stdout.splitlines()) == (
        0, [f"{name}\tkept\tretention\t2\t{size(table)}" for name, table in tables.items()],
    )  # fmt: skip
    [found] = json.loads(run("vacuum", "features", *NOW, "--json").stdout)
    assert (found["table"], found["outcome"], found["reason"], found["files"]) == ("features", "deleted", "removed", 2)
    assert [len(files(table)) for table in tables.values()] == [1, 3]
    assert json.loads(run("vacuum", "features", *NOW, "--json").stdout) == []


def size(table: deltars.Table) -> int:
    return sum(table.files(version)["size"][0].as_py() for version in (1, 2))


def test_vacuum_of_all_skips_a_table_that_refuses_it(run: Run, tables: dict[str, deltars.Table]) -> None:
    tables["features"]._session.close()
    run("release", "features")
    done = run("vacuum", "--all", *NOW)
    assert done.exit_code == 1
    assert "Skipped features: the table was released" in done.stderr
    assert [len(files(table)) for table in tables.values()] == [3, 1]
    assert run("vacuum", "features", *NOW).exit_code == 1


@pytest.mark.parametrize("arguments", [(), ("features", "--all"), ("--full",)])
def test_vacuum_needs_tables_or_all(run: Run, tables: dict[str, deltars.Table], arguments: tuple[str, ...]) -> None:
    assert run("vacuum", *arguments).exit_code == 2


def test_vacuum_with_a_short_retention_needs_force(run: Run, tables: dict[str, deltars.Table]) -> None:
    refused = run("vacuum", "features", "--retention", "1 day")
    assert refused.exit_code == 1
    assert "--force" in refused.stderr
    assert "retention must be" in run("vacuum", "features", "--retention", "soon").stderr
