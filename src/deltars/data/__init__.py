"""Reading and writing data files (Parquet) with pyarrow."""

from deltars.data.plane import ArrowPlane
from deltars.data.scan import Scan
from deltars.data.write_target import WriteTarget, WrittenFile
from deltars.data.writer import check_writable, write_table

__all__ = ["ArrowPlane", "Scan", "WriteTarget", "WrittenFile", "check_writable", "write_table"]
