"""What a person sees when it goes wrong: a sentence on stderr, an exit code, and no traceback unless asked for."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

import deltars
from deltars.cli.options import with_common_options
from deltars.cli.output import Output
from deltars.cli.root import Program
from tests.cli.conftest import Run

CONFLICT = deltars.VersionConflict(table="features", expected=3, actual=4)


def _program_that_fails_with(error: Exception) -> click.Group:
    @click.group(cls=Program)
    def program() -> None: ...

    @program.command
    @with_common_options
    def fail(catalog: str | None, output: Output) -> None:
        raise error

    return program


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (CONFLICT, 3),
        (deltars.ConfigError("no such setting"), 2),
        (deltars.UriError("no such backend"), 2),
        (deltars.TableNotFound("no such table"), 1),
        (deltars.DatabaseError("no connection"), 1),
        (deltars.TimeoutError("too long"), 1),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Exception) else str(value),
)
def test_exit_code_tells_the_kind_of_error(error: deltars.DeltarsError, code: int) -> None:
    result = CliRunner().invoke(_program_that_fails_with(error), ["fail"])
    assert result.exit_code == code
    assert result.stdout == ""
    assert result.stderr.startswith(f"Error: {error.message}")
    assert "Traceback" not in result.stderr


def test_what_to_do_stands_on_a_line_of_its_own() -> None:
    result = CliRunner().invoke(_program_that_fails_with(CONFLICT), ["fail"])
    assert result.stderr.splitlines() == [
        "Error: the table is at version 4, the commit expected version 3 [table features]",
        "Run the command again.",
    ]


def test_debug_shows_the_traceback_and_keeps_the_exit_code() -> None:
    result = CliRunner().invoke(_program_that_fails_with(CONFLICT), ["fail", "--debug"])
    assert result.exit_code == 3
    assert "Traceback (most recent call last)" in result.stderr
    assert "in fail" in result.stderr


def test_an_error_of_our_own_making_is_not_hidden() -> None:
    result = CliRunner().invoke(_program_that_fails_with(ZeroDivisionError()), ["fail"])
    assert isinstance(result.exception, ZeroDivisionError)


@pytest.mark.parametrize(
    "arguments",
    [
        ["history"],
        ["history", "features", "--limit", "0"],
        ["nonsense"],
        ["tables", "--nonsense"],
        ["tables", "--catalog", "nonsense"],
        ["tables", "--catalog", "deltasql://oracle/lake"],
        ["tables", "--catalog", "deltasql://sqlite/lake.db/features"],
    ],
    ids=" ".join,
)
def test_a_wrong_command_line_is_exit_code_2(arguments: list[str], run: Run) -> None:
    result = run(*arguments)
    assert result.exit_code == 2
    assert result.stdout == ""
    assert "Error: " in result.stderr


@pytest.mark.parametrize("command", [["tables"], ["history", "features"]], ids=" ".join)
def test_looking_into_a_catalog_that_is_not_there_makes_none(command: list[str], run: Run) -> None:
    result = run(*command)
    assert result.exit_code == 1
    assert "holds no deltars catalog yet" in result.stderr
    assert not Path(".deltars").exists()


def test_a_password_is_never_shown(run: Run) -> None:
    uri = "deltasql://postgres/lake/public?host=127.0.0.1&port=1&user=me&password=hunter2"
    result = run("tables", "--catalog", uri, "--debug")
    assert result.exit_code == 1
    assert "no connection to deltasql://postgres/lake/public" in result.stderr
    assert "hunter2" not in result.output


def test_program_that_logs_at_info_sees_nothing_of_other_libraries(run: Run) -> None:
    """Neither Alembic's steps when a catalog is created, nor a line for each retry."""
    program = (
        "import logging, deltars\n"
        "logging.basicConfig(level=logging.INFO, format='%(name)s')\n"
        "catalog = deltars.connect()\n"
        "table = catalog.create_table('features', 'id BIGINT')\n"
        "def lose_once(tx, seen=[]):\n"
        "    tx.alter('features').set_properties({'a': 'b'})\n"
        "    seen.append(1)\n"
        "    if len(seen) == 1:\n"
        "        table.alter.set_properties({'a': 'c'})\n"
        "catalog.run(lose_once)\n"
        "assert table.version == 2\n"
    )
    ended = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True)
    assert {line.partition(".")[0] for line in ended.stderr.splitlines()} <= {"deltars"}


@pytest.mark.backends("sqlite")
def test_errors_of_the_library_are_in_words_of_the_command_line(run: Run) -> None:
    with deltars.connect() as catalog:
        catalog.create_table("features", "id BIGINT")
        catalog.tag("x1")
    assert run("expire", "features", "--older-than", "soon").stderr.splitlines() == [
        "Error: --older-than must be a span or a time, got 'soon'",
        'Write "30 days" or "2026-01-31".',
    ]
    assert run("expire", "--keep-versions", "0").stderr.startswith("Error: --keep-versions must be 1 or more, got 0\n")
    assert run("vacuum", "features", "--retention", "x").stderr.splitlines() == [
        "Error: --retention must be 0 or more, a text like '7 days', got 'x'",
        'Examples: "14 days", "1 day 12 hours".',
    ]
    assert "remove it first: deltars untag x1." in run("tag", "x1").stderr
    assert "(deltars untag NAME)" in run("drop", "features", "--delete-data", "--yes").stderr
    assert "temporary view" not in run("sql", "SELECT * FROM feature", "--engine", "duckdb").stderr
    run("untag", "x1")
    run("release", "features")
    dropped = run("drop", "features", "--delete-data", "--yes").stderr
    assert "deltars drop TABLE without --delete-data removes" in dropped
    assert "run deltars adopt TABLE first" in dropped
    skipped = run("vacuum", "--all").stderr
    assert "adopt it first: deltars adopt TABLE." in skipped
    assert "catalog.adopt" not in skipped


def test_argument_that_a_command_does_not_take_is_answered_by_the_option(run: Run) -> None:
    for arguments, said in (
        (("delete", "t", "id = 1"), "Write --where CONDITION."),
        (("restore", "t", "1"), "Write --version N"),
        (("sql", "SELECT", "1"), "Put the query in quotes."),
    ):
        result = run(*arguments)
        assert result.exit_code == 2
        assert said in result.stderr
    assert "Did you mean 'deltars sql'?" in run("count", "t").stderr


def test_two_formats_are_refused_and_a_property_that_is_not_set_is_reported(run: Run) -> None:
    assert run("init").exit_code == 0
    assert run("create", "t", "--schema", "id INT").exit_code == 0
    both = run("head", "t", "--json", "--format", "csv")
    assert both.exit_code == 2
    assert "Give --json or --format csv, not both." in both.stderr
    assert run("head", "t", "--json", "--format", "json").exit_code == 0
    unset = run("properties", "t", "--unset", "owner")
    assert unset.exit_code == 0
    assert unset.stderr == "Note: owner is not set.\n"
    assert len(run("history", "t", "-n", "1").stdout.splitlines()) == 1
