"""Pauses between two attempts: random, so that processes do not collide again, and ever longer."""

from __future__ import annotations

import random
import time
from dataclasses import dataclass

GROWTH = 1.5


@dataclass(slots=True)
class Backoff:
    """Sleep between `least_s` and `next_s` seconds. `next_s` grows up to `longest_s`."""

    next_s: float
    longest_s: float
    least_s: float = 0.0

    def sleep(self) -> None:
        time.sleep(random.uniform(self.least_s, self.next_s))
        self.next_s = min(self.next_s * GROWTH, self.longest_s)
