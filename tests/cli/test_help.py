from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterable, Iterator

import click
import pytest

import deltars
from deltars.cli import main
from tests.cli.conftest import Run

HEAVY = ("pyarrow", "sqlalchemy", "pyspark", "psycopg", "duckdb", "obstore", "numpy", "pandas", "polars")
SELDOM = ("alembic", "sqlglot", "deltars.importer", "pyspark", "pandas", "polars", "duckdb", "psycopg")
"""What few commands need: a command that does not must not wait for it."""


def _commands(group: click.Group, *path: str) -> Iterator[tuple[str, ...]]:
    for name, command in group.commands.items():
        yield (*path, name)
        if isinstance(command, click.Group):
            yield from _commands(command, *path, name)


COMMANDS = list(_commands(main))
LEAVES = [path for path in COMMANDS if not any(other[: len(path)] == path for other in COMMANDS if other != path)]


def test_there_are_commands() -> None:
    assert ("migrate", "up") in LEAVES
    assert ("tables",) in LEAVES


@pytest.mark.parametrize("command", [(), *COMMANDS], ids=" ".join)
def test_help_of_a_command_shows_an_example_that_begins_with_it(command: tuple[str, ...], run: Run) -> None:
    result = run(*command, "--help")
    assert result.exit_code == 0
    _, _, examples = result.stdout.partition("Example:\n")
    assert " ".join(["deltars", *command]) in examples


@pytest.mark.parametrize("command", LEAVES, ids=" ".join)
def test_every_command_takes_json_and_debug_and_a_catalog_if_it_has_to_do_with_one(
    command: tuple[str, ...], run: Run
) -> None:
    options = run(*command, "--help").stdout
    assert all(option in options for option in ("--json", "--debug"))
    assert ("--catalog" in options) == (command != ("completion",))


def _loaded(names: Iterable[str], program: str) -> list[str]:
    """Return which of these modules a new process has loaded at the end of a program."""
    program = f"import sys\n{program}\nprint('loaded:', *(name for name in {tuple(names)!r} if name in sys.modules))\n"
    output = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True).stdout
    return output.splitlines()[-1].split()[1:]


def _command(*arguments: str) -> str:
    return f"from deltars.cli import main\nmain({list(arguments)!r}, standalone_mode=False)"


@pytest.mark.parametrize("arguments", [["--help"], ["migrate", "up", "--help"], ["--version"]], ids=" ".join)
def test_help_loads_no_heavy_library(arguments: list[str]) -> None:
    assert _loaded({*HEAVY, *SELDOM}, _command(*arguments)) == []


def test_import_of_the_package_loads_no_heavy_library() -> None:
    assert _loaded({*HEAVY, *SELDOM}, "import deltars") == []


def test_listing_tables_loads_only_what_it_needs(run: Run) -> None:
    assert run("init").exit_code == 0
    assert _loaded(SELDOM, _command("tables")) == []


def test_version_is_the_packages(run: Run) -> None:
    assert run("--version").stdout == f"deltars, version {deltars.__version__}\n"


def test_it_runs_as_a_module() -> None:
    result = subprocess.run([sys.executable, "-m", "deltars.cli", "--help"], check=True, capture_output=True, text=True)
    assert result.stdout.startswith("Usage: deltars [OPTIONS]")
