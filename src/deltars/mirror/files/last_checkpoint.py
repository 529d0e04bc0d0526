"""`_delta_log/_last_checkpoint`: a hint for readers where to begin. Pure.

A tag tells the hints of deltars from those of other programs. Readers cope with a wrong or missing hint.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import msgspec

from deltars.mirror.files.checkpoint import WrittenCheckpoint

TAG = "deltars.sqlManaged"


class _Document(msgspec.Struct, rename="camel", omit_defaults=True):
    version: int
    size: int
    size_in_bytes: int | None = None
    num_of_add_files: int | None = None
    tags: dict[str, str] | None = None


@dataclass(frozen=True, slots=True)
class LastCheckpoint:
    version: int
    is_ours: bool


def render_last_checkpoint(checkpoint: WrittenCheckpoint) -> bytes:
    return msgspec.json.encode(
        _Document(
            version=checkpoint.version,
            size=checkpoint.num_actions,
            size_in_bytes=checkpoint.size_bytes,
            num_of_add_files=checkpoint.num_adds,
            tags={TAG: "true"},
        )
    )


def parse_last_checkpoint(content: bytes | None) -> LastCheckpoint | None:
    """Return the hint, or None if it is missing or unreadable."""
    if content is None:
        return None
    try:
        document = _decoder.decode(content)
    except (ValueError, RecursionError):
        return None
    tags = document.tags
    return LastCheckpoint(document.version, isinstance(tags, dict) and TAG in tags)


class _Hint(msgspec.Struct):
    """Fields that are read from the file of any writer."""

    version: int
    tags: Any = None


_decoder = msgspec.json.Decoder(_Hint)
