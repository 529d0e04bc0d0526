"""Work behind the caller's back: one thing of a kind at a time, and of those that wait only the last."""

from __future__ import annotations

import queue
import threading

import pytest

from deltars.mirror.background import AT_ONCE, Background


def test_only_the_last_of_those_that_wait_is_done() -> None:
    behind, begun, go_on = Background(), threading.Event(), threading.Event()
    done: list[int] = []

    def work(number: int) -> None:
        begun.set()
        assert go_on.wait(30)
        done.append(number)

    behind.start("t", work, 10)
    assert begun.wait(30)
    for number in (20, 30, 40):
        behind.start("t", work, number)
    go_on.set()
    behind.wait()
    assert done == [10, 40]
    behind.start("t", work, 50)
    behind.wait()
    assert done == [10, 40, 50]


def test_few_run_at_once_and_all_are_done() -> None:
    behind, changing = Background(), threading.Lock()
    running = most = 0
    meeting = threading.Barrier(AT_ONCE)

    def work(number: int) -> None:
        nonlocal running, most
        with changing:
            running += 1
            most = max(most, running)
        meeting.wait(30)
        with changing:
            running -= 1

    for number in range(AT_ONCE * 4):
        behind.start(number, work, number)
    behind.wait()
    assert (running, most) == (0, AT_ONCE)


def test_what_fails_does_not_keep_out_what_comes_later(monkeypatch: pytest.MonkeyPatch) -> None:
    failed: queue.Queue[type[BaseException]] = queue.Queue()
    monkeypatch.setattr(threading, "excepthook", lambda arguments: failed.put(arguments.exc_type))
    behind = Background()
    done: list[str] = []

    def work(what: str) -> None:
        if what == "bad":
            raise SystemExit
        done.append(what)

    behind.start("t", work, "bad")
    behind.wait()
    assert failed.get(timeout=20) is SystemExit
    behind.start("t", work, "good")
    behind.wait()
    assert done == ["good"]
