"""Size of what a row-level change reads, and whether this process reads it.

files of up to 32 MiB ────────────────────────────────────▶ this process: starting a Spark job takes longer
files on a local disk, few values in the columns searched ▶ this process: the other columns are not read
else ─────────────────────────────────────────────────────▶ Spark, if there is a session
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc

from deltars.protocol import PrimitiveType, StructField
from deltars.storage import parse_location

SMALL_BYTES = 32 * 1024 * 1024
MAX_VALUES = 16_000_000
"""Values that this process searches in the time that a Spark job takes."""
MAX_TEXT_BYTES = 512 * 1024 * 1024
"""Size of files whose strings are searched. How much of it the strings are is not known."""

_TEXT_VALUES = 4
"""Numbers that are read in the time of one string."""


def is_small(
    files: pa.Table, *, root: str = "", searched: Sequence[StructField] | None = None, source_bytes: int = 0
) -> bool:
    """Return whether this process changes rows of these files as fast as a Spark job does, or faster.

    `searched` are the columns that are read of all rows of the table at `root`; None, if more may be read. A merge has
    a source of `source_bytes`.
    """
    if size_of(files) + source_bytes <= SMALL_BYTES:
        return True
    if searched is None or source_bytes > SMALL_BYTES or not parse_location(root).is_local:
        return False
    weights = list(map(_weight, searched))
    if None in weights or files["num_records"].null_count:
        return False
    if _TEXT_VALUES in weights and size_of(files) > MAX_TEXT_BYTES:
        return False
    return int(pc.sum(files["num_records"]).as_py()) * sum(filter(None, weights)) <= MAX_VALUES


def size_of(files: pa.Table) -> int:
    return int(pc.sum(files["size"]).as_py() or 0)


def _weight(column: StructField) -> int | None:
    """Return how many numbers are read in the time of one value; None if it may be of any size."""
    if not isinstance(column.type, PrimitiveType) or column.type.name == "variant":
        return None
    return _TEXT_VALUES if column.type.name in ("string", "binary") else 1
