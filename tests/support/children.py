"""A piece of work in a forked child, which may be killed in the middle of it."""

from __future__ import annotations

import os
from collections.abc import Callable


def in_child(work: Callable[[], None]) -> int:
    """Return the negative number of the signal that ended the child, or its exit code: 0 where it came to its end."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            work()
            code = 0
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
