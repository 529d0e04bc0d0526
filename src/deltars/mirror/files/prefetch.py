"""An iterator that is a few steps ahead of who reads it, in a thread of its own."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from queue import Queue
from typing import TypeVar

T = TypeVar("T")

STEPS = 8


def ahead(source: Iterator[T]) -> Iterator[T]:
    """The same things, in the same order; what the source raises is raised here.

    Where no thread can be had, the source is read step by step.
    """
    queue: Queue[tuple[bool, T | BaseException | None]] = Queue(STEPS)
    stopped = threading.Event()

    def fetch() -> None:
        try:
            for thing in source:
                if stopped.is_set():
                    return
                queue.put((True, thing))
            queue.put((False, None))
        except BaseException as error:
            queue.put((False, error))

    thread = threading.Thread(target=fetch, name="deltars-ahead", daemon=True)
    try:
        thread.start()
    except RuntimeError:
        yield from source
        return
    try:
        while True:
            is_thing, value = queue.get()
            if is_thing:
                yield value  # type: ignore[misc]
            elif isinstance(value, BaseException):
                raise value
            else:
                return
    finally:
        stopped.set()
        while thread.is_alive():
            # It may be waiting for room.
            while not queue.empty():
                queue.get()
            thread.join(0.01)
