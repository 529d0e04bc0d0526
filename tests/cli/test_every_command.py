"""Every command there is, run once with --json on a catalog that has something in it."""

from __future__ import annotations

import json
from pathlib import Path
from uuid import uuid4

import pyarrow as pa
import pytest
from deltalake import write_deltalake

import deltars
from tests.cli.conftest import Run
from tests.cli.test_help import LEAVES

ROWS = pa.table({"id": [1, 2, 3], "day": ["a", "b", "b"]})

ELSEWHERE = {
    ("mirror", "run"): "runs until it is told to stop",
    ("migrate", "grants"): "PostgreSQL only: test_migrate.py",
    ("demo",): "needs Spark: tests/demo",
    ("console",): "runs until it is told to stop: tests/console",
}

COMMANDS = {
    ("init",): (),
    ("tables",): (),
    ("namespaces",): (),
    ("create",): ("empty", "--schema", "id BIGINT NOT NULL, day STRING, n INT", "--property", "owner=me"),
    ("load",): ("empty", "{here}/rows.csv"),
    ("head",): ("features", "-n", "2"),
    ("sql",): ("SELECT count(*) FROM features",),
    ("alter", "add-column"): ("empty", "note", "STRING"),
    ("alter", "rename-column"): ("empty", "note", "text", "--enable-column-mapping"),
    ("alter", "move-column"): ("empty", "text", "--first"),
    ("alter", "change-type"): ("empty", "n", "BIGINT", "--enable-type-widening"),
    ("alter", "drop-column"): ("empty", "text"),
    ("alter", "cluster-by"): ("empty", "id"),
    ("alter", "set-not-null"): ("empty", "id"),
    ("alter", "set-property"): ("empty", "a=b"),
    ("alter", "unset-property"): ("empty", "a"),
    ("alter", "comment"): ("empty", "day", "text"),
    ("alter", "drop-not-null"): ("empty", "id"),
    ("alter", "set-default"): ("empty", "day", "'x'"),
    ("alter", "add-constraint"): ("empty", "positive", "id > 0"),
    ("alter", "drop-constraint"): ("empty", "positive"),
    ("drop",): ("empty", "--yes"),
    ("show",): ("features",),
    ("history",): ("features",),
    ("changes",): ("features", "--start", "0", "--end", "{txn}"),
    ("files",): ("features", "--where", "day = 'a'"),
    ("diff",): ("features", "0", "1"),
    ("tail",): ("features", "--limit", "1"),
    ("cut",): (),
    ("tag",): ("q3", "--description", "d"),
    ("tags",): (),
    ("restore",): ("features", "--version", "0"),
    ("txn",): ("{txn}",),
    ("conflicts",): ("features",),
    ("lineage",): ("features", "--downstream"),
    ("resolve",): (str(uuid4()),),
    ("delete",): ("features", "--where", "day = 'z'"),
    ("update",): ("features", "--set", "day=day", "--where", "day = 'z'"),
    ("properties",): ("features", "--set", "owner=me"),
    ("expire",): ("features", "--older-than", "30 days"),
    ("purge-dropped",): ("--yes",),
    ("optimize",): ("features",),
    ("vacuum",): ("features",),
    ("advise",): (),
    ("maintain",): (),
    ("verify",): ("features",),
    ("untag",): ("q3",),
    ("rename",): ("labels", "targets"),
    ("release",): ("features",),
    ("adopt",): ("features",),
    ("import",): ("{here}/events",),
    ("mirror", "status"): (),
    ("mirror", "once"): (),
    ("mirror", "clean"): ("features",),
    ("mirror", "accept-log"): ("features",),
    ("rebuild",): ("{warehouse}", "--catalog", "deltasql://sqlite/again.db"),
    ("doctor",): ("--no-spark",),
    ("completion",): ("bash",),
    ("migrate", "status"): (),
    ("migrate", "up"): (),
    ("migrate", "sql"): (),
    ("migrate", "down"): ("--yes",),
}


def test_no_command_is_left_out() -> None:
    assert {*COMMANDS, *ELSEWHERE} == set(LEAVES)


def test_every_command_answers_in_json(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In the order of the list, each on what the one before left."""
    uri = f"deltasql://sqlite/{tmp_path}/lake.db"
    monkeypatch.setenv("DELTARS_CATALOG", uri)
    with deltars.connect(uri) as catalog:
        with catalog.begin() as tx:
            tx.write("features", ROWS, partition_by=["day"])
            tx.write("labels", ROWS)
        catalog.write("features", ROWS)
        places = {"txn": str(tx.id), "here": str(tmp_path), "warehouse": str(catalog.warehouse)}
    write_deltalake(str(tmp_path / "events"), pa.table({"id": [1]}))
    (tmp_path / "rows.csv").write_text("id,day\n1,a\n")
    for command, arguments in COMMANDS.items():
        result = run(*command, *(argument.format(**places) for argument in arguments), "--json")
        assert result.exit_code == 0, f"{command}: {result.stderr}"
        assert isinstance(json.loads(result.stdout), dict | list), command
        # What is shown while it works is for terminals alone.
        assert result.stderr == "" or command in (("migrate", "down"), ("drop",)), command
