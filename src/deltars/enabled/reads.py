"""Reads of an enabled session: tables by name or path, now, as a transaction sees them, or at an older version."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, NamedTuple
from uuid import UUID

from deltars.catalog.table_path import location_at, table_at
from deltars.enabled.tables import SOURCES, Tables, name_in, path_in
from deltars.errors import ValidationError, brief
from deltars.log.moments import parse_moment, to_milliseconds
from deltars.spark.plane import SparkPlane
from deltars.spark.read.nullability import with_nullability
from deltars.spark.verbs.names import quoted
from deltars.spark.verbs.request import ReadRequest
from deltars.spark.verbs.wrapping import NOT_OURS

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_AT_VERSION = re.compile(r"(.+)@[vV](\d+)", re.DOTALL)
_AT_TIME = re.compile(r"(.+)@(\d{17})", re.DOTALL)
_FEED = ("readChangeFeed", "readChangeData")


class Moment(NamedTuple):
    """Version or time that a read asks for."""

    version: int | None = None
    timestamp: str | datetime | None = None

    @property
    def is_given(self) -> bool:
        return self != Moment()


class Reads:
    def __init__(self, tables: Tables) -> None:
        self._tables = tables

    def load(self, request: ReadRequest, path: Any) -> Any:
        if request.source not in SOURCES:
            return NOT_OURS
        path = request.options.get("path") if path is None else path
        if isinstance(path, list | tuple) and len(path) == 1:
            path = path[0]
        if not isinstance(path, str) or not path:
            what = "no path" if not path else f"{len(path)} paths"
            raise ValidationError(
                f"a Delta table is read from one directory, got {what}",
                field="path",
                hint='Write load(path), or spark.read.format("delta").table(name).',
            )
        if request.has_schema:
            raise ValidationError(
                "a Delta table has its own schema, and is read without another",
                field="schema",
                hint="Leave out schema(…), and select the columns that you need.",
            )
        moment = _moment(request.options)
        location = location_at(path)
        if not moment.is_given and self._tables.session.registry.find_at(location) is None:
            path, moment = _split(path)
            location = location_at(path)
        return self._read_at(request, location, moment)

    def table(self, request: ReadRequest, name: Sequence[str]) -> Any:
        path = path_in(name)
        if path is not None:
            return self._read_at(request, location_at(path), _moment(request.options))
        if not self._tables.has(name) or self.is_view(request.session, name):
            return NOT_OURS
        moment = _moment(request.options)
        return self._read(request, name_in(name), moment)

    def is_view(self, session: Any, name: Sequence[str]) -> bool:
        """Return whether the session has a temporary view of this name, which hides the table."""
        if len(name) != 1:
            return False
        catalog = session.catalog
        return bool(catalog.tableExists(quoted(name))) and bool(catalog.getTable(quoted(name)).isTemporary)

    def _read_at(self, request: ReadRequest, location: str, moment: Moment) -> DataFrame:
        joined = self._tables.joined()
        staged = None if joined is None else joined[1].find_at(location)
        if staged is not None:
            return self._read(request, staged.table_id, moment)
        imports = self._tables.imports(request.session.conf.getAll)
        return self._read(request, table_at(self._tables.session, location, imports=imports).table_id, moment)

    def _read(self, request: ReadRequest, table: str | UUID, moment: Moment) -> DataFrame:
        if any(request.options.get(name, "false").lower() == "true" for name in _FEED):
            return self._read_changes(request, table)
        joined = self._tables.joined()
        if joined is not None and not moment.is_given:
            staged = joined[1].readable(table)
            assert staged.metadata is not None
            return with_nullability(joined[0].read(table, spark=request.session), staged.metadata.schema)
        moments: dict[str, Any] = {
            "version": moment.version,
            "timestamp": SparkPlane().moment(request.session, moment.timestamp),
        }
        snapshot = self._tables.catalog.table(table).snapshot(**moments)
        asked = parse_moment(moments["timestamp"])
        if asked is not None and self._tables.catalog.table(table).version == snapshot.version:
            _refuse_later(asked, snapshot.timestamp)
        frame = self._tables.catalog.read(table, version=snapshot.version, spark=request.session)
        return with_nullability(frame, snapshot.schema)

    def _read_changes(self, request: ReadRequest, table: str | UUID) -> DataFrame:
        """Return the rows that committed versions changed, with Delta's options for the first and the last."""
        start, end = (_bound(request, name) for name in ("starting", "ending"))
        if start is None:
            raise ValidationError(
                "a change feed needs its first version",
                field="startingVersion",
                hint='Write option("startingVersion", 0), or startingTimestamp.',
            )
        return self._tables.catalog.table(table).changes(start, end).read(spark=request.session)


def _bound(request: ReadRequest, name: str) -> Any:
    """Return the first or the last version or time of a change feed; None if it is not given."""
    version, timestamp = request.options.get(f"{name}Version"), request.options.get(f"{name}Timestamp")
    if version is not None and timestamp is not None:
        raise ValidationError(f"{name}Version and {name}Timestamp exclude each other", field=f"{name}Version")
    return SparkPlane().moment(request.session, timestamp) if version is None else _whole(f"{name}Version", version)


def _whole(name: str, value: str) -> int:
    try:
        return int(value)
    except ValueError:
        raise ValidationError(f"{name} is a version, got {brief(value)}", field=name) from None


def _refuse_later(asked: datetime, latest: datetime) -> None:
    """Raise ValidationError for a time after the last commit, as Delta does: the same read would change later."""
    if to_milliseconds(asked) > to_milliseconds(latest):
        raise ValidationError(
            f"{asked.isoformat()} is after the table's last commit, {latest.isoformat()}",
            field="timestampAsOf",
            hint=f"Read at {latest.isoformat()} or before, or leave out timestampAsOf.",
        )


def _moment(options: Mapping[str, str]) -> Moment:
    version, timestamp = options.get("versionAsOf"), options.get("timestampAsOf")
    if version is not None and timestamp is not None:
        raise ValidationError("versionAsOf and timestampAsOf exclude each other", field="versionAsOf")
    if version is None:
        return Moment(timestamp=timestamp)
    return Moment(version=_whole("versionAsOf", version))


def _split(path: str) -> tuple[str, Moment]:
    """Return the directory and the moment of a path such as /lake/t@v3 or /lake/t@20260131120000000."""
    at_version = _AT_VERSION.fullmatch(path)
    if at_version is not None:
        return at_version[1], Moment(version=int(at_version[2]))
    at_time = _AT_TIME.fullmatch(path)
    if at_time is None:
        return path, Moment()
    try:
        moment = datetime.strptime(at_time[2] + "000", "%Y%m%d%H%M%S%f")
    except ValueError:
        raise ValidationError(
            f"{at_time[2]} is no time", field="path", hint="Write yyyyMMddHHmmssSSS after the @."
        ) from None
    zone = SparkPlane().moment(None, moment)
    return at_time[1], Moment(timestamp=zone if isinstance(zone, datetime) else moment.replace(tzinfo=UTC))
