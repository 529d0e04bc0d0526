"""The log in the words of a dataset catalog: datasets, transactions, files, row_groups, partitions."""

from __future__ import annotations

from alembic import op
from sqlalchemy.schema import CreateView, DropView

from deltars.store.views import VIEWS

revision = "0003"
down_revision = "0002"


def upgrade(views: bool) -> None:
    if views:
        for name, query in VIEWS.items():
            op.execute(CreateView(query, name))


def downgrade(views: bool) -> None:
    if views:
        for name, query in reversed(VIEWS.items()):
            op.execute(DropView(CreateView(query, name).table))
