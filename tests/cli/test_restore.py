"""The commands that undo and name: restore, tag, tags, untag."""

from __future__ import annotations

import json

import pyarrow as pa
import pytest

import deltars
from tests.cli.conftest import Run

pytestmark = pytest.mark.backends("sqlite")

ROWS = pa.table({"id": [1, 2, 3]})


@pytest.fixture
def loaded(catalog: deltars.Catalog, catalog_uri: str, monkeypatch: pytest.MonkeyPatch) -> deltars.Catalog:
    """Two tables, the tag `good`, and a load of both since then."""
    monkeypatch.setenv("DELTARS_CATALOG", catalog_uri)
    for _ in range(2):
        with catalog.begin() as tx:
            tx.write("features", ROWS)
            tx.write("labels", ROWS)
        if not catalog.tags():
            catalog.tag("good")
    return catalog


def rows(catalog: deltars.Catalog) -> list[int]:
    return [table.to_arrow().num_rows for table in catalog.tables()]


def test_restore_prints_what_a_dry_run_promised(run: Run, loaded: deltars.Catalog) -> None:
    planned = run("restore", "features", "--version", "0", "--dry-run")
    assert planned.stdout == "features\t0\t0\t0\t1\t3\tno\n"
    assert "Nothing was changed" in planned.stderr
    assert rows(loaded) == [6, 6]
    assert run("restore", "features", "--version", "0").stdout == planned.stdout
    assert rows(loaded) == [3, 6]


def test_restore_of_all_takes_a_tag_and_a_choice_of_tables(run: Run, loaded: deltars.Catalog) -> None:
    found = json.loads(run("restore", "--all", "--as-of", "good", "--tables", "labels", "--json").stdout)
    assert [(one["table"], one["num_removed_rows"]) for one in found] == [("labels", 3)]
    assert rows(loaded) == [6, 3]
    assert run("restore", "--all", "--as-of", "good").exit_code == 0
    assert rows(loaded) == [3, 3]
    assert run("restore", "features", "--timestamp", "2001-01-01").exit_code == 1
    early = run("restore", "--all", "--as-of", "2001-01-01")
    assert (early.exit_code, "no table had a version as of 2001-01-01" in early.stderr) == (1, True)


@pytest.mark.parametrize(
    "arguments",
    [
        (),
        ("features",),
        ("features", "--version", "0", "--as-of", "good"),
        ("features", "--all", "--as-of", "good"),
        ("--all",),
        ("--all", "--version", "0"),
        ("--all", "--as-of", "good", "--version", "0"),
        ("--all", "--as-of", "good", "--tables", ","),
        ("features", "--version", "0", "--tables", "labels"),
    ],
)
def test_restore_that_is_not_said_clearly_is_refused(
    run: Run, loaded: deltars.Catalog, arguments: tuple[str, ...]
) -> None:
    assert run("restore", *arguments).exit_code == 2
    assert rows(loaded) == [6, 6]


def test_tags_are_made_listed_used_and_removed(run: Run, loaded: deltars.Catalog) -> None:
    made = json.loads(run("tag", "bad", "--description", "a load", "--json").stdout)
    assert (made["name"], made["description"]) == ("bad", "a load")
    assert [line.split("\t")[0] for line in run("tags").stdout.splitlines()] == ["bad", "good"]
    assert [line.split("\t")[1] for line in run("cut", "good").stdout.splitlines()] == ["0", "0"]
    assert [line.split("\t")[1] for line in run("cut", "bad").stdout.splitlines()] == ["1", "1"]
    assert run("tag", "bad").exit_code == 1
    assert run("untag", "bad").exit_code == 0
    assert run("untag", "bad").exit_code == 1
    assert "nothing to tag" in run("tag", "early", "--as-of", "2001-01-01").stderr
    assert len(run("tags").stdout.splitlines()) == 1
