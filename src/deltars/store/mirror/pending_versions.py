"""Actions of a large commit, under the name that the mirror imports; see `read.committed_versions`."""

from __future__ import annotations

from deltars.store.read.committed_versions import ManyActions

__all__ = ["ManyActions"]
