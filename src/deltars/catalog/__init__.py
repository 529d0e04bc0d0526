"""Catalogs: one SQL database that holds the log of many tables."""

from deltars.catalog import migrate
from deltars.catalog.catalog import Catalog
from deltars.catalog.connecting import begin, connect, read, write

__all__ = ["Catalog", "begin", "connect", "migrate", "read", "write"]
