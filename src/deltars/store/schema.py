"""Database tables of the catalog, defined once for every backend.

    dl_catalog            the catalog itself: one row
    dl_tables             one row per table; a commit locks it, and it holds everything needed to stamp a commit
    dl_transactions       one row per transaction, over any number of tables
    dl_table_versions     one row per commit of one table
      dl_add_files  dl_remove_files  dl_cdc_files  dl_metadata_updates
      dl_protocol_updates  dl_txn_actions  dl_domain_metadata          the actions of a version, in order (`ord`)
      dl_row_groups                                                    row groups of added files, if known
    dl_mirror_status      how far `_delta_log` is published: one row per table
    dl_mirror_log         published versions, with their times
    dl_tags               named cuts
    dl_writers            transactions that write files right now
    dl_maintenance        what vacuum, optimize and expire did: at most one row per table
    dl_reads              what committed transactions read: one row per transaction and table
    dl_conflicts          transactions that lost a race, and to which commit
    dl_identities         last value that a writer reserved of each identity column
    dl_chain              hashes of versions, of tables that have a hash chain (`store/chain`)

Rows are only inserted, except in `dl_tables`, `dl_mirror_status`, `dl_add_files`, `dl_tags`, `dl_writers`,
`dl_maintenance` and `dl_identities`. In `dl_add_files`,
`removed_version` (NULL while the file is live) makes a snapshot at V one range:
`version <= V and (removed_version is null or removed_version > V)`. `mins` and `maxs` repeat the bounds in `stats`, in
the order of the table's columns, and are rewritten when that order changes.

The migrations in `migrations` bring a database to this definition, and a test compares the two.
"""

from __future__ import annotations

from typing import Any

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    ForeignKey,
    Index,
    Integer,
    MetaData,
    PrimaryKeyConstraint,
    Table,
    Text,
    func,
    text,
)

from deltars.store.types import Id, Instant, bounds_type, json_type

NO_VERSION = -1

metadata = MetaData(
    naming_convention={
        "pk": "pk_%(table_name)s",
        "fk": "fk_%(table_name)s_%(column_0_name)s",
        "ix": "ix_%(column_0_label)s",
    }
)


def _table_id() -> Column[Any]:
    return Column("table_id", Id, ForeignKey("dl_tables.table_id"), nullable=False)


def _version() -> Column[Any]:
    return Column("version", BigInteger, nullable=False)


def _ord() -> Column[Any]:
    return Column("ord", Integer, nullable=False)


dl_catalog = Table(
    "dl_catalog",
    metadata,
    Column("catalog_id", Id, primary_key=True),
    Column("warehouse", Text),
    Column("created_at", Instant, nullable=False),
    Column("isolation", Text),
)

dl_tables = Table(
    "dl_tables",
    metadata,
    Column("table_id", Id, primary_key=True),
    Column("name", Text, nullable=False),
    Column("location", Text, nullable=False),
    Column("min_reader_version", Integer, nullable=False),
    Column("min_writer_version", Integer, nullable=False),
    Column("reader_features", json_type()),
    Column("writer_features", json_type()),
    Column("properties", json_type(), nullable=False),
    Column("current_version", BigInteger, nullable=False, server_default=text("-1")),
    Column("metadata_version", BigInteger, nullable=False, server_default=text("-1")),
    Column("protocol_version", BigInteger, nullable=False, server_default=text("-1")),
    Column("last_commit_ts", BigInteger, nullable=False, server_default=text("0")),
    Column("last_ict", BigInteger, nullable=False, server_default=text("0")),
    Column("next_row_id", BigInteger, nullable=False, server_default=text("0")),
    Column("slot", Integer, nullable=False),
    Column("created_at", Instant, nullable=False),
    Column("dropped_at", Instant),
)

dl_transactions = Table(
    "dl_transactions",
    metadata,
    Column("txn_id", Id, primary_key=True),
    Column("outcome", Text, nullable=False),
    Column("commit_ts", BigInteger),
    Column("committer", Text),
    Column("user_metadata", Text),
    Column("participants", json_type()),
    # For people: microseconds of each stage until the time stamp (`log.stages`).
    Column("stages", json_type()),
)

dl_table_versions = Table(
    "dl_table_versions",
    metadata,
    _table_id(),
    _version(),
    Column("committed_at", Instant, nullable=False),
    Column("commit_ts", BigInteger, nullable=False),
    Column("in_commit_timestamp", BigInteger, nullable=False),
    Column("txn_id", Id, nullable=False),
    Column("committer", Text),
    Column("operation", Text, nullable=False),
    Column("operation_params", json_type()),
    Column("read_version", BigInteger),
    Column("isolation", Text),
    Column("is_blind_append", Boolean),
    Column("metrics", json_type()),
    Column("user_metadata", Text),
    PrimaryKeyConstraint("table_id", "version"),
)

dl_add_files = Table(
    "dl_add_files",
    metadata,
    _table_id(),
    _version(),
    _ord(),
    Column("path", Text, nullable=False),
    Column("size", BigInteger, nullable=False),
    Column("partition_values", json_type(), nullable=False),
    Column("stats", Text),
    Column("modification_time", BigInteger, nullable=False),
    Column("data_change", Boolean, nullable=False),
    Column("deletion_vector", json_type()),
    Column("dv_id", Text, nullable=False, server_default=text("''")),
    Column("tags", json_type()),
    Column("base_row_id", BigInteger),
    Column("default_row_commit_version", BigInteger),
    Column("clustering_provider", Text),
    Column("num_records", BigInteger),
    Column("removed_version", BigInteger),
    Column("slot", Integer, nullable=False),
    Column("mins", bounds_type()),
    Column("maxs", bounds_type()),
    PrimaryKeyConstraint("table_id", "version", "ord"),
)

dl_remove_files = Table(
    "dl_remove_files",
    metadata,
    _table_id(),
    _version(),
    _ord(),
    Column("path", Text, nullable=False),
    Column("deletion_timestamp", BigInteger),
    Column("data_change", Boolean, nullable=False),
    Column("extended_file_metadata", Boolean),
    Column("partition_values", json_type()),
    Column("size", BigInteger),
    Column("stats", Text),
    Column("tags", json_type()),
    Column("deletion_vector", json_type()),
    Column("dv_id", Text, nullable=False, server_default=text("''")),
    Column("base_row_id", BigInteger),
    Column("default_row_commit_version", BigInteger),
    PrimaryKeyConstraint("table_id", "version", "ord"),
)

dl_cdc_files = Table(
    "dl_cdc_files",
    metadata,
    _table_id(),
    _version(),
    _ord(),
    Column("path", Text, nullable=False),
    Column("size", BigInteger, nullable=False),
    Column("partition_values", json_type(), nullable=False),
    Column("data_change", Boolean, nullable=False),
    Column("tags", json_type()),
    PrimaryKeyConstraint("table_id", "version", "ord"),
)

dl_metadata_updates = Table(
    "dl_metadata_updates",
    metadata,
    _table_id(),
    _version(),
    _ord(),
    Column("metadata_id", Text, nullable=False),
    Column("name", Text),
    Column("description", Text),
    Column("format", json_type(), nullable=False),
    Column("schema_json", Text, nullable=False),
    Column("partition_columns", json_type(), nullable=False),
    Column("properties", json_type(), nullable=False),
    Column("created_time", BigInteger),
    PrimaryKeyConstraint("table_id", "version"),
)

dl_protocol_updates = Table(
    "dl_protocol_updates",
    metadata,
    _table_id(),
    _version(),
    _ord(),
    Column("min_reader_version", Integer, nullable=False),
    Column("min_writer_version", Integer, nullable=False),
    Column("reader_features", json_type()),
    Column("writer_features", json_type()),
    PrimaryKeyConstraint("table_id", "version"),
)

dl_txn_actions = Table(
    "dl_txn_actions",
    metadata,
    _table_id(),
    _version(),
    _ord(),
    Column("app_id", Text, nullable=False),
    Column("txn_version", BigInteger, nullable=False),
    Column("last_update", BigInteger),
    PrimaryKeyConstraint("table_id", "app_id", "version"),
)

dl_domain_metadata = Table(
    "dl_domain_metadata",
    metadata,
    _table_id(),
    _version(),
    _ord(),
    Column("domain", Text, nullable=False),
    Column("configuration", Text, nullable=False),
    Column("removed", Boolean, nullable=False),
    PrimaryKeyConstraint("table_id", "domain", "version"),
)

dl_row_groups = Table(
    "dl_row_groups",
    metadata,
    _table_id(),
    _version(),
    _ord(),
    Column("row_group", Integer, nullable=False),
    Column("num_rows", BigInteger, nullable=False),
    Column("total_bytes", BigInteger, nullable=False),
    Column("file_offset", BigInteger),
    Column("stats", Text),
    PrimaryKeyConstraint("table_id", "version", "ord", "row_group"),
)

dl_mirror_status = Table(
    "dl_mirror_status",
    metadata,
    Column("table_id", Id, ForeignKey("dl_tables.table_id"), primary_key=True),
    Column("published_version", BigInteger, nullable=False, server_default=text("-1")),
    Column("state", Text, nullable=False),
    Column("lease_owner", Text),
    Column("lease_until", BigInteger),
    Column("attempts", Integer, nullable=False, server_default=text("0")),
    Column("last_error", Text),
    Column("next_attempt_at", BigInteger),
)

dl_mirror_log = Table(
    "dl_mirror_log",
    metadata,
    # No foreign key: checking it would wait for the row lock of a running commit to the table.
    Column("table_id", Id, nullable=False),
    _version(),
    Column("published_at", BigInteger, nullable=False),
    Column("digest", Text, nullable=False),
    PrimaryKeyConstraint("table_id", "version"),
)

dl_tags = Table(
    "dl_tags",
    metadata,
    Column("name", Text, primary_key=True),
    Column("commit_ts", BigInteger, nullable=False),
    # The transaction that the tag was given, if it was given one.
    Column("txn_id", Id),
    Column("created_at", Instant, nullable=False),
    Column("committer", Text),
    Column("description", Text),
)

# No foreign key, for the reason below.
dl_identities = Table(
    "dl_identities",
    metadata,
    Column("table_id", Id, nullable=False),
    # The physical name, which a renamed column keeps.
    Column("column_name", Text, nullable=False),
    Column("last_value", BigInteger),
    PrimaryKeyConstraint("table_id", "column_name"),
)

# No foreign key, for the reason below.
dl_chain = Table(
    "dl_chain",
    metadata,
    Column("table_id", Id, nullable=False),
    # -1 is the base: what an expiry left of older versions.
    _version(),
    # Hash of the version's rows, and the link to the version before it.
    Column("content", Text, nullable=False),
    Column("link", Text, nullable=False),
    Column("sealed_at", BigInteger, nullable=False),
    PrimaryKeyConstraint("table_id", "version"),
)

# Neither has a foreign key: checking it would wait for the row lock of a running commit to the table.
dl_writers = Table(
    "dl_writers",
    metadata,
    Column("txn_id", Id, nullable=False),
    # A table that the transaction creates is not in `dl_tables` yet.
    Column("table_id", Id, nullable=False),
    Column("started_at", BigInteger, nullable=False),
    Column("heartbeat_at", BigInteger, nullable=False),
    PrimaryKeyConstraint("txn_id", "table_id"),
)

dl_maintenance = Table(
    "dl_maintenance",
    metadata,
    Column("table_id", Id, primary_key=True),
    # Every file that was removed at or below this version is deleted, unless one of `kept_versions` needs it.
    Column("vacuumed_version", BigInteger, nullable=False, server_default=text("-1")),
    # Files that were removed at or below this version may be deleted at any moment, unless a tag needs them: a vacuum
    # sets it before it deletes, and the two versions are equal when it has finished.
    Column("condemned_version", BigInteger, nullable=False, server_default=text("-1")),
    # Versions that tags needed when `vacuumed_version` was set.
    Column("kept_versions", json_type()),
    # Versions below this one are no longer in the catalog.
    Column("first_version", BigInteger, nullable=False, server_default=text("0")),
    Column("lease_owner", Text),
    Column("lease_until", BigInteger),
    Column("optimized_at", BigInteger),
    Column("vacuumed_at", BigInteger),
    Column("expired_at", BigInteger),
)

# For people, not for the log: neither has a foreign key, and a commit does not depend on them.
dl_reads = Table(
    "dl_reads",
    metadata,
    Column("txn_id", Id, nullable=False),
    Column("table_id", Id, nullable=False),
    _version(),
    # How much was read, and the condition (`log.read_description`).
    Column("kind", Text, nullable=False),
    Column("condition", Text),
    Column("recorded_at", BigInteger, nullable=False),
    PrimaryKeyConstraint("txn_id", "table_id"),
)

dl_conflicts = Table(
    "dl_conflicts",
    metadata,
    Column("conflict_id", Id, primary_key=True),
    Column("recorded_at", BigInteger, nullable=False),
    Column("txn_id", Id, nullable=False),
    Column("committer", Text),
    Column("isolation", Text, nullable=False),
    Column("operation", Text),
    Column("table_id", Id, nullable=False),
    Column("rule", Text, nullable=False),
    Column("reason", Text),
    Column("expected_version", BigInteger, nullable=False),
    Column("actual_version", BigInteger, nullable=False),
    Column("winning_version", BigInteger),
    Column("winning_txn_id", Id),
)

dl_commit_times = Table("dl_commit_times", MetaData(), Column("commit_ts", BigInteger))
"""View of `dl_transactions` on PostgreSQL, where a role may see only some of its rows (`row_policies`)."""

RANGE_WIDTHS = tuple(float(f"1e{exponent}") for exponent in range(-3, 15))
"""Upper ends of the classes of widths in the range index. One more class has no upper end."""

RANGE_KEYS = {
    "postgresql": (
        "CAST(slot AS bigint) * 32 + width_bucket(maxs[1] - mins[1],"
        f" '{{{','.join(map(repr, RANGE_WIDTHS))}}}'::float8[])",
        "mins[1]",
        "maxs[1]",
    ),
    # The class is the number of digits of the width: a cast to an integer ends at 19 digits, so the last class has all
    # larger widths. The first number of an array follows its bracket.
    "sqlite": (
        "slot * 32 + length(CAST(max(CAST(substr(maxs, 2) AS REAL) - CAST(substr(mins, 2) AS REAL), 0.0)"
        " * 10000.0 AS INTEGER)) - 1",
        "CAST(substr(mins, 2) AS REAL)",
        "CAST(substr(maxs, 2) AS REAL)",
    ),
}
"""Keys of the range index: slot and class of the width, minimum, maximum (`file_search`). Slot and class are one
number: a planner without statistics might otherwise choose another index on the slot."""

ACTION_TABLES = (
    dl_add_files,
    dl_remove_files,
    dl_cdc_files,
    dl_metadata_updates,
    dl_protocol_updates,
    dl_txn_actions,
    dl_domain_metadata,
    dl_row_groups,
)


# DuckDB has no partial index, and cannot update an indexed column of a row that foreign keys point to.
def _partial(index: Index) -> Index:
    index.ddl_if(callable_=lambda *_, dialect, **__: dialect.name != "duckdb")
    return index


_living = dl_tables.c.dropped_at.is_(None)
_live = dl_add_files.c.removed_version.is_(None)
_dead = dl_add_files.c.removed_version.is_not(None)

_add = dl_add_files.c
_versions = dl_table_versions.c

INDEXES = (
    # Ignores case as far as the database's lower() does; the registry checks the rest.
    _partial(
        Index(
            "ux_dl_tables_name",
            func.lower(dl_tables.c.name),
            unique=True,
            postgresql_where=_living,
            sqlite_where=_living,
        )
    ),
    _partial(
        Index(
            "ux_dl_tables_location", dl_tables.c.location, unique=True, postgresql_where=_living, sqlite_where=_living
        )
    ),
    Index("ix_dl_transactions_commit_ts", dl_transactions.c.commit_ts),
    # NULLS LAST, although there are no nulls: only this index has that order. The primary key read backwards has the
    # order without NULLS LAST too, and the planner would choose between the two by how tightly they are packed.
    Index("ix_dl_table_versions_latest", _versions.table_id, _versions.version.desc().nulls_last()).ddl_if(
        dialect="postgresql"
    ),
    Index("ix_dl_table_versions_latest", _versions.table_id, _versions.version.desc()).ddl_if(
        callable_=lambda *_, dialect, **__: dialect.name != "postgresql"
    ),
    Index("ix_dl_table_versions_commit_ts", _versions.table_id, _versions.commit_ts, _versions.version),
    # Indexed by version too: their keys begin with the application or the domain, but a publication reads one version.
    *(
        Index(f"ix_{table.name}_version", table.c.table_id, table.c.version)
        for table in (dl_txn_actions, dl_domain_metadata)
    ),
    Index("ix_dl_reads_table", dl_reads.c.table_id, dl_reads.c.recorded_at),
    Index("ix_dl_conflicts_recorded_at", dl_conflicts.c.recorded_at),
    Index("ix_dl_add_files_path", _add.table_id, _add.path),
    _partial(Index("ix_dl_add_files_live", _add.table_id, _add.version, postgresql_where=_live, sqlite_where=_live)),
    # A past snapshot also needs the files removed since; they have a separate small index, which inserts do not touch.
    _partial(
        Index(
            "ix_dl_add_files_removed", _add.table_id, _add.removed_version, postgresql_where=_dead, sqlite_where=_dead
        )
    ),
    # jsonb_path_ops: only containment is queried, and it needs half the index entries per file.
    Index(
        "ix_dl_add_files_stats",
        func.dl_stats_filter(_add.stats).label("stats_filter"),
        postgresql_using="gin",
        postgresql_ops={"stats_filter": "jsonb_path_ops"},
    ).ddl_if(dialect="postgresql"),
    *(
        Index(
            "ix_dl_add_files_range",
            *(text(f"({key})") for key in keys),
            postgresql_where=_live,
            sqlite_where=_live,
            _table=dl_add_files,
        ).ddl_if(dialect=dialect)
        for dialect, keys in RANGE_KEYS.items()
    ),
    Index(
        "ix_dl_add_files_partition",
        _add.slot,
        text('(CAST(partition_values AS text) COLLATE "C")'),
        postgresql_where=_live,
    ).ddl_if(dialect="postgresql"),
    Index("ix_dl_add_files_partition", _add.slot, _add.partition_values, sqlite_where=_live).ddl_if(dialect="sqlite"),
)
