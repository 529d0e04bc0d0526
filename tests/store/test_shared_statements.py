"""Catalogs of one process share their statements, and nothing else."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pyarrow as pa
import pytest

import deltars
from deltars.store.backends import base
from tests.support.built_anew import built_anew
from tests.support.postgres import PostgresServer


def test_threads_on_catalogs_of_several_schemas_and_kinds_write_and_read_their_own(
    postgres_server: PostgresServer, postgres_database: str, tmp_path: Path
) -> None:
    places = [postgres_server.catalog_uri(postgres_database, schema) for schema in ("one", "Two words", "three")]
    places += [f"deltasql://sqlite/{tmp_path}/{name}.db" for name in "ab"]

    def work(number: int) -> list[int]:
        name = f"t{number}"
        with deltars.connect(places[number], migrate=True, warehouse=str(tmp_path / f"lake{number}")) as catalog:
            for at in range(number + 1):
                catalog.write(name, pa.table({"id": [100 * number + at]}))
            catalog.table(name).delete(f"id = {100 * number}")
            assert [table.name for table in catalog.tables()] == [name]
            found: list[int] = catalog.table(name).to_arrow(where=f"id >= {100 * number}")["id"].to_pylist()
            return sorted(found)

    with built_anew():
        for number in (0, 3):
            work(number)
        with ThreadPoolExecutor(3) as pool:
            rest = list(pool.map(work, (1, 2, 4)))
    assert rest == [[100 * number + at for at in range(1, number + 1)] for number in (1, 2, 4)]


@pytest.mark.backends("postgres")
def test_shared_statements_keep_no_password(migrated_uri: str, tmp_path: Path) -> None:
    with built_anew():
        secret = f"{migrated_uri}{'&' if '?' in migrated_uri else '?'}password=k4n4ry"
        with deltars.connect(secret, warehouse=str(tmp_path)) as catalog:
            catalog.write("t", pa.table({"id": [1]}))
        held = [one._backend.uri.with_secrets() for one in base._shared.values()]
    assert held
    assert not any("k4n4ry" in uri for uri in held)
