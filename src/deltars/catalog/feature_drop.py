"""Drop of a table feature: rewrite what needs it, drop it from the protocol, and publish a checkpoint.

A program that does not know the feature cannot replay the commits that used it, so it must be able to begin after them.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING
from uuid import UUID, uuid4

from deltars.arguments import check_flags, check_texts
from deltars.catalog.expire import expire_history
from deltars.errors import FeatureNotDropped, TimestampTooEarly, located
from deltars.protocol import AddFile, Metadata, RemoveFile, needed_features
from deltars.protocol.feature_drop import DELETION_VECTORS, feature_to_drop
from deltars.protocol.features import TableFeature
from deltars.protocol.properties import LOG_RETENTION, parse_interval_ms
from deltars.session import CatalogSession
from deltars.transaction import Transaction
from deltars.transaction.feature_drop import RewriteWithoutFeature, stage_drop
from deltars.transaction.options import ChangeOptions

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TRUNCATION_RETENTION = "delta.dropFeatureTruncateHistory.retentionDuration"
_DAY_MS = 24 * 60 * 60 * 1000


def drop_feature(
    session: CatalogSession, table_id: UUID, name: str, *, truncate_history: bool, spark: SparkSession | None
) -> None:
    """Drop a table feature. Raise `FeatureNotDropped` if the table cannot lose it, or not yet."""
    check_texts(feature=name)
    check_flags(truncate_history=truncate_history)
    record = session.find(table_id)
    with located(table=record.name, table_id=str(table_id)):
        snapshot = session.reader.snapshot(table_id)
        feature = feature_to_drop(
            name, snapshot.protocol, snapshot.metadata, snapshot.domains, truncates=truncate_history
        )
        was_used = _rewrite(session, table_id, feature, spark)
        if truncate_history:
            _refuse_used_lately(session, table_id, feature, was_used=was_used)
        with Transaction(session, isolation="strict") as tx:
            stage_drop(tx, table_id, feature.name, truncates=truncate_history)
        version = tx.result.versions_by_id[table_id]
        if feature.is_reader:
            _write_checkpoint(session, table_id, version)
        if truncate_history:
            retention = timedelta(milliseconds=_retention_ms(snapshot.metadata))
            expire_history(session, [table_id], retention, keep_versions=None, dry_run=False, force=True)


def _rewrite(session: CatalogSession, table_id: UUID, feature: TableFeature, spark: SparkSession | None) -> bool:
    """Rewrite the files that need the feature, in one commit. Return whether there were any."""
    with Transaction(session, isolation="strict") as tx:
        options: ChangeOptions = {} if spark is None else {"spark": spark}
        tx._change(table_id, "purge", options, lambda view, checked: RewriteWithoutFeature(view, checked, feature.name))
    return bool(tx.result.versions)


def _write_checkpoint(session: CatalogSession, table_id: UUID, version: int) -> None:
    publisher = session.publisher
    status = publisher.status.read(table_id)
    if status.is_published_to and status.published_version >= version:
        storage = publisher.storage_at(status.location)
        publisher.checkpointer.try_write(storage, table_id, version, owner=f"drop-feature:{uuid4()}")


# -- truncation of the history -----------------------------------------------------------------------------------------


def _retention_ms(metadata: Metadata) -> int:
    span = parse_interval_ms(metadata.configuration.get(TRUNCATION_RETENTION, ""))
    return _DAY_MS if span is None else span


def _refuse_used_lately(session: CatalogSession, table_id: UUID, feature: TableFeature, *, was_used: bool) -> None:
    """Raise if versions that the truncation keeps use the feature."""
    configuration = session.reader.snapshot(table_id).metadata.configuration
    waits = {
        "key": LOG_RETENTION.removeprefix("delta."),
        "log": configuration.get(LOG_RETENTION, "30 days"),
        "truncation": configuration.get(TRUNCATION_RETENTION, "24 hours"),
    }
    if was_used:
        raise FeatureNotDropped(
            f"Dropping {feature.name} was partially successful.\n\nThe feature is now no longer used in the current"
            " version of the table. However, the feature\nis still present in historical versions of the table. The"
            " table feature cannot be dropped\nfrom the table protocol until these historical versions have"
            " expired.\n\nTo drop the table feature from the protocol, please wait for the historical versions"
            " to\nexpire, and then repeat this command. The retention period for historical versions is\ncurrently"
            " configured as {key}={log}.\n\nAlternatively, please wait for the TRUNCATE HISTORY retention period to"
            " expire ({truncation})\nand then run:\n    ALTER TABLE table_name DROP FEATURE feature_name TRUNCATE"
            " HISTORY".format(**waits),
            condition="DELTA_FEATURE_DROP_WAIT_FOR_RETENTION_PERIOD",
            hint="Or drop it without truncating the history: that needs no wait.",
        )
    if _is_used_lately(session, table_id, feature):
        raise FeatureNotDropped(
            f"Cannot drop {feature.name} because the Delta log contains historical versions that use the"
            " feature.\nPlease wait until the history retention period ({key}={log})\nhas passed since the feature was"
            " last active.\n\nAlternatively, please wait for the TRUNCATE HISTORY retention period to expire"
            " ({truncation})\nand then run:\n    ALTER TABLE table_name DROP FEATURE feature_name TRUNCATE"
            " HISTORY".format(**waits),
            condition="DELTA_FEATURE_DROP_HISTORICAL_VERSIONS_EXIST",
            hint="Or drop it without truncating the history: that needs no wait.",
        )


def _is_used_lately(session: CatalogSession, table_id: UUID, feature: TableFeature) -> bool:
    now = session.reader.snapshot(table_id)
    since = datetime.now(UTC) - timedelta(milliseconds=_retention_ms(now.metadata))
    try:
        first = session.reader.snapshot(table_id, timestamp=since)
    except TimestampTooEarly:
        first = session.reader.snapshot(table_id, session.reader.history(table_id)[-1].version)
    if _needs(first.metadata, feature):
        return True
    has_vectors = feature.name == DELETION_VECTORS
    if has_vectors and first.files["deletion_vector"].null_count < first.files.num_rows:
        return True
    for committed in session.reader.changes(table_id, first.version):
        for action in committed.actions:
            if isinstance(action, Metadata) and _needs(action, feature):
                return True
            if has_vectors and isinstance(action, AddFile | RemoveFile) and action.deletion_vector is not None:
                return True
    return False


def _needs(metadata: Metadata, feature: TableFeature) -> bool:
    return feature.name in needed_features(metadata.schema, metadata.configuration)
