"""The published `_delta_log`: every commit of the catalog, where any Delta reader finds it."""

from __future__ import annotations

from deltars.mirror.publisher import MirrorOutcome, Publication, Publisher

__all__ = ["MirrorOutcome", "Publication", "Publisher"]
