"""Catalogs: one SQL database that holds the log of many tables."""

from deltars.catalog import migrate
from deltars.catalog.catalog import Catalog
from deltars.catalog.connection import begin, connect, read, sql, write
from deltars.catalog.recovery import Rebuilt, rebuild
from deltars.catalog.snapshot import CatalogSnapshot
from deltars.catalog.transactions import TableCommitDetail, TransactionDetail

__all__ = [
    "Catalog",
    "CatalogSnapshot",
    "Rebuilt",
    "TableCommitDetail",
    "TransactionDetail",
    "begin",
    "connect",
    "migrate",
    "read",
    "rebuild",
    "sql",
    "write",
]
