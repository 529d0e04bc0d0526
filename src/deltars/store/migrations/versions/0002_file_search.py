"""Create the indexes to find files: by path, live or removed, by statistics and by range."""

from __future__ import annotations

from collections.abc import Collection

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"

# Statistics are stored as exact text, which jsonb may not be able to hold (\u0000, a lone surrogate). Such a file is
# left out of the GIN index instead of failing its commit. Minima and maxima are left out too: containment cannot answer
# ranges, and they made a large COPY three times slower.
STATS_FILTER = """
CREATE FUNCTION dl_stats_filter(stats text) RETURNS jsonb LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE AS $$
BEGIN
    RETURN stats::jsonb - 'minValues' - 'maxValues';
EXCEPTION WHEN OTHERS THEN
    RETURN NULL;
END
$$
"""


def upgrade(views: Collection[str]) -> None:
    dialect = op.get_context().dialect.name
    op.create_index("ix_dl_add_files_path", "dl_add_files", ["table_id", "path"])
    if dialect != "duckdb":
        live, dead = sa.text("removed_version IS NULL"), sa.text("removed_version IS NOT NULL")
        op.create_index(
            "ix_dl_add_files_live",
            "dl_add_files",
            ["table_id", "version"],
            postgresql_where=live,
            sqlite_where=live,
        )
        op.create_index(
            "ix_dl_add_files_removed",
            "dl_add_files",
            ["table_id", "removed_version"],
            postgresql_where=dead,
            sqlite_where=dead,
        )
    if dialect == "postgresql":
        op.execute(STATS_FILTER)
        op.create_index(
            "ix_dl_add_files_stats",
            "dl_add_files",
            [sa.text("dl_stats_filter(stats) jsonb_path_ops")],
            postgresql_using="gin",
        )
        op.create_index(
            "ix_dl_add_files_range",
            "dl_add_files",
            [sa.text("box(point(mins[1], slot), point(maxs[1], slot))")],
            postgresql_using="gist",
            postgresql_where=sa.text("removed_version IS NULL"),
        )


def downgrade(views: Collection[str]) -> None:
    dialect = op.get_context().dialect.name
    if dialect == "postgresql":
        op.drop_index("ix_dl_add_files_range", "dl_add_files")
        op.drop_index("ix_dl_add_files_stats", "dl_add_files")
        op.execute("DROP FUNCTION dl_stats_filter(text)")
    if dialect != "duckdb":
        op.drop_index("ix_dl_add_files_removed", "dl_add_files")
        op.drop_index("ix_dl_add_files_live", "dl_add_files")
    op.drop_index("ix_dl_add_files_path", "dl_add_files")
