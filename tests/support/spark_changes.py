"""What a row-level change makes of a scan's rows: those that stay, and those that come."""

from __future__ import annotations

from typing import Any, cast

from pyspark.sql import DataFrame

from deltars.data.reader import read_placed
from deltars.data.row_change import RowChanges
from deltars.data.scan import Scan

Rows = list[dict[str, Any]]


def rows_after(scan: Scan, changes: RowChanges) -> Rows:
    """The table's rows after a change of the Spark plane; columns that a frame lacks are null."""
    rows = [row for placed in read_placed(scan, without=changes.positions) for row in placed.rows.to_pylist()]
    for frame in changes.rows:
        names = list(scan.schema.names)
        for row in cast(DataFrame, frame).collect():
            values = row.asDict(recursive=True)
            assert set(values) <= set(names)
            rows.append({name: values.get(name) for name in names})
    return ordered(rows)


def positions_in(scan: Scan, changes: RowChanges) -> dict[str, list[int]]:
    """The rows that go, by the paths of their files."""
    paths = scan.files["path"].to_pylist()
    return {f"{paths[place]}#{place}": list(rows) for place, rows in sorted(changes.positions.items())}


def ordered(rows: Rows) -> Rows:
    return sorted(rows, key=repr)
