"""Pages that mkdocs generates from the code when it builds the site, so that they cannot become outdated.

README.md, CHANGELOG.md, …      ─▶ index.md, changelog.md, …
deltars.__all__, docstrings     ─▶ reference/api/<name>.md, functions.md
the click commands              ─▶ reference/commands.md
errors.py                       ─▶ reference/errors.md
store.schema, store.views       ─▶ reference/tables/<table>.md, views.md
"""

from __future__ import annotations

import ast
import inspect
import os
import re
import textwrap
from collections.abc import Callable, Iterator
from dataclasses import fields, is_dataclass
from enum import Enum
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Any, is_typeddict

import click
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page
from sqlalchemy import Table
from sqlalchemy.dialects import postgresql
from sqlalchemy.schema import CreateIndex

import deltars
from deltars import errors
from deltars.cli import main as program
from deltars.store import schema
from deltars.store.rows import TABLE_OF
from deltars.store.views import VIEWS

ROOT = Path(__file__).parent.parent
ROOT_PAGES = {
    "README.md": "index.md",
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
    "SECURITY.md": "security.md",
}
"""Files of the project's directory that are pages of the site."""
_LINK = re.compile(r"\[([^\]]+)\]\(([^)#\s]+)(#[^)\s]*)?\)")


# -- hooks of mkdocs ---------------------------------------------------------------------------------------------------


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Add the classes, the catalog's tables and the decisions to the menu."""
    menu: dict[str, list[Any]] = {next(iter(entry)): next(iter(entry.values())) for entry in config.nav or []}
    menu["Reference"] += [
        {"API": [{"Functions": "reference/api/functions.md"}, *({c.__name__: _page(c)} for c in _classes())]},
        {
            "Catalog tables": [
                *({name: f"reference/tables/{name}.md"} for name in _tables()),
                "reference/tables/views.md",
            ]
        },
    ]
    decisions = sorted((ROOT / "docs" / "decisions").glob("0*.md"))
    listed = [f"decisions/{path.name}" for path in decisions]
    menu["Explanation"].append({"Decisions": ["decisions/README.md", *listed]})
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    for path, text in pages():
        files.append(File.generated(config, path, content=text))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Lead links to files of the project to their pages, and replace those without a page with the file's name."""
    here = Path(page.file.src_uri).parent

    def unlinked(link: re.Match[str]) -> str:
        text, target = link[1], link[2]
        if "://" in target or files.get_file_from_path(os.path.normpath(here / target)) is not None:
            return link[0]
        file = Path(os.path.relpath(ROOT / "docs" / here / target, ROOT))
        if not (ROOT / file).exists():
            return link[0]  # the target does not exist: mkdocs reports it
        if file.name in ROOT_PAGES and file.parent == Path():
            return f"[{text}]({os.path.relpath(ROOT_PAGES[file.name], here)}{link[3] or ''})"
        return f"`{text}`" if text.strip("`") == file.as_posix() else f"{text} (`{file.as_posix()}`)"

    return _LINK.sub(unlinked, markdown)


# -- the pages ---------------------------------------------------------------------------------------------------------


def pages() -> Iterator[tuple[str, str]]:
    for file, page in ROOT_PAGES.items():
        yield page, _root_page(file)
    yield "reference/api/functions.md", _functions()
    for cls in _classes():
        yield _page(cls), _class_page(cls)
    yield "reference/commands.md", _commands()
    yield "reference/errors.md", _errors()
    for name, table in _tables().items():
        yield f"reference/tables/{name}.md", _table_page(table)
    yield "reference/tables/views.md", _views()


def _root_page(file: str) -> str:
    # Links become relative to docs/, the root of the site.
    return re.sub(
        r"\]\((?!https?:)([^)]+)\)",
        lambda link: f"]({link[1].removeprefix('docs/') if link[1].startswith('docs/') else '../' + link[1]})",
        (ROOT / file).read_text(),
    )


def _public() -> Iterator[tuple[str, Any]]:
    for name in deltars.__all__:
        yield name, getattr(deltars, name)


def _classes() -> list[type]:
    return [value for _, value in _public() if isinstance(value, type) and not issubclass(value, errors.DeltarsError)]


def _page(cls: type) -> str:
    return f"reference/api/{cls.__name__}.md"


def _functions() -> str:
    parts = ["# Functions", ""]
    for name, value in _public():
        if inspect.isfunction(value):
            parts += [f"## deltars.{name}", "", _signature(f"deltars.{name}", value), "", _doc(value), ""]
        elif inspect.ismodule(value):
            parts += [f"## deltars.{name}", "", _doc(value), ""]
            for each in (getattr(value, own) for own in value.__all__ if inspect.isfunction(getattr(value, own))):
                parts += [_signature(f"deltars.{name}.{each.__name__}", each), "", _doc(each), ""]
    parts += ["## Types of arguments", ""]
    parts += [f"- `deltars.{name}`: `{value}`" for name, value in _public() if not _has_doc(value)]
    return "\n".join(parts)


def _has_doc(value: Any) -> bool:
    """Whether a public name is a class, a function or a module; the others are aliases of types."""
    return isinstance(value, type) or inspect.isfunction(value) or inspect.ismodule(value)


def _class_page(cls: type) -> str:
    parts = [f"# {cls.__name__}", "", _doc(cls), ""]
    types = {f.name: f.type for f in fields(cls)} if is_dataclass(cls) else {}
    if is_typeddict(cls) or hasattr(cls, "__struct_fields__"):
        types = {name: getattr(note, "__forward_arg__", note) for name, note in cls.__annotations__.items()}
    if types:
        notes = _notes(cls)
        parts += ["| field | type | means |", "|---|---|---|"]
        parts += [f"| `{name}` | {_code(type_)} | {notes.get(name, '')} |" for name, type_ in types.items()]
        parts.append("")
    if issubclass(cls, Enum):
        parts += [f"- `{member.name}`: {member.value}" for member in cls]
        return "\n".join(parts)
    if is_typeddict(cls):
        return "\n".join(parts)
    for name, member in inspect.getmembers(cls):
        if name.startswith("_"):
            continue
        getter = member.fget if isinstance(member, property) else getattr(member, "func", None)
        if isinstance(member, property | cached_property) and getter is not None:
            kind = inspect.get_annotations(getter).get("return", "")
            parts += [f"## {name}", "", f"`{name}: {kind}`", "", _doc(member), ""]
        elif inspect.isfunction(member) or inspect.ismethod(member):
            parts += [f"## {name}", "", _signature(name, member), "", _doc(member), ""]
    return "\n".join(parts)


def _commands() -> str:
    parts = ["# Commands", "", "Every command of `deltars`, as `--help` prints it.", ""]

    def add(command: click.Command, path: str) -> None:
        text = command.get_help(click.Context(command, info_name=path, max_content_width=100))
        parts.extend([f"## {path}", "", "```", text, "```", ""])
        if isinstance(command, click.Group):
            for name, below in command.commands.items():
                add(below, f"{path} {name}")

    add(program, "deltars")
    return "\n".join(parts)


def _errors() -> str:
    parts = ["# Errors", "", (inspect.getdoc(errors) or "").partition("\n")[2].strip(), ""]
    parts += ["A retryable error may not occur again when you retry.", ""]

    def add(cls: type[errors.DeltarsError]) -> None:
        parents = " and ".join(f"`{base.__name__}`" for base in cls.__bases__ if base is not Exception)
        own = cls.__dict__.get("__init__")
        names = [] if own is None else list(inspect.signature(own).parameters)
        more = [f"`{name}`" for name in names if name not in ("self", "message", "where")]
        parts.extend([f"## {cls.__name__}", "", inspect.getdoc(cls) or "", ""])
        facts = [f"Is a {parents}." if parents else "", f"Has the fields {', '.join(more)}." if more else ""]
        facts += ["Retryable." if cls.retryable else ""]
        parts.extend([" ".join(fact for fact in facts if fact), ""])
        for below in cls.__subclasses__():
            add(below)

    add(errors.DeltarsError)
    return "\n".join(parts)


def _tables() -> dict[str, Table]:
    return dict(schema.metadata.tables)


def _table_page(table: Table) -> str:
    dialect = postgresql.dialect()  # type: ignore[no-untyped-call]
    keys = {column.name for column in table.primary_key}
    parts = [f"# {table.name}", "", _table_description(table.name), ""]
    parts += ["| column | type on PostgreSQL | null | |", "|---|---|---|---|"]
    for column in table.columns:
        said = ["primary key"] if column.name in keys else []
        said += [f"→ [{key.column.table.name}]({key.column.table.name}.md)" for key in column.foreign_keys]
        kind = column.type.compile(dialect)
        parts.append(f"| `{column.name}` | `{kind}` | {'yes' if column.nullable else 'no'} | {', '.join(said)} |")
    indexes = sorted(table.indexes, key=lambda index: str(index.name))
    if indexes:
        parts += ["", "## Indexes", "", "```sql"]
        parts += [f"{str(CreateIndex(index).compile(dialect=dialect)).strip()};" for index in indexes]
        parts += ["```"]
    return "\n".join(parts) + "\n"


def _views() -> str:
    parts = ["# Views", "", "Views show the same rows in the words of a versioned dataset catalog.", ""]
    for name, query in VIEWS.items():
        columns = ", ".join(f"`{column.name}`" for column in query.selected_columns)
        parts += [f"## {name}", "", columns, ""]
    return "\n".join(parts)


# -- docstrings and signatures -----------------------------------------------------------------------------------------


def _doc(value: Any) -> str:
    return textwrap.dedent(inspect.getdoc(value) or "")


def _code(annotation: Any) -> str:
    return f"`{annotation}`".replace("|", "\\|")


def _signature(name: str, function: Callable[..., Any]) -> str:
    signature = inspect.signature(function)
    parameters = [p for p in signature.parameters.values() if p.name != "self"]
    shown, is_named_only = [], False
    for parameter in parameters:
        if parameter.kind is parameter.KEYWORD_ONLY and not is_named_only:
            is_named_only = True
            shown.append("*")
        star = "*" * (parameter.kind is parameter.VAR_POSITIONAL) + "**" * (parameter.kind is parameter.VAR_KEYWORD)
        is_named_only = is_named_only or star == "*"
        note = "" if parameter.annotation is parameter.empty else f": {parameter.annotation}"
        default = "" if parameter.default is parameter.empty else f" = {parameter.default!r}"
        shown.append(f"{star}{parameter.name}{note}{default}")
    answer = "" if signature.return_annotation is signature.empty else f" -> {signature.return_annotation}"
    one_line = f"{name}({', '.join(shown)}){answer}"
    if len(one_line) > 100:
        one_line = "\n".join([f"{name}(", *(f"    {each}," for each in shown), f"){answer}"])
    return f"```python\n{one_line}\n```"


def _notes(cls: type) -> dict[str, str]:
    """Return the docstrings below the fields of a class, by field."""
    [body] = [
        node.body for node in ast.parse(textwrap.dedent(inspect.getsource(cls))).body if isinstance(node, ast.ClassDef)
    ]
    found = {}
    for node, after in pairwise(body):
        if isinstance(node, ast.AnnAssign) and isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant):
            assert isinstance(node.target, ast.Name)
            found[node.target.id] = " ".join(str(after.value.value).split())
    return found


def _table_description(table: str) -> str:
    """Return the docstring of the action that a table holds, or its line in the docstring of `store.schema`."""
    for action, name in TABLE_OF.items():
        if name == table:
            return f"The `{action.__name__}` actions of each version, in order (`ord`). {_doc(action)}"
    for line in (inspect.getdoc(schema) or "").splitlines():
        name, _, said = line.strip().partition("  ")
        if name == table:
            return f"{said.strip().capitalize()}."
    raise LookupError(f"the docstring of {schema.__name__} does not describe {table}")
