"""Let tables have a hash chain: `dl_chain` has the hash of each version's rows, linked to the version before it.

Going down forgets the seals. A table whose property asks for a chain is sealed again after the next upgrade.
"""

from __future__ import annotations

from collections.abc import Collection

import sqlalchemy as sa
from alembic import op

from deltars.store.types import Id

revision = "0012"
down_revision = "0011"


def upgrade(views: Collection[str]) -> None:
    op.create_table(
        "dl_chain",
        sa.Column("table_id", Id(), nullable=False),
        sa.Column("version", sa.BigInteger(), nullable=False),
        sa.Column("content", sa.Text(), nullable=False),
        sa.Column("link", sa.Text(), nullable=False),
        sa.Column("sealed_at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("table_id", "version", name="pk_dl_chain"),
    )


def downgrade(views: Collection[str]) -> None:
    op.drop_table("dl_chain")
