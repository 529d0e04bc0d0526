"""Things that happen at the same time, in threads of this process."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, Generic, TypeVar

T = TypeVar("T")

WAIT_S = 60.0


class Meanwhile(Generic[T]):
    """A call that runs in a thread of its own from now on; `outcome` waits for what it returned or raised."""

    def __init__(self, call: Callable[..., T], *arguments: Any, **options: Any) -> None:
        self._answer: list[T | BaseException] = []
        self._thread = threading.Thread(target=self._run, args=[call, arguments, options], daemon=True)
        self._thread.start()

    def _run(self, call: Callable[..., T], arguments: tuple[Any, ...], options: dict[str, Any]) -> None:
        try:
            self._answer.append(call(*arguments, **options))
        except BaseException as error:
            self._answer.append(error)

    @property
    def is_running(self) -> bool:
        return self._thread.is_alive()

    def stays_for(self, seconds: float) -> None:
        """It does not end within this time."""
        self._thread.join(seconds)
        assert self._thread.is_alive(), f"it ended: {self._answer[0]}"

    def outcome(self) -> T | BaseException:
        self._thread.join(WAIT_S)
        assert not self._thread.is_alive(), "it did not end"
        return self._answer[0]

    def result(self) -> T:
        outcome = self.outcome()
        if isinstance(outcome, BaseException):
            raise outcome
        return outcome

    def error(self) -> BaseException:
        outcome = self.outcome()
        assert isinstance(outcome, BaseException), f"it ended well: {outcome}"
        return outcome
