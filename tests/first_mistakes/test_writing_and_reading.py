"""What a newcomer gets wrong in a program: the message says what is wrong and how to mend it, and nothing changed."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pandas as pd
import pyarrow as pa
import pytest

import deltars
from tests.first_mistakes.conftest import ROWS


class Mistake(NamedTuple):
    made: Callable[[deltars.Catalog], object]
    error: type[Exception]
    wrong: str
    mended_by: str


def _commit_twice(lake: deltars.Catalog) -> None:
    tx = lake.begin()
    tx.commit()
    tx.write("plain", ROWS)


def _lose_a_race(lake: deltars.Catalog) -> None:
    late = lake.begin()
    late.write("by_day", ROWS)
    lake.set_properties("by_day", {"owner": "somebody else"})
    try:
        late.commit()
    finally:
        lake.table("by_day").alter.unset_properties("owner")


def _write_two_databases(lake: deltars.Catalog) -> None:
    with deltars.begin() as tx:
        tx.write("plain", ROWS)
        tx.write("deltasql://sqlite/other.db/labels", ROWS)


def _write_eleven_tables(lake: deltars.Catalog) -> None:
    with lake.begin() as tx:
        for number in range(11):
            tx.write(f"table_{number}", ROWS)


def _ask_for_the_result_of_nothing(lake: deltars.Catalog) -> object:
    return lake.begin().result


MISTAKES = {
    "a type that does not fit": Mistake(
        lambda lake: lake.write("plain", pa.table({"id": ["x"], "day": ["a"]})),
        deltars.SchemaMismatch,
        "column id is string in the data, long in the table",
        "Cast it in the frame",
    ),
    "a frame that was never filled": Mistake(
        lambda lake: lake.write("plain", pd.DataFrame(), "overwrite"),
        deltars.ValidationError,
        "the frame has no columns",
        "a frame without rows can be written",
    ),
    "rows without columns": Mistake(
        lambda lake: lake.write("plain", pd.DataFrame(index=range(3)), merge_schema=True),
        deltars.ValidationError,
        "the frame has no columns",
        "Check how the frame was made",
    ),
    "a column that is not there": Mistake(
        lambda lake: lake.write("plain", pa.table({"idd": [1], "day": ["a"]})),
        deltars.SchemaMismatch,
        "column idd is not in the table",
        "merge_schema=True",
    ),
    "no partition column": Mistake(
        lambda lake: lake.write("by_day", pa.table({"id": [1]})),
        deltars.SchemaMismatch,
        "the data lacks the column day, which the table is partitioned by",
        "Add day to the frame",
    ),
    "partitioned by a misspelt column": Mistake(
        lambda lake: lake.write("new", ROWS, partition_by="dya"),
        deltars.ValidationError,
        "there is no column 'dya' to partition by",
        "the columns are id, day",
    ),
    "a misspelt column in where": Mistake(
        lambda lake: lake.table("plain").to_arrow(where="dya = 'a'"),
        deltars.PredicateError,
        "there is no column dya",
        "Did you mean day?",
    ),
    "a mode that does not exist": Mistake(
        lambda lake: lake.write("plain", ROWS, "upsert"),  # type: ignore[arg-type]
        deltars.ValidationError,
        "unknown mode 'upsert'",
        "Known values: append, overwrite",
    ),
    "a finished transaction": Mistake(
        _commit_twice, deltars.TransactionClosed, "This transaction is finished", "begin a new one"
    ),
    "the result of a transaction that did not commit": Mistake(
        _ask_for_the_result_of_nothing, deltars.TransactionClosed, "has no result yet: it is open", "after commit()"
    ),
    "a lost race": Mistake(
        _lose_a_race,
        deltars.VersionConflict,
        "the table is at version 1, the commit expected version 0",
        "let catalog.run() do it",
    ),
    "two databases in one transaction": Mistake(
        _write_two_databases, deltars.ValidationError, "is in another catalog", "commit to each separately"
    ),
    "a table of another catalog": Mistake(
        lambda lake: lake.table("deltasql://sqlite/other.db/labels"),
        deltars.ValidationError,
        "is in another catalog",
        "connect to the other one",
    ),
    "a table that is not there": Mistake(
        lambda lake: lake.table("plane"),
        deltars.TableNotFound,
        "there is no table 'plane'",
        "catalog.tables() lists the tables",
    ),
    "too many tables": Mistake(
        _write_eleven_tables, deltars.TransactionTooLarge, "11 tables, and max_tables is 10", "raise max_tables"
    ),
    "a pandas index that holds data": Mistake(
        lambda lake: lake.write("new", pd.DataFrame({"a": [1]}, index=["x"])),
        deltars.ValidationError,
        "an index that holds data",
        "Call reset_index()",
    ),
    "duplicate columns in pandas": Mistake(
        lambda lake: lake.write("new", pd.DataFrame([[1, 2]], columns=["a", "a"])),
        deltars.ValidationError,
        "more than one column named 'a'",
        "Rename or drop one",
    ),
    "duplicate columns in Arrow": Mistake(
        lambda lake: lake.write("new", pa.table([[1], [2]], names=["a", "A"])),
        deltars.ValidationError,
        "duplicate column a (upper and lower case are the same)",
        "rename or drop one",
    ),
    "a frame without columns": Mistake(
        lambda lake: lake.write("new", pd.DataFrame()),
        deltars.ValidationError,
        "the frame has no columns",
        "column",
    ),
    "a dictionary in place of a frame": Mistake(
        lambda lake: lake.write("new", {"a": [1]}),  # type: ignore[arg-type]
        deltars.ValidationError,
        "a dict cannot be written",
        "write pyarrow.table(columns)",
    ),
    "the frame and the table swapped": Mistake(
        lambda lake: deltars.write(ROWS, "plain"),  # type: ignore[arg-type]
        deltars.ValidationError,
        "table must be a text, got a pyarrow.lib.Table",
        "Write deltars.write(table, df).",
    ),
    "the session before the table": Mistake(
        lambda lake: deltars.read(object()),  # type: ignore[arg-type]
        deltars.ValidationError,
        "table must be a text, got a builtins.object",
        "Write deltars.read(table, spark=spark).",
    ),
    "the session before the query": Mistake(
        lambda lake: deltars.sql(object()),  # type: ignore[arg-type]
        deltars.ValidationError,
        "query must be a text, got a builtins.object",
        "Write deltars.sql(query, spark=spark).",
    ),
    "None as a table": Mistake(
        lambda lake: lake.table(None),  # type: ignore[arg-type]
        deltars.ValidationError,
        "a table is a name, an id or a URI, got None",
        "catalog.table",
    ),
    "a version that is not there": Mistake(
        lambda lake: lake.table("plain").to_arrow(version=7),
        deltars.VersionNotFound,
        "there is no version 7",
        "The table has the versions 0 to 0",
    ),
    "a time that is none": Mistake(
        lambda lake: lake.snapshot("yesterday"),
        deltars.ValidationError,
        "'yesterday' is neither a tag, nor a transaction's id, nor a time",
        "Write 2026-01-31T12:00:00Z",
    ),
    "a transaction's id without a character": Mistake(
        lambda lake: lake.begin(txn_id=""),
        deltars.ConfigError,
        "txn_id cannot be used",
        "a UUID or a text that is not empty",
    ),
    "a table made a second time": Mistake(
        lambda lake: lake.create_table("plain", "id BIGINT"),
        deltars.TableExists,
        "there is already a table named 'plain'",
        "if_not_exists=True",
    ),
}


@pytest.mark.parametrize("mistake", MISTAKES.values(), ids=MISTAKES)
def test_the_message_says_what_is_wrong_and_how_to_mend_it_and_no_row_has_changed(
    lake: deltars.Catalog, mistake: Mistake
) -> None:
    with pytest.raises(mistake.error) as raised:
        mistake.made(lake)
    said = str(raised.value)
    assert mistake.wrong in said
    assert mistake.mended_by in said
    assert [table.name for table in lake.tables()] == ["by_day", "plain"]
    assert all(table.to_arrow().num_rows == 2 for table in lake.tables())


def test_a_table_that_was_moved_says_where_it_should_be(lake: deltars.Catalog, tmp_path: Path) -> None:
    place = lake.table("plain").location
    shutil.move(place, tmp_path / "moved")
    with pytest.raises(deltars.StorageError, match=r"the table's directory .*plain is gone") as raised:
        lake.table("plain").to_arrow()
    assert "It was moved or deleted. Restore it" in str(raised.value)
    shutil.move(tmp_path / "moved", place)
    assert lake.table("plain").to_arrow().num_rows == 2


def test_a_foreign_writer_in_the_log_is_named_and_what_it_wrote_is_left_alone(lake: deltars.Catalog) -> None:
    foreign = Path(lake.table("plain").location) / "_delta_log" / f"{1:020}.json"
    foreign.write_text('{"commitInfo":{"operation":"WRITE"}}\n')
    result = lake.write("plain", ROWS)
    assert result.versions == {"plain": 1}
    with pytest.raises(deltars.MirrorFailure, match="the commit succeeded, publishing it failed") as raised:
        result.raise_for_mirror()
    assert f"{1:020}.json exists and is another commit" in str(raised.value)
    assert "deltars verify 'plain'" in str(raised.value)
    assert foreign.read_text() == '{"commitInfo":{"operation":"WRITE"}}\n'
