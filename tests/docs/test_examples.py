"""Every Python example of the README and the documentation runs, from the top of its page to the bottom."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from psycopg.conninfo import conninfo_to_dict
from pyspark.sql import SparkSession
from sybil import Sybil
from sybil.parsers.markdown import PythonCodeBlockParser

import deltars
from tests.docs.lake import names
from tests.support.postgres import PostgresServer

ROOT = Path(__file__).parents[2]
PAGES = [
    page
    for page in (ROOT / "README.md", *sorted(ROOT.glob("docs/**/*.md")))
    if "```python" in page.read_text() or "invisible-code-block: python" in page.read_text()
]
LONG = ROOT / "docs/guides/derived-tables.md"
"""Its streams take longest, and `tests/streams/test_transactions_stream.py` has the same ones."""
SYBIL = Sybil(parsers=[PythonCodeBlockParser()], path=str(ROOT))


@pytest.fixture(scope="module")
def migrated(postgres_server: PostgresServer) -> Iterator[str]:
    """A database with an empty catalog, to copy: Alembic takes longer than most pages do."""
    name = postgres_server.create_database("pages")
    deltars.connect(postgres_server.catalog_uri(name, "public"), migrate=True).close()
    yield name
    postgres_server.drop_database(name)


@pytest.fixture
def lake(
    request: pytest.FixtureRequest,
    spark: SparkSession,
    postgres_server: PostgresServer,
    migrated: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[dict[str, Any]]:
    """A PostgreSQL server with a database `lake`, found through libpq's environment as on a user's machine."""
    for key, value in conninfo_to_dict(postgres_server.conninfo).items():
        monkeypatch.setenv(f"PG{key.upper()}", str(value))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("LAKE", str(tmp_path / "lake"))
    is_empty = "README.md" in request.node.name
    with postgres_server.connect() as connection:
        connection.execute("DROP DATABASE IF EXISTS lake WITH (FORCE)")
        connection.execute(f'CREATE DATABASE lake TEMPLATE "{"template0" if is_empty else migrated}"')
    prepared = names(spark, os.environ["LAKE"], is_empty=is_empty)
    yield prepared
    prepared["catalog"].close()
    postgres_server.drop_database("lake")


@pytest.mark.parametrize(
    "page",
    [pytest.param(page, id=str(page.relative_to(ROOT)), marks=pytest.mark.soak(only=page == LONG)) for page in PAGES],
)
def test_the_examples_of_a_page_run(page: Path, lake: dict[str, Any]) -> None:
    document = SYBIL.parse(page)
    document.namespace.update(lake)
    examples = list(document.examples())
    assert examples
    for example in examples:
        example.evaluate()
