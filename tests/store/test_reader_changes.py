"""What commits did: version by version, and transaction by transaction."""

from __future__ import annotations

from typing import Any
from uuid import uuid4

import pytest

import deltars
from deltars.errors import TableNotFound, ValidationError, VersionNotFound
from deltars.log.commit import Commit, TableCommit
from deltars.protocol import AddFile, CdcFile, DomainMetadata, Metadata, Protocol, RemoveFile, Txn
from deltars.store.read import committed_versions
from tests.store.conftest import OpenLog
from tests.support.log import Log, added, creation, every_kind, removed


@pytest.fixture
def reader(log: Log) -> deltars.SqlTxnLogReader:
    return deltars.SqlTxnLogReader(log.catalog)


def test_changes_tell_every_action_of_every_version_in_order(log: Log, reader: deltars.SqlTxnLogReader) -> None:
    log.append("old", committer="etl", operation_params={"mode": "Append"})
    whole = every_kind(2, gone=["old"], files=3)
    log.commit(whole)
    first, second, third = reader.changes(log.table_id, 0)
    assert list(first.actions) == creation()
    assert [version.version for version in (first, second, third)] == [0, 1, 2]
    assert (second.operation, second.committer, second.operation_params) == ("WRITE", "etl", {"mode": "Append"})
    assert list(second.actions) == [added("old")]
    assert list(third.actions) == whole
    kinds = {AddFile, RemoveFile, CdcFile, Metadata, Protocol, Txn, DomainMetadata}
    assert {type(action) for action in third.actions} == kinds
    history = {entry.version: entry for entry in reader.history(log.table_id)}
    for version in (first, second, third):
        entry = history[version.version]
        assert (version.txn_id, version.commit_ts, version.in_commit_timestamp) == (
            entry.txn_id,
            entry.commit_ts,
            entry.in_commit_timestamp,
        )


def test_changes_are_of_the_versions_asked_for_both_ends_included(
    log: Log, reader: deltars.SqlTxnLogReader, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(committed_versions, "VERSIONS_AT_ONCE", 2)
    for number in range(1, 8):
        log.append(f"{number}")

    def paths(*versions: Any) -> list[list[str]]:
        return [[action.path for action in change.actions] for change in reader.changes(log.table_id, *versions)]  # type: ignore[union-attr]

    assert paths(2, 6) == [["2"], ["3"], ["4"], ["5"], ["6"]]
    assert paths(6) == [["6"], ["7"]]
    assert paths(7, 7) == [["7"]]


def test_changes_are_read_as_they_are_asked_for(
    log: Log, reader: deltars.SqlTxnLogReader, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(committed_versions, "VERSIONS_AT_ONCE", 1)
    log.append("a")
    log.append("b")
    coming = reader.changes(log.table_id, 0)
    assert next(coming).version == 0
    # No connection is held meanwhile, and what is committed later does not belong to it.
    log.append("c")
    assert [change.version for change in coming] == [1, 2]


def test_changes_of_what_is_not_there_are_refused_at_once(log: Log, reader: deltars.SqlTxnLogReader) -> None:
    log.append("a")
    for versions in ((0, 2), (2,), (-1, 1)):
        with pytest.raises(VersionNotFound, match="versions 0 to 1"):
            reader.changes(log.table_id, *versions)
    with pytest.raises(TableNotFound):
        reader.changes(uuid4(), 0)


@pytest.mark.parametrize("versions", [("0",), (0, 1.0), (False,), (0, "now")])
@pytest.mark.backends("sqlite")
def test_changes_of_what_is_no_version_are_refused(
    log: Log, reader: deltars.SqlTxnLogReader, versions: tuple[Any, ...]
) -> None:
    with pytest.raises(ValidationError, match=r"a version is a whole number, not .*history\(\) lists the versions"):
        reader.changes(log.table_id, *versions)


@pytest.mark.parametrize("txn_id", ["", " ", "7d0f2c0e-3f0a-4c9e-9a53-6a3b1a0c9d1", 5, None])
@pytest.mark.backends("sqlite")
def test_what_is_no_transaction_id_is_refused(log: Log, reader: deltars.SqlTxnLogReader, txn_id: Any) -> None:
    for ask in (reader.transaction, log.catalog.transaction):
        with pytest.raises(ValidationError, match=r"id is a UUID or a text|looks like a UUID and is not one"):
            ask(txn_id)


def test_transaction_is_found_by_the_text_of_its_id(log: Log, reader: deltars.SqlTxnLogReader) -> None:
    [entry] = reader.history(log.table_id)
    found = reader.transaction(str(entry.txn_id))
    assert found is not None
    assert found.txn_id == log.catalog.transaction(str(entry.txn_id)).txn_id == entry.txn_id


def test_transaction_tells_what_it_did_to_each_of_its_tables(open_log: OpenLog) -> None:
    log, other = open_log().create(), open_log(name="other").create()
    log.append("old")
    txn_id = uuid4()
    parts = [
        TableCommit(log.table_id, 1, [added("a"), removed("old")], "MERGE"),
        TableCommit(other.table_id, 0, [added("b")], "WRITE"),
    ]
    committed = log.catalog._session.commit(Commit(txn_id, parts, committer="etl", user_metadata="nightly"))
    log.append("later")
    found = deltars.SqlTxnLogReader(log.catalog).transaction(txn_id)
    assert found is not None
    assert (found.txn_id, found.commit_ts) == (txn_id, committed.commit_ts)
    assert (found.committer, found.user_metadata) == ("etl", "nightly")
    assert {table_id: (part.version, list(part.actions)) for table_id, part in found.tables.items()} == {
        log.table_id: (2, [added("a"), removed("old")]),
        other.table_id: (1, [added("b")]),
    }
    assert found.tables[log.table_id].operation == "MERGE"
    assert found.tables[log.table_id].participants == {str(log.table_id): 2, str(other.table_id): 1}


def test_transaction_that_did_not_commit_did_nothing(log: Log, reader: deltars.SqlTxnLogReader) -> None:
    txn_id = uuid4()
    assert reader.transaction(txn_id) is None
    assert log.catalog.resolve(txn_id) is None  # from now on it never can
    assert reader.transaction(txn_id) is None


def test_versions_of_a_transaction_over_thousands_of_tables_are_found(
    log: Log, reader: deltars.SqlTxnLogReader
) -> None:
    log.append("a")
    [entry] = reader.history(log.table_id, limit=1)
    gone = {str(uuid4()): 1 for _ in range(2_000)}
    with log.catalog._session.database.read() as connection:
        found = committed_versions.versions_of(connection, entry.txn_id, {**gone, str(log.table_id): 1})
    assert found == {log.table_id: 1}
