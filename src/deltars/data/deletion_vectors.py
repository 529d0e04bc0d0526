"""Deletion vectors: which rows of a data file are deleted.

i   in the log itself                   Z85 text
u   deletion_vector_<uuid>.bin          below the table's root, perhaps in a directory of its own
p   an absolute path                    read only where it leads into the table

file:  version 1 │ … offset: size (big-endian) │ magic, 64-bit Roaring bitmap (little-endian) │ CRC-32 (big-endian)
"""

from __future__ import annotations

import base64
import zlib
from typing import TYPE_CHECKING

from deltars.data.table_files import open_file, open_path
from deltars.errors import ConfigError, ValidationError
from deltars.protocol import DeletionVector
from deltars.protocol.deletion_vectors import relative_path
from deltars.storage import Storage

if TYPE_CHECKING:
    from pyroaring import BitMap64

MAGIC = (1681511377).to_bytes(4, "little")
MAX_BYTES = 2**31 - 1

_Z85 = b"0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"
_B85 = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz!#$%&()*+-;<=>?@^_`{|}~"
_TO_PYTHON = bytes.maketrans(_Z85, _B85)
_TO_Z85 = bytes.maketrans(_B85, _Z85)


def read_vector(storage: Storage, vector: DeletionVector) -> BitMap64:
    """The numbers of the deleted rows, counted from 0."""
    data = _inline(vector) if vector.storage_type == "i" else _stored(storage, vector)
    if data[:4] != MAGIC:
        raise _broken(vector, "it does not begin as a bitmap of rows does")
    try:
        rows = _bitmap().deserialize(data[4:])
    except ValueError as error:
        raise _broken(vector, str(error)) from error
    if len(rows) != vector.cardinality:
        raise _broken(vector, f"it holds {len(rows)} rows and should hold {vector.cardinality}")
    return rows


def encode_z85(data: bytes) -> str:
    return base64.b85encode(data).translate(_TO_Z85).decode()


def _inline(vector: DeletionVector) -> bytes:
    return _decode(vector, vector.path_or_inline_dv, vector.size_in_bytes)


def _stored(storage: Storage, vector: DeletionVector) -> bytes:
    path = relative_path(vector)
    if path is None and vector.storage_type != "p":
        raise _broken(vector, "it says of no file where it is")
    if not 0 <= vector.size_in_bytes <= MAX_BYTES:
        raise _broken(vector, f"a size of {vector.size_in_bytes} bytes is none")
    with open_file(storage, vector.path_or_inline_dv) if path is None else open_path(storage, path) as file:
        file.seek(vector.offset or 0)
        size = int.from_bytes(file.read(4), "big")
        if size != vector.size_in_bytes:
            raise _broken(vector, f"its file says {size} bytes, the log {vector.size_in_bytes}")
        data = bytes(file.read(size))
        check = bytes(file.read(4))
    if len(data) != size or len(check) != 4:
        raise _broken(vector, "its file ends too early")
    if zlib.crc32(data) != int.from_bytes(check, "big"):
        raise _broken(vector, "its check sum is wrong")
    return data


def _decode(vector: DeletionVector, text: str, size: int) -> bytes:
    try:
        data = base64.b85decode(text.encode("ascii").translate(_TO_PYTHON))
    except ValueError as error:
        raise _broken(vector, f"it is not Z85 text: {error}") from error
    if len(data) < size:
        raise _broken(vector, f"it has {len(data)} bytes and should have {size}")
    return data[:size]


def _broken(vector: DeletionVector, reason: str) -> ValidationError:
    return ValidationError(
        f"the deletion vector {vector.unique_id:.80} cannot be read: {reason}", field="deletionVector"
    )


def _bitmap() -> type[BitMap64]:
    # pyroaring is an extra: only tables with deletion vectors need it.
    try:
        from pyroaring import BitMap64
    except ImportError as error:
        raise ConfigError(
            "the table has deletion vectors, and pyroaring is not installed",
            hint="Install deltars[deletion-vectors].",
        ) from error
    return BitMap64
