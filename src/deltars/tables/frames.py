"""DataFrames with the columns and types of those that delta-spark returns."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import (
    ArrayType,
    BooleanType,
    DataType,
    DoubleType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from deltars.catalog import Table
from deltars.log.snapshot import HistoryEntry, Snapshot, Totals
from deltars.protocol import column_mapping
from deltars.protocol.clustering import clustering_columns
from deltars.protocol.engine_info import ENGINE_INFO
from deltars.protocol.features import FEATURE_PROPERTY, FENCE, legacy_versions
from deltars.protocol.properties import ENABLEMENT_TIMESTAMP, ENABLEMENT_VERSION
from deltars.protocol.stats import indexed_leaves
from deltars.transaction import ChangeMetrics, Optimized, RestoredTable
from deltars.transaction.metadata import IN_COMMIT_TIMESTAMPS

_TEXT, _LONG, _INT, _TIME, _FLAG = StringType(), LongType(), IntegerType(), TimestampType(), BooleanType()
_TEXTS, _NAMES = MapType(_TEXT, _TEXT), ArrayType(_TEXT)


def _struct(required: Mapping[str, DataType] | None = None, /, **optional: DataType) -> StructType:
    fields = [StructField(name, kind, False) for name, kind in (required or {}).items()]
    return StructType([*fields, *(StructField(name, kind, True) for name, kind in optional.items())])


def _longs(*names: str) -> dict[str, DataType]:
    return dict.fromkeys(names, _LONG)


_HISTORY = _struct(
    version=_LONG,
    timestamp=_TIME,
    userId=_TEXT,
    userName=_TEXT,
    operation=_TEXT,
    operationParameters=_TEXTS,
    job=_struct(jobId=_TEXT, jobName=_TEXT, jobRunId=_TEXT, runId=_TEXT, jobOwnerId=_TEXT, triggerType=_TEXT),
    notebook=_struct(notebookId=_TEXT),
    clusterId=_TEXT,
    readVersion=_LONG,
    isolationLevel=_TEXT,
    isBlindAppend=_FLAG,
    operationMetrics=_TEXTS,
    userMetadata=_TEXT,
    engineInfo=_TEXT,
)
_DETAIL = _struct(
    format=_TEXT,
    id=_TEXT,
    name=_TEXT,
    description=_TEXT,
    location=_TEXT,
    createdAt=_TIME,
    lastModified=_TIME,
    partitionColumns=_NAMES,
    clusteringColumns=_NAMES,
    numFiles=_LONG,
    sizeInBytes=_LONG,
    properties=_TEXTS,
    minReaderVersion=_INT,
    minWriterVersion=_INT,
    tableFeatures=_NAMES,
)
_MERGE = _struct(**_longs("num_affected_rows", "num_updated_rows", "num_deleted_rows", "num_inserted_rows"))
_RESTORE = _struct(
    **_longs(
        "table_size_after_restore",
        "num_of_files_after_restore",
        "num_removed_files",
        "num_restored_files",
        "removed_files_size",
        "restored_files_size",
    )
)
_SIZES = StructType(
    [
        StructField("min", _LONG, True),
        StructField("max", _LONG, True),
        StructField("avg", DoubleType(), False),
        StructField("totalFiles", _LONG, False),
        StructField("totalSize", _LONG, False),
    ]
)
_CUBE, _Z_CUBE = _struct(_longs("num", "size")), _struct(_longs("numFiles", "size"))
_OPTIMIZE = _struct(
    path=_TEXT,
    metrics=StructType(
        [
            *_struct(_longs("numFilesAdded", "numFilesRemoved")),
            *_struct(filesAdded=_SIZES, filesRemoved=_SIZES),
            *_struct(_longs("partitionsOptimized")),
            *_struct(
                zOrderStats=StructType(
                    [
                        *_struct(strategyName=_TEXT, inputCubeFiles=_CUBE, inputOtherFiles=_CUBE),
                        *_struct(_longs("inputNumCubes")),
                        *_struct(mergedFiles=_CUBE),
                        *_struct(_longs("numOutputCubes"), mergedNumCubes=_LONG),
                    ]
                ),
                clusteringStats=StructType(
                    [
                        *_struct(inputZCubeFiles=_Z_CUBE, inputOtherFiles=_Z_CUBE),
                        *_struct(_longs("inputNumZCubes")),
                        *_struct(mergedFiles=_Z_CUBE),
                        *_struct(_longs("numOutputZCubes")),
                    ]
                ),
            ),
            *_struct(_longs("numBins", "numBatches", "totalConsideredFiles", "totalFilesSkipped")),
            *_struct({"preserveInsertionOrder": _FLAG}),
            *_struct(
                _longs(
                    "numFilesSkippedToReduceWriteAmplification",
                    "numBytesSkippedToReduceWriteAmplification",
                    "startTimeMs",
                    "endTimeMs",
                    "totalClusterParallelism",
                    "totalScheduledTasks",
                )
            ),
            *_struct(
                autoCompactParallelismStats=_struct(
                    **_longs(
                        "maxClusterActiveParallelism",
                        "minClusterActiveParallelism",
                        "maxSessionActiveParallelism",
                        "minSessionActiveParallelism",
                    )
                ),
                deletionVectorStats=_struct(_longs("numDeletionVectorsRemoved", "numDeletionVectorRowsRemoved")),
            ),
            *_struct(_longs("numTableColumns", "numTableColumnsWithStats")),
        ]
    ),
)

_ISOLATION = {
    "strict": "Serializable",
    "serializable": "Serializable",
    "write_serializable": "WriteSerializable",
    "snapshot": "SnapshotIsolation",
}
_OWN_PROPERTIES = (IN_COMMIT_TIMESTAMPS, ENABLEMENT_VERSION, ENABLEMENT_TIMESTAMP)
"""Properties that every table of a catalog has. Nobody set them, so `detail` leaves them out."""


_OWN_FEATURES = (FENCE, "inCommitTimestamp")
"""Features that every table of a catalog has, for the same reason."""


def history_frame(spark: SparkSession, history: Sequence[HistoryEntry]) -> DataFrame:
    return spark.createDataFrame([_history_row(entry) for entry in history], _HISTORY)


def _history_row(entry: HistoryEntry) -> tuple[Any, ...]:
    return (
        entry.version,
        entry.committed_at,
        None,
        entry.committer,
        entry.operation,
        {key: _as_text(value) for key, value in entry.operation_params.items()},
        None,
        None,
        None,
        entry.read_version if entry.read_version is None or entry.read_version >= 0 else None,
        None if entry.isolation is None else _ISOLATION.get(entry.isolation, entry.isolation),
        entry.is_blind_append,
        {key: _as_text(value) for key, value in entry.metrics.items()},
        entry.user_metadata,
        ENGINE_INFO,
    )


def _as_text(value: Any) -> str | None:
    return value if value is None or isinstance(value, str) else json.dumps(value, separators=(",", ":"))


def detail_frame(spark: SparkSession, table: Table) -> DataFrame:
    snapshot = table.snapshot()
    detail = table.detail()
    features = [name for name in detail.table_features if name not in _OWN_FEATURES]
    # As delta-spark has them, for the features that are shown.
    versions = legacy_versions(features) or (detail.min_reader_version, detail.min_writer_version)
    row = (
        "delta",
        snapshot.metadata.id,
        detail.name,
        detail.description,
        spark_path(detail.location),
        detail.created_at,
        detail.last_modified,
        list(detail.partition_columns),
        clustering_names(snapshot),
        detail.num_files,
        detail.size_bytes,
        shown_properties(detail.properties),
        *versions,
        features,
    )
    return spark.createDataFrame([row], _DETAIL)


def shown_properties(properties: Mapping[str, str]) -> dict[str, str]:
    """Return the properties that someone set. A feature is no property of the table once it is supported."""
    return {
        name: value
        for name, value in properties.items()
        if name not in _OWN_PROPERTIES and not name.startswith(FEATURE_PROPERTY)
    }


def clustering_names(snapshot: Snapshot) -> list[str]:
    is_mapped = column_mapping(snapshot.metadata.configuration) != "none"
    return [".".join(path) for path in clustering_columns(snapshot.domains, snapshot.schema, is_mapped=is_mapped)]


def merge_frame(spark: SparkSession, metrics: ChangeMetrics) -> DataFrame:
    row = (metrics.rows_changed, metrics.rows_updated, metrics.rows_deleted, metrics.rows_inserted)
    return spark.createDataFrame([row], _MERGE)


def restore_frame(spark: SparkSession, totals: Totals, restored: RestoredTable) -> DataFrame:
    row = (
        totals.size_bytes,
        totals.num_files,
        restored.num_removed_files,
        restored.num_restored_files,
        restored.removed_bytes,
        restored.restored_bytes,
    )
    return spark.createDataFrame([row], _RESTORE)


def optimize_frame(spark: SparkSession, table: Table, done: Optimized) -> DataFrame:
    snapshot = table.snapshot()
    metadata = snapshot.metadata
    own = done.metrics
    leaves = list(snapshot.schema.leaves())
    counted = {path for path, _ in indexed_leaves(snapshot.schema, metadata.partition_columns, metadata.configuration)}
    metrics = {
        **own,
        "filesAdded": _sizes(own["filesAdded"]),
        "filesRemoved": _sizes(own["filesRemoved"]),
        "zOrderStats": _z_order_stats(done) if done.zorder_by and done.num_files_removed else None,
        "clusteringStats": _clustering_stats(done) if done.cluster_by and done.num_files_removed else None,
        # Delta counts a run as one batch, also if it found nothing to do.
        "numBatches": done.num_batches or 1,
        "preserveInsertionOrder": False,
        "numFilesSkippedToReduceWriteAmplification": 0,
        "numBytesSkippedToReduceWriteAmplification": 0,
        "totalClusterParallelism": 1,
        "totalScheduledTasks": 0,
        "autoCompactParallelismStats": None,
        "deletionVectorStats": own["deletionVectorStats"] if done.num_deletion_vectors_removed else None,
        "numTableColumns": len(leaves),
        "numTableColumnsWithStats": len(
            [path for path, _ in leaves if path in counted or _is_partition(path, metadata)]
        ),
    }
    return spark.createDataFrame([(spark_path(table.location), metrics)], _OPTIMIZE)


def _is_partition(path: Sequence[str], metadata: Any) -> bool:
    return path[0] in metadata.partition_columns


def _sizes(sizes: Mapping[str, Any]) -> dict[str, Any]:
    return dict(sizes) if sizes["totalFiles"] else {**sizes, "min": None, "max": None}


def _z_order_stats(done: Optimized) -> dict[str, Any]:
    inputs = {"num": done.num_files_removed, "size": done.files_removed.total_size}
    return {
        "strategyName": "all",
        "inputCubeFiles": {"num": 0, "size": 0},
        "inputOtherFiles": inputs,
        "inputNumCubes": 0,
        "mergedFiles": inputs,
        "numOutputCubes": done.partitions_optimized,
        "mergedNumCubes": None,
    }


def _clustering_stats(done: Optimized) -> dict[str, Any]:
    inputs = {"numFiles": done.num_files_removed, "size": done.files_removed.total_size}
    return {
        "inputZCubeFiles": {"numFiles": 0, "size": 0},
        "inputOtherFiles": inputs,
        "inputNumZCubes": 0,
        "mergedFiles": inputs,
        "numOutputZCubes": done.num_bins,
    }


def spark_path(location: str) -> str:
    """Return a location as Spark spells it: `file:/lake/features`."""
    return f"file:{location}" if location.startswith("/") else location


def nothing(spark: SparkSession) -> DataFrame:
    """Return the frame without columns and rows that VACUUM returns."""
    return spark.createDataFrame([], StructType([]))
