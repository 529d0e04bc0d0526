"""Make table names unique without regard to case.

Before this runs, `runner.up` refuses a catalog with names that differ in case only. The registry, under its lock,
checks what the index does not: letters that the database's lower() does not convert, and all names on DuckDB.
"""

from __future__ import annotations

from collections.abc import Collection

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"

INDEX, TABLE = "ux_dl_tables_name", "dl_tables"


def upgrade(views: Collection[str]) -> None:
    _replace_index(sa.text("lower(name)"))


def downgrade(views: Collection[str]) -> None:
    _replace_index("name")


def _replace_index(column: str | sa.TextClause) -> None:
    # DuckDB has no partial index, and cannot update an indexed column of a row that foreign keys point to.
    if op.get_context().dialect.name == "duckdb":
        return
    living = sa.text("dropped_at IS NULL")
    op.drop_index(INDEX, TABLE)
    op.create_index(INDEX, TABLE, [column], unique=True, postgresql_where=living, sqlite_where=living)
