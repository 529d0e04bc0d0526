"""The way in for Delta tables that others wrote: their log, into the catalog."""

from __future__ import annotations

from deltars.importer.source import LogSource

__all__ = ["LogSource"]
