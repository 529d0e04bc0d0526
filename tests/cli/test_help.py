from __future__ import annotations

import ast
import inspect
import subprocess
import sys
from collections.abc import Iterable, Iterator
from importlib import import_module
from types import ModuleType

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


NOT_TO_LIST = (
    *SELDOM,
    *("pyarrow", "numpy", "obstore", "rich", "pyroaring"),
    *("deltars.data.scan", "deltars.log.commit", "deltars.mirror.publisher", "deltars.predicate.tree"),
    *("deltars.protocol", "deltars.spark", "deltars.store.commit.writer", "deltars.transaction.transaction"),
    *("deltars.cli.sql", "deltars.cli.progress"),
)
"""What a command that lists tables must not wait for."""


def test_listing_tables_loads_only_what_it_needs(run: Run) -> None:
    assert run("init").exit_code == 0
    assert _loaded(NOT_TO_LIST, _command("tables")) == []


def test_query_on_duckdb_loads_nothing_that_writes(run: Run) -> None:
    assert run("init").exit_code == 0
    assert run("create", "t", "--schema", "id INT").exit_code == 0
    writers = ("deltars.transaction.transaction", "deltars.store.commit.writer", "deltars.mirror.publisher")
    program = _command("sql", "SELECT count(*) FROM t", "--engine", "duckdb")
    # pyarrow would load pandas, if it is there, for the first value that it converts.
    assert _loaded(("alembic", "psycopg", "pyspark", "pandas", "deltars.importer", *writers), program) == []


def _type_imports(package: ModuleType) -> list[ast.ImportFrom]:
    """Return the imports from its own modules that a package makes for type checkers alone."""
    blocks = [node for node in ast.parse(inspect.getsource(package)).body if isinstance(node, ast.If)]
    imports = (node for block in blocks for node in block.body if isinstance(node, ast.ImportFrom))
    return [node for node in imports if (node.module or "").startswith(package.__name__)]


def test_package_has_the_names_that_it_loads_late() -> None:
    for name in ("catalog", "cli", "data", "log", "mirror", "predicate", "storage", "store", "transaction"):
        package = import_module(f"deltars.{name}")
        typed = {each.name for node in _type_imports(package) for each in node.names}
        assert typed
        assert {each for each in typed if not hasattr(package, each)} == set()
        with pytest.raises(AttributeError, match=f"module 'deltars.{name}' has no attribute 'bigin'"):
            _ = package.bigin


def test_commands_are_found_by_their_names() -> None:
    assert {name: command.name for name, command in main.commands.items()} == {name: name for name in main.commands}


def test_version_is_the_packages(run: Run) -> None:
    assert run("--version").stdout == f"deltars, version {deltars.__version__}\n"


@pytest.mark.parametrize("module", ["deltars", "deltars.cli"])
def test_it_runs_as_a_module(module: str) -> None:
    result = subprocess.run([sys.executable, "-m", module, "--help"], check=True, capture_output=True, text=True)
    assert result.stdout.startswith("Usage: deltars [OPTIONS]")
