"""A way through the model, walked by the real code on SQLite, and compared with the model after every step.

    with Replay(uri, directory) as replay:
        for step, state in walk(…):
            replay.take(step, before)            # the same step, by deltars itself
            assert replay.seen() == expected(state)

Publishers and the vacuum run in threads that wait where the model has a step: before and after N.json is put, before
and after files are condemned. A thread that is killed stays where it is, until the replay is over.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack, suppress
from datetime import timedelta
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple
from unittest import mock
from uuid import UUID, uuid4

import pyarrow as pa
from sqlalchemy import select, update

import deltars
from deltars.errors import FilesMissing
from deltars.mirror import Publisher, publisher, vacuum
from deltars.protocol.log_files import LAST_CHECKPOINT
from deltars.store.mirror.lease import new_owner
from deltars.store.schema import dl_maintenance, dl_mirror_status
from tests.faults import model
from tests.faults.audit import facts_of
from tests.faults.model import APPEND, FIRST, REPLACE, State, Step

TABLES = ("a", "b")
OFFSET = 1
"""Version 0 of the model, with its first file, is version 1 here: creating a table is a version of its own."""

WAIT_S = 60.0


class Seen(NamedTuple):
    """What can be seen of one table."""

    history: tuple[str, ...]
    log: tuple[str | None, ...]
    published: int
    condemned: int
    checkpoint: int
    files: frozenset[str]
    """The data files that some version names."""


def expected(state: State) -> list[Seen]:
    return [
        Seen(
            tuple(version.txn for version in table.history),
            table.log,
            table.published,
            table.condemned,
            table.checkpoint,
            table.files & frozenset().union(*(version.live for version in table.history)),
        )
        for table in state.tables
    ]


class _Died(BaseException):
    """Ends a thread of a process that is long dead."""


class _Actor:
    """A thread that stops at every gate."""

    def __init__(self, work: Callable[[], object]) -> None:
        self._moved = threading.Condition()
        self._is_waiting = self.is_over = self._may_go = self._is_dead = False
        self.error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, args=[work], daemon=True)
        _actors[self._thread] = self
        self._thread.start()
        self._wait()

    def gate(self) -> None:
        with self._moved:
            self._is_waiting = True
            self._moved.notify_all()
            assert self._moved.wait_for(lambda: self._may_go, WAIT_S)
            self._may_go = self._is_waiting = False
            if self._is_dead:
                raise _Died

    def go_on(self) -> None:
        """Let it run to its next gate, or to its end."""
        with self._moved:
            assert self._is_waiting
            self._may_go, self._is_waiting = True, False
            self._moved.notify_all()
        self._wait()

    def end(self) -> None:
        with self._moved:
            self._is_dead = self._may_go = True
            self._moved.notify_all()
        self._thread.join(WAIT_S)
        del _actors[self._thread]

    def _wait(self) -> None:
        with self._moved:
            assert self._moved.wait_for(lambda: self._is_waiting or self.is_over, WAIT_S), "a thread hangs"
        if self.error is not None:
            raise self.error

    def _run(self, work: Callable[[], object]) -> None:
        try:
            work()
        except _Died:
            pass
        except BaseException as error:
            self.error = error
        finally:
            with self._moved:
                self.is_over = True
                self._moved.notify_all()


_actors: dict[threading.Thread, _Actor] = {}


def _gated(original: Callable[..., Any]) -> Callable[..., Any]:
    """Stop before this call and after it, where an actor makes it."""

    def call(*arguments: Any, **options: Any) -> Any:
        actor = _actors.get(threading.current_thread())
        if actor is None:
            return original(*arguments, **options)
        actor.gate()
        answer = original(*arguments, **options)
        actor.gate()
        return answer

    return call


class Replay:
    def __init__(self, uri: str, directory: Path) -> None:
        self._stack = ExitStack()
        self._catalog = self._stack.enter_context(deltars.connect(uri, warehouse=str(directory)))
        self._transactions: dict[int, deltars.Transaction | None] = {}
        self._names: dict[object, str] = {}
        self._publishers: dict[int, _Actor] = {}
        self._vacuum: _Actor | None = None
        self._dead: list[_Actor] = []
        self._file_names: dict[str, str] = {}

    def __enter__(self) -> Replay:
        for name in TABLES:
            self._catalog.create_table(name, "id BIGINT")
            self._catalog.write(name, _row(-1))
        for table in facts_of(self._catalog).values():
            self._names[table.txns[OFFSET]] = "create"
        self._note_files(FIRST)
        patches: list[AbstractContextManager[object]] = [
            mock.patch.object(publisher, "VERSIONS_AT_ONCE", 1),
            mock.patch.object(publisher.Publisher, "_put", _gated(publisher.Publisher._put)),
            mock.patch.object(vacuum.Vacuum, "_condemn", _gated(vacuum.Vacuum._condemn)),
        ]
        for patch in patches:
            self._stack.enter_context(patch)
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        living = [*self._publishers.values(), *([self._vacuum] if self._vacuum else [])]
        for actor in [*self._dead, *living]:
            actor.end()
        for transaction in self._transactions.values():
            if transaction is not None:
                transaction.rollback()
        self._stack.close()

    # -- steps -------------------------------------------------------------------------------------------------------

    def take(self, step: Step, before: State) -> None:
        """Take a step of the model, which is in the state `before`."""
        steps: dict[str, Callable[[], object]] = {
            "begin": lambda: self._begin(step.who),
            "commit": lambda: self._commit(step.who),
            "claim": lambda: self._claim(step),
            "put": lambda: self._publishers[step.who].go_on(),
            "advance": lambda: self._advance(step.who),
            "expire": lambda: self._expire(step.table),
            "kill": lambda: self._kill(step, before.tables[step.table].lease == step.who),
            "checkpoint": lambda: self._checkpoint(step.table),
            "plan": lambda: self._plan(step.table),
            "condemn": lambda: self._condemn(),
            "delete": lambda: self._delete(),
            "stop vacuum": lambda: self._stop_vacuum(),
        }
        steps[step.what]()

    def _begin(self, who: int) -> None:
        txn_id = uuid4()
        self._names[txn_id] = f"{who}.0"
        tx = self._catalog.begin(txn_id=txn_id, mirror="off")
        self._transactions[who] = tx
        try:
            match who:
                case model.APPEND:
                    for name in TABLES:
                        tx.write(name, _row(APPEND))
                case model.REPLACE:
                    for name in TABLES:
                        tx.write(name, _row(REPLACE), "overwrite")
                case _:
                    tx.restore("a", OFFSET)
        except FilesMissing:
            tx.rollback()
            self._transactions[who] = None

    def _commit(self, who: int) -> None:
        transaction = self._transactions.pop(who)
        if transaction is not None:
            with suppress(deltars.VersionConflict, FilesMissing):
                transaction.commit()
                self._note_files(str(who))

    def _claim(self, step: Step) -> None:
        table_id = self._catalog.table(TABLES[step.table]).id
        mirror = Publisher(self._catalog._session.database, checkpoint_interval=1_000_000)
        self._publishers[step.who] = _Actor(lambda: mirror.publish_pending(table_id))

    def _advance(self, who: int) -> None:
        actor = self._publishers[who]
        actor.go_on()
        if actor.is_over:
            self._publishers.pop(who).end()

    def _expire(self, table: int) -> None:
        table_id = self._catalog.table(TABLES[table]).id
        with self._catalog._session.database.write(10) as connection:
            rows = update(dl_mirror_status).where(dl_mirror_status.c.table_id == table_id)
            connection.execute(rows.where(dl_mirror_status.c.lease_until.is_not(None)).values(lease_until=1))

    def _kill(self, step: Step, had_lease: bool) -> None:
        self._dead.append(self._publishers.pop(step.who))
        if had_lease:
            self._expire(step.table)

    def _checkpoint(self, table: int) -> None:
        mirror = self._catalog._session.publisher
        status = mirror.status.read(self._catalog.table(TABLES[table]).id)
        storage = mirror.storage_at(status.location)
        mirror.checkpointer.write(storage, status.table_id, status.published_version, new_owner())

    def _plan(self, table: int) -> None:
        place = self._catalog.table(TABLES[table])
        # What was published in this very moment is not older than a retention of nothing.
        time.sleep(0.002)
        self._vacuum = _Actor(lambda: place.vacuum(retention=timedelta(0), force=True))

    def _condemn(self) -> None:
        assert self._vacuum is not None
        self._vacuum.go_on()

    def _delete(self) -> None:
        assert self._vacuum is not None
        self._vacuum.go_on()
        self._vacuum.end()
        self._vacuum = None

    def _stop_vacuum(self) -> None:
        assert self._vacuum is not None
        self._dead.append(self._vacuum)
        self._vacuum = None

    # -- what there is to see ----------------------------------------------------------------------------------------

    def seen(self) -> list[Seen]:
        status, marks = dl_mirror_status.c, dl_maintenance.c
        with self._catalog._session.database.read() as connection:
            rows = connection.execute(select(status.table_id, status.published_version))
            published = {row.table_id: row.published_version for row in rows}
            rows = connection.execute(select(marks.table_id, marks.condemned_version))
            condemned = {row.table_id: row.condemned_version for row in rows}
        found = []
        for name, facts in facts_of(self._catalog).items():
            table = self._catalog.table(name)
            log = facts.location / "_delta_log"
            names = {self._names[txn]: version for version, txn in facts.txns.items() if version >= OFFSET}
            found.append(
                Seen(
                    tuple(sorted(names, key=lambda one: names[one])),
                    tuple(self._published(log, version) for version in range(OFFSET, _last(log) + 1)),
                    published[table.id] - OFFSET,
                    max(-1, condemned.get(table.id, -1) - OFFSET),
                    _checkpoint(log),
                    frozenset(label for path, label in self._file_names.items() if (facts.location / path).exists()),
                )
            )
        return found

    def _published(self, log: Path, version: int) -> str | None:
        path = log / f"{version:020}.json"
        if not path.exists():
            return None
        infos = [line["commitInfo"] for line in map(json.loads, path.read_text().splitlines()) if "commitInfo" in line]
        return self._names[UUID(infos[0]["txnId"])]

    def _note_files(self, label: str) -> None:
        for name in TABLES:
            for path in self._catalog.table(name).files()["path"].to_pylist():
                self._file_names.setdefault(path, label)


def _row(number: int) -> pa.Table:
    return pa.table({"id": pa.array([number], pa.int64())})


def _last(log: Path) -> int:
    return max(int(path.stem) for path in log.glob("*.json") if path.stem.isdigit())


def _checkpoint(log: Path) -> int:
    path = log.parent / LAST_CHECKPOINT
    return int(json.loads(path.read_text())["version"]) - OFFSET if path.exists() else -1
