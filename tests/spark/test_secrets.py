"""What executors are told of an object store, its credentials, is for nobody else: not in a plan, a log or the UI."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.spark.watched import pages, settings, work
from tests.support.s3 import SECRET, new_bucket, options_for, s3_server
from tests.support.spark import connect_server, connected

PATIENCE_S = 240


@pytest.fixture
def asked(tmp_path: Path) -> Iterator[dict[str, Any]]:
    with s3_server() as endpoint:
        yield {
            "catalog": f"deltasql://sqlite/{tmp_path}/lake.db",
            "warehouse": f"s3://{new_bucket(endpoint)}/lake",
            "options": options_for(endpoint),
        }


def events(place: Path) -> str:
    return "\n".join(path.read_text() for path in (place / "events").rglob("*") if path.is_file())


@pytest.mark.spark
@pytest.mark.xdist_group("spark")
def test_credentials_are_not_seen_in_plans_logs_events_and_pages(asked: dict[str, Any], tmp_path: Path) -> None:
    (tmp_path / "asked.json").write_text(json.dumps(asked))
    ended = subprocess.run(
        [sys.executable, "-m", "tests.spark.watched", str(tmp_path)],
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
    )
    assert ended.returncode == 0, ended.stderr[-5000:]
    seen, log = (tmp_path / "seen").read_text(), (tmp_path / "log").read_text()
    # What was looked at is not empty: it tells of the very jobs that had the credentials.
    assert "MapInArrow" in seen
    assert "MapInArrow" in events(tmp_path)
    assert "INFO org.apache.spark.scheduler.DAGScheduler" in log
    for place, text in {"UI": seen, "events": events(tmp_path), "log": log + ended.stderr + ended.stdout}.items():
        assert SECRET not in text, place


@pytest.mark.spark
@pytest.mark.xdist_group("connect")
@pytest.mark.soak(only=True)
def test_credentials_are_not_seen_on_a_connect_server(asked: dict[str, Any], tmp_path: Path) -> None:
    scratch = tmp_path / "server"
    scratch.mkdir()
    with connect_server(scratch, settings(scratch)) as url:
        with connected(url) as remote:
            plans = work(remote, asked)
        log = scratch / "connect.log"
        found = re.search(r"service 'SparkUI' on port (\d+)", log.read_text())
        assert found is not None
        seen = "\n".join([*plans, *pages(f"http://127.0.0.1:{found[1]}")])
        told = log.read_text()
    assert "MapInArrow" in seen
    assert "MapInArrow" in events(scratch)
    for place, text in {"UI": seen, "events": events(scratch), "log": told}.items():
        assert SECRET not in text, place
