"""One reading of the catalog for statistics: the tables, their rules, the time, and how rows are sent and returned."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any
from uuid import UUID

import msgspec
from sqlalchemy import Column, ColumnElement, Connection, FromClause, Select, Text, and_, literal, select, true

from deltars.log.maintenance import MaintenanceRules
from deltars.store.backends import Backend
from deltars.store.schema import NO_VERSION, dl_maintenance, dl_mirror_status, dl_table_versions, dl_tables

_tables, _status, _marks = dl_tables.c, dl_mirror_status.c, dl_maintenance.c
_versions = dl_table_versions.c

_SECOND_US = 1_000_000
_encode = msgspec.json.Encoder().encode


class Reading:
    """Tables, their rules and the time of one reading, in one transaction."""

    def __init__(
        self,
        backend: Backend,
        connection: Connection,
        rules_of: Callable[[Mapping[str, str]], MaintenanceRules],
        table_ids: Collection[UUID] | None,
    ) -> None:
        self.backend = backend
        self.connection = connection
        self.rows = {row["table_id"]: row for row in self.mappings(self._of_tables(table_ids))}
        self.rules = {table_id: rules_of(row["properties"] or {}) for table_id, row in self.rows.items()}
        self.chosen = None if table_ids is None else self.document([{"table_id": table_id} for table_id in self.rows])
        self.now: int = next(iter(self.rows.values()))["now"] if self.rows else 0

    def _of_tables(self, table_ids: Collection[UUID] | None) -> Select[Any]:
        columns = (
            *(_tables.table_id, _tables.name, _tables.current_version, _tables.last_commit_ts, _tables.properties),
            *(_tables.protocol_version, _status.state, _status.published_version),
            *(_marks.vacuumed_version, _marks.kept_versions, _marks.vacuumed_at, _marks.expired_at),
            _versions.commit_ts.label("pending_since"),
            self.backend.clock_us().label("now"),
        )
        query = (
            select(*columns)
            .join(dl_mirror_status, _status.table_id == _tables.table_id)
            .outerjoin(dl_maintenance, _marks.table_id == _tables.table_id)
            .outerjoin(
                dl_table_versions,
                and_(_versions.table_id == _tables.table_id, _versions.version == _status.published_version + 1),
            )
            .where(_tables.dropped_at.is_(None))
            .order_by(_tables.name)
        )
        if table_ids is None:
            return query
        chosen = self.document([{"table_id": table_id} for table_id in table_ids])
        return query.where(_tables.table_id.in_(select(chosen.c.table_id)))

    def vacuumed(self, table_id: UUID) -> int:
        """Return the last version whose removals a vacuum has deleted."""
        version = self.rows[table_id]["vacuumed_version"]
        return NO_VERSION if version is None else int(version)

    def age_s(self, moment_us: int | None) -> float | None:
        # The clock may have been set back since.
        return None if moment_us is None else max(0, self.now - moment_us) / _SECOND_US

    def is_chosen(self, table_id: ColumnElement[Any]) -> ColumnElement[bool]:
        """Return the condition that a row belongs to one of the tables that are read."""
        return true() if self.chosen is None else table_id.in_(select(self.chosen.c.table_id))

    def document(self, rows: Sequence[Mapping[str, Any]], *columns: Column[Any]) -> FromClause:
        """Return rows that are sent along, as a table of `table_id` and these columns."""
        text = _encode([{**row, "table_id": str(row["table_id"])} for row in rows]).decode()
        return self.backend.rows(literal(text, Text), [_tables.table_id, *columns])

    def mappings(self, query: Select[Any]) -> list[Mapping[str, Any]]:
        return [dict(row) for row in self.connection.execute(query).mappings()]

    def pairs(self, query: Select[Any]) -> dict[UUID, int]:
        return dict(tuple(row) for row in self.connection.execute(query))

    def numbers(self, query: Select[Any]) -> dict[UUID, dict[str, int]]:
        """Return the numbers of each table: databases give sums as decimals."""
        return {
            row["table_id"]: {name: int(number) for name, number in row.items() if name != "table_id"}
            for row in self.mappings(query)
        }
