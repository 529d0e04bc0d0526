"""Create views in the terms of a dataset catalog: datasets, transactions, files, row_groups, partitions."""

from __future__ import annotations

from collections.abc import Collection

from alembic import op
from sqlalchemy.schema import CreateView, DropView

from deltars.store.views import VIEWS

revision = "0003"
down_revision = "0002"


def upgrade(views: Collection[str]) -> None:
    for name, query in VIEWS.items():
        if name in views:
            op.execute(CreateView(query, name))


def downgrade(views: Collection[str]) -> None:
    for name, query in reversed(VIEWS.items()):
        if name in views:
            op.execute(DropView(CreateView(query, name).table))
