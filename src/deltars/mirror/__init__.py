"""The mirror: publishes the catalog's commits to each table's `_delta_log`, where any Delta reader finds them."""

from __future__ import annotations

from deltars.mirror.outcome import MirrorOutcome, Publication
from deltars.mirror.publisher import Publisher
from deltars.mirror.reconciler import Reconciler, Reconciliation
from deltars.mirror.repair import Repair

__all__ = ["MirrorOutcome", "Publication", "Publisher", "Reconciler", "Reconciliation", "Repair"]
