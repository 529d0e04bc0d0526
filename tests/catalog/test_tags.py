"""Tags: named cuts that stay what they were, wherever `as_of` is taken."""

from __future__ import annotations

import json
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path
from uuid import UUID, uuid4

import pyarrow as pa
import pytest

import deltars
from deltars.errors import FilesMissing, TagExists, TagNotFound, ValidationError, VersionNotFound
from deltars.mirror.deletion import Deletion
from deltars.store.tags import pinned_versions

pytestmark = pytest.mark.backends("sqlite")


def rows(*ids: int) -> pa.Table:
    return pa.table({"id": pa.array(ids, pa.int64())})


@pytest.fixture
def tables(catalog: deltars.Catalog) -> deltars.Catalog:
    """A catalog with the tables `a` and `b` at version 1."""
    for name in "ab":
        catalog.create_table(name, "id BIGINT")
    with catalog.begin(txn_id="first") as tx:
        tx.write("a", rows(1))
        tx.write("b", rows(1))
    return catalog


def published(catalog: deltars.Catalog) -> dict[str, object]:
    assert catalog.warehouse is not None
    files = (Path(catalog.warehouse) / "_deltars" / "tags").glob("*.json")
    return {file.stem: json.loads(file.read_text()) for file in files}


@pytest.mark.backends("sqlite", "postgres", "duckdb")
def test_tag_of_now_stays_what_it_was_wherever_as_of_is_taken(tables: deltars.Catalog) -> None:
    before = datetime.now(UTC)
    made = tables.tag("q3", description="what model 17 was trained on", committer="ada")
    assert (made.name, made.txn_id, made.committer) == ("q3", None, "ada")
    assert before - timedelta(seconds=5) < made.as_of < datetime.now(UTC) + timedelta(seconds=5)
    assert tables.tags() == [made]
    tables.write("a", rows(2))
    tables.create_table("later", "id BIGINT")
    table = tables.table("a")
    assert tables.snapshot("q3").versions == tables.snapshot(as_of="Q3").versions == {"a": 1, "b": 1}
    assert tables.snapshot("q3").as_of == made.as_of
    assert table.snapshot(as_of="q3").version == 1
    assert table.files(as_of="q3").num_rows == 1
    for read in (table.to_arrow, table.to_pandas, table.to_polars):
        assert len(read(as_of="q3")) == 1
    assert table.to_arrow().num_rows == 2
    with pytest.raises(VersionNotFound, match="no version as of q3"):
        tables.table("later").snapshot(as_of="q3")
    with pytest.raises(ValidationError, match="as_of excludes"):
        table.snapshot(1, as_of="q3")
    tables.untag("q3")
    assert tables.tags() == []
    with pytest.raises(ValidationError, match="'q3' is neither a tag, nor a transaction's id, nor a time"):
        tables.snapshot("q3")


@pytest.mark.backends("sqlite", "postgres", "duckdb")
def test_tag_names_a_transaction_a_time_or_what_another_tag_names(tables: deltars.Catalog) -> None:
    moment = datetime.now(UTC)
    # SQLite's clock counts milliseconds: a commit in this one would be stamped before the moment.
    time.sleep(0.002)
    tables.write("a", rows(2))
    of_text = tables.tag("of-text", "first")
    assert of_text.txn_id == tables.table("a").history(since=1)[-1].txn_id
    assert tables.tag("of-time", moment).txn_id is None
    again = tables.tag("again", "of-text")
    assert (again.commit_ts, again.txn_id) == (of_text.commit_ts, of_text.txn_id)
    for name in ("of-text", "of-time", "again"):
        assert tables.snapshot(name).versions == {"a": 1, "b": 1}
    assert tables.tag("newest", tables.table("a").history(1)[0].txn_id).as_of > of_text.as_of


def test_tag_of_a_catalog_without_commits_is_empty_for_ever(catalog: deltars.Catalog) -> None:
    catalog.tag("start")
    catalog.create_table("a", "id BIGINT")
    assert catalog.snapshot("start").versions == {}


def test_tag_taken_right_after_a_drop_lacks_the_table_and_one_before_has_it(tables: deltars.Catalog) -> None:
    tables.tag("before")
    tables.drop_table("b")
    tables.tag("after")
    assert tables.snapshot("before").versions == {"a": 1, "b": 1}
    assert tables.snapshot("after").versions == {"a": 1}


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("", "not a tag's name"),
        (" q3", "not a tag's name"),
        ("a/b", "not a tag's name"),
        ("../q3", "not a tag's name"),
        (".hidden", "not a tag's name"),
        ("é", "not a tag's name"),
        ("x" * 101, "not a tag's name"),
        (None, "not a tag's name"),
        ("2026-01-31", "it is a time"),
        ("20260131", "it is a time"),
        ("2026-W05", "it is a time"),
        ("8d52f13e-819a-4bde-9419-441e56842b4b", "transaction's id"),
        ("acbe7261634c4197a97e530b22738902", "transaction's id"),
        ("e58a8da6-c8c0-4a09-a049-e09eb8f9fbf", "looks like a UUID"),
        ("first", "a transaction was begun with this text"),
    ],
)
def test_name_that_means_something_else_is_refused(tables: deltars.Catalog, name: str, problem: str) -> None:
    with pytest.raises(ValidationError, match=problem):
        tables.tag(name)
    assert tables.tags() == []


def test_tag_comes_before_a_transaction_of_the_same_text(tables: deltars.Catalog) -> None:
    tables.tag("q3")
    with tables.begin(txn_id="q3") as tx:
        tx.write("a", rows(2))
    assert tables.snapshot("q3").versions["a"] == 1
    assert tables.snapshot(tx.id).versions["a"] == 2


def test_taken_name_is_refused_in_any_case_and_free_again_after_untag(tables: deltars.Catalog) -> None:
    tables.tag("Q3")
    with pytest.raises(TagExists, match="already a tag 'Q3'"):
        tables.tag("q3")
    assert tables.untag("q3").name == "Q3"
    assert published(tables) == {}
    with pytest.raises(TagNotFound, match="no tag 'q3'"):
        tables.untag("q3")
    tables.tag("q3")


def test_one_of_many_threads_gets_the_name(tables: deltars.Catalog) -> None:
    def attempt(number: int) -> bool:
        try:
            tables.tag("Q3" if number % 2 else "q3")
        except TagExists:
            return False
        return True

    with ThreadPoolExecutor(6) as pool:
        assert sum(pool.map(attempt, range(6))) == 1
    assert len(tables.tags()) == len(published(tables)) == 1


def test_unusable_texts_and_moments_are_refused(tables: deltars.Catalog) -> None:
    with pytest.raises(ValidationError, match=r"U\+0000"):
        tables.tag("q3", description="a\0b")
    with pytest.raises(ValidationError, match="in the future"):
        tables.tag("q3", "2999-01-01")
    with pytest.raises(deltars.TransactionNotFound):
        tables.tag("q3", uuid4())
    with pytest.raises(ValidationError, match="neither a tag"):
        tables.tag("q3", "nothing")
    assert tables.tags() == []


# -- kept --------------------------------------------------------------------------------------------------------------


@pytest.mark.backends("sqlite", "postgres", "duckdb")
def test_pinned_versions_of_a_table_are_those_that_tags_name(tables: deltars.Catalog) -> None:
    database = tables._session.database
    a, b = (tables.table(name).id for name in "ab")

    def pinned(table: UUID) -> dict[int, tuple[str, ...]]:
        with database.read() as connection:
            return pinned_versions(connection, table)

    assert pinned(a) == pinned(uuid4()) == {}
    tables.tag("x")
    tables.tag("y", "first")
    tables.write("a", rows(2))
    tables.write("a", rows(3))
    tables.tag("z")
    later = tables.create_table("later", "id BIGINT").id
    assert (pinned(a), pinned(b), pinned(later)) == ({1: ("x", "y"), 3: ("z",)}, {1: ("x", "y", "z")}, {})
    tables.drop_table("b")
    tables.tag("w")
    assert pinned(b) == {1: ("x", "y", "z")}
    tables.untag("x")
    tables.untag("y")
    assert pinned(a) == {3: ("w", "z")}


# -- published ---------------------------------------------------------------------------------------------------------


def test_tag_is_published_with_the_versions_of_its_cut(tables: deltars.Catalog) -> None:
    tag = tables.tag("q3", "first", description="d", committer="ada")
    found = {"q3": json.loads(json.dumps(published(tables)["q3"]))}
    locations = {str(table.id): (table.name, table.location, 1) for table in tables.tables()}
    assert {
        entry["tableId"]: (entry["name"], entry["location"], entry["version"]) for entry in found["q3"]["tables"]
    } == locations
    assert {key: found["q3"][key] for key in ("name", "commitTs", "txnId", "committer", "description")} == {
        "name": "q3",
        "commitTs": tag.commit_ts,
        "txnId": str(tag.txn_id),
        "committer": "ada",
        "description": "d",
    }


def test_reconciler_repairs_missing_changed_and_left_files(tables: deltars.Catalog) -> None:
    tables.tag("q3")
    tables.tag("q4")
    good = published(tables)
    assert tables.reconciler().once().repairs == []
    assert tables.warehouse is not None
    directory = Path(tables.warehouse) / "_deltars" / "tags"
    (directory / "q3.json").unlink()
    (directory / "q4.json").write_text("{}")
    (directory / "gone.json").write_text((directory / "q4.json").read_text())
    repairs = tables.reconciler().once().repairs
    assert sorted(Path(repair.file).stem for repair in repairs) == ["gone", "q3", "q4"]
    assert published(tables) == good
    tables.rename_table("a", "renamed")
    [repair] = {repair.what for repair in tables.reconciler().once().repairs}
    assert "tag" in repair
    assert tables.reconciler().once().repairs == []


def test_unreachable_warehouse_does_not_stop_a_tag(tables: deltars.Catalog) -> None:
    assert tables.warehouse is not None
    directory = Path(tables.warehouse) / "_deltars" / "tags"
    directory.write_text("in the way")
    tables.tag("q3")
    assert tables.snapshot("q3").versions == {"a": 1, "b": 1}
    directory.unlink()
    assert len(tables.reconciler().once().repairs) == 1


def test_rebuild_restores_tags_and_leaves_out_those_it_cannot(tables: deltars.Catalog, tmp_path: Path) -> None:
    tables.tag("q3", description="d")
    tables.write("a", rows(2))
    tables.tag("now")
    with tables.begin(mirror="off") as tx:
        tx.write("b", rows(9))
    tables.tag("lost")
    assert tables.warehouse is not None
    made = {tag.name: tag for tag in tables.tags()}
    uri = f"deltasql://sqlite/{tmp_path}/new.db"
    for _ in range(2):
        rebuilt = deltars.rebuild(tables.warehouse, uri)
        assert (rebuilt.tags, rebuilt.lost_tags) == (("now", "q3"), ("lost",))
    with deltars.connect(uri) as opened:
        assert opened.tags() == [made["now"], made["q3"]]
        assert opened.snapshot("q3").versions == {"a": 1, "b": 1}
        assert opened.snapshot("now").versions == {"a": 2, "b": 1}
        opened.write("a", rows(3))
        assert opened.snapshot("now").versions == {"a": 2, "b": 1}
        opened.restore("q3")
        assert opened.table("a").to_arrow()["id"].to_pylist() == [1]


@pytest.mark.parametrize("purge", [True, False])
def test_files_that_a_tag_of_a_dropped_table_needs_are_not_deleted_with_its_successor(
    tables: deltars.Catalog, purge: bool
) -> None:
    first = tables.table("a")
    tables.tag("q3")
    tables.release("a")
    tables.drop_table("a")
    tables.import_table(first.location, "again")
    with pytest.raises(ValidationError, match="needed by the tag q3"):
        tables.drop_table("again", delete_data=not purge, purge=purge)
    tables.drop_table("again")
    assert {one.held_by for one in tables.purge_dropped(timedelta(0))} == {"needed by the tag q3"}
    assert tables.snapshot("q3").to_arrow("a").num_rows == 1
    tables.untag("q3")
    tables.purge_dropped(timedelta(0))
    assert not Path(first.location).exists()


def test_tag_of_a_time_whose_files_were_deleted_with_a_table_is_refused(tables: deltars.Catalog) -> None:
    before = tables.table("a").history()[0].txn_id
    tables.write("b", rows(9))
    tables.drop_table("a", delete_data=True)
    with pytest.raises(FilesMissing, match="drop_table has deleted, or is deleting, 1 files"):
        tables.tag("gone", as_of=before)
    tables.tag("now")
    assert tables.snapshot("now").to_arrow("b").num_rows
    assert [tag.name for tag in tables.tags()] == ["now"]


def test_tag_that_is_made_while_a_table_is_deleted_is_kept_or_refused(
    tables: deltars.Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    check = Deletion.check

    def tag(deletion: Deletion, table_id: UUID) -> None:
        monkeypatch.undo()
        check(deletion, table_id)
        tables.tag("q3")

    monkeypatch.setattr(Deletion, "check", tag)
    with pytest.raises(ValidationError, match="needed by the tag q3"):
        tables.drop_table("a", purge=True)
    assert tables.table_exists("a")
    assert tables.snapshot("q3").to_arrow("a").num_rows == 1


def test_files_of_a_tagged_table_are_not_deleted(tables: deltars.Catalog) -> None:
    tables.tag("q3")
    with pytest.raises(ValidationError, match="needed by the tag q3"):
        tables.drop_table("a", delete_data=True)
    assert tables.table_exists("a")
    tables.drop_table("a")
    with pytest.raises(ValidationError, match="needed by the tag q3"):
        tables.drop_table("a", delete_data=True)
    assert tables.snapshot("q3").to_arrow("a").num_rows == 1
    tables.untag("q3")
    tables.drop_table("a", delete_data=True)
