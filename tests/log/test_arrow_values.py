"""Arrays made of buffers are those that `pa.array` makes."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from deltars.log import arrow_values

STRINGS = pa.list_(pa.field("element", pa.string()))
MAP = pa.map_(pa.string(), pa.string())
STRUCT = pa.struct([("a", pa.string()), ("n", pa.int32()), ("deep", pa.struct([("m", MAP)]))])


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        ([0, -1, None, 2**63 - 1, -(2**63)], pa.int64()),
        ([None, 2**31 - 1, -(2**31)], pa.int32()),
        ([True, None, False] * 7, pa.bool_()),
        (["", "é%20", None, "\U0010ffff\x00", "a" * 1000], pa.string()),
        ([["a", "b"], [], None, ["c"]], STRINGS),
        ([{"a": "1", "b": None}, {}, None, [("c", "2")]], MAP),
        ([{"a": "x", "n": 1, "deep": {"m": {"k": "v"}}}, None, {}, {"deep": {}}, {"other": 1}], STRUCT),
        ([1.5, None, float("inf")], pa.float64()),
        *(([], kind) for kind in (pa.int64(), pa.bool_(), pa.string(), STRINGS, MAP, STRUCT)),
        *(([None, None], kind) for kind in (pa.int64(), pa.bool_(), pa.string(), STRINGS, MAP, STRUCT)),
    ],
)
def test_array_of_buffers_is_the_one_that_arrow_makes(values: list[Any], kind: pa.DataType) -> None:
    made = arrow_values._made(values, kind)
    made.validate(full=True)
    assert made.type == kind
    assert made.equals(pa.array(values, kind))
    assert arrow_values.array_of(values, kind).equals(made)


@pytest.mark.parametrize("count", [0, 1, 8, 9, 1000])
def test_falses_are_false(count: int) -> None:
    made = arrow_values.falses(count)
    made.validate(full=True)
    assert made.to_pylist() == [False] * count


def test_process_that_commits_and_publishes_loads_no_pandas(tmp_path: Path) -> None:
    program = """
import sys
import deltars
from pathlib import Path
from deltars.protocol import AddFile
catalog = deltars.connect(sys.argv[1], warehouse=sys.argv[2], migrate=True)
table = catalog.create_table("t", "id BIGINT, day STRING", partition_by=["day"])
for version in range(1, 11):
    sizes = {"size": 1, "modification_time": 1, "data_change": True}
    add = AddFile(path=f"{version}.parquet", partition_values={"day": "1"}, **sizes)
    with catalog.begin() as tx:
        tx.stage("t", [add])
catalog.close()
assert list(Path(table.location).glob("_delta_log/*10.checkpoint.parquet"))
print("pandas" in sys.modules)
"""
    arguments = [sys.executable, "-c", program, f"deltasql://sqlite/{tmp_path}/c.db", str(tmp_path / "warehouse")]
    done = subprocess.run(arguments, capture_output=True, text=True, check=False)
    assert (done.stdout.strip(), done.returncode) == ("False", 0), done.stderr
