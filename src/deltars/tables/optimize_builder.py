"""DeltaOptimizeBuilder: compaction and Z-order of a table."""

from __future__ import annotations

from typing import Any

from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame

from deltars.predicate import parse
from deltars.predicate.tree import columns_of
from deltars.protocol import StructType
from deltars.tables.binding import BoundTable
from deltars.tables.exceptions import DeltaIllegalArgumentException, deltas_errors, refuse, spark_error
from deltars.tables.expressions import check_on, rows_like
from deltars.tables.frames import optimize_frame


class DeltaOptimizeBuilder:
    """Made by `DeltaTable.optimize()`: limit it with `where`, then execute it."""

    def __init__(self, bound: BoundTable) -> None:
        self._bound = bound
        self._where: str | None = None

    def where(self, partitionFilter: str) -> DeltaOptimizeBuilder:  # noqa: N803
        """Optimize only partitions that fulfil a condition on partition columns. Return this builder."""
        self._where = partitionFilter
        return self

    def executeCompaction(self) -> DataFrame:  # noqa: N802
        """Write small files again as larger ones. Return the metrics."""
        return self._execute([])

    def executeZOrderBy(self, *cols: str | list[str] | tuple[str, ...]) -> DataFrame:  # noqa: N802
        """Write the files again, sorted by these columns along a Z-order curve. Return the metrics."""
        names: Any = cols[0] if len(cols) == 1 and isinstance(cols[0], (list, tuple)) else cols
        for name in names:
            if type(name) is not str:
                raise TypeError(f"Z-order column must be str. Found {name} with type {type(name)}")
        return self._execute(list(names))

    def _execute(self, zorder_by: list[str]) -> DataFrame:
        bound = self._bound
        with deltas_errors():
            table = bound.table
            snapshot = table.snapshot()
            partitions = snapshot.metadata.partition_columns
            if self._where is not None:
                _check_where(rows_like(bound.spark, snapshot.schema, bound.name), self._where, partitions)
                for column in columns_of(parse(self._where, snapshot.schema)):
                    if column.path[0] not in partitions:
                        raise _other_column(column.path[0], partitions)
            for name in zorder_by:
                _refuse_z_order(name, snapshot.schema, partitions)
            done = table.optimize(self._where, zorder_by=zorder_by, spark=bound.spark)
            return optimize_frame(bound.spark, table, done)


def _check_where(rows: DataFrame, where: str, partitions: list[str]) -> None:
    try:
        check_on(rows, where)
    except AnalysisException as error:
        name = (error.getMessageParameters() or {}).get("objectName")
        if name is None or not str(error.getCondition()).startswith("UNRESOLVED_COLUMN"):
            raise
        raise _other_column(name.replace("`", ""), partitions) from error


def _other_column(name: str, partitions: list[str]) -> Exception:
    return refuse(
        "DELTA_NON_PARTITION_COLUMN_REFERENCE",
        f"Predicate references non-partition column '{name}'. Only the partition columns may be referenced:"
        f" [{', '.join(partitions)}]",
        hint="In deltars, the method optimize of Table takes a condition on any column.",
    )


def _refuse_z_order(name: str, schema: StructType, partitions: list[str]) -> None:
    known = {".".join(path).lower() for path, _ in schema.leaves()}
    if name.replace("`", "").lower() not in known:
        raise spark_error(
            DeltaIllegalArgumentException,
            "DELTA_ZORDERING_COLUMN_DOES_NOT_EXIST",
            f"Z-Ordering column {name} does not exist in data schema.",
        )
    if name.replace("`", "").lower() in (column.lower() for column in partitions):
        raise spark_error(
            DeltaIllegalArgumentException,
            "DELTA_ZORDERING_ON_PARTITION_COLUMN",
            f"{name} is a partition column. Z-Ordering can only be performed on data columns",
        )
