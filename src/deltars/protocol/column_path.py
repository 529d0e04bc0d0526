"""Names of columns as people write them, and as paths.

address.city                ("address", "city")               a field of a struct
tags.element.name           ("tags", "element", "name")       inside an array; inside a map: key, value
`a.b`.`it``s`               ("a.b", "it`s")                   names with other characters
"""

from __future__ import annotations

import re
from typing import TypeAlias

from deltars.errors import ValidationError, brief

ColumnPath: TypeAlias = tuple[str, ...]
"""Names from a top-level column down to a nested one."""

_LIST_ENTRY = re.compile(r"(?:`(?:[^`]|``)*`|[^,`])+")
_NAME = re.compile(r"\s*(?:`((?:[^`]|``)+)`|([^.`\s](?:[^.`]*[^.`\s])?))\s*")
_PLAIN = re.compile(r"\w+")


def path_of(column: str, *, field: str = "column") -> ColumnPath:
    """Return the path of a column. Raise `ValidationError` if the text is no name."""
    if not isinstance(column, str):
        raise ValidationError(
            f"a column's name is a text, got {brief(column)}", field=field, hint='Write "id", or "address.city".'
        )
    path: list[str] = []
    at = 0
    while True:
        found = _NAME.match(column, at)
        if found is None:
            break
        path.append(found[1].replace("``", "`") if found[1] else found[2])
        at = found.end()
        if at == len(column):
            return tuple(path)
        if column[at] != ".":
            break
        at += 1
    raise ValidationError(
        f"{brief(column)} is no name of a column",
        field=field,
        hint="Write a.b for the field b of the struct a, and a name with other characters in backquotes.",
    )


def paths_in(columns: str) -> list[ColumnPath]:
    """Return the paths of a list such as `a, b.c, `d.e``. What is no name is skipped."""
    return [
        tuple(quoted.replace("``", "`") if quoted else plain for quoted, plain in _NAME.findall(column))
        for column in _LIST_ENTRY.findall(columns)
    ]


def path_text(path: ColumnPath) -> str:
    """Return a path as people write it."""
    return ".".join(name if _PLAIN.fullmatch(name) else quoted(name) for name in path)


def quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


def key_of(path: ColumnPath) -> ColumnPath:
    """Return a key that is equal for equal columns: upper and lower case are the same."""
    return tuple(name.lower() for name in path)


def begins_with(path: ColumnPath, prefix: ColumnPath) -> bool:
    """Return whether a path is the prefix or inside it. Upper and lower case are the same."""
    return key_of(path[: len(prefix)]) == key_of(prefix)
