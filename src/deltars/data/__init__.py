"""Reading and writing data files (Parquet) with pyarrow."""

from typing import TYPE_CHECKING

from deltars.late_names import late_names

if TYPE_CHECKING:
    from deltars.data.frames import as_duckdb, as_pandas, as_polars, stream
    from deltars.data.plane import ArrowPlane
    from deltars.data.scan import Scan
    from deltars.data.write_target import WriteTarget, WrittenFile
    from deltars.data.writer import check_writable, write_table
else:
    __getattr__ = late_names(
        __name__,
        {
            "frames": "as_duckdb as_pandas as_polars stream",
            "plane": "ArrowPlane",
            "scan": "Scan",
            "write_target": "WriteTarget WrittenFile",
            "writer": "check_writable write_table",
        },
    )
