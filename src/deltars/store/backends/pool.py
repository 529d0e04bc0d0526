"""SQLAlchemy's connection pool, extended to count the callers that wait for a connection."""

from __future__ import annotations

import threading
import time
from typing import Any

from sqlalchemy import QueuePool
from sqlalchemy.pool import PoolProxiedConnection

from deltars.observe import PoolUse


class WatchedPool(QueuePool):
    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._counting = threading.Lock()
        self._waiting = self._asked = 0
        self._waited_s = 0.0

    def connect(self) -> PoolProxiedConnection:
        began = time.perf_counter()
        with self._counting:
            self._waiting += 1
            self._asked += 1
        try:
            return super().connect()
        finally:
            with self._counting:
                self._waiting -= 1
                self._waited_s += time.perf_counter() - began

    def use(self) -> PoolUse:
        return PoolUse(self.size(), self.checkedout(), self.checkedin(), self._waiting, self._asked, self._waited_s)
