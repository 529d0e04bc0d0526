"""`deltars tail`: commits in the terminal."""

from __future__ import annotations

import json
import threading
import time
from pathlib import Path

import pyarrow as pa
import pytest

import deltars
from tests.cli.conftest import Run

ROWS = pa.table({"id": [1]})


def test_last_commits_then_new_ones_come_in_order_each_once(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    uri = f"deltasql://sqlite/{tmp_path}/lake.db"
    monkeypatch.setenv("DELTARS_CATALOG", uri)
    with deltars.connect(uri) as catalog:
        for _ in range(3):
            catalog.write("a", ROWS)

        def commit_later() -> None:
            time.sleep(0.5)
            with catalog.begin(user_metadata="both") as tx:
                tx.write("a", ROWS)
                tx.write("b", ROWS)

        later = threading.Thread(target=commit_later)
        later.start()
        result = run("tail", "--last", "2", "--limit", "3", "--poll", "0.05", "--json")
        later.join()
    lines = [json.loads(line) for line in result.stdout.splitlines()]
    assert [line["tables"] for line in lines] == [{"a": 1}, {"a": 2}, {"a": 3, "b": 0}]
    assert lines[-1]["user_metadata"] == "both"
    assert run("tail", "a", "--limit", "1").stdout.split("\t")[1] == "a=0"
    assert run("tail", "none", "--limit", "1").exit_code == 1
