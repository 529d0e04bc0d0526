"""Location of a deletion vector: inline in the log, or in a file below the table's directory."""

from __future__ import annotations

from uuid import UUID

from deltars.protocol.actions import DeletionVector
from deltars.protocol.paths import uri_to_path
from deltars.protocol.z85 import decode_z85

VECTOR_NAME_CHARACTERS = 20
"""Characters at the end of a vector's path that name its file. Those before them are a directory."""


def relative_path(vector: DeletionVector) -> str | None:
    """Return the file of a vector as a file-system path relative to the table; None if it is inline or elsewhere."""
    text = vector.path_or_inline_dv
    match vector.storage_type:
        case "u" if len(text) >= VECTOR_NAME_CHARACTERS:
            prefix, encoded = text[:-VECTOR_NAME_CHARACTERS], text[-VECTOR_NAME_CHARACTERS:]
            try:
                name = f"deletion_vector_{UUID(bytes=decode_z85(encoded))}.bin"
            except ValueError:
                return None
            return f"{prefix}/{name}" if prefix else name
        case "p" if "://" not in text and not text.startswith(("/", "file:")):
            return uri_to_path(text)
    return None
