"""Let writers announce themselves, and keep what maintenance did to each table.

Going down forgets both. Files that a vacuum was about to delete then stay until a full vacuum finds them.
"""

from __future__ import annotations

from collections.abc import Collection

import sqlalchemy as sa
from alembic import op

from deltars.store.types import Id, json_type

revision = "0007"
down_revision = "0006"


def upgrade(views: Collection[str]) -> None:
    op.create_table(
        "dl_writers",
        sa.Column("txn_id", Id(), nullable=False),
        sa.Column("table_id", Id(), nullable=False),
        sa.Column("started_at", sa.BigInteger(), nullable=False),
        sa.Column("heartbeat_at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("txn_id", "table_id", name="pk_dl_writers"),
    )
    op.create_table(
        "dl_maintenance",
        sa.Column("table_id", Id(), nullable=False),
        sa.Column("vacuumed_version", sa.BigInteger(), server_default=sa.text("-1"), nullable=False),
        sa.Column("condemned_version", sa.BigInteger(), server_default=sa.text("-1"), nullable=False),
        sa.Column("kept_versions", json_type()),
        sa.Column("first_version", sa.BigInteger(), server_default=sa.text("0"), nullable=False),
        sa.Column("lease_owner", sa.Text()),
        sa.Column("lease_until", sa.BigInteger()),
        sa.Column("optimized_at", sa.BigInteger()),
        sa.Column("vacuumed_at", sa.BigInteger()),
        sa.Column("expired_at", sa.BigInteger()),
        sa.PrimaryKeyConstraint("table_id", name="pk_dl_maintenance"),
    )


def downgrade(views: Collection[str]) -> None:
    op.drop_table("dl_maintenance")
    op.drop_table("dl_writers")
