"""What is published is read back by delta-spark, which cannot write it.

Its JARs come from Maven (DELTARS_TEST_DELTA_JARS names a directory that has them already) and need a JVM of their own,
so this runs in `make soak`, or where that variable is set.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pyarrow.parquet as pq
import pytest

import deltars
from tests.mirror.history import build
from tests.mirror.test_readers import content, rows_of
from tests.support.soak import is_soak, record

VERSION = "4.4.0"
POM = f"""<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>
<groupId>t</groupId><artifactId>t</artifactId><version>1</version><dependencies><dependency>
<groupId>io.delta</groupId><artifactId>delta-spark_4.2_2.13</artifactId><version>{VERSION}</version>
<exclusions><exclusion><groupId>org.apache.spark</groupId><artifactId>*</artifactId></exclusion></exclusions>
</dependency></dependencies></project>"""


@pytest.fixture(scope="module")
def jars(tmp_path_factory: pytest.TempPathFactory) -> Path:
    given = os.environ.get("DELTARS_TEST_DELTA_JARS")
    if given:
        return Path(given)
    if not is_soak():
        pytest.skip("delta-spark needs JARs and a JVM of its own: it is tried in `make soak`")
    maven = shutil.which("mvn")
    if maven is None:
        pytest.skip("there is no mvn to fetch delta-spark's JARs with")
    place = tmp_path_factory.mktemp("maven")
    (place / "pom.xml").write_text(POM)
    command = [maven, "-q", "dependency:copy-dependencies", f"-DoutputDirectory={place}/jars"]
    fetched = subprocess.run(command, cwd=place, capture_output=True, text=True, check=False)
    if fetched.returncode:
        pytest.skip(f"Maven could not fetch delta-spark: {fetched.stdout.strip()[:300]}")
    return place / "jars"


@pytest.mark.soak
@pytest.mark.timeout(900)
def test_delta_spark_reads_every_version_and_can_write_none(jars: Path, tmp_path: Path) -> None:
    with deltars.connect(f"deltasql://sqlite/{tmp_path}/lake.db") as catalog:
        history = build(catalog)
    before = content(history.location)
    data = {path: path.stat().st_mtime_ns for path in history.location.rglob("part-*.parquet")}
    answers = tmp_path / "answers"
    answers.mkdir()
    command = [sys.executable, "-m", "tests.mirror.delta_spark", str(jars), str(history.location), str(answers)]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr[-3000:]
    told = json.loads((answers / "answers.json").read_text())
    for version in history.rows:
        assert rows_of(pq.read_table(answers / f"{version}.parquet")) == history.expected(version), version
        assert told["by_time"][str(version)] == len(history.rows[version])
    assert told["latest"] == len(history.rows[history.last])
    assert {int(version): time_ms for version, time_ms in told["times_ms"].items()} == history.times_ms
    for write, error in told["refused"].items():
        assert error is not None, write
        assert "deltars.sqlManaged" in error, f"{write}: {error[:300]}"
    assert {name: data for name, data in content(history.location).items() if name in before} == before
    assert {path: path.stat().st_mtime_ns for path in data} == data
    record("delta-spark reads the mirror", versions=len(history.rows), refused_writes=len(told["refused"]))
