from __future__ import annotations

import io
import json
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pytest
from rich.console import Console

import deltars
from deltars.cli.output import Lines, Record
from deltars.cli.screen import AS_WIDE_AS_NEEDED, Screen
from tests.cli.conftest import Run

ROWS = pa.table({"id": [1, 2, 3]})


@pytest.fixture
def written(catalog: deltars.Catalog) -> deltars.Transaction:
    """Two tables: features at version 1, labels at version 0; the second commit of features is on its own."""
    with catalog.begin(committer="etl") as tx:
        tx.write("features", ROWS)
        tx.write("labels", ROWS)
    catalog.write("features", ROWS)
    return tx


def test_tables_are_lines_with_tabs_when_piped(
    run: Run, catalog_uri: str, catalog: deltars.Catalog, written: deltars.Transaction
) -> None:
    result = run("tables", "--catalog", catalog_uri)
    features, labels = catalog.table("features"), catalog.table("labels")
    assert result.exit_code == 0, result.stderr
    assert result.stdout.splitlines() == [
        f"features\t1\t{features.location}\t{features.id}",
        f"labels\t0\t{labels.location}\t{labels.id}",
    ]


def test_tables_in_json_have_every_field(
    run: Run, catalog_uri: str, catalog: deltars.Catalog, written: deltars.Transaction
) -> None:
    features, labels = json.loads(run("tables", "--catalog", catalog_uri, "--json").stdout)
    assert (features["name"], features["current_version"]) == ("features", 1)
    assert features["location"] == catalog.table("features").location
    assert features["properties"]["delta.enableInCommitTimestamps"] == "true"
    assert datetime.fromisoformat(features["created_at"]).tzinfo is not None
    assert labels["table_id"] == str(catalog.table("labels").id)


def test_an_empty_catalog_has_no_lines_and_an_empty_list(run: Run, catalog_uri: str, catalog: deltars.Catalog) -> None:
    assert run("tables", "--catalog", catalog_uri).stdout == ""
    assert json.loads(run("tables", "--catalog", catalog_uri, "--json").stdout) == []


def test_history_is_newest_first_and_names_the_transaction(
    run: Run, catalog_uri: str, written: deltars.Transaction
) -> None:
    lines = run("history", "features", "--catalog", catalog_uri).stdout.splitlines()
    newest, oldest = (line.split("\t") for line in lines)
    assert (newest[0], newest[2]) == ("1", "WRITE")
    assert (oldest[0], oldest[2:]) == ("0", ["CREATE TABLE AS SELECT", "etl", str(written.id)])


def test_one_transaction_is_in_the_history_of_both_its_tables(
    run: Run, catalog_uri: str, written: deltars.Transaction
) -> None:
    histories = [
        json.loads(run("history", name, "--catalog", catalog_uri, "--json").stdout) for name in ("features", "labels")
    ]
    assert [history[-1]["txn_id"] for history in histories] == [str(written.id)] * 2
    assert histories[0][-1]["commit_ts"] == histories[1][-1]["commit_ts"]


def test_history_stops_at_its_limit(run: Run, catalog_uri: str, written: deltars.Transaction) -> None:
    entries = json.loads(run("history", "features", "--limit", "1", "--catalog", catalog_uri, "--json").stdout)
    assert [entry["version"] for entry in entries] == [1]
    assert entries[0]["metrics"]["numOutputRows"] == "3"


def test_a_tables_uri_needs_no_catalog_option(run: Run, catalog_uri: str, written: deltars.Transaction) -> None:
    path, mark, parameters = catalog_uri.partition("?")
    result = run("history", f"{path}/labels{mark}{parameters}")
    assert result.exit_code == 0, result.stderr
    assert result.stdout.startswith("0\t")


@pytest.mark.backends("sqlite")
def test_a_table_that_is_not_there_is_named(run: Run, catalog_uri: str, catalog: deltars.Catalog) -> None:
    result = run("history", "nope", "--catalog", catalog_uri)
    assert result.exit_code == 1
    assert "there is no table 'nope'" in result.stderr


@pytest.mark.backends("sqlite")
def test_a_catalog_is_found_by_the_environment_and_by_its_name(
    run: Run, catalog_uri: str, written: deltars.Transaction, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = run("tables", "--catalog", catalog_uri).stdout
    Path("deltars.toml").write_text(f'[catalogs.lake]\nuri = "{catalog_uri}"\n')
    assert run("tables", "--catalog", "lake").stdout == expected
    monkeypatch.setenv("DELTARS_CATALOG", catalog_uri)
    assert run("tables").stdout == expected


def _on_screen(records: Sequence[Record], *columns: str) -> list[str]:
    stream = io.StringIO()
    console = Console(file=stream, force_terminal=True, color_system=None, width=AS_WIDE_AS_NEEDED)
    Screen(console).records(records, columns, none="There is nothing.")
    return [line.rstrip() for line in stream.getvalue().splitlines()]


def test_a_screen_shows_headings_and_aligned_columns() -> None:
    moment = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
    records = [
        {"name": "features", "current_version": 12, "created_at": moment, "committer": None},
        {"name": "a [bold]", "current_version": 3, "created_at": moment, "committer": "etl"},
    ]
    assert _on_screen(records, "name", "current_version", "created_at", "committer") == [
        "name       current version   created at                committer",
        "features                12   2026-01-02 03:04:05 UTC   –",
        "a [bold]                 3   2026-01-02 03:04:05 UTC   etl",
    ]


def test_a_screen_breaks_no_long_value() -> None:
    path = "/data/" + "x" * 500
    assert _on_screen([{"location": path}], "location") == ["location", path]


def test_a_screen_says_that_there_is_nothing() -> None:
    assert _on_screen([], "name") == ["There is nothing."]


def test_a_value_cannot_break_a_line_or_a_column(capsys: pytest.CaptureFixture[str]) -> None:
    Lines().records([{"a": "one\ttwo\nthree", "b": None}], ("a", "b"), none="")
    assert capsys.readouterr().out == "one\\ttwo\\nthree\t\n"
