"""How a table grew: its rows, files and bytes over versions, as lines."""

from __future__ import annotations

from uuid import UUID

from deltars.catalog.charts import Line, line
from deltars.catalog.row_count import recorded_rows
from deltars.session import CatalogSession
from deltars.store.read.activity import Activity


def table_growth(session: CatalogSession, table_id: UUID, first: int, last: int) -> list[Line]:
    """Return the lines from version `first` to `last`, computed backwards from the totals at `last`.

    Without the line of rows if a writer did not record how many rows a file has.
    """
    snapshot = session.reader.snapshot(table_id, last)
    totals, rows = snapshot.totals, recorded_rows(snapshot)
    now = {"files": totals.num_files, "bytes": totals.size_bytes}
    now = now if rows is None else {"rows": rows, **now}
    points = {name: {last: figure} for name, figure in now.items()}
    for step in reversed(Activity(session.database).totals(table_id, first + 1, last)):
        for name in now:
            # A version that moved rows without changes has the same figure before and after it.
            points[name].setdefault(step.version, now[name])
            now[name] -= getattr(step, f"{name}_added") - getattr(step, f"{name}_removed")
            points[name][step.version - 1] = max(now[name], 0)
    lines = (line(name, sorted(found.items())) for name, found in points.items())
    return [found for found in lines if found is not None]
