"""`deltars demo`: the acts insist on their outcome themselves; here it is looked at from outside."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from uuid import UUID

import pyarrow as pa
import pytest
from click.testing import CliRunner, Result
from deltalake import DeltaTable

import deltars
from deltars import demo
from deltars.cli import main
from deltars.cli.demo import _next_steps
from deltars.demo import readers
from deltars.demo.batches import features_of, labels_of
from deltars.demo.setting import OURS, open_catalog
from deltars.demo.story import Story
from deltars.errors import DeltarsError

ROOT = Path(__file__).parents[2]


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def _demo(*arguments: str) -> Result:
    result = CliRunner().invoke(main, ["demo", *arguments], prog_name="deltars", catch_exceptions=False)
    assert result.exit_code == 0, result.stderr
    return result


@pytest.mark.usefixtures("spark", "here")
def test_the_story_is_told_on_sqlite_and_the_next_one_begins_anew() -> None:
    said = _demo().stdout
    assert "deltars txn " in said
    assert all(f"\n{number}. " in said for number in range(1, 8))
    with deltars.connect("deltasql://sqlite/.deltars/demo.db") as catalog:
        features = catalog.table("features")
        assert [entry.committer for entry in features.history()][0::3] == ["nightly", "demo"]
        for name in ("features", "labels"):
            outside = DeltaTable(catalog.table(name).location)
            assert (outside.version(), outside.to_pyarrow_table().num_rows) == (3, 500)
    with open_catalog("deltasql://sqlite/.deltars/demo.db") as catalog:
        assert catalog.tables() == []
        assert not list(Path(features.location).rglob("*.parquet"))


@pytest.mark.usefixtures("spark", "here")
@pytest.mark.backends("postgres")
def test_the_story_on_a_server_answers_in_json(catalog_uri: str) -> None:
    told = json.loads(_demo("--catalog", catalog_uri, "--json").stdout)
    assert (told["version"], told["rows"], told["readers"]) == (3, 500, ["deltalake", "polars", "duckdb"])
    with deltars.connect(catalog_uri) as catalog:
        assert catalog.snapshot(UUID(told["winner"])).versions == {"features": 1, "labels": 1}


@pytest.mark.parametrize(
    ("missing", "seen"),
    [
        ((), ["deltalake", "polars", "duckdb"]),
        (("deltalake",), ["duckdb"]),
        (("polars", "duckdb_extension_delta"), ["deltalake"]),
        (("deltalake", "duckdb"), []),
    ],
)
@pytest.mark.usefixtures("here")
def test_the_last_act_uses_the_readers_that_are_installed(
    missing: tuple[str, ...], seen: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(readers, "find_spec", lambda name: None if name in missing else find_spec(name))
    with open_catalog(demo.DEFAULT_CATALOG) as catalog:
        for batch in range(4):
            with catalog.begin() as tx:
                tx.write("features", features_of(range(5), batch), properties=OURS)
                tx.write("labels", labels_of(range(5), batch), properties=OURS)
        told = Notes()
        story = Story(catalog, None, told)  # type: ignore[arg-type]
        story.rows = 20
        assert list(story.others_read()) == seen
    assert sorted(str(row[0]) for row in told.rows) == sorted(seen * 2)
    assert ("pip install deltalake" in told.said[-1]) == (not seen)
    assert "\n" not in told.said[-1]


def test_a_reader_that_sees_something_else_stops_the_demo(here: Path) -> None:
    with open_catalog(demo.DEFAULT_CATALOG) as catalog:
        for name in ("features", "labels"):
            catalog.write(name, features_of(range(5), 0), properties=OURS)
        story = Story(catalog, None, Notes())  # type: ignore[arg-type]
        story.rows = 5
        with pytest.raises(DeltarsError, match="deltalake sees version 0 and 5 rows of features"):
            story.others_read()


def test_next_steps_begin_with_activation_where_the_command_is_not_on_the_path(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (here / "bin").mkdir()
    (here / "bin" / "activate").touch()
    monkeypatch.setattr(sys, "prefix", str(here))
    done = demo.DemoResult("deltasql://sqlite/x.db", "w", 3, 500, UUID(int=1), UUID(int=2), ())
    monkeypatch.setattr("deltars.cli.demo.which", lambda name: None)
    assert _next_steps(done, is_gone=False).splitlines()[0] == ". bin/activate"
    monkeypatch.setattr("deltars.cli.demo.which", lambda name: "/usr/bin/deltars")
    steps = _next_steps(done, is_gone=False)
    assert "activate" not in steps
    assert "examples" not in steps, "there is no such directory here"


def test_make_demo_ends_with_a_line_that_opens_the_documentation() -> None:
    # Inside `make test`, make would add lines about the directories that it enters.
    environment = {name: value for name, value in os.environ.items() if not name.startswith("MAKE")}
    steps = subprocess.run(
        ["make", "-n", "demo"], cwd=ROOT, env=environment, capture_output=True, text=True, check=True
    ).stdout
    said = subprocess.run(["sh", "-c", steps.splitlines()[-1]], capture_output=True, text=True, check=True).stdout
    assert "make docs" in said
    assert "build/site/index.html" in said


class Notes:
    """Narrator that remembers."""

    def __init__(self) -> None:
        self.said: list[str] = []
        self.rows: list[Sequence[object]] = []

    def chapter(self, title: str) -> None: ...

    def code(self, text: str) -> None: ...

    def say(self, text: str) -> None:
        self.said.append(text)

    def table(self, headings: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
        self.rows.extend(rows)


def test_tables_that_no_demo_made_are_left_alone(here: Path) -> None:
    uri = "deltasql://sqlite/mine.db"
    with deltars.connect(uri) as catalog:
        catalog.write("labels", pa.table({"mine": [1]}))
    with pytest.raises(deltars.TableExists, match="has a table 'labels' that the demo did not create"):
        open_catalog(uri)
    with deltars.connect(uri) as catalog:
        assert catalog.table("labels").to_arrow().to_pydict() == {"mine": [1]}


def test_the_embedded_postgresql_holds_a_catalog_and_goes(here: Path) -> None:
    with demo.embedded_postgres() as uri, open_catalog(uri) as catalog:
        assert catalog.uri.startswith("deltasql://postgres/")
        catalog.write("features", pa.table({"id": [1]}))
        assert catalog.table("features").version == 0
    with pytest.raises(deltars.DatabaseError, match="no connection"):
        deltars.connect(uri)
    assert list(here.iterdir()) == []


def test_a_process_killed_half_way_leaves_nothing_to_be_seen(here: Path) -> None:
    uri = f"deltasql://sqlite/{here}/lake.db"
    with deltars.connect(uri) as catalog:
        victim = subprocess.Popen(
            [sys.executable, "-m", "deltars.demo.victim"],
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "DELTARS_CATALOG": uri},
        )
        assert victim.stdout is not None
        assert victim.stdout.readline() == "written\n"
        victim.send_signal(signal.SIGKILL)
        victim.communicate()
        assert victim.returncode == -signal.SIGKILL
        assert catalog.tables() == []
    assert list(here.rglob("*.parquet")) != []


def test_without_java_the_demo_says_so_before_it_makes_anything(here: Path) -> None:
    environment = {**os.environ, "JAVA_HOME": str(here / "no java")}
    command = [sys.executable, "-m", "deltars.cli", "demo"]
    result = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert result.returncode == 2
    assert "Spark needs Java, and no working Java was found (JAVA_HOME=" in result.stderr
    assert "apt install openjdk-17-jre-headless" in result.stderr
    assert "Traceback" not in result.stderr
    assert list(here.iterdir()) == []
