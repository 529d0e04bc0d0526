"""Credentials of the store and of the catalog are seen in no plan, log, event, page or process list of Spark."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest
from pyspark.sql import SparkSession

from deltars.uri import CatalogUri, parse_catalog_uri
from tests.spark.watched import pages, settings, work
from tests.support.canaries import Canaries
from tests.support.postgres import PostgresServer
from tests.support.s3 import new_bucket, options_for, s3_server
from tests.support.spark import connect_server, connected
from tests.support.templates import CatalogTemplates

PATIENCE_S = 240
OPERATING = Path(__file__).parents[2] / "docs/guides/operating-postgresql.md"
HIDDEN = "spark.sql.redaction.string.regex"


@pytest.fixture
def canaries() -> Canaries:
    return Canaries()


@pytest.fixture
def asked(
    postgres_server: PostgresServer,
    postgres_database: str,
    catalog_templates: CatalogTemplates,
    canaries: Canaries,
    tmp_path: Path,
) -> Iterator[dict[str, Any]]:
    """A catalog with a password, which its server does not ask for, and a store with a key."""
    plain = postgres_server.create_catalog_uri(postgres_database)
    catalog_templates.lay_out(plain)
    uri = parse_catalog_uri(plain)
    secret = MappingProxyType({**uri.parameters, "password": canaries["password"]})
    with s3_server() as endpoint:
        yield {
            "catalog": CatalogUri("postgres", uri.database, uri.schema, secret).with_secrets(),
            "warehouse": f"s3://{new_bucket(endpoint)}/lake",
            "near": str(tmp_path / "near"),
            "option": canaries["option"],
            "options": {**options_for(endpoint), "aws_secret_access_key": canaries["key of the store"]},
        }


def events(place: Path) -> str:
    return "\n".join(path.read_text() for path in (place / "events").rglob("*") if path.is_file())


def test_credentials_are_not_seen_in_plans(spark: SparkSession, asked: dict[str, Any], canaries: Canaries) -> None:
    seen = "\n".join(work(spark, asked))
    assert "MapInArrow" in seen
    assert "deltasql" in seen
    canaries.saw("plans", seen)
    assert canaries.found() == []


@pytest.mark.spark
@pytest.mark.soak(only=True)
def test_credentials_are_not_seen_in_logs_events_and_pages(
    asked: dict[str, Any], canaries: Canaries, tmp_path: Path
) -> None:
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
    for text in (seen, events(tmp_path)):
        assert "MapInArrow" in text
        assert "deltasql" in text
    assert "INFO org.apache.spark.scheduler.DAGScheduler" in log
    for place, text in {"UI": seen, "events": events(tmp_path), "log": log + ended.stderr + ended.stdout}.items():
        canaries.saw(place, text)
    canaries.saw_files("checkpoints and logs", tmp_path / "near")
    assert canaries.found() == []


@pytest.mark.spark
@pytest.mark.xdist_group("connect")
@pytest.mark.soak(only=True)
def test_credentials_are_not_seen_on_a_connect_server(
    asked: dict[str, Any], canaries: Canaries, tmp_path: Path
) -> None:
    scratch = tmp_path / "server"
    scratch.mkdir()
    # What the guide says to set: a server's UI and event log have the text of each request.
    said = re.search(rf"{re.escape(HIDDEN)} +(.+)", OPERATING.read_text())
    assert said is not None
    with connect_server(scratch, {**settings(scratch), HIDDEN: said[1]}) as url:
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
        canaries.saw(place, text)
    assert canaries.found() == []
