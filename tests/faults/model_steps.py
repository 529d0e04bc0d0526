"""The steps of the model: what a writer, a publisher and a vacuum do at once, right or with a planted bug."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeAlias

from tests.faults.model import (
    FIRST,
    RESTORE,
    TOUCHED,
    Publisher,
    Setting,
    State,
    Step,
    Table,
    Vacuum,
    Version,
    Writer,
    with_publisher,
    with_table,
    with_writer,
)

Next: TypeAlias = Iterator[tuple[Step, State]]


def steps(state: State, setting: Setting) -> Next:
    """Everything that can happen next."""
    for who, kind in enumerate(setting.writers):
        yield from _writer_steps(state, setting, who, kind)
    for who in range(len(state.publishers)):
        yield from _publisher_steps(state, setting, who)
    if setting.has_vacuum:
        yield from _vacuum_steps(state, setting)


def _writer_steps(state: State, setting: Setting, who: int, kind: int) -> Next:
    writer = state.writers[who]
    if writer.at == "idle":
        base = tuple(state.tables[table].current for table in TOUCHED[kind])
        after = with_writer(state, who, at="staged", base=base)
        if kind != RESTORE:
            # Data files are written before the commit.
            for table in TOUCHED[kind]:
                after = with_table(after, table, files=after.tables[table].files | {f"{who}"})
        elif state.tables[0].history[-1].live == state.tables[0].history[0].live:
            # The table is as it was: there is nothing to commit.
            after = with_writer(state, who, at="nothing")
        elif setting.has_vacuum and FIRST not in state.tables[0].files:
            # It looks whether the files are there, and is refused before it begins.
            after = with_writer(state, who, at="refused")
        yield Step("begin", who), after
    elif writer.at == "staged" and setting.at_once:
        after = _committed(state, setting, who, kind)
        at = "committed" if after.writers[who].server == "done" else "refused"
        yield Step("commit", who), with_writer(after, who, at=at)
    elif writer.at == "staged":
        yield Step("send", who), with_writer(state, who, at="sent", server="pending")
        if setting.bug == "publish before COMMIT":
            first = state.tables[TOUCHED[kind][0]]
            if len(first.log) == len(first.history):
                log = (*first.log, _txn(who, writer))
                yield Step("publish early", who), with_table(state, TOUCHED[kind][0], log=log)
    elif writer.at == "sent":
        if writer.server in ("done", "failed"):
            at = "committed" if writer.server == "done" else "refused"
            yield Step("told", who), with_writer(state, who, at=at)
        if setting.breaks and not writer.attempt:
            yield Step("break", who), with_writer(state, who, at="lost")
    elif writer.at == "lost":
        yield Step("settle", who), _settled(state, setting, who, kind)
    if writer.server in ("pending", "checked", "half"):
        yield from _server_steps(state, setting, who, kind)
    if setting.crashes and not setting.at_once and writer.at in ("staged", "sent", "lost"):
        yield Step("die", who), with_writer(state, who, at="dead")


def _txn(who: int, writer: Writer) -> str:
    return f"{who}.{writer.attempt}"


def _settled(state: State, setting: Setting, who: int, kind: int) -> State:
    """The writer finds out whether it committed."""
    writer = state.writers[who]
    txn = _txn(who, writer)
    is_there = any(version.txn == txn for version in state.tables[TOUCHED[kind][0]].history)
    match setting.bug:
        case "retry under a new id" if writer.attempt == 0:
            # The first COMMIT may still be under way: it is followed to its end at once, to keep the state small.
            done = _committed(state, setting, who, kind) if writer.server == "pending" else state
            base = tuple(done.tables[table].current for table in TOUCHED[kind])
            return with_writer(done, who, at="sent", server="pending", attempt=1, base=base)
        case "one look instead of settling":
            return with_writer(state, who, at="committed" if is_there else "refused")
        case "no answer is taken for a commit":
            return with_writer(state, who, at="committed")
        case _:
            pass
    if is_there:
        return with_writer(state, who, at="committed")
    after = with_writer(state, who, at="refused")
    return after._replace(aborted=after.aborted | {txn})


def _server_steps(state: State, setting: Setting, who: int, kind: int) -> Next:
    """The server executes a COMMIT that it was sent, or gives it up because the client is gone."""
    writer = state.writers[who]
    if writer.at in ("lost", "dead", "refused") and writer.server == "pending":
        yield Step("give up", who), with_writer(state, who, server="failed")
    if setting.bug == "no lock":
        if writer.server == "pending":
            ok = _may_commit(state, who, kind)
            yield Step("check", who), with_writer(state, who, server="checked" if ok else "failed")
        else:
            yield Step("execute", who), _committed(state, setting, who, kind)
        return
    if setting.bug == "one transaction per table" and len(TOUCHED[kind]) > 1:
        if writer.server == "pending":
            if _may_commit(state, who, kind):
                first = _with_versions(state, who, kind, TOUCHED[kind][:1])
                yield Step("execute", who), with_writer(first, who, server="half")
            else:
                yield Step("execute", who), with_writer(state, who, server="failed")
        elif writer.at != "dead":
            second = _with_versions(state, who, kind, TOUCHED[kind][1:])
            yield Step("execute", who), with_writer(second, who, server="done")
        return
    yield Step("execute", who), _committed(state, setting, who, kind)


def _may_commit(state: State, who: int, kind: int) -> bool:
    writer = state.writers[who]
    current = tuple(state.tables[table].current for table in TOUCHED[kind])
    if current != writer.base or _txn(who, writer) in state.aborted:
        return False
    return kind != RESTORE or not _is_condemned(state.tables[0])


def _is_condemned(table: Table) -> bool:
    """Whether a vacuum has claimed the file that a restore of version 0 needs."""
    return FIRST in table.removed_up_to(max(table.condemned, 0)) and table.condemned > 0


def _committed(state: State, setting: Setting, who: int, kind: int) -> State:
    is_checked = setting.bug == "no lock" and state.writers[who].server == "checked"
    if not is_checked and not _may_commit(state, who, kind):
        return with_writer(state, who, server="failed")
    return with_writer(_with_versions(state, who, kind, TOUCHED[kind]), who, server="done")


def _with_versions(state: State, who: int, kind: int, tables: tuple[int, ...]) -> State:
    writer = state.writers[who]
    for number in tables:
        table = state.tables[number]
        base = writer.base[TOUCHED[kind].index(number)]
        own = {f"{who}"}
        match kind:
            case 0:
                live = table.history[base].live | own
            case 1:
                live = frozenset(own)
            case _:
                live = table.history[0].live
        # Without a lock another may have taken the number: the one who writes last wins.
        history = (*table.history[: base + 1], Version(_txn(who, writer), live))
        state = with_table(state, number, history=history)
    return state


def _publisher_steps(state: State, setting: Setting, who: int) -> Next:
    publisher = state.publishers[who]
    if publisher.at == "idle":
        for number in setting.mirrored:
            table = state.tables[number]
            is_free = table.lease is None or table.is_expired
            if table.published < table.current and is_free:
                after = with_table(state, number, lease=who, is_expired=False)
                yield Step("claim", who, number), _reading(after, setting, who, number, table.published + 1)
            if _checkpoint_of(table, setting) > table.checkpoint and is_free:
                written = {"checkpoint": _checkpoint_of(table, setting), "lease": None, "is_expired": False}
                yield Step("checkpoint", who, number), with_table(state, number, **written)
        return
    number, table = publisher.table, state.tables[publisher.table]
    if table.lease == who and not table.is_expired:
        yield Step("expire", who, number), with_table(state, number, is_expired=True)
    if setting.crashes:
        dead = with_publisher(state, who, Publisher())
        # Nobody alive has its lease: it is as good as expired.
        free = {"lease": None, "is_expired": False} if table.lease == who else {}
        yield Step("kill", who, number), with_table(dead, number, **free)
    is_early = setting.bug == "advance before put"
    if publisher.at == "claimed" and not is_early:
        yield Step("put", who, number), _put(state, setting, who)
    elif publisher.at == "put" and is_early:
        yield Step("put", who, number), with_publisher(_put(state, setting, who), who, Publisher())
    else:
        yield Step("advance", who, number), _advanced(state, setting, who)


def _checkpoint_of(table: Table, setting: Setting) -> int:
    return table.current if setting.bug == "checkpoint of the head" else table.published


def _reading(state: State, setting: Setting, who: int, number: int, version: int) -> State:
    """The publisher reads the commit that it puts next."""
    table = state.tables[number]
    if setting.bug == "put N without N-1":
        version = table.current
    return with_publisher(state, who, Publisher("claimed", number, version, table.history[version].txn))


def _put(state: State, setting: Setting, who: int) -> State:
    """Put N.json where there is none. What is there already is the same commit, or the table has diverged."""
    publisher = state.publishers[who]
    table = state.tables[publisher.table]
    log = list(table.log)
    if publisher.version >= len(log):
        log += [None] * (publisher.version - len(log)) + [publisher.txn]
    elif log[publisher.version] is None:
        log[publisher.version] = publisher.txn
    after = with_table(state, publisher.table, log=tuple(log))
    return with_publisher(after, who, publisher._replace(at="put"))


def _advanced(state: State, setting: Setting, who: int) -> State:
    """Record what was put, and go on with the next version if the lease is still its own."""
    publisher = state.publishers[who]
    number, table = publisher.table, state.tables[publisher.table]
    is_owner = table.lease == who
    is_next = table.published + 1 >= publisher.version > table.published
    if setting.bug == "advance before put":
        after = with_table(
            state, number, published=max(table.published, publisher.version), lease=None, is_expired=False
        )
        return with_publisher(after, who, publisher._replace(at="put"))
    if not (is_owner or is_next):
        return with_publisher(state, who, Publisher())
    published = max(table.published, publisher.version)
    after = with_table(state, number, published=published, is_expired=table.is_expired and not is_owner)
    if is_owner and published < table.current:
        return _reading(after, setting, who, number, published + 1)
    if is_owner:
        after = with_table(after, number, lease=None)
    return with_publisher(after, who, Publisher())


def _vacuum_steps(state: State, setting: Setting) -> Next:
    vacuum = state.vacuum
    if vacuum.at == "idle":
        for number in setting.mirrored:
            table = state.tables[number]
            horizon = table.current if setting.bug == "vacuum from the commit on" else table.published
            files = table.removed_up_to(horizon) & table.files
            if files:
                yield Step("plan", 0, number), state._replace(vacuum=Vacuum("planned", number, horizon, files))
        return
    table = state.tables[vacuum.table]
    if vacuum.at == "planned" and setting.bug != "vacuum without condemning":
        # What was added again since the plan stays.
        kept = vacuum._replace(at="condemned", files=vacuum.files - table.history[-1].live)
        after = with_table(state, vacuum.table, condemned=max(table.condemned, vacuum.horizon))
        yield Step("condemn", 0, vacuum.table), after._replace(vacuum=kept)
    else:
        after = with_table(state, vacuum.table, files=table.files - vacuum.files)
        yield Step("delete", 0, vacuum.table), after._replace(vacuum=Vacuum())
    if setting.crashes:
        yield Step("stop vacuum", 0, vacuum.table), state._replace(vacuum=Vacuum())
