"""Log lines carry their fields, and JSON shows them."""

from __future__ import annotations

import io
import json
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import deltars
from deltars import observe
from tests.mirror.ledger import added

pytestmark = pytest.mark.backends("sqlite")


class Lines:
    def __init__(self) -> None:
        self.stream = io.StringIO()

    def all(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.stream.getvalue().splitlines()]

    def of(self, logger: str) -> list[dict[str, Any]]:
        return [line for line in self.all() if line["logger"] == logger]


@pytest.fixture
def lines() -> Iterator[Lines]:
    logger = logging.getLogger("deltars")
    before = logger.level, logger.propagate
    lines = Lines()
    handler = observe.json_logs("DEBUG", lines.stream)
    yield lines
    logger.removeHandler(handler)
    logger.level, logger.propagate = before


def test_commit_and_publication_are_told_with_transaction_table_version_stage_and_duration(
    catalog: deltars.Catalog, lines: Lines
) -> None:
    catalog.create_table("t", "id BIGINT")
    with catalog.begin() as tx:
        tx.stage("t", [added("1")])
    [ended] = lines.of("deltars.transaction")
    assert (ended["level"], ended["txn_id"], ended["outcome"]) == ("INFO", str(tx.id), "committed")
    assert (ended["table"], ended["version"], ended["stage"]) == ("t", 1, "commit")
    assert ended["duration_s"] > 0
    assert ended["message"] == f"transaction {tx.id} committed: {{'t': 1}}"
    assert ended["catalog"] == catalog._session.database.source.catalog
    _, committed = lines.of("deltars.commit")
    assert committed["txn_id"] == str(tx.id)
    assert list(committed["stages"]) == ["validate", "lock", "check", "write", "commit"]
    _, published = lines.of("deltars.mirror")
    assert (published["txn_id"], published["table"], published["version"]) == (str(tx.id), "t", 1)
    assert published["stage"] == "publish"
    assert published["lag_s"] > 0


def test_lost_race_is_told_with_its_stage_and_error(catalog: deltars.Catalog, lines: Lines) -> None:
    catalog.create_table("t", "id BIGINT")
    stale = catalog.begin()
    stale.stage("t", [added("1")], expected_version=4)
    with pytest.raises(deltars.VersionConflict):
        stale.commit()
    [ended] = lines.of("deltars.transaction")
    assert (ended["txn_id"], ended["table"], ended["stage"]) == (str(stale.id), "t", "check")
    assert (ended["outcome"], ended["error"]) == ("conflict", "VersionConflict")


def test_failed_publication_is_one_error_line_with_the_transaction(
    catalog: deltars.Catalog, lines: Lines, tmp_path: Path
) -> None:
    catalog.create_table("t", "id BIGINT")
    (tmp_path / "warehouse" / "t" / "_delta_log" / f"{1:020}.json").write_text("foreign")
    with catalog.begin() as tx:
        tx.stage("t", [added("1")])
    [failed] = [line for line in lines.all() if line["level"] in ("WARNING", "ERROR")]
    assert (failed["logger"], failed["level"]) == ("deltars.mirror", "ERROR")
    assert (failed["txn_id"], failed["table"], failed["version"]) == (str(tx.id), "t", 1)
    assert (failed["outcome"], failed["error"]) == ("diverged", "MirrorFailure")


def test_commit_to_a_table_that_has_diverged_is_one_warning(
    catalog: deltars.Catalog, catalog_uri: str, lines: Lines, tmp_path: Path
) -> None:
    catalog.create_table("t", "id BIGINT")
    (tmp_path / "warehouse" / "t" / "_delta_log" / f"{1:020}.json").write_text("foreign")
    with catalog.begin() as tx:
        tx.stage("t", [added("1")])
    before = len(lines.all())
    with deltars.connect(catalog_uri, allow_diverged=True) as allowing, allowing.begin() as tx:
        tx.stage("t", [added("2")])
    [failed] = [line for line in lines.all()[before:] if line["level"] in ("WARNING", "ERROR")]
    assert (failed["level"], failed["table"], failed["error"]) == ("WARNING", "t", "MirrorFailure")
    assert tx.result.mirror["t"].publication == "failed"


def test_traceback_and_values_that_json_has_no_word_for_are_text(lines: Lines) -> None:
    try:
        raise ValueError("broken")
    except ValueError:
        logging.getLogger("deltars.mirror").exception("a defect", extra={"table": Path("t")})
    [line] = lines.of("deltars.mirror")
    assert line["table"] == "t"
    assert "ValueError: broken" in line["traceback"]
