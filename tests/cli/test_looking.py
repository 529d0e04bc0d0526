"""`show`, `files`, `diff`, `txn`, `cut`, `resolve`, `rename` and `properties`, on every database."""

from __future__ import annotations

import json
import time
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

import pyarrow as pa
import pytest

import deltars
from tests.cli.conftest import Run
from tests.support.vacuumed import vacuum

ROWS = pa.table({"id": [1, 2, 3], "day": ["a", "b", "b"]})


@pytest.fixture
def rewritten(catalog: deltars.Catalog) -> deltars.Transaction:
    """features and labels made together; then one partition of features written anew, with one more column."""
    with catalog.begin(committer="etl", user_metadata="nightly") as tx:
        tx.write("features", ROWS, partition_by=["day"])
        tx.write("labels", ROWS)
    catalog.write(
        "features",
        pa.table({"id": [4], "day": ["a"], "note": ["x"]}),
        "overwrite",
        replace_where="day='a'",
        merge_schema=True,
    )
    return tx


def _json(run: Run, *arguments: str) -> Any:
    result = run(*arguments, "--json")
    assert result.exit_code == 0, result.stderr
    return json.loads(result.stdout)


def test_a_table_and_its_transaction_are_looked_at_from_all_sides(
    run: Run, catalog_uri: str, catalog: deltars.Catalog, rewritten: deltars.Transaction
) -> None:
    at = ("--catalog", catalog_uri)
    shown = _json(run, "show", "features", *at)
    assert [(column["name"], column["type"]) for column in shown["columns"]] == [
        ("id", "long"),
        ("day", "string"),
        ("note", "string"),
    ]
    assert [(part["values"], part["num_records"]) for part in shown["partitions"]] == [
        ({"day": "a"}, 1),
        ({"day": "b"}, 2),
    ]
    assert (shown["version"], shown["num_files"], shown["num_records"]) == (1, 2, 3)

    files = _json(run, "files", "features", "--where", "day = 'b'", *at)
    assert [(file["num_records"], file["version"]) for file in files] == [(2, 0)]
    assert len(_json(run, "files", "features", "--version", "0", *at)) == 2

    diff = _json(run, "diff", "features", "0", *at)
    assert (diff["from_version"], diff["to_version"]) == (0, 1)
    assert diff["changes"] == [{"kind": "column", "name": "note", "before": None, "after": "string"}]
    assert sorted(file["change"] for file in diff["files"]) == ["added", "removed"]
    back = _json(run, "diff", "features", "1", "0", *at)
    assert [change["after"] for change in back["changes"]] == [None]

    txn = _json(run, "txn", str(rewritten.id), *at)
    assert (txn["committer"], txn["user_metadata"]) == ("etl", "nightly")
    assert [(each["table"], each["version"], each["records_added"]) for each in txn["tables"]] == [
        ("features", 0, 3),
        ("labels", 0, 3),
    ]
    assert {"open", "data", "lock"} <= {each["stage"] for each in txn["stages"]}
    assert all(each["seconds"] > 0 for each in txn["stages"])
    assert [table["version"] for table in _json(run, "cut", str(rewritten.id), *at)] == [0, 0]
    assert [table["version"] for table in _json(run, "cut", *at)] == [1, 0]
    resolved = _json(run, "resolve", str(rewritten.id), *at)
    assert (resolved["outcome"], resolved["tables"][0]) == ("committed", {"table": "features", "version": 0})

    assert _json(run, "rename", "labels", "targets", *at)["name"] == "targets"
    changed = _json(run, "properties", "targets", "--set", "owner=me=you", "--set", "x=", *at)
    assert (changed["owner"], changed["x"]) == ("me=you", "")
    assert "x" not in _json(run, "properties", "targets", "--unset", "x", "--set", "owner=me", *at)
    assert [entry["version"] for entry in _json(run, "history", "targets", *at)] == [2, 1, 0]
    catalog.drop_table("targets")
    assert [each["table"] for each in _json(run, "txn", str(rewritten.id), *at)["tables"]] == ["features", "targets"]


@pytest.mark.backends("sqlite")
def test_lists_of_one_thing_are_lines_that_grep_can_tell_apart(
    run: Run, catalog_uri: str, rewritten: deltars.Transaction
) -> None:
    lines = [line.split("\t") for line in run("show", "features", "--catalog", catalog_uri).stdout.splitlines()]
    assert ["columns", "id", "long", "yes", ""] in lines
    assert ["partitions", "day=a"] in [line[:2] for line in lines]
    assert ["properties", "delta.enableInCommitTimestamps", "true"] in lines
    assert ["num_records", "3"] in lines


@pytest.mark.backends("sqlite")
def test_what_cannot_be_found_is_exit_code_1_and_what_cannot_be_meant_is_2(
    run: Run, catalog_uri: str, rewritten: deltars.Transaction
) -> None:
    at = ("--catalog", catalog_uri)
    for arguments, code, said in (
        (("txn", str(uuid4())), 1, "No transaction with this id is in this catalog"),
        (("txn", "nonsense"), 1, "No transaction with this id is in this catalog"),
        (("txn", "7d0f2c0e-3f0a-4c9e-9a53-6a3b1a0c9d1"), 2, "looks like a UUID and is not one"),
        (("resolve", ""), 2, "a UUID or a text that is not empty"),
        (("diff", "features", "0", "7"), 1, "The table has the versions 0 to 1"),
        (("files", "features", "--where", "dya = 'a'"), 1, "Did you mean day?"),
        (("cut", "yesterday"), 1, "neither a tag, nor a transaction's id, nor a time"),
        (("properties", "features", "--set", "owner"), 2, "is not NAME=VALUE"),
        (("properties", "features", "--set", "delta.appendOnly=yes"), 1, "is true or false, not 'yes'"),
        (("properties", "features", "--set", "delta.apendOnly=true"), 1, "Did you mean delta.appendOnly?"),
        (("properties", "features", "--unset", "delta.enableInCommitTimestamps"), 1, "cannot be turned off"),
        (("rename", "features", "labels"), 1, "there is already a table named 'labels'"),
    ):
        result = run(*arguments, *at)
        assert (result.exit_code, result.stdout) == (code, ""), arguments
        assert said in result.stderr


@pytest.mark.backends("sqlite")
def test_a_transaction_that_never_was_is_settled_as_aborted(
    run: Run, catalog_uri: str, catalog: deltars.Catalog
) -> None:
    txn_id = uuid4()
    assert _json(run, "resolve", str(txn_id), "--catalog", catalog_uri)["outcome"] == "aborted"
    with pytest.raises(deltars.DeltarsError), catalog.begin(txn_id=txn_id) as tx:
        tx.write("features", ROWS)
    assert catalog.tables() == []


def test_completion_knows_the_commands(run: Run) -> None:
    for shell in ("bash", "zsh", "fish"):
        assert "_DELTARS_COMPLETE" in run("completion", shell).stdout
    assert run("completion", "cmd").exit_code == 2


def test_verification_reports_how_far_it_is(tmp_path: Path) -> None:
    with deltars.connect(tmp_path / "lake.db") as catalog:
        for key in range(3):
            catalog.write("features", pa.table({"id": [key]}))
        for deep in (False, True):
            seen: list[int] = []
            assert catalog.table("features").verify(deep=deep, report=seen.append).is_ok
            assert seen == sorted(seen)
            assert seen[-1] >= 3


@pytest.mark.backends("sqlite")
def test_cut_names_the_tables_that_are_expired(run: Run, catalog_uri: str, catalog: deltars.Catalog) -> None:
    for name in ("features", "labels"):
        catalog.write(name, ROWS)
    then = catalog.table("labels").snapshot().timestamp + timedelta(milliseconds=1)
    time.sleep(0.01)
    catalog.write("features", ROWS, "overwrite")
    vacuum(catalog, "features")
    catalog.table("features").expire("0 seconds", force=True)
    at = (then.isoformat(), "--catalog", catalog_uri)
    listed = run("cut", *at)
    assert [line.split("\t")[:2] for line in listed.stdout.splitlines()] == [["features", ""], ["labels", "0"]]
    assert "Expired, so that it cannot be read as of then: features." in listed.stderr
    found = _json(run, "cut", *at)
    assert [(one["name"], one["version"], one["is_expired"]) for one in found] == [
        ("features", None, True),
        ("labels", 0, False),
    ]
    cut = catalog.snapshot(then)
    assert repr(cut).endswith("1 tables, expired: features>")
    assert "<td>features</td><td>expired</td>" in cut._repr_html_()
