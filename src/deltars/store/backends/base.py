"""Base class of the backends: a backend is a short list of facts about one database.

SQL is written once, with SQLAlchemy Core, in the modules that use this package. Only the backends contain what differs
between databases: how the database is opened, how a write transaction begins and what it locks, how one JSON parameter
becomes rows, how to read the clock, how to load many rows, and what its errors mean.
"""

from __future__ import annotations

import getpass
import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from functools import cache, cached_property
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, ClassVar, TextIO, TypeAlias, TypeVar

import msgspec
from sqlalchemy import (
    ARRAY,
    JSON,
    BindParameter,
    Column,
    ColumnElement,
    CompoundSelect,
    Connection,
    Dialect,
    Engine,
    Executable,
    FromClause,
    Select,
    Table,
    Text,
    Update,
    Uuid,
    and_,
    bindparam,
    cast,
    false,
    func,
    select,
    type_coerce,
    update,
)
from sqlalchemy import exc as sa_exc
from sqlalchemy.dialects.postgresql import insert as postgresql_insert

from deltars import late_arrow
from deltars.errors import DatabaseError, DeltarsError, TimeoutError
from deltars.remembered import Remembered
from deltars.store.backends.file_system import catalogs_named_like
from deltars.store.backends.pool import AnyConnection, BareConnection, driver_connection
from deltars.store.backends.prepared import Given, Prepared
from deltars.store.backends.time_limit import TimeLimit
from deltars.uri import CatalogUri, uri_of_file

if TYPE_CHECKING:
    import pyarrow as pa

Query: TypeAlias = Select[Any] | CompoundSelect[Any]
Rows: TypeAlias = list[tuple[Any, ...]]

T = TypeVar("T")

MAX_KEPT = 500
"""How many statements `Backend.prepared_once` keeps."""

MAX_SHARED = 500
"""How many objects `Backend.shared` keeps."""

_kept = Remembered[Hashable, Prepared](MAX_KEPT)
_shared = Remembered[Hashable, Any](MAX_SHARED)
_encode = msgspec.json.Encoder().encode


@dataclass(slots=True)
class Opening:
    """First statements of a transaction, which may be sent together with its BEGIN; `rows` holds all their results."""

    statements: Sequence[tuple[Prepared, Given]]
    rows: Rows = field(default_factory=list)
    waits_for_disk: bool = True
    """False if the COMMIT need not survive a crash of the server: the database may then skip waiting for the disk."""


class StatementRefused(Exception):
    """The statement sent together with a COMMIT failed: the COMMIT was not run."""

    def __init__(self, error: Exception) -> None:
        super().__init__(error)
        self.error = error


@cache
def _process_user() -> str | None:
    try:
        return getpass.getuser()
    except (OSError, KeyError, ImportError):
        return None  # A container may run under a number that has no name.


class Backend(ABC):
    """Facts about one kind of database, and its operations."""

    name: ClassVar[str]
    dialect: ClassVar[str]

    migrates_on_connect: ClassVar[bool]
    """Whether connecting migrates the schema. True for embedded databases; a server is migrated on request only."""

    locks_rows: ClassVar[bool]
    """Whether `SELECT … FOR UPDATE` exists. Without it, a write transaction excludes every other writer."""

    can_hide_rows: ClassVar[bool] = False
    """Whether a role may be limited to some rows."""
    chains_writes: ClassVar[bool]
    """Whether one statement can contain all inserts of a commit (data-modifying CTEs)."""

    deletes_referenced_rows: ClassVar[bool] = True
    """Whether one transaction can delete a row together with those that refer to it."""

    survives_fork: ClassVar[bool]

    array_marks: ClassVar[tuple[str, str, str]] = ("[", "null", "]")
    """Text format of an array of numbers: its start, the mark for an unknown number, and its end."""

    has_file_indexes: ClassVar[bool] = False
    """Whether indexes find live files by the range of their range column and by partition; see `store.file_search`."""

    few_rows: ClassVar[int | None] = None
    """Most rows that `look_up` reads faster than `find`; None if it never does."""

    read_limit: TimeLimit | None = None
    """Longest read, if the database runs in this process and reads are limited."""

    def __init__(self, uri: CatalogUri) -> None:
        self.uri = uri

    @property
    def schema(self) -> str | None:
        return self.uri.schema

    @property
    def place(self) -> tuple[str | None, ...]:
        """Return a key of the database that does not depend on how its URI is written."""
        return self.name, os.path.realpath(self.uri.database)

    @property
    def is_there(self) -> bool:
        """Return whether the database exists; opening an embedded database would create it."""
        return True

    @property
    def similar(self) -> list[CatalogUri]:
        """Return existing embedded catalogs that may have been meant by this one's URI."""
        if self.uri.backend == "postgres":
            return []
        return [uri_of_file(file) for file in catalogs_named_like(Path(self.uri.database))]

    @abstractmethod
    def create_engine(self, *, pool_size: int, pool_timeout_s: float) -> Engine: ...

    @abstractmethod
    def write_transaction(
        self, engine: Engine, timeout_s: float, opening: Opening
    ) -> AbstractContextManager[Connection]:
        """Open a transaction that may write. It commits on clean exit and rolls back otherwise."""

    def brief_transaction(
        self, engine: Engine, timeout_s: float, opening: Opening
    ) -> AbstractContextManager[AnyConnection]:
        """Open a transaction that may write, for prepared statements only (`run`, `run_and_commit`).

        It ends like `write_transaction`, and costs less if the driver's connection can be used directly.
        """
        return self.write_transaction(engine, timeout_s, opening)

    def run_at_once(
        self, engine: Engine, timeout_s: float, opening: Opening, sending: Callable[[], None] | None = None
    ) -> list[Rows]:
        """Run statements as one whole transaction, in one round trip if the driver can. Return the rows of each.

        `sending` is called before the first statement is sent: from then on, the transaction may commit.
        """
        if sending is not None:
            sending()
        with self.brief_transaction(
            engine, timeout_s, Opening((), waits_for_disk=opening.waits_for_disk)
        ) as connection:
            return [self.run(connection, statement, values) for statement, values in opening.statements]

    def user(self, connection: AnyConnection) -> str | None:
        """Return the committer of a transaction that names none: the user of this process. Nothing is sent."""
        return _process_user()

    def settle(self, engine: Engine, commit_ts: int, timeout_s: float) -> None:
        """Wait until no commit stamped up to this time is still in progress.

        Call it after a commit or a seal at this time or later is committed: later transactions get later time stamps.
        """
        # There is one writer at a time, stamped after everything committed, so there is nothing to wait for.
        return None

    def is_standby(self) -> ColumnElement[bool]:
        """Return the SQL condition whether the server is a standby."""
        return false()

    def is_refused_write(self, error: DatabaseError) -> bool:
        """Return whether an error means that this user or this database may only read."""
        return False

    @abstractmethod
    def read_transaction(self, engine: Engine) -> AbstractContextManager[Connection]:
        """Open a transaction that cannot write, whose statements all see one state. It blocks no other transaction."""

    def limited(self, connection: AnyConnection) -> AbstractContextManager[None]:
        """Apply `read_limit` to what a connection reads."""
        return nullcontext() if self.read_limit is None else self.read_limit.on(driver_connection(connection))

    def look_up(self, engine: Engine, statement: Prepared, values: Mapping[str, Any]) -> Rows:
        """Run one reading statement in a separate transaction and return its rows."""
        [rows] = self.look_up_each(engine, [(statement, values)])
        return rows

    def look_up_each(self, engine: Engine, queries: Sequence[tuple[Prepared, Mapping[str, Any]]]) -> list[Rows]:
        """Run reading statements in one separate transaction, on one state, and return the rows of each."""
        with self.read_transaction(engine) as connection:
            return [self.run(connection, statement, values) for statement, values in queries]

    def read_all(self, engine: Engine, statement: Prepared) -> Rows:
        """Run one statement that reads a whole table, in a separate transaction, and return its rows."""
        with self.read_transaction(engine) as connection:
            return self.scan(connection, statement)

    def fetch(
        self, engine: Engine, query: Query, columns: pa.Schema, *, may_be_large: bool = False
    ) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a query as Arrow, in a separate transaction.

        With `may_be_large` another session may run the query, so its result must be the same in every session.
        """
        with self.read_transaction(engine) as connection:
            yield from self.batches(connection, query, columns)

    def find(
        self, engine: Engine, statement: Prepared, values: Mapping[str, Any], columns: pa.Schema
    ) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a prepared query as Arrow, in a separate transaction."""
        with self.read_transaction(engine) as connection:
            yield from self.batches_of(connection, statement, values, columns)

    @abstractmethod
    def batches(self, connection: Connection, query: Query, columns: pa.Schema) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a query as Arrow, some ten thousand at a time, by the database's fastest method.

        The query returns these columns in this order; their values are texts, numbers or booleans.
        """

    @abstractmethod
    def batches_of(
        self, connection: Connection, statement: Prepared, values: Given, columns: pa.Schema
    ) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a prepared query as `batches` does."""

    def prepare(self, statement: Executable) -> Prepared:
        return Prepared(statement, self.statement_dialect(), self.schema)

    def prepared_once(self, key: Hashable, build: Callable[[], Executable]) -> Prepared:
        """Return the statement that was prepared under this key, or prepare it.

        The key says all that it depends on, but for the kind of database and the schema.
        """
        whole = type(self), self.schema, key
        found = _kept.get(whole)
        if found is None:
            found = _kept[whole] = self.prepare(build())
        return found

    def shared(self, statements: Callable[[Backend], T]) -> T:
        """Return an object that holds statements: one for all catalogs with this kind of database and this schema.

        A program that opens many catalogs builds their statements once, which takes longer than to run them.
        """
        key = type(self), self.schema, statements
        found: T | None = _shared.get(key)
        if found is None:
            # Without the rest of the URI: a statement does not depend on it, and a password is not to be kept.
            found = _shared[key] = statements(type(self)(CatalogUri(self.uri.backend, "", self.schema)))
        return found

    @abstractmethod
    def statement_dialect(self) -> Dialect:
        """Return the dialect for statements that go directly to the driver, with positional parameters."""

    def run(self, connection: AnyConnection, statement: Prepared, values: Given) -> Rows:
        """Run a statement directly on the driver and return the driver's plain values; SQLAlchemy is bypassed."""
        return self.scan(connection, statement, values)

    def scan(self, connection: AnyConnection, statement: Prepared, values: Given | None = None) -> Rows:
        """Run a statement that returns many rows, on the driver's own cursor, which is its fastest method."""
        cursor = (connection.driver if isinstance(connection, BareConnection) else connection.connection).cursor()
        try:
            given = () if values is None else (statement.values(values),)
            cursor.execute(statement.text, *given)
            return list(cursor.fetchall()) if cursor.description else []
        finally:
            cursor.close()

    def open(self, connection: AnyConnection, opening: Opening) -> None:
        for statement, values in opening.statements:
            opening.rows += self.run(connection, statement, values)

    def run_and_commit(self, connection: AnyConnection, statement: Prepared, values: Mapping[str, Any]) -> Rows:
        """Run the last statement of a transaction and, if the driver can, its COMMIT in the same round trip."""
        return self.run(connection, statement, values)

    def update_matching(
        self,
        table: Table,
        source: FromClause,
        match: Callable[[FromClause], ColumnElement[bool]],
        values: Callable[[FromClause], Mapping[str, Any]],
    ) -> Update:
        """Return the UPDATE of the rows of a table that match a row of the source, with values from that row."""
        return update(table).values(values(source)).where(match(table))

    @abstractmethod
    def rows(self, document: BindParameter[Any], columns: Sequence[Column[Any]]) -> FromClause:
        """Return the rows of a JSON array of objects, typed like these columns."""

    def id_of(self, text: ColumnElement[str]) -> ColumnElement[Any]:
        """Convert the text of a UUID to this database's type (`types.Id`)."""
        return cast(text, Uuid)

    def greatest(self, *values: ColumnElement[int]) -> ColumnElement[int]:
        return func.greatest(*values)

    def row(self, prefix: str, columns: Sequence[Column[Any]]) -> FromClause:
        """Return one row whose values are parameters, named after their columns; see `plain`."""
        return select(
            *(
                cast(bindparam(f"{prefix}_{column.name}", type_=Text()), column.type).label(column.name)
                for column in columns
            )
        ).subquery()

    def plain(self, column: Column[Any]) -> Callable[[Any], Any] | None:
        """Return the conversion of a column's values to parameters: documents and arrays to text, None for others."""
        match column.type:
            case JSON():
                return lambda value: _encode(value).decode()
            case ARRAY():
                return self.array_text
            case _:
                return None

    @abstractmethod
    def clock_us(self) -> ColumnElement[int]:
        """Return the expression for the database's clock, in microseconds."""

    def begun_us(self) -> ColumnElement[int]:
        """Return the expression for the time at which the transaction began, if the database chains writes."""
        return self.clock_us()

    @abstractmethod
    def instant(self, microseconds: ColumnElement[int]) -> ColumnElement[Any]:
        """Convert microseconds to this database's type for a point in time (`types.Instant`)."""

    @abstractmethod
    def load(self, connection: Connection, table: Table, batches: Iterable[pa.RecordBatch]) -> None:
        """Insert many rows by the database's fastest method.

        Ids, times and documents are given as text, and arrays of numbers as `arrays` returns them.
        """

    def array_text(self, numbers: Sequence[float | None]) -> str:
        """Return an array of numbers as text that this database can read."""
        begin, unknown, end = self.array_marks
        return begin + ",".join([unknown if number is None else repr(number) for number in numbers]) + end

    def arrays(self, columns: Sequence[pa.Array]) -> pa.Array:
        """Return many arrays as `load` needs them: as text. The n-th column holds the n-th number of each array."""
        begin, unknown, end = self.array_marks
        texts = (column.cast(late_arrow.pa.string()) for column in columns)
        join = late_arrow.pc.binary_join_element_wise
        inner = join(*texts, ",", null_handling="replace", null_replacement=unknown)
        return join(begin, inner, end, "")

    def bound(self, numbers: ColumnElement[Any], place: int) -> ColumnElement[float]:
        """Return one of the numbers in `mins` or `maxs`, counted from 1; NULL if there is none."""
        return numbers[place]

    def is_found(
        self,
        table: Table,
        probed: FromClause,
        source: FromClause,
        matches: ColumnElement[bool],
        most: int | None = None,
    ) -> tuple[ColumnElement[bool], ColumnElement[bool]]:
        """Return the condition that a row of the table matches a row of the source; an index looks each of these up.

        `matches` is about `probed`, an alias of the table. The second condition is false if more than `most` match,
        as far as the database can tell; the first one is then false for every row.
        """
        raise NotImplementedError

    def equals_if(
        self, condition: ColumnElement[bool], column: ColumnElement[Any], value: ColumnElement[Any]
    ) -> ColumnElement[bool]:
        """Return the condition that a column has a value, and that a condition on no row of its table is true.

        If the latter is false, the database reads no row.
        """
        return and_(condition, column == value)

    def partition_text(self, files: FromClause) -> ColumnElement[str]:
        """Return the partition values of a file as the text that the partition index holds."""
        return type_coerce(files.c.partition_values, Text)

    def entry(self, document: ColumnElement[Any], name: str) -> ColumnElement[str]:
        """Return the text under a name in a document; NULL if it has none."""
        text: ColumnElement[str] = document[name].as_string()
        return text

    def document(self, text: ColumnElement[str]) -> ColumnElement[Any]:
        """Return a text that `partition_text` made as a document."""
        return type_coerce(text, JSON)

    def among(self, value: ColumnElement[Any], found: Select[Any]) -> ColumnElement[bool]:
        """Return the condition that a value is one of those found, such that an index looks each of them up."""
        return value.in_(found)

    def by_bytes(self, text: ColumnElement[str]) -> ColumnElement[str]:
        """Return a text that compares by its UTF-8 bytes."""
        return text

    @abstractmethod
    def number_of(self, text: ColumnElement[str]) -> ColumnElement[float]:
        """Convert a decimal text to the nearest number; NULL if it is not a number."""

    def insert_unless_present(self, table: Table) -> Any:
        """Return an INSERT that does nothing if the key exists."""
        return postgresql_insert(table).on_conflict_do_nothing()

    def is_outcome_unknown(self, error: BaseException) -> bool:
        """Return whether a COMMIT that failed with this error may have succeeded."""
        return False

    def lock_registry(self, connection: Connection) -> None:
        """Exclude other transactions that create, rename or drop tables, until this one ends."""
        return None

    def notify(self, engine: Engine) -> None:
        """Notify listeners, outside any transaction; do nothing if the database cannot."""
        return None

    @contextmanager
    def listening(self, engine: Engine) -> Iterator[Callable[[float], bool] | None]:
        """Open a listener: a function that waits up to so many seconds for `notify` and returns whether it came.

        Yield None if the database has no notifications.
        """
        yield None

    def prepare_migration(self, connection: Connection) -> None:
        """Prepare the migration's transaction, before its first statement."""
        return None

    def name_schema(self, output: TextIO) -> None:
        """Write the statements that direct a DDL script to this catalog's schema."""
        return None

    @abstractmethod
    def classify(self, error: BaseException) -> DeltarsError:
        """Convert a driver's exception to one of ours, by its code."""

    @cached_property
    def _translation(self) -> _Translation:
        return _Translation(self)

    def translating(self) -> AbstractContextManager[None]:
        """Convert every exception of SQLAlchemy or the driver to one of ours."""
        return self._translation

    driver_errors: ClassVar[tuple[type[Exception], ...]]

    def _pool_exhausted(self) -> TimeoutError:
        return TimeoutError(
            "every pooled connection to the catalog was in use for longer than pool_timeout",
            hint="Raise pool_size, or finish transactions sooner.",
        )


class _Translation:
    """Context in which exceptions of SQLAlchemy or the driver become ours. It has no state: threads share it."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend

    def __enter__(self) -> None:
        return None

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        match error:
            case None:
                return
            case sa_exc.TimeoutError():
                raise self._backend._pool_exhausted() from error
            case StatementRefused():
                raise self._backend.classify(error.error).located(stage="write") from error.error
            case sa_exc.DBAPIError():
                raise self._backend.classify(error.orig or error) from error
            case sa_exc.SQLAlchemyError():
                raise DatabaseError(f"the catalog database failed: {error}") from error
        if isinstance(error, self._backend.driver_errors):
            raise self._backend.classify(error) from error


def first_line(error: BaseException) -> str:
    """Return the first line of a driver's message; the rest is detail for developers of the driver."""
    return str(error).strip().partition("\n")[0]


def read_too_long() -> TimeoutError:
    """Return the error of a read that `Backend.read_limit` ended."""
    return TimeoutError(
        "the database was reading for too long, and was interrupted",
        hint="Read less at once, such as a shorter window of time.",
    )
