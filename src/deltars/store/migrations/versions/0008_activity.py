"""Keep what transactions read, and which transactions lost a race.

Going down forgets both; the log is not affected.
"""

from __future__ import annotations

from collections.abc import Collection

import sqlalchemy as sa
from alembic import op

from deltars.store.types import Id

revision = "0008"
down_revision = "0007"


def upgrade(views: Collection[str]) -> None:
    op.create_table(
        "dl_reads",
        sa.Column("txn_id", Id(), nullable=False),
        sa.Column("table_id", Id(), nullable=False),
        sa.Column("version", sa.BigInteger(), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("condition", sa.Text()),
        sa.Column("recorded_at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("txn_id", "table_id", name="pk_dl_reads"),
    )
    op.create_index("ix_dl_reads_table", "dl_reads", ["table_id", "recorded_at"])
    op.create_table(
        "dl_conflicts",
        sa.Column("conflict_id", Id(), nullable=False),
        sa.Column("recorded_at", sa.BigInteger(), nullable=False),
        sa.Column("txn_id", Id(), nullable=False),
        sa.Column("committer", sa.Text()),
        sa.Column("isolation", sa.Text(), nullable=False),
        sa.Column("operation", sa.Text()),
        sa.Column("table_id", Id(), nullable=False),
        sa.Column("rule", sa.Text(), nullable=False),
        sa.Column("reason", sa.Text()),
        sa.Column("expected_version", sa.BigInteger(), nullable=False),
        sa.Column("actual_version", sa.BigInteger(), nullable=False),
        sa.Column("winning_version", sa.BigInteger()),
        sa.Column("winning_txn_id", Id()),
        sa.PrimaryKeyConstraint("conflict_id", name="pk_dl_conflicts"),
    )
    op.create_index("ix_dl_conflicts_recorded_at", "dl_conflicts", ["recorded_at"])


def downgrade(views: Collection[str]) -> None:
    op.drop_table("dl_conflicts")
    op.drop_table("dl_reads")
