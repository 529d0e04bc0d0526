"""Coverage: which files have only matching rows, by their partition values and statistics.

    files that may match ──no row can be false or NULL?──▶ certain: the file goes as a whole, unopened
                                                       └──▶ doubt:   its rows have to be read

It is pruning turned around: a file is certain if `Pruner` finds no row for which the condition is *not true*. So every
precaution of pruning (bounds that are not bounds, absent counts, NaN) leads to doubt. Statistics of a file with a
deletion vector include the deleted rows: if all of them match, those that are left match too.
"""

from __future__ import annotations

from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from deltars.log.pruning import Pruner
from deltars.predicate import Predicate, not_true
from deltars.protocol import Metadata


class Coverage(NamedTuple):
    """Files that may match, in the order in which they were given."""

    certain: pa.Table
    """Files of which every row matches. They include files without rows."""
    doubt: pa.Table


def split_files(predicate: Predicate | None, metadata: Metadata, files: pa.Table) -> Coverage:
    """Split files, with columns of `FILE_SCHEMA`, by whether every row matches. None matches all rows."""
    if predicate is None:
        return Coverage(files, files.slice(0, 0))
    has_doubt = Pruner(not_true(predicate), metadata).keep(files)
    # A count that is not known leaves the doubt.
    has_rows = pc.fill_null(pc.not_equal(files["num_records"].combine_chunks(), 0), True)
    has_doubt = pc.and_(has_doubt, has_rows)
    return Coverage(files.filter(pc.invert(has_doubt)), files.filter(has_doubt))
