"""A table of a catalog."""

from deltars.table.detail import ColumnDetail, PartitionDetail, TableDetail
from deltars.table.diff import Change, FileChange, TableDiff
from deltars.table.table import Table

__all__ = ["Change", "ColumnDetail", "FileChange", "PartitionDetail", "Table", "TableDetail", "TableDiff"]
