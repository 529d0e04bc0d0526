"""`write(expected_version=…)`: the table is at this version when the transaction commits, or nothing is changed."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import deltars
from deltars.errors import TableNotFound, ValidationError, VersionConflict

ROWS = pa.table({"id": [1]})


def test_write_at_the_expected_version_succeeds_and_at_another_conflicts(catalog: deltars.Catalog) -> None:
    assert catalog.write("a", ROWS, expected_version=-1).versions == {"a": 0}
    assert catalog.write("a", ROWS, expected_version=0).versions == {"a": 1}
    assert catalog.table("a").write(ROWS, expected_version=np.int64(1)).versions == {"a": 2}  # type: ignore[arg-type]
    for wrong in (-1, 1, 9):
        with pytest.raises(VersionConflict) as caught:
            catalog.write("a", ROWS, expected_version=wrong)
        assert (caught.value.table, caught.value.expected, caught.value.actual) == ("a", wrong, 2)
        assert (caught.value.winning_version is None) == (wrong == 9)
    assert catalog.table("a").version == 2


@pytest.mark.parametrize("level", ["strict", "serializable", "write_serializable", "snapshot"])
def test_commit_between_is_a_conflict_at_every_level(catalog: deltars.Catalog, level: deltars.Isolation) -> None:
    catalog.write("a", ROWS)
    tx = catalog.begin(isolation=level)
    tx.write("a", ROWS, expected_version=0)
    tx.write("a", ROWS)
    tx.write("b", ROWS)
    theirs = catalog.write("a", ROWS)
    with pytest.raises(VersionConflict) as caught:
        tx.commit()
    assert (caught.value.expected, caught.value.actual) == (0, 1)
    assert caught.value.winner_txn_id == theirs.txn_id
    assert not caught.value.is_serializable
    assert not catalog.table_exists("b")


@pytest.mark.backends("sqlite")
def test_conflict_is_raised_before_a_file_is_written(catalog: deltars.Catalog) -> None:
    catalog.write("a", ROWS)
    consumed = pa.RecordBatchReader.from_batches(ROWS.schema, ROWS.to_batches())
    with pytest.raises(VersionConflict):
        catalog.write("a", consumed, expected_version=7)
    assert consumed.read_all().num_rows == 1


@pytest.mark.backends("sqlite")
def test_missing_table_is_not_found_and_a_wrong_version_is_refused(catalog: deltars.Catalog) -> None:
    with pytest.raises(TableNotFound):
        catalog.write("a", ROWS, expected_version=0)
    wrong: Any
    for wrong in (-2, "0", 1.0, True, float("nan")):
        with pytest.raises(ValidationError, match=r"expected_version must be −1 or more.*table.version"):
            catalog.write("a", ROWS, expected_version=wrong)
        with pytest.raises(ValidationError, match="expected_version must be"), catalog.begin() as tx:
            tx.stage("a", [], expected_version=wrong)
    assert catalog.tables() == []
