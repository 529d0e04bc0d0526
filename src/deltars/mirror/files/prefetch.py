"""Prefetching: reads an iterator in a background thread, a few items ahead of its consumer."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from queue import Queue
from typing import TypeVar

T = TypeVar("T")

ITEMS = 8
DIRECT_ITEMS = 2


def prefetch(source: Iterator[T]) -> Iterator[T]:
    """Yield the items of `source` in order, and raise what it raises.

    The first items are read directly: most tables have no more, and a thread would take longer than reading them. If no
    thread can be started, read all of `source` directly.
    """
    for _ in range(DIRECT_ITEMS):
        try:
            yield next(source)
        except StopIteration:
            return
    queue: Queue[tuple[bool, T | BaseException | None]] = Queue(ITEMS)
    stopped = threading.Event()

    def fetch() -> None:
        try:
            for item in source:
                if stopped.is_set():
                    return
                queue.put((True, item))
            queue.put((False, None))
        except BaseException as error:
            queue.put((False, error))

    thread = threading.Thread(target=fetch, name="deltars-prefetch", daemon=True)
    try:
        thread.start()
    except RuntimeError:
        yield from source
        return
    try:
        while True:
            is_item, value = queue.get()
            if is_item:
                yield value  # type: ignore[misc]
            elif isinstance(value, BaseException):
                raise value
            else:
                return
    finally:
        stopped.set()
        while thread.is_alive():
            # The thread may be waiting for room in the queue.
            while not queue.empty():
                queue.get()
            thread.join(0.01)
