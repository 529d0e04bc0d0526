"""Let a catalog store the isolation level of transactions that set none. NULL is `strict`."""

from __future__ import annotations

from collections.abc import Collection

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"


def upgrade(views: Collection[str]) -> None:
    op.add_column("dl_catalog", sa.Column("isolation", sa.Text()))


def downgrade(views: Collection[str]) -> None:
    op.drop_column("dl_catalog", "isolation")
