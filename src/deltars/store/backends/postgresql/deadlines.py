"""How long a transaction of PostgreSQL may hold its locks, and who sees to it.

BEGIN ─▶ time-outs, for this transaction alone ─▶ locks
           │                                       └ waited for a while? end the holder, if it is overdue
           └ the server ends a client that is stuck; but one frozen in the middle of COPY keeps its locks past
             every time-out. So each says in `application_name` until when it may hold them.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

import psycopg
from sqlalchemy import (
    BigInteger,
    ColumnElement,
    Connection,
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

from deltars.errors import TimeoutError
from deltars.store.backends.base import Opening, Prepared
from deltars.store.backends.postgresql.pipeline import Step, driver_of, rows_of, run_pipeline

PATIENCE_MS = 5_000
"""How long to wait for a lock before looking who holds it."""

# The first of equal time-outs to fire is the coarsest, and the last two end the connection too: so the finer ones,
# which say what was waited for, come a little earlier.
_GRACE_MS = {
    "lock_timeout": 0,
    "statement_timeout": 250,
    "idle_in_transaction_session_timeout": 250,
    "transaction_timeout": 500,
}
_UNTIL = "deltars until "
# A database made from another as its template has the same numbers for its tables.
_HOLDS_TABLES = (
    "relation = CAST(:tables AS regclass) AND mode IN ('RowShareLock', 'RowExclusiveLock')"
    " AND database = (SELECT oid FROM pg_database WHERE datname = current_database())"
)


def begin(connection: Connection, deadline: float, opening: Opening, tables: str) -> None:
    """BEGIN, its limits and the locks, in one round trip; again, for as long as somebody holds them who may.

    `tables` is the name of dl_tables, for the server to look up.
    """
    server = driver_of(connection).pgconn.server_version
    while True:
        milliseconds = max(1, round((deadline - time.monotonic()) * 1000))
        limits = {name: milliseconds + grace for name, grace in _GRACE_MS.items()}
        if opening.statements:
            # Only these are asked for again: a wait for any other lock may take all of the time there is.
            limits["lock_timeout"] = min(milliseconds, PATIENCE_MS)
        head = [
            Step(b"BEGIN ISOLATION LEVEL READ COMMITTED"),
            Step(_LIMITS_17 if server >= 170000 else _LIMITS, {**limits, "deadline": milliseconds}),
        ]
        if not opening.waits_for_disk:
            head.append(Step(b"SET LOCAL synchronous_commit = off"))
        answers = run_pipeline(connection, [*head, *(Step(*statement) for statement in opening.statements)])
        try:
            rows_of(answers[: len(head)])
            opening.rows = [row for answer in answers[len(head) :] for row in rows_of([answer])]
            return
        except psycopg.errors.LockNotAvailable:
            rows_of(run_pipeline(connection, [Step(b"ROLLBACK")]))
            evicted = rows_of(run_pipeline(connection, [Step(_EVICTION, {"tables": tables})]))
            # Who was ended needs a moment to go.
            if time.monotonic() >= deadline + (1 if evicted else 0):
                raise


def settle(engine: Engine, tables: str, commit_ts: int, timeout_s: float) -> None:
    """Wait until no commit that was stamped up to this time is still under way.

    Who commits, or drops a table, holds a lock on dl_tables from before the time stamp to the end, and who began later
    is stamped later. The start is hidden from roles that may not see it: then it has to be waited for.
    """
    query = text(
        "SELECT holder.virtualtransaction FROM pg_locks holder LEFT JOIN pg_stat_activity USING (pid)"
        f" WHERE {_HOLDS_TABLES}"
        " AND (xact_start IS NULL OR extract(epoch FROM xact_start) * 1000000 <= :commit_ts)"
    )
    deadline = time.monotonic() + timeout_s
    pause_s = 0.001
    with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:

        def holders() -> set[str]:
            return set(connection.execute(query, {"tables": tables, "commit_ts": commit_ts}).scalars())

        awaited = holders()
        while awaited:
            if time.monotonic() > deadline:
                raise TimeoutError(
                    "a commit that may belong to the cut is still under way", hint="Retry, or raise the time-out."
                )
            time.sleep(pause_s)
            pause_s = min(pause_s * 2, 0.05)
            awaited &= holders()


def dialect() -> Dialect:
    """For statements that go straight to the driver: their parameters are numbered."""
    numbered: Dialect = PGDialect_psycopg(paramstyle="numeric_dollar")  # type: ignore[no-untyped-call]
    return numbered


def _settings(limits: Sequence[str]) -> Prepared:
    """Settings of one transaction alone: PgBouncer hands the session to somebody else afterwards.

    Besides the time-outs: a commit or a look-up touches few rows of large tables, so its plan must not hang on
    statistics that may not have been gathered yet. Index look-ups are right at every size, and the plan is made once
    a session.
    """
    plan = {"enable_seqscan": "off", "enable_hashjoin": "off", "enable_mergejoin": "off"}
    plan["plan_cache_mode"] = "force_generic_plan"
    values: dict[str, ColumnElement[str]] = {name: cast(bindparam(name, type_=Text()), Text) for name in limits}
    values |= {name: literal_column(f"'{value}'", Text) for name, value in plan.items()}
    if limits:
        now_ms = cast(func.extract("epoch", func.clock_timestamp()) * literal_column("1000"), BigInteger)
        until = now_ms + cast(bindparam("deadline", type_=Text()), BigInteger)
        values["application_name"] = func.concat(literal_column(f"'{_UNTIL}'"), until)
    calls = (func.set_config(literal_column(f"'{name}'"), value, true()) for name, value in values.items())
    return Prepared(select(*calls), dialect(), None)


PLANS = _settings([])
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
"""Ends those who are a second overdue, where the role may: else it would be an error instead of a time-out."""
