"""Writers keep an invariant over four tables; every cut, of now and of any moment before, shows it kept."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import deltars
from deltars.uri import parse_catalog_uri
from tests.support.log import added
from tests.support.postgres import PostgresServer
from tests.support.racers import run_racers, unpublished
from tests.support.soak import record, scaled
from tests.support.together import Meanwhile
from tests.transaction.crews import NORTH, SOUTH, broken_in, keep_the_invariant
from tests.transaction.holding import held_at

# Many processes on few cores: not beside other tests.
pytestmark = pytest.mark.xdist_group("races")

TABLES = NORTH + SOUTH


@pytest.mark.soak
@pytest.mark.requirement("M-30")
@pytest.mark.timeout(7_200)
def test_invariant_over_four_tables_is_never_seen_broken(
    catalog: deltars.Catalog, catalog_uri: str, backend: str
) -> None:
    for name in TABLES:
        catalog.create_table(name, "id BIGINT")
    catalog.close()
    clients, duration_s = 6, float(scaled(2, soak=60))
    crew = run_racers(catalog_uri, clients, keep_the_invariant, duration_s, around=unpublished)
    assert [line for cuts in crew for line in cuts.broken] == []
    known = {txn_id: versions for cuts in crew for txn_id, versions in cuts.transactions.items()}
    assert known
    # Whatever came later, the cuts stay as they were.
    assert {txn_id: catalog.snapshot(as_of=txn_id).versions for txn_id in known} == known
    record(
        f"cuts over {len(TABLES)} tables, {backend}",
        clients=clients,
        seconds=duration_s,
        transactions=len(known),
        cuts=sum(cuts.looks for cuts in crew),
        broken=0,
    )


@pytest.mark.backends("postgres")
def test_past_cut_waits_for_a_commit_that_was_stamped_before_it_and_is_still_under_way(
    catalog: deltars.Catalog, catalog_uri: str
) -> None:
    held, free = (catalog.create_table(name, "id BIGINT") for name in ("held", "free"))
    with catalog.begin() as before:
        before.stage(free.name, [added("a")])
    slow, quick = catalog.begin(isolation="serializable"), catalog.begin(isolation="serializable")
    slow.stage(held.name, [added("a")])
    quick.stage(free.name, [added("b")])
    with held_at(catalog_uri, held, deferred=True) as hold:
        commit = Meanwhile(slow.commit)
        hold.wait_until_reached()
        quick.commit()
        assert catalog.snapshot().versions == {"held": 0, "free": 2}
        # What began later than the moment of a cut is none of its business.
        assert catalog.snapshot(as_of=before.id).versions == {"held": 0, "free": 1}
        with pytest.raises(deltars.TimeoutError):
            catalog.snapshot(as_of=quick.id, timeout=0.2)
        cut = Meanwhile(catalog.snapshot, as_of=quick.id)
        time.sleep(0.2)
        assert cut.is_running
    commit.result()
    assert cut.result().versions == {"held": 1, "free": 2}
    assert catalog.snapshot(as_of=quick.id).versions == {"held": 1, "free": 2}


@pytest.fixture
def restored_uri(postgres_server: PostgresServer) -> Iterator[tuple[PostgresServer, str]]:
    """An empty database on another server than that of `postgres16_catalog_uri`."""
    database = postgres_server.create_database("restored")
    yield postgres_server, database
    postgres_server.drop_database(database)


@pytest.mark.soak
@pytest.mark.postgres
@pytest.mark.timeout(7_200)
def test_cuts_are_the_same_after_dump_and_restore_into_a_new_server(
    postgres16_server: PostgresServer,
    postgres16_catalog_uri: str,
    restored_uri: tuple[PostgresServer, str],
    tmp_path: Path,
) -> None:
    with deltars.connect(postgres16_catalog_uri, warehouse=str(tmp_path / "warehouse"), migrate=True) as catalog:
        for name in TABLES:
            catalog.create_table(name, "id BIGINT")
        crew = run_racers(postgres16_catalog_uri, 4, keep_the_invariant, float(scaled(1, soak=60)), around=unpublished)
        now = dict(catalog.snapshot().versions)
    assert [line for cuts in crew for line in cuts.broken] == []
    known = {txn_id: versions for cuts in crew for txn_id, versions in cuts.transactions.items()}
    assert known
    uri = _restore(postgres16_server, postgres16_catalog_uri, *restored_uri, tmp_path / "dump")
    broken: list[str] = []
    with deltars.connect(uri) as catalog:
        assert catalog.snapshot().versions == now
        assert {txn_id: catalog.snapshot(as_of=txn_id).versions for txn_id in known} == known
        for versions in [now, *list(known.values())[:: max(1, len(known) // 50)]]:
            broken += broken_in(catalog, versions)
    # It lives on there, with cuts that hold.
    crew = run_racers(uri, 4, keep_the_invariant, float(scaled(1, soak=20)), around=unpublished)
    assert broken + [line for cuts in crew for line in cuts.broken] == []
    with deltars.connect(uri) as catalog:
        assert {txn_id: catalog.snapshot(as_of=txn_id).versions for txn_id in known} == known
    record("cuts after dump and restore, postgres", transactions=len(known), changed=0)


def _restore(source: PostgresServer, uri: str, target: PostgresServer, database: str, path: Path) -> str:
    """Dump one catalog, schema and all, with the tools of the newer server; the catalog's URI in its new place."""
    catalog = parse_catalog_uri(uri)
    assert catalog.schema is not None
    dump = ["pg_dump", "--format=custom", f"--schema={catalog.schema}", f"--file={path}"]
    _run(target, *dump, f"--dbname={source.conninfo_of(catalog.database)}")
    _run(target, "pg_restore", "--exit-on-error", f"--dbname={target.conninfo_of(database)}", str(path))
    return target.catalog_uri(database, catalog.schema)


def _run(server: PostgresServer, program: str, *arguments: str) -> None:
    done = subprocess.run([server.bin / program, *arguments], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
