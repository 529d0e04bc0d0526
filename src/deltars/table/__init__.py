"""A table of a catalog."""

from deltars.catalog.table import Table
from deltars.catalog.table_detail import ColumnDetail, PartitionDetail, TableDetail
from deltars.catalog.table_diff import Change, FileChange, TableDiff

__all__ = ["Change", "ColumnDetail", "FileChange", "PartitionDetail", "Table", "TableDetail", "TableDiff"]
