"""`deltars import`, `release`, `adopt` and `rebuild`."""

from __future__ import annotations

import io
import json
import re
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import write_deltalake
from rich.console import Console

import deltars
from deltars.cli.progress import bar
from deltars.importer import Progress
from tests.cli.conftest import Run
from tests.support.handmade_log import HandmadeLog, add


@pytest.fixture
def uri(tmp_path: Path) -> str:
    catalog = f"deltasql://sqlite/{tmp_path}/lake.db"
    with deltars.connect(catalog, warehouse=str(tmp_path / "warehouse")):
        return catalog


def test_a_table_comes_in_goes_out_and_comes_back(run: Run, uri: str, tmp_path: Path) -> None:
    place = str(tmp_path / "events")
    write_deltalake(place, pa.table({"id": [1]}))
    imported = run("import", place, "--catalog", uri, "--json")
    assert imported.exit_code == 0
    assert {"table": "events", "version": 1, "location": place}.items() <= json.loads(imported.stdout).items()
    assert json.loads(run("release", "events", "--catalog", uri, "--json").stdout)["released_at_version"] == 2
    write_deltalake(place, pa.table({"id": [2]}), mode="append")
    assert json.loads(run("adopt", "events", "--catalog", uri, "--json").stdout)["version"] == 4


def test_a_directory_is_named_as_a_shell_names_it(run: Run, uri: str, tmp_path: Path) -> None:
    write_deltalake("events", pa.table({"id": [1]}))
    imported = run("import", "events", "--catalog", uri, "--json")
    assert json.loads(imported.stdout)["location"] == str(Path.cwd() / "events")
    again = f"deltasql://sqlite/{tmp_path}/again.db"
    assert run("rebuild", "../warehouse", "--catalog", again).stdout.split() == ["events", "1"]


def test_a_table_that_is_none_is_told_and_fails(run: Run, uri: str, tmp_path: Path) -> None:
    result = run("import", str(tmp_path / "nothing"), "--catalog", uri)
    assert result.exit_code == 1
    assert "there is no Delta table" in result.stderr


def test_a_lost_catalog_is_rebuilt(run: Run, uri: str, tmp_path: Path) -> None:
    with deltars.connect(uri) as catalog:
        catalog.create_table("events", "id BIGINT")
    again = f"deltasql://sqlite/{tmp_path}/again.db"
    result = run("rebuild", str(tmp_path / "warehouse"), "--catalog", again)
    assert result.stdout.split() == ["events", "0"]
    assert "events" in run("tables", "--catalog", again).stdout


def test_a_bar_counts_versions_and_actions_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = io.StringIO()
    monkeypatch.setattr(
        "deltars.cli.progress.Console", lambda **_: Console(file=terminal, force_terminal=True, width=120)
    )
    with bar() as report:
        report("import", Progress(version=3, latest=9, actions=250_000))
    assert "import" in terminal.getvalue()
    assert re.search(r"4/10.* versions,.* 250,000 actions", terminal.getvalue())


def test_an_import_tells_how_far_it_is_within_a_version_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = HandmadeLog(tmp_path / "table")
    log.commit(1, *(add(f"{number}.parquet") for number in range(5)))
    monkeypatch.setattr("deltars.importer.commits.BATCH_ACTIONS", 2)
    told: list[Progress] = []
    with deltars.connect(f"deltasql://sqlite/{tmp_path}/lake.db") as catalog:
        catalog.import_table(str(log.root), report=told.append)
    assert [(step.version, step.latest, step.actions) for step in told[:7]] == [
        (-1, 1, 2), (-1, 1, 2), (0, 1, 2), (0, 1, 4), (0, 1, 6), (0, 1, 7), (1, 1, 7),
    ]  # fmt: skip
