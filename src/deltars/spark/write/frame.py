"""Writer of DataFrames. The plan that writes the rows also checks them, and rows are written once.

frame ──checks──┬─ few rows, known from the plan ─────────────> fetched, and written by this process     `small_frames`
                ├─ RDDs of unknown size ──────────────────────> few: handed over, and written by this process
                │                                               else: the Arrow writer in their tasks
                ├─ no partitions, on disk, columns that fit ──> Spark's own Parquet writer             `write_natively`
                └─ else ──────────────────────────────────────> the Arrow writer in its tasks          `write_by_arrow`
"""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import DataFrame

from deltars.data.conditions import Condition
from deltars.data.write_schema import check_fits
from deltars.data.write_target import WriteTarget, WrittenFile
from deltars.data.writer import check_writable, write_table
from deltars.protocol import schema_to_arrow
from deltars.spark.progress import shown
from deltars.spark.schema import schema_from_spark
from deltars.spark.write.arrow import sorted_by_partition, write_by_arrow
from deltars.spark.write.checks import checks_of, translate_task_errors, with_checks
from deltars.spark.write.native import native_columns, write_natively
from deltars.spark.write.small_frames import bytes_to_hand_over, small_rows


def write_frame(frame: DataFrame, target: WriteTarget, conditions: Sequence[Condition] = ()) -> list[WrittenFile]:
    """Write the frame's rows as data files. Schema errors are raised before a job runs."""
    check_writable(target)
    check_fits(schema_to_arrow(schema_from_spark(frame.schema)), schema_to_arrow(target.schema))
    checks = checks_of(conditions)
    rows = sorted_by_partition(with_checks(frame, checks, target.schema), target)
    with shown(frame.sparkSession, target.root):
        with translate_task_errors(checks):
            if (fetched := small_rows(rows)) is not None:
                return write_table(target, fetched.rename_columns(frame.columns).to_batches())
            few = bytes_to_hand_over(rows)
            native = None if few else native_columns(frame, target)
            if native is None:
                return write_by_arrow(rows, target, frame.columns, few or 0)
        checks += native.not_null
        with translate_task_errors(checks):
            return write_natively(with_checks(frame, checks, target.schema), target, native)
