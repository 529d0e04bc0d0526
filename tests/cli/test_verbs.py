"""Commands and calls that people try: what is not there yet says what works today, what is misspelt what was meant."""

from __future__ import annotations

import ast
import copy
import pickle
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import deltars
from deltars.cli import main
from deltars.cli.hints import in_commands
from deltars.cli.root import ONLY_IN_PYTHON, SYNONYMS
from deltars.verbs_to_come import CALLS, NAMES, VERBS
from tests.cli.conftest import Run

SOURCES = Path(deltars.__file__).parent


@pytest.mark.parametrize("verb", VERBS)
def test_verb_to_come_is_refused_by_name_with_what_works_today(verb: str, run: Run) -> None:
    result = run(verb, "features", "--where", "id = 1")
    assert result.exit_code == 2
    assert result.stderr.startswith(f"Error: deltars cannot {VERBS[verb].what} yet\nToday: ")
    assert "adopt" not in result.stderr


def test_no_verb_to_come_is_there_already() -> None:
    assert not set(VERBS) & set(main.commands)
    for name in VERBS:
        for kind in (deltars.Table, deltars.Catalog, deltars.Transaction):
            assert not hasattr(kind, name), f"{kind.__name__}.{name} exists: delete the entry"


def test_change_without_a_command_is_answered_with_the_call(run: Run) -> None:
    assert not set(ONLY_IN_PYTHON) & set(main.commands)
    result = run("merge", "features")
    assert result.exit_code == 2
    assert result.stderr.startswith("Error: there is no command merge\nIn Python: tx.merge(table, rows")


def test_call_of_another_library_is_answered_with_ours(tmp_path: Path) -> None:
    with deltars.connect(tmp_path / "lake.db") as catalog, catalog.begin() as tx:
        table = catalog.create_table("t", "id INT")
        merge = table.merge(pa.table({"id": [1]}), on="t.id = s.id")
        cut = catalog.snapshot()
        done = table.optimize(dry_run=True)
        assert pickle.loads(pickle.dumps(done)) == copy.copy(done) == done
        held = {
            "Catalog": catalog,
            "Table": table,
            "Alter": table.alter,
            "Transaction": tx,
            "TransactionResult": catalog.write("u", pa.table({"id": [1]})),
            "CatalogSnapshot": cut,
            "MergeBuilder": merge,
            "Optimized": done,
            "Scan": table.scan(),
        }
        for kind, calls in CALLS.items():
            for name, call in calls.items():
                with pytest.raises(deltars.NotSupportedYet, match=re.escape(f"{kind} has no {name}. Write {call}.")):
                    getattr(held[kind], name)
                assert all(hasattr(table.alter, used) for used in re.findall(r"table\.alter\.(\w+)", call)), call
                right = re.fullmatch(r"(catalog|table|tx|cut)\.(\w+).*|(\w+)\(…\)", call)
                if right is not None:
                    owner = {"catalog": catalog, "table": table, "tx": tx, "cut": cut, None: merge}[right[1]]
                    assert hasattr(owner, right[2] or right[3]), call
        assert not hasattr(catalog, "delete")
        with pytest.raises(AttributeError, match="'MergeBuilder' object has no attribute 'nonsense'"):
            merge.nonsense  # type: ignore[attr-defined]  # noqa: B018


def test_keys_and_loops_are_answered_with_the_call(tmp_path: Path) -> None:
    with deltars.connect(tmp_path / "lake.db") as catalog:
        result = catalog.write("t", pa.table({"id": [1]}))
        for held, said in (
            (catalog.table("t"), r"table\.to_pandas\(columns=\[…\]\)"),
            (catalog.snapshot(), r"cut\.to_pandas\(name\)"),
            (result, r"result\.versions"),
        ):
            uses: list[Callable[[Any], object]] = [lambda one: one["t"], list, lambda one: "t" in one]
            for use in uses:
                with pytest.raises(TypeError, match=said):
                    use(held)
        assert (list(catalog), catalog["t"].name) == (["t"], "t")


def test_option_before_the_command_is_told_its_place(run: Run) -> None:
    result = run("--catalog", "x.db", "tables")
    assert result.exit_code == 2
    assert "--catalog comes after the command: deltars COMMAND --catalog …" in result.stderr


def test_misspelt_change_after_its_table_is_answered_with_the_change(run: Run) -> None:
    for words in (("features", "add-columns"), ("add-columns", "features")):
        assert "No such command 'add-columns'. (Did you mean one of: 'add-column'" in run("alter", *words).stderr


def test_another_word_for_a_command_is_answered_with_the_command(run: Run) -> None:
    assert "Did you mean 'deltars show'?" in run("describe", "features").stderr
    for word, command in SYNONYMS.items():
        assert word not in main.commands
        assert command.split()[0] in main.commands


def test_verb_to_come_is_refused_on_objects_and_hasattr_says_no(tmp_path: Path) -> None:
    with deltars.connect(tmp_path / "lake.db") as catalog:
        catalog.write("features", pa.table({"id": [1]}))
        table = catalog.table("features")
        for held in (catalog, table, catalog.begin()):
            assert not hasattr(held, "clone")
            with pytest.raises(deltars.NotSupportedYet, match=r"cannot clone a table .* Today: catalog\.copy_table"):
                held.clone()  # type: ignore[union-attr]
            with pytest.raises(AttributeError, match="no attribute 'nonsense'") as raised:
                held.nonsense  # type: ignore[union-attr]  # noqa: B018
            assert not isinstance(raised.value, deltars.DeltarsError)
        assert pickle.loads(pickle.dumps(table)) == copy.copy(table) == table


@pytest.mark.backends("sqlite")
def test_misspelt_table_is_answered_with_the_name_that_was_meant(run: Run) -> None:
    with deltars.connect() as catalog:
        for name in ("features", "labels", "Évents"):
            catalog.create_table(name, "id BIGINT")
        for call in (catalog.table, catalog.drop_table, lambda name: catalog.rename_table(name, "x")):
            with pytest.raises(deltars.TableNotFound, match="Did you mean 'features'\\?"):
                call("FEATRUES")
        with pytest.raises(deltars.TableNotFound, match="Did you mean 'Évents'\\?"):
            catalog.table("éventz")
        with pytest.raises(deltars.TableNotFound, match=r"Did you mean 'labels'\? It has: features, labels, Évents"):
            catalog.snapshot().table("lables")
        with pytest.raises(deltars.TableNotFound) as raised:
            catalog.table("something else")
        assert "Did you mean" not in str(raised.value)
        with pytest.raises(deltars.TableNotFound, match=r"catalog\.import_table"):
            catalog.table("s3://bucket/features")
    assert run("show", "featurs").stderr.splitlines()[-1] == "Did you mean 'features'? deltars tables lists the tables."


def _hints() -> Iterator[str]:
    """Yield every hint in the sources, its computed parts as …."""
    for path in SOURCES.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.keyword) and node.arg == "hint":
                parts = node.value.values if isinstance(node.value, ast.JoinedStr) else [node.value]
                yield "".join(str(part.value) if isinstance(part, ast.Constant) else "…" for part in parts)


ONLY_IN_PROGRAMS = (
    "table.changes(first, last).read()",
    "Write deltars.table(",
    "Write catalog.table(",
    "begin the transaction with deltars.connect(",
    "or read without Spark: table.to_arrow()",
    "Use table.alter.add_constraint(…, …)",
    "Set it: catalog.set_properties(table, {…: 'true'})",
    "Call catalog.resolve(…)",
    "inside the function that catalog.run() calls",
    "Write catalog.run(",
    "Write each batch: df.writeStream.foreachBatch(",
    "To write rows, use tx.write(",
    "Write table.head(",
    "Write table.write(",
    "Write the table first, by its name: catalog.table(",
    "Without Spark: table.to_arrow(), cut.to_duckdb(table)",
    "To count rows, use table.count()",
    "Write each_batch(lambda tx, rows: tx.write(",
    "Write catalog=deltars.connect(",
    "Write the frame with deltars.write(table, df), or each batch with",
    "Call it in the function of each_batch(fn)",
    "Write foreachBatch on the stream itself",
)


def test_hints_on_the_command_line_name_commands() -> None:
    calls = re.compile(r"\b(catalog|table|tx|deltars)\.\w+\(")
    left = {hint for hint in map(in_commands, _hints()) if calls.search(hint)}
    assert {hint for hint in left if not any(part in hint for part in ONLY_IN_PROGRAMS)} == set()


@pytest.mark.parametrize("name", [*NAMES, *VERBS])
def test_name_that_people_import_is_answered_with_what_works(name: str) -> None:
    expected = NAMES.get(name) or VERBS[name].today
    with pytest.raises(deltars.NotImportable, match=re.escape(expected)):
        exec(f"from deltars import {name}")
    with pytest.raises(ImportError, match=re.escape(expected)):
        getattr(deltars, name)
    assert name not in dir(deltars)


def test_names_in_the_advice_exist() -> None:
    for advice in NAMES.values():
        for owner, call in re.findall(r"(catalog|deltars)\.(\w+)\(", advice):
            assert call in (deltars.__all__ if owner == "deltars" else dir(deltars.Catalog)), advice


def test_other_name_is_an_import_error_of_python() -> None:
    with pytest.raises(ImportError, match="cannot import name 'DeltaTabel' from 'deltars'"):
        exec("from deltars import DeltaTabel")
    assert not hasattr(deltars, "DeltaTabel")
