"""RESTORE of a `DeltaTable`, with the checks and the metrics of delta-spark."""

from __future__ import annotations

from datetime import UTC, datetime

import pyarrow.compute as pc
from pyspark.sql import DataFrame

from deltars.errors import HistoryExpired, TimestampTooEarly, ValidationError, VersionNotFound
from deltars.log.moments import parse_moment
from deltars.log.snapshot import Totals
from deltars.tables.binding import BoundTable
from deltars.tables.exceptions import refuse
from deltars.tables.frames import restore_frame
from deltars.transaction import RestoredTable, spark_plane


def to_version(bound: BoundTable, version: int) -> DataFrame:
    try:
        restored = _restored(bound, version=version)
    except HistoryExpired:
        raise
    except VersionNotFound as error:
        latest = bound.table.version if error.latest is None else error.latest
        raise refuse(
            "DELTA_CANNOT_RESTORE_TABLE_VERSION",
            f"Cannot restore table to version {version}. Available versions: [{error.earliest or 0}, {latest}].",
            table=error.table,
        ) from error
    return _metrics(bound, restored)


def to_timestamp(bound: BoundTable, timestamp: str) -> DataFrame:
    moment = moment_of(bound, timestamp)
    latest = bound.table.snapshot().timestamp
    if moment > latest:
        raise refuse(
            "DELTA_CANNOT_RESTORE_TIMESTAMP_GREATER",
            f"Cannot restore table to timestamp ({_shown(moment)}) as it is after the latest version available. Please"
            f" use a timestamp before ({_shown(latest)})",
        )
    try:
        restored = _restored(bound, timestamp=moment)
    except TimestampTooEarly as error:
        earliest = "" if error.earliest is None else _shown(error.earliest)
        raise refuse(
            "DELTA_CANNOT_RESTORE_TIMESTAMP_EARLIER",
            f"Cannot restore table to timestamp ({_shown(moment)}) as it is before the earliest version available."
            f" Please use a timestamp after ({earliest}).",
            table=error.table,
        ) from error
    return _metrics(bound, restored)


def moment_of(bound: BoundTable, timestamp: str) -> datetime:
    """Return a time as Spark reads it, in the session's time zone."""
    try:
        parsed = parse_moment(spark_plane().moment(bound.spark, timestamp), zone=UTC)
    except ValidationError:
        parsed = None
    if parsed is None:
        raise refuse(
            "DELTA_TIMESTAMP_INVALID",
            f"The provided timestamp ('{timestamp}') cannot be converted to a valid timestamp.",
        )
    return parsed


def _restored(bound: BoundTable, *, version: int | None = None, timestamp: datetime | None = None) -> RestoredTable:
    if bound.tx is not None:
        return bound.tx.restore(bound.table_id, version, timestamp=timestamp)
    return bound.table.restore(version, timestamp=timestamp).tables[0]


def _metrics(bound: BoundTable, restored: RestoredTable) -> DataFrame:
    if bound.tx is None:
        return restore_frame(bound.spark, bound.table.snapshot().totals, restored)
    files = bound.tx.files(bound.table_id)
    return restore_frame(bound.spark, Totals(files.num_rows, pc.sum(files["size"]).as_py() or 0, None), restored)


def _shown(moment: datetime) -> str:
    text = moment.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S.%f")
    return text.rstrip("0") + ("0" if text.endswith(".000000") else "")
