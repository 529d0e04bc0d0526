"""Running something in a forked child."""

from __future__ import annotations

import os
from collections.abc import Callable


def is_true_in_forked_child(check: Callable[[], bool]) -> bool:
    child = os.fork()
    if child == 0:
        # However it ends, the child must not go on as a second test run.
        code = 2
        try:
            code = 0 if check() else 1
        finally:
            os._exit(code)
    return os.waitpid(child, 0)[1] == 0
