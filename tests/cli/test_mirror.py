"""`deltars mirror`: how far the tables are, and finishing what is left."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pytest

import deltars
from tests.cli.conftest import Run

ROWS = pa.table({"id": [1]})


@pytest.fixture
def behind(catalog: deltars.Catalog) -> deltars.Catalog:
    """`done` is published, `late` waits."""
    catalog.write("done", ROWS)
    with catalog.begin(mirror="async") as tx:
        tx.write("late", ROWS)
    return catalog


def test_status_tells_how_far_each_table_is_published(run: Run, catalog_uri: str, behind: deltars.Catalog) -> None:
    done, late = json.loads(run("mirror", "status", "--json", "--catalog", catalog_uri).stdout)
    assert (done["name"], done["behind"], done["lag_s"], done["state"]) == ("done", 0, None, "active")
    assert (late["name"], late["behind"], late["published_version"]) == ("late", 1, -1)
    assert late["lag_s"] >= 0


def test_once_publishes_what_waits_and_says_what_it_did(
    run: Run, catalog_uri: str, behind: deltars.Catalog, tmp_path: Path
) -> None:
    (tmp_path / "warehouse" / "done" / "_delta_log" / f"{0:020}.json").unlink()
    result = run("mirror", "once", "--catalog", catalog_uri)
    assert result.exit_code == 0, result.stderr
    published, repaired = (line.split("\t") for line in result.stdout.splitlines())
    assert published == ["late", "published", "0", ""]
    assert repaired[:2] == ["done", "repaired"]
    assert repaired[3].startswith("a published commit was missing: file://")
    assert run("mirror", "once", "--catalog", catalog_uri).stdout == ""


def test_once_exits_with_one_if_a_table_cannot_be_published(
    run: Run, catalog_uri: str, behind: deltars.Catalog, tmp_path: Path
) -> None:
    log = tmp_path / "warehouse" / "late" / "_delta_log"
    log.mkdir()
    (log / f"{0:020}.json").write_text("foreign")
    result = run("mirror", "once", "--catalog", catalog_uri)
    assert result.exit_code == 1
    assert result.stdout.startswith("late\tfailed\t-1\t")
    [late] = [row for row in behind.mirror_status() if row.name == "late"]
    assert late.state == "diverged"


@pytest.mark.backends("sqlite")
def test_clean_says_what_it_deleted(run: Run, catalog_uri: str, behind: deltars.Catalog) -> None:
    result = run("mirror", "clean", "done", "--catalog", catalog_uri)
    assert (result.exit_code, result.stdout) == (0, "")
