"""Lease on a table's mirror: who publishes the table, and for how long other publishers leave it alone.

    claim ──▶ "host/ns:pid:id/300" (300 ms) ──▶ each version published renews it ──▶ release
                 │
                 └ no version within that time, or the process is gone ──▶ the next publisher takes the lease over,
                   for twice as long

A lease only saves work. Two publishers at once do no harm: a version is put only if it is missing, and only after the
version before it. So a lease is short, and a publisher that died or froze delays others only briefly. A lease that is
taken over without progress lasts twice as long as the one before it, so that publishers do not pile up on a slow store.
"""

from __future__ import annotations

import os
import socket
from functools import cache
from uuid import uuid4

from deltars.backoff import Backoff

FIRST_MS = 300
LONGEST_MS = 30_000

SLACK_US = 1_000_000
"""Tolerance for the end of a lease: the clocks of two statements may differ slightly."""


def polls() -> Backoff:
    """Return the pauses between two looks at a table whose lease another publisher holds."""
    return Backoff(0.03, longest_s=0.03, least_s=0.005)


def new_owner() -> str:
    """Return a unique name for a publisher. Processes of this machine can tell from it whether it is alive."""
    return f"{_machine()}:{os.getpid()}:{uuid4()}"


def taken(owner: str, before: str | None) -> str:
    """Return the owner text to store for a new lease; `before` is the stored one."""
    length_ms = FIRST_MS if before is None or _is_gone(before) else min(2 * _length_ms(before), LONGEST_MS)
    return f"{owner}/{length_ms}"


def renewed(owner: str) -> str:
    """Return the owner text to store after progress."""
    return f"{owner}/{FIRST_MS}"


def until(stored: str, now: int) -> int:
    """Return the end of a lease taken at `now`, in microseconds."""
    return now + _length_ms(stored) * 1000


def is_of(stored: str | None, owner: str) -> bool:
    """Return whether a stored lease belongs to this publisher."""
    return stored is not None and stored in (owner, f"{owner}/{stored.rpartition('/')[2]}")


def is_held(stored: str | None, ends: int | None, now: int) -> bool:
    """Return whether others should leave the table to the lease's owner.

    A lease that ends later than its length allows was taken before the clock was set back; it is ignored.
    """
    if stored is None or ends is None:
        return False
    return now < ends <= now + _length_ms(stored) * 1000 + SLACK_US and not _is_gone(stored)


def _length_ms(stored: str) -> int:
    digits = stored.rpartition("/")[2]
    return min(int(digits), LONGEST_MS) if digits.isdecimal() else LONGEST_MS


def _is_gone(stored: str) -> bool:
    """Return whether the owner was a process of this machine that no longer exists."""
    machine, _, rest = stored.partition(":")
    pid = rest.partition(":")[0]
    if os.name != "posix" or machine != _machine() or not pid.isdecimal():
        return False
    try:
        os.kill(int(pid), 0)
    except (ProcessLookupError, OverflowError):
        return True
    except OSError:
        return False
    return False


@cache
def _machine() -> str:
    # Containers may share a host name without seeing each other's processes.
    try:
        space = os.stat("/proc/self/ns/pid").st_ino
    except OSError:
        space = 0
    return f"{socket.gethostname()}/{space}"
