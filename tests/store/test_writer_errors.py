"""What a database's refusals become: every driver's exception is one of ours, by its code and not by its words."""

from __future__ import annotations

import builtins
import inspect
import pickle
import sqlite3
from types import MappingProxyType

import duckdb
import psycopg
import pytest
from sqlalchemy import text

from deltars.errors import DatabaseError, DeltarsError, SchemaVersionError, TimeoutError
from deltars.protocol import CdcFile
from deltars.store.backends import Backend, backend_for
from deltars.uri import CatalogUri
from tests.store.conftest import OpenLog
from tests.support.log import Log, added
from tests.support.tap import Tap

POSTGRES = CatalogUri("postgres", "lake", "public", MappingProxyType({"user": "ada", "password": "s3cret"}))

TIME_OUTS = {"55P03", "57014", "25P03", "25P04"}
RETRYABLE = {
    *("40001", "40P01", "53300", "57P01", "57P02", "57P03", "57P05"),
    # The connection itself.
    *("08000", "08001", "08003", "08004", "08006", "08007", "08P01"),
}

POSTGRES_ERRORS: dict[str, type[psycopg.Error]] = {
    state: error
    for error in vars(psycopg.errors).values()
    if inspect.isclass(error) and issubclass(error, psycopg.Error) and (state := getattr(error, "sqlstate", None))
}
# What sqlite3 calls a result: the primary codes and the extended ones that refine them.
SQLITE_PRIMARY = (
    "ERROR", "INTERNAL", "PERM", "ABORT", "BUSY", "LOCKED", "NOMEM", "READONLY", "INTERRUPT", "IOERR", "CORRUPT",
    "NOTFOUND", "FULL", "CANTOPEN", "PROTOCOL", "EMPTY", "SCHEMA", "TOOBIG", "CONSTRAINT", "MISMATCH", "MISUSE",
    "NOLFS", "AUTH", "FORMAT", "RANGE", "NOTADB",
)  # fmt: skip
SQLITE_ERRORS = sorted(
    name
    for name in vars(sqlite3)
    if name.startswith("SQLITE_") and name.removeprefix("SQLITE_").partition("_")[0] in SQLITE_PRIMARY
)
DUCKDB_ERRORS = [error for error in vars(duckdb).values() if inspect.isclass(error) and issubclass(error, duckdb.Error)]


def _backend(uri: CatalogUri) -> Backend:
    return backend_for(uri)


@pytest.mark.requirement("D-07", "D-08")
@pytest.mark.backends("postgres")
@pytest.mark.parametrize("state", sorted(POSTGRES_ERRORS))
def test_every_sqlstate_of_postgresql_has_its_class(state: str) -> None:
    error = _backend(POSTGRES).classify(POSTGRES_ERRORS[state]("the server's words"))
    if state in TIME_OUTS:
        assert isinstance(error, TimeoutError)
        assert isinstance(error, builtins.TimeoutError)
    else:
        assert isinstance(error, DatabaseError)
        assert error.sqlstate == state
        assert "the server's words" in str(error)
        assert error.retryable == (state in RETRYABLE)
    assert isinstance(error, SchemaVersionError) == (state in ("42P01", "3F000"))
    assert "s3cret" not in repr(error) + str(error)


@pytest.mark.requirement("D-07", "D-08")
@pytest.mark.backends("sqlite")
@pytest.mark.parametrize("name", SQLITE_ERRORS)
def test_every_error_of_sqlite_has_its_class(name: str) -> None:
    raised = sqlite3.OperationalError("UNIQUE constraint failed: t.a" if "CONSTRAINT" in name else "its words")
    raised.sqlite_errorname = name
    error = _backend(CatalogUri("sqlite", "/lake.db")).classify(raised)
    if name == "SQLITE_INTERRUPT":
        # By the limit on reads: nothing else interrupts a connection.
        assert isinstance(error, TimeoutError)
    elif name.startswith(("SQLITE_BUSY", "SQLITE_LOCKED")):
        assert isinstance(error, TimeoutError)
        assert "database is locked" not in str(error)
    else:
        assert isinstance(error, DatabaseError)
        assert error.sqlstate == name
        assert not error.retryable
        assert (error.constraint == "t.a") == ("CONSTRAINT" in name)


@pytest.mark.requirement("D-07", "D-08")
@pytest.mark.backends("duckdb")
@pytest.mark.parametrize("kind", DUCKDB_ERRORS, ids=lambda kind: kind.__name__)
def test_every_error_of_duckdb_has_its_class(kind: type[duckdb.Error]) -> None:
    error = _backend(CatalogUri("duckdb", "/lake.duckdb")).classify(kind("its words"))
    if kind is duckdb.InterruptException:
        assert isinstance(error, TimeoutError)
        return
    assert isinstance(error, DatabaseError)
    assert "its words" in str(error)
    assert error.sqlstate
    assert error.retryable == issubclass(kind, duckdb.TransactionException)
    assert (error.constraint is not None) == issubclass(kind, duckdb.ConstraintException)


@pytest.mark.requirement("D-07")
def test_driver_s_exception_that_has_no_code_is_ours_too(log: Log) -> None:
    error = log.catalog._session.database.backend.classify(RuntimeError("from inside the driver"))
    assert isinstance(error, DatabaseError)
    assert "from inside the driver" in str(error)


@pytest.mark.requirement("D-07", "D-18")
def test_catalog_that_lacks_a_table_is_a_database_error_and_nothing_worse(log: Log) -> None:
    _run(log, "DROP TABLE {}dl_cdc_files")
    before = log.dump()
    with pytest.raises(DatabaseError, match="dl_cdc_files") as caught:
        log.commit([added("a"), CdcFile(path="c", partition_values={}, size=1)])
    assert not caught.value.retryable
    assert (caught.value.stage, caught.value.table_id, caught.value.version) == ("write", str(log.table_id), 1)
    assert isinstance(pickle.loads(pickle.dumps(caught.value)), DatabaseError)
    assert log.dump() == before
    assert log.append("a").version == 1


@pytest.mark.requirement("W-19")
def test_broken_constraint_is_named_with_what_broke_it(log: Log, backend: str) -> None:
    """A file's place in its version, taken before the writer comes."""
    log.append("a")
    _run(
        log,
        "INSERT INTO {}dl_add_files (table_id, version, ord, path, size, partition_values, modification_time,"
        f" data_change, dv_id, slot) VALUES ('{log.table_id}', 2, 0, 'foreign', 1, '{{}}', 1, true, '', 1)",
    )
    before = log.dump()
    with pytest.raises(DatabaseError) as caught:
        log.append("b")
    error = caught.value
    expected = {
        "postgres": "pk_dl_add_files",
        "sqlite": "dl_add_files.table_id, dl_add_files.version, dl_add_files.ord",
        "duckdb": "primary key",
    }
    assert error.constraint is not None
    assert expected[backend] in error.constraint
    for value in (str(log.table_id), "2"):
        assert value in str(error)
    assert log.dump() == before


@pytest.mark.requirement("D-07")
def test_any_failing_statement_is_an_error_of_ours(open_log: OpenLog, tap: Tap) -> None:
    log = open_log(tap=tap).create()
    with tap.recording() as statements:
        log.append("a")
    for number in range(1, len(statements) + 1):
        with tap.failing(number), pytest.raises(DeltarsError) as caught:
            log.append("b", version=2)
        assert isinstance(caught.value, DatabaseError)
        assert caught.value.stage in ("lock", "check", "write", "commit")
        assert caught.value.txn_id is not None


def _run(log: Log, statement: str) -> None:
    schema = log.catalog._session.uri.schema
    with log.catalog._session.database.write(10) as connection:
        connection.execute(text(statement.replace("{}dl", f'"{schema}".dl' if schema else "dl")))
