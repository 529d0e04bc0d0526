"""Clients that take their locks and never go on: programs of their own, to be stopped or killed by the test."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import mock
from uuid import UUID

import pyarrow as pa

import deltars
from deltars.store.commit.bulk import AddBatches

FOR_EVER_S = 600.0


def between_statements(uri: str, table_ids: list[UUID], timeout_s: float, ready: str) -> None:
    """The tables are locked; no statement follows."""
    with deltars.connect(uri) as catalog:
        locks = catalog._session.writer._locks(table_ids)
        with catalog._session.database.write(timeout_s, locks):
            _say(ready)


def in_the_middle_of_copy(uri: str, table_ids: list[UUID], timeout_s: float, ready: str) -> None:
    """Part of the rows is sent, and the rest never comes."""
    rows: Any = AddBatches.rows

    def some_rows(self: AddBatches, *arguments: Any) -> Iterator[pa.RecordBatch]:
        for batch in rows(self, *arguments):
            yield batch
            _say(ready)

    with (
        mock.patch.object(AddBatches, "rows", some_rows),
        deltars.connect(uri, copy_threshold=1) as catalog,
        catalog.begin(timeout=timeout_s) as tx,
    ):
        for table_id in table_ids:
            tx.stage(table_id, _files("stuck", 1_000))


def _say(ready: str) -> None:
    Path(ready).touch()
    time.sleep(FOR_EVER_S)


def _files(prefix: str, count: int) -> pa.Table:
    return pa.table(
        {
            "path": [f"{prefix}-{number}" for number in range(count)],
            "partition_values": pa.repeat("{}", count),
            "size": pa.repeat(1, count),
            "modification_time": pa.repeat(0, count),
            "data_change": pa.repeat(True, count),
        }
    )
