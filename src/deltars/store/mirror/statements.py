"""SQL statements for the mirror status, compiled once per backend: several run for every published version."""

from __future__ import annotations

from functools import cached_property
from typing import Any

from sqlalchemy import (
    BigInteger,
    ColumnElement,
    Insert,
    Select,
    Text,
    bindparam,
    cast,
    insert,
    literal_column,
    select,
    update,
)

from deltars.store import schema
from deltars.store.backends import Backend, Prepared
from deltars.store.cursor_rows import PlainRows

ACTIVE = "active"
"""Mirror state of a table whose publication has not failed."""

DIVERGED = "diverged"
"""Mirror state of a table whose log contradicts the catalog."""

_status, _tables = schema.dl_mirror_status.c, schema.dl_tables.c

STATUS = PlainRows(schema.dl_mirror_status.c)
TABLE = PlainRows(
    [
        _tables.name, _tables.location, _tables.current_version, _tables.protocol_version, _tables.dropped_at,
        _tables.properties,
    ]
)  # fmt: skip
TARGETS = PlainRows([_tables.table_id, _tables.location, _tables.properties])
DUE = PlainRows(
    [_tables.table_id, _tables.properties, _status.lease_owner, _status.lease_until, _status.next_attempt_at]
)


class MirrorStatements:
    """Statements for the mirror status; each is compiled on first use."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self._updates: dict[tuple[tuple[str, ...], bool], Prepared] = {}

    @cached_property
    def status(self) -> Prepared:
        return self._backend.prepare(self._status())

    @cached_property
    def locked(self) -> Prepared:
        return self._backend.prepare(self._status().with_for_update() if self._backend.locks_rows else self._status())

    @cached_property
    def table(self) -> Prepared:
        return self._backend.prepare(select(*TABLE.columns).where(_tables.table_id == self._table_id()))

    @cached_property
    def targets(self) -> Prepared:
        wanted = self._backend.rows(bindparam("tables", type_=Text()), [_tables.table_id])
        return self._backend.prepare(select(*TARGETS.columns).where(_tables.table_id.in_(select(wanted.c.table_id))))

    @cached_property
    def due(self) -> Prepared:
        waiting = (
            select(*DUE.columns, self._backend.clock_us().label("now"))
            .join_from(schema.dl_tables, schema.dl_mirror_status, _tables.table_id == _status.table_id)
            .where(
                _tables.dropped_at.is_(None),
                _status.published_version < _tables.current_version,
                _status.state != DIVERGED,
            )
            .order_by(_status.table_id)
        )
        return self._backend.prepare(waiting)

    @cached_property
    def log(self) -> Prepared:
        return self._backend.prepare(self._log())

    def update(self, names: tuple[str, ...], and_log: bool) -> Prepared:
        """Return the UPDATE of these columns of one table's status, from the parameters `new_…`.

        With `and_log` the statement also inserts rows into `dl_mirror_log`.
        """
        if (names, and_log) not in self._updates:
            new = {name: bindparam(f"new_{name}", type_=_status[name].type) for name in names}
            statement = update(schema.dl_mirror_status).where(_status.table_id == self._table_id()).values(new)
            chained = statement.add_cte(self._log().cte("logged")) if and_log else statement
            self._updates[names, and_log] = self._backend.prepare(chained)
        return self._updates[names, and_log]

    @cached_property
    def note_next(self) -> Prepared:
        """Return the UPDATE that records the version after the last published one, and returns the clock.

        The statement also inserts the row into `dl_mirror_log` if the backend can chain writes.
        """
        version, digest = bindparam("version", type_=BigInteger()), bindparam("digest", type_=Text())
        clock = self._backend.clock_us()
        noted = (
            update(schema.dl_mirror_status)
            .where(
                _status.table_id == self._table_id(),
                _status.published_version == cast(version, BigInteger) - literal_column("1"),
                _status.state == literal_column("'active'"),
            )
            .values(published_version=cast(version, BigInteger), attempts=0, last_error=None, next_attempt_at=None)
            .returning(_status.table_id, clock.label("now"))
        )
        if not self._backend.chains_writes:
            return self._backend.prepare(noted)
        row, log = noted.cte("noted"), schema.dl_mirror_log
        values = (row.c.table_id, cast(version, BigInteger), row.c.now, cast(digest, Text))
        logged = self._backend.insert_unless_present(log).from_select(
            ["table_id", "version", "published_at", "digest"], select(*values)
        )
        return self._backend.prepare(logged.returning(log.c.table_id, log.c.published_at))

    def _log(self) -> Insert:
        log = schema.dl_mirror_log
        rows = self._backend.rows(bindparam("rows", type_=Text()), list(log.c))
        return insert(log).from_select(log.c.keys(), select(*(rows.c[column.name] for column in log.c)))

    def _status(self) -> Select[Any]:
        clock = self._backend.clock_us().label("now")
        return select(*STATUS.columns, clock).where(_status.table_id == self._table_id())

    def _table_id(self) -> ColumnElement[Any]:
        return self._backend.id_of(bindparam("table", type_=Text()))
