"""Create the log: tables, keys, and the indexes that every commit and every look-up of a version uses."""

from __future__ import annotations

from collections.abc import Collection

import sqlalchemy as sa
from alembic import op

from deltars.store.types import Id, Instant, bounds_type, json_type

revision = "0001"
down_revision = None

TABLES = (
    "dl_catalog",
    "dl_mirror_log",
    "dl_tables",
    "dl_transactions",
    "dl_add_files",
    "dl_cdc_files",
    "dl_domain_metadata",
    "dl_metadata_updates",
    "dl_mirror_status",
    "dl_protocol_updates",
    "dl_remove_files",
    "dl_row_groups",
    "dl_table_versions",
    "dl_txn_actions",
)


def upgrade(views: Collection[str]) -> None:
    op.create_table(
        "dl_catalog",
        sa.Column("catalog_id", Id(), nullable=False),
        sa.Column("warehouse", sa.Text()),
        sa.Column("created_at", Instant(), nullable=False),
        sa.PrimaryKeyConstraint("catalog_id", name="pk_dl_catalog"),
    )
    op.create_table(
        "dl_mirror_log",
        sa.Column("table_id", Id(), nullable=False),
        sa.Column("version", sa.BigInteger(), nullable=False),
        sa.Column("published_at", sa.BigInteger(), nullable=False),
        sa.Column("digest", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("table_id", "version", name="pk_dl_mirror_log"),
    )
    op.create_table(
        "dl_tables",
        sa.Column("table_id", Id(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("location", sa.Text(), nullable=False),
        sa.Column("min_reader_version", sa.Integer(), nullable=False),
        sa.Column("min_writer_version", sa.Integer(), nullable=False),
        sa.Column("reader_features", json_type()),
        sa.Column("writer_features", json_type()),
        sa.Column("properties", json_type(), nullable=False),
        sa.Column("current_version", sa.BigInteger(), server_default=sa.text("-1"), nullable=False),
        sa.Column("metadata_version", sa.BigInteger(), server_default=sa.text("-1"), nullable=False),
        sa.Column("protocol_version", sa.BigInteger(), server_default=sa.text("-1"), nullable=False),
        sa.Column("last_commit_ts", sa.BigInteger(), server_default=sa.text("0"), nullable=False),
        sa.Column("last_ict", sa.BigInteger(), server_default=sa.text("0"), nullable=False),
        sa.Column("next_row_id", sa.BigInteger(), server_default=sa.text("0"), nullable=False),
        sa.Column("slot", sa.Integer(), nullable=False),
        sa.Column("created_at", Instant(), nullable=False),
        sa.Column("dropped_at", Instant()),
        sa.PrimaryKeyConstraint("table_id", name="pk_dl_tables"),
    )
    op.create_table(
        "dl_transactions",
        sa.Column("txn_id", Id(), nullable=False),
        sa.Column("outcome", sa.Text(), nullable=False),
        sa.Column("commit_ts", sa.BigInteger()),
        sa.Column("committer", sa.Text()),
        sa.Column("user_metadata", sa.Text()),
        sa.Column("participants", json_type()),
        sa.PrimaryKeyConstraint("txn_id", name="pk_dl_transactions"),
    )
    op.create_table(
        "dl_add_files",
        sa.Column("table_id", Id(), nullable=False),
        sa.Column("version", sa.BigInteger(), nullable=False),
        sa.Column("ord", sa.Integer(), nullable=False),
        sa.Column("path", sa.Text(), nullable=False),
        sa.Column("size", sa.BigInteger(), nullable=False),
        sa.Column("partition_values", json_type(), nullable=False),
        sa.Column("stats", sa.Text()),
        sa.Column("modification_time", sa.BigInteger(), nullable=False),
        sa.Column("data_change", sa.Boolean(), nullable=False),
        sa.Column("deletion_vector", json_type()),
        sa.Column("dv_id", sa.Text(), server_default=sa.text("''"), nullable=False),
        sa.Column("tags", json_type()),
        sa.Column("base_row_id", sa.BigInteger()),
        sa.Column("default_row_commit_version", sa.BigInteger()),
        sa.Column("clustering_provider", sa.Text()),
        sa.Column("num_records", sa.BigInteger()),
        sa.Column("removed_version", sa.BigInteger()),
        sa.Column("slot", sa.Integer(), nullable=False),
        sa.Column("mins", bounds_type()),
        sa.Column("maxs", bounds_type()),
        sa.ForeignKeyConstraint(["table_id"], ["dl_tables.table_id"], name="fk_dl_add_files_table_id"),
        sa.PrimaryKeyConstraint("table_id", "version", "ord", name="pk_dl_add_files"),
    )
    op.create_table(
        "dl_cdc_files",
        sa.Column("table_id", Id(), nullable=False),
        sa.Column("version", sa.BigInteger(), nullable=False),
        sa.Column("ord", sa.Integer(), nullable=False),
        sa.Column("path", sa.Text(), nullable=False),
        sa.Column("size", sa.BigInteger(), nullable=False),
        sa.Column("partition_values", json_type(), nullable=False),
        sa.Column("data_change", sa.Boolean(), nullable=False),
        sa.Column("tags", json_type()),
        sa.ForeignKeyConstraint(["table_id"], ["dl_tables.table_id"], name="fk_dl_cdc_files_table_id"),
        sa.PrimaryKeyConstraint("table_id", "version", "ord", name="pk_dl_cdc_files"),
    )
    op.create_table(
        "dl_domain_metadata",
        sa.Column("table_id", Id(), nullable=False),
        sa.Column("version", sa.BigInteger(), nullable=False),
        sa.Column("ord", sa.Integer(), nullable=False),
        sa.Column("domain", sa.Text(), nullable=False),
        sa.Column("configuration", sa.Text(), nullable=False),
        sa.Column("removed", sa.Boolean(), nullable=False),
        sa.ForeignKeyConstraint(["table_id"], ["dl_tables.table_id"], name="fk_dl_domain_metadata_table_id"),
        sa.PrimaryKeyConstraint("table_id", "domain", "version", name="pk_dl_domain_metadata"),
    )
    op.create_table(
        "dl_metadata_updates",
        sa.Column("table_id", Id(), nullable=False),
        sa.Column("version", sa.BigInteger(), nullable=False),
        sa.Column("ord", sa.Integer(), nullable=False),
        sa.Column("metadata_id", sa.Text(), nullable=False),
        sa.Column("name", sa.Text()),
        sa.Column("description", sa.Text()),
        sa.Column("format", json_type(), nullable=False),
        sa.Column("schema_json", sa.Text(), nullable=False),
        sa.Column("partition_columns", json_type(), nullable=False),
        sa.Column("properties", json_type(), nullable=False),
        sa.Column("created_time", sa.BigInteger()),
        sa.ForeignKeyConstraint(["table_id"], ["dl_tables.table_id"], name="fk_dl_metadata_updates_table_id"),
        sa.PrimaryKeyConstraint("table_id", "version", name="pk_dl_metadata_updates"),
    )
    op.create_table(
        "dl_mirror_status",
        sa.Column("table_id", Id(), nullable=False),
        sa.Column("published_version", sa.BigInteger(), server_default=sa.text("-1"), nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("lease_owner", sa.Text()),
        sa.Column("lease_until", sa.BigInteger()),
        sa.Column("attempts", sa.Integer(), server_default=sa.text("0"), nullable=False),
        sa.Column("last_error", sa.Text()),
        sa.Column("next_attempt_at", sa.BigInteger()),
        sa.ForeignKeyConstraint(["table_id"], ["dl_tables.table_id"], name="fk_dl_mirror_status_table_id"),
        sa.PrimaryKeyConstraint("table_id", name="pk_dl_mirror_status"),
    )
    op.create_table(
        "dl_protocol_updates",
        sa.Column("table_id", Id(), nullable=False),
        sa.Column("version", sa.BigInteger(), nullable=False),
        sa.Column("ord", sa.Integer(), nullable=False),
        sa.Column("min_reader_version", sa.Integer(), nullable=False),
        sa.Column("min_writer_version", sa.Integer(), nullable=False),
        sa.Column("reader_features", json_type()),
        sa.Column("writer_features", json_type()),
        sa.ForeignKeyConstraint(["table_id"], ["dl_tables.table_id"], name="fk_dl_protocol_updates_table_id"),
        sa.PrimaryKeyConstraint("table_id", "version", name="pk_dl_protocol_updates"),
    )
    op.create_table(
        "dl_remove_files",
        sa.Column("table_id", Id(), nullable=False),
        sa.Column("version", sa.BigInteger(), nullable=False),
        sa.Column("ord", sa.Integer(), nullable=False),
        sa.Column("path", sa.Text(), nullable=False),
        sa.Column("deletion_timestamp", sa.BigInteger()),
        sa.Column("data_change", sa.Boolean(), nullable=False),
        sa.Column("extended_file_metadata", sa.Boolean()),
        sa.Column("partition_values", json_type()),
        sa.Column("size", sa.BigInteger()),
        sa.Column("stats", sa.Text()),
        sa.Column("tags", json_type()),
        sa.Column("deletion_vector", json_type()),
        sa.Column("dv_id", sa.Text(), server_default=sa.text("''"), nullable=False),
        sa.Column("base_row_id", sa.BigInteger()),
        sa.Column("default_row_commit_version", sa.BigInteger()),
        sa.ForeignKeyConstraint(["table_id"], ["dl_tables.table_id"], name="fk_dl_remove_files_table_id"),
        sa.PrimaryKeyConstraint("table_id", "version", "ord", name="pk_dl_remove_files"),
    )
    op.create_table(
        "dl_row_groups",
        sa.Column("table_id", Id(), nullable=False),
        sa.Column("version", sa.BigInteger(), nullable=False),
        sa.Column("ord", sa.Integer(), nullable=False),
        sa.Column("row_group", sa.Integer(), nullable=False),
        sa.Column("num_rows", sa.BigInteger(), nullable=False),
        sa.Column("total_bytes", sa.BigInteger(), nullable=False),
        sa.Column("file_offset", sa.BigInteger()),
        sa.Column("stats", sa.Text()),
        sa.ForeignKeyConstraint(["table_id"], ["dl_tables.table_id"], name="fk_dl_row_groups_table_id"),
        sa.PrimaryKeyConstraint("table_id", "version", "ord", "row_group", name="pk_dl_row_groups"),
    )
    op.create_table(
        "dl_table_versions",
        sa.Column("table_id", Id(), nullable=False),
        sa.Column("version", sa.BigInteger(), nullable=False),
        sa.Column("committed_at", Instant(), nullable=False),
        sa.Column("commit_ts", sa.BigInteger(), nullable=False),
        sa.Column("in_commit_timestamp", sa.BigInteger(), nullable=False),
        sa.Column("txn_id", Id(), nullable=False),
        sa.Column("committer", sa.Text()),
        sa.Column("operation", sa.Text(), nullable=False),
        sa.Column("operation_params", json_type()),
        sa.Column("read_version", sa.BigInteger()),
        sa.Column("isolation", sa.Text()),
        sa.Column("is_blind_append", sa.Boolean()),
        sa.Column("metrics", json_type()),
        sa.Column("user_metadata", sa.Text()),
        sa.ForeignKeyConstraint(["table_id"], ["dl_tables.table_id"], name="fk_dl_table_versions_table_id"),
        sa.PrimaryKeyConstraint("table_id", "version", name="pk_dl_table_versions"),
    )
    op.create_table(
        "dl_txn_actions",
        sa.Column("table_id", Id(), nullable=False),
        sa.Column("version", sa.BigInteger(), nullable=False),
        sa.Column("ord", sa.Integer(), nullable=False),
        sa.Column("app_id", sa.Text(), nullable=False),
        sa.Column("txn_version", sa.BigInteger(), nullable=False),
        sa.Column("last_update", sa.BigInteger()),
        sa.ForeignKeyConstraint(["table_id"], ["dl_tables.table_id"], name="fk_dl_txn_actions_table_id"),
        sa.PrimaryKeyConstraint("table_id", "app_id", "version", name="pk_dl_txn_actions"),
    )
    # DuckDB has no partial index, and cannot update an indexed column of a row that foreign keys point to.
    if op.get_context().dialect.name != "duckdb":
        living = sa.text("dropped_at IS NULL")
        for column in ("name", "location"):
            op.create_index(
                f"ux_dl_tables_{column}",
                "dl_tables",
                [column],
                unique=True,
                postgresql_where=living,
                sqlite_where=living,
            )
    op.create_index("ix_dl_transactions_commit_ts", "dl_transactions", ["commit_ts"])
    # NULLS LAST: see `schema`. SQLite does not support it in an index.
    falling = "version DESC NULLS LAST" if op.get_context().dialect.name == "postgresql" else "version DESC"
    op.create_index("ix_dl_table_versions_latest", "dl_table_versions", ["table_id", sa.text(falling)])
    op.create_index("ix_dl_table_versions_commit_ts", "dl_table_versions", ["table_id", "commit_ts", "version"])
    for table in ("dl_txn_actions", "dl_domain_metadata"):
        op.create_index(f"ix_{table}_version", table, ["table_id", "version"])


def downgrade(views: Collection[str]) -> None:
    for table in reversed(TABLES):
        op.drop_table(table)
