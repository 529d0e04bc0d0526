"""Tables by path: a path in any spelling finds the catalog's table, and nothing else."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from deltars import Catalog
from deltars.catalog.table_path import find_at, free_name, location_at, table_at
from deltars.errors import ImportRefused, NotADeltaTable, ValidationError

pytestmark = pytest.mark.backends("sqlite")


def test_every_spelling_of_a_path_finds_the_table(
    catalog: Catalog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = tmp_path / "lake" / "events"
    table = catalog.create_table("events", "id BIGINT", location=str(place))
    (tmp_path / "link").symlink_to(place, target_is_directory=True)
    monkeypatch.chdir(tmp_path)
    spellings: list[str | Path] = [
        place,
        f"{place}/",
        f"file:{place}",
        f"file://{place}",
        "lake/events",
        "./lake/../lake/events",
        "link",
    ]
    for spelling in spellings:
        found = find_at(catalog._session, spelling)
        assert found is not None, spelling
        assert found.table_id == table.id
        assert table_at(catalog._session, spelling).table_id == table.id
    assert find_at(catalog._session, place.parent) is None
    assert find_at(catalog._session, place / "day=1") is None
    assert location_at("s3a://bucket/t/") == "s3a://bucket/t"


def test_a_dropped_table_is_not_found_at_its_path(catalog: Catalog, tmp_path: Path) -> None:
    catalog.create_table("events", "id BIGINT", location=str(tmp_path / "events"))
    catalog.drop_table("events")
    assert find_at(catalog._session, tmp_path / "events") is None
    with pytest.raises(ImportRefused, match="import_table"):
        table_at(catalog._session, tmp_path / "events")


def test_a_directory_without_a_log_is_no_table(catalog: Catalog, tmp_path: Path) -> None:
    (tmp_path / "plain").mkdir()
    for place in ("plain", "absent"):
        with pytest.raises(NotADeltaTable, match=f"no Delta table at {tmp_path}/{place}"):
            table_at(catalog._session, tmp_path / place)
    with pytest.raises(ValidationError, match="unknown scheme 'ftp'"):
        table_at(catalog._session, "ftp://host/t")


def test_a_plain_delta_table_is_imported_only_if_allowed(catalog: Catalog, tmp_path: Path) -> None:
    for name in ("one", "two"):
        write_deltalake(tmp_path / name / "events", pa.table({"id": [1, 2]}))
    first = tmp_path / "one" / "events"
    with pytest.raises(ImportRefused, match=r"is not in .*Import it once with catalog.import_table"):
        table_at(catalog._session, first)
    assert len(catalog) == 0
    assert table_at(catalog._session, first, imports=True).name == "events"
    assert table_at(catalog._session, first, imports=True).name == "events"
    second = table_at(catalog._session, tmp_path / "two" / "events", imports=True)
    assert second.name.startswith("events_")
    assert catalog.table(second.table_id).count() == 2


def test_a_table_is_named_after_its_directory(catalog: Catalog) -> None:
    assert free_name(catalog._session, "/lake/my table/") == "my table"
    assert free_name(catalog._session, "/") == "table"
    assert free_name(catalog._session, "/lake/" + "x" * 700)[:2] == "xx"
    named = free_name(catalog._session, "/lake/7c0e1c38-0f5c-4f57-9d2a-0d6a1b1f2a33")
    assert catalog.create_table(named, "id BIGINT").name == "table_7c0e1c38-0f5c-4f57-9d2a-0d6a1b1f2a33"
    catalog.create_table("events", "id BIGINT")
    suffixed = free_name(catalog._session, "/lake/Events")
    assert suffixed.startswith("Events_")
    assert len(suffixed) == len("Events_") + 8
