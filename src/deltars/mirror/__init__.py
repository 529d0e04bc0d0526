"""The published `_delta_log`: every commit of the catalog, where any Delta reader finds it."""

from __future__ import annotations

from deltars.mirror.publisher import MirrorOutcome, Publication, Publisher
from deltars.mirror.reconciler import Reconciler, Reconciliation
from deltars.mirror.repair import Repair

__all__ = ["MirrorOutcome", "Publication", "Publisher", "Reconciler", "Reconciliation", "Repair"]
