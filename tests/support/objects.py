"""What a database holds besides rows, told by the database itself; and a way to put something there past deltars.

described   tables with their columns, types, defaults, keys and indexes; views; functions: what a schema *is*
everything  the names of all objects there are, whoever made them
"""

from __future__ import annotations

import re
import sqlite3
from contextlib import closing
from typing import Any, TypeAlias

import duckdb

from deltars.uri import parse_catalog_uri
from tests.support import witness

Objects: TypeAlias = dict[str, Any]


def run_script(uri: str, script: str) -> None:
    """Statements as somebody else would run them, through the plain driver."""
    catalog = parse_catalog_uri(uri)
    if catalog.backend == "sqlite":
        with closing(sqlite3.connect(catalog.database)) as connection:
            connection.executescript(script)
    elif catalog.backend == "duckdb":
        with duckdb.connect(catalog.database) as database:
            database.execute(script)
    else:
        with witness.postgres_connection(catalog) as postgres:
            postgres.execute(script.encode())


def described(uri: str) -> Objects:
    """Everything of the catalog's schema, comparable between catalogs of the same backend."""
    catalog = parse_catalog_uri(uri)
    if catalog.backend == "sqlite":
        return _sqlite(uri)
    if catalog.backend == "duckdb":
        return _duckdb(uri)
    assert catalog.schema is not None
    return _postgres(uri, catalog.schema)


def everything(uri: str) -> list[tuple[Any, ...]]:
    return sorted(witness.rows(uri, _EVERYTHING[parse_catalog_uri(uri).backend]), key=repr)


_EVERYTHING = {
    "sqlite": "SELECT type, name, tbl_name, sql FROM sqlite_schema",
    "duckdb": """
        SELECT 'schema', schema_name, NULL FROM duckdb_schemas() WHERE NOT internal
        UNION ALL SELECT 'table', table_name, sql FROM duckdb_tables() WHERE NOT internal
        UNION ALL SELECT 'view', view_name, sql FROM duckdb_views() WHERE NOT internal
        UNION ALL SELECT 'index', index_name, sql FROM duckdb_indexes()
        UNION ALL SELECT 'sequence', sequence_name, sql FROM duckdb_sequences()
        UNION ALL SELECT 'function', function_name, macro_definition FROM duckdb_functions() WHERE NOT internal
        UNION ALL SELECT 'type', type_name, NULL FROM duckdb_types() WHERE NOT internal""",
    "postgres": """
        WITH ours AS (SELECT oid, nspname FROM pg_namespace WHERE nspname !~ '^pg_' AND nspname <> 'information_schema')
        SELECT 'schema', nspname, '' FROM ours
        UNION ALL SELECT 'relation ' || relkind::text, nspname, relname
            FROM pg_class JOIN ours ON relnamespace = ours.oid
        UNION ALL SELECT 'function', nspname, proname FROM pg_proc JOIN ours ON pronamespace = ours.oid
        UNION ALL SELECT 'type', nspname, typname FROM pg_type JOIN ours ON typnamespace = ours.oid
        UNION ALL SELECT 'constraint', nspname, conname FROM pg_constraint JOIN ours ON connamespace = ours.oid
        UNION ALL SELECT 'operator', nspname, oprname FROM pg_operator JOIN ours ON oprnamespace = ours.oid
        UNION ALL SELECT 'trigger', '', tgname FROM pg_trigger WHERE NOT tgisinternal
        UNION ALL SELECT 'rule', '', rulename FROM pg_rewrite JOIN pg_class c ON c.oid = ev_class
            JOIN ours ON c.relnamespace = ours.oid
        UNION ALL SELECT 'extension', '', extname FROM pg_extension""",
}


def _postgres(uri: str, schema: str) -> Objects:
    here = "(SELECT oid FROM pg_namespace WHERE nspname = current_schema())"
    columns = f"""
        SELECT relname, attname, format_type(atttypid, atttypmod), attnotnull, pg_get_expr(adbin, adrelid)
        FROM pg_class JOIN pg_attribute ON attrelid = pg_class.oid
            LEFT JOIN pg_attrdef ON adrelid = attrelid AND adnum = attnum
        WHERE relnamespace = {here} AND relkind = 'r' AND attnum > 0 AND NOT attisdropped"""
    constraints = f"""
        SELECT relname, conname, pg_get_constraintdef(pg_constraint.oid), convalidated
        FROM pg_constraint JOIN pg_class ON conrelid = pg_class.oid WHERE relnamespace = {here} AND contype <> 'n'"""
    indexes = "SELECT tablename, indexname, indexdef FROM pg_indexes WHERE schemaname = current_schema()"
    views = "SELECT viewname, definition FROM pg_views WHERE schemaname = current_schema()"
    functions = f"SELECT proname, pg_get_functiondef(oid) FROM pg_proc WHERE pronamespace = {here}"
    queries = {"columns": columns, "keys": constraints, "indexes": indexes, "views": views, "functions": functions}
    return {
        kind: sorted(tuple(_without_schema(value, schema) for value in row) for row in witness.rows(uri, query))
        for kind, query in queries.items()
    }


def _without_schema(value: Any, schema: str) -> Any:
    return value.replace(f"{schema}.", "") if isinstance(value, str) else "" if value is None else value


def _sqlite(uri: str) -> Objects:
    found: Objects = {"columns": [], "keys": [], "indexes": []}
    for (table,) in witness.rows(uri, "SELECT name FROM sqlite_schema WHERE type = 'table' ORDER BY name"):
        for _, *column, hidden in witness.rows(uri, f"SELECT * FROM pragma_table_xinfo('{table}')"):
            found["columns"].append((table, *column, hidden))
        found["keys"] += [
            (table, *key) for key in witness.rows(uri, f"SELECT * FROM pragma_foreign_key_list('{table}')")
        ]
        for _, name, *facts in witness.rows(uri, f"SELECT * FROM pragma_index_list('{table}')"):
            parts = witness.rows(uri, f"SELECT * FROM pragma_index_xinfo('{name}')")
            found["indexes"].append((table, name, *facts, tuple(parts)))
    found["columns"].sort(key=repr)
    found["keys"].sort(key=repr)
    found["indexes"].sort(key=repr)
    # The database keeps the text: it alone tells the names of keys and which rows a partial index holds.
    found["views"] = sorted(witness.rows(uri, "SELECT name, sql FROM sqlite_schema WHERE type = 'view'"))
    conditions = witness.rows(uri, "SELECT name, sql FROM sqlite_schema WHERE type = 'index' AND sql LIKE '% WHERE %'")
    found["predicates"] = sorted((name, sql.partition(" WHERE ")[2].replace('"', "")) for name, sql in conditions)
    texts = witness.rows(uri, "SELECT name, sql FROM sqlite_schema WHERE type = 'table'")
    found["names"] = sorted((table, tuple(sorted(re.findall(r"CONSTRAINT (\w+)", sql)))) for table, sql in texts)
    return found


def _duckdb(uri: str) -> Objects:
    queries = {
        "columns": "SELECT table_name, column_name, data_type, is_nullable, column_default FROM duckdb_columns()"
        " WHERE NOT internal AND table_name IN (SELECT table_name FROM duckdb_tables())",
        "keys": "SELECT table_name, constraint_type, constraint_text, constraint_column_names, referenced_table"
        " FROM duckdb_constraints()",
        "indexes": "SELECT table_name, index_name, is_unique, is_primary, expressions, sql FROM duckdb_indexes()",
        "views": "SELECT view_name, sql FROM duckdb_views() WHERE NOT internal",
    }
    return {kind: sorted(witness.rows(uri, query), key=repr) for kind, query in queries.items()}
