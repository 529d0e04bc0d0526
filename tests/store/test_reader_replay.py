"""Random histories: the snapshot at every version is what a replay of the actions in plain Python gives."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import count
from typing import Any, TypeAlias

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import deltars
from deltars.errors import VersionNotFound
from deltars.log.snapshot import Snapshot
from deltars.protocol import Action, AddFile, DomainMetadata, Metadata, Protocol, RemoveFile, Txn
from tests.store.conftest import OpenLog
from tests.support.log import FEATURES, Log, added, creation, metadata, protocol, removed, stats, vector
from tests.support.soak import is_soak

PATHS = ("a", "b", "c", "d=1/e")
NAMES = ("x", "y")
MAX_EXAMPLES = 200 if is_soak() else 8

FileKey: TypeAlias = tuple[str, str]


@dataclass
class Replayed:
    """A table, as its actions say: the newest word on each thing counts."""

    metadata: Metadata | None = None
    protocol: Protocol | None = None
    files: dict[FileKey, AddFile] = field(default_factory=dict)
    txns: dict[str, Txn] = field(default_factory=dict)
    domains: dict[str, DomainMetadata] = field(default_factory=dict)

    def after(self, actions: list[Action]) -> Replayed:
        new = Replayed(self.metadata, self.protocol, dict(self.files), dict(self.txns), dict(self.domains))
        for action in actions:
            match action:
                case Metadata():
                    new.metadata = action
                case Protocol():
                    new.protocol = action
                case Txn():
                    new.txns[action.app_id] = action
                case DomainMetadata():
                    new.domains.pop(action.domain, None)
                    if not action.removed:
                        new.domains[action.domain] = action
                case RemoveFile():
                    new.files.pop(action.key, None)
                case AddFile():
                    new.files[action.key] = action
        return new


def seen(snapshot: Snapshot) -> Replayed:
    files = [_file(row) for row in snapshot.files.to_pylist()]
    keyed = {file.key: file for file in files}
    assert len(keyed) == len(files), "a file is there twice"
    return Replayed(snapshot.metadata, snapshot.protocol, keyed, dict(snapshot.txns), dict(snapshot.domains))


def _file(row: dict[str, Any]) -> AddFile:
    for name in ("partition_values", "tags", "deletion_vector"):
        row[name] = None if row[name] is None else msgspec.json.decode(row[name])
    dv = row.pop("deletion_vector")
    fields = {name: row[name] for name in AddFile.__struct_fields__ if name in row}
    kept = msgspec.convert(dv, type(vector())) if dv is not None else None
    return AddFile(**fields, deletion_vector=kept)


@st.composite
def histories(draw: st.DrawFn) -> list[list[Action]]:
    """Commits after version 0: files come, go, come back and are replaced; the rest changes now and then."""
    live: set[FileKey] = set()
    commits: list[list[Action]] = []
    for number in range(draw(st.integers(1, 7))):
        actions: list[Action] = []
        for path in draw(st.lists(st.sampled_from(PATHS), unique=True)):
            # Of a path at most one add and one remove in a commit, as the protocol has it.
            mine = sorted(key for key in live if key[0] == path)
            gone = draw(st.sampled_from([None, *mine]))
            offset = draw(st.sampled_from([None, 0, 1, 2]))
            dv = None if offset in (None, 0) else vector(offset)
            come = None if offset is None else added(path, size=number, stats=stats(number), deletion_vector=dv)
            if gone is not None and (come is None or come.key != gone):
                old = next((vector(i) for i in (1, 2) if vector(i).unique_id == gone[1]), None)
                actions.append(removed(path, deletion_vector=old))
                live.discard(gone)
            if come is not None:
                actions.append(come)
                live.add(come.key)
        if draw(st.booleans()):
            app = draw(st.sampled_from(NAMES))
            actions.append(Txn(app_id=app, version=draw(st.integers(0, 3)), last_updated=number))
        if draw(st.booleans()):
            name, is_removed = draw(st.sampled_from(NAMES)), draw(st.booleans())
            actions.append(DomainMetadata(domain=name, configuration=str(number), removed=is_removed))
        if draw(st.integers(0, 3)) == 0:
            actions.append(metadata(description=f"version {number + 1}"))
        if draw(st.integers(0, 5)) == 0:
            actions.append(protocol((*FEATURES, "checkConstraints")))
        commits.append(draw(st.permutations(actions)))
    return commits


@pytest.fixture
def new_table(open_log: OpenLog) -> Callable[[], Log]:
    """Another table of the same catalog."""
    first, names = open_log(), count()
    return lambda: Log(first.catalog, first.uri, f"t{next(names)}")


@given(history=histories())
@settings(max_examples=MAX_EXAMPLES, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_snapshot_at_every_version_is_the_replay_of_its_actions(
    new_table: Callable[[], Log], history: list[list[Action]]
) -> None:
    log = new_table()
    reader = deltars.SqlTxnLogReader(log.catalog)
    commits = [creation(), *history]
    expected = [Replayed().after(commits[0])]
    early: list[Snapshot] = []
    for version, actions in enumerate(commits):
        log.commit(actions, version=version)
        if version:
            expected.append(expected[-1].after(actions))
        # Opened at once, looked into at the end: what comes later must not show.
        early.append(reader.snapshot(log.table_id))
    for version, replayed in enumerate(expected):
        assert seen(reader.snapshot(log.table_id, version)) == replayed
        assert seen(early[version]) == replayed
        assert reader.snapshot(log.table_id, timestamp=early[version].timestamp).version == version
    assert [list(change.actions) for change in reader.changes(log.table_id, 0)] == commits
    with pytest.raises(VersionNotFound):
        reader.snapshot(log.table_id, len(commits))
