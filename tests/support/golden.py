"""The golden tables: real Delta tables, written by Delta's own tests, and what delta-spark says of each.

They are not part of the project: `DELTARS_GOLDEN` says where they are, by default beside the repository.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

SAMPLE = frozenset(
    {
        "basic-with-inserts-deletes-checkpoint/delta",
        "checkpoint/delta",
        "data-reader-escaped-chars/delta",
        "data-reader-partition-values/delta",
        "data-reader-timestamp_ntz-id-mode/delta",
        "deltalog-state-reconstruction-without-metadata/delta",
        "dv-partitioned-with-checkpoint/delta",
        "dv-with-columnmapping/delta",
        "log-replay-dv-key-cases/delta",
        "multi-part-checkpoint/delta",
        "only-checkpoint-files/delta",
        "time-travel-schema-changes-b/delta",
        "v2-checkpoint-json/delta",
        "v2-checkpoint-parquet/delta",
        "versions-not-contiguous/delta",
    }
)
"""Every kind of table is among these: for whom all of them take long."""

_BESIDE_THE_REPOSITORY = Path(__file__).parents[2] / ".." / "shared" / "golden"


@dataclass(frozen=True, slots=True)
class GoldenTable:
    name: str
    root: Path
    outcome: str
    """read, log (the data files are not there) or refuse."""
    why: str

    @property
    def num_rows(self) -> int | None:
        found = re.match(r"(\d+) rows", self.why)
        return int(found[1]) if found else None

    def expected(self) -> pa.Table | None:
        """The rows that the table should have, where they are given and right."""
        files = sorted((self.root.parent / "expected").rglob("*.parquet"))
        if "equals expected" not in self.why or not files:
            return None
        tables = [pq.ParquetFile(file, coerce_int96_timestamp_unit="us").read() for file in files]
        return pa.concat_tables(tables, promote_options="default")


def golden_root() -> Path:
    root = Path(os.environ.get("DELTARS_GOLDEN", _BESIDE_THE_REPOSITORY)).resolve()
    if not root.is_dir():
        pytest.skip(f"there are no golden tables at {root}: DELTARS_GOLDEN says where they are")
    return root


def golden_tables() -> list[GoldenTable]:
    root = golden_root()
    lines = (root / "EXPECT.tsv").read_text().splitlines()[1:]
    rows = [line.split("\t") for line in lines]
    return [GoldenTable(name, root / name, outcome, why) for name, outcome, why in rows]


def same_rows(rows: pa.Table, expected: pa.Table) -> bool:
    if rows.column_names != expected.column_names:
        return False
    if rows.num_rows > 10_000:
        ours, theirs = (table.sort_by([(name, "ascending") for name in _sortable(table)]) for table in (rows, expected))
        return bool(ours.equals(theirs.cast(ours.schema)))
    return _plain(rows) == _plain(expected)


def _sortable(table: pa.Table) -> list[str]:
    return [field.name for field in table.schema if not pa.types.is_nested(field.type)]


def _plain(rows: pa.Table) -> list[str]:
    return sorted(repr([_value(value) for value in row.values()]) for row in rows.to_pylist())


def _value(value: Any) -> Any:
    """NaN is equal to itself; a moment is compared with its zone."""
    if isinstance(value, dict):
        return {name: _value(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_value(item) for item in value]
    return value
