"""What comes after one large server, tried in small: partitions by table, and a standby that answers readers.

`docs/scale.md` says when each is worth its trouble. deltars does neither of them by itself.
"""

from __future__ import annotations

import statistics
import time
from dataclasses import dataclass
from typing import Any
from uuid import UUID

import msgspec
from psycopg import Connection, sql

import deltars
from benchmarks.figures import OURS, Figure, Side, Target, percentiles_ms, timed
from benchmarks.growth import fill_table, measure_calls, small_catalog
from benchmarks.lane import Lane
from benchmarks.rig import Rig, add_file, in_own_process
from deltars.uri import parse_catalog_uri
from tests.support.postgres import standby_of
from tests.support.witness import postgres_connection

PARTITIONS = 16
WHOLE = "one `dl_add_files`"
PRIMARY = "the primary"


@dataclass(frozen=True)
class Sizes:
    files: int = 1_000_000
    repeats: int = 300


def partitions(rig: Rig, sizes: Sizes) -> list[Figure]:
    """The same calls on a catalog whose files lie in partitions, and on one whose files lie in one table."""
    places = {}
    for name in (OURS, WHOLE):
        uri, table_id = small_catalog(rig)
        in_own_process(fill_table, uri, table_id, sizes.files)
        places[name] = uri, table_id
    with postgres_connection(parse_catalog_uri(places[OURS][0])) as connection, connection.transaction():
        partition_by_table(connection)
    bytes_per_file = {name: _bytes_of_files(uri) / sizes.files for name, (uri, _) in places.items()}
    seen = in_own_process(measure_calls, places, sizes.repeats)
    return [
        Figure("database size per file", "bytes", {name: Side([size]) for name, size in bytes_per_file.items()}),
        *(
            Figure(
                f"{what}, {sizes.files:,} files",
                "ms",
                {name: Side([statistics.median(took) * 1000], *percentiles_ms(took)) for name, took in sides.items()},
                targets=[Target("cost", 1.2, WHOLE)],
            )
            for what, sides in seen.items()
        ),
    ]


def _bytes_of_files(uri: str) -> int:
    """Return the size of `dl_add_files` in the database: rows, indexes, and values that are stored apart."""
    with postgres_connection(parse_catalog_uri(uri)) as connection:
        [(size,)] = connection.execute(
            "SELECT sum(pg_total_relation_size(oid))::bigint FROM pg_class"
            " WHERE relkind = 'r' AND starts_with(relname, 'dl_add_files')"
            " AND relnamespace = current_schema()::regnamespace"
        )
        return int(size)


def partition_by_table(connection: Connection[tuple[Any, ...]]) -> None:
    """Move the rows of `dl_add_files` into partitions by table, with the same indexes and views."""

    def texts(query: str) -> list[str]:
        return [text for (text,) in connection.execute(query.encode())]

    views = connection.execute(
        "SELECT relname, pg_get_viewdef(oid), reloptions FROM pg_class"
        " WHERE relkind = 'v' AND relnamespace = current_schema()::regnamespace ORDER BY oid"
    ).fetchall()
    indexes = texts(
        "SELECT indexdef FROM pg_indexes WHERE schemaname = current_schema()"
        " AND tablename = 'dl_add_files' AND indexname NOT LIKE 'pk%'"
    )
    for name, *_ in reversed(views):
        connection.execute(sql.SQL("DROP VIEW {}").format(sql.Identifier(name)))
    connection.execute("ALTER TABLE dl_add_files RENAME TO dl_whole")
    connection.execute("CREATE TABLE dl_add_files (LIKE dl_whole INCLUDING DEFAULTS) PARTITION BY HASH (table_id)")
    for number in range(PARTITIONS):
        connection.execute(
            sql.SQL("CREATE TABLE {} PARTITION OF dl_add_files FOR VALUES WITH (MODULUS {}, REMAINDER {})").format(
                sql.Identifier(f"dl_add_files_{number}"), sql.Literal(PARTITIONS), sql.Literal(number)
            )
        )
    connection.execute("INSERT INTO dl_add_files SELECT * FROM dl_whole")
    connection.execute("DROP TABLE dl_whole")
    connection.execute("ALTER TABLE dl_add_files ADD CONSTRAINT pk_dl_add_files PRIMARY KEY (table_id, version, ord)")
    connection.execute("ALTER TABLE dl_add_files ADD FOREIGN KEY (table_id) REFERENCES dl_tables (table_id)")
    for definition in indexes:
        connection.execute(definition.encode())
    for name, definition, options in views:
        given = sql.SQL(f" WITH ({', '.join(options)})" if options else "")
        view = sql.SQL("CREATE VIEW {}{} AS {}").format(sql.Identifier(name), given, sql.SQL(definition))
        connection.execute(view)


def standby(rig: Rig, sizes: Sizes) -> list[Figure]:
    """Planning on a hot standby, and how long a commit takes to be seen there."""
    uri, table_id = small_catalog(rig)
    in_own_process(fill_table, uri, table_id, sizes.files)
    place = parse_catalog_uri(uri)
    with standby_of(rig.server) as server:
        away = server.catalog_uri(place.database, str(place.schema))
        took, lags = in_own_process(_read_and_follow, uri, away, table_id, sizes.repeats)
    sides = {name: Side([statistics.median(each) * 1000], *percentiles_ms(each)) for name, each in took.items()}
    return [
        Figure("point look-up", "ms", sides, targets=[Target("cost", 1.2, PRIMARY)]),
        timed("from the commit until the standby shows it", lags),
    ]


def _read_and_follow(uri: str, away: str, table_id: UUID, repeats: int) -> tuple[dict[str, list[float]], list[float]]:
    with deltars.connect(uri, mirror="off") as primary, deltars.connect(away, mirror="off") as follower:
        assert follower.is_standby
        readers = {OURS: deltars.SqlTxnLogReader(follower), PRIMARY: deltars.SqlTxnLogReader(primary)}
        took: dict[str, list[float]] = {name: [] for name in readers}
        for number in range(repeats + 5):
            for name, reader in readers.items():
                begun = time.perf_counter()
                assert reader.snapshot(table_id).select_files(where="id = 77").num_rows
                if number >= 5:
                    took[name].append(time.perf_counter() - begun)
        writer, lags = deltars.SqlTxnLogWriter(primary), []
        version = readers[PRIMARY].current_version(table_id)
        for _ in range(repeats):
            version += 1
            add = msgspec.structs.replace(add_file(version), partition_values={"part": "1"})
            writer.commit(table_id, version, [add], operation="WRITE")
            begun = time.perf_counter()
            while readers[OURS].current_version(table_id) < version:
                pass
            lags.append(time.perf_counter() - begun)
        return took, lags


LANES = [
    Lane(
        "scale_partitions",
        "Partitions by table",
        f"PostgreSQL; `dl_add_files` of one catalog has {PARTITIONS} hash partitions by table, that of the other none. "
        "Both have one table of {sizes.files:,} files.",
        partitions,
        {"tiny": Sizes(500, 3), "quick": Sizes(50_000, 50), "full": Sizes()},
        is_main=False,
    ),
    Lane(
        "scale_standby",
        "Planning on a standby",
        "PostgreSQL, with a hot standby that follows by streaming on the same machine.",
        standby,
        {"quick": Sizes(50_000, 50), "full": Sizes()},
        is_main=False,
    ),
]
