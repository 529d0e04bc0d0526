"""Let roles that see some tables only know the newest time stamp: `dl_commit_times`, on PostgreSQL."""

from __future__ import annotations

from collections.abc import Collection

from alembic import op

revision = "0013"
down_revision = "0012"


def upgrade(views: Collection[str]) -> None:
    if op.get_context().dialect.name == "postgresql":
        op.execute("CREATE VIEW dl_commit_times AS SELECT commit_ts FROM dl_transactions")
        # Roles that have rights already need it for their next commit. It has nothing but times.
        op.execute("GRANT SELECT ON dl_commit_times TO PUBLIC")


def downgrade(views: Collection[str]) -> None:
    if op.get_context().dialect.name == "postgresql":
        op.execute("DROP VIEW dl_commit_times")
