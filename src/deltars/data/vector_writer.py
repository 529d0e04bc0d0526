"""Writer of deletion vectors: the numbers of deleted rows, in the log itself or in a file of the table.

    bitmap ──magic, 64-bit Roaring──▶ up to 200 bytes    ▶ i: Z85 text in the log
                                  └──▶ more              ▶ u: deletion_vector_<uuid>.bin, one file for all of a write

`data.deletion_vectors` has the format, and reads what is written here.
"""

from __future__ import annotations

import zlib
from collections.abc import Hashable, Mapping
from typing import TypeVar
from uuid import uuid4

from pyroaring import BitMap64

from deltars.data.deletion_vectors import MAGIC, MAX_BYTES
from deltars.errors import ValidationError
from deltars.protocol import DeletionVector
from deltars.protocol.z85 import encode_z85
from deltars.storage import Storage

MAX_INLINE_BYTES = 200
"""Largest bitmap in the log. Every reader parses the log, but opens a file of vectors only for a file that it reads."""
VERSION = b"\x01"

Key = TypeVar("Key", bound=Hashable)


def write_vectors(storage: Storage, vectors: Mapping[Key, BitMap64]) -> dict[Key, DeletionVector]:
    """Write the numbers of deleted rows of data files. Each key gets its vector.

    The file is durable on return, and invisible to readers until a commit refers to it. A failed commit leaves it as an
    orphan.
    """
    written: dict[Key, DeletionVector] = {}
    large: dict[Key, bytes] = {}
    for key, rows in vectors.items():
        data = _encoded(rows)
        if len(data) <= MAX_INLINE_BYTES:
            written[key] = _inline(data, len(rows))
        else:
            large[key] = data
    if large:
        written |= _write_file(storage, large, {key: len(vectors[key]) for key in large})
    return {key: written[key] for key in vectors}


def inline_vector(rows: BitMap64) -> DeletionVector:
    """Return a vector that is not written to a file, whatever its size. It is for reading only, not for the log."""
    return _inline(_encoded(rows), len(rows))


def _encoded(rows: BitMap64) -> bytes:
    compact = rows.copy()
    compact.run_optimize()
    data = MAGIC + compact.serialize()
    if len(data) > MAX_BYTES:
        raise ValidationError(
            f"a deletion vector of {len(rows)} rows needs {len(data)} bytes, at most {MAX_BYTES} are possible",
            field="deletionVector",
        )
    return data


def _inline(data: bytes, cardinality: int) -> DeletionVector:
    # Z85 encodes four bytes at a time. The zeros are not part of the vector: `size_in_bytes` says where they begin.
    text = encode_z85(data + bytes(-len(data) % 4))
    return DeletionVector(
        storage_type="i", path_or_inline_dv=text, size_in_bytes=len(data), cardinality=cardinality, offset=None
    )


def _write_file(
    storage: Storage, vectors: Mapping[Key, bytes], cardinalities: Mapping[Key, int]
) -> dict[Key, DeletionVector]:
    name = uuid4()
    encoded_name = encode_z85(name.bytes)
    written = {}
    with storage.open_writer(f"deletion_vector_{name}.bin") as file:
        file.write(VERSION)
        for key, data in vectors.items():
            written[key] = DeletionVector(
                storage_type="u",
                path_or_inline_dv=encoded_name,
                offset=file.tell(),
                size_in_bytes=len(data),
                cardinality=cardinalities[key],
            )
            file.write(len(data).to_bytes(4, "big"))
            file.write(data)
            file.write(zlib.crc32(data).to_bytes(4, "big"))
    return written
