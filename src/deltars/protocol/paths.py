"""The two forms of a data file's path, and their validation.

    partition values          {"city": "a:b c"}
      │ partition_directory   Hive escaping of characters that a directory name cannot have
      v
    file-system form          city=a%3Ab c/part-0.parquet
      │ path_to_uri           URI escaping of the result  (uri_to_path decodes it, once)
      v
    log form                  city=a%253Ab%20c/part-0.parquet

A file's partition values come from the log, never from its path.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Mapping
from urllib.parse import unquote_to_bytes

from deltars.errors import ValidationError
from deltars.protocol.log_files import LOG

NULL_PARTITION = "__HIVE_DEFAULT_PARTITION__"

_HIVE_ESCAPED = re.compile(r"""[\x00-\x1f"#%'*/:=?\\\x7f{\[\]^]""")
_HIVE_ESCAPE = re.compile(r"%([0-9A-Fa-f]{2})")

# Characters outside those that RFC 2396 allows in a path, as java.net.URI reads it. The colon is escaped too, because
# in the first segment it would end a scheme.
_URI_ESCAPED = re.compile(r"[^A-Za-z0-9_!.~'()*@&=+$,;/-]")
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
_BAD_ESCAPE = re.compile(r"%(?![0-9A-Fa-f]{2})")
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:")
_ROOT = re.compile(rf"\A(?:{_SCHEME.pattern}/?/?)?/?")
_LOCAL_FILE = re.compile(r"\Afile:(?:(?=/(?!/))|//(?:localhost)?(?=/))", re.IGNORECASE)

_PLAIN = re.compile(rf"(?!{LOG}(?:/|\Z))(?:[A-Za-z0-9_=-][A-Za-z0-9_=.-]*/)*[A-Za-z0-9_=-][A-Za-z0-9_=.-]*")


def escape_partition_segment(text: str) -> str:
    """Escape a partition column's name or value for use in a directory name."""
    return _HIVE_ESCAPED.sub(lambda found: f"%{ord(found[0]):02X}", text)


def unescape_partition_segment(text: str) -> str:
    """Reverse `escape_partition_segment`."""
    return _HIVE_ESCAPE.sub(lambda found: chr(int(found[1], 16)), text)


def partition_directory(partition_columns: Iterable[str], values: Mapping[str, str | None]) -> str:
    """Return `a=1/b=x` for serialised partition values, or the empty string for a table without partitions."""
    return "/".join(
        f"{escape_partition_segment(column)}={escape_partition_segment(values[column] or NULL_PARTITION)}"
        for column in partition_columns
    )


def path_to_uri(path: str) -> str:
    """Return a relative file-system path in the form of `add.path`."""
    return _URI_ESCAPED.sub(_uri_escape, path)


def uri_to_path(uri: str) -> str:
    """Decode `add.path` once. A `file:` URI becomes an absolute path; others keep their scheme and authority."""
    if _BAD_ESCAPE.search(uri):
        raise ValidationError(f"the path {uri!r} has a % that is not followed by two hex digits", field="path")
    try:
        return unquote_to_bytes(_LOCAL_FILE.sub("", uri)).decode()
    except UnicodeError as error:
        raise ValidationError(f"the path {uri!r} is not UTF-8 when decoded", field="path") from error


def local_path(path: str) -> str:
    """Return one spelling of a path in the log: `/p` for `/p`, `file:/p` and `file:///p`."""
    return _LOCAL_FILE.sub("", path)


def is_absolute(path: str) -> bool:
    """Return whether a path in the log is absolute, not relative to the table's root."""
    return path.startswith("/") or _SCHEME.match(path) is not None


def is_plain(path: str) -> bool:
    """Return whether a path needs no decoding and no further check, as nearly every path in a log."""
    return _PLAIN.fullmatch(path) is not None


def check_path(path: str, allow_absolute: bool = False) -> str | None:
    """Return why a path, in its log form, is not allowed in the log, or None if it is."""
    if is_plain(path):
        return None
    if not path:
        return "the path is empty"
    absolute = is_absolute(path)
    if absolute and not allow_absolute:
        return "the path is absolute: only paths inside the table are allowed"
    try:
        decoded = uri_to_path(path)
    except ValidationError as error:
        return error.message
    if _CONTROL.search(decoded):
        return "the path has a control character"
    if absolute:
        decoded = _ROOT.sub("", decoded)
    segments = decoded.split("/")
    if ".." in segments:
        return "the path has a .. segment"
    if "." in segments or "" in segments:
        return "the path has an empty or a . segment"
    if segments[0] == LOG and not absolute:
        return f"the path is inside {LOG}"
    return None


def _uri_escape(found: re.Match[str]) -> str:
    character = found[0]
    # Non-ASCII characters are kept, except for spaces, control characters and halves of surrogate pairs.
    if ord(character) >= 0x80 and unicodedata.category(character) not in ("Cc", "Cs", "Zs", "Zl", "Zp"):
        return character
    try:
        return "".join(f"%{byte:02X}" for byte in character.encode())
    except UnicodeEncodeError as error:
        raise ValidationError(f"a path cannot have {character!r}, half a surrogate pair", field="path") from error
