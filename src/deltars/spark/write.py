"""Writing a DataFrame. Its rows are checked in the plan that writes them, and are written once.

frame ──checks──┬─ a few rows, and the plan says so ──────────> fetched, and written by this process   `small`
                ├─ no partitions, on disk, columns that fit ──> Spark's own Parquet writer     `write_natively`
                └─ else ──────────────────────────────────────> the Arrow writer in its tasks  `write_by_arrow`
"""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import DataFrame

from deltars.data.cast import check_fits
from deltars.data.conditions import Condition
from deltars.data.files import WriteTarget, WrittenFile
from deltars.data.writer import check_writable, write_table
from deltars.protocol import schema_to_arrow
from deltars.spark.progress import shown
from deltars.spark.schema import schema_from_spark
from deltars.spark.small import small_rows
from deltars.spark.write_by_arrow import arranged, write_by_arrow
from deltars.spark.write_checks import checks_of, guarded, raised_by_tasks
from deltars.spark.write_natively import native_columns, write_natively


def write_frame(frame: DataFrame, target: WriteTarget, conditions: Sequence[Condition] = ()) -> list[WrittenFile]:
    """Write the frame's rows as data files. What can be refused is refused before a job runs."""
    check_writable(target)
    check_fits(schema_to_arrow(schema_from_spark(frame.schema)), schema_to_arrow(target.schema))
    native = native_columns(frame, target)
    checks = [*checks_of(conditions), *(native.not_null if native else ())]
    rows = guarded(frame, checks, target.schema)
    with raised_by_tasks(checks), shown(frame.sparkSession, target.root):
        if (fetched := small_rows(arranged(rows, target))) is not None:
            return write_table(target, fetched.rename_columns(frame.columns).to_batches())
        return write_natively(rows, target, native) if native else write_by_arrow(rows, target)
