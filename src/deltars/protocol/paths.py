"""The two forms of a data file's path, and which paths are legal.

    partition values          {"city": "a:b c"}
      │ partition_directory   Hive escaping: what cannot stand in a directory's name
      v
    file-system form          city=a%3Ab c/part-0.parquet
      │ path_to_uri           the escapes of a URI on top  (uri_to_path decodes them, once)
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

NULL_PARTITION = "__HIVE_DEFAULT_PARTITION__"

_HIVE_ESCAPED = re.compile(r"""[\x00-\x1f"#%'*/:=?\\\x7f{\[\]^]""")
_HIVE_ESCAPE = re.compile(r"%([0-9A-Fa-f]{2})")

# What RFC 2396 lets stand in a path, as java.net.URI reads it; but for the colon, which in the first segment
# would end a scheme's name.
_URI_ESCAPED = re.compile(r"[^A-Za-z0-9_!.~'()*@&=+$,;/-]")
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
_BAD_ESCAPE = re.compile(r"%(?![0-9A-Fa-f]{2})")
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:")
_ROOT = re.compile(rf"\A(?:{_SCHEME.pattern}/?/?)?/?")
_LOCAL_FILE = re.compile(r"\Afile:(?:(?=/(?!/))|//(?:localhost)?(?=/))", re.IGNORECASE)

_PLAIN = re.compile(r"(?!_delta_log(?:/|\Z))(?:[A-Za-z0-9_=-][A-Za-z0-9_=.-]*/)*[A-Za-z0-9_=-][A-Za-z0-9_=.-]*")


def escape_partition_segment(text: str) -> str:
    """A partition column's name or value as it may stand in a directory's name."""
    return _HIVE_ESCAPED.sub(lambda found: f"%{ord(found[0]):02X}", text)


def unescape_partition_segment(text: str) -> str:
    """The name or value that `escape_partition_segment` was given."""
    return _HIVE_ESCAPE.sub(lambda found: chr(int(found[1], 16)), text)


def partition_directory(partition_columns: Iterable[str], values: Mapping[str, str | None]) -> str:
    """`a=1/b=x` for serialised partition values; the empty string for a table without partitions."""
    return "/".join(
        f"{escape_partition_segment(column)}={escape_partition_segment(values[column] or NULL_PARTITION)}"
        for column in partition_columns
    )


def path_to_uri(path: str) -> str:
    """A relative file-system path as `add.path` holds it."""
    return _URI_ESCAPED.sub(_uri_escape, path)


def uri_to_path(uri: str) -> str:
    """`add.path` decoded, once. A `file:` URI becomes an absolute path; others keep scheme and authority."""
    if _BAD_ESCAPE.search(uri):
        raise ValidationError(f"a % that begins no escape in the path {uri!r}", field="path")
    try:
        return unquote_to_bytes(_LOCAL_FILE.sub("", uri)).decode()
    except UnicodeError as error:
        raise ValidationError(f"the path {uri!r} is not UTF-8 when decoded", field="path") from error


def local_path(path: str) -> str:
    """A path of the log by one name: `/p`, `file:/p` and `file:///p` are the same."""
    return _LOCAL_FILE.sub("", path)


def is_absolute(path: str) -> bool:
    """Whether a path of the log names a place of its own, not one under the table's root."""
    return path.startswith("/") or _SCHEME.match(path) is not None


def is_plain(path: str) -> bool:
    """Nearly every path of the log is: nothing to decode, nothing to refuse."""
    return _PLAIN.fullmatch(path) is not None


def check_path(path: str, allow_absolute: bool = False) -> str | None:
    """Why a path, in the log's form, may not stand in the log; `None` if it may."""
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
    if segments[0] == "_delta_log" and not absolute:
        return "the path is inside _delta_log"
    return None


def _uri_escape(found: re.Match[str]) -> str:
    character = found[0]
    # Other letters stay as they are; blanks and control characters of any alphabet do not.
    if ord(character) >= 0x80 and unicodedata.category(character) not in ("Cc", "Cs", "Zs", "Zl", "Zp"):
        return character
    try:
        return "".join(f"%{byte:02X}" for byte in character.encode())
    except UnicodeEncodeError as error:
        raise ValidationError(f"{character!r} is half of a character: not a path", field="path") from error
