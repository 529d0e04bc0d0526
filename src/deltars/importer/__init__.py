"""Tables change hands: from plain Delta into the catalog, out again, and back."""

from __future__ import annotations

from deltars.importer.importer import Importer, Progress
from deltars.importer.source import LogSource

__all__ = ["Importer", "LogSource", "Progress"]
