"""A database that a test has used, made as it was: in a fraction of the time that a new copy of its template takes.

Rows go, and the name changes, so that nothing that was left running finds it. A test that changed more than rows (a
table, an index, a right, statistics of the planner) has used its database up.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from psycopg import Connection, sql

_TERMINATION_MS = 10_000
_END_SESSIONS = (
    "SELECT bool_and(pg_terminate_backend(pid, %s)) FROM pg_stat_activity"
    " WHERE datname = current_database() AND pid <> pg_backend_pid() AND backend_type = 'client backend'"
)
_FIRST_OWN_OID = 16_384
_DEFINITIONS = f"""
SELECT md5(string_agg(line, chr(10) ORDER BY line)) FROM (
    SELECT concat_ws(' ', 'class', oid, relname, relkind, relnatts, relowner, relpersistence, relrowsecurity,
        relforcerowsecurity, relacl, reloptions) AS line FROM pg_class WHERE oid >= {_FIRST_OWN_OID}
    UNION ALL SELECT concat_ws(' ', 'attribute', attrelid, attnum, attname, atttypid, attnotnull, attidentity, attacl,
        attoptions) FROM pg_attribute WHERE attrelid >= {_FIRST_OWN_OID}
    UNION ALL SELECT concat_ws(' ', 'index', indexrelid, indisvalid, indisunique) FROM pg_index
        WHERE indexrelid >= {_FIRST_OWN_OID}
    UNION ALL SELECT concat_ws(' ', 'constraint', oid, conname, convalidated) FROM pg_constraint
        WHERE oid >= {_FIRST_OWN_OID}
    UNION ALL SELECT concat_ws(' ', 'default', oid, adrelid) FROM pg_attrdef WHERE oid >= {_FIRST_OWN_OID}
    UNION ALL SELECT concat_ws(' ', 'trigger', oid, tgname, tgenabled) FROM pg_trigger WHERE oid >= {_FIRST_OWN_OID}
    UNION ALL SELECT concat_ws(' ', 'rule', oid, ev_class, md5(ev_action::text)) FROM pg_rewrite
        WHERE oid >= {_FIRST_OWN_OID}
    UNION ALL SELECT concat_ws(' ', 'function', oid, proname, md5(prosrc)) FROM pg_proc WHERE oid >= {_FIRST_OWN_OID}
    UNION ALL SELECT concat_ws(' ', 'policy', oid, polname) FROM pg_policy WHERE oid >= {_FIRST_OWN_OID}
    UNION ALL SELECT concat_ws(' ', 'schema', nspname, nspacl, nspowner) FROM pg_namespace
        WHERE nspname !~ '^pg_(toast_)?temp_'
    UNION ALL SELECT concat_ws(' ', 'rights to come', oid, defaclacl) FROM pg_default_acl
    UNION ALL SELECT concat_ws(' ', 'statistics', starelid, staattnum) FROM pg_statistic
        WHERE starelid >= {_FIRST_OWN_OID}
    UNION ALL SELECT concat_ws(' ', 'extension', extname, extversion) FROM pg_extension
    UNION ALL SELECT concat_ws(' ', 'setting', setrole, setconfig) FROM pg_db_role_setting
        WHERE setdatabase = (SELECT oid FROM pg_database WHERE datname = current_database())
    UNION ALL SELECT concat_ws(' ', 'database', datacl, datconnlimit, datdba) FROM pg_database
        WHERE datname = current_database()
    UNION ALL SELECT concat_ws(' ', 'prepared', gid) FROM pg_prepared_xacts WHERE database = current_database()
) AS lines
"""
_TABLES_WITH_ROWS = (
    "SELECT relname FROM pg_class WHERE relkind = 'r' AND relnamespace = %s::regnamespace AND pg_relation_size(oid) > 0"
)


@dataclass(frozen=True, slots=True)
class Original:
    """What a database is before its first use."""

    schema: str
    definitions: str
    rows: dict[str, bytes]
    """Rows of the tables that have any, as COPY writes them."""

    @classmethod
    def of(cls, connection: Connection[Any], schema: str) -> Original:
        rows = {}
        for table in _tables_with_rows(connection, schema):
            with connection.cursor().copy(_statement("COPY {} TO STDOUT", schema, table)) as copy:
                rows[table] = b"".join(bytes(part) for part in copy)
        return cls(schema, _definitions(connection), rows)

    def restore(self, connection: Connection[Any]) -> bool:
        """End all other sessions, and put the rows back. Return whether the database is as it was."""
        connection.execute(_END_SESSIONS, [_TERMINATION_MS])
        if _definitions(connection) != self.definitions:
            return False
        if used := _tables_with_rows(connection, self.schema):
            tables = sql.SQL(", ").join(sql.Identifier(self.schema, table) for table in used)
            connection.execute(sql.SQL("TRUNCATE {} RESTART IDENTITY CASCADE").format(tables))
        for table, rows in self.rows.items():
            with connection.cursor().copy(_statement("COPY {} FROM STDIN", self.schema, table)) as copy:
                copy.write(rows)
        return True


def _definitions(connection: Connection[Any]) -> str:
    [[digest]] = connection.execute(_DEFINITIONS)
    return str(digest)


def _tables_with_rows(connection: Connection[Any], schema: str) -> list[str]:
    return [name for (name,) in connection.execute(_TABLES_WITH_ROWS, [schema])]


def _statement(text: str, schema: str, table: str) -> sql.Composed:
    return sql.SQL(text).format(sql.Identifier(schema, table))
