"""What is interrupted by failpoints: prepared, done, and checked, again and again in one catalog.

prepare    makes something to do, without faults
work       does it; with a fault in it, and then once more without
check      says whether it was done, wholly, after the second time
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

import pyarrow as pa
from deltalake import DeltaTable, write_deltalake

import deltars
from deltars.catalog.recovery import rebuild
from deltars.uri import CatalogUri
from tests.faults.clients import TABLES, Client, create_tables

PLAIN = ("x", "y")
"""Tables whose rows are the operation's own."""


@dataclass
class Lake:
    """A catalog with its journals, which operations work on turn by turn."""

    uri: str
    root: Path
    lot: random.Random
    turn: int = 0
    clients: int = 0
    """Clients so far. They have a count of their own, because some come while another process is at work."""
    rows: int = 0
    """Of each plain table."""

    @property
    def journals(self) -> Path:
        return self.root / "journals"

    def create(self) -> None:
        self.journals.mkdir(parents=True)
        with deltars.connect(self.uri, warehouse=str(self.root / "warehouse")) as catalog:
            create_tables(catalog)
            for name in PLAIN:
                catalog.create_table(name, "id BIGINT", properties={"delta.checkpointInterval": "3"})

    def pay(self, catalog: deltars.Catalog, *kinds: str) -> None:
        """A client of its own, so that no one goes on with the rows of one that was interrupted."""
        self.clients += 1
        client = Client(catalog, self.journals, self.clients, self.lot)
        for kind in kinds:
            client.step(kind)
        client.close()

    def load(self, catalog: deltars.Catalog, times: int = 1) -> None:
        for _ in range(times):
            self.rows += 1
            with catalog.begin() as tx:
                for name in PLAIN:
                    tx.write(name, _row(self.rows))

    def ids(self, catalog: deltars.Catalog) -> list[list[int]]:
        return [sorted(catalog.table(name).to_arrow()["id"].to_pylist()) for name in PLAIN]


@dataclass(frozen=True, slots=True)
class Operation:
    prepare: Callable[[Lake, deltars.Catalog], object]
    work: Callable[[Lake, deltars.Catalog], object]
    check: Callable[[Lake, deltars.Catalog], None]
    recover: Callable[[Lake, deltars.Catalog], object] = lambda lake, catalog: None
    """What a person does after a fault, before the work is done again."""


def _row(number: int) -> pa.Table:
    return pa.table({"id": pa.array([number], pa.int64())})


def _nothing(lake: Lake, catalog: deltars.Catalog) -> None:
    pass


# -- commit and publish ------------------------------------------------------------------------------------------------


def _commit(lake: Lake, catalog: deltars.Catalog) -> None:
    lake.pay(catalog, "pay", "amend", "cancel")


def _next_client(lake: Lake, catalog: deltars.Catalog) -> None:
    # What a child counted is lost with it.
    lake.clients += 1


def _leave_unpublished(lake: Lake, catalog: deltars.Catalog) -> None:
    with deltars.connect(lake.uri, mirror="off") as quiet:
        lake.pay(quiet, "pay", "pay", "amend", "pay", "pay")


def _publish(lake: Lake, catalog: deltars.Catalog) -> None:
    catalog.reconciler().once()


def _is_published(lake: Lake, catalog: deltars.Catalog) -> None:
    assert not [status.name for status in catalog.mirror_status() if status.is_pending]
    for name in TABLES:
        assert DeltaTable(catalog.table(name).location).version() == catalog.table(name).version


# -- import, release, rebuild ------------------------------------------------------------------------------------------


def _plain_place(lake: Lake) -> str:
    return str(lake.root / f"plain-{lake.turn}")


def _write_plain(lake: Lake, catalog: deltars.Catalog) -> None:
    lake.turn += 1
    for number in range(3):
        write_deltalake(_plain_place(lake), _row(number), mode="append")


def _import(lake: Lake, catalog: deltars.Catalog) -> None:
    catalog.import_table(_plain_place(lake), f"plain_{lake.turn}")


def _is_imported(lake: Lake, catalog: deltars.Catalog) -> None:
    table = catalog.table(f"plain_{lake.turn}")
    assert sorted(table.to_arrow()["id"].to_pylist()) == [0, 1, 2]
    table.write(_row(3))
    assert DeltaTable(table.location).to_pyarrow_table().num_rows == 4
    catalog.drop_table(table.name)


def _prepare_release(lake: Lake, catalog: deltars.Catalog) -> None:
    if not lake.turn:
        _write_plain(lake, catalog)
        catalog.import_table(_plain_place(lake), "released")
    catalog.table("released").write(_row(9))


def _release(lake: Lake, catalog: deltars.Catalog) -> None:
    catalog.release("released")


def _is_released(lake: Lake, catalog: deltars.Catalog) -> None:
    table = catalog.table("released")
    rows = table.to_arrow().num_rows
    # Another writer may commit now, and none of it is lost when the table comes back.
    write_deltalake(table.location, _row(7), mode="append")
    catalog.adopt("released")
    assert table.to_arrow().num_rows == rows + 1


def _target(lake: Lake) -> str:
    return str(CatalogUri("sqlite", str(lake.root / f"rebuilt-{lake.turn}.db")))


def _rebuild(lake: Lake, catalog: deltars.Catalog) -> None:
    rebuild(str(lake.root / "warehouse"), _target(lake))


def _prepare_rebuild(lake: Lake, catalog: deltars.Catalog) -> None:
    lake.pay(catalog, "pay", "amend")
    lake.turn += 1


def _is_rebuilt(lake: Lake, catalog: deltars.Catalog) -> None:
    with deltars.connect(_target(lake)) as other:
        for name in TABLES:
            ours, theirs = catalog.table(name), other.table(name)
            assert theirs.version == ours.version
            assert sorted(theirs.to_arrow().to_pylist(), key=str) == sorted(ours.to_arrow().to_pylist(), key=str)
    _take_back(lake, catalog)


def _take_back(lake: Lake, catalog: deltars.Catalog) -> None:
    """Give the warehouse back to the catalog that is audited: in earnest that one would be lost."""
    catalog._session.publisher.warehouse.claim(take_over=True)


# -- maintenance -------------------------------------------------------------------------------------------------------


def _fragment(lake: Lake, catalog: deltars.Catalog) -> None:
    lake.pay(catalog, "pay", "pay", "amend", "cancel")


def _optimize(lake: Lake, catalog: deltars.Catalog) -> None:
    for name in TABLES:
        catalog.table(name).optimize()


def _is_optimized(lake: Lake, catalog: deltars.Catalog) -> None:
    assert [catalog.table(name).files().num_rows for name in TABLES] == [1, 1]


def _leave_garbage(lake: Lake, catalog: deltars.Catalog) -> None:
    _fragment(lake, catalog)
    _optimize(lake, catalog)


def _vacuum(lake: Lake, catalog: deltars.Catalog) -> None:
    for name in TABLES:
        catalog.table(name).vacuum(retention=timedelta(0), force=True)


def _is_vacuumed(lake: Lake, catalog: deltars.Catalog) -> None:
    for name in TABLES:
        table = catalog.table(name)
        there = {path.name for path in Path(table.location).rglob("*.parquet") if "_delta_log" not in path.parts}
        named = {path.rpartition("/")[2] for path in table.files()["path"].to_pylist()}
        assert named <= there
        assert table.vacuum(retention=timedelta(0), force=True).num_files == 0


def _load(lake: Lake, catalog: deltars.Catalog) -> None:
    lake.load(catalog, 3)
    for name in PLAIN:
        catalog.table(name).vacuum(retention=timedelta(0), force=True)


def _expire(lake: Lake, catalog: deltars.Catalog) -> None:
    catalog.expire(timedelta(0), tables=list(PLAIN), keep_versions=2, force=True)


def _is_expired(lake: Lake, catalog: deltars.Catalog) -> None:
    assert lake.ids(catalog) == [list(range(1, lake.rows + 1))] * 2
    assert [len(catalog.table(name).history()) for name in PLAIN] == [2, 2]


def _prepare_restore(lake: Lake, catalog: deltars.Catalog) -> None:
    if not lake.rows:
        lake.load(catalog)
        catalog.tag("good")
    with catalog.begin() as tx:
        for name in PLAIN:
            tx.write(name, _row(99), "overwrite")


def _restore(lake: Lake, catalog: deltars.Catalog) -> None:
    catalog.restore("good", tables=list(PLAIN))


def _is_restored(lake: Lake, catalog: deltars.Catalog) -> None:
    assert lake.ids(catalog) == [[1], [1]]


# -- streams -----------------------------------------------------------------------------------------------------------


def _next_batch(lake: Lake, catalog: deltars.Catalog) -> None:
    lake.rows += 1


def _batch(lake: Lake, catalog: deltars.Catalog) -> None:
    """What `each_batch` does with a batch: its number is in the transaction's id and in the log of each table."""
    with catalog.begin(txn_id=f"stream-{lake.rows}", isolation="serializable") as tx:
        for name in PLAIN:
            tx.write(name, _row(lake.rows), app_id="stream", app_version=lake.rows)


def _is_whole(lake: Lake, catalog: deltars.Catalog) -> None:
    assert lake.ids(catalog) == [list(range(1, lake.rows + 1))] * 2


OPERATIONS = {
    "commit": Operation(_next_client, _commit, _nothing),
    "publish and checkpoint": Operation(_leave_unpublished, _publish, _is_published),
    "import": Operation(_write_plain, _import, _is_imported),
    "release": Operation(_prepare_release, _release, _is_released),
    "rebuild": Operation(_prepare_rebuild, _rebuild, _is_rebuilt, _take_back),
    "optimize": Operation(_fragment, _optimize, _is_optimized),
    "vacuum": Operation(_leave_garbage, _vacuum, _is_vacuumed),
    "expire": Operation(_load, _expire, _is_expired),
    "restore": Operation(_prepare_restore, _restore, _is_restored),
    "stream batch": Operation(_next_batch, _batch, _is_whole),
}
