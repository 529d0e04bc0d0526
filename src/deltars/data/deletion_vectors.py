"""Reader of deletion vectors: the numbers of the deleted rows of a data file.

i   in the log itself                   Z85 text
u   deletion_vector_<uuid>.bin          below the table's root, or in a subdirectory of it
p   an absolute path                    read only if it is below the table's root

file:  version 1 │ … offset: size (big-endian) │ magic, 64-bit Roaring bitmap (little-endian) │ CRC-32 (big-endian)

Inline text holds only magic and bitmap.
"""

from __future__ import annotations

import zlib
from typing import Literal

from pyroaring import BitMap, BitMap64

from deltars.errors import ValidationError
from deltars.protocol import DeletionVector
from deltars.protocol.deletion_vectors import relative_path
from deltars.protocol.z85 import decode_z85
from deltars.storage import Storage
from deltars.storage.table_files import open_file, open_path

MAGIC = (1681511377).to_bytes(4, "little")
"""Magic number of the portable format: bitmaps with their keys, little-endian."""
NATIVE_MAGIC = 1681511376
"""Magic number of the format in the protocol's example: bitmaps with their sizes, in the magic's byte order."""
MAX_BYTES = 2**31 - 1

_BYTE_ORDERS: tuple[Literal["little", "big"], ...] = ("little", "big")


def read_vector(storage: Storage, vector: DeletionVector) -> BitMap64:
    """Return the numbers of the deleted rows, counted from 0."""
    data = _inline(vector) if vector.storage_type == "i" else _stored(storage, vector)
    try:
        rows = _rows(data)
    except (ValueError, IndexError) as error:  # pyroaring raises IndexError for no bytes at all.
        raise _broken(vector, str(error)) from error
    if len(rows) != vector.cardinality:
        raise _broken(vector, f"it holds {len(rows)} rows, but the log says {vector.cardinality}")
    return rows


def _rows(data: bytes) -> BitMap64:
    if data[:4] == MAGIC:
        return BitMap64.deserialize(data[4:])
    for order in _BYTE_ORDERS:
        if data[:4] == NATIVE_MAGIC.to_bytes(4, order):
            return _native_rows(data, order)
    raise ValueError("it does not begin with the magic number of a bitmap")


def _native_rows(data: bytes, order: Literal["little", "big"]) -> BitMap64:
    """Read one 32-bit bitmap for each key, counted from 0. Each bitmap follows its size."""
    rows = BitMap64()
    place = 8
    for key in range(int.from_bytes(data[4:8], order)):
        size = int.from_bytes(data[place : place + 4], order)
        place += 4 + size
        if size == 0 or place > len(data):
            raise ValueError("it ends too early")
        rows.update(key << 32 | row for row in BitMap.deserialize(data[place - size : place]))
    return rows


def _inline(vector: DeletionVector) -> bytes:
    return _decode(vector, vector.path_or_inline_dv, vector.size_in_bytes)


def _stored(storage: Storage, vector: DeletionVector) -> bytes:
    path = relative_path(vector)
    if path is None and vector.storage_type != "p":
        raise _broken(vector, "it does not name its file")
    if not 0 <= vector.size_in_bytes <= MAX_BYTES:
        raise _broken(vector, f"sizeInBytes must be between 0 and {MAX_BYTES}, got {vector.size_in_bytes}")
    with open_file(storage, vector.path_or_inline_dv) if path is None else open_path(storage, path) as file:
        # The first byte is the format's version, so a vector without an offset begins at byte 1.
        file.seek(1 if vector.offset is None else vector.offset)
        size = int.from_bytes(file.read(4), "big")
        if size != vector.size_in_bytes:
            raise _broken(vector, f"its size is {size} bytes in the file, but {vector.size_in_bytes} in the log")
        data = bytes(file.read(size))
        check = bytes(file.read(4))
    if len(data) != size or len(check) != 4:
        raise _broken(vector, "its file ends too early")
    if zlib.crc32(data) != int.from_bytes(check, "big"):
        raise _broken(vector, "its checksum is wrong")
    return data


def _decode(vector: DeletionVector, text: str, size: int) -> bytes:
    try:
        data = decode_z85(text)
    except ValueError as error:
        raise _broken(vector, f"it is not Z85 text: {error}") from error
    # `size` may count padding zeros that the text lacks. That is harmless: the bitmap knows its own end.
    if len(data) + -len(data) % 4 < size:
        raise _broken(vector, f"it has {len(data)} bytes, but the log says {size}")
    return data[:size]


def _broken(vector: DeletionVector, reason: str) -> ValidationError:
    return ValidationError(
        f"the deletion vector {vector.unique_id:.80} cannot be read: {reason}", field="deletionVector"
    )
