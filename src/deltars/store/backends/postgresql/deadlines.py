"""Limits on how long a PostgreSQL transaction may hold its locks, and how they are enforced.

BEGIN ─▶ timeouts, for this transaction only ─▶ locks
           │                                      └ waited for a while? end the session that holds them, if overdue
           └ the server ends a client that is stuck; but a client frozen in the middle of COPY keeps its locks past
             every timeout. So each client writes into `application_name` until when it may hold them.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from functools import lru_cache

import psycopg
from sqlalchemy import (
    BigInteger,
    ColumnElement,
    Dialect,
    Engine,
    Text,
    bindparam,
    cast,
    func,
    literal_column,
    select,
    text,
    true,
)
from sqlalchemy.dialects.postgresql.psycopg import PGDialect_psycopg

from deltars.backoff import Backoff
from deltars.errors import TimeoutError
from deltars.store.backends.base import Opening, Rows, StatementRefused
from deltars.store.backends.pool import AnyConnection
from deltars.store.backends.postgresql.pipeline import Step, rows_of, rows_of_each, run_pipeline, server_of, step
from deltars.store.backends.prepared import Prepared

PATIENCE_MS = 5_000
"""Time to wait for a lock before checking which session holds it."""

# Of equal timeouts the coarsest fires first, and the last two end the connection too. So the finer ones, whose errors
# tell what was waited for, come a little earlier.
_GRACE_MS = {
    "lock_timeout": 0,
    "statement_timeout": 250,
    "idle_in_transaction_session_timeout": 250,
    "transaction_timeout": 500,
}
_UNTIL = "deltars until "
# Databases created from the same template have the same OIDs for their tables, so the database is checked too.
_HOLDS_TABLES = (
    "relation = CAST(:tables AS regclass) AND mode IN ('RowShareLock', 'RowExclusiveLock')"
    " AND database = (SELECT oid FROM pg_database WHERE datname = current_database())"
)


def begin(
    connection: AnyConnection, deadline: float, opening: Opening, tables: str, *, and_commit: bool = False
) -> list[Rows]:
    """Send BEGIN, the limits and the lock statements in one round trip. Retry while another session holds the locks.

    `tables` is the qualified name of dl_tables. With `and_commit` the COMMIT is sent with them. Return the rows of each
    statement.
    """
    steps = [step(*statement) for statement in opening.statements]
    while True:
        # Only these locks are retried; a wait for any other lock may take all of the remaining time.
        milliseconds = max(1, round((deadline - time.monotonic()) * 1000))
        head = [_BEGIN, _limits(milliseconds, PATIENCE_MS if steps else milliseconds, server_of(connection))]
        if not opening.waits_for_disk:
            head.append(_UNSYNCED)
        answers = run_pipeline(connection, [*head, *steps, _COMMIT] if and_commit else [*head, *steps])
        first, end = len(head), len(head) + len(steps)
        try:
            if and_commit and len(steps) > 1 and isinstance(refused := answers[end - 1], psycopg.Error):
                rows_of(answers[: end - 1])
                raise StatementRefused(refused)
            found = rows_of_each(answers)[first:end]
            opening.rows = found[0] if len(found) == 1 else [row for rows in found for row in rows]
            return found
        except psycopg.errors.LockNotAvailable:
            rows_of(run_pipeline(connection, [Step(b"ROLLBACK")]))
            evicted = rows_of(run_pipeline(connection, [step(_EVICTION, {"tables": tables})]))
            # A session that was just ended needs a moment to release its locks.
            if time.monotonic() >= deadline + (1 if evicted else 0):
                raise


@lru_cache(maxsize=256)
def _limits(milliseconds: int, patience_ms: int, server: int) -> Step:
    """Return the limits of a transaction. Most of them begin with the same timeout, so they are encoded once."""
    limits = {name: milliseconds + grace for name, grace in _GRACE_MS.items()}
    limits["lock_timeout"] = min(milliseconds, patience_ms)
    return step(_LIMITS_17 if server >= 170000 else _LIMITS, {**limits, "deadline": milliseconds})


def settle(engine: Engine, tables: str, commit_ts: int, timeout_s: float) -> None:
    """Wait until no commit stamped up to this time is still in progress.

    A transaction that commits or drops a table holds a lock on dl_tables from before its time stamp until its end. A
    transaction that starts later gets a later time stamp. If this role may not see when a transaction started, wait
    for it too.
    """
    query = text(
        "SELECT holder.virtualtransaction FROM pg_locks holder LEFT JOIN pg_stat_activity USING (pid)"
        f" WHERE {_HOLDS_TABLES}"
        " AND (xact_start IS NULL OR extract(epoch FROM xact_start) * 1000000 <= :commit_ts)"
    )
    deadline = time.monotonic() + timeout_s
    backoff = Backoff(0.001, longest_s=0.05, least_s=0.0005)
    with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:

        def holders() -> set[str]:
            return set(connection.execute(query, {"tables": tables, "commit_ts": commit_ts}).scalars())

        awaited = holders()
        while awaited:
            if time.monotonic() > deadline:
                raise TimeoutError(
                    "a commit that may belong to the cut is still in progress", hint="Retry, or raise the timeout."
                )
            backoff.sleep()
            awaited &= holders()


def dialect() -> Dialect:
    """Return the dialect for statements that go directly to the driver, with numbered parameters."""
    numbered: Dialect = PGDialect_psycopg(paramstyle="numeric_dollar")  # type: ignore[no-untyped-call]
    return numbered


def _settings(limits: Sequence[str]) -> Prepared:
    """Return the statement that sets timeouts and planner options for one transaction only.

    They are limited to the transaction because PgBouncer gives the session to another client afterwards. The planner
    options are needed because a commit or a look-up touches few rows of large tables: its plan must not depend on
    statistics that may be missing. Index look-ups are right at every size, and the plan is made once per session.
    """
    plan = {"enable_seqscan": "off", "enable_hashjoin": "off", "enable_mergejoin": "off"}
    # To start a worker takes longer than a look-up, and a plan without values may expect many rows.
    plan |= {"plan_cache_mode": "force_generic_plan", "max_parallel_workers_per_gather": "0"}
    values: dict[str, ColumnElement[str]] = {name: cast(bindparam(name, type_=Text()), Text) for name in limits}
    values |= {name: literal_column(f"'{value}'", Text) for name, value in plan.items()}
    if limits:
        now_ms = cast(func.extract("epoch", func.clock_timestamp()) * literal_column("1000"), BigInteger)
        until = now_ms + cast(bindparam("deadline", type_=Text()), BigInteger)
        values["application_name"] = func.concat(literal_column(f"'{_UNTIL}'"), until)
    calls = (func.set_config(literal_column(f"'{name}'"), value, true()) for name, value in values.items())
    return Prepared(select(*calls), dialect(), None)


_BEGIN = Step(b"BEGIN ISOLATION LEVEL READ COMMITTED")
_UNSYNCED = Step(b"SET LOCAL synchronous_commit = off")
_COMMIT = Step(b"COMMIT")
PLANS = step(_settings([]), {})
_LIMITS = _settings([name for name in _GRACE_MS if name != "transaction_timeout"])
_LIMITS_17 = _settings(list(_GRACE_MS))
_EVICTION = Prepared(
    text(
        "SELECT pg_terminate_backend(pid) FROM pg_locks JOIN pg_stat_activity USING (pid)"
        f" WHERE {_HOLDS_TABLES}"
        f" AND CAST(substring(application_name FROM '^{_UNTIL}([0-9]+)$') AS bigint)"
        " < extract(epoch FROM clock_timestamp()) * 1000 - 1000"
        " AND pg_has_role(usesysid, 'USAGE')"
    ),
    dialect(),
    None,
)
"""Ends sessions that are a second overdue. Without the role check, a missing right would raise an error instead of the
timeout."""
