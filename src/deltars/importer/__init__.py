"""Import of Delta tables into the catalog, their release to other writers, and their return."""

from __future__ import annotations

from deltars.importer.importer import Importer, Progress
from deltars.importer.source import LogSource

__all__ = ["Importer", "LogSource", "Progress"]
