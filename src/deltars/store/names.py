"""Rules for table names: which names are valid, which are the same, and the namespaces that they are in.

Names are stored as written and compared without regard to case, as in SQL. A name with one dot is in a namespace:
`sales.orders` is the table `orders` of `sales`. A namespace exists as long as one of its tables does.
"""

from __future__ import annotations

import unicodedata
from collections import defaultdict
from collections.abc import Iterable
from difflib import get_close_matches
from uuid import UUID

from deltars.errors import TableNotFound, ValidationError, brief

MAX_NAME_LENGTH = 500
"""At most 2,000 bytes in UTF-8: an entry of PostgreSQL's index on names can hold 2,704."""


def name_key(name: str) -> str:
    """Return a key that is equal for equal names: it ignores case and the composition of accented letters."""
    return unicodedata.normalize("NFC", unicodedata.normalize("NFC", name).casefold())


def is_same_name(name: str, other: str) -> bool:
    return name_key(name) == name_key(other)


def namespace_of(name: str) -> str | None:
    """Return the namespace of a table's name; None for a name without one."""
    namespace, dot, table = name.partition(".")
    return namespace if dot and namespace and table and "." not in table else None


def namespaces_in(names: Iterable[str]) -> list[str]:
    """Return the namespaces of tables, sorted, each once in its first spelling."""
    found: dict[str, str] = {}
    for name in sorted(names):
        namespace = namespace_of(name)
        if namespace is not None:
            found.setdefault(name_key(namespace), namespace)
    return [found[key] for key in sorted(found)]


def check_namespace(namespace: str, known: Iterable[str]) -> str:
    """Return the key of a namespace that exists. Raise if none of the names is in it."""
    if not isinstance(namespace, str):
        raise ValidationError(
            f"a namespace is a text, got {brief(namespace)}", field="namespace", hint='Write "sales".'
        )
    spaces = namespaces_in(known)
    if name_key(namespace) not in map(name_key, spaces):
        raise ValidationError(
            f"there is no namespace {_shortened(namespace)}",
            field="namespace",
            hint=f"{meant(namespace, spaces)}Namespaces are: {', '.join(spaces) or 'none'}. The first table"
            " namespace.table makes one.",
        )
    return name_key(namespace)


def same_names(tables: Iterable[tuple[UUID, str]]) -> list[list[tuple[UUID, str]]]:
    """Return the groups of tables that have the same name."""
    groups: dict[str, list[tuple[UUID, str]]] = defaultdict(list)
    for table_id, name in sorted(tables, key=lambda table: (table[1], str(table[0]))):
        groups[name_key(name)].append((table_id, name))
    return [group for group in groups.values() if len(group) > 1]


def meant(name: str, known: Iterable[str]) -> str:
    """Return a question with the names that the writer of a wrong one may have meant, or an empty text."""
    keys = {name_key(one): one for one in known}
    # A name without its namespace, or with one too many, is the most likely mistake.
    key = name_key(name)
    last = key.rpartition(".")[2]
    close = [one for other, one in keys.items() if other.endswith("." + key) or (other == last and other != key)]
    close += [keys[other] for other in get_close_matches(key, keys) if keys[other] not in close]
    return f"Did you mean {' or '.join(map(repr, close))}? " if close else ""


def hint_for_missing(table: object, known: Iterable[str]) -> str:
    """Return what to do about a table that does not exist."""
    name = str(table)
    if "/" in name and not is_id(name):
        return "A table is given by its name. To import the Delta table at a location: catalog.import_table(location)."
    return f"{meant(name, known)}catalog.tables() lists the tables."


def was_dropped(table_id: UUID, name: str | None = None) -> TableNotFound:
    """Return the error for a table that was dropped."""
    return TableNotFound(
        f"the table {name!r} was dropped" if name else "the table was dropped",
        table=name,
        table_id=table_id,
        hint="Older cuts still have it: catalog.snapshot(as_of=…). catalog.tables() lists the tables of today.",
    )


def check_name(name: str) -> None:
    if not isinstance(name, str):
        raise ValidationError(
            f"a table's name is a text, got {brief(name)}", field="name", hint='Write the name in quotes: "features".'
        )
    problem = _name_problem(name)
    if problem:
        raise ValidationError(
            f"{_shortened(name)} is not a table name: it {problem}",
            field="name",
            hint="Use letters, digits and _, such as daily_features.",
        )


def _name_problem(name: str) -> str | None:
    if not name:
        return "is empty"
    if len(name) > MAX_NAME_LENGTH:
        return f"has {len(name)} characters; at most {MAX_NAME_LENGTH} are allowed"
    if name != name.strip():
        return "begins or ends with a space"
    if "/" in name:
        return "contains a slash"
    # Cc: control characters. Cs: half a surrogate pair, which a database cannot store as text.
    if any(unicodedata.category(character) in ("Cc", "Cs") for character in name):
        return "contains a control character"
    if is_id(name):
        return "looks like a table id"
    return None


def is_id(name: str) -> bool:
    try:
        UUID(name)
    except ValueError:
        return False
    return True


def _shortened(name: str) -> str:
    return repr(name if len(name) <= 100 else name[:100] + "…")
