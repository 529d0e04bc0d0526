"""Let a catalog name cuts: tags. Going down forgets them; the tables and their history stay."""

from __future__ import annotations

from collections.abc import Collection

import sqlalchemy as sa
from alembic import op

from deltars.store.types import Id, Instant

revision = "0006"
down_revision = "0005"


def upgrade(views: Collection[str]) -> None:
    op.create_table(
        "dl_tags",
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("commit_ts", sa.BigInteger(), nullable=False),
        sa.Column("txn_id", Id()),
        sa.Column("created_at", Instant(), nullable=False),
        sa.Column("committer", sa.Text()),
        sa.Column("description", sa.Text()),
        sa.PrimaryKeyConstraint("name", name="pk_dl_tags"),
    )


def downgrade(views: Collection[str]) -> None:
    op.drop_table("dl_tags")
