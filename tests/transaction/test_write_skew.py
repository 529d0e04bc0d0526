"""Two transactions that each read what the other writes: only `snapshot` lets both commit."""

from __future__ import annotations

import pyarrow as pa
import pytest

import deltars
from deltars.log.commit import Isolation
from tests.support.log import added
from tests.support.together import Meanwhile
from tests.transaction.crews import live_files

ON_CALL = ("ward", "theatre")


@pytest.fixture
def tables(catalog: deltars.Catalog) -> tuple[str, str]:
    """Two tables with a file each. The rule that everybody means to keep: not both may get a second one."""
    for name in ON_CALL:
        catalog.create_table(name, "id BIGINT")
    with catalog.begin() as tx:
        for name in ON_CALL:
            tx.stage(name, [added(f"first of {name}".replace(" ", "-"))])
    return ON_CALL


def _stage_if_alone(tx: deltars.Transaction, table: str) -> None:
    """Reads both tables, and adds to one if neither has a second file yet."""
    assert all(tx.files(name).num_rows == 1 for name in ON_CALL)
    tx.stage(table, [added(f"second-of-{table}")])


@pytest.mark.every_case_on("sqlite")
@pytest.mark.parametrize("level", ["strict", "serializable", "write_serializable"])
def test_write_skew_across_two_tables_is_refused(
    catalog: deltars.Catalog, tables: tuple[str, str], level: Isolation
) -> None:
    first, second = catalog.begin(isolation=level), catalog.begin(isolation=level)
    _stage_if_alone(first, tables[0])
    _stage_if_alone(second, tables[1])
    first.commit()
    with pytest.raises(deltars.VersionConflict) as caught:
        second.commit()
    assert caught.value.table == tables[0]
    assert isinstance(caught.value, deltars.ConcurrentAppend) == (level != "strict")
    assert [len(live_files(catalog, name)) for name in tables] == [2, 1]


def test_write_skew_is_possible_under_snapshot(catalog: deltars.Catalog, tables: tuple[str, str]) -> None:
    first, second = catalog.begin(isolation="snapshot"), catalog.begin(isolation="snapshot")
    _stage_if_alone(first, tables[0])
    _stage_if_alone(second, tables[1])
    first.commit()
    second.commit()
    assert [len(live_files(catalog, name)) for name in tables] == [2, 2]


@pytest.mark.every_case_on("postgres", "sqlite")
@pytest.mark.requirement("M-18")
@pytest.mark.parametrize("level", ["strict", "serializable"])
def test_write_skew_is_refused_when_both_commit_at_the_same_moment(
    catalog: deltars.Catalog, tables: tuple[str, str], level: Isolation
) -> None:
    for _ in range(5):
        both = catalog.begin(isolation=level), catalog.begin(isolation=level)
        files = [tx.files(name).num_rows for tx in both for name in tables]
        for tx, name in zip(both, tables, strict=True):
            tx.stage(name, [added(f"{tx.id}")])
        outcomes = [commit.outcome() for commit in [Meanwhile(tx.commit) for tx in both]]
        conflicts = [outcome for outcome in outcomes if isinstance(outcome, BaseException)]
        assert [isinstance(conflict, deltars.VersionConflict) for conflict in conflicts] == [True]
        assert sum(len(live_files(catalog, name)) for name in tables) == sum(files) // 2 + 1


@pytest.mark.every_case_on("sqlite")
@pytest.mark.parametrize("level", ["strict", "serializable"])
def test_table_that_was_only_read_is_as_good_as_written(
    catalog: deltars.Catalog, tables: tuple[str, str], level: Isolation
) -> None:
    """A write into one table that rests on what another one said."""
    tx = catalog.begin(isolation=level)
    _stage_if_alone(tx, tables[0])
    with catalog.begin() as other:
        other.stage(tables[1], [added("meanwhile")])
    with pytest.raises(deltars.VersionConflict) as caught:
        tx.commit()
    assert caught.value.table == tables[1]
    assert len(live_files(catalog, tables[0])) == 1


@pytest.mark.every_case_on("sqlite")
@pytest.mark.parametrize("level", ["strict", "serializable", "snapshot"])
def test_expecting_a_later_version_does_not_excuse_what_was_read_before_it(
    catalog: deltars.Catalog, tables: tuple[str, str], level: Isolation
) -> None:
    table = tables[0]
    blind, reading = catalog.begin(isolation=level), catalog.begin(isolation=level)
    assert reading.files(table).num_rows == 1
    with catalog.begin() as other:
        other.stage(table, [added("meanwhile")])
    reading.stage(table, [added("late")], expected_version=2)
    if level == "snapshot":
        reading.commit()
        return
    with pytest.raises(deltars.VersionConflict) as caught:
        reading.commit()
    assert (caught.value.expected, caught.value.actual) == (1, 2)
    blind.stage(table, [added("late")], expected_version=2)
    assert blind.commit().versions == {table: 3}


def _upsert(tx: deltars.Transaction, key: int) -> None:
    """Adds a row unless one of the same key is there."""
    if not tx.files("customers", f"id = {key}").num_rows:
        tx.write("customers", pa.table({"id": [key]}))


@pytest.mark.every_case_on("sqlite")
@pytest.mark.parametrize(
    ("level", "refused"),
    [
        ("strict", deltars.VersionConflict),
        ("serializable", deltars.ConcurrentAppend),
        ("write_serializable", deltars.ConcurrentAppend),
        ("snapshot", None),
    ],
)
def test_two_upserts_of_an_absent_key_make_it_twice_under_snapshot_alone(
    catalog: deltars.Catalog, level: Isolation, refused: type[deltars.VersionConflict] | None
) -> None:
    catalog.create_table("customers", "id BIGINT")
    first, second = catalog.begin(isolation=level), catalog.begin(isolation=level)
    for tx in (first, second):
        _upsert(tx, 7)
    first.commit()
    if refused is None:
        second.commit()
    else:
        with pytest.raises(deltars.VersionConflict) as caught:
            second.commit()
        assert type(caught.value) is refused
    keys = catalog.table("customers").to_arrow()["id"].to_pylist()
    assert keys == ([7] if refused else [7, 7])
