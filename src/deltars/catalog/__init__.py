"""What a user holds: a catalog, its tables, and snapshots of all tables at one moment."""

from deltars.catalog import migrate
from deltars.catalog.catalog import Catalog
from deltars.catalog.connection import begin, connect, read, sql, write
from deltars.catalog.restore import Restored
from deltars.catalog.snapshot import CatalogSnapshot
from deltars.catalog.table import Table
from deltars.catalog.table_detail import ColumnDetail, PartitionDetail, TableDetail
from deltars.catalog.table_diff import FileChange, TableChange, TableDiff
from deltars.catalog.transactions import TableCommitDetail, TransactionDetail

__all__ = [
    "Catalog",
    "CatalogSnapshot",
    "ColumnDetail",
    "FileChange",
    "PartitionDetail",
    "Restored",
    "Table",
    "TableChange",
    "TableCommitDetail",
    "TableDetail",
    "TableDiff",
    "TransactionDetail",
    "begin",
    "connect",
    "migrate",
    "read",
    "sql",
    "write",
]
