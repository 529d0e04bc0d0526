"""What the diagnosis says of a catalog. The command is in tests/cli, Java and Spark are in tests/first_mistakes."""

from __future__ import annotations

import pyarrow as pa
import pytest

import deltars
from deltars.doctor import Finding, diagnose

ROWS = pa.table({"id": [1]})


def _mirror(catalog_uri: str) -> Finding:
    [finding] = [finding for finding in diagnose(catalog_uri, spark=False) if finding.check == "mirror"]
    return finding


@pytest.mark.backends("sqlite")
def test_commits_that_nobody_is_to_publish_are_told_and_nothing_is_advised_that_skips_them(
    catalog: deltars.Catalog, catalog_uri: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    off = "2 tables, {} of them with unpublished commits, because their mirror is off"
    catalog.write("loud", ROWS)
    catalog.create_table("quiet", "id BIGINT", properties={"deltars.mirror": "off"})
    assert _mirror(catalog_uri) == Finding("mirror", "ok", off.format(1))
    with catalog.begin(mirror="off") as tx:
        tx.write("loud", ROWS)
    late = _mirror(catalog_uri)
    assert (late.state, late.found) == ("warning", "loud has unpublished commits")
    monkeypatch.setenv("DELTARS_MIRROR", "off")
    assert _mirror(catalog_uri) == Finding("mirror", "ok", off.format(2))
