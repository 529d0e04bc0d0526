"""A backend is a short list of facts about one database.

SQL is written once, with SQLAlchemy Core, in the modules above this folder. What differs is said here and nowhere
else: how the database is opened, how a write transaction begins and whom it excludes, how rows come out of one JSON
parameter, what its clock is called, how many rows are many, and what its errors mean.
"""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from typing import Any, ClassVar, TextIO, TypeAlias

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
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
    bindparam,
    cast,
    false,
    func,
    select,
    true,
    update,
)
from sqlalchemy import exc as sa_exc
from sqlalchemy.dialects.postgresql import insert as postgresql_insert

from deltars.errors import DatabaseError, DeltarsError, TimeoutError
from deltars.uri import CatalogUri

Query: TypeAlias = Select[Any] | CompoundSelect[Any]
Rows: TypeAlias = list[tuple[Any, ...]]

_encode = msgspec.json.Encoder().encode


class Prepared:
    """A statement compiled once: its text, and in which order it takes its parameters."""

    def __init__(self, statement: Executable, dialect: Dialect, schema: str | None) -> None:
        options = {"schema_translate_map": {None: schema}, "render_schema_translate": True} if schema else {}
        rendered = {"render_postcompile": True}
        compiled = statement.compile(dialect=dialect, compile_kwargs=rendered, **options)  # type: ignore[attr-defined]
        self.text = str(compiled)
        self.names: tuple[str, ...] = tuple(compiled.positiontup)
        self._constants = {name: value for name, value in compiled.params.items() if value is not None}

    def values(self, given: Mapping[str, Any]) -> list[Any]:
        return [given[name] if name in given else self._constants.get(name) for name in self.names]


@dataclass(slots=True)
class Opening:
    """The first statements of a transaction, which may travel with its BEGIN; `rows` are their answers, one after the
    other."""

    statements: Sequence[tuple[Prepared, Mapping[str, Any]]]
    rows: Rows = field(default_factory=list)
    waits_for_disk: bool = True
    """False: its COMMIT need not outlast a crash of the server, where the database can spare the wait."""


class StatementRefused(Exception):
    """The statement before a COMMIT of the same round trip failed: the COMMIT was not run."""

    def __init__(self, error: Exception) -> None:
        super().__init__(error)
        self.error = error


class Backend(ABC):
    """The facts of one kind of database."""

    name: ClassVar[str]
    dialect: ClassVar[str]

    migrates_on_connect: ClassVar[bool]
    """Embedded databases are ours to bring up to date; a server is migrated only when asked."""

    locks_rows: ClassVar[bool]
    """Whether `SELECT … FOR UPDATE` exists; elsewhere beginning the write transaction excludes every other writer."""

    chains_writes: ClassVar[bool]
    """Whether one statement can carry all inserts of a commit (data-modifying CTEs)."""

    survives_fork: ClassVar[bool]

    array_marks: ClassVar[tuple[str, str, str]] = ("[", "null", "]")
    """How an array of numbers is written: its beginning, a number that is not known, and its end."""

    has_range_index: ClassVar[bool] = False
    """Whether an index finds live files by the range of their chosen column; see `in_range`."""

    def __init__(self, uri: CatalogUri) -> None:
        self.uri = uri

    @property
    def schema(self) -> str | None:
        return self.uri.schema

    @property
    def place(self) -> tuple[str | None, ...]:
        """Which database it is, however its URI was written."""
        return self.name, os.path.realpath(self.uri.database)

    @property
    def is_there(self) -> bool:
        """Whether there is a database to look into: opening an embedded one would make it."""
        return True

    @abstractmethod
    def create_engine(self, *, pool_size: int, pool_timeout_s: float) -> Engine: ...

    @abstractmethod
    def write_transaction(
        self, engine: Engine, timeout_s: float, opening: Opening
    ) -> AbstractContextManager[Connection]:
        """A transaction that may write; it commits on clean exit and else rolls back."""

    def settle(self, engine: Engine, commit_ts: int, timeout_s: float) -> None:
        """Wait until no commit that was stamped up to this time is still under way.

        Call it when a commit or a seal of this time or later is committed: whoever begins afterwards is stamped later.
        """
        # One writer at a time: its time stamp is after everything committed, so there is nothing to wait for.
        return None

    def is_standby(self) -> ColumnElement[bool]:
        """Whether the server only repeats what another one commits."""
        return false()

    def is_refused_write(self, error: DatabaseError) -> bool:
        """Whether this user, or this database, may read and not write."""
        return False

    @abstractmethod
    def read_transaction(self, engine: Engine) -> AbstractContextManager[Connection]:
        """A transaction whose statements all see one state, which blocks nobody and cannot write."""

    def look_up(self, engine: Engine, statement: Prepared, values: Mapping[str, Any]) -> Rows:
        """The answer to one statement that reads, in a transaction of its own."""
        [rows] = self.look_up_each(engine, [(statement, values)])
        return rows

    def look_up_each(self, engine: Engine, asked: Sequence[tuple[Prepared, Mapping[str, Any]]]) -> list[Rows]:
        """The answers to several statements that read one state, in a transaction of their own."""
        with self.read_transaction(engine) as connection:
            return [self.run(connection, statement, values) for statement, values in asked]

    def fetch(
        self, engine: Engine, query: Query, columns: pa.Schema, *, may_be_large: bool = False
    ) -> Iterator[pa.RecordBatch]:
        """The answer of a query as Arrow, in a transaction of its own.

        What `may_be_large` may come through another session, so it must be the same in each.
        """
        with self.read_transaction(engine) as connection:
            yield from self.batches(connection, query, columns)

    @abstractmethod
    def batches(self, connection: Connection, query: Query, columns: pa.Schema) -> Iterator[pa.RecordBatch]:
        """The answer of a query as Arrow, some ten thousand rows at a time, the database's fastest way.

        The query gives these columns in this order; what they hold is text, a number or a truth value.
        """

    def prepare(self, statement: Executable) -> Prepared:
        return Prepared(statement, self.statement_dialect(), self.schema)

    @abstractmethod
    def statement_dialect(self) -> Dialect:
        """The dialect that statements are compiled for when they go straight to the driver, by position."""

    def run(self, connection: Connection, statement: Prepared, values: Mapping[str, Any]) -> Rows:
        """Straight on the driver's cursor: nothing is compiled or looked up again. Answers are its plain values."""
        return self.scan(connection, statement, values)

    def scan(self, connection: Connection, statement: Prepared, values: Mapping[str, Any] | None = None) -> Rows:
        """The same for many rows: no driver has anything faster than its own cursor."""
        cursor = connection.connection.cursor()
        try:
            given = () if values is None else (statement.values(values),)
            cursor.execute(statement.text, *given)
            return list(cursor.fetchall()) if cursor.description else []
        finally:
            cursor.close()

    def open(self, connection: Connection, opening: Opening) -> None:
        for statement, values in opening.statements:
            opening.rows += self.run(connection, statement, values)

    def run_and_commit(self, connection: Connection, statement: Prepared, values: Mapping[str, Any]) -> Rows:
        """The last statement of a transaction and its COMMIT, in one round trip where the driver can."""
        return self.run(connection, statement, values)

    def update_matching(
        self,
        table: Table,
        source: FromClause,
        match: Callable[[FromClause], ColumnElement[bool]],
        values: Callable[[FromClause], Mapping[str, Any]],
    ) -> Update:
        """UPDATE those rows of a table that match a row of the source, with values from it."""
        return update(table).values(values(source)).where(match(table))

    @abstractmethod
    def rows(self, document: BindParameter[Any], columns: Sequence[Column[Any]]) -> FromClause:
        """The rows of a JSON array of objects, typed like these columns."""

    def id_of(self, text: ColumnElement[str]) -> ColumnElement[Any]:
        """The text of a UUID as this database keeps it (`types.Id`)."""
        return cast(text, Uuid)

    def greatest(self, *values: ColumnElement[int]) -> ColumnElement[int]:
        return func.greatest(*values)

    def row(self, prefix: str, columns: Sequence[Column[Any]]) -> FromClause:
        """One row whose values are parameters, named after their columns; see `plain`."""
        return select(
            *(
                cast(bindparam(f"{prefix}_{column.name}", type_=Text()), column.type).label(column.name)
                for column in columns
            )
        ).subquery()

    def plain(self, column: Column[Any]) -> Callable[[Any], Any] | None:
        """How a value of a row becomes a parameter: documents and arrays as their text, the rest as it is."""
        match column.type:
            case JSON():
                return lambda value: _encode(value).decode()
            case ARRAY():
                return self.array_text
            case _:
                return None

    @abstractmethod
    def clock_us(self) -> ColumnElement[int]:
        """The database's clock, in microseconds."""

    @abstractmethod
    def instant(self, microseconds: ColumnElement[int]) -> ColumnElement[Any]:
        """Microseconds as this database keeps a moment (`types.Instant`)."""

    @abstractmethod
    def load(self, connection: Connection, table: Table, batches: Iterable[pa.RecordBatch]) -> None:
        """Many rows at once, the database's fastest way. Documents and arrays of numbers arrive as their text."""

    def array_text(self, numbers: Sequence[float | None]) -> str:
        """An array of numbers as this database reads it from text."""
        begin, unknown, end = self.array_marks
        return begin + ",".join(unknown if number is None else repr(number) for number in numbers) + end

    def array_texts(self, columns: Sequence[pa.Array]) -> pa.Array:
        """Many of them, whose first numbers, second numbers and so on are columns."""
        begin, unknown, end = self.array_marks
        texts = (column.cast(pa.string()) for column in columns)
        inner = pc.binary_join_element_wise(*texts, ",", null_handling="replace", null_replacement=unknown)
        return pc.binary_join_element_wise(begin, inner, end, "")

    def bound(self, numbers: ColumnElement[Any], place: int) -> ColumnElement[float]:
        """One of the numbers in `mins` or `maxs`, counted from 1; NULL where there is none."""
        return numbers[place]

    def in_range(self, low: float, high: float, slot: int) -> ColumnElement[bool]:
        """Whether a live file's range column can lie between these: what an index answers, where there is one."""
        return true()

    def by_bytes(self, text: ColumnElement[str]) -> ColumnElement[str]:
        """A text that compares by its bytes in UTF-8."""
        return text

    @abstractmethod
    def number_of(self, text: ColumnElement[str]) -> ColumnElement[float]:
        """The number nearest to what a text of digits says; NULL where it says something else."""

    def insert_unless_present(self, table: Table) -> Any:
        """An INSERT that does nothing where the key is taken."""
        return postgresql_insert(table).on_conflict_do_nothing()

    def is_outcome_unknown(self, error: BaseException) -> bool:
        """Whether a COMMIT that failed so may have happened all the same."""
        return False

    def lock_registry(self, connection: Connection) -> None:
        """Keep out whoever else creates, renames or drops tables, until the transaction ends."""
        return None

    def notify(self, engine: Engine) -> None:
        """Wake those who listen, outside any transaction; nothing where the database cannot."""
        return None

    @contextmanager
    def listening(self, engine: Engine) -> Iterator[Callable[[float], bool] | None]:
        """How to wait for `notify`, at most so many seconds: whether there was one. None: nobody can listen here."""
        yield None

    def prepare_migration(self, connection: Connection) -> None:
        """Inside the migration's transaction, before the first statement."""
        return None

    def name_schema(self, output: TextIO) -> None:
        """The statements that put a DDL script into this catalog's schema."""
        return None

    @abstractmethod
    def classify(self, error: BaseException) -> DeltarsError:
        """What a driver's exception means, by its code."""

    @contextmanager
    def translating(self) -> Iterator[None]:
        """Every exception of SQLAlchemy or the driver leaves as one of ours."""
        try:
            yield
        except sa_exc.TimeoutError as error:
            raise self._pool_exhausted() from error
        except StatementRefused as refused:
            raise self.classify(refused.error).located(stage="write") from refused.error
        except sa_exc.DBAPIError as error:
            raise self.classify(error.orig or error) from error
        except sa_exc.SQLAlchemyError as error:
            raise DatabaseError(f"the catalog could not be used: {error}") from error
        except self.driver_errors as error:
            raise self.classify(error) from error

    driver_errors: ClassVar[tuple[type[Exception], ...]]

    def _pool_exhausted(self) -> TimeoutError:
        return TimeoutError(
            "every pooled connection to the catalog stayed in use for as long as pool_timeout allows",
            hint="Raise pool_size, or finish transactions sooner.",
        )


def first_line(error: BaseException) -> str:
    """The first line of a driver's message: the rest is for its own developers."""
    return str(error).strip().partition("\n")[0]
