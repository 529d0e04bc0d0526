"""Growth: commit, open, point look-up and cut, as versions, files and tables become many.

Each is measured in turns with a catalog of one small table, and the ratio is the cost of the size.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from uuid import UUID

import msgspec

import deltars
from benchmarks.figures import OURS, Figure, Side, Target, percentiles_ms
from benchmarks.lane import Lane
from benchmarks.reading import SCHEMA, add_table
from benchmarks.rig import Rig, add_file, in_own_process, new_catalog
from deltars.uri import parse_catalog_uri
from tests.support.witness import postgres_connection

SMALL = "one small table"
PART = 1_000_000
"""Files of one commit, where a table has more."""


@dataclass(frozen=True)
class Sizes:
    points: tuple[int, ...]
    repeats: int = 300


def versions(rig: Rig, sizes: Sizes) -> list[Figure]:
    def made(number: int) -> tuple[str, UUID]:
        uri, table_id = small_catalog(rig)
        _give_history(uri, table_id, number)
        return uri, table_id

    return _grown(rig, sizes, "versions", made)


def files(rig: Rig, sizes: Sizes) -> list[Figure]:
    def made(number: int) -> tuple[str, UUID]:
        uri, table_id = small_catalog(rig)
        in_own_process(fill_table, uri, table_id, number)
        return uri, table_id

    return _grown(rig, sizes, "files", made)


def tables(rig: Rig, sizes: Sizes) -> list[Figure]:
    def made(number: int) -> tuple[str, UUID]:
        uri, table_id = small_catalog(rig)
        _give_company(uri, table_id, number)
        return uri, table_id

    return _grown(rig, sizes, "tables", made)


def _grown(rig: Rig, sizes: Sizes, axis: str, made: Callable[[int], tuple[str, UUID]]) -> list[Figure]:
    figures = []
    for number in sizes.points:
        seen = in_own_process(measure_calls, {OURS: made(number), SMALL: small_catalog(rig)}, sizes.repeats)
        for what, sides in seen.items():
            figures.append(
                Figure(
                    f"{what}, {number:,} {axis}",
                    "ms",
                    {
                        name: Side([statistics.median(times) * 1000], *percentiles_ms(times))
                        for name, times in sides.items()
                    },
                    targets=[Target("cost", 1.2, SMALL)],
                    series=f"{axis}: {what}",
                    at=number,
                )
            )
    return figures


def measure_calls(places: dict[str, tuple[str, UUID]], repeats: int) -> dict[str, dict[str, list[float]]]:
    """Seconds of every call, by what was called and on which catalog; both take turns."""
    with ExitStack() as resources:
        calls = {}
        for name, (uri, table_id) in places.items():
            calls[name] = _calls(resources.enter_context(deltars.connect(uri, mirror="off")), table_id)
        seen: dict[str, dict[str, list[float]]] = {}
        for what in calls[OURS]:
            taken: dict[str, list[float]] = {name: [] for name in places}
            for number in range(repeats + 5):
                for name in places:
                    begun = time.perf_counter()
                    calls[name][what]()
                    if number >= 5:
                        taken[name].append(time.perf_counter() - begun)
            seen[what] = taken
        return seen


def _calls(catalog: deltars.Catalog, table_id: UUID) -> dict[str, Callable[[], object]]:
    reader, writer = deltars.SqlTxnLogReader(catalog), deltars.SqlTxnLogWriter(catalog)
    version = reader.current_version(table_id)

    def commit() -> None:
        nonlocal version
        version += 1
        add = msgspec.structs.replace(add_file(version), partition_values={"part": "1"})
        writer.commit(table_id, version, [add], operation="WRITE")

    def look_up() -> None:
        assert reader.snapshot(table_id).select_files(where="id = 77").num_rows

    return {
        "open": lambda: reader.snapshot(table_id).schema,
        "cut": lambda: catalog.snapshot().table(table_id).version,
        "point look-up": look_up,
        "commit": commit,
    }


# -- the catalogs ------------------------------------------------------------------------------------------------------


def small_catalog(rig: Rig) -> tuple[str, UUID]:
    """One table of one file."""
    uri = new_catalog(rig.server)
    with deltars.connect(uri) as catalog:
        made = catalog.create_table("small", SCHEMA, partition_by=["part"])
        deltars.SqlTxnLogWriter(catalog).commit(made.id, 1, add_table(1), operation="WRITE")
        return uri, made.id


def fill_table(uri: str, table_id: UUID, files: int) -> None:
    with deltars.connect(uri, timeout=3600) as catalog:
        writer = deltars.SqlTxnLogWriter(catalog)
        for version, start in enumerate(range(1, files, PART), start=2):
            adds = add_table(min(PART, files - start), start=start)
            writer.commit(table_id, version, adds, operation="WRITE")


def _give_history(uri: str, table_id: UUID, versions: int) -> None:
    """Versions that changed nothing; not one by one, for it is their number that is measured."""
    with postgres_connection(parse_catalog_uri(uri)) as connection:
        connection.execute(
            "INSERT INTO dl_table_versions"
            " (table_id, version, committed_at, commit_ts, in_commit_timestamp, txn_id, operation)"
            " SELECT table_id, version, now(), last_commit_ts + version, last_commit_ts / 1000 + version,"
            " gen_random_uuid(), 'WRITE' FROM dl_tables, generate_series(2, %s::bigint) AS version WHERE table_id = %s",
            [versions, table_id],
        )
        connection.execute(
            "UPDATE dl_tables SET current_version = %s, last_commit_ts = last_commit_ts + %s"
            " WHERE table_id = %s AND current_version < %s",
            [versions, versions, table_id, versions],
        )


def _give_company(uri: str, table_id: UUID, tables: int) -> None:
    """Tables like this one."""
    with postgres_connection(parse_catalog_uri(uri)) as connection:
        connection.execute("CREATE TEMP TABLE others (id uuid, n int)")
        connection.execute("INSERT INTO others SELECT gen_random_uuid(), n FROM generate_series(1, %s) n", [tables])
        for clone in _CLONES:
            connection.execute(clone, [table_id])


_CLONES = (
    (
        "INSERT INTO dl_tables (table_id, name, location, min_reader_version, min_writer_version, properties,"
        " current_version, metadata_version, protocol_version, slot, created_at)"
        " SELECT others.id, 'other' || n, '/other/' || n, min_reader_version, min_writer_version, properties,"
        " current_version, metadata_version, protocol_version, slot, created_at"
        " FROM dl_tables, others WHERE table_id = %s"
    ),
    (
        "INSERT INTO dl_table_versions (table_id, version, committed_at, commit_ts, in_commit_timestamp, txn_id,"
        " operation) SELECT others.id, version, committed_at, commit_ts, in_commit_timestamp, gen_random_uuid(),"
        " operation FROM dl_table_versions, others WHERE table_id = %s"
    ),
    (
        "INSERT INTO dl_metadata_updates (table_id, version, ord, metadata_id, format, schema_json, partition_columns,"
        " properties) SELECT others.id, version, ord, metadata_id, format, schema_json, partition_columns, properties"
        " FROM dl_metadata_updates, others WHERE table_id = %s"
    ),
    (
        "INSERT INTO dl_protocol_updates (table_id, version, ord, min_reader_version, min_writer_version,"
        " reader_features, writer_features) SELECT others.id, version, ord, min_reader_version, min_writer_version,"
        " reader_features, writer_features FROM dl_protocol_updates, others WHERE table_id = %s"
    ),
)


_NOTE = "On PostgreSQL, in turns with a catalog of one table with one file."
LANES = [
    Lane(
        "growth_versions",
        "Growth with versions",
        _NOTE,
        versions,
        {"tiny": Sizes((10,), 3), "quick": Sizes((1, 1_000), 50), "full": Sizes((1, 1_000, 100_000))},
    ),
    Lane(
        "growth_files",
        "Growth with files",
        _NOTE,
        files,
        {"tiny": Sizes((100,), 3), "quick": Sizes((1_000, 50_000), 50), "full": Sizes((1_000, 1_000_000))},
    ),
    Lane(
        "growth_tables",
        "Growth with tables",
        _NOTE,
        tables,
        {"tiny": Sizes((10,), 3), "quick": Sizes((1, 1_000), 50), "full": Sizes((1, 1_000, 100_000))},
    ),
    Lane(
        "growth_ten_million",
        "Growth to ten million files",
        f"{_NOTE} Ten commits of a million files each.",
        files,
        {"full": Sizes((10_000_000,))},
    ),
]
