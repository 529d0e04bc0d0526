"""Retry a transaction after a conflict."""

from __future__ import annotations

import inspect
import logging
import random
import time
from collections.abc import Callable
from itertools import count
from typing import TYPE_CHECKING, TypeVar

from deltars.config import check_timeout
from deltars.errors import ConfigError, DatabaseError, VersionConflict, brief

if TYPE_CHECKING:
    from deltars.transaction import Transaction

_log = logging.getLogger(__name__)

Result = TypeVar("Result")

FIRST_PAUSE_S, LONGEST_PAUSE_S, JITTER_S = 0.01, 1.0, 0.05
RETRIED_STATES = ("40001", "40P01", "transaction")
"""SQL states of a serialization failure or a deadlock; "transaction" is DuckDB's."""

_LAZY = (inspect.isgeneratorfunction, inspect.iscoroutinefunction, inspect.isasyncgenfunction)


def run(
    begin: Callable[[], Transaction], function: Callable[[Transaction], Result], *, retries: int, timeout: float | None
) -> Result:
    """Run the function, each time in a new transaction, until one commits. Return its result."""
    if not callable(function):
        raise ConfigError(
            f"catalog.run() takes a function of the transaction, got {brief(function)}",
            hint='Write catalog.run(lambda tx: tx.write("features", df)).',
        )
    if not _takes_one(function):
        raise ConfigError(
            f"catalog.run() takes a function of the transaction, and {brief(function)} does not take one argument",
            hint='Write catalog.run(lambda tx: tx.write("features", df)).',
        )
    # Called, it would return at once, and its body would run after the commit or never.
    if any(is_lazy(getattr(function, "func", function)) for is_lazy in _LAZY):
        raise ConfigError(
            f"catalog.run() takes a plain function, and {brief(function)} is a generator or a coroutine function",
            hint="Write def without yield and async.",
        )
    if type(retries) is not int or retries < 0:
        raise ConfigError(f"retries must be a whole number of 0 or more, got {brief(retries)}")
    if timeout is not None:
        check_timeout("retry_timeout", timeout)
    deadline = None if timeout is None else time.monotonic() + timeout
    for attempt in count(1):
        try:
            with begin() as tx:
                answer = function(tx)
            return answer
        except Exception as error:
            pause_s = min(FIRST_PAUSE_S * 2 ** (attempt - 1), LONGEST_PAUSE_S) + random.uniform(0, JITTER_S)
            is_late = deadline is not None and time.monotonic() + pause_s > deadline
            if attempt > retries or is_late or not _is_worth_another_try(error):
                raise
            _log.debug(
                "attempt %d of %d failed, the next one starts in %.2f s: %s", attempt, retries + 1, pause_s, error
            )
        time.sleep(pause_s)
    raise AssertionError  # count() never ends


def _takes_one(function: Callable[..., object]) -> bool:
    try:
        inspect.signature(function).bind(None)
    except TypeError:
        return False
    except ValueError:  # a function of C may have no signature
        return True
    return True


def _is_worth_another_try(error: Exception) -> bool:
    if isinstance(error, DatabaseError):
        return error.retryable and error.sqlstate in RETRIED_STATES
    return isinstance(error, VersionConflict)
