"""Retry a transaction after a conflict."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import stamina

from deltars.errors import ConfigError, DatabaseError, VersionConflict
from deltars.transaction import Transaction

Result = TypeVar("Result")

RETRIED_STATES = ("40001", "40P01", "transaction")
"""SQL states of a serialization failure or a deadlock; "transaction" is DuckDB's."""


def run(
    begin: Callable[[], Transaction], function: Callable[[Transaction], Result], *, retries: int, timeout: float | None
) -> Result:
    """Run the function, each time in a new transaction, until one commits. Return its result."""
    if not callable(function):
        raise ConfigError(
            f"catalog.run() takes a function of the transaction, got {function!r:.100}",
            hint='Write catalog.run(lambda tx: tx.write("features", df)).',
        )
    if type(retries) is not int or retries < 0:
        raise ConfigError(f"retries must be a whole number of 0 or more, got {retries!r}")
    attempts = stamina.retry_context(
        on=_is_worth_another_try,
        attempts=retries + 1,
        timeout=timeout,
        wait_initial=0.01,
        wait_max=1.0,
        wait_jitter=0.05,
    )
    for attempt in attempts:
        with attempt, begin() as tx:
            answer = function(tx)
    return answer


def _is_worth_another_try(error: Exception) -> bool:
    if isinstance(error, DatabaseError):
        return error.retryable and error.sqlstate in RETRIED_STATES
    return isinstance(error, VersionConflict)
