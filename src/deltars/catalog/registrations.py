"""Registry entries of a warehouse, and how entries that contradict each other are resolved. Pure.

    <warehouse>/_deltars/tables/<table_id>.json ──▶ Registered ──plan_of──▶ dropped, living by name, gone, stale

An entry is written when a table is created, renamed or dropped. If a process dies meanwhile, or the warehouse is
unreachable, an entry stays out of date. So two entries may claim one name or one directory.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from uuid import UUID

from deltars.mirror.warehouse import Registered
from deltars.storage import Places
from deltars.store.names import MAX_NAME_LENGTH, name_key

_LONG_AGO = datetime(1, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Plan:
    """Which tables to restore, and how."""

    dropped: Sequence[Registered]
    living: dict[str, Registered]
    """Tables by the name that each gets."""
    gone: Sequence[Registered]
    """Dropped tables that have no log."""
    stale: Sequence[Registered]
    """Tables that are not marked as dropped, and that another entry contradicts."""


def plan_of(found: Iterable[Registered], has_log: Callable[[Registered], bool]) -> Plan:
    """Decide which entries are tables. `has_log` is called for dropped tables and for entries that share a name."""
    newest_first = sorted(found, key=lambda table: (table.created_at or _LONG_AGO, str(table.table_id)), reverse=True)
    dropped = [table for table in newest_first if table.dropped_at is not None]
    candidates = [table for table in newest_first if table.dropped_at is None]
    # The log in a directory belongs to its newest table.
    kept = _newest_of_each_directory([*candidates, *dropped])
    by_name: dict[str, list[Registered]] = defaultdict(list)
    for table in candidates:
        if table.table_id in kept:
            by_name[name_key(table.name)].append(table)
    living: dict[str, Registered] = {}
    for same in by_name.values():
        real = [table for table in same if has_log(table)] if len(same) > 1 else same
        first, *others = real or same[:1]
        living[first.name] = first
        living |= {suffixed(table): table for table in others}
    chosen = {table.table_id for table in living.values()}
    alive = {table.table_id: table for table in dropped if table.table_id in kept and has_log(table)}
    return Plan(
        dropped=sorted(alive.values(), key=_order),
        living=dict(sorted(living.items())),
        gone=[table for table in dropped if table.table_id not in alive],
        stale=sorted((table for table in candidates if table.table_id not in chosen), key=_order),
    )


def suffixed(table: Registered) -> str:
    """Return a name that no other table has."""
    return f"{table.name[: MAX_NAME_LENGTH - 9]}-{table.table_id.hex[:8]}"


def _newest_of_each_directory(tables: Iterable[Registered]) -> set[UUID]:
    """Return the first table of each directory. The caller lists dropped tables last."""
    places, kept = Places(), dict[str, UUID]()
    for table in tables:
        kept.setdefault(places.directory(table.location), table.table_id)
    return set(kept.values())


def _order(table: Registered) -> tuple[str, str]:
    """Sort key that makes a repeated run take the same order."""
    return table.name, str(table.table_id)
