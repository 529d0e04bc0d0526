"""Let concurrent writers count identity columns: `dl_identities` has the last value that any of them reserved.

Going down forgets reservations. The high-water marks in the log stay, and counting goes on after them.
"""

from __future__ import annotations

from collections.abc import Collection

import sqlalchemy as sa
from alembic import op

from deltars.store.types import Id

revision = "0009"
down_revision = "0008"


def upgrade(views: Collection[str]) -> None:
    op.create_table(
        "dl_identities",
        sa.Column("table_id", Id(), nullable=False),
        sa.Column("column_name", sa.Text(), nullable=False),
        sa.Column("last_value", sa.BigInteger()),
        sa.PrimaryKeyConstraint("table_id", "column_name", name="pk_dl_identities"),
    )


def downgrade(views: Collection[str]) -> None:
    op.drop_table("dl_identities")
