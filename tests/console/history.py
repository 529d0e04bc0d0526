"""A catalog with something to see: several tables, transactions over them, a conflict, a stream, a tag."""

from __future__ import annotations

from datetime import date

import pyarrow as pa
import pytest

import deltars

HOSTILE = "<script>alert('x')"
SCHEMA = "id BIGINT, v BIGINT, day DATE"


def rows(count: int) -> pa.Table:
    days = [date(2026, 1, 1 + number % 3) for number in range(count)]
    return pa.table({"id": range(count), "v": range(count), "day": days})


def fill(catalog: deltars.Catalog) -> None:
    for name in ("features", "labels", HOSTILE):
        catalog.create_table(name, SCHEMA, partition_by=["day"])
    with catalog.begin(committer="ada") as tx:
        tx.write("features", rows(6))
        tx.write("labels", rows(6))
    with catalog.begin(user_metadata="<b>derived</b>") as tx:
        tx.write(HOSTILE, tx.to_arrow("features", where="id > 2"))
    lose_a_race(catalog)
    catalog.write("labels", rows(1), app_id="stream-of-labels", app_version=7)
    catalog.table("labels").alter.add_columns("note STRING")
    catalog.tag("q3", description="the <i>third</i> quarter")
    with catalog.begin(mirror="off") as tx:
        tx.write("features", rows(1))


def lose_a_race(catalog: deltars.Catalog) -> None:
    winner, loser = catalog.begin(committer="winner"), catalog.begin(committer="loser")
    for tx in (winner, loser):
        tx.write("features", rows(2))
    winner.commit()
    with pytest.raises(deltars.VersionConflict):
        loser.commit()
