"""Expire old history, and remove dropped tables for good."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any
from uuid import UUID

from deltars.arguments import check_flags
from deltars.errors import DeltarsError, ValidationError, brief
from deltars.log.moments import Moment, from_microseconds, parse_moment, to_microseconds
from deltars.log.snapshot import as_whole
from deltars.mirror.expiry import ExpiredTable, Expiry, as_result
from deltars.mirror.purge import Purge, PurgedTable
from deltars.protocol.properties import LOG_RETENTION, log_retention_ms, parse_span, span_text
from deltars.session import CatalogSession
from deltars.store.history.plan import Retention
from deltars.store.mirror.status import MirrorStatus

_MICROSECOND = timedelta(microseconds=1)


@dataclass(frozen=True, slots=True)
class Expired:
    """What an expiry did, or with `dry_run` would do."""

    tables: tuple[ExpiredTable, ...]
    """Every table that was looked at, by name; those without anything to expire too."""
    num_transactions: int
    """Deleted transactions none of whose versions is left; 0 in a dry run."""


def expire_history(
    session: CatalogSession,
    tables: Sequence[UUID] | None,
    older_than: timedelta | Moment | None,
    *,
    keep_versions: int | None,
    dry_run: bool,
    force: bool = False,
) -> Expired:
    check_flags(dry_run=dry_run, force=force)
    if keep_versions is not None:
        keep_versions = as_whole(keep_versions, "a number of versions", field="keep_versions", hint="Write 10.")
        if keep_versions < 1:
            raise ValidationError(
                f"keep_versions must be 1 or more, got {keep_versions}",
                field="keep_versions",
                hint="The current version always stays.",
            )
    clocks_us = _clocks_us(session)
    age = _age(older_than, clocks_us)
    expiry = Expiry(session.database, session.publisher)
    results: list[ExpiredTable] = []
    failures: list[DeltarsError] = []
    chosen: list[tuple[MirrorStatus, int]] = []
    for status in session.publisher.status.overview():
        if tables is not None and status.table_id not in tables:
            continue
        try:
            own_us = expiry.retention_ms(status) * 1000
        except DeltarsError as failure:
            failures.append(failure.located(table=status.name, table_id=str(status.table_id)))
            continue
        if age is not None and age.us < own_us and not force:
            raise _too_young(status, age, own_us)
        chosen.append((status, max(0, clocks_us[0] - own_us) if age is None else age.before_us))
    for status, since_us in chosen:
        try:
            plan = expiry.plan(status, Retention(since_us, keep_versions))
            results.append(as_result(plan, plan.num_versions, 0) if dry_run else expiry.expire(status, plan))
            if not dry_run:
                expiry.forget_activity(status.table_id, since_us)
        except DeltarsError as failure:
            # A table whose storage cannot be reached must not keep the history of the others.
            failures.append(failure.located(table=status.name, table_id=str(status.table_id)))
    if failures:
        for other in failures[1:]:
            failures[0].add_note(f"deltars: another table could not be expired: {other}")
        raise failures[0]
    oldest_us = min((since_us for _, since_us in chosen), default=0)
    transactions = 0 if dry_run or not results else expiry.expire_transactions(oldest_us)
    return Expired(tuple(results), transactions)


def _too_young(status: MirrorStatus, age: _Age, own_us: int) -> ValidationError:
    given, least = span_text(age.us * _MICROSECOND), span_text(own_us * _MICROSECOND)
    return ValidationError(
        f"an age of {given} is less than the table's retention of {least}: versions that readers may"
        " still ask for would go",
        table=status.name,
        table_id=status.table_id,
        field="older_than",
        hint=f"If no one needs them: force=True. To change the table's own retention, set {LOG_RETENTION}.",
    )


def purge_dropped(
    session: CatalogSession, older_than: timedelta | Moment | None, *, dry_run: bool
) -> list[PurgedTable]:
    check_flags(dry_run=dry_run)
    clocks_us = _clocks_us(session)
    age = _age(older_than, clocks_us)
    before_us = clocks_us[0] - log_retention_ms({}) * 1000 if age is None else age.before_us
    purge = Purge(session.database, session.publisher, session.registry)
    return purge.purge_dropped(from_microseconds(before_us), dry_run=dry_run)


@dataclass(frozen=True, slots=True)
class _Age:
    """How old history must be, given as a span or as a time."""

    us: int
    before_us: int


def _clocks_us(session: CatalogSession) -> tuple[int, int]:
    """Return the database's and this process's time, the earlier one first: a wrong clock keeps history."""
    earlier, later = sorted((session.cuts.clock_us(), time.time_ns() // 1000))
    return earlier, later


def _age(older_than: Any, clocks_us: tuple[int, int]) -> _Age | None:
    """Return the age that was given; None for the default."""
    if older_than is None:
        return None
    earlier, later = clocks_us
    span = parse_span(older_than)
    if span is not None:
        if span < timedelta(0):
            raise ValidationError(f"older_than must not be negative, got {older_than}", field="older_than")
        return _Age(span // _MICROSECOND, max(0, earlier - span // _MICROSECOND))
    moment = parse_moment(older_than)
    if moment is None:
        raise ValidationError(
            f"older_than must be a timedelta, a span or a time, got {brief(older_than)}",
            field="older_than",
            hint='Write timedelta(days=30), "30 days" or "2026-01-31".',
        )
    moment_us = to_microseconds(moment)
    if moment_us > later:
        raise ValidationError(
            f"older_than is in the future: {moment.isoformat()}",
            field="older_than",
            hint='Write a time of the past, or a span such as "30 days".',
        )
    return _Age(later - moment_us, min(moment_us, earlier))
