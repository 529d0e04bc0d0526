"""A session that has Hadoop's S3 classes reads tables natively, and by obstore where its own view is another."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

import deltars
from tests.spark.behaviours import chosen
from tests.spark.on_s3a import ROWS
from tests.support.maven import NoJars
from tests.support.s3 import new_bucket, options_for, s3_server
from tests.support.s3a import JARS_VARIABLE, hadoop_version, s3a_jars
from tests.support.soak import is_soak, record

PATIENCE_S = 600


@pytest.mark.soak
@pytest.mark.spark
@pytest.mark.timeout(2 * PATIENCE_S)
def test_tables_in_s3_are_read_natively_where_the_session_sees_them(tmp_path: Path) -> None:
    jars = _jars()
    with s3_server() as endpoint:
        options = options_for(endpoint)
        asked: dict[str, Any] = {
            "class_path": ":".join(map(str, sorted(jars.glob("*.jar")))),
            "options": options,
            "other_endpoint": "http://127.0.0.1:1",  # nobody is there
            "buckets": {name: new_bucket(endpoint) for name in ("native", "elsewhere")},
            "catalogs": {
                name: f"deltasql://sqlite/{tmp_path}/{name}.db" for name in ("native", "elsewhere", "behaviours")
            },
        }
        told = _told(asked, tmp_path)
        native, elsewhere = told["native"], told["elsewhere"]
        assert native["files"]
        assert all(file.startswith(f"s3a://{asked['buckets']['native']}/") for file in native["files"])
        for plan in (*native["plans"].values(), native["plan of some"]):
            assert "FileScan parquet" in plan
            assert "MapInArrow" not in plan
        assert "PushedFilters: [IsNotNull(id), LessThan(id,40)]" in native["plan of some"]
        assert ["MapInArrow" in plan for plan in elsewhere["plans"].values()] == [True] * 4
        assert native["reading"][0] == "ok"
        assert "natively: the session opens s3a:// itself" in native["reading"][1]
        assert elsewhere["reading"][0] == "warning"
        assert "through obstore inside its tasks: the session" in elsewhere["reading"][1]
        assert told.pop("behaviours") == list(chosen())
        for name, seen in told.items():
            _assert_right(seen)
            with deltars.connect(asked["catalogs"][name], storage_options=options) as catalog:
                outside = DeltaTable(catalog.table("flat").location, storage_options=options).to_pyarrow_table()
                assert sorted(outside["id"].to_pylist()) == [id_ for id_, _, _ in ROWS]
    record("native reads of a simulated S3", hadoop=hadoop_version(), tables=4, rows_lost=0)


def _assert_right(seen: dict[str, Any]) -> None:
    assert set(seen["rows"]) == {"flat", "partitioned", "mapped", "many"}
    for name, rows in seen["rows"].items():
        assert rows == [list(row) for row in ROWS], name
    assert seen["some"] == sorted(name for id_, _, name in ROWS if id_ < 40)
    assert seen["query"] == 10
    # Each file has two rows, and has lost the first.
    assert len(seen["without deleted"]) == len(set(seen["without deleted"])) == len(ROWS) // 2


def _jars() -> Path:
    if not is_soak() and JARS_VARIABLE not in os.environ:
        pytest.skip(f"the S3A classes are 700 MB: in `make soak-all`, or where {JARS_VARIABLE} names them")
    try:
        return s3a_jars()
    except NoJars as reason:
        pytest.skip(str(reason))


def _told(asked: dict[str, Any], place: Path) -> dict[str, Any]:
    (place / "asked.json").write_text(json.dumps(asked))
    ended = subprocess.run(
        [sys.executable, "-m", "tests.spark.on_s3a", str(place)],
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
    )
    assert ended.returncode == 0, ended.stderr[-5000:]
    told: dict[str, Any] = json.loads((place / "told.json").read_text())
    return told
