"""The keys of a merge's source, as a predicate of files: which files may hold a row with one of them.

    smallest … largest of each key ──Pruner──▶ file kept? ──sorted values of one key, binary search──▶ file kept?

Between its smallest and its largest key a source has gaps, and most files are in one. The database compares with
the range; the values are compared here.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import pyarrow as pa

from deltars.log.pruning import ColumnSpans, Pruner
from deltars.log.read_set import Added
from deltars.log.value_ranges import SpanTest, span_test
from deltars.predicate import FALSE, TRUE, Column, Comparison, In, Predicate, Value, conjunction
from deltars.protocol import Metadata


class KeySet:
    """Keys that a merge looked for. A null key matches nothing, so it is not among them."""

    def __init__(self, column: Column, values: Sequence[Value], metadata: Metadata, others: Predicate = TRUE) -> None:
        """Take the distinct values of one key in ascending order, where NaN is the greatest number.

        `others` is a condition that rows with a key fulfil too, such as the range of each further key.
        """
        self.column = column
        self.values = values
        self.metadata = metadata
        self.predicate: Predicate = FALSE
        """Condition that every row with a key fulfils: the ranges, without the values."""
        if values:
            ends = [Comparison(column, ">=", values[0]), Comparison(column, "<=", values[-1])]
            self.predicate = conjunction([*ends, others])
        self._ranges = Pruner(self.predicate, metadata)
        self._spans = ColumnSpans(column, metadata)

    def could_match(self, file: Added) -> bool:
        """Return whether the file may hold a row with one of the keys."""
        return self._ranges.could_match(file) and self._holds_key(self._spans.of(file.partition_values, file.stats))

    def keep(self, files: pa.Table) -> pa.BooleanArray:
        """Return whether each file may hold a row with one of the keys. `files` has the columns of live files."""
        in_range = self._ranges.keep(files).to_pylist()
        texts = zip(files["partition_values"].to_pylist(), files["stats"].to_pylist(), in_range, strict=True)
        return pa.array(
            [kept and self._holds_key(self._spans.of(values, stats)) for values, stats, kept in texts], pa.bool_()
        )

    @cached_property
    def _holds_key(self) -> SpanTest:
        return span_test(In(self.column, tuple(self.values)))
