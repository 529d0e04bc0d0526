"""The statements of a transaction over several tables: locks before writes, and nothing seen before the end."""

from __future__ import annotations

import time

import pytest

import deltars
from deltars.errors import DatabaseError, ValidationError, VersionConflict
from tests.support import witness
from tests.support.lake import Lake, OpenLake
from tests.support.log import added, every_kind
from tests.support.tap import Tap
from tests.support.together import Meanwhile
from tests.support.wire import Verdict

WRITES = ("INSERT", "UPDATE ", "COPY")
LOCKS = {"postgres": "FOR UPDATE", "sqlite": "BEGIN IMMEDIATE", "duckdb": "BEGIN"}


def _is_write(statement: str) -> bool:
    # DuckDB and SQLite begin with the verb; on PostgreSQL it stands inside WITH. A lock is FOR UPDATE.
    # A refusal is recorded afterwards, for people; that is no part of the commit.
    is_record = "dl_conflicts" in statement
    return not is_record and any(verb in statement.replace("FOR UPDATE", "") for verb in WRITES)


def _stage_everywhere(lake: Lake, files: int = 1) -> deltars.Transaction:
    tx = lake.begin()
    for name in lake.logs:
        tx.stage(name, [added(f"{tx.id}-{number}") for number in range(files)])
    return tx


@pytest.mark.requirement("M-06")
@pytest.mark.parametrize("threshold", [1_000, 2], ids=["small", "bulk"])
def test_every_table_is_locked_before_anything_is_written(
    open_lake: OpenLake, tap: Tap, backend: str, threshold: int
) -> None:
    lake = open_lake("a", "b", "c", tap=tap, copy_threshold=threshold)
    tx = _stage_everywhere(lake, files=3)
    with tap.recording() as statements:
        lake.catalog._session.commit(tx._as_commit())
    lock = next(i for i, statement in enumerate(statements) if LOCKS[backend] in statement)
    first_write = next(i for i, statement in enumerate(statements) if _is_write(statement))
    assert lock < first_write
    assert not any(LOCKS[backend] in statement for statement in statements[first_write:])
    if backend == "postgres":
        # One statement for all three, in the order of their ids.
        assert statements[lock].count("$") == 3
        assert "ORDER BY" in statements[lock]


@pytest.mark.requirement("M-06")
def test_every_table_is_checked_before_anything_is_written(open_lake: OpenLake, tap: Tap) -> None:
    lake = open_lake("a", "b", "c", tap=tap)
    for last in ("a", "b", "c"):
        tx = _stage_everywhere(lake)
        lake[last].append()
        with tap.recording() as statements, pytest.raises(VersionConflict):
            tx.commit()
        assert statements
        assert [statement for statement in statements if _is_write(statement)] == []


@pytest.mark.every_case_on("sqlite")
@pytest.mark.requirement("M-09")
@pytest.mark.parametrize("what", ["by itself", "for its table"])
def test_invalid_action_of_any_table_is_refused_before_a_lock(
    open_lake: OpenLake, tap: Tap, backend: str, what: str
) -> None:
    lake = open_lake("a", "b", "c", tap=tap)
    wrong = added("x", size=-1) if what == "by itself" else added("x", partition_values={"day": "1"})
    for name in lake.logs:
        with tap.recording() as statements:
            tx = _stage_everywhere(lake)
            with pytest.raises(ValidationError) as caught:  # noqa: PT012
                tx.stage(name, [wrong])
                tx.commit()
        assert (caught.value.stage, caught.value.table) == ("validate", name)
        begins = [statement for statement in statements if statement.startswith("BEGIN") or LOCKS[backend] in statement]
        assert [each for each in begins if not _only_reads(each, backend)] == []
        assert [statement for statement in statements if _is_write(statement)] == []


def _only_reads(begin: str, backend: str) -> bool:
    return "READ ONLY" in begin or (backend == "sqlite" and begin == "BEGIN")


@pytest.mark.requirement("M-08")
def test_failure_of_any_statement_leaves_no_trace_in_any_table(open_lake: OpenLake, tap: Tap) -> None:
    lake = open_lake("a", "b", tap=tap, copy_threshold=2)
    for name in "ab":
        lake[name].append("old")
    before = lake.dump()
    number = 0
    while True:
        number += 1
        tx = lake.begin()
        for name in "ab":
            tx.stage(name, every_kind(1, gone=["old"], files=3))
        # Without the mirror: what fails there does not undo the commit.
        with tap.failing(number):
            outcome = Meanwhile(lake.catalog._session.commit, tx._as_commit()).outcome()
        if not isinstance(outcome, BaseException):
            break
        # A COPY that the client spoils is, to PostgreSQL, one that was cancelled.
        assert isinstance(outcome, DatabaseError | deltars.TimeoutError)
        assert outcome.stage in ("validate", "lock", "check", "write", "commit")
        assert lake.dump() == before, f"statement {number} left a trace"
    assert number > 3
    assert lake.versions == {"a": 2, "b": 2}


@pytest.mark.requirement("M-08")
@pytest.mark.parametrize("threshold", [1_000, 2], ids=["small", "bulk"])
def test_error_in_the_last_tables_insert_leaves_nothing_of_the_first(open_lake: OpenLake, threshold: int) -> None:
    lake = open_lake("a", "b", "c", copy_threshold=threshold)
    last = lake.by_id[-1]
    database = lake.catalog._session.database
    schema = lake.catalog._session.uri.schema
    files = f'"{schema}".dl_add_files' if schema else "dl_add_files"
    # A row of the coming version is there already: the primary key refuses the second one.
    lake[last].append("in the way")
    with database.write(10) as connection:
        connection.exec_driver_sql(f"UPDATE {files} SET version = 2")
    before = lake.dump()
    tx = _stage_everywhere(lake, files=3)
    with pytest.raises(DatabaseError) as caught:
        tx.commit()
    assert caught.value.stage == "write"
    assert lake.dump() == before


@pytest.mark.requirement("M-30")
def test_no_read_through_sql_finds_one_table_after_a_transaction_and_another_before(
    open_lake: OpenLake, tap: Tap
) -> None:
    lake = open_lake("a", "b", tap=tap, copy_threshold=2)
    reader = deltars.connect(lake.uri)
    seen: list[tuple[str, set[int]]] = []
    is_looking = False

    def look(statement: str) -> Verdict:
        nonlocal is_looking
        # On SQLite and DuckDB the reader's own statements come by here too.
        if not is_looking:
            is_looking = True
            cut = reader.snapshot()
            files = {len(cut.files(name)) // 3 for name in "ab"}
            views = {version for (version,) in witness.rows(lake.uri, "SELECT current_version FROM datasets")}
            seen.append((statement, set(cut.versions.values()) | set(lake.versions.values()) | files | views))
            is_looking = False
        return Verdict.PASS

    tx = _stage_everywhere(lake, files=3)
    with reader, tap.judging(look):
        lake.catalog._session.commit(tx._as_commit())
        assert seen
        assert all(versions == {0} for _, versions in seen), seen
        cut = reader.snapshot()
        assert set(cut.versions.values()) == {1}
        assert {len(cut.files(name)) for name in "ab"} == {3}


@pytest.mark.requirement("M-25")
@pytest.mark.backends("postgres")
def test_ten_tables_of_a_thousand_files_each_go_by_copy(open_lake: OpenLake, tap: Tap) -> None:
    names = [f"t{number}" for number in range(10)]
    lake = open_lake(*names, tap=tap)
    tx = _stage_everywhere(lake, files=1_000)
    with tap.recording() as statements:
        tx.commit()
    copies = [statement for statement in statements if statement.startswith("COPY") and "dl_add_files" in statement]
    assert len(copies) == 1
    assert not any("INTO" in statement and "dl_add_files" in statement for statement in statements)
    assert {len(log.live()) for log in lake.logs.values()} == {1_000}


@pytest.mark.requirement("M-32")
@pytest.mark.backends("postgres")
@pytest.mark.parametrize("count", [2, 10])
def test_usual_transaction_takes_far_less_than_ten_seconds(open_lake: OpenLake, count: int) -> None:
    lake = open_lake(*(f"t{number}" for number in range(count)))
    tx = _stage_everywhere(lake, files=100)
    started = time.monotonic()
    tx.commit()
    assert time.monotonic() - started < 5
    assert set(lake.versions.values()) == {1}
