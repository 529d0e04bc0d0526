"""Compaction after a write, for tables with `delta.autoOptimize.autoCompact`.

It runs after the commit and its publication, in the process that wrote. It never fails the write: errors are logged.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from uuid import UUID

from deltars.protocol import Metadata
from deltars.protocol.properties import number_property, parse_size_bytes
from deltars.session import CatalogSession
from deltars.store.mirror.status import MirrorMode
from deltars.transaction.optimize import optimize_table
from deltars.transaction.optimize_plan import TARGET_SIZE, OptimizeRequest

AUTO_COMPACT = "delta.autoOptimize.autoCompact"
MIN_FILES = "deltars.autoCompact.minNumFiles"
DEFAULT_MIN_FILES = 50
"""Small files of a partition from which on they are compacted, as in Delta."""

DEFAULT_TARGET_BYTES = 128 << 20
"""Smaller than that of `optimize`, because the writer waits for it."""

_log = logging.getLogger(__name__)


def is_auto_compacted(metadata: Metadata) -> bool:
    return metadata.configuration.get(AUTO_COMPACT, "false").strip().lower() in ("true", "auto", "legacy")


def compact_after_write(
    session: CatalogSession, written: Mapping[UUID, tuple[str, Metadata]], mirror: MirrorMode | None
) -> None:
    """Compact tables that were written and ask for it. `written` has their names and metadata."""
    for table_id, (name, metadata) in written.items():
        if not is_auto_compacted(metadata):
            continue
        try:
            properties = metadata.configuration
            request = OptimizeRequest(
                target_bytes=parse_size_bytes(properties.get(TARGET_SIZE, "")) or DEFAULT_TARGET_BYTES,
                min_files=number_property(properties, MIN_FILES, DEFAULT_MIN_FILES),
                is_auto=True,
                mirror=mirror,
            )
            if session.reader.snapshot(table_id).totals.num_files < request.min_files:
                continue
            done = optimize_table(session, table_id, name, request)
        except Exception as error:
            # The write is committed, and the rows are as they should be.
            _log.warning("automatic compaction of %s failed; the write is committed: %s", name, error)
            continue
        if done.is_changed:
            _log.info(
                "automatic compaction of %s: %d files became %d, version %d",
                name,
                done.num_files_removed,
                done.num_files_added,
                done.version,
            )
