"""What is remembered has a limit, and threads share it."""

from __future__ import annotations

import pickle
import sys
import threading

from deltars.remembered import Remembered


def test_the_oldest_go_where_a_new_one_has_no_room() -> None:
    kept = Remembered[int, str](20)
    for number in range(20):
        kept[number] = str(number)
    kept[0] = "again"
    assert len(kept) == 20
    kept[20] = "20"
    assert list(kept) == list(range(3, 21))


def test_threads_may_share_it() -> None:
    kept, errors, interval = Remembered[int, int](5), list[BaseException](), sys.getswitchinterval()

    def fill(first: int) -> None:
        try:
            for number in range(first, first + 20_000):
                kept[number] = number
        except BaseException as error:
            errors.append(error)

    sys.setswitchinterval(1e-6)
    try:
        threads = [threading.Thread(target=fill, args=(first * 100_000,)) for first in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(interval)
    assert not errors
    assert len(kept) <= 5 + len(threads)


def test_a_copy_for_another_process_is_empty() -> None:
    kept = Remembered[int, int](2)
    kept[1] = 1
    copy = pickle.loads(pickle.dumps(kept))
    for number in range(5):
        copy[number] = number
    assert list(copy) == [3, 4]
