"""A publisher that died, was frozen, or lived before the clock went back holds nobody up, and does no harm."""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from uuid import UUID

import pytest

from deltars.mirror import Publication, Publisher, Reconciler
from deltars.store.mirror import lease
from tests.mirror.ledger import Ledger, check_log
from tests.mirror.steps import stepping
from tests.support.soak import record, scaled, seed

HOUR_US = 3_600_000_000

AT_MOST_S = 2.0
"""A commit takes some milliseconds, a lease of a dead one 0.3 s. It was 5 s. The machine may be busy."""


@contextmanager
def child(work: Callable[[], None]) -> Iterator[int]:
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            work()
            code = 0
        finally:
            os._exit(code)
    try:
        yield pid
    finally:
        with suppress(ChildProcessError):
            # Where the test failed, it may be frozen, or at work for ever.
            if os.waitpid(pid, os.WNOHANG)[0] == 0:
                os.kill(pid, signal.SIGKILL)
                os.waitpid(pid, 0)


def on_another_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever looks at this process's lease cannot look whether the process is alive."""
    monkeypatch.setattr(lease, "_machine", lambda: "elsewhere/1")


def publish_next(ledger: Ledger, table: UUID) -> float:
    """Commit and publish; how long that took."""
    publisher = Publisher(ledger.database, checkpoint_interval=3)
    began = time.monotonic()
    version = ledger.append(table)
    outcome = publisher.publish_all({table: version}, wait_s=5)[table]
    took_s = time.monotonic() - began
    assert outcome.publication is Publication.PUBLISHED, outcome
    publisher.close()
    return took_s


def check_reconciled(ledger: Ledger, table: UUID, name: str = "t") -> int:
    """What is left is published, and the log is complete; how many versions there are."""
    Reconciler(ledger.database, Publisher(ledger.database)).once()
    return check_log(ledger, table, name)


@pytest.mark.soak
@pytest.mark.backends("postgres", "sqlite")
@pytest.mark.parametrize("machine", ["this", "another"])
def test_writer_killed_while_it_publishes_holds_up_nobody(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch, machine: str
) -> None:
    table = ledger.create_table("t")
    publish_next(ledger, table)
    drawn = random.Random(seed())
    took_s, kills = [], scaled(4, soak=200)
    for _ in range(kills):
        ledger.database.close()
        left = drawn.randrange(1, 12)

        def die(what: str, path: str) -> None:
            nonlocal left
            left -= 1
            if left == 0 or path.endswith("_last_checkpoint"):
                os.kill(os.getpid(), signal.SIGKILL)

        def work() -> None:
            if machine == "another":
                on_another_machine(monkeypatch)
            with stepping(monkeypatch, die):
                while True:
                    publish_next(ledger, table)

        with child(work) as pid:
            assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == -signal.SIGKILL
        took_s += [publish_next(ledger, table), publish_next(ledger, table)]
    assert max(took_s) < AT_MOST_S
    versions = check_reconciled(ledger, table)
    name = f"writers killed while they publish, lease of {machine} machine, {ledger.database.backend.name}"
    record(name, kills=kills, versions=versions, slowest_ms=round(max(took_s) * 1000))


@pytest.mark.soak
@pytest.mark.backends("postgres", "sqlite")
def test_writers_killed_at_any_moment_hold_up_none_of_those_who_go_on(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = ledger.create_table("t")
    publish_next(ledger, table)
    ledger.database.close()
    ending, told = os.pipe(), os.pipe()

    def go_on() -> None:
        os.set_blocking(ending[0], False)
        slowest_s = 0.0
        while True:
            slowest_s = max(slowest_s, publish_next(ledger, table))
            with suppress(BlockingIOError):
                os.read(ending[0], 1)
                os.write(told[1], f"{slowest_s}\n".encode())
                return

    def work() -> None:
        while True:
            publish_next(ledger, table)

    drawn, kills = random.Random(seed()), scaled(5, soak=200)
    with child(go_on) as first, child(go_on) as second:
        for _ in range(kills):
            with child(work) as victim:
                time.sleep(drawn.uniform(0.05, 0.4))
                os.kill(victim, signal.SIGKILL)
                os.waitpid(victim, 0)
        os.write(ending[1], b"..")
        assert [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in (first, second)] == [0, 0]
    slowest_s = max(map(float, os.read(told[0], 1000).split()))
    for end in (*ending, *told):
        os.close(end)
    # They also wait for each other: that alone takes a second on a busy machine.
    assert slowest_s < 2 * AT_MOST_S
    versions = check_reconciled(ledger, table)
    name = f"writers killed beside others that go on, {ledger.database.backend.name}"
    record(name, kills=kills, versions=versions, slowest_ms=round(slowest_s * 1000))


@pytest.mark.every_case_on("sqlite")
@pytest.mark.backends("postgres", "sqlite")
@pytest.mark.parametrize(
    "frozen_before", [("create", "1.json"), ("touch", "1.json"), ("sync", "_delta_log"), ("create", "1.crc")]
)
def test_writer_frozen_while_it_publishes_holds_up_nobody_and_does_no_harm_when_it_wakes_up(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch, frozen_before: tuple[str, str]
) -> None:
    table = ledger.create_table("t")
    Publisher(ledger.database).publish_pending(table)
    ledger.database.close()

    def freeze(what: str, path: str) -> None:
        if what == frozen_before[0] and path.endswith(frozen_before[1]):
            os.kill(os.getpid(), signal.SIGSTOP)

    def work() -> None:
        with stepping(monkeypatch, freeze):
            publish_next(ledger, table)

    with child(work) as pid:
        assert os.WIFSTOPPED(os.waitpid(pid, os.WUNTRACED)[1])
        took_s = [publish_next(ledger, table) for _ in range(3)]
        os.kill(pid, signal.SIGCONT)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    assert max(took_s) < AT_MOST_S
    publish_next(ledger, table)
    assert check_reconciled(ledger, table) == 6


def test_lease_and_pause_from_before_the_clock_went_back_an_hour_stop_nobody(
    ledger: Ledger, publisher: Publisher
) -> None:
    table = ledger.create_table("t")
    now = publisher.status.read(table).now
    ledger.set_status(
        table,
        lease_owner=f"{lease.new_owner()}/{lease.FIRST_MS}",
        lease_until=now + HOUR_US,
        attempts=3,
        next_attempt_at=now + HOUR_US,
    )
    assert publisher.status.due() == [table]
    assert publish_next(ledger, table) < AT_MOST_S
    assert check_reconciled(ledger, table) == 2


def test_lease_lasts_longer_each_time_that_it_is_taken_over_without_progress() -> None:
    owners = [f"elsewhere/1:{number}:x" for number in range(10)]
    stored, lengths = None, []
    for owner in owners:
        stored = lease.taken(owner, stored)
        lengths.append(lease.until(stored, 0) // 1000)
        assert lease.is_of(stored, owner)
        assert not lease.is_of(stored, owner[:-2])
    assert lengths == [300, 600, 1200, 2400, 4800, 9600, 19200, 30000, 30000, 30000]
    assert lease.until(lease.renewed(owners[0]), 0) == 300_000


def test_lease_is_held_until_it_ends_or_its_process_is_gone() -> None:
    stored = lease.taken(lease.new_owner(), None)
    ends = lease.until(stored, 1_000_000)
    assert lease.is_held(stored, ends, 1_000_000)
    assert lease.is_held(stored, ends, ends - 1)
    assert not lease.is_held(stored, ends, ends)
    assert not lease.is_held(None, None, 0)
    assert not lease.is_held(stored, ends + HOUR_US, 1_000_000)
    with child(lambda: None) as pid:
        os.waitpid(pid, 0)
    dead = stored.replace(f":{os.getpid()}:", f":{pid}:")
    assert not lease.is_held(dead, ends, 1_000_000)
    assert lease.is_held(dead.replace(":", "-elsewhere:", 1), ends, 1_000_000)
    # One that is known to be dead says nothing of how slow the store is.
    assert lease.until(lease.taken("x", dead), 0) == 300_000
    # What an older release stored has no length: it was 30 s.
    assert lease.is_held("host:1:x", 31_000_000, 1_000_001)
