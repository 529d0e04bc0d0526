"""What people type without thinking: counts, subscripts, `in`, and objects at the end of a notebook's cell."""

from __future__ import annotations

import pickle
from pathlib import Path

import pyarrow as pa
import pytest

import deltars
from tests.support.log import added

pytestmark = pytest.mark.backends("sqlite")

ROWS = pa.table({"id": [1, 2, 3], "day": ["a", "b", None]})


def test_count_comes_from_the_log_without_opening_a_file(catalog: deltars.Catalog) -> None:
    table = catalog[next(iter(catalog.write("t", ROWS).versions))]
    catalog.write("t", ROWS)
    for file in Path(table.location).glob("*.parquet"):
        file.unlink()
    assert (table.count(), len(table), table.count(version=0)) == (6, 6, 3)
    with pytest.raises(deltars.StorageError):
        table.count("id > 0")


def test_count_of_matching_rows_is_exact(catalog: deltars.Catalog) -> None:
    catalog.write("t", ROWS, partition_by="day")
    catalog.write("t", pa.table({"id": [9, None], "day": ["a", "a"]}))
    table = catalog.table("t")
    assert (table.count("id >= 2"), table.count("day = 'a'"), table.count("day IS NULL")) == (3, 3, 1)
    assert (table.count("id > 100"), table.count("id >= 2", version=0)) == (0, 2)
    with pytest.raises(deltars.PredicateError):
        table.count("nothing = 1")


def test_file_without_statistics_is_read(catalog: deltars.Catalog) -> None:
    catalog.write("t", ROWS)
    table = catalog.table("t")
    [file] = table.files().to_pylist()
    with catalog.begin() as tx:
        tx.stage("t", [added(file["path"], stats=None, size=file["size"])])
    assert table.snapshot().totals.num_records is None
    assert table.count() == 3


def test_table_without_rows_has_none_and_is_true(catalog: deltars.Catalog) -> None:
    table = catalog.create_table("t", "id BIGINT")
    assert (len(table), table.count("id > 0"), bool(table)) == (0, 0, True)


def test_catalog_without_tables_is_true(catalog: deltars.Catalog) -> None:
    assert (len(catalog), list(catalog), bool(catalog)) == (0, [], True)


def test_catalog_is_subscripted_and_searched_by_name(catalog: deltars.Catalog) -> None:
    catalog.write("t", ROWS)
    assert catalog["T"] == catalog.table("t") == catalog[catalog.table("t").id]
    assert "t" in catalog
    assert "u" not in catalog
    catalog.write("A", ROWS)
    assert list(catalog) == [table.name for table in catalog.tables()] == ["A", "t"]
    assert len(catalog) == 2
    assert [catalog[name].count() for name in catalog] == [3, 3]
    with pytest.raises(deltars.TableNotFound):
        catalog["u"]


def test_notebook_shows_lists_and_results_without_markup_of_theirs(catalog: deltars.Catalog) -> None:
    with catalog.begin(committer="<b>ada</b>", user_metadata="<script>") as tx:
        tx.write("a<i>", ROWS)
    history, tables = catalog.table("a<i>").history(), catalog.tables()
    table = catalog.table("a<i>")
    table.alter.set_properties({"owner": "<b>ada</b>"})
    looks = (catalog.snapshot(), table.detail(partitions=True), table.diff(0))
    assert "&lt;b&gt;ada" in looks[1]._repr_html_()
    assert "owner" in looks[2]._repr_html_()
    for shown in (catalog, tables, history, tx.result, *looks):
        html = shown._repr_html_()  # type: ignore[union-attr]
        assert "<table>" in html
        for markup in ("<b>", "<i>", "<script>"):
            assert markup not in html
    assert "&lt;b&gt;ada" in history._repr_html_()  # type: ignore[attr-defined]
    assert "a&lt;i&gt;" in tables._repr_html_()  # type: ignore[attr-defined]
    assert str(tx.id) in tx.result._repr_html_()
    assert pickle.loads(pickle.dumps(history)) == history == list(history)


def test_notebook_shows_why_a_catalog_cannot_be_shown(tmp_path: Path) -> None:
    place = tmp_path / "lake.db"
    with deltars.connect(f"deltasql://sqlite/{place}") as catalog:
        catalog.close()
        place.write_bytes(b"no database <b>")
        assert "<p>" in catalog._repr_html_()


# -- locations ---------------------------------------------------------------------------------------------------------


def test_directory_with_files_of_others_is_no_place_for_a_new_table(catalog: deltars.Catalog, tmp_path: Path) -> None:
    place = tmp_path / "photos" / "2026"
    place.mkdir(parents=True)
    (place / "cat.jpg").write_bytes(b"x")
    for location in (str(place), str(place.parent)):
        with pytest.raises(deltars.ValidationError, match=r"is not empty: it holds .*cat.jpg"):
            catalog.create_table("t", "id BIGINT", location=location)
        with pytest.raises(deltars.ValidationError, match="is not empty"):
            catalog.begin().create_table("t", "id BIGINT", location=location)
    assert (place / "cat.jpg").exists()
    (place / "cat.jpg").rename(place / ".DS_Store")
    table = catalog.create_table("t", "id BIGINT", location=str(place))
    assert table.location == str(place)


def test_directory_that_takes_no_files_is_no_place_for_a_new_table(catalog: deltars.Catalog, tmp_path: Path) -> None:
    for create in (catalog.create_table, catalog.begin().create_table):
        with pytest.raises(deltars.StorageError, match=r"/proc.*\[table t"):
            create("t", "id BIGINT", location="/proc/deltars/t")
    assert not catalog.table_exists("t")
    assert catalog.create_table("t", "id BIGINT", location=str(tmp_path / "new" / "t")).version == 0


def test_trial_of_a_directory_leaves_nothing(tmp_path: Path) -> None:
    place = tmp_path / "new" / "t"
    with deltars.connect(tmp_path / "lake.db", mirror="off") as catalog:
        catalog.create_table("t", "id BIGINT", location=str(place))
        assert not place.parent.exists()
        place.mkdir(parents=True)
        catalog.drop_table("t")
        catalog.begin().create_table("t", "id BIGINT", location=str(place / "inner"))
    assert list(place.iterdir()) == []


def test_rows_that_a_deletion_vector_deletes_are_not_counted(catalog: deltars.Catalog) -> None:
    table = catalog.create_table("t", "id BIGINT, day STRING", properties={"delta.enableDeletionVectors": "true"})
    catalog.write("t", ROWS)
    catalog.write("t", ROWS)
    file = table.files().to_pylist()[0]
    vector = deltars.DeletionVector(
        storage_type="u", path_or_inline_dv="vBn[lx{q8@P<9BNH/isA", offset=1, size_in_bytes=36, cardinality=2
    )
    gone = deltars.RemoveFile(path=file["path"], data_change=True, deletion_timestamp=1)
    with catalog.begin() as tx:
        tx.stage("t", [gone, added(file["path"], stats=file["stats"], size=file["size"], deletion_vector=vector)])
    assert (table.count(), table.count(version=2)) == (4, 6)
