"""Where the source hands text to a database, and whether that text can hold anything but what stands in the source.

A call that takes SQL text must be given a constant: a literal, or a name that is only ever bound to literals. Core
statements and compositions of psycopg's `sql` are no text. What cannot be told from the source counts as text.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

TAKES_TEXT = {
    # The position of the text among the arguments.
    "exec_driver_sql": 0,
    "text": 0,
    "literal_column": 0,
    "SQL": 0,
    "DDL": 0,
    "executescript": 0,
    "send_query": 0,
    "send_query_params": 0,
    "prepare": 1,
    "exec_": 0,
    "copy": 0,
}
MAY_TAKE_TEXT = {"execute": 0, "executemany": 0, "sql": 0}
"""SQLAlchemy's refuse plain text; a driver's own take it."""

DRIVERS = ("cursor", "driver", "_driver", "libpq", "session")
ELSEWHERE = ("libpq", "pgconn", "op", "sa", "sql", "cursor", "copying", "connection", "driver", "context", "_driver")
"""Names of what may be called so: a method `text` of a printer is none of these."""


@dataclass(frozen=True, slots=True)
class Finding:
    line: int
    function: str
    text: str


def find_built_text(source: str) -> list[Finding]:
    """Every call that is given SQL text which is not constant."""
    tree = ast.parse(source)
    return [
        Finding(call.lineno, _name_of(scopes), ast.unparse(argument))
        for call, scopes in _calls(tree, [tree])
        if (argument := _text_argument(call)) is not None and not _is_constant(argument, scopes)
    ]


def _calls(node: ast.AST, scopes: list[ast.AST]) -> Iterator[tuple[ast.Call, list[ast.AST]]]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Call):
            yield child, scopes
        inner = isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
        yield from _calls(child, [*scopes, child] if inner else scopes)


def _text_argument(call: ast.Call) -> ast.expr | None:
    function = call.func
    name = (
        function.attr if isinstance(function, ast.Attribute) else function.id if isinstance(function, ast.Name) else ""
    )
    receiver = _receiver(function)
    position = TAKES_TEXT.get(name)
    if position is None and name in MAY_TAKE_TEXT:
        argument = _at(call, MAY_TAKE_TEXT[name])
        is_built = argument is not None and _is_building(argument)
        return argument if is_built or receiver in DRIVERS else None
    if position is None or receiver not in ("", *ELSEWHERE) or (name in ("prepare", "copy") and not receiver):
        return None
    return _at(call, position)


def _receiver(function: ast.expr) -> str:
    """The name that a method is called on; of `a.b.c()` it is b, of `f(x).c()` it is f."""
    if not isinstance(function, ast.Attribute):
        return ""
    match function.value:
        case ast.Name(id=name):
            return name
        case ast.Attribute(attr=name):
            return name
        case ast.Call(func=ast.Name(id=name)):
            return name
        case ast.Call(func=ast.Attribute(attr=name)):
            return name
        case _:
            return "?"


def _at(call: ast.Call, position: int) -> ast.expr | None:
    if len(call.args) > position:
        return call.args[position]
    return next((given.value for given in call.keywords if given.arg in ("statement", "query", "text")), None)


def _is_constant(node: ast.expr, scopes: list[ast.AST]) -> bool:
    match node:
        case ast.Constant():
            return True
        case ast.IfExp(body=body, orelse=other):
            return _is_constant(body, scopes) and _is_constant(other, scopes)
        case ast.Name(id=name):
            bound = list(_bindings(name, scopes))
            return bool(bound) and all(value is not None and _is_constant(value, scopes) for value in bound)
        case ast.Call():
            return _is_composed(node)
        case _:
            return False


def _is_composed(node: ast.expr) -> bool:
    """`sql.SQL("… {} …").format(sql.Identifier(name))`, and Core's own constructors: objects, not text."""
    match node:
        case ast.Call(func=ast.Attribute(attr="format" | "join", value=ast.Call(func=ast.Attribute(attr="SQL")))):
            return True
        case ast.Call(func=ast.Name(id=name)):
            return name[:1].isupper() or name in ("select", "insert", "update", "delete", "first_row")
        case ast.Call(func=ast.Attribute(attr=name, value=value)):
            return name in ("values", "where", "with_for_update") and not isinstance(value, ast.Constant)
        case _:
            return False


def _is_building(node: ast.expr) -> bool:
    """Text put together where it is used."""
    match node:
        case ast.JoinedStr():
            return True
        case ast.BinOp(op=ast.Mod() | ast.Add(), left=left, right=right):
            return any(isinstance(side, ast.Constant | ast.JoinedStr) or _is_building(side) for side in (left, right))
        case ast.Call(func=ast.Attribute(attr="format" | "join" | "replace" | "format_map", value=value)):
            return not isinstance(value, ast.Call)
        case _:
            return False


def _bindings(name: str, scopes: list[ast.AST]) -> Iterator[ast.expr | None]:
    """Everything that the nearest scope binds a name to; None where that is not an expression of the source."""
    for scope in reversed(scopes):
        if isinstance(scope, ast.ClassDef):
            continue
        found = list(_bound_in(scope, name))
        if found:
            yield from found
            return


def _bound_in(scope: ast.AST, name: str) -> Iterator[ast.expr | None]:
    arguments = getattr(scope, "args", None)
    if isinstance(arguments, ast.arguments):
        every = (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs, arguments.vararg, arguments.kwarg)
        yield from (None for argument in every if argument is not None and argument.arg == name)
    for node in _own_nodes(scope):
        match node:
            case ast.Assign(targets=targets, value=value):
                for target in targets:
                    yield from _bound_by(target, value, name)
            case ast.AnnAssign(target=target, value=value) if value is not None:
                yield from _bound_by(target, value, name)
            case ast.NamedExpr(target=target, value=value):
                yield from _bound_by(target, value, name)
            case ast.AugAssign(target=ast.Name(id=found)) if found == name:
                yield None
            case ast.For(target=target) | ast.comprehension(target=target):
                yield from (None for part in ast.walk(target) if isinstance(part, ast.Name) and part.id == name)
            case _:
                pass


def _own_nodes(scope: ast.AST) -> Iterator[ast.AST]:
    for child in ast.iter_child_nodes(scope):
        yield child
        if not isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield from _own_nodes(child)


def _bound_by(target: ast.expr, value: ast.expr, name: str) -> Iterator[ast.expr | None]:
    match target, value:
        case ast.Name(id=found), _ if found == name:
            yield value
        case ast.Tuple(elts=targets), ast.Tuple(elts=values) if len(targets) == len(values):
            for inner, part in zip(targets, values, strict=True):
                yield from _bound_by(inner, part, name)
        case ast.Tuple(elts=targets), _:
            yield from (None for part in targets if isinstance(part, ast.Name) and part.id == name)
        case _:
            pass


def _name_of(scopes: list[ast.AST]) -> str:
    names = [scope.name for scope in scopes if isinstance(scope, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)]
    return ".".join(names) or "module"
