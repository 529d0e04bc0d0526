"""No value ever becomes part of SQL: looked for over the whole source tree."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[2] / "src" / "deltars"

RAW_TEXT = {"exec_driver_sql", "text", "literal_column", "SQL", "DDL", "executemany", "executescript"}
"""Take SQL as text, so they are given constants."""

STATEMENT = {"execute", "prepare", "send_query_params", "exec_"}
"""Take a statement: one of SQLAlchemy, whose values are parameters, or a text, which is then not put together."""

EXPLAINED = {
    # Quoted by psycopg: identifiers, and rights that the type checker knows literally.
    ("store/grants.py", "grant", "exec_driver_sql"),
    ("store/grants.py", "_on", "SQL"),
    # Names and values of PostgreSQL settings: constants of the same module.
    ("store/backends/postgresql.py", "_settings", "literal_column"),
    # One of two constants, by the dialect.
    ("store/migrations/versions/0001_the_log.py", "upgrade", "text"),
}


def _calls(tree: ast.AST, function: str = "") -> Iterator[tuple[str, ast.Call]]:
    """Every call, with the name of the function it stands in."""
    for node in ast.iter_child_nodes(tree):
        inside = node.name if isinstance(node, ast.FunctionDef) else function
        if isinstance(node, ast.Call):
            yield inside, node
        yield from _calls(node, inside)


def _name(call: ast.Call) -> str:
    match call.func:
        case ast.Attribute(attr=name) | ast.Name(id=name):
            return name
        case _:
            return ""


def _is_put_together(argument: ast.expr) -> bool:
    match argument:
        case ast.JoinedStr():
            return True
        case ast.BinOp(left=left, right=right):
            return any(isinstance(side, ast.Constant | ast.JoinedStr) for side in (left, right))
        case ast.Call(func=ast.Attribute(attr="format", value=ast.Call() as template)) if _name(template) == "SQL":
            return False  # psycopg quotes the identifiers it puts in
        case ast.Call():
            return _name(argument) in {"format", "join", "replace", "as_string", "str"}
        case _:
            return False


def _is_suspect(call: ast.Call) -> bool:
    if not call.args:
        return False
    if _name(call) in RAW_TEXT:
        return not isinstance(call.args[0], ast.Constant)
    return _name(call) in STATEMENT and _is_put_together(call.args[0])


def _suspects(source: str, module: str) -> set[tuple[str, str, str]]:
    return {(module, function, _name(call)) for function, call in _calls(ast.parse(source)) if _is_suspect(call)}


@pytest.mark.requirement("D-14")
def test_no_sql_text_is_put_together_from_values() -> None:
    found = {
        suspect
        for path in SOURCE.rglob("*.py")
        for suspect in _suspects(path.read_text(), path.relative_to(SOURCE).as_posix())
    }
    assert found == EXPLAINED


@pytest.mark.parametrize(
    "source",
    [
        'connection.execute(f"SELECT * FROM t WHERE name = {name!r}")',
        'connection.execute("SELECT * FROM t WHERE name = " + name)',
        'connection.execute("SELECT * FROM t WHERE name = %s" % name)',
        'cursor.execute("SELECT * FROM {}".format(name))',
        "connection.exec_driver_sql(statement)",
        "select(literal_column(name))",
        "connection.execute(text(query))",
        "driver.execute(sql.SQL(query))",
    ],
)
def test_the_search_finds_sql_that_is_put_together(source: str) -> None:
    assert _suspects(source, "module")
