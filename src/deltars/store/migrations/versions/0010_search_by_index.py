"""Find files by range and by partition through B-trees, and index statistics without parsing minima and maxima."""

from __future__ import annotations

from collections.abc import Collection

import sqlalchemy as sa
from alembic import op

revision = "0010"
down_revision = "0009"

RANGE_CLASS = {
    "postgresql": (
        "CAST(slot AS bigint) * 32 + width_bucket(maxs[1] - mins[1],"
        " '{0.001,0.01,0.1,1.0,10.0,100.0,1000.0,10000.0,100000.0,1000000.0,10000000.0,"
        "100000000.0,1000000000.0,10000000000.0,100000000000.0,1000000000000.0,10000000000000.0,100000000000000.0}'"
        "::float8[])"
    ),
    "sqlite": (
        "slot * 32 + length(CAST(max(CAST(substr(maxs, 2) AS REAL) - CAST(substr(mins, 2) AS REAL), 0.0)"
        " * 10000.0 AS INTEGER)) - 1"
    ),
}
RANGE_ENDS = {
    "postgresql": ("mins[1]", "maxs[1]"),
    "sqlite": ("CAST(substr(mins, 2) AS REAL)", "CAST(substr(maxs, 2) AS REAL)"),
}
PARTITION = {"postgresql": '(CAST(partition_values AS text) COLLATE "C")', "sqlite": "partition_values"}

# Minima and maxima are cut out of the text, where they are usually between the count and the null counts. split_part
# counts no characters, so this takes less than parsing them. If the last "nullCount" is nested, the braces of what is
# left do not match, and the whole text is parsed.
STATS_FILTER = """
CREATE OR REPLACE FUNCTION dl_stats_filter(stats text) RETURNS jsonb LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE
AS $$
DECLARE
    before text := split_part(stats, ',"minValues":{', 1);
    after text := split_part(stats, ',"nullCount":{', -1);
BEGIN
    IF rtrim(before, '0123456789') = '{"numRecords":' AND strpos(after, 'Values"') = 0 THEN
        RETURN (before || ',"nullCount":{' || after)::jsonb;
    END IF;
    RETURN stats::jsonb - 'minValues' - 'maxValues';
EXCEPTION WHEN OTHERS THEN
    BEGIN
        RETURN stats::jsonb - 'minValues' - 'maxValues';
    EXCEPTION WHEN OTHERS THEN
        RETURN NULL;
    END;
END
$$
"""

OLD_STATS_FILTER = """
CREATE OR REPLACE FUNCTION dl_stats_filter(stats text) RETURNS jsonb LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE
AS $$
BEGIN
    RETURN stats::jsonb - 'minValues' - 'maxValues';
EXCEPTION WHEN OTHERS THEN
    RETURN NULL;
END
$$
"""


def upgrade(views: Collection[str]) -> None:
    dialect = op.get_context().dialect.name
    if dialect == "postgresql":
        op.drop_index("ix_dl_add_files_range", "dl_add_files")
        _replace_stats_filter(STATS_FILTER)
    if dialect != "duckdb":
        keys = (RANGE_CLASS[dialect], *RANGE_ENDS[dialect])
        _create("ix_dl_add_files_range", *(sa.text(f"({key})") for key in keys))
        _create("ix_dl_add_files_partition", "slot", sa.text(PARTITION[dialect]))


def downgrade(views: Collection[str]) -> None:
    dialect = op.get_context().dialect.name
    if dialect != "duckdb":
        op.drop_index("ix_dl_add_files_partition", "dl_add_files")
        op.drop_index("ix_dl_add_files_range", "dl_add_files")
    if dialect == "postgresql":
        _replace_stats_filter(OLD_STATS_FILTER)
        op.create_index(
            "ix_dl_add_files_range",
            "dl_add_files",
            [sa.text("box(point(mins[1], slot), point(maxs[1], slot))")],
            postgresql_using="gist",
            postgresql_where=sa.text("removed_version IS NULL"),
        )


def _create(name: str, *keys: str | sa.TextClause) -> None:
    live = sa.text("removed_version IS NULL")
    op.create_index(name, "dl_add_files", list(keys), postgresql_where=live, sqlite_where=live)


def _replace_stats_filter(function: str) -> None:
    # The index holds what the function returned.
    op.drop_index("ix_dl_add_files_stats", "dl_add_files")
    op.execute(function)
    op.create_index(
        "ix_dl_add_files_stats",
        "dl_add_files",
        [sa.text("dl_stats_filter(stats) jsonb_path_ops")],
        postgresql_using="gin",
    )
