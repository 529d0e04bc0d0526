"""Comparison of locations: whether two are the same directory, or one is inside the other, in any spelling.

| written differently             | compared as                                                        |
|---------------------------------|--------------------------------------------------------------------|
| `/a/`, `/a/x/..`, `file:///a`   | the normal form of a location                                      |
| a symbolic link                 | its target                                                         |
| `/A` and `/a`                   | one directory, if the file system considers them the same file     |
| `s3a://b/x`, `abfs://c@h/x`     | `s3://b/x`, `abfss://c@h/x`                                        |
"""

from __future__ import annotations

import os
import unicodedata
from enum import StrEnum

from deltars.errors import ValidationError
from deltars.storage.location import parse_location

_ONE_STORE = {"s3a": "s3", "abfs": "abfss"}


class Relation(StrEnum):
    """Relation of one location to another."""

    SAME = "is"
    INSIDE = "is inside"
    AROUND = "contains"


class Places:
    """Comparison of locations. Use a new one for each comparison: it caches the targets of symbolic links."""

    def __init__(self) -> None:
        self._parents: dict[str, str] = {}

    def relation(self, location: str, other: str) -> Relation | None:
        """Return the relation of `location` to `other`, or None if they do not overlap."""
        mine, theirs = self.directory(location), self.directory(other)
        if mine == theirs:
            return Relation.SAME
        if mine.startswith(theirs):
            return Relation.INSIDE
        if theirs.startswith(mine):
            return Relation.AROUND
        return _relation_without_case(mine, theirs)

    def below(self, location: str, root: str) -> str | None:
        """Return the path of `location` below `root`, without outer slashes; None if it is not below it."""
        if self.relation(location, root) is not Relation.INSIDE:
            return None
        # Counted in names, not characters: a name may change its length with its case.
        above = self.directory(root).count("/")
        return "/".join(self.directory(location).split("/")[above:]).rstrip("/")

    def directory(self, location: str) -> str:
        """Return the directory in its canonical spelling, with a trailing slash."""
        try:
            place = parse_location(location)
        except ValidationError:
            # An old catalog may hold an invalid location, which is compared as text.
            return location.rstrip("/") + "/"
        if place.is_local:
            return self._resolved(place.path).rstrip("/") + "/"
        scheme = _ONE_STORE.get(place.scheme, place.scheme)
        return f"{scheme}://{place.authority}/{place.path}".rstrip("/") + "/"

    def _resolved(self, path: str) -> str:
        # Most tables share a parent directory, so it is resolved once.
        parent, name = os.path.split(path)
        if os.path.islink(path) or not name:
            return os.path.realpath(path)
        if parent not in self._parents:
            self._parents[parent] = os.path.realpath(parent)
        return os.path.join(self._parents[parent], name)


def _relation_without_case(mine: str, theirs: str) -> Relation | None:
    """Compare two paths that differ only in case or Unicode form, by asking the file system."""
    folded, other = _folded(mine), _folded(theirs)
    if not mine.startswith("/") or not (folded.startswith(other) or other.startswith(folded)):
        return None
    depth = min(mine.count("/"), theirs.count("/"))
    above = ["/".join(path.split("/")[:depth]) for path in (mine, theirs)]
    try:
        if not os.path.samefile(*above):
            return None
    except OSError:
        return None
    if folded == other:
        return Relation.SAME
    return Relation.INSIDE if folded.startswith(other) else Relation.AROUND


def _folded(path: str) -> str:
    return unicodedata.normalize("NFC", path).casefold()
