"""Ids of transactions that are texts of the user's own, and writes that are skipped by an application's version."""

from __future__ import annotations

import logging
from datetime import UTC, datetime
from uuid import UUID, uuid4, uuid5

import pyarrow as pa
import pytest
from click.testing import CliRunner
from prometheus_client import CollectorRegistry

import deltars
from deltars import observe
from deltars.cli import main
from deltars.errors import TransactionNotFound, ValidationError
from deltars.log.transaction_id import NAMESPACE, as_txn_id
from deltars.observe.metrics import Metrics
from deltars.transaction.result import SkippedWrite
from tests.support.lake import Lake
from tests.support.log import added

FRAME = pa.table({"id": [1]})


# -- texts -------------------------------------------------------------------------------------------------------------


def test_text_is_an_id_that_never_changes() -> None:
    known = uuid4()
    assert as_txn_id(known) == as_txn_id(str(known)) == as_txn_id(str(known).upper()) == as_txn_id(known.hex) == known
    assert as_txn_id("daily-2026-01-30") == uuid5(NAMESPACE, "daily-2026-01-30")
    assert as_txn_id("daily-2026-01-30") == UUID("c6e706de-d1ff-50d2-9cfe-af67ac4550fb")
    assert as_txn_id("Daily-2026-01-30") != as_txn_id("daily-2026-01-30")


@pytest.mark.parametrize(
    "text", ["", "  ", "\ud800", "7d0f2c0e-3f0a-4c9e-9a53-6a3b1a0c9d1", "7d0f2c0e" * 4 + "1", 5, None]
)
def test_what_is_no_id_is_refused(text: str) -> None:
    with pytest.raises(ValidationError) as caught:
        as_txn_id(text)
    assert caught.value.field == "txn_id"


def test_transaction_of_a_text_is_done_once_and_found_by_it_everywhere(lake: Lake) -> None:
    for _ in range(2):
        with lake.begin(txn_id="daily-2026-01-30") as tx:
            tx.write("a", FRAME)
            tx.write("b", FRAME)
    with lake.begin(txn_id="daily-2026-01-29") as late:
        late.write("a", FRAME)
        late.write("b", FRAME)
    assert lake.versions == {"a": 2, "b": 2, "c": 0}
    assert tx.result.versions == {"a": 1, "b": 1}
    catalog = lake.catalog
    assert catalog.transaction("daily-2026-01-30").txn_id == tx.id
    assert catalog.snapshot("daily-2026-01-30").versions == {"a": 1, "b": 1, "c": 0}
    resolved = catalog.resolve("daily-2026-01-30")
    assert resolved is not None
    assert resolved.versions == {"a": 1, "b": 1}
    assert deltars.SqlTxnLogReader(catalog).transaction("daily-2026-01-30") is not None
    assert catalog.resolve("daily-2026-01-31") is None
    with pytest.raises(ValidationError, match="settled as aborted"), lake.begin(txn_id="daily-2026-01-31") as never:
        never.write("a", FRAME)


@pytest.mark.backends("sqlite")
def test_raw_commit_of_a_text_is_done_once(lake: Lake) -> None:
    writer = deltars.SqlTxnLogWriter(lake.catalog)
    for _ in range(2):
        done = writer.commit(lake["a"].table_id, 1, [added("1")], operation="WRITE", txn_id="load-7")
    assert (done.txn_id, done.version) == (as_txn_id("load-7"), 1)


@pytest.mark.backends("sqlite")
def test_commands_take_the_text(lake: Lake) -> None:
    with lake.begin(txn_id="daily-2026-01-30") as tx:
        tx.write("a", FRAME)
    for command in ("txn", "resolve", "cut"):
        answer = CliRunner().invoke(main, [command, "daily-2026-01-30", "--catalog", lake.uri])
        assert answer.exit_code == 0, answer.output
        assert ("a" if command == "cut" else str(tx.id)) in answer.output


@pytest.mark.backends("sqlite")
def test_text_that_is_no_time_and_no_transaction_is_told_as_neither(lake: Lake) -> None:
    with pytest.raises(ValidationError, match=r"'2026-13-01' is neither a tag, nor a transaction's id, nor a time"):
        lake.catalog.snapshot("2026-13-01")
    with pytest.raises(TransactionNotFound):
        lake.catalog.snapshot(str(uuid4()))


@pytest.mark.backends("sqlite")
def test_text_that_is_a_time_and_a_transaction_is_refused_as_both(lake: Lake) -> None:
    lake["a"].append("1")
    text = datetime.now(UTC).isoformat()
    assert lake.catalog.snapshot(text).versions["a"] == 1
    with lake.begin(txn_id=text) as tx:
        tx.stage("a", [added("2")])
    with pytest.raises(ValidationError, match="is a time, and a transaction was committed") as caught:
        lake.catalog.snapshot(text)
    assert str(tx.id) in str(caught.value)


# -- skipped -----------------------------------------------------------------------------------------------------------


def test_skipped_writes_are_on_the_result_in_the_log_and_in_the_metrics(
    lake: Lake, caplog: pytest.LogCaptureFixture
) -> None:
    registry = CollectorRegistry()
    metrics = Metrics(registry)
    observe.attach(metrics)
    try:
        with caplog.at_level(logging.INFO, "deltars"):
            lake.catalog.write("a", FRAME, app_id="daily", app_version=20260131)
            caplog.clear()
            late = lake.catalog.write("a", FRAME, app_id="daily", app_version=20260130)
            [record] = [line for line in caplog.records if "skipped" in line.getMessage()]
            assert (record.levelno, record.name) == (logging.WARNING, "deltars.transaction")
            said = record.getMessage()
            assert "version 20260130 of application daily to table a was skipped" in said
            assert "20260131 is already written" in said
            caplog.clear()
            with lake.begin() as tx:
                tx.write("a", FRAME, app_id="daily", app_version=20260131)
                tx.write("b", FRAME, app_id="daily", app_version=20260131)
            [record] = [line for line in caplog.records if "skipped" in line.getMessage()]
            assert record.levelno == logging.INFO
    finally:
        observe.detach(metrics)
    assert (late.versions, late.skipped) == ({}, (SkippedWrite("a", "daily", 20260130, 20260131),))
    assert late.skipped[0].is_late
    assert tx.result.versions == {"b": 1}
    assert tx.result.skipped == (SkippedWrite("a", "daily", 20260131, 20260131),)
    assert not tx.result.skipped[0].is_late
    catalog = lake.catalog._session.database.source.catalog
    for reason in ("late", "repeated"):
        labels = {"catalog": catalog, "reason": reason}
        assert registry.get_sample_value("deltars_skipped_writes_total", labels) == 1


@pytest.mark.backends("sqlite")
def test_write_that_is_not_skipped_is_not_told_as_skipped(lake: Lake) -> None:
    with lake.begin() as tx:
        tx.write("a", FRAME, app_id="daily", app_version=1)
        tx.write("a", FRAME, app_id="daily", app_version=2)
        tx.write("new", FRAME, "ignore")
    assert tx.result.skipped == ()
    assert lake["a"].version == 1
