"""Advice on maintenance: statistics of a table in, what to do and why out. Pure.

    publish ──▶ optimize ──▶ vacuum ──▶ expire          in this order: each makes work for the next

| verb     | advised if                                                                                        |
|----------|---------------------------------------------------------------------------------------------------|
| publish  | the oldest unpublished version is older than `LAG_S`                                              |
| repair   | the log contradicts the catalog; a person must decide                                             |
| optimize | `MERGEABLE_FILES` files are smaller than a quarter of the target, and have a neighbour to join;   |
|          | or a file has lost more than `WORN_SHARE` of its rows; or `UNSORTED_FILES` files of a clustered   |
|          | table are not sorted                                                                              |
| vacuum   | removed files are past their retention, and the last vacuum was `PAUSE_US` ago or there are many; |
|          | or a writer died                                                                                  |
| expire   | `EXPIRABLE_VERSIONS` versions are past their retention, and the last expiry was `PAUSE_US` ago    |

A verb brings what it is advised for below its threshold, so that advice after a run is empty.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import StrEnum
from uuid import UUID

LAG_S = 60.0
"""Age of the oldest unpublished version. Publishers that work are far below it."""

TINY_SHARE = 0.25
"""Share of the target size below which a file is tiny. `compaction` then always finds a neighbour that fits."""

MERGEABLE_FILES = 10
"""Tiny files with a neighbour that are worth a run."""

WORN_SHARE = 0.2
"""Share of deleted rows above which a file is worn. A run rewrites worn files, and all above `MAX_DELETED_SHARE`."""

UNSORTED_FILES = 10
"""Files of a clustered table that are worth sorting, unless they have the size of one file before."""

REMOVED_FILES = 1_000
REMOVED_BYTES = 1 << 30
"""Removed files, or their bytes, that do not wait for `PAUSE_US`."""

EXPIRABLE_VERSIONS = 10

PAUSE_US = 24 * 3_600_000_000
"""Least time between two vacuums, and between two expiries, of a table: some versions grow old every minute."""


class MaintenanceVerb(StrEnum):
    """What maintenance does to a table, in the order in which it does it."""

    REPAIR = "repair"
    PUBLISH = "publish"
    OPTIMIZE = "optimize"
    VACUUM = "vacuum"
    EXPIRE = "expire"


@dataclass(frozen=True, slots=True)
class MaintenanceRules:
    """What a table's properties say about its maintenance."""

    target_bytes: int | None = None
    """Size of its files; None: by the table's size."""
    deleted_retention_us: int = 7 * 24 * 3_600_000_000
    log_retention_us: int = 30 * 24 * 3_600_000_000
    is_compacted: bool = True
    """Whether small files may be joined without being asked. False if `delta.autoOptimize.autoCompact` is false."""


@dataclass(frozen=True, slots=True)
class TableStatistics:
    """State of one table as far as maintenance is concerned, by the catalog alone."""

    table: str
    table_id: UUID
    current_version: int
    num_versions: int = 0
    oldest_version: int = -1
    """Oldest version that the catalog has."""
    oldest_age_s: float | None = None
    last_commit_age_s: float | None = None
    num_files: int = 0
    size_bytes: int = 0
    num_records: int = 0
    """Rows of the files, deleted ones included, as far as statistics count them."""
    target_bytes: int = 0
    """Size that `optimize` gives to files."""
    small_files: int = 0
    """Files that `optimize` may join: smaller than three quarters of the target."""
    small_bytes: int = 0
    mergeable_files: int = 0
    """Tiny files in partitions with at least two small ones."""
    deleted_rows: int = 0
    """Rows that deletion vectors delete."""
    worn_files: int = 0
    """Files that have lost more than a fifth of their rows."""
    worn_bytes: int = 0
    is_clustered: bool = False
    unsorted_files: int = 0
    """Files of a clustered table that are not sorted; 0 for other tables."""
    unsorted_bytes: int = 0
    removed_files: int = 0
    """Data files whose removal was published longer ago than the retention, since the last vacuum."""
    removed_bytes: int = 0
    removed_vectors: int = 0
    """Deletion vectors of which the same is true."""
    change_files: int = 0
    """Files of the change data feed of which the same is true."""
    change_bytes: int = 0
    untagged_versions: int = 0
    """Versions that the last vacuum kept for tags, and that no tag needs any more."""
    expirable_versions: int = 0
    """Versions that an expiry would delete now."""
    expirable_after_vacuum: int = 0
    """Versions that an expiry would delete after a vacuum: until then, they are needed to find removed files."""
    dead_writers: int = 0
    """Transactions that wrote to the table and have not been heard of for a day."""
    published_version: int = -1
    mirror_state: str = "active"
    is_ours: bool = True
    """Whether this catalog owns the table's log and may change it."""
    is_published: bool = True
    """Whether the table is published; False with the mirror mode "off"."""
    lag_s: float = 0.0
    """Age of the oldest unpublished version; 0 if all are published."""
    vacuumed_age_s: float | None = None
    expired_age_s: float | None = None
    rules: MaintenanceRules = field(default_factory=MaintenanceRules)

    @property
    def deleted_share(self) -> float:
        """Share of the rows in the files that are deleted."""
        return self.deleted_rows / self.num_records if self.num_records else 0.0


@dataclass(frozen=True, slots=True)
class Advice:
    """One thing to do to a table."""

    table: str
    table_id: UUID
    verb: MaintenanceVerb
    reason: str
    """Why, in a sentence with figures."""
    num_files: int = 0
    """Files that it reads, deletes or publishes, estimated."""
    size_bytes: int = 0
    """Their size, estimated."""
    is_manual: bool = False
    """Whether a person must decide: `maintain` leaves it."""
    is_full: bool = False
    """Whether the vacuum also lists the directory, for files that no log names."""


def advise(statistics: TableStatistics) -> list[Advice]:
    """Return what a table needs, in the order in which to do it. The same statistics give the same advice."""
    if statistics.mirror_state == "diverged":
        reason = "Its _delta_log contradicts the catalog, so nothing is committed, published or deleted."
        return [_advice(statistics, MaintenanceVerb.REPAIR, [reason], is_manual=True)]
    if not statistics.is_ours or statistics.current_version < 0:
        return []
    vacuum = _vacuum(statistics)
    versions = statistics.expirable_versions if vacuum is None else statistics.expirable_after_vacuum
    found = (_publish(statistics), _optimize(statistics), vacuum, _expire(statistics, versions))
    return [one for one in found if one is not None]


def advise_all(statistics: Iterable[TableStatistics]) -> list[Advice]:
    return [advice for one in statistics for advice in advise(one)]


def _publish(one: TableStatistics) -> Advice | None:
    behind = one.current_version - one.published_version
    if not one.is_published or behind <= 0 or one.lag_s < LAG_S:
        return None
    state = " after a failure" if one.mirror_state == "failed" else ""
    reason = f"{_count(behind, 'version')} waited {_span(one.lag_s)} to be published{state}."
    return _advice(one, MaintenanceVerb.PUBLISH, [reason], behind)


def _optimize(one: TableStatistics) -> Advice | None:
    reasons, files, size = [], 0, 0
    target = _bytes(one.target_bytes)
    is_unsorted = one.unsorted_files >= UNSORTED_FILES or one.unsorted_bytes >= one.target_bytes > 0
    if one.is_clustered:
        if one.unsorted_files and is_unsorted and one.rules.is_compacted:
            share = _bytes(one.unsorted_bytes)
            reasons.append(f"{_count(one.unsorted_files, 'file')} ({share}) of a clustered table are not sorted.")
            files, size = one.unsorted_files, one.unsorted_bytes
    elif one.mergeable_files >= MERGEABLE_FILES and one.rules.is_compacted:
        reasons.append(
            f"{one.mergeable_files:,} of {_count(one.num_files, 'file')} are smaller than a quarter of the target size"
            f" {target}."
        )
        files, size = one.small_files, one.small_bytes
    if one.worn_files:
        reasons.append(
            f"{_count(one.worn_files, 'file')} ({_bytes(one.worn_bytes)}) lost more than a fifth of their rows."
        )
        files, size = max(files, one.worn_files), max(size, one.worn_bytes)
    return _advice(one, MaintenanceVerb.OPTIMIZE, reasons, files, size) if reasons else None


def _vacuum(one: TableStatistics) -> Advice | None:
    reasons = []
    files, size = one.removed_files + one.change_files, one.removed_bytes + one.change_bytes
    is_due = one.vacuumed_age_s is None or one.vacuumed_age_s * 1_000_000 >= PAUSE_US
    is_due = is_due or files >= REMOVED_FILES or size >= REMOVED_BYTES
    if is_due and files + one.removed_vectors:
        what = [_count(one.removed_files, "removed file")] if one.removed_files else []
        what += [_count(one.change_files, "change file")] if one.change_files else []
        what += [_count(one.removed_vectors, "deletion vector")] if one.removed_vectors else []
        retention = _span(one.rules.deleted_retention_us / 1_000_000)
        reasons.append(f"{', '.join(what)} ({_bytes(size)}) past the retention of {retention}.")
    if is_due and one.untagged_versions:
        reasons.append(f"{_count(one.untagged_versions, 'version')} kept for tags that were removed since.")
    if one.dead_writers:
        reasons.append(f"{_count(one.dead_writers, 'writer')} died and may have left files that no version names.")
    if not reasons:
        return None
    return _advice(one, MaintenanceVerb.VACUUM, reasons, files, size, is_full=one.dead_writers > 0)


def _expire(one: TableStatistics, versions: int) -> Advice | None:
    is_due = one.expired_age_s is None or one.expired_age_s * 1_000_000 >= PAUSE_US
    if versions < EXPIRABLE_VERSIONS or not is_due:
        return None
    retention = _span(one.rules.log_retention_us / 1_000_000)
    reason = f"{_count(versions, 'version')} past the retention of {retention}."
    return _advice(one, MaintenanceVerb.EXPIRE, [reason], versions)


def _advice(
    one: TableStatistics,
    verb: MaintenanceVerb,
    reasons: Iterable[str],
    num_files: int = 0,
    size_bytes: int = 0,
    *,
    is_manual: bool = False,
    is_full: bool = False,
) -> Advice:
    return Advice(one.table, one.table_id, verb, " ".join(reasons), num_files, size_bytes, is_manual, is_full)


def _count(number: int, what: str) -> str:
    return f"{number:,} {what}{'' if number == 1 else 's'}"


def _bytes(size: int) -> str:
    amount, unit = float(size), "B"
    for larger in ("KiB", "MiB", "GiB", "TiB"):
        if amount < 1024:
            break
        amount, unit = amount / 1024, larger
    return f"{amount:.0f} {unit}" if unit == "B" or amount >= 10 else f"{amount:.1f} {unit}"


def _span(seconds: float) -> str:
    for unit, length in (("day", 86_400), ("hour", 3_600), ("minute", 60)):
        if seconds >= 2 * length or seconds == length:
            return _count(round(seconds / length), unit)
    return _count(round(seconds), "second")
