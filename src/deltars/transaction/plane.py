"""Choose the data plane that writes the rows of a frame.

a frame arrives ──▶ plane_for(frame) ──▶ SparkPlane    Spark DataFrames: written by the executors
                                     ├─▶ TaskPlane     rows in tasks of Spark's data sources: written by them
                                     └─▶ ArrowPlane    everything else that Arrow can carry: written by this process
"""

from __future__ import annotations

import sys
from datetime import date
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

from deltars.data.plane import ArrowPlane, DataPlane
from deltars.data.scan import Scan
from deltars.data.task_rows import TaskPlane, TaskRows
from deltars.errors import ConfigError, ValidationError, brief
from deltars.predicate import Unknown, leaves_of, parse
from deltars.session import CatalogSession
from deltars.store.read.as_of import AsOf

if TYPE_CHECKING:
    import pandas
    from pyspark.sql import DataFrame, SparkSession

    from deltars.spark.plane import SparkPlane


class SupportsArrowStream(Protocol):
    """Anything that offers its rows as an Arrow stream: Polars frames, pyarrow tables and readers, DuckDB relations."""

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object: ...


class SupportsArrowArray(Protocol):
    """A pyarrow RecordBatch, which offers its rows as an Arrow array."""

    def __arrow_c_array__(self, requested_schema: object | None = None) -> tuple[object, object]: ...


Frame: TypeAlias = "DataFrame | pandas.DataFrame | SupportsArrowStream | SupportsArrowArray"
"""Anything that can be written as a table. The two protocols cover pyarrow's classes, which have no types."""


def spark_plane(instead: str = "read without Spark: table.to_arrow(), to_pandas(), to_polars()") -> SparkPlane:
    """Return the plane of Spark frames. pyspark is an extra, so it is imported on the first call."""
    try:
        from deltars.spark.plane import SparkPlane
    except ModuleNotFoundError as error:
        raise ConfigError(
            f"Spark DataFrames need {(error.name or 'pyspark').partition('.')[0]}, which is not installed",
            hint=f"pip install 'deltars[spark]'; or {instead}.",
        ) from error
    return SparkPlane()


def running_spark(given: SparkSession | None) -> SparkSession | None:
    """Return the given session, or the active one; None if there is none. None is started for this."""
    if given is not None or "pyspark" in sys.modules:
        try:
            from deltars.spark.session import running_session

            return running_session(given)
        except (ConfigError, ModuleNotFoundError):
            if given is not None:
                raise
    return None


def in_session_zone(session: CatalogSession, as_of: AsOf | None, spark: SparkSession | None) -> AsOf | None:
    """Return `as_of`, a time without a zone in the Spark session's zone."""
    resolved = session.cut_finder.resolve(as_of)
    return spark_plane().moment(spark, resolved) if isinstance(resolved, date | str) else as_of


def plane_for(frame: object) -> DataPlane:
    """Return the plane that writes a frame; raise `ValidationError` if none does."""
    plane: DataPlane
    if isinstance(frame, TaskRows):
        plane = TaskPlane()
    else:
        plane = spark_plane() if type(frame).__module__.startswith("pyspark.sql") else ArrowPlane()
    if not plane.accepts(frame):
        kind = f"{type(frame).__module__}.{type(frame).__qualname__}".removeprefix("builtins.")
        raise ValidationError(
            f"{'None' if frame is None else f'a {kind}'} cannot be written as a table",
            field="df",
            hint=_HOW_TO_WRITE.get(
                kind, "Give a Spark, pandas, Polars or pyarrow frame, or anything with __arrow_c_stream__."
            ),
        )
    return plane


_HOW_TO_WRITE = {
    "list": "For a list of dicts, write pyarrow.Table.from_pylist(rows).",
    "dict": "For lists by column, write pyarrow.table(columns).",
    "str": "Give the rows as a frame. The rows of a table are catalog.table(name), those of a file"
    " pyarrow.parquet.read_table(path); deltars load TABLE FILE loads files.",
    "pathlib.PosixPath": "Read the file: pyarrow.parquet.read_table(path). deltars load TABLE FILE loads files.",
    "numpy.ndarray": "Give the columns names: pandas.DataFrame(array, columns=[…]).",
    "pandas.core.series.Series": "Make it a frame: series.to_frame().",
    "pandas.core.groupby.generic.DataFrameGroupBy": "Aggregate it first.",
    "polars.lazyframe.frame.LazyFrame": "Compute it first: frame.collect().",
    "polars.series.series.Series": "Make it a frame: series.to_frame().",
}
"""What to do with what people take for a frame, by its class."""


def refuse_swapped(table: object, frame: object) -> None:
    """Raise if the arguments of a write are in the wrong order."""
    if isinstance(frame, str) and not isinstance(table, str):
        raise ValidationError(
            f"the table comes first, then the frame; got a {type(table).__qualname__} as the table",
            field="table",
            hint=f"Write write({brief(frame)}, df).",
        )


def any_breaks(scan: Scan, condition: str) -> bool:
    """Return whether a row of the scan breaks a condition. Conditions that only Spark can evaluate run on Spark."""
    if any(isinstance(leaf, Unknown) for leaf in leaves_of(parse(condition, scan.schema, field="constraint"))):
        plane = spark_plane()
        unmatched: Any = plane.without(plane.read(None, scan), scan, condition)
        return not unmatched.isEmpty()
    return any(batch.num_rows for batch in ArrowPlane().without(None, scan, condition))
