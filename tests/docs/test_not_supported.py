"""The page of what is not supported: what it says is refused is refused, and what it offers instead works."""

from __future__ import annotations

import re
from pathlib import Path

import deltalake
import pyarrow as pa
import pytest

import deltars
from deltars.protocol.features import FEATURES

PAGE = (Path(__file__).parents[2] / "docs/not-supported.md").read_text()
FEED = {"delta.enableChangeDataFeed": "true"}

pytestmark = pytest.mark.backends("sqlite")


def test_verbs_that_the_page_says_are_missing_say_what_to_do(catalog: deltars.Catalog) -> None:
    catalog.write("t", pa.table({"id": [1]}))
    assert "| `SHALLOW CLONE` |" in PAGE
    with pytest.raises(deltars.NotSupportedYet, match="Today: "):
        catalog.table("t").clone()  # type: ignore[attr-defined]


def test_type_that_is_no_widening_and_nested_limits_are_refused(catalog: deltars.Catalog) -> None:
    alter = catalog.create_table("t", "id STRING, name STRUCT<first: VARCHAR(9), last: STRING>").alter
    with pytest.raises(deltars.ValidationError, match="existing files would not fit"):
        alter.change_type("id", "INT", enable_type_widening=True)
    with pytest.raises(deltars.ValidationError, match="limited length"):
        alter.rename_column("name.last", "family", enable_column_mapping=True)


def test_feed_of_appends_and_whole_files_is_read_by_another_reader(catalog: deltars.Catalog) -> None:
    catalog.write("t", pa.table({"id": [1, 2], "day": ["a", "b"]}), partition_by=["day"], properties=FEED)
    catalog.write("t", pa.table({"id": [9], "day": ["a"]}), mode="overwrite", replace_where="day = 'a'")
    catalog.write("t", pa.table({"id": [2], "day": ["b"]}), mode="overwrite")
    feed = pa.table(deltalake.DeltaTable(catalog.table("t").location).load_cdf().read_all()).to_pylist()
    seen = sorted((row["_commit_version"], row["_change_type"], row["id"]) for row in feed)
    assert seen == [
        (0, "insert", 1),
        (0, "insert", 2),
        (1, "delete", 1),
        (1, "insert", 9),
        (2, "delete", 2),
        (2, "delete", 9),
        (2, "insert", 2),
    ]


def test_feed_and_a_restore_in_one_transaction_are_refused(catalog: deltars.Catalog) -> None:
    assert "restored and changed in one transaction" in re.sub(r"\s+", " ", PAGE)
    catalog.write("t", pa.table({"id": [1, 2]}), properties=FEED)
    catalog.write("t", pa.table({"id": [3]}))
    tx = catalog.begin()
    tx.restore("t", 0)
    tx.delete("t", "id = 1")
    with pytest.raises(deltars.ValidationError, match="restored and changed in one transaction"):
        tx.commit()
    assert catalog.table("t").version == 1


def test_column_is_renamed_or_dropped_by_writing_the_table_again(catalog: deltars.Catalog) -> None:
    catalog.write("t", pa.table({"id": [1], "old": ["x"], "gone": [True]}))
    catalog.write("t", pa.table({"id": [1], "new": ["x"]}), mode="overwrite", overwrite_schema=True)
    assert catalog.table("t").to_arrow().to_pydict() == {"id": [1], "new": ["x"]}
    assert catalog.table("t").to_arrow(version=0).column_names == ["id", "old", "gone"]


def test_features_that_the_page_lists_cannot_be_written(catalog: deltars.Catalog) -> None:
    listed = {
        "variants": ("variantType", "variantShredding"),
        "Iceberg compatibility": ("icebergCompatV1", "icebergCompatV2", "icebergCompatV3"),
        "collations": ("collations",),
    }
    text = re.sub(r"\s+", " ", PAGE)
    for words, features in listed.items():
        assert words in text
        for feature in features:
            assert feature not in FEATURES or not FEATURES[feature].can_write
            with pytest.raises(deltars.ValidationError, match=feature):
                catalog.create_table("t", "id INT", properties={f"delta.feature.{feature}": "supported"})
    assert catalog.tables() == []


@pytest.mark.parametrize(
    "statement",
    [
        "CREATE TEMP TABLE v AS SELECT 1",
        "CREATE TABLE v SHALLOW CLONE t",
        "COPY INTO t FROM 'x'",
    ],
)
def test_sql_that_is_not_known_is_refused_by_name(catalog: deltars.Catalog, statement: str) -> None:
    catalog.write("t", pa.table({"id": [1]}))
    with pytest.raises(deltars.PredicateError, match="is not supported, at position"):
        catalog.sql_to_arrow(statement)
    assert catalog.snapshot().versions == {"t": 0}


def test_transaction_inside_another_is_independent(catalog: deltars.Catalog) -> None:
    outer = catalog.begin()
    outer.write("outer", pa.table({"id": [1]}))
    with catalog.begin() as inner:
        inner.write("inner", pa.table({"id": [1]}))
    outer.rollback()
    assert [table.name for table in catalog.tables()] == ["inner"]
