"""Commits that are refused before the database hears of them, and those that only the lock can judge."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from uuid import uuid4

import pyarrow as pa
import pytest

import deltars
from deltars.errors import ValidationError, VersionConflict
from deltars.log.commit import Commit, TableCommit
from deltars.log.new_table import NO_VERSION
from deltars.protocol import Action, CommitInfo, Metadata, Protocol, Txn
from deltars.store.commit.writer import LogWriter
from deltars.store.database import Database
from deltars.uri import CatalogUri
from tests.store.conftest import OpenLog
from tests.support.log import FEATURES, Log, added, creation, metadata, protocol, removed, stats, vector
from tests.support.tap import Tap
from tests.support.together import Meanwhile

AT_ONCE_S = 2.0

APPEND_ONLY = {"delta.appendOnly": "true"}
PARTITIONED = metadata("id BIGINT, name STRING", partition_columns=["name"])

MALFORMED: dict[str, tuple[list[Any], int, str]] = {
    "wrong type": ([added("a", size="1")], 0, "size"),
    "missing value": ([added("a"), added("b", modification_time=None)], 1, "modification_time"),
    "negative size": ([added("a", size=-1)], 0, "size"),
    "broken statistics": ([added("a"), added("b", stats="{")], 1, "stats"),
    "no action": ([added("a"), "add"], 1, ""),
    "path with ..": ([added("../a")], 0, "path"),
    "absolute path": ([added("a"), removed("/etc/passwd")], 1, "path"),
    "control character": ([added("a\n")], 0, "path"),
    "two adds": ([added("a"), added("a")], 1, "path"),
    "two removes": ([removed("a"), removed("a")], 1, "path"),
    "add and remove": ([added("a"), removed("a")], 1, "path"),
    "two metadata": ([metadata(), metadata()], 1, "metaData"),
    "two protocols": ([protocol(), protocol()], 1, "protocol"),
    "two txn of one application": ([Txn(app_id="a", version=1), Txn(app_id="a", version=2)], 1, "app_id"),
    "broken schema": ([metadata(schema_string="{")], 0, "schema_string"),
    "reader 3 without writer 7": ([Protocol(min_reader_version=3, min_writer_version=2)], 0, "protocol"),
    "unknown feature": ([protocol([*FEATURES, "madeUp"])], 0, "protocol"),
    "commitInfo": ([CommitInfo(operation="WRITE")], 0, "commitInfo"),
}


@pytest.mark.every_case_on("sqlite")
@pytest.mark.requirement("W-14")
@pytest.mark.parametrize(("actions", "position", "field"), MALFORMED.values(), ids=MALFORMED)
def test_malformed_action_is_refused_although_no_connection_is_to_be_had(
    backend: str, tmp_path: Path, actions: list[Any], position: int, field: str
) -> None:
    writer = LogWriter(_unreachable(backend, tmp_path))
    table = TableCommit(uuid4(), 3, actions, "WRITE")
    started = time.monotonic()
    with pytest.raises(ValidationError) as caught:
        writer.commit(Commit(uuid4(), [table]), timeout_s=60)
    assert time.monotonic() - started < AT_ONCE_S
    assert (caught.value.action, caught.value.field or "") == (position, field)
    assert (caught.value.stage, caught.value.table_id) == ("validate", str(table.table_id))
    assert f"action {position} (" in str(caught.value)


@pytest.mark.requirement("W-14")
@pytest.mark.parametrize("missing", ["metaData", "protocol"])
def test_version_0_without_what_a_table_needs_is_refused_without_a_connection(
    backend: str, tmp_path: Path, missing: str
) -> None:
    writer = LogWriter(_unreachable(backend, tmp_path))
    actions = [protocol()] if missing == "metaData" else [metadata()]
    with pytest.raises(ValidationError, match=f"must carry {missing}") as caught:
        writer.commit(Commit(uuid4(), [TableCommit(uuid4(), NO_VERSION, actions, "WRITE")]), timeout_s=60)
    assert caught.value.field == missing


def _unreachable(backend: str, tmp_path: Path) -> Database:
    """A database that can never be opened."""
    (tmp_path / "file").touch()
    uri = {
        "postgres": CatalogUri("postgres", "none", "none"),
        "sqlite": CatalogUri("sqlite", str(tmp_path / "file" / "catalog.db")),
        "duckdb": CatalogUri("duckdb", str(tmp_path / "file" / "catalog.duckdb")),
    }[backend]
    return Database(uri, pool_size=1, pool_timeout_s=60)


@pytest.mark.requirement("W-14")
def test_malformed_action_is_refused_at_once_although_the_pool_is_exhausted(open_log: OpenLog, tap: Tap) -> None:
    log = open_log(tap=tap, pool_size=1).create()
    with log.catalog._session.database.read(), tap.recording() as statements:
        started = time.monotonic()
        with pytest.raises(ValidationError):
            log.commit([added("a", size=-1)], version=1)
        assert time.monotonic() - started < AT_ONCE_S
    assert statements == []
    assert log.append("a").version == 1


@pytest.mark.every_case_on("sqlite")
@pytest.mark.requirement("D-09")
@pytest.mark.parametrize(
    ("path", "why"),
    [
        ("../../etc/passwd", "the path has a .. segment"),
        ("a/%2e%2e/b", "the path has a .. segment"),
        ("/a", "the path is absolute"),
        ("s3://bucket/a", "the path is absolute"),
        ("a\x00b", "the path has a control character"),
        ("a\rb", "the path has a control character"),
        ("", "the path is empty"),
        ("_delta_log/00000000000000000000.json", "the path is inside _delta_log"),
    ],
)
def test_illegal_path_is_refused(log: Log, path: str, why: str) -> None:
    before = log.dump()
    columns = pa.table(
        {"path": [path], "partition_values": ["{}"], "size": [1], "modification_time": [1], "data_change": [True]}
    )
    for actions in ([added(path)], [removed(path)], columns):
        with pytest.raises(ValidationError, match=why) as caught:
            log.commit(actions)
        assert caught.value.field == "path"
    assert log.dump() == before


@pytest.mark.requirement("D-10")
def test_partition_values_must_be_those_of_the_table_s_partition_columns(open_log: OpenLog) -> None:
    log = open_log().create("id BIGINT, day DATE, city STRING", partition_columns=["day", "city"])
    before = log.dump()
    wrong: list[dict[str, str | None]] = [{}, {"day": "2024-01-01"}, {"day": "", "city": "", "id": "1"}, {"Day": ""}]
    for values in wrong:
        with pytest.raises(ValidationError, match="partitioned by city, day") as caught:
            log.commit([added("ok", partition_values={"day": None, "city": "x"}), added("a", partition_values=values)])
        assert (caught.value.action, caught.value.field) == (1, "partition_values")
    assert log.dump() == before
    log.commit([added("a", partition_values={"day": None, "city": ""})])
    assert log.live() == ["a"]


REFUSED_PROTOCOLS: dict[str, tuple[Protocol, str]] = {
    "downgrade": (Protocol(min_reader_version=1, min_writer_version=2), "may not go down"),
    "dropped feature": (protocol(FEATURES[:-1]), "may not be dropped: rowTracking"),
    "unsupported feature": (protocol([*FEATURES, "checkpointProtection"]), "checkpointProtection is not supported"),
    "unknown feature": (protocol([*FEATURES, "madeUp"]), "madeUp is not supported"),
    "reader 3 without writer 7": (
        Protocol(min_reader_version=3, min_writer_version=6, reader_features=["deletionVectors"]),
        "needs writer version 7",
    ),
}


@pytest.mark.every_case_on("sqlite")
@pytest.mark.requirement("W-15")
@pytest.mark.parametrize(("new", "why"), REFUSED_PROTOCOLS.values(), ids=REFUSED_PROTOCOLS)
def test_incompatible_protocol_is_refused_with_the_reason(log: Log, new: Protocol, why: str) -> None:
    before = log.dump()
    with pytest.raises(ValidationError, match=why) as caught:
        log.commit([added("a"), new])
    assert (caught.value.action, caught.value.field, caught.value.stage) == (1, "protocol", "validate")
    assert log.dump() == before
    assert log.commit([protocol([*FEATURES, "checkConstraints"])]).version == 1


@pytest.mark.requirement("W-15")
def test_table_that_another_program_made_too_new_is_not_written_to(open_log: OpenLog) -> None:
    log = open_log().create(features=FEATURES[:4])
    with pytest.raises(ValidationError, match="needs the table feature deletionVectors"):
        log.commit([added("a", deletion_vector=vector(), stats=stats())])
    with pytest.raises(ValidationError, match="needs the table feature changeDataFeed"):
        log.commit([metadata(configuration={"delta.enableChangeDataFeed": "true"})])


def test_append_only_table_loses_no_data(open_log: OpenLog) -> None:
    log = open_log().create(configuration=APPEND_ONLY)
    log.append("a")
    with pytest.raises(ValidationError, match="append-only"):
        log.commit([removed("a")])
    log.commit([removed("a", data_change=False), added("b", data_change=False)])
    assert log.live() == ["b"]


# -- a table that has changed since ------------------------------------------------------------------------------------

CHANGES: dict[str, tuple[list[Action], list[Action], str]] = {
    "partitioned": ([PARTITIONED], [added("a")], "partitioned by name"),
    "append-only": ([metadata(configuration=APPEND_ONLY)], [removed("old")], "append-only"),
    "feature": ([protocol([*FEATURES, "checkConstraints"])], [protocol()], "may not be dropped: checkConstraints"),
    "row tracking": (
        [metadata(configuration={"delta.enableRowTracking": "true"})],
        [added("a")],
        "needs numRecords",
    ),
}
"""What another writer changes, what a writer who does not know yet then tries, and why that is refused."""


def _two_writers(open_log: OpenLog) -> tuple[Log, Log]:
    """Both know the table as it is at version 1."""
    log = open_log().create()
    log.append("old")
    other = open_log(name="other")
    other.table_id, other.name = log.table_id, log.name
    with pytest.raises(VersionConflict):
        other.append(version=1)
    return log, other


@pytest.mark.every_case_on("sqlite")
@pytest.mark.parametrize(("change", "tried", "why"), CHANGES.values(), ids=CHANGES)
def test_state_that_another_writer_changed_is_judged_anew_under_the_lock(
    open_log: OpenLog, change: list[Action], tried: list[Action], why: str
) -> None:
    log, stale = _two_writers(open_log)
    log.commit(change)
    before = log.dump()
    with pytest.raises(ValidationError, match=why) as caught:
        stale.commit(tried, version=3)
    assert caught.value.stage == "write"
    assert log.dump() == before
    # From here on it knows.
    with pytest.raises(ValidationError, match=why) as caught:
        stale.commit(tried, version=3)
    assert caught.value.stage == "validate"


def test_state_that_changes_while_a_writer_waits_for_the_lock_is_judged_anew(open_log: OpenLog, tap: Tap) -> None:
    log = open_log(tap=tap).create()
    other = open_log(name="other")
    other.table_id = log.table_id
    with tap.holding("dl_table_versions (") as hold:
        first = Meanwhile(log.commit, [PARTITIONED], version=1)
        hold.wait_until_reached()
        waiting = Meanwhile(other.append, "a", version=2)
        time.sleep(0.4)
        assert waiting.is_running
        hold.release()
        first.result()
        error = waiting.error()
    assert isinstance(error, ValidationError)
    assert "partitioned by name" in str(error)
    assert log.version == 1


FITTING: dict[str, Callable[[], list[Action]]] = {
    "partitioned": lambda: [added("a", partition_values={"name": "x"})],
    "not partitioned any more": lambda: [added("a", partition_values={})],
    "feature": lambda: [added("a", deletion_vector=vector(), stats=stats())],
}


@pytest.mark.every_case_on("sqlite")
@pytest.mark.parametrize("case", FITTING)
def test_commit_that_fits_the_table_as_it_is_now_is_not_refused_for_what_it_was(open_log: OpenLog, case: str) -> None:
    was, becomes = {
        "partitioned": (creation(), [PARTITIONED]),
        "not partitioned any more": ([protocol(), PARTITIONED], [metadata()]),
        "feature": ([protocol(FEATURES[:4]), metadata()], [protocol()]),
    }[case]
    log = open_log()
    log.commit(was, version=0)
    stale = open_log(name="other")
    stale.table_id = log.table_id
    stale.commit([], version=1)
    log.commit(becomes, version=2)
    assert stale.commit(FITTING[case](), version=3).version == 3


def test_table_that_was_empty_when_last_seen_can_be_written_to(open_log: OpenLog) -> None:
    log = open_log()
    stale = open_log(name="other")
    stale.table_id = log.table_id
    with pytest.raises(VersionConflict):
        stale.append(version=1)
    log.commit(creation(), version=0)
    assert stale.append("a", version=1).version == 1


def test_metadata_of_one_commit_holds_for_the_next_of_the_same_writer(log: Log) -> None:
    log.commit([PARTITIONED])
    with pytest.raises(ValidationError, match="partitioned by name"):
        log.append("a")
    log.commit([added("a", partition_values={"name": None})])
    assert isinstance(log.catalog._session.reader.snapshot(log.table_id).metadata, Metadata)


def test_refused_commit_leaves_what_the_writer_remembers(log: Log) -> None:
    """The metadata of a commit that failed is not the table's."""
    with pytest.raises(VersionConflict):
        log.commit([PARTITIONED], version=5)
    with pytest.raises(ValidationError):
        log.commit([PARTITIONED, removed("never"), added("a", partition_values={"name": ""})])
    assert log.append("a").version == 1


def test_writer_of_a_dead_database_says_so(open_log: OpenLog, tap: Tap, backend: str) -> None:
    log = open_log(tap=tap).create()
    with tap.failing(1), pytest.raises(deltars.DatabaseError):
        log.append("a", version=1)
    assert log.append("a", version=1).version == 1
