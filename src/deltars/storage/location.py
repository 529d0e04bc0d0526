"""Parser of locations: `/data/lake`, `file:///data/my%20lake`, `s3://bucket/lake`, `memory://test/lake`.

A path and an object store's key are used literally, as Spark and the stores' own tools do. Only a `file:` URL is
percent-encoded; it is decoded once. So a directory name with any characters can be appended to a location in its normal
form (`str(location)`).
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from functools import lru_cache
from urllib.parse import unquote

from deltars.errors import ValidationError, brief
from deltars.uri import redacted

OBJECT_STORES = ("s3", "s3a", "gs", "az", "abfs", "abfss")

_URL = re.compile(r"(?P<scheme>[A-Za-z][A-Za-z0-9+.-]*):(?://(?P<authority>[^/]*))?(?P<path>/.*|)", re.DOTALL)
_EXAMPLES = "Write it as /data/lake/features or s3://bucket/lake/features."
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")


@dataclass(frozen=True, slots=True)
class Location:
    """A directory on disk or in an object store.

    `path` is absolute on disk, and a key without outer slashes in an object store.
    """

    scheme: str
    authority: str
    path: str

    @property
    def is_local(self) -> bool:
        return self.scheme == "file"

    def __str__(self) -> str:
        if self.is_local:
            return self.path
        return f"{self.scheme}://{self.authority}" + (f"/{self.path}" if self.path else "")


def parse_location(location: str | os.PathLike[str]) -> Location:
    """Parse a location. Raise ValidationError if it is invalid."""
    text = os.fspath(location) if isinstance(location, os.PathLike) else location
    if not isinstance(text, str):
        raise ValidationError(
            f"a location is a text or a path, got {brief(location)}", field="location", hint=_EXAMPLES
        )
    return _parsed(text)


@lru_cache(maxsize=1024)
def _parsed(text: str) -> Location:
    if text.startswith("/"):
        return _local(text, text)
    match = _URL.fullmatch(text)
    if match is None:
        raise _refused(text, "is neither an absolute path nor a URL such as s3://bucket/path")
    scheme, authority, path = match["scheme"].lower(), match["authority"] or "", match["path"]
    if scheme == "file":
        if authority not in ("", "localhost") or not path:
            raise _refused(text, "does not name a directory of this machine: write file:///path")
        return _local(text, unquote(path))
    if scheme != "memory" and scheme not in OBJECT_STORES:
        raise _refused(text, f"has the unknown scheme {scheme!r}; known are file, memory, {', '.join(OBJECT_STORES)}")
    # This check comes before any error that quotes the location: text before an @, after a ? or after a colon may be a
    # credential (a key with a slash in it ends the authority early). In abfs:// the container is before the @.
    container = authority.partition("@")[0] if scheme.startswith("abfs") else authority
    if "?" in text or any(mark in container for mark in "@:"):
        raise ValidationError(
            f"a {scheme}:// location has only a container and a path: pass credentials in storage_options",
            field="location",
        )
    if not authority:
        raise _refused(text, f"has no container: write {scheme}://container/path")
    key = path.strip("/")
    if key and (reason := key_problem(key)):
        raise _refused(text, reason)
    return Location(scheme, authority, key)


def key_problem(key: str) -> str | None:
    """Return why this is not a path below a location, or None. A key is not percent-encoded."""
    if _CONTROL.search(key):
        return "has a control character in it"
    if any(segment in ("", ".", "..") for segment in key.split("/")):
        return "has an empty segment, '.' or '..' in it"
    return None


def _local(text: str, path: str) -> Location:
    if _CONTROL.search(path):
        raise _refused(text, "has a control character in it")
    # POSIX gives two leading slashes a special meaning, so normpath keeps them.
    return Location("file", "", os.path.normpath("/" + path.lstrip("/")))


def _refused(text: str, reason: str) -> ValidationError:
    """Return the error for a location, quoted without signatures and passwords."""
    scheme = text.partition("://")[0].lower()
    shown = repr(text) if scheme in OBJECT_STORES or "://" not in text else redacted(text)
    return ValidationError(f"the location {shown} {reason}", field="location", hint=_EXAMPLES)
