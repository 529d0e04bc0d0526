"""Keep how long each stage of a transaction took.

Going down forgets it.
"""

from __future__ import annotations

from collections.abc import Collection

import sqlalchemy as sa
from alembic import op

from deltars.store.types import json_type

revision = "0011"
down_revision = "0010"

INDEX = "ix_dl_transactions_commit_ts"


def upgrade(views: Collection[str]) -> None:
    op.add_column("dl_transactions", sa.Column("stages", json_type()))


def downgrade(views: Collection[str]) -> None:
    # DuckDB drops no column of a table that has an index.
    op.drop_index(INDEX, "dl_transactions")
    op.drop_column("dl_transactions", "stages")
    op.create_index(INDEX, "dl_transactions", ["commit_ts"])
