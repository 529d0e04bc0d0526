"""Decimals as doubles."""

from __future__ import annotations

import pyarrow as pa
from pyarrow import types


def nearest_doubles(values: pa.Array, kind: pa.DataType | None = None) -> pa.Array:
    """Return numbers as doubles, or as `kind` of float: each as the nearest one, as Java does."""
    if types.is_decimal(values.type):
        # Arrow's own conversion makes another double of 0.35 than the one that is written so. A text is read exactly.
        values = values.cast(pa.string())
    return values.cast(kind or pa.float64(), safe=False)
