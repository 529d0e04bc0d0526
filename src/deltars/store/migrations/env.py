"""Alembic environment, run for every command; `runner` passes the connection, inside its transaction."""

from __future__ import annotations

from alembic import context

from deltars.store import schema
from deltars.store.registry import first_row

attributes = context.config.attributes
context.configure(
    connection=attributes.get("connection"),
    dialect_name=attributes["dialect"],
    target_metadata=schema.metadata,
    version_table=attributes["version_table"],
    version_table_schema=attributes["schema"],
    output_buffer=attributes.get("output"),
    as_sql=context.is_offline_mode(),
    literal_binds=context.is_offline_mode(),
)
context.run_migrations(views=attributes["views"])
if context.is_offline_mode():
    context.execute(first_row())
