"""Statistics of tables, compared with a count in plain Python over all rows of the catalog."""

from __future__ import annotations

import json
import random
import time
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import msgspec
import pyarrow as pa
import pytest
from sqlalchemy import event, insert, select, update

import deltars
from deltars.catalog.maintenance import rules_of
from deltars.log.maintenance import TINY_SHARE, WORN_SHARE
from deltars.store import schema
from deltars.store.maintenance.statistics import StatisticsReader
from tests.support.soak import scaled, seed

DAY_US = 24 * 3_600_000_000
TARGETS = (None, "100", "1kb", "1mb")
MOST_QUERIES = 18
RETENTIONS = (None, "interval 0 seconds", "interval 1 day", "interval 40 days")


def _vector(drawn: random.Random, records: int) -> deltars.DeletionVector:
    return deltars.DeletionVector(
        storage_type="u",
        path_or_inline_dv="ab^-aqEH.-t@S}K{vb[*k^",
        offset=drawn.randrange(1, 10_000),
        size_in_bytes=10,
        cardinality=drawn.randrange(records + 1),
    )


def _add(drawn: random.Random, path: str, vector: bool = False) -> deltars.AddFile:
    records = drawn.choice([1, 10, 100])
    stats = json.dumps({"numRecords": records})
    # A vector needs the number of rows.
    is_counted = vector or drawn.random() < 0.8
    return deltars.AddFile(
        path=path,
        partition_values={"p": drawn.choice(["a", "b", None])},
        size=drawn.choice([1, 20, 30, 80, 200, 700, 800, 2_000, 300_000, 200 << 20, 300 << 20]),
        modification_time=0,
        data_change=True,
        stats=stats if is_counted else None,
        deletion_vector=_vector(drawn, records) if vector else None,
        clustering_provider=drawn.choice([None, "deltars"]),
    )


def _remove(add: deltars.AddFile) -> deltars.RemoveFile:
    return deltars.RemoveFile(
        path=add.path,
        data_change=True,
        deletion_timestamp=1,
        size=add.size,
        partition_values=add.partition_values,
        extended_file_metadata=True,
        deletion_vector=add.deletion_vector,
    )


def _history(catalog: deltars.Catalog, drawn: random.Random, name: str) -> UUID:
    """Commit random actions to a new table; its files do not exist."""
    properties = {"delta.enableDeletionVectors": "true", "delta.enableChangeDataFeed": "true"}
    for key, values in (
        ("delta.targetFileSize", TARGETS),
        ("delta.deletedFileRetentionDuration", RETENTIONS),
        ("delta.logRetentionDuration", RETENTIONS),
        ("deltars.mirror", (None, None, "off")),
    ):
        value = drawn.choice(values)
        if value is not None:
            properties[key] = value
    table = catalog.create_table(name, "id BIGINT, p STRING", partition_by=["p"], properties=properties)
    live: dict[str, deltars.AddFile] = {}
    gone: list[str] = []
    writer = deltars.SqlTxnLogWriter(catalog)
    for version in range(1, drawn.randrange(2, 14)):
        actions: list[deltars.Action] = []
        for path, add in drawn.sample(sorted(live.items()), drawn.randrange(len(live) + 1)):
            actions.append(_remove(live.pop(path)))
            if drawn.random() < 0.3 and add.stats is not None and add.deletion_vector is None:
                records = json.loads(add.stats)["numRecords"]
                live[path] = msgspec.structs.replace(add, deletion_vector=_vector(drawn, records))
                actions.append(live[path])
            else:
                gone.append(path)
        for _ in range(drawn.randrange(5)):
            path = gone.pop() if gone and drawn.random() < 0.2 else f"p=a/{uuid4()}.parquet"
            if path in {one.path for one in actions if isinstance(one, deltars.RemoveFile)} | live.keys():
                continue
            live[path] = _add(drawn, path, vector=drawn.random() < 0.2)
            actions.append(live[path])
        if drawn.random() < 0.2:
            actions.append(
                deltars.CdcFile(
                    path=f"_change_data/{uuid4()}.parquet", partition_values={"p": "a"}, size=7, data_change=False
                )
            )
        if not actions:
            actions.append(deltars.Txn(app_id="a", version=version))
        writer.commit(table.id, version, actions, operation="WRITE")
    return table.id


def _age(catalog: deltars.Catalog, drawn: random.Random, table_id: UUID) -> None:
    """Give the versions random ages, publish some of them at random times, and note an earlier vacuum."""
    versions, log, marks = schema.dl_table_versions, schema.dl_mirror_log, schema.dl_maintenance
    now = time.time_ns() // 1000
    with catalog._session.database.write(30) as connection:
        [current] = connection.scalars(
            select(schema.dl_tables.c.current_version).where(schema.dl_tables.c.table_id == table_id)
        )
        ages = sorted((drawn.randrange(60 * DAY_US) for _ in range(current + 1)), reverse=True)
        for version, age in enumerate(ages):
            connection.execute(
                update(versions)
                .where(versions.c.table_id == table_id, versions.c.version == version)
                .values(commit_ts=now - age, in_commit_timestamp=(now - age) // 1000)
            )
        published = drawn.choice([current, current, drawn.randrange(-1, current + 1)])
        for version, age in enumerate(ages[: published + 1]):
            if drawn.random() < 0.9:
                published_at = now - max(0, age - drawn.choice([0, 1_000, 5 * DAY_US]))
                row = {"table_id": table_id, "version": version, "published_at": published_at, "digest": ""}
                connection.execute(insert(log).values(row))
        connection.execute(
            update(schema.dl_mirror_status)
            .where(schema.dl_mirror_status.c.table_id == table_id)
            .values(published_version=published)
        )
        if drawn.random() < 0.5:
            vacuumed = drawn.randrange(-1, current + 1)
            values: dict[str, Any] = {"vacuumed_version": vacuumed, "condemned_version": vacuumed}
            if drawn.random() < 0.5:
                values["kept_versions"] = sorted(drawn.sample(range(current + 1), min(2, current + 1)))
            connection.execute(insert(marks).values(table_id=table_id, vacuumed_at=now - DAY_US, **values))
        for _ in range(drawn.randrange(3)):
            connection.execute(
                insert(schema.dl_writers).values(
                    txn_id=uuid4(),
                    table_id=table_id,
                    **{column: now - drawn.choice([1, 2]) * DAY_US for column in ("started_at", "heartbeat_at")},
                    **({"prefix": ""} if "prefix" in schema.dl_writers.c else {}),
                )
            )


def _rows(catalog: deltars.Catalog) -> dict[str, list[dict[str, Any]]]:
    with catalog._session.database.read() as connection:
        return {
            name: [dict(row) for row in connection.execute(select(table)).mappings()]
            for name, table in schema.metadata.tables.items()
        }


def _counted(rows: dict[str, list[dict[str, Any]]], one: deltars.TableStatistics) -> dict[str, Any]:
    """Count what a table's statistics say, one row after the other."""

    def of(name: str) -> list[dict[str, Any]]:
        return [row for row in rows[name] if row["table_id"] == one.table_id]

    [table], [status] = of("dl_tables"), of("dl_mirror_status")
    marks = next(iter(of("dl_maintenance")), {})
    vacuumed = marks.get("vacuumed_version", -1)
    rules = rules_of(table["properties"])
    now = time.time_ns() // 1000
    adds = of("dl_add_files")
    live = [add for add in adds if add["removed_version"] is None]
    target = rules.target_bytes or 256 << 20
    small = [add for add in live if add["size"] < 0.75 * target]
    by_partition = Counter(json.dumps(add["partition_values"]) for add in small)
    mergeable = [
        add
        for add in live
        if add["size"] < TINY_SHARE * target and by_partition[json.dumps(add["partition_values"])] >= 2
    ]
    deleted = {id(add): (add["deletion_vector"] or {}).get("cardinality", 0) for add in live}
    worn = [add for add in live if deleted[id(add)] and deleted[id(add)] > WORN_SHARE * add["num_records"]]

    versions = sorted(of("dl_table_versions"), key=lambda row: row["version"])
    published_at = {row["version"]: row["published_at"] for row in of("dl_mirror_log")}
    horizon = vacuumed
    for row in versions:
        if row["version"] <= vacuumed:
            continue
        last = max(published_at.get(row["version"], row["commit_ts"]), row["commit_ts"])
        if row["version"] > status["published_version"] or last >= now - rules.deleted_retention_us:
            break
        horizon = row["version"]
    past = range(vacuumed + 1, horizon + 1)
    needed = {add["path"] for add in adds if add["removed_version"] is None or add["removed_version"] > horizon}
    removes, changes = of("dl_remove_files"), of("dl_cdc_files")
    removed: dict[str, int] = {}
    for row in removes:
        if row["version"] in past and row["path"] not in needed:
            removed[row["path"]] = max(row["size"], removed.get(row["path"], 0))
    past_changes = [row for row in changes if row["version"] in past]

    tags = [row["commit_ts"] for row in rows["dl_tags"]]
    pins = {max((row["version"] for row in versions if row["commit_ts"] <= tag), default=None) for tag in tags}
    kept = set(marks.get("kept_versions") or ())
    oldest = versions[0]["version"]

    def expirable(after: int) -> int:
        since = now - rules.log_retention_us
        old = [v["version"] for v in versions if v["commit_ts"] <= since and v["in_commit_timestamp"] * 1000 <= since]
        removals = [row["version"] for row in removes + changes if row["version"] > after]
        first = min([max(old, default=-1), status["published_version"], *(version - 1 for version in removals)])
        going = [row["version"] for row in versions if row["version"] < first]
        return len(set(going) - pins - kept) if first > oldest else 0

    return {
        "num_files": len(live),
        "size_bytes": sum(add["size"] for add in live),
        "num_records": sum(add["num_records"] or 0 for add in live),
        "small_files": len(small),
        "small_bytes": sum(add["size"] for add in small),
        "mergeable_files": len(mergeable),
        "deleted_rows": sum(deleted.values()),
        "worn_files": len(worn),
        "worn_bytes": sum(add["size"] for add in worn),
        "unsorted_files": 0,
        "removed_files": len(removed),
        "removed_bytes": sum(removed.values()),
        "removed_vectors": sum(row["version"] in past and row["dv_id"] != "" for row in removes),
        "change_files": len(past_changes),
        "change_bytes": sum(row["size"] for row in past_changes),
        "num_versions": len(versions),
        "oldest_version": oldest,
        "current_version": versions[-1]["version"],
        "published_version": status["published_version"],
        "untagged_versions": len(kept - pins),
        "expirable_versions": expirable(vacuumed),
        "expirable_after_vacuum": expirable(horizon),
        "dead_writers": sum(now - row["heartbeat_at"] > DAY_US for row in of("dl_writers")),
        "is_published": table["properties"].get("deltars.mirror") != "off",
    }


@pytest.fixture
def quiet(migrated_uri: str, tmp_path: Path) -> Iterator[deltars.Catalog]:
    """A catalog that publishes nothing."""
    with deltars.connect(migrated_uri, warehouse=str(tmp_path / "warehouse"), mirror="off") as opened:
        yield opened


@pytest.mark.soak
def test_statistics_are_a_plain_count_of_the_rows(quiet: deltars.Catalog) -> None:
    catalog, drawn = quiet, random.Random(seed())
    tables = [_history(catalog, drawn, f"t{number}") for number in range(scaled(6, soak=200))]
    for table_id in tables:
        _age(catalog, drawn, table_id)
    with catalog._session.database.write(30) as connection:
        for number in range(3):
            moment = time.time_ns() // 1000 - drawn.randrange(60 * DAY_US)
            row = {"name": f"tag{number}", "commit_ts": moment, "created_at": datetime.now(UTC)}
            connection.execute(insert(schema.dl_tags).values(row))
    statistics = catalog.statistics()
    assert [one.table for one in statistics] == sorted(one.table for one in statistics)
    assert {one.table_id for one in statistics} == set(tables)
    rows = _rows(catalog)
    for one in statistics:
        counted = _counted(rows, one)
        assert {name: getattr(one, name) for name in counted} == counted, one.table
        # One table is counted as among all.
        [alone] = catalog.statistics([one.table])
        assert {name: getattr(alone, name) for name in counted} == counted, one.table


def test_statistics_of_an_empty_catalog_and_of_tables_without_versions(
    catalog: deltars.Catalog, tmp_path: Path
) -> None:
    assert catalog.statistics() == [] == catalog.advise()
    catalog.register_table("bare", str(tmp_path / "bare"))
    catalog.create_table("empty", "id BIGINT")
    bare, empty = catalog.statistics()
    assert (bare.num_files, bare.current_version, bare.oldest_version, bare.last_commit_age_s) == (0, -1, -1, None)
    assert (empty.num_files, empty.num_versions, empty.target_bytes) == (0, 1, 256 << 20)
    assert catalog.advise() == []


@pytest.mark.backends("sqlite")
def test_dropped_tables_have_no_statistics_and_unknown_ones_are_an_error(catalog: deltars.Catalog) -> None:
    catalog.create_table("a", "id BIGINT")
    catalog.create_table("b", "id BIGINT")
    catalog.drop_table("a")
    assert [one.table for one in catalog.statistics()] == ["b"]
    with pytest.raises(deltars.TableNotFound):
        catalog.statistics(["a"])
    assert catalog.statistics([]) == []


@pytest.mark.backends("sqlite")
def test_the_number_of_queries_does_not_depend_on_the_number_of_tables(quiet: deltars.Catalog) -> None:
    catalog, drawn = quiet, random.Random(seed())
    for number in range(3):
        _history(catalog, drawn, f"t{number}")
        _age(catalog, drawn, catalog.table(f"t{number}").id)
    catalog.tag("a")
    few = _queries(catalog)
    for number in range(3, 9):
        _age(catalog, drawn, _history(catalog, drawn, f"t{number}"))
    # Of tables without old versions or removed files, some queries are left out.
    assert few <= MOST_QUERIES
    assert _queries(catalog) <= MOST_QUERIES


def _queries(catalog: deltars.Catalog) -> int:
    count = 0

    def seen(*_: Any) -> None:
        nonlocal count
        count += 1

    engine = catalog._session.database.engine
    event.listen(engine, "before_cursor_execute", seen)
    try:
        StatisticsReader(catalog._session.database, rules_of).read()
    finally:
        event.remove(engine, "before_cursor_execute", seen)
    return count


@pytest.mark.backends("sqlite")
def test_a_clustered_table_counts_the_files_that_are_not_sorted(catalog: deltars.Catalog) -> None:
    catalog.create_table("sorted", "id BIGINT", cluster_by=["id"])
    for number in range(3):
        catalog.write("sorted", pa.table({"id": [number]}))
    [one] = catalog.statistics()
    assert (one.is_clustered, one.unsorted_files, one.unsorted_bytes > 0) == (True, 3, True)
    catalog.table("sorted").optimize()
    [one] = catalog.statistics()
    assert (one.is_clustered, one.num_files, one.unsorted_files) == (True, 1, 0)
