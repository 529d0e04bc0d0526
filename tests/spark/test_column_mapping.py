"""Tables that map columns, written and read by Spark."""

from __future__ import annotations

from operator import itemgetter
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import deltars
from deltars.errors import SchemaMismatch
from tests.mirror.test_readers import by_deltalake

pytestmark = [pytest.mark.backends("sqlite"), pytest.mark.parametrize("mode", ["name", "id"])]

DDL = "id BIGINT NOT NULL, `my col` STRUCT<x: INT, `y z`: ARRAY<STRUCT<q: STRING>>>, kind STRING"
ROWS = (
    "SELECT id, IF(id % 2 = 0, NULL, named_struct('y z', array(named_struct('q', string(id))), 'X', int(id)))"
    " AS `my col`, string(id % 3) AS kind FROM range(9)"
)


@pytest.mark.parametrize("partition_by", [[], ["kind"]], ids=["flat", "partitioned"])
def test_frames_are_written_by_physical_names_and_read_back(
    catalog: deltars.Catalog, spark: SparkSession, mode: str, partition_by: list[str]
) -> None:
    table = catalog.create_table("t", DDL, partition_by=partition_by, properties={"delta.columnMapping.mode": mode})
    catalog.write("t", spark.sql(ROWS))
    catalog.write("t", spark.sql("SELECT 9L AS id, NULL AS kind, 1.5D AS `brand new`"), merge_schema=True)
    expected = sorted(
        spark.sql(
            "SELECT id, IF(id % 2 = 0, NULL, named_struct('x', int(id), 'y z', array(named_struct('q', string(id)))))"
            " AS c, string(id % 3) AS kind, CAST(NULL AS DOUBLE) AS n FROM range(9)"
            " UNION ALL SELECT 9, NULL, NULL, 1.5D"
        ).collect()
    )
    assert sorted(table.read(spark=spark).collect()) == expected
    assert [row.id for row in table.read(spark=spark, where="`my col`.x > 5", columns=["id"]).collect()] == [7]
    assert [row.id for row in table.read(spark=spark, where="kind IS NULL").collect()] == [9]
    ours, theirs = table.to_arrow().to_pylist(), by_deltalake(Path(table.location), None).to_pylist()
    assert sorted(ours, key=itemgetter("id")) == sorted(theirs, key=itemgetter("id"))
    assert "col-" not in str(table.read(spark=spark).schema)


def test_row_that_does_not_fit_is_told_by_the_names_that_people_know(
    catalog: deltars.Catalog, spark: SparkSession, mode: str
) -> None:
    catalog.create_table("t", DDL, properties={"delta.columnMapping.mode": mode})
    with pytest.raises(SchemaMismatch, match="column id is NOT NULL and has nulls") as caught:
        catalog.write("t", spark.sql("SELECT CAST(NULL AS BIGINT) AS id"))
    assert "col-" not in str(caught.value)
