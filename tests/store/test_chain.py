"""The hash chain: a row of the history that was changed past deltars is found, with its version."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any
from unittest import mock
from uuid import UUID

import pyarrow as pa
import pytest
from click.testing import CliRunner
from deltalake import write_deltalake
from sqlalchemy import Table, delete, func, insert, select, update

import deltars
from deltars import SqlTxnLogWriter
from deltars.cli import main
from deltars.errors import LogDiverged, ValidationError
from deltars.protocol import AddFile, DomainMetadata
from deltars.store import schema
from deltars.store.chain.check import check_chain, check_rows
from deltars.store.chain.content import contents_of
from deltars.store.chain.seal import next_link
from deltars.store.history.deletion import HistoryDeletion
from deltars.store.schema import dl_add_files, dl_chain, dl_table_versions, dl_tables

CHAINED = {"deltars.hashChain": "true"}
NEVER = ("table_id", "version", "ord", "row_group")
CHANGING = ("removed_version", "mins", "maxs")
"""Columns of files that change after the commit."""


def rows(*ids: int) -> pa.Table:
    return pa.table({"id": pa.array(ids, pa.int64()), "note": [f"row {i}" for i in ids]})


@pytest.fixture
def table(catalog: deltars.Catalog) -> deltars.Table:
    """A table whose history has every kind of action."""
    properties = {**CHAINED, "delta.enableDeletionVectors": "true", "delta.enableChangeDataFeed": "true"}
    properties["delta.feature.domainMetadata"] = "supported"
    catalog.create_table("t", "id BIGINT, note STRING", properties=properties)
    catalog.write("t", rows(1, 2, 3), app_id="stream", app_version=1)
    catalog.write("t", rows(4, 5))
    with catalog.begin() as tx:
        tx.update("t", {"note": "'changed'"}, where="id = 2")
    table = catalog.table("t")
    domain = DomainMetadata(domain="mine", configuration="{}", removed=False)
    SqlTxnLogWriter(catalog).commit(table.id, 4, [domain], operation="WRITE")
    table.alter.add_columns("more INT")
    catalog.write("t", rows(6).append_column("more", pa.array([1], pa.int32())))
    return table


def problems(catalog: deltars.Catalog, table: deltars.Table) -> list[str]:
    checked = check_chain(catalog._session.database, table.id)
    assert checked is not None
    assert checked.num_unsealed == 0
    return [f"{one.place}: {one.detail}" for one in checked.problems]


@contextmanager
def changing(catalog: deltars.Catalog) -> Iterator[Any]:
    """Statements that deltars does not know of."""
    with catalog._session.database.write(30) as connection:
        yield connection


class _UndoneError(Exception):
    pass


def problems_after(catalog: deltars.Catalog, table: deltars.Table, *statements: Any) -> list[str]:
    """What is found after these statements, which are undone."""
    found = []
    with suppress(_UndoneError), changing(catalog) as connection:
        for statement in statements:
            connection.execute(statement)
        checked = check_rows(connection, table.id)
        assert checked is not None
        found = [f"{one.place}: {one.detail}" for one in checked.problems]
        raise _UndoneError
    return found


def _other(value: Any, column: Any) -> Any:
    if isinstance(value, bool):
        return not value
    if isinstance(value, int):
        return value + 1
    if isinstance(value, UUID):
        return UUID(int=7)
    if isinstance(value, datetime):
        return value + timedelta(seconds=1)
    if isinstance(value, str):
        return f"{value} "
    if isinstance(value, dict | list):
        return {"other": "value"}
    return {"BIGINT": 1, "INTEGER": 1, "BOOLEAN": True, "TEXT": "x"}.get(str(column.type), {"other": "value"})


@pytest.mark.backends("postgres", "sqlite")
def test_change_of_any_column_of_any_row_is_found_with_its_version(
    catalog: deltars.Catalog, table: deltars.Table
) -> None:
    assert problems(catalog, table) == []
    tried = set()
    for part in (dl_table_versions, *schema.ACTION_TABLES):
        with changing(catalog) as connection:
            newest = select(func.max(part.c.version)).where(part.c.table_id == table.id).scalar_subquery()
            row = connection.execute(select(part).where(part.c.table_id == table.id, part.c.version == newest)).first()
        assert row is not None, part.name
        key = [part.c[name] == row._mapping[name] for name in NEVER if name in part.c]
        expected = f"version {row.version}: its rows in the catalog were changed after they were sealed"
        for column in part.c:
            if column.name in NEVER or (part is dl_add_files and column.name in CHANGING):
                continue
            value = _other(row._mapping[column.name], column)
            found = problems_after(catalog, table, update(part).where(*key).values({column.name: value}))
            assert expected in found, (part.name, column.name)
            tried.add((part.name, column.name))
    assert len(tried) > 60
    assert problems(catalog, table) == []


def test_change_of_a_column_that_changes_after_the_commit_is_found(
    catalog: deltars.Catalog, table: deltars.Table
) -> None:
    """Another end hides or revives rows, and other bounds let queries skip them."""
    assert problems(catalog, table) == []
    with changing(catalog) as connection:
        of_table = dl_add_files.c.table_id == table.id
        found = connection.execute(select(dl_add_files).where(of_table).order_by(dl_add_files.c.version)).all()
    live, ended = ([one for one in found if (one.removed_version is None) is is_live] for is_live in (True, False))
    for row, values, expected in (
        (live[0], {"removed_version": 5}, "removed_version is 5, and none by the actions"),
        (ended[0], {"removed_version": None}, "removed_version is none, and 3 by the actions"),
        (live[0], {"mins": live[-1].mins, "maxs": live[-1].maxs}, "mins and maxs do not follow from its statistics"),
    ):
        key = [dl_add_files.c[name] == row._mapping[name] for name in NEVER[:3]]
        change = update(dl_add_files).where(*key).values(values)
        assert problems_after(catalog, table, change) == [f"{row.path}: {expected}"]


def _of(part: Table, table: deltars.Table, version: int) -> Any:
    return (part.c.table_id == table.id) & (part.c.version == version)


@pytest.mark.backends("sqlite")
def test_forgery_is_found(catalog: deltars.Catalog, table: deltars.Table) -> None:
    def seal(version: int) -> Any:
        return _of(dl_chain, table, version)

    file, domain = _of(dl_add_files, table, 2), schema.dl_domain_metadata
    more = {"table_id": table.id, "version": 2, "ord": 9, "domain": "d", "configuration": "", "removed": False}
    moved = {"version": 1, "ord": 9}
    last = [delete(part).where(_of(part, table, 6)) for part in (schema.dl_row_groups, dl_add_files, dl_table_versions)]
    cases = (
        ("version 2: its rows in the catalog were changed", [delete(dl_add_files).where(file)]),
        ("version 2: its rows in the catalog were changed", [insert(domain).values(more)]),
        (
            "version 1: its rows in the catalog were changed",
            [update(dl_add_files).where(file).values(moved)],
        ),
        ("version 2: its rows in the catalog were changed", [update(dl_add_files).where(file).values(tags="no JSON")]),
        ("version 3: its seal, or", [update(dl_chain).where(seal(3)).values(content="0")]),
        ("version 4: its seal, or", [update(dl_chain).where(seal(3)).values(link="0")]),
        ("version 3: its seal is missing", [delete(dl_chain).where(seal(3))]),
        ("version 1: its seal, or", [delete(dl_chain).where(seal(0))]),
        ("dl_tables: current_version is 5, and 6 by the", [update(dl_tables).values(current_version=5)]),
        ("dl_tables: metadata_version is 0, and 5 by the", [update(dl_tables).values(metadata_version=0)]),
        ("version 6: its rows are missing in the catalog", last),
        ("dl_tables: current_version is 5, and 6", [*last, update(dl_tables).values(current_version=5)]),
    )
    for expected, statements in cases:
        found = problems_after(catalog, table, *statements)
        assert any(problem.startswith(expected) for problem in found), (expected, found)
    assert problems(catalog, table) == []


@pytest.mark.backends("sqlite")
def test_owner_who_forges_the_whole_chain_is_found_by_a_head_that_was_kept(
    catalog: deltars.Catalog, table: deltars.Table
) -> None:
    kept = str(table.verify(chain=True).chain_head)
    catalog.write("t", rows(7))
    later = table.verify(chain=kept)
    assert (later.is_ok, later.unsealed_versions) == (True, 0)
    assert later.chain_head is not None
    assert later.chain_head.startswith("7:")
    with changing(catalog) as connection:
        connection.execute(update(dl_table_versions).where(_of(dl_table_versions, table, 2)).values(committer="eve"))
        link = None
        for version, content in sorted(contents_of(connection, table.id, 0, 7).items()):
            link = next_link(table.id, link, version, content)
            connection.execute(update(dl_chain).where(_of(dl_chain, table, version)).values(content=content, link=link))
    assert problems(catalog, table) == []
    [found] = [one for one in table.verify(chain=kept).findings if one.problem == "changed"]
    assert (found.file, "another one" in found.detail) == ("version 6", True)
    for wrong in ("nonsense", "6:12", "", "9" * 30 + ":" + "0" * 64):
        with pytest.raises(ValidationError, match="not the head of a hash chain"):
            table.verify(chain=wrong)
    assert "newer than the chain" in table.verify(chain=f"99:{'0' * 64}").findings[0].detail


@pytest.mark.backends("postgres")
def test_chain_holds_through_the_life_of_a_table(
    catalog: deltars.Catalog, table: deltars.Table, tmp_path: Path
) -> None:
    head = str(table.verify(chain=True).chain_head)
    table.optimize()
    table.restore(3)
    catalog.tag("kept")
    with catalog.begin() as tx:
        tx.delete("t", "id = 1")
    catalog.write("t", rows(8), mode="overwrite")
    assert problems(catalog, table) == []
    assert table.verify(chain=head, deep=True).is_ok
    table.vacuum(retention=timedelta(0), force=True)
    expired = table.expire(timedelta(0), force=True).tables[0]
    assert (expired.first_version, expired.kept_versions) == (10, (8,))
    assert problems(catalog, table) == []
    catalog.write("t", rows(9))
    assert table.verify(chain=True, deep=True).is_ok
    assert "expired" in table.verify(chain=head).findings[0].detail
    catalog.untag("kept")
    assert table.expire(timedelta(0), force=True).tables[0].first_version == 11
    assert problems(catalog, table) == []
    with catalog._session.database.read() as connection:
        kept = connection.scalars(select(dl_chain.c.version).where(dl_chain.c.table_id == table.id)).all()
    assert sorted(kept) == [-1, 10, 11]
    catalog.drop_table("t", purge=True)
    with catalog._session.database.read() as connection:
        assert connection.scalar(select(func.count()).select_from(dl_chain)) == 0


@pytest.mark.backends("sqlite")
def test_live_file_of_an_expired_version_is_covered(catalog: deltars.Catalog, table: deltars.Table) -> None:
    catalog.write("t", rows(9))
    table.vacuum(retention=timedelta(0), force=True)
    table.expire(timedelta(0), force=True)
    catalog.write("t", rows(10))
    assert problems(catalog, table) == []
    before = "versions before 7: their rows in the catalog were changed after they were sealed"
    of_old = _of(dl_add_files, table, 2)
    with changing(catalog) as connection:
        connection.execute(update(dl_add_files).where(of_old).values(size=dl_add_files.c.size + 1))
    assert problems(catalog, table) == [before]
    # What is broken is not expired: it would be sealed as it is.
    with pytest.raises(LogDiverged, match="hash chain is broken, so nothing is expired: versions before 7"):
        table.expire(timedelta(0), force=True)
    with changing(catalog) as connection:
        connection.execute(update(dl_add_files).where(of_old).values(size=dl_add_files.c.size - 1, removed_version=4))
    assert problems(catalog, table) == [before]
    with changing(catalog) as connection:
        connection.execute(update(dl_add_files).where(of_old).values(removed_version=None))
    assert table.expire(timedelta(0), force=True).tables[0].first_version == 8
    assert problems(catalog, table) == []


@pytest.mark.backends("sqlite")
def test_expiry_that_was_interrupted_is_reported_until_it_is_run_again(
    catalog: deltars.Catalog, table: deltars.Table
) -> None:
    for number in range(7, 10):
        catalog.write("t", rows(number))
    table.vacuum(retention=timedelta(0), force=True)
    for name in ("mark", "_delete"):
        fault = OSError("no more")
        with mock.patch.object(HistoryDeletion, name, side_effect=fault), pytest.raises(OSError, match="no more"):
            table.expire(timedelta(0), force=True)
        is_marked = name == "_delete"
        assert any("an expiry is running or was interrupted" in one for one in problems(catalog, table)) is is_marked
    assert table.expire(timedelta(0), force=True).tables[0].first_version == 9
    assert problems(catalog, table) == []


@pytest.mark.backends("sqlite")
def test_version_whose_committer_died_is_sealed_by_the_next(catalog: deltars.Catalog, table: deltars.Table) -> None:
    def unsealed() -> int:
        return table.verify(chain=True).unsealed_versions

    with mock.patch("deltars.store.chain.seal.Seals.seal", side_effect=deltars.DatabaseError("away")):
        assert catalog.write("t", rows(7)).versions == {"t": 7}
    assert unsealed() == 1
    catalog.write("t", rows(8))
    assert unsealed() == 0
    with catalog.begin(mirror="off") as tx:
        tx.write("t", rows(9))
    assert unsealed() == 1
    catalog.reconciler().once()
    assert unsealed() == 0
    assert problems(catalog, table) == []
    catalog.set_properties("t", {"deltars.hashChain": "false"})
    catalog.write("t", rows(10))
    assert unsealed() == 2
    catalog.set_properties("t", CHAINED)
    assert unsealed() == 0


@pytest.mark.backends("postgres")
def test_threads_that_seal_at_once_write_one_chain(catalog: deltars.Catalog) -> None:
    table = catalog.create_table("t", "id BIGINT", properties=CHAINED)
    catalog.create_table("u", "id BIGINT", properties=CHAINED)

    def write(number: int) -> None:
        for _ in range(4):

            def both(tx: deltars.Transaction) -> None:
                tx.write("t", pa.table({"id": [number]}))
                tx.write("u", pa.table({"id": [number]}))

            catalog.run(both, isolation="write_serializable", retries=20)

    threads = [threading.Thread(target=write, args=(number,)) for number in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    catalog._session.publisher.close()
    for each in (table, catalog.table("u")):
        assert problems(catalog, each) == []
        assert check_chain(catalog._session.database, each.id).head.version == 12  # type: ignore[union-attr]


@pytest.mark.backends("sqlite")
def test_imported_history_and_one_from_before_the_chain_are_sealed_from_their_first_version(
    catalog: deltars.Catalog, tmp_path: Path
) -> None:
    for number in range(3):
        write_deltalake(tmp_path / "foreign", pa.table({"id": [number]}), mode="append")
    imported = catalog.import_table(str(tmp_path / "foreign"), "imported")
    catalog.create_table("old", "id BIGINT")
    for number in range(3):
        catalog.write("old", pa.table({"id": [number]}))
    catalog.table("old").expire(timedelta(0), force=True)
    for table in (imported, catalog.table("old")):
        with pytest.raises(ValidationError, match="no hash chain"):
            table.verify(chain=True)
        catalog.set_properties(table.name, CHAINED)
        assert problems(catalog, table) == []
        assert table.verify(chain=True, deep=True).is_ok
    with changing(catalog) as connection:
        connection.execute(update(dl_add_files).where(_of(dl_add_files, imported, 1)).values(size=1))
        connection.execute(update(dl_add_files).where(_of(dl_add_files, catalog.table("old"), 2)).values(size=1))
    assert problems(catalog, imported) == ["version 1: its rows in the catalog were changed after they were sealed"]
    [found] = problems(catalog, catalog.table("old"))
    assert found.startswith("versions before 3: their rows")


@pytest.mark.backends("sqlite")
def test_bulk_commit_is_sealed(catalog: deltars.Catalog) -> None:
    table = catalog.create_table("t", "id BIGINT", properties=CHAINED)
    stats = '{"numRecords":1,"minValues":{"id":7},"maxValues":{"id":7},"nullCount":{"id":0}}'
    adds = [
        AddFile(path=f"{i}.parquet", partition_values={}, size=i, modification_time=1, data_change=True, stats=stats)
        for i in range(1_500)
    ]
    SqlTxnLogWriter(catalog).commit(table.id, 1, adds, operation="WRITE")
    catalog._session.publisher.seal("t", table.id)
    assert problems(catalog, table) == []


@pytest.mark.backends("sqlite")
def test_command_says_which_version_was_changed(
    catalog: deltars.Catalog, catalog_uri: str, table: deltars.Table
) -> None:
    def run(*arguments: str) -> Any:
        return CliRunner().invoke(main, ["verify", "t", *arguments, "--catalog", catalog_uri])

    fine = run("--chain")
    assert fine.exit_code == 0
    assert "The head of the hash chain is 6:" in fine.stderr
    head = fine.stderr.split("chain is ")[1].split(".")[0]
    assert run("--head", head).exit_code == 0
    with changing(catalog) as connection:
        connection.execute(update(dl_table_versions).where(_of(dl_table_versions, table, 2)).values(operation="x"))
    broken = run("--chain")
    assert broken.exit_code == 1
    assert "version 2" in broken.stdout
    assert run().exit_code == 0
