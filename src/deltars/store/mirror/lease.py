"""The lease on a table's mirror: who publishes the table, and for how long others leave it to them.

    claim ──▶ "host/ns:pid:id/300" (300 ms) ──▶ each version published renews it ──▶ release
                 │
                 └ no version within that time, or the process is gone ──▶ the next publisher takes the lease over,
                   for twice as long

A lease saves work and nothing more. Two publishers at once do no harm: a version is put only where there is none, and
only after the one before it. So a lease is short, and nobody waits long for a publisher that died or was frozen. Each
lease that is taken over without progress lasts twice as long as the one before it. So a slow store is not worked on by
more and more publishers.
"""

from __future__ import annotations

import os
import socket
from functools import cache
from uuid import uuid4

FIRST_MS = 300
LONGEST_MS = 30_000

SLACK_US = 1_000_000
"""How far a lease may end later than it can: the clocks of two statements need not agree to the microsecond."""


def new_owner() -> str:
    """Return a name for a publisher: unique, and it tells processes of this machine whether it is still alive."""
    return f"{_machine()}:{os.getpid()}:{uuid4()}"


def taken(owner: str, before: str | None) -> str:
    """Return what to store as the owner of a lease; `before` is what was stored."""
    length_ms = FIRST_MS if before is None or _is_gone(before) else min(2 * _length_ms(before), LONGEST_MS)
    return f"{owner}/{length_ms}"


def renewed(owner: str) -> str:
    """Return what to store as the owner of a lease after progress."""
    return f"{owner}/{FIRST_MS}"


def until(stored: str, now: int) -> int:
    """Return when a lease ends that is taken now (µs)."""
    return now + _length_ms(stored) * 1000


def is_of(stored: str | None, owner: str) -> bool:
    """Return whether a stored lease is this publisher's."""
    return stored is not None and stored in (owner, f"{owner}/{stored.rpartition('/')[2]}")


def is_held(stored: str | None, ends: int | None, now: int) -> bool:
    """Return whether others should leave the table to the lease's owner.

    A lease that ends later than it can was taken before the clock went back: it has no end that means anything.
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
    # Containers may share a host name and still not see each other's processes.
    try:
        space = os.stat("/proc/self/ns/pid").st_ino
    except OSError:
        space = 0
    return f"{socket.gethostname()}/{space}"
