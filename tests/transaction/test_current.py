"""The transaction of a `with` block: what the block calls finds it, and nothing else does."""

from __future__ import annotations

import asyncio
import contextvars
import threading
from pathlib import Path

import pyarrow as pa
import pytest

import deltars
from deltars import Catalog, Transaction
from deltars.errors import TableExists, ValidationError
from deltars.transaction.current import current_transaction, transaction_left_behind

pytestmark = pytest.mark.backends("sqlite")


def test_a_block_has_its_transaction_until_it_ends(catalog: Catalog) -> None:
    assert current_transaction() is None
    with catalog.begin() as outer:
        assert current_transaction() is outer
        with catalog.begin() as inner:
            assert current_transaction() is inner
        assert current_transaction() is outer
    assert current_transaction() is None
    with pytest.raises(RuntimeError), catalog.begin():
        raise RuntimeError
    assert current_transaction() is None
    catalog.begin()  # without a block
    assert current_transaction() is None


def test_tasks_inherit_the_transaction_and_threads_do_so_on_request(catalog: Catalog) -> None:
    seen: list[Transaction | None] = []

    async def tasks() -> None:
        async def one() -> None:
            seen.append(current_transaction())

        await asyncio.gather(one(), asyncio.to_thread(lambda: seen.append(current_transaction())))

    def in_thread(function: object) -> None:
        thread = threading.Thread(target=function)  # type: ignore[arg-type]
        thread.start()
        thread.join()

    left_behind: list[Transaction | None] = []
    with catalog.begin() as tx:
        asyncio.run(tasks())
        context = contextvars.copy_context()
        in_thread(lambda: seen.append(context.run(current_transaction)))
        assert seen == [tx, tx, tx]
        in_thread(lambda: seen.append(current_transaction()))
        in_thread(lambda: left_behind.append(transaction_left_behind()))
        assert transaction_left_behind() is None
    assert seen[3] is None
    assert left_behind == [tx]
    assert transaction_left_behind() is None


def test_a_transaction_joins_one_catalog(catalog: Catalog, tmp_path: Path) -> None:
    with deltars.begin() as tx:
        view = tx._join(catalog._session)
        assert tx._join(catalog._session) is view
        with deltars.connect(tmp_path / "other.db") as other, pytest.raises(ValidationError, match="two catalogs"):
            tx._join(other._session)


def test_a_write_creates_a_table_at_a_location(catalog: Catalog, tmp_path: Path) -> None:
    rows, place = pa.table({"id": [1, 2]}), str(tmp_path / "here")
    with catalog.begin() as tx:
        tx.write("events", rows, location=place, cluster_by="id")
        view = tx._join(catalog._session)
        staged = view.find_at(f"file://{place}/")
        assert staged is not None
        assert staged.name == "events"
        tx.write(staged.table_id, rows)
    assert catalog.table("events").location == place
    assert catalog.table("events").count() == 4
    catalog.write("events", rows, location=f"{place}/", cluster_by=["ID"])
    with pytest.raises(ValidationError, match=f"the table is at {place}, not at /elsewhere"):
        catalog.write("events", rows, location="/elsewhere")
    with pytest.raises(ValidationError, match=r"clustered by \['id'\], not by \['x'\]"):
        catalog.write("events", rows, cluster_by=["x"])
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "notes.txt").write_text("kept")
    with pytest.raises(ValidationError, match=r"not empty: it holds notes\.txt"):
        catalog.write("other", rows, location=str(tmp_path / "full"))
    with pytest.raises(TableExists, match="already"):
        catalog.write("other", rows, location=place)
    with catalog.begin() as tx:
        tx.drop_table("events")
        assert tx._join(catalog._session).find_at(place) is None
