"""delta-spark's own tables come in with all they are, go on here, and go back to it."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable

import deltars
from deltars.protocol import CdcFile
from tests.support.delta_spark import DeltaSpark
from tests.support.golden import same_rows

pytestmark = [pytest.mark.backends("sqlite"), pytest.mark.timeout(900)]

Make = Callable[..., Path]


@pytest.fixture
def make(delta_spark: DeltaSpark, tmp_path: Path) -> Make:
    def table(definition: str, *statements: str) -> Path:
        place = tmp_path / "plain"
        delta_spark.run(f"CREATE TABLE delta.`{place}` {definition}")
        for statement in statements:
            delta_spark.run(statement.format(t=f"delta.`{place}`"))
        return place

    return table


def _ids(rows: pa.Table) -> list[int]:
    return sorted(rows["id"].to_pylist())


@pytest.mark.soak(only=True)
def test_a_table_of_delta_spark_goes_on_here_and_every_version_is_read_by_all(
    catalog: deltars.Catalog, delta_spark: DeltaSpark, make: Make
) -> None:
    place = make(
        "(id BIGINT, day STRING, n DECIMAL(10,2)) USING delta PARTITIONED BY (day)"
        " TBLPROPERTIES ('delta.checkpointInterval' = '2')",
        "INSERT INTO {t} VALUES (1, 'a b', 1.5), (2, 'c/d', NULL), (3, NULL, 3)",
        "DELETE FROM {t} WHERE id = 2",
        "ALTER TABLE {t} ADD COLUMN more STRING",
        "INSERT INTO {t} VALUES (4, '%20', 4, 'x')",
    )
    before = {version: delta_spark.read(place, version=version) for version in (1, 3, 4)}
    table = catalog.import_table(str(place), "t")
    assert table.version == 5
    catalog.write("t", pa.table({"id": [5], "day": ["ü:1"], "more": ["y"]}))
    with catalog.begin() as tx:
        tx.stage(table.id, _removal_of(table, 1))
    assert table.version == 7
    for version, rows in before.items():
        assert same_rows(table.to_arrow(version=version), rows)
        assert same_rows(delta_spark.read(place, version=version), rows)
    for version, ids in {6: [1, 3, 4, 5], 7: [3, 4, 5]}.items():
        rows = table.to_arrow(version=version)
        assert _ids(rows) == ids
        assert same_rows(delta_spark.read(place, version=version), rows)
        assert _ids(DeltaTable(place, version=version).to_pyarrow_table()) == ids
    assert _ids(DeltaTable(place, version=3).to_pyarrow_table()) == [1, 3]
    assert table.verify(deep=True, orphans=True, min_age=timedelta(0)).findings == ()


def _removal_of(table: deltars.Table, id_: int) -> list[deltars.protocol.RemoveFile]:
    [file] = [row for row in table.snapshot().files.to_pylist() if f'"id":{id_},' in row["stats"].replace(" ", "")]
    return [deltars.protocol.RemoveFile(path=file["path"], data_change=True, deletion_timestamp=1)]


@pytest.mark.soak(only=True)
def test_delta_spark_writes_a_released_table_and_all_of_it_is_adopted(
    catalog: deltars.Catalog, delta_spark: DeltaSpark
) -> None:
    catalog.create_table("t", "id BIGINT, day STRING", partition_by=["day"])
    catalog.write("t", pa.table({"id": [1, 2], "day": ["a", "b"]}))
    released = catalog.release("t")
    table = catalog.table("t")
    name = f"delta.`{table.location}`"
    delta_spark.run(f"INSERT INTO {name} VALUES (3, 'a'), (4, 'c/d')")
    delta_spark.run(f"UPDATE {name} SET id = 20 WHERE id = 2")
    delta_spark.run(f"OPTIMIZE {name}")
    theirs = delta_spark.read(table.location)
    assert _ids(table.to_arrow()) == [1, 2]
    assert catalog.adopt("t") == released + 4
    assert _ids(table.to_arrow()) == [1, 3, 4, 20]
    assert same_rows(table.to_arrow(), theirs)
    assert _ids(table.to_arrow(version=released + 1)) == [1, 2, 3, 4]
    catalog.write("t", pa.table({"id": [5], "day": ["a"]}))
    assert _ids(delta_spark.read(table.location)) == [1, 3, 4, 5, 20]
    assert _ids(DeltaTable(table.location).to_pyarrow_table()) == [1, 3, 4, 5, 20]
    assert table.verify(deep=True, orphans=True, min_age=timedelta(0)).findings == ()


# -- features that are rare --------------------------------------------------------------------------------------------


@pytest.mark.soak(only=True)
def test_columns_that_delta_spark_widened_are_read_and_written(
    catalog: deltars.Catalog, delta_spark: DeltaSpark, make: Make
) -> None:
    place = make(
        "(id INT, s STRUCT<x: SMALLINT>) USING delta TBLPROPERTIES ('delta.enableTypeWidening' = 'true')",
        "INSERT INTO {t} VALUES (1, named_struct('x', 1S))",
        "ALTER TABLE {t} ALTER COLUMN id TYPE BIGINT",
        "ALTER TABLE {t} ALTER COLUMN s.x TYPE INT",
        "INSERT INTO {t} VALUES (1099511627776, named_struct('x', 100000))",
    )
    theirs = delta_spark.read(place)
    table = catalog.import_table(str(place), "t")
    assert same_rows(table.to_arrow(), theirs)
    assert table.to_arrow(version=1).schema.field("id").type == pa.int32()
    catalog.write("t", pa.table({"id": [2**41], "s": [{"x": 7}]}))
    assert same_rows(delta_spark.read(place), table.to_arrow())


@pytest.mark.soak(only=True)
def test_row_ids_of_delta_spark_go_on_and_are_read_by_it(
    catalog: deltars.Catalog, delta_spark: DeltaSpark, make: Make
) -> None:
    place = make(
        "(id BIGINT) USING delta TBLPROPERTIES ('delta.enableRowTracking' = 'true')",
        "INSERT INTO {t} VALUES (1), (2), (3)",
        "UPDATE {t} SET id = 20 WHERE id = 2",
    )
    ids = f"SELECT id, _metadata.row_id AS row FROM delta.`{place}`"
    before = {row["id"]: row["row"] for row in delta_spark.sql(ids).to_pylist()}
    table = catalog.import_table(str(place), "t")
    catalog.write("t", pa.table({"id": [4, 5]}))
    after = {row["id"]: row["row"] for row in delta_spark.sql(ids).to_pylist()}
    assert {id_: after[id_] for id_ in before} == before
    assert min(after[4], after[5]) > max(before.values())
    assert len(set(after.values())) == 5
    assert _ids(table.to_arrow()) == [1, 3, 4, 5, 20]


@pytest.mark.soak(only=True)
def test_change_files_of_delta_spark_come_along(catalog: deltars.Catalog, delta_spark: DeltaSpark, make: Make) -> None:
    place = make(
        "(id BIGINT, n INT) USING delta TBLPROPERTIES ('delta.enableChangeDataFeed' = 'true')",
        "INSERT INTO {t} VALUES (1, 1), (2, 2), (3, 3)",
        "UPDATE {t} SET n = 20 WHERE id = 2",
    )
    theirs = delta_spark.read(place)
    table = catalog.import_table(str(place), "t")
    [changed] = list(catalog._session.reader.changes(table.id, 2, 2))
    assert any(isinstance(action, CdcFile) for action in changed.actions)
    assert same_rows(table.to_arrow(), theirs)
    catalog.write("t", pa.table({"id": [4], "n": pa.array([4], pa.int32())}))
    feed = delta_spark.sql(
        f"SELECT id, n, _change_type, _commit_version FROM table_changes_by_path('{place}', 0) ORDER BY ALL"
    ).to_pylist()
    assert {"id": 2, "n": 20, "_change_type": "update_postimage", "_commit_version": 2} in feed
    assert {"id": 4, "n": 4, "_change_type": "insert", "_commit_version": table.version} in feed


@pytest.mark.soak(only=True)
def test_table_that_delta_spark_clusters_is_written_and_kept_clustered(
    catalog: deltars.Catalog, delta_spark: DeltaSpark, make: Make
) -> None:
    place = make(
        "(id BIGINT, n STRUCT<a: INT>) USING delta CLUSTER BY (id, n.a)",
        "INSERT INTO {t} VALUES (1, named_struct('a', 1)), (2, named_struct('a', 2))",
        "OPTIMIZE {t}",
    )
    table = catalog.import_table(str(place), "t")
    catalog.write("t", pa.table({"id": [3, 4], "n": [{"a": 3}, {"a": 4}]}))
    done = table.optimize()
    assert (done.cluster_by, done.num_files_removed, done.num_files_added) == (("id", "n.a"), 2, 1)
    assert same_rows(delta_spark.read(place), table.to_arrow())
    mine = catalog.create_table("mine", "id BIGINT, n STRUCT<a: INT>", cluster_by=["id", "n.a"])
    mine.write(table.to_arrow())
    mine.optimize()
    for location in (place, mine.location):
        [detail] = delta_spark.sql(f"DESCRIBE DETAIL delta.`{location}`").to_pylist()
        assert list(detail["clusteringColumns"]) == ["id", "n.a"]
    assert same_rows(delta_spark.read(mine.location), table.to_arrow())


REFUSED: dict[str, tuple[str, list[str]]] = {
    "variantType": (
        "(id BIGINT, v VARIANT) USING delta",
        ["""INSERT INTO {t} SELECT 1, parse_json('{{"a": [1, "x"]}}') UNION ALL SELECT 2, parse_json('null')"""],
    ),
}


@pytest.mark.soak(only=True)
@pytest.mark.parametrize("feature", REFUSED)
def test_what_writers_here_cannot_honour_is_refused_by_name_and_read_when_asked(
    catalog: deltars.Catalog, delta_spark: DeltaSpark, make: Make, feature: str
) -> None:
    definition, statements = REFUSED[feature]
    place = make(definition, *statements)
    with pytest.raises(deltars.UnsupportedFeature, match=feature):
        catalog.import_table(str(place), "t")
    table = catalog.import_table(str(place), "t", read_only=True)
    assert _plain(table.to_arrow()) == _plain(delta_spark.read(place))
    delta_spark.run(f"DELETE FROM delta.`{place}` WHERE id = 1")
    catalog.import_table(str(place), "t", read_only=True)
    assert _plain(table.to_arrow()) == _plain(delta_spark.read(place))


def _plain(rows: pa.Table) -> list[dict[str, Any]]:
    return sorted(rows.to_pylist(), key=lambda row: int(row["id"]))
