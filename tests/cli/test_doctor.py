"""`deltars doctor`: what can be wrong is found, and what to do is said. Java and Spark are in tests/first_mistakes."""

from __future__ import annotations

import json
import shlex
import shutil
from pathlib import Path

import pyarrow as pa
import pytest

import deltars
from deltars.uri import parse_catalog_uri
from tests.cli.conftest import Run
from tests.support.objects import run_script

ROWS = pa.table({"id": [1]})


def _findings(run: Run, catalog_uri: str, *, code: int) -> dict[str, dict[str, str]]:
    result = run("doctor", "--no-spark", "--json", "--catalog", catalog_uri)
    assert result.exit_code == code, result.stdout
    return {finding["check"]: finding for finding in json.loads(result.stdout)}


def _execute(catalog_uri: str, statement: str) -> None:
    schema = parse_catalog_uri(catalog_uri).schema
    run_script(catalog_uri, f'SET search_path TO "{schema}"; {statement}' if schema else statement)


def test_a_catalog_that_is_well_is_called_so_and_nothing_is_left_behind(
    run: Run, catalog_uri: str, catalog: deltars.Catalog, tmp_path: Path
) -> None:
    catalog.write("features", ROWS)
    catalog.close()
    before = sorted(path for path in (tmp_path / "warehouse").rglob("*") if path.is_file())
    found = _findings(run, catalog_uri, code=0)
    checks = ("settings", "catalog", "schema", "clock", "storage", "mirror")
    assert {check: found[check]["state"] for check in checks} == dict.fromkeys(checks, "ok")
    assert sorted(path for path in (tmp_path / "warehouse").rglob("*") if path.is_file()) == before


def test_a_catalog_that_is_not_made_yet_or_is_too_new_says_what_to_do(run: Run, catalog_uri: str, backend: str) -> None:
    is_server = backend == "postgres"
    schema = _findings(run, catalog_uri, code=1 if is_server else 0)["schema"]
    assert schema["state"] == ("failed" if is_server else "ok")
    assert (schema["fix"] or "").startswith("deltars init") == is_server
    deltars.connect(catalog_uri, migrate=True).close()
    found = _findings(run, catalog_uri, code=0)
    assert found["storage"]["state"] == ("warning" if is_server else "ok")
    _execute(catalog_uri, "UPDATE dl_schema_version SET version_num = '9999'")
    assert _findings(run, catalog_uri, code=1)["schema"]["fix"] == "pip install --upgrade deltars"


@pytest.mark.backends("sqlite")
def test_what_waits_to_be_published_is_found_and_the_fix_mends_it(
    run: Run, catalog_uri: str, catalog: deltars.Catalog
) -> None:
    with catalog.begin(mirror="async") as tx:
        tx.write("late", ROWS)
    mirror = _findings(run, catalog_uri, code=0)["mirror"]
    assert (mirror["state"], mirror["found"]) == ("warning", "late has unpublished commits")
    assert run(*shlex.split(mirror["fix"])[1:]).exit_code == 0
    assert _findings(run, catalog_uri, code=0)["mirror"]["state"] == "ok"
    _foreign_commit(catalog)
    diverged = _findings(run, catalog_uri, code=1)["mirror"]
    assert "is another commit" in diverged["found"]
    assert run(*shlex.split(diverged["fix"])[1:]).exit_code == 1


def _foreign_commit(catalog: deltars.Catalog) -> None:
    (Path(catalog.table("late").location) / "_delta_log" / f"{1:020}.json").write_text("foreign")
    catalog.write("late", ROWS)


@pytest.mark.backends("sqlite")
def test_a_clock_that_was_set_back_is_noticed(run: Run, catalog_uri: str, catalog: deltars.Catalog) -> None:
    catalog.write("features", ROWS)
    catalog.close()
    _execute(catalog_uri, "UPDATE dl_transactions SET commit_ts = commit_ts + 3600000000")
    clock = _findings(run, catalog_uri, code=0)["clock"]
    assert clock["state"] == "warning"
    assert "ahead of the database's clock" in clock["found"]


def test_a_database_that_is_down_and_a_name_that_is_none_end_the_round_with_a_fix(run: Run) -> None:
    down = "deltasql://postgres/lake/public?host=127.0.0.1&port=1&password=hunter2"
    found = _findings(run, down, code=1)
    assert found["catalog"]["state"] == "failed"
    assert "Check that the server runs" in found["catalog"]["fix"]
    assert "hunter2" not in json.dumps(found)
    assert "schema" not in found
    assert _findings(run, "nonsense", code=1)["settings"]["state"] == "failed"


@pytest.mark.backends("sqlite")
def test_a_warehouse_that_cannot_be_written_to_is_named(
    run: Run, catalog_uri: str, catalog: deltars.Catalog, tmp_path: Path
) -> None:
    shutil.rmtree(tmp_path / "warehouse")
    (tmp_path / "warehouse").write_text("a file where a directory should be")
    storage = _findings(run, catalog_uri, code=1)["storage"]
    assert str(tmp_path / "warehouse") in storage["found"]
