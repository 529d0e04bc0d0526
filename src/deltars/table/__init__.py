"""A table of a catalog."""

from deltars.table.detail import TableDetail
from deltars.table.table import Table

__all__ = ["Table", "TableDetail"]
