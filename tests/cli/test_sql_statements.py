"""`deltars sql` with statements: scripts, transactions, and the prompt."""

from __future__ import annotations

import json
import os
import pty
import select
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import deltars
from deltars.cli import prompt as prompt_module
from deltars.cli.output import output_for
from deltars.cli.prompt import Prompt
from deltars.transaction import Engine
from tests.cli.conftest import Run

CREATE = "CREATE TABLE t (id INT, name STRING); INSERT INTO t VALUES (1, 'a'), (2, 'b')"


@pytest.fixture
def lake(run: Run) -> Iterator[deltars.Catalog]:
    with deltars.connect() as catalog:
        assert run("sql", CREATE).exit_code == 0
        yield catalog


def test_statement_prints_what_it_did(lake: deltars.Catalog, run: Run) -> None:
    assert run("sql", "DELETE FROM t WHERE id = 1").stdout == "num_affected_rows\n1\n"
    assert json.loads(run("sql", "UPDATE t SET name = 'z'", "--json").stdout) == [{"num_affected_rows": 1}]
    assert run("sql", "DESCRIBE t").stdout.splitlines()[1] == "id,int,"
    assert run("sql", "SELECT * FROM t@v1 ORDER BY id").stdout == "id,name\n1,a\n2,b\n"
    assert run("sql", "DELETE FROM t", "--as-of", "2026-01-01").exit_code == 2
    assert run("sql", "DELETE FROM t", "--limit", "1").exit_code == 2


def test_script_runs_as_one_transaction_or_not_at_all(lake: deltars.Catalog, run: Run) -> None:
    Path("good.sql").write_text("BEGIN;\nDELETE FROM t WHERE id = 1;\nCREATE TABLE u (id INT);\nCOMMIT;\n-- done\n")
    result = run("sql", "-f", "good.sql")
    assert result.exit_code == 0
    assert result.stdout == "num_affected_rows\n1\ntable,version\nt,2\nu,0\n"
    before = lake.snapshot().versions
    Path("bad.sql").write_text("BEGIN ATOMIC\n  DELETE FROM t;\n  DELETE FROM missing;\nEND")
    result = run("sql", "-f", "bad.sql")
    assert result.exit_code == 1
    assert "there is no table 'missing'" in result.stderr
    assert "at line 3, column 15 of the statement:\n    DELETE FROM missing;\n" in result.stderr
    assert run("sql", "DELETE FROM t; DELETE FORM t").exit_code == 1
    assert lake.snapshot().versions == before


def test_prompt_runs_statements_and_transactions(
    lake: deltars.Catalog, capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(prompt_module, "HISTORY", tmp_path / "history")
    typed = iter(
        [
            *(
                "SELECT id",
                " FROM t ORDER BY id;",
                "BEGIN;",
                "DELETE FROM t;",
                "SELECT count(*) AS n FROM t;",
                "ROLLBACK;",
            ),
            *("\\d", "\\d t", "\\h t", "\\timing", "\\?", "nonsense;", ""),
            *(
                "BEGIN;",
                "DELETE FROM t;",
                "DELETE FROM missing;",
                "SELECT count(*) AS left_over FROM t;",
                "BEGIN;",
                "\\q",
            ),
        ]
    )
    shown = []

    def read(text: str) -> str:
        shown.append(text)
        return next(typed)

    prompt = Prompt(lake, Engine(), output_for(as_json=False), read)
    prompt.run()
    printed = capsys.readouterr()
    assert shown[:4] == ["deltars> ", "     -> ", "deltars> ", "deltars*> "]
    assert printed.out.startswith("1\n2\n2\n0\n")
    assert "NONSENSE is not supported" in printed.err
    assert printed.err.count("The transaction was rolled back.") == 2
    assert "there is no table 'missing'" in printed.err
    assert printed.out.endswith("2\n2\n")
    assert lake.table("t").version == 1
    assert prompt.completions("T") == ["t", "TBLPROPERTIES", "TIMESTAMP AS OF", "TRUNCATE TABLE"]


@pytest.mark.slow
def test_terminal_without_a_query_gets_the_prompt(lake: deltars.Catalog, tmp_path: Path) -> None:
    """Through a pseudo-terminal: Tab completes, Ctrl-C forgets, Ctrl-D leaves, and the history is kept."""
    leader, follower = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "deltars.cli", "sql"],
        stdin=follower,
        stdout=follower,
        stderr=follower,
        env={**os.environ, "HOME": str(tmp_path), "TERM": "dumb", "INPUTRC": os.devnull},
        start_new_session=True,
    )
    os.close(follower)
    seen = ""

    def wait_for(text: str) -> None:
        nonlocal seen
        until = time.monotonic() + 60
        while text not in seen:
            assert time.monotonic() < until, seen
            if select.select([leader], [], [], 1)[0]:
                seen += os.read(leader, 4096).decode(errors="replace")
        seen = seen.partition(text)[2]

    try:
        wait_for("deltars> ")
        os.write(leader, b"SELEC\t name FROM t WHERE id = 1;\n")
        wait_for("SELECT name FROM t")
        wait_for("Time: ")
        wait_for("deltars> ")
        os.write(leader, b"\x04")
        assert process.wait(60) == 0
    finally:
        process.kill()
        os.close(leader)
    assert "SELECT name FROM t" in (tmp_path / ".deltars_history").read_text()
