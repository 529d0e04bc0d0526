"""Who publishes: the committer, the reconciler, or nobody; as the transaction, the table or the catalog says."""

from __future__ import annotations

import threading
from pathlib import Path

import pyarrow as pa
import pytest

import deltars
from deltars.mirror import Publication
from tests.support.together import Meanwhile

ROWS = pa.table({"id": [1]})


def publication(result: deltars.TransactionResult, table: str = "t") -> Publication:
    return result.mirror[table].publication


def write(catalog: deltars.Catalog, mirror: deltars.MirrorChoice | None = None, table: str = "t") -> Publication:
    with catalog.begin(mirror=mirror) as tx:
        tx.write(table, ROWS)
    return publication(tx.result, table)


def published(catalog: deltars.Catalog, table: str = "t") -> tuple[int, int]:
    [status] = [status for status in catalog.mirror_status() if status.name == table]
    return status.published_version, status.current_version


@pytest.fixture
def async_catalog(catalog: deltars.Catalog, catalog_uri: str) -> deltars.Catalog:
    return deltars.connect(catalog_uri, mirror="async")


def test_committer_publishes_unless_told_otherwise(catalog: deltars.Catalog) -> None:
    assert write(catalog) is Publication.PUBLISHED
    assert published(catalog) == (0, 0)


@pytest.mark.parametrize("mode", ["async", "off"])
def test_transaction_leaves_publishing_to_others(catalog: deltars.Catalog, mode: deltars.MirrorChoice) -> None:
    assert write(catalog, mode) is Publication.PENDING
    assert published(catalog) == (-1, 0)
    assert [outcome.publication for outcome in catalog.reconciler().once().outcomes] == [Publication.PUBLISHED]
    assert published(catalog) == (0, 0)


def test_catalog_leaves_publishing_to_the_reconciler_and_a_transaction_can_insist(
    async_catalog: deltars.Catalog,
) -> None:
    assert write(async_catalog) is Publication.PENDING
    assert write(async_catalog, "inline") is Publication.PUBLISHED
    assert published(async_catalog) == (1, 1)


def test_table_decides_before_the_catalog(catalog: deltars.Catalog, async_catalog: deltars.Catalog) -> None:
    catalog.create_table("a", "id BIGINT", properties={"deltars.mirror": "async"})
    catalog.create_table("i", "id BIGINT", properties={"deltars.mirror": "inline"})
    assert published(catalog, "a") == (-1, 0)
    assert write(catalog, table="a") is Publication.PENDING
    assert write(async_catalog, table="i") is Publication.PUBLISHED


def test_table_that_is_off_is_left_alone_until_it_is_on(catalog: deltars.Catalog, tmp_path: Path) -> None:
    catalog.create_table("t", "id BIGINT", properties={"deltars.mirror": "off"})
    assert write(catalog) is Publication.PENDING
    assert catalog.reconciler().once().outcomes == []
    assert not (tmp_path / "warehouse" / "t" / "_delta_log").exists()
    catalog.set_properties("t", {"deltars.mirror": "inline"})
    assert published(catalog) == (2, 2)


def test_unknown_mode_is_refused(catalog: deltars.Catalog, catalog_uri: str) -> None:
    with pytest.raises(deltars.ValidationError, match="unknown mirror mode 'sometimes'") as refused:
        catalog.begin(mirror="sometimes")  # type: ignore[arg-type]
    assert refused.value.field == "mirror"
    with pytest.raises(deltars.ConfigError, match="mirror must be one of inline, async, off"):
        deltars.connect(catalog_uri, mirror="sometimes")  # type: ignore[arg-type]


@pytest.mark.backends("postgres")
def test_asynchronous_commit_wakes_a_reconciler_that_hardly_ever_polls(catalog: deltars.Catalog) -> None:
    catalog.create_table("t", "id BIGINT")
    reconciler = catalog.reconciler(poll_s=30, inspect_s=3600)
    listening = threading.Event()
    status = catalog._session.publisher.status
    heard = status.listening

    def note_listening() -> object:
        listening.set()
        return heard()

    status.listening = note_listening  # type: ignore[method-assign, assignment]
    running = Meanwhile(reconciler.run)
    listening.wait(30)
    for _ in range(200):
        write(catalog, "async")
        if published(catalog)[0] > 0:
            break
        threading.Event().wait(0.05)
    reconciler.stop()
    running.result()
    assert published(catalog)[0] > 0


@pytest.mark.backends("postgres")
def test_commit_announces_nothing_unless_the_mirror_is_asynchronous(catalog: deltars.Catalog) -> None:
    catalog.create_table("t", "id BIGINT")
    with catalog._session.publisher.status.listening() as wait:
        assert wait is not None
        write(catalog)
        write(catalog, "off")
        assert not wait(0.2)
        write(catalog, "async")
        assert wait(10)
