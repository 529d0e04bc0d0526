"""A day of a small lake, for pictures: features, labels and models that belong together, a stream, and lost races.

Everything is committed by the public calls within seconds, and then moved in time: the rows of the database that have
times are spread over a day. Nothing of the log depends on them.
"""

from __future__ import annotations

import random
from datetime import UTC, date, datetime, timedelta

import pyarrow as pa
import pytest
from sqlalchemy import select, union, update

import deltars
from deltars.store.database import Database
from deltars.store.schema import (
    dl_conflicts,
    dl_mirror_log,
    dl_reads,
    dl_table_versions,
    dl_tables,
    dl_tags,
    dl_transactions,
)

HOURS = 9
ANNOTATE, TRAIN = "annotate", "train"
_DAYS = [date(2026, 1, 1) + timedelta(days=number) for number in range(4)]


def live_through(catalog: deltars.Catalog, *, seed: int = 7) -> None:
    """Commit a day's work."""
    chance = random.Random(seed)
    with catalog.begin(committer="setup") as tx:
        tx.create_table("images", "id BIGINT, path STRING, day DATE", partition_by=["day"])
        tx.create_table("labels", "id BIGINT, label STRING", properties={"delta.enableDeletionVectors": "true"})
        tx.create_table("features", "id BIGINT, v DOUBLE", description="Embeddings of images, made with their labels")
        tx.create_table("predictions", "id BIGINT, label STRING, score DOUBLE")
        tx.create_table("metrics", "name STRING, value DOUBLE")
        tx.create_table("models", "name STRING, uri STRING")
    for step in range(14):
        count = chance.randint(20, 120)
        ids = list(range(step * 200, step * 200 + count))
        _ingest(catalog, step, ids, chance)
        if step % 2:
            _annotate(catalog, ids)
        if step % 3 == 2:
            _make_features(catalog, step, ids, chance)
        if step in (4, 8, 12):
            _lose(catalog, step)
        if step in (5, 11):
            _train(catalog, step, ids)
        if step == 6:
            catalog.table("features").alter.add_columns("model STRING COMMENT 'Model that made the row'")
        if step == 9:
            catalog.table("labels").delete("id % 7 = 0")
            catalog.tag("release-3", description="Data of the model that is in production")
    catalog.table("images").optimize()
    with catalog.begin(mirror="off", committer=ANNOTATE) as tx:
        tx.write("labels", _labels([9_001, 9_002]))
        tx.write("predictions", pa.table({"id": [9_001], "label": ["cat"], "score": [0.4]}))


def _ingest(catalog: deltars.Catalog, step: int, ids: list[int], chance: random.Random) -> None:
    rows = {
        "id": ids,
        "path": [f"s3://camera/{number}.jpg" for number in ids],
        "day": [chance.choice(_DAYS)] * len(ids),
    }
    with catalog.begin(committer="ingest", isolation="serializable") as tx:
        tx.write("images", pa.table(rows), app_id="camera-stream", app_version=step)


def _labels(ids: list[int]) -> pa.Table:
    return pa.table({"id": ids, "label": [("cat", "dog", "bird")[number % 3] for number in ids]})


def _annotate(catalog: deltars.Catalog, ids: list[int]) -> None:
    with catalog.begin(committer=ANNOTATE) as tx:
        tx.to_arrow("images", where=f"id >= {ids[0]}")
        tx.write("labels", _labels(ids))


def _make_features(catalog: deltars.Catalog, step: int, ids: list[int], chance: random.Random) -> None:
    with catalog.begin(committer="features", user_metadata=f"run {step}") as tx:
        tx.to_arrow("images", where=f"day >= DATE '2026-01-02' AND id >= {ids[0]}")
        tx.to_arrow("labels", where="label IN ('cat', 'dog')")
        tx.write("features", pa.table({"id": ids, "v": [chance.random() for _ in ids]}))
        tx.write("metrics", pa.table({"name": ["coverage"], "value": [chance.random()]}))


def _train(catalog: deltars.Catalog, step: int, ids: list[int]) -> None:
    with catalog.begin(committer=TRAIN, user_metadata=f"model {step}") as tx:
        tx.to_arrow("features", where=f"id < {ids[-1]}")
        tx.to_arrow("labels")
        tx.write("models", pa.table({"name": [f"model-{step}"], "uri": [f"s3://models/{step}"]}))
        tx.write("predictions", pa.table({"id": ids[:5], "label": ["cat"] * 5, "score": [0.9] * 5}))
        tx.write("metrics", pa.table({"name": ["accuracy"], "value": [0.9]}))


def _lose(catalog: deltars.Catalog, step: int) -> None:
    """Let a retraining lose to an annotator who relabels what it read."""
    trainer, annotator = (catalog.begin(committer=who, isolation="serializable") for who in (TRAIN, ANNOTATE))
    trainer.to_arrow("labels", where="label = 'dog'")
    trainer.write("metrics", pa.table({"name": ["recall"], "value": [0.7]}))
    annotator.update("labels", {"label": "'wolf'"}, "label = 'dog' AND id % 5 = 0")
    annotator.write("labels", _labels([step * 200 + 151]))
    annotator.commit()
    with pytest.raises(deltars.VersionConflict):
        trainer.commit()


def spread(catalog: deltars.Catalog, *, hours: float = HOURS, until: datetime | None = None, seed: int = 3) -> None:
    """Move the commits over a span of time that ends a little before now, in their order."""
    chance, database = random.Random(seed), catalog._session.database
    end = int((until or datetime.now(UTC)).timestamp() * 1e6)
    moments = _moments(catalog)
    gaps = [chance.expovariate(1) + 0.05 for _ in moments]
    scale, at = hours * 3.6e9 / sum(gaps), end - hours * 3.6e9 - 60e6
    moved: dict[int, int] = {}
    for moment, gap in zip(moments, gaps, strict=True):
        at += gap * scale
        moved[moment] = int(at)
    _move(database, moved, chance)


def _moments(catalog: deltars.Catalog) -> list[int]:
    with catalog._session.database.read() as connection:
        times = union(select(dl_transactions.c.commit_ts), select(dl_conflicts.c.recorded_at))
        return sorted(moment for (moment,) in connection.execute(times) if moment is not None)


def _move(database: Database, moved: dict[int, int], chance: random.Random) -> None:
    # Most versions are published within a second; some wait for minutes, table by table.
    delays = {old: int(chance.expovariate(1 / (400e6 if chance.random() < 0.12 else 0.3e6))) for old in moved}
    with database.write(60) as connection:
        for old, new in sorted(moved.items()):
            versions = dl_table_versions.c
            committed = datetime.fromtimestamp(new / 1e6, UTC)
            rows = connection.execute(
                dl_table_versions.select()
                .where(versions.commit_ts == old)
                .with_only_columns(*dl_table_versions.primary_key)
            ).all()
            for place, row in enumerate(rows):
                log = dl_mirror_log.c
                connection.execute(
                    update(dl_mirror_log)
                    .where(log.table_id == row.table_id, log.version == row.version)
                    .values(published_at=new + delays[old] * (place + 1))
                )
            connection.execute(
                update(dl_table_versions)
                .where(versions.commit_ts == old)
                .values(commit_ts=new, committed_at=committed, in_commit_timestamp=new // 1000)
            )
            for table in (dl_transactions, dl_tables):
                column = table.c.commit_ts if table is dl_transactions else table.c.last_commit_ts
                connection.execute(update(table).where(column == old).values({column.name: new}))
            connection.execute(update(dl_conflicts).where(dl_conflicts.c.recorded_at == old).values(recorded_at=new))
            connection.execute(update(dl_reads).where(dl_reads.c.recorded_at == old).values(recorded_at=new))
        for tag in connection.execute(select(dl_tags.c.name, dl_tags.c.commit_ts)).all():
            before = max(old for old in moved if old <= tag.commit_ts)
            created = datetime.fromtimestamp(moved[before] / 1e6, UTC)
            connection.execute(
                update(dl_tags).where(dl_tags.c.name == tag.name).values(commit_ts=moved[before], created_at=created)
            )
