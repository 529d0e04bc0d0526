"""DeltaTable: delta-spark's handle on one table, over a table of a catalog."""

from __future__ import annotations

import logging
from datetime import timedelta
from typing import Any

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql.types import StructType

from deltars.tables import binding, copying, frames, protocol_changes, restoring
from deltars.tables.binding import BoundTable
from deltars.tables.exceptions import DeltaIllegalArgumentException, deltas_errors, spark_error
from deltars.tables.expressions import (
    as_they_are,
    check_assignments,
    check_condition,
    check_on,
    check_values,
    rows_like,
)
from deltars.tables.merge_builder import DeltaMergeBuilder
from deltars.tables.optimize_builder import DeltaOptimizeBuilder
from deltars.tables.table_builder import DeltaTableBuilder, Verb
from deltars.transaction import Transaction

_log = logging.getLogger(__name__)

_RETENTION_CHECK = "spark.databricks.delta.retentionDurationCheck.enabled"


class DeltaTable:
    """One table of a catalog, with the methods of delta-spark's `DeltaTable`.

    Made by `forName`, `forPath`, `convertToDelta`, or a builder. With `tx=`, calls that read and change rows are part
    of that transaction, which commits them.
    """

    def __init__(self, bound: BoundTable, aliasName: str | None = None) -> None:  # noqa: N803
        self._bound = bound
        self._alias = aliasName

    # -- opening tables ----------------------------------------------------------------------------------------------

    @classmethod
    def forName(  # noqa: N802
        cls,
        sparkSession: SparkSession,  # noqa: N803
        tableOrViewName: str,  # noqa: N803
        *,
        tx: Transaction | None = None,
    ) -> DeltaTable:
        """Open a table by its name, or by its whole `deltasql://` URI."""
        assert sparkSession is not None
        with deltas_errors():
            return cls(binding.bound_by_name(sparkSession, tableOrViewName, tx))

    @classmethod
    def forPath(  # noqa: N802
        cls,
        sparkSession: SparkSession,  # noqa: N803
        path: str,
        hadoopConf: dict[str, str] = {},  # noqa: B006, N803
        *,
        tx: Transaction | None = None,
    ) -> DeltaTable:
        """Open the catalog's table at a path."""
        assert sparkSession is not None
        with deltas_errors():
            _check_hadoop_conf(hadoopConf)
            return cls(binding.bound_by_path(sparkSession, path, tx))

    @classmethod
    def isDeltaTable(cls, sparkSession: SparkSession, identifier: str) -> bool:  # noqa: N802, N803
        """Return whether there is a Delta table at a path."""
        assert sparkSession is not None
        with deltas_errors():
            return binding.is_table_at(sparkSession, identifier)

    @classmethod
    def convertToDelta(  # noqa: N802
        cls,
        sparkSession: SparkSession,  # noqa: N803
        identifier: str,
        partitionSchema: str | StructType | None = None,  # noqa: N803
    ) -> DeltaTable:
        """Make a table of a directory of Parquet files, in place: parquet.`/lake/events`."""
        assert sparkSession is not None
        with deltas_errors():
            return cls(copying.converted(sparkSession, identifier, partitionSchema))

    # -- creating tables ---------------------------------------------------------------------------------------------

    @classmethod
    def create(
        cls,
        sparkSession: SparkSession | None = None,  # noqa: N803
        *,
        tx: Transaction | None = None,
    ) -> DeltaTableBuilder:
        """Describe a table to be created. It must not exist."""
        return _builder(sparkSession, "create", tx)

    @classmethod
    def createIfNotExists(  # noqa: N802
        cls,
        sparkSession: SparkSession | None = None,  # noqa: N803
        *,
        tx: Transaction | None = None,
    ) -> DeltaTableBuilder:
        """Describe a table to be created, unless it exists."""
        return _builder(sparkSession, "createIfNotExists", tx)

    @classmethod
    def replace(
        cls,
        sparkSession: SparkSession | None = None,  # noqa: N803
        *,
        tx: Transaction | None = None,
    ) -> DeltaTableBuilder:
        """Describe a table that replaces one that exists."""
        return _builder(sparkSession, "replace", tx)

    @classmethod
    def createOrReplace(  # noqa: N802
        cls,
        sparkSession: SparkSession | None = None,  # noqa: N803
        *,
        tx: Transaction | None = None,
    ) -> DeltaTableBuilder:
        """Describe a table to be created, or replaced if it exists."""
        return _builder(sparkSession, "createOrReplace", tx)

    # -- rows --------------------------------------------------------------------------------------------------------

    def toDF(self) -> DataFrame:  # noqa: N802
        """Return the table's rows."""
        with deltas_errors():
            frame = self._bound.read()
        name = self._alias or (self._bound.name if self._bound.is_named else None)
        return frame if name is None else frame.alias(name)

    def alias(self, aliasName: str) -> DeltaTable:  # noqa: N803
        """Return the table under another name, for conditions and values."""
        return DeltaTable(self._bound, aliasName)

    def delete(self, condition: str | Column | None = None) -> None:
        """Delete the rows that fulfil a condition; without one, all."""
        check_condition(condition)
        alias = self._name
        with deltas_errors():
            check_on(rows_like(self._bound.spark, self._bound.schema, alias), condition)
            self._bound.delete(condition, alias)

    def update(self, condition: str | Column | None = None, set: dict[str, str | Column] | None = None) -> None:
        """Give columns new values in the rows that fulfil a condition; without one, in all."""
        check_values(set, "'set'")
        check_condition(condition)
        assert set is not None
        alias = self._name
        with deltas_errors():
            rows = rows_like(self._bound.spark, self._bound.schema, alias)
            check_on(rows, condition)
            check_assignments(rows, rows, set)
            self._bound.update(set or as_they_are(self._bound.schema), condition, alias)

    def merge(self, source: DataFrame, condition: str | Column) -> DeltaMergeBuilder:
        """Begin a merge of a frame into the table."""
        if source is None:
            raise ValueError("'source' in merge cannot be None")
        if not isinstance(source, DataFrame):
            raise TypeError("Type of 'source' in merge must be DataFrame.")
        if condition is None:
            raise ValueError("'condition' in merge cannot be None")
        check_condition(condition)
        return DeltaMergeBuilder(self._bound, self._alias, source, condition)

    # -- history -----------------------------------------------------------------------------------------------------

    def history(self, limit: int | None = None) -> DataFrame:
        """Return the commits, newest first; at most `limit`."""
        with deltas_errors():
            return frames.history_frame(self._bound.spark, self._bound.table.history(limit))

    def detail(self) -> DataFrame:
        """Return one row that describes the table."""
        with deltas_errors():
            return frames.detail_frame(self._bound.spark, self._bound.table)

    def restoreToVersion(self, version: int) -> DataFrame:  # noqa: N802
        """Restore the table to a version. Return the metrics."""
        _check_int(version, "version")
        with deltas_errors():
            return restoring.to_version(self._bound, version)

    def restoreToTimestamp(self, timestamp: str) -> DataFrame:  # noqa: N802
        """Restore the table to a time. Return the metrics."""
        _check_str(timestamp, "timestamp")
        with deltas_errors():
            return restoring.to_timestamp(self._bound, timestamp)

    # -- maintenance -------------------------------------------------------------------------------------------------

    def optimize(self) -> DeltaOptimizeBuilder:
        """Begin to compact or sort the table's files."""
        return DeltaOptimizeBuilder(self._bound)

    def vacuum(self, retentionHours: float | None = None) -> DataFrame:  # noqa: N803
        """Delete files that no version within the retention needs."""
        hours = None if retentionHours is None else float(retentionHours)
        spark = self._bound.spark
        with deltas_errors():
            is_checked = str(spark.conf.get(_RETENTION_CHECK, "true")).lower() != "false"
            # As in delta-spark, a negative number means the table's own retention.
            retention = None if hours is None or hours < 0 else timedelta(hours=hours)
            self._bound.table.vacuum(retention=retention, full=True, force=not is_checked)
            return frames.nothing(spark)

    def generate(self, mode: str) -> None:
        """Write manifests, lists of the table's files for engines that do not read Delta: "symlink_format_manifest"."""
        with deltas_errors():
            if mode != "symlink_format_manifest":
                raise spark_error(
                    DeltaIllegalArgumentException,
                    "DELTA_MODE_NOT_SUPPORTED",
                    f"Specified mode '{mode}' is not supported. Supported modes are: symlink_format_manifest",
                )
            self._bound.table.generate(mode)

    # -- protocol ----------------------------------------------------------------------------------------------------

    def upgradeTableProtocol(self, readerVersion: int, writerVersion: int) -> None:  # noqa: N802, N803
        """Support the features of these protocol versions."""
        for name, value in (("readerVersion", readerVersion), ("writerVersion", writerVersion)):
            if not isinstance(value, int):
                raise ValueError(f"The {name} needs to be an integer but got '{type(value)}'.")
        with deltas_errors():
            protocol_changes.upgrade(self._bound.table, readerVersion, writerVersion)

    def addFeatureSupport(self, featureName: str) -> None:  # noqa: N802, N803
        """Support a table feature."""
        _check_str(featureName, "featureName")
        with deltas_errors():
            protocol_changes.add_feature(self._bound.table, featureName)

    def dropFeatureSupport(self, featureName: str, truncateHistory: bool | None = None) -> None:  # noqa: N802, N803
        """Drop a table feature. Files that need it are written again first."""
        _check_str(featureName, "featureName")
        if truncateHistory is not None:
            _check_bool(truncateHistory, "truncateHistory")
        with deltas_errors():
            self._bound.table.drop_feature(featureName, truncate_history=bool(truncateHistory), spark=self._bound.spark)

    # -- copies ------------------------------------------------------------------------------------------------------

    def clone(
        self,
        target: str,
        isShallow: bool = False,  # noqa: N803
        replace: bool = False,
        properties: dict[str, str] | None = None,
    ) -> DeltaTable:
        """Copy the table with its files to a new table, given by name or by path."""
        _check_clone(target, isShallow, replace, properties)
        with deltas_errors():
            return DeltaTable(copying.cloned(self._bound, target, isShallow, replace, properties))

    def cloneAtVersion(  # noqa: N802
        self,
        version: int,
        target: str,
        isShallow: bool = False,  # noqa: N803
        replace: bool = False,
        properties: dict[str, str] | None = None,
    ) -> DeltaTable:
        """Copy the table as it was at a version."""
        _check_clone(target, isShallow, replace, properties, version=version)
        with deltas_errors():
            return DeltaTable(copying.cloned(self._bound, target, isShallow, replace, properties, version=version))

    def cloneAtTimestamp(  # noqa: N802
        self,
        timestamp: str,
        target: str,
        isShallow: bool = False,  # noqa: N803
        replace: bool = False,
        properties: dict[str, str] | None = None,
    ) -> DeltaTable:
        """Copy the table as it was at a time."""
        _check_clone(target, isShallow, replace, properties, timestamp=timestamp)
        with deltas_errors():
            return DeltaTable(copying.cloned(self._bound, target, isShallow, replace, properties, timestamp=timestamp))

    @property
    def _name(self) -> str | None:
        return self._alias or self._bound.name

    def __repr__(self) -> str:
        return f"<DeltaTable {self._bound.name} of {self._bound.session.uri}>"


def _builder(spark: SparkSession | None, verb: Verb, tx: Transaction | None) -> DeltaTableBuilder:
    found = SparkSession.getActiveSession() if spark is None else spark
    assert found is not None
    return DeltaTableBuilder(found, verb, tx)


# -- arguments -------------------------------------------------------------------------------------------------------


def _check_hadoop_conf(conf: dict[str, str]) -> None:
    for key, value in conf.items():
        if not key.startswith(("fs.", "dfs.")):
            raise spark_error(
                DeltaIllegalArgumentException,
                "DELTA_TABLE_FOR_PATH_UNSUPPORTED_HADOOP_CONF",
                "Currently DeltaTable.forPath only supports hadoop configuration keys starting with [fs.,dfs.] but got"
                f" {key} -> {value}",
            )
    if conf:
        _log.warning(
            "forPath ignores hadoopConf (%s): the log is read by the catalog's storage_options, data files by Spark's"
            " own configuration",
            ", ".join(conf),
        )


def _check_clone(
    target: Any, is_shallow: Any, replace: Any, properties: Any, *, timestamp: Any = "", version: Any = 0
) -> None:
    _check_str(timestamp, "timestamp")
    _check_int(version, "version")
    _check_str(target, "target")
    _check_bool(is_shallow, "isShallow")
    _check_bool(replace, "replace")
    if properties is None:
        return
    if not isinstance(properties, dict):
        raise ValueError(f"properties needs to be a dict but got '{type(properties)}'.")
    for key, value in properties.items():
        _check_str(key, f"All property keys including {key}")
        _check_str(value, f"All property values including {value}")


def _check_bool(value: Any, name: str) -> None:
    if not isinstance(value, bool):
        raise ValueError(f"{name} needs to be a boolean but got '{type(value)}'.")


def _check_str(value: Any, name: str) -> None:
    if not isinstance(value, str):
        raise ValueError(f"{name} needs to be a string but got '{type(value)}'.")


def _check_int(value: Any, name: str) -> None:
    if not isinstance(value, int):
        raise ValueError(f"{name} needs to be an int but got '{type(value)}'.")
