"""Table names: what may be one, and which two are the same.

Names are kept as they are written, and compared without regard to case, as SQL does it.
"""

from __future__ import annotations

import unicodedata
from collections import defaultdict
from collections.abc import Iterable
from uuid import UUID

from deltars.errors import ValidationError

MAX_NAME_LENGTH = 500
"""In UTF-8 at most 2,000 bytes: a row of PostgreSQL's index on names holds no more than 2,704."""


def name_key(name: str) -> str:
    """The same for names that are the same: neither case counts, nor how a letter with an accent is composed."""
    return unicodedata.normalize("NFC", unicodedata.normalize("NFC", name).casefold())


def is_same_name(name: str, other: str) -> bool:
    return name_key(name) == name_key(other)


def alike(tables: Iterable[tuple[UUID, str]]) -> list[list[tuple[UUID, str]]]:
    """The tables whose names are the same, group by group."""
    groups: dict[str, list[tuple[UUID, str]]] = defaultdict(list)
    for table_id, name in sorted(tables, key=lambda table: (table[1], str(table[0]))):
        groups[name_key(name)].append((table_id, name))
    return [group for group in groups.values() if len(group) > 1]


def check_name(name: str) -> None:
    problem = _name_problem(name)
    if problem:
        raise ValidationError(f"{_shortened(name)} is not a table name: it {problem}", field="name")


def _name_problem(name: str) -> str | None:
    if not name:
        return "is empty"
    if len(name) > MAX_NAME_LENGTH:
        return f"has {len(name)} characters, and {MAX_NAME_LENGTH} is the most"
    if name != name.strip():
        return "begins or ends with a space"
    if "/" in name:
        return "has a slash"
    # Cc: control characters. Cs: half a surrogate pair, which is no text that a database could keep.
    if any(unicodedata.category(character) in ("Cc", "Cs") for character in name):
        return "has a control character"
    if _reads_as_id(name):
        return "reads as a table's id"
    return None


def _reads_as_id(name: str) -> bool:
    try:
        UUID(name)
    except ValueError:
        return False
    return True


def _shortened(name: str) -> str:
    return repr(name if len(name) <= 100 else name[:100] + "…")
