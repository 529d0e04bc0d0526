"""The writer's interface: what it takes, what it answers, and that another store of the log could have it too."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import pyarrow as pa
import pytest

import deltars
from deltars import CommitResult, SqlTxnLogWriter, TxnLogWriter
from deltars.errors import ValidationError, VersionConflict
from deltars.log.transaction_id import TxnId, as_txn_id
from deltars.protocol import Action
from tests.support.log import added, creation


@pytest.fixture
def registered(tmp_path: Path) -> Iterator[tuple[SqlTxnLogWriter, UUID]]:
    """A writer, and a table that has no version yet."""
    with deltars.connect(f"deltasql://sqlite/{tmp_path / 'catalog.db'}", warehouse=str(tmp_path)) as catalog:
        yield SqlTxnLogWriter(catalog), catalog.register_table("events", str(tmp_path / "events")).id


class ListWriter:
    """A log in memory: nothing in the interface asks for SQL."""

    def __init__(self) -> None:
        self.versions: dict[str, list[Sequence[Action] | pa.Table]] = {}

    def commit(
        self,
        table_id: UUID | str,
        version: int,
        actions: Sequence[Action] | pa.Table,
        *,
        operation: str,
        operation_params: Mapping[str, Any] | None = None,
        committer: str | None = None,
        txn_id: TxnId | None = None,
    ) -> CommitResult:
        log = self.versions.setdefault(str(table_id), [])
        if version != len(log):
            raise VersionConflict(expected=version - 1, actual=len(log) - 1, table_id=table_id)
        log.append(actions)
        return CommitResult(UUID(str(table_id)), version, uuid4() if txn_id is None else as_txn_id(txn_id), 0)


def _create_and_append(writer: TxnLogWriter, table_id: UUID) -> list[int]:
    """What a program does that knows the interface and nothing else."""
    first = writer.commit(table_id, 0, creation(), operation="CREATE TABLE")
    second = writer.commit(str(table_id), 1, [added("a")], operation="WRITE", operation_params={}, committer="ada")
    with pytest.raises(VersionConflict) as caught:
        writer.commit(table_id, 1, [added("b")], operation="WRITE", txn_id=uuid4())
    assert (caught.value.expected, caught.value.actual) == (0, 1)
    return [first.version, second.version]


@pytest.mark.requirement("D-01")
def test_program_written_for_the_interface_works_with_the_sql_writer(
    registered: tuple[SqlTxnLogWriter, UUID],
) -> None:
    writer, table_id = registered
    checked_by_the_type_checker: TxnLogWriter = writer
    assert _create_and_append(checked_by_the_type_checker, table_id) == [0, 1]


@pytest.mark.requirement("D-01")
def test_program_written_for_the_interface_works_with_a_store_that_is_not_sql() -> None:
    checked_by_the_type_checker: TxnLogWriter = ListWriter()
    assert _create_and_append(checked_by_the_type_checker, uuid4()) == [0, 1]


@pytest.mark.requirement("D-01")
def test_sql_writer_takes_all_that_the_interface_names() -> None:
    wanted = inspect.signature(TxnLogWriter.commit).parameters
    offered = inspect.signature(SqlTxnLogWriter.commit).parameters
    for name, parameter in wanted.items():
        assert (offered[name].kind, offered[name].annotation) == (parameter.kind, parameter.annotation)
    extra = offered.keys() - wanted.keys()
    assert all(offered[name].default is not inspect.Parameter.empty for name in extra)


def test_result_tells_table_version_transaction_and_time(registered: tuple[SqlTxnLogWriter, UUID]) -> None:
    writer, table_id = registered
    txn_id = uuid4()
    result = writer.commit(table_id, 0, creation(), operation="CREATE TABLE", txn_id=txn_id)
    assert (result.table_id, result.version, result.txn_id) == (table_id, 0, txn_id)
    assert result.commit_ts > 1_700_000_000_000_000
    assert writer.commit(table_id, 1, [], operation="WRITE").txn_id != txn_id


def test_table_may_be_named_by_the_text_of_its_id(registered: tuple[SqlTxnLogWriter, UUID]) -> None:
    writer, table_id = registered
    assert writer.commit(str(table_id).upper(), 0, creation(), operation="CREATE TABLE").table_id == table_id


@pytest.mark.parametrize("table_id", ["events", "", "1234", None, 7])
def test_what_is_no_id_is_refused(registered: tuple[SqlTxnLogWriter, UUID], table_id: Any) -> None:
    with pytest.raises(ValidationError, match="is not a table id") as caught:
        registered[0].commit(table_id, 0, creation(), operation="CREATE TABLE")
    assert caught.value.field == "table_id"


@pytest.mark.parametrize("version", [-1, -(2**70), "0", 0.0, None, True])
def test_what_is_no_version_is_refused(registered: tuple[SqlTxnLogWriter, UUID], version: Any) -> None:
    with pytest.raises(ValidationError, match="version must be 0 or more") as caught:
        registered[0].commit(registered[1], version, creation(), operation="CREATE TABLE")
    assert caught.value.field == "version"


def test_version_past_64_bits_is_a_conflict(registered: tuple[SqlTxnLogWriter, UUID]) -> None:
    writer, table_id = registered
    writer.commit(table_id, 0, creation(), operation="CREATE TABLE")
    with pytest.raises(VersionConflict):
        writer.commit(table_id, 2**70, [added("a")], operation="WRITE")


def test_operation_must_be_named(registered: tuple[SqlTxnLogWriter, UUID]) -> None:
    with pytest.raises(ValidationError, match="name of its operation") as caught:
        registered[0].commit(registered[1], 0, creation(), operation="")
    assert caught.value.field == "operation"


def test_actions_may_be_any_iterable(registered: tuple[SqlTxnLogWriter, UUID]) -> None:
    writer, table_id = registered
    writer.commit(table_id, 0, tuple(creation()), operation="CREATE TABLE")
    actions: Any = (added(path) for path in "ab")
    assert writer.commit(table_id, 1, actions, operation="WRITE").version == 1


def test_column_of_the_wrong_type_is_refused(registered: tuple[SqlTxnLogWriter, UUID]) -> None:
    writer, table_id = registered
    writer.commit(table_id, 0, creation(), operation="CREATE TABLE")
    with pytest.raises(ValidationError, match="the column size is of type string") as caught:
        writer.commit(table_id, 1, pa.table({"path": ["a"], "size": ["1"]}), operation="WRITE")
    assert caught.value.field == "size"
