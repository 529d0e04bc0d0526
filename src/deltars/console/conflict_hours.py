"""Lost races by table and hour, drawn as cells in the lanes of their tables. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from uuid import UUID

from deltars.catalog.lanes import Drawing, draw
from deltars.store.read.activity import HOUR_US, ConflictCount, DensityRow

HOURS, MOST_HOURS = 48, 240
"""Hours that are drawn, at least and at most."""
LANES = 40


def by_table_and_hour(counts: Sequence[ConflictCount], names: Mapping[UUID, str]) -> Drawing | None:
    """Return how many races were lost, by table and hour: the last hours with any."""
    if not counts:
        return None
    last = max(count.hour for count in counts) + 1
    first = max(min(count.hour for count in counts), last - MOST_HOURS)
    first = min(first, last - HOURS)
    by_table = Counter[UUID]()
    for count in counts:
        by_table[count.table_id] += count.num_conflicts
    shown = {table_id: names.get(table_id, str(table_id)) for table_id, _ in by_table.most_common(LANES)}
    cells = Counter[tuple[UUID, int]]()
    for count in counts:
        if count.hour >= first:
            cells[count.table_id, count.hour - first] += count.num_conflicts
    rows = [DensityRow(table_id, hour, number) for (table_id, hour), number in cells.items()]
    return draw(shown, first * HOUR_US, last * HOUR_US, density=rows, buckets=last - first, what="lost races")
