"""Compaction after a write, by a table's property: it never fails the write, and is off by default."""

from __future__ import annotations

import logging

import pyarrow as pa
import pytest

import deltars

pytestmark = pytest.mark.backends("sqlite")

AUTO = {"delta.autoOptimize.autoCompact": "true", "deltars.autoCompact.minNumFiles": "4"}


def append(table: deltars.Table, *ids: int) -> deltars.TransactionResult:
    return table.write(pa.table({"id": list(ids)}))


def ids(table: deltars.Table) -> list[int]:
    return sorted(table.to_arrow()["id"].to_pylist())


def test_small_files_are_compacted_after_the_write_that_makes_them_many(catalog: deltars.Catalog) -> None:
    table = catalog.create_table("t", "id BIGINT", properties=AUTO)
    for number in range(3):
        append(table, number)
    assert table.files().num_rows == 3
    result = append(table, 3)
    assert result.versions == {"t": 4}, "the write's own version"
    assert (table.version, table.files().num_rows, ids(table)) == (5, 1, [0, 1, 2, 3])
    [entry] = table.history(1)
    assert (entry.operation, entry.operation_params["auto"]) == ("OPTIMIZE", True)
    assert table.verify(deep=True).is_ok


@pytest.mark.parametrize("value", [None, "false"])
def test_it_is_off_by_default(catalog: deltars.Catalog, value: str | None) -> None:
    properties = {"deltars.autoCompact.minNumFiles": "2"}
    if value is not None:
        properties["delta.autoOptimize.autoCompact"] = value
    table = catalog.create_table("t", "id BIGINT", properties=properties)
    for number in range(3):
        append(table, number)
    assert table.files().num_rows == 3


def test_every_kind_of_write_and_every_table_of_a_transaction_counts(catalog: deltars.Catalog) -> None:
    for name in "ab":
        catalog.create_table(name, "id BIGINT", properties={**AUTO, "delta.autoOptimize.autoCompact": "auto"})
    for number in range(4):
        with catalog.begin(isolation="serializable") as tx:
            tx.write("a", pa.table({"id": [number]}))
            tx.write("b", pa.table({"id": [number]}))
    assert [catalog.table(name).files().num_rows for name in "ab"] == [1, 1]
    assert [ids(catalog.table(name)) for name in "ab"] == [[0, 1, 2, 3]] * 2


def test_failure_is_logged_and_the_write_is_committed(
    catalog: deltars.Catalog, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    table = catalog.create_table("t", "id BIGINT", properties=AUTO)

    def broken(*_: object) -> None:
        raise OSError("the disk is full")

    monkeypatch.setattr("deltars.transaction.optimize.write_bins", broken)
    with caplog.at_level(logging.WARNING):
        for number in range(4):
            append(table, number)
    assert ids(table) == [0, 1, 2, 3]
    assert "automatic compaction of t failed; the write is committed: the disk is full" in caplog.text


def test_repeated_transaction_compacts_nothing(catalog: deltars.Catalog) -> None:
    table = catalog.create_table("t", "id BIGINT", properties=AUTO)
    for number in range(3):
        append(table, number)
    catalog.set_properties("t", {"delta.autoOptimize.autoCompact": "false"})
    for _ in range(2):
        with catalog.begin(txn_id="once") as tx:
            tx.write("t", pa.table({"id": [9]}))
        catalog.set_properties("t", {"delta.autoOptimize.autoCompact": "true"})
    assert ids(table) == [0, 1, 2, 9]


def test_wrong_number_of_files_is_refused(catalog: deltars.Catalog) -> None:
    with pytest.raises(deltars.ValidationError, match="a whole number from 2 on"):
        catalog.create_table("t", "id INT", properties={"deltars.autoCompact.minNumFiles": "1"})
