"""Parquet through pyarrow: frames become data files, with their statistics."""

from deltars.data.arrow_plane import ArrowPlane
from deltars.data.files import Scan, WriteTarget, WrittenFile
from deltars.data.writer import check_writable, write_table

__all__ = ["ArrowPlane", "Scan", "WriteTarget", "WrittenFile", "check_writable", "write_table"]
