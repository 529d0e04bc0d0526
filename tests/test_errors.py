"""Errors: one family, each of which can be shown, read by a program and sent to another process."""

from __future__ import annotations

import builtins
import inspect
import pickle
from collections.abc import Iterator
from typing import Any
from uuid import UUID

import pytest

import deltars
from deltars import errors
from deltars.errors import DeltarsError

TXN_ID = UUID("00000000-0000-0000-0000-00000000002a")
TABLE_ID = UUID("00000000-0000-0000-0000-000000000001")

OWN_FIELDS: dict[str, Any] = {
    "action": 3,
    "field": "path",
    "condition": "DELTA_FEATURE_DROP_FEATURE_NOT_PRESENT",
    "position": 4,
    "limit": 10,
    "asked": 11,
    "expected": 4,
    "actual": 5,
    "winning_version": 5,
    "retryable": True,
    "sqlstate": "40001",
    "constraint": "pk_dl_tables",
    "path": "part-0.parquet",
    "paths": ("part-0.parquet",),
    "count": 12,
    "error": "no route to host",
    "features": ("variantShredding",),
    "earliest": 0,
    "latest": 6,
}


def family(cls: type[DeltarsError] = DeltarsError) -> Iterator[type[DeltarsError]]:
    yield cls
    for child in cls.__subclasses__():
        yield from family(child)


# Others are subclasses for one caller: those of `deltars.tables` are Spark's errors as well.
EVERY_ERROR = sorted({cls for cls in family() if cls.__module__ == errors.__name__}, key=lambda cls: cls.__name__)


def build(cls: type[DeltarsError]) -> DeltarsError:
    """An error of this class with each of its fields set."""
    own = {name: OWN_FIELDS[name] for name in inspect.signature(cls).parameters if name in OWN_FIELDS}
    where: dict[str, Any] = {
        "table": "features",
        "table_id": TABLE_ID,
        "version": 7,
        "txn_id": TXN_ID,
        "stage": "write",
        "hint": "Retry.",
    }
    return cls("it went wrong", **own, **where)


@pytest.mark.parametrize("cls", EVERY_ERROR)
def test_every_error_survives_pickling_with_its_fields(cls: type[DeltarsError]) -> None:
    error = build(cls)
    copy = pickle.loads(pickle.dumps(error))
    assert type(copy) is cls
    assert copy.__dict__ == error.__dict__
    assert (str(copy), repr(copy), copy.args) == (str(error), repr(error), error.args)
    assert (copy.table_id, copy.txn_id, copy.version, copy.stage) == (str(TABLE_ID), TXN_ID, 7, "write")


@pytest.mark.parametrize("cls", EVERY_ERROR)
def test_every_error_says_what_where_and_what_to_do(cls: type[DeltarsError]) -> None:
    shown = str(build(cls))
    assert shown == f"it went wrong [table features, version 7, transaction {TXN_ID}, stage write]. Retry."


@pytest.mark.parametrize("cls", EVERY_ERROR)
def test_every_error_is_public_and_has_a_sentence(cls: type[DeltarsError]) -> None:
    assert getattr(deltars, cls.__name__) is cls
    assert (cls.__doc__ or "").endswith(".")


def test_error_without_a_message_speaks_with_its_docstring() -> None:
    assert str(errors.TransactionClosed()) == "This transaction is finished: begin a new one."


def test_time_out_is_a_time_out_to_everybody() -> None:
    with pytest.raises(builtins.TimeoutError):
        raise deltars.TimeoutError
    assert deltars.TimeoutError("x").retryable


def test_conflict_names_both_versions() -> None:
    conflict = errors.VersionConflict(table="features", expected=4, actual=6)
    assert "at version 6, the commit expected version 4" in str(conflict)
    assert conflict.retryable


def test_named_conflict_is_a_version_conflict_and_says_which() -> None:
    conflict = errors.ConcurrentAppend(table="features", expected=4, actual=6, winning_version=5)
    assert isinstance(conflict, errors.VersionConflict)
    assert str(conflict).startswith("A concurrent commit added files that this transaction would have read;")
    assert (conflict.expected, conflict.actual, conflict.winning_version, conflict.retryable) == (4, 6, 5, True)


def test_located_adds_what_is_not_known_and_keeps_what_is() -> None:
    error = errors.DatabaseError("x", table="features")
    assert error.located(table="other", stage="lock") is error
    assert (error.table, error.stage) == ("features", "lock")


def test_block_adds_where_an_error_happened_and_keeps_its_cause() -> None:
    cause = ValueError("no number")
    with pytest.raises(errors.DatabaseError) as raised, errors.located(table="features", version=3, stage="lock"):
        raise errors.DatabaseError("x", stage="write") from cause
    assert (raised.value.table, raised.value.version, raised.value.stage) == ("features", 3, "write")
    assert raised.value.__cause__ is cause
