"""INSERT, UPDATE, DELETE, MERGE and TRUNCATE."""

from __future__ import annotations

from typing import Literal

from deltars.predicate.statements.moments import moment_at
from deltars.predicate.statements.tokens import Cursor, path_of
from deltars.predicate.statements.tree import (
    Assignment,
    Delete,
    Fragment,
    Insert,
    Merge,
    MergeClause,
    Truncate,
    Update,
    Values,
)

_RESERVED = frozenset({"SET", "WHERE", "USING", "ON", "WHEN", "VALUES", "SELECT", "WITH", "FROM", "AS"})
_INSERT = "Write INSERT INTO table [(columns) | BY NAME] VALUES (…), or a SELECT in place of VALUES."
_UPDATE = "Write UPDATE table SET column = expression WHERE condition."
_DELETE = "Write DELETE FROM table WHERE condition."
_MERGE = "Write MERGE INTO table AS t USING source AS s ON t.id = s.id WHEN MATCHED THEN UPDATE SET *."
_CLAUSE = "Write WHEN [NOT] MATCHED [BY SOURCE] [AND condition] THEN UPDATE SET …, DELETE, or INSERT …."
_QUERY_BEGINS = ("SELECT", "WITH", "VALUES", "TABLE", "FROM", "(")


def insert(cursor: Cursor) -> Insert:
    evolves = cursor.take("WITH", "SCHEMA", "EVOLUTION")
    overwrites = cursor.take("OVERWRITE")
    if not overwrites:
        cursor.expect("INTO", hint=_INSERT)
    if cursor.is_at("DIRECTORY|LOCAL"):
        raise cursor.error("INSERT OVERWRITE DIRECTORY is not supported", hint="Use df.write, or a table.")
    cursor.take("TABLE")
    table = cursor.name(hint=_INSERT)
    partition = _partition(cursor)
    if cursor.is_at("IF", "NOT", "EXISTS"):
        raise cursor.error("IF NOT EXISTS is not supported in an INSERT", hint="Leave it out: rows are added.")
    columns: tuple[str, ...] | None = None
    is_by_name = cursor.take("BY", "NAME")
    if not is_by_name and cursor.is_at("(") and not cursor.ahead(1).matches(*_QUERY_BEGINS):
        columns = cursor.names_in_parentheses("the name of a column", hint=_INSERT)
    replace_where = None
    if cursor.is_at("REPLACE", "USING|ON"):
        raise cursor.error(
            f"REPLACE {cursor.ahead(1).text.upper()} is not supported", hint="Use REPLACE WHERE condition, or MERGE."
        )
    if cursor.is_at("REPLACE", "WHERE"):
        if overwrites or partition:
            raise cursor.error("REPLACE WHERE goes with INSERT INTO alone", hint="Write INSERT INTO … REPLACE WHERE.")
        cursor.take("REPLACE", "WHERE")
        replace_where = cursor.until(
            ("SELECT",), ("WITH",), ("VALUES",), ("TABLE",), ("FROM",), what="a condition", hint=_INSERT
        )
    if not cursor.is_at("|".join(_QUERY_BEGINS)):
        raise cursor.missing("VALUES or a query", hint=_INSERT)
    source: Fragment | Values = _values(cursor) if cursor.is_at("VALUES") else cursor.rest("a query", hint=_INSERT)
    return Insert(table, source, columns, is_by_name, overwrites, replace_where, partition, evolves)


def _partition(cursor: Cursor) -> tuple[tuple[str, Fragment | None], ...]:
    if not cursor.take("PARTITION"):
        return ()
    cursor.expect("(", hint=_INSERT)
    found: list[tuple[str, Fragment | None]] = []
    while True:
        column = cursor.column(hint=_INSERT)
        value = cursor.until((",",), what="a value", hint=_INSERT) if cursor.take("=|==") else None
        found.append((column, value))
        if not cursor.take(","):
            break
    cursor.expect(")", hint=_INSERT)
    return tuple(found)


def _values(cursor: Cursor) -> Fragment | Values:
    """Read VALUES (…), (…). What follows them, such as an alias, makes them a query."""
    place = cursor.place
    start = cursor.position
    cursor.expect("VALUES", hint=_INSERT)
    rows: list[tuple[Fragment, ...]] = []
    while True:
        if cursor.take("("):
            row = [cursor.until((",",), what="a value", hint=_INSERT)]
            while cursor.take(","):
                row.append(cursor.until((",",), what="a value", hint=_INSERT))
            cursor.expect(")", hint="Close the parenthesis behind the values.")
            rows.append(tuple(row))
        else:
            rows.append((cursor.until((",",), what="a value", hint=_INSERT),))
        if not cursor.take(","):
            break
    if not cursor.is_done:
        cursor.place = place
        return cursor.rest("a query", hint=_INSERT)
    widths = {len(row) for row in rows}
    if len(widths) > 1:
        odd = next(row for row in rows if len(row) != len(rows[0]))
        raise cursor.source.error_at(
            f"the rows of VALUES have different numbers of values: {len(rows[0])} and {len(odd)}",
            odd[0].start,
            hint="Give every row the same number of values.",
        )
    return Values(Fragment(cursor.source.text[start : cursor.behind], start), tuple(rows))


def update(cursor: Cursor) -> Update:
    table = cursor.name(hint=_UPDATE)
    alias = cursor.alias(reserved=_RESERVED)
    cursor.expect("SET", hint=_UPDATE)
    assignments = _assignments(cursor, ("WHERE",), hint=_UPDATE)
    where = cursor.rest("a condition", hint=_UPDATE) if cursor.take("WHERE") else None
    cursor.expect_end(_UPDATE)
    return Update(table, alias, assignments, where)


def delete(cursor: Cursor) -> Delete:
    cursor.expect("FROM", hint=_DELETE)
    table = cursor.name(hint=_DELETE)
    alias = cursor.alias(reserved=_RESERVED)
    if cursor.is_at("USING"):
        raise cursor.error("DELETE has no USING", hint="Use MERGE … WHEN MATCHED THEN DELETE.")
    where = cursor.rest("a condition", hint=_DELETE) if cursor.take("WHERE") else None
    cursor.expect_end(_DELETE)
    return Delete(table, alias, where)


def truncate(cursor: Cursor) -> Truncate:
    hint = "Write TRUNCATE TABLE table."
    cursor.expect("TABLE", hint=hint)
    table = cursor.name(hint=hint)
    if cursor.is_at("PARTITION"):
        raise cursor.error("TRUNCATE has no PARTITION", hint="Use DELETE FROM table WHERE condition.")
    cursor.expect_end(hint)
    return Truncate(table)


def merge(cursor: Cursor) -> Merge:
    evolves = cursor.take("WITH", "SCHEMA", "EVOLUTION")
    cursor.expect("INTO", hint=_MERGE)
    table = cursor.name(hint=_MERGE)
    alias = cursor.alias(reserved=_RESERVED)
    cursor.expect("USING", hint=_MERGE)
    source, named = _merge_source(cursor)
    source_alias = cursor.alias(reserved=_RESERVED) or named
    if source_alias is None:
        raise cursor.missing("an alias for the source", hint=_MERGE)
    if source_alias.lower() == (alias or table.parts[-1]).lower():
        raise cursor.error(f"target and source are both called {source_alias}", hint="Give one of them an alias.")
    cursor.expect("ON", hint=_MERGE)
    on = cursor.until(("WHEN",), what="a condition", hint=_MERGE)
    clauses: list[MergeClause] = []
    while cursor.is_at("WHEN"):
        clauses.append(_clause(cursor))
    if not clauses:
        raise cursor.missing("WHEN", hint=_CLAUSE)
    cursor.expect_end(_CLAUSE)
    return Merge(table, alias, source, source_alias, on, tuple(clauses), evolves)


def _merge_source(cursor: Cursor) -> tuple[Fragment, str | None]:
    """Return the source as a query, and its name if it has one."""
    if cursor.is_at("("):
        return cursor.parenthesized(hint=_MERGE), None
    start = cursor.position
    name = cursor.name(hint=_MERGE)
    moment_at(cursor)
    return Fragment(cursor.source.text[start : cursor.behind], start), name.parts[-1]


def _clause(cursor: Cursor) -> MergeClause:
    position = cursor.position
    cursor.take("WHEN")
    is_matched = not cursor.take("NOT")
    cursor.expect("MATCHED", hint=_CLAUSE)
    is_by_source = not is_matched and cursor.take("BY", "SOURCE")
    if not is_matched and not is_by_source:
        cursor.take("BY", "TARGET")
    condition = cursor.until(("THEN",), what="a condition", hint=_CLAUSE) if cursor.take("AND") else None
    cursor.expect("THEN", hint=_CLAUSE)
    if not is_matched and not is_by_source:
        cursor.expect("INSERT", hint=_CLAUSE)
        return MergeClause("not_matched", "insert", condition, _inserted(cursor), position)
    if cursor.take("DELETE"):
        kind: Literal["matched", "not_matched_by_source"] = "matched" if is_matched else "not_matched_by_source"
        return MergeClause(kind, "delete", condition, (), position)
    if not cursor.take("UPDATE"):
        raise cursor.missing("UPDATE or DELETE", hint=_CLAUSE)
    cursor.expect("SET", hint=_CLAUSE)
    if is_by_source:
        values = _assignments(cursor, ("WHEN",), hint=_CLAUSE)
        return MergeClause("not_matched_by_source", "update", condition, values, position)
    if cursor.take("*"):
        _refuse_except(cursor)
        return MergeClause("matched", "update", condition, None, position)
    return MergeClause("matched", "update", condition, _assignments(cursor, ("WHEN",), hint=_CLAUSE), position)


def _inserted(cursor: Cursor) -> tuple[Assignment, ...] | None:
    if cursor.take("*"):
        _refuse_except(cursor)
        return None
    start = cursor.position
    columns = cursor.names_in_parentheses("the name of a column", hint=_CLAUSE)
    cursor.expect("VALUES", hint=_CLAUSE)
    cursor.expect("(", hint=_CLAUSE)
    values = [cursor.until((",",), what="a value", hint=_CLAUSE)]
    while cursor.take(","):
        values.append(cursor.until((",",), what="a value", hint=_CLAUSE))
    cursor.expect(")", hint="Close the parenthesis behind the values.")
    if len(columns) != len(values):
        raise cursor.source.error_at(
            f"INSERT names {len(columns)} columns and gives {len(values)} values",
            start,
            hint="Give one value for each column.",
        )
    return tuple(Assignment(column, value, start) for column, value in zip(columns, values, strict=True))


def _refuse_except(cursor: Cursor) -> None:
    if cursor.is_at("EXCEPT"):
        raise cursor.error("* has no EXCEPT here", hint="List the columns, or use when_matched_update_all in Python.")


def _assignments(cursor: Cursor, end: tuple[str, ...], *, hint: str) -> tuple[Assignment, ...]:
    found: list[Assignment] = []
    while True:
        position = cursor.position
        column = path_of(cursor.parts("the name of a column", hint=hint))
        cursor.expect("=|==", hint=hint)
        found.append(Assignment(column, cursor.until((",",), end, what="an expression", hint=hint), position))
        if not cursor.take(","):
            return tuple(found)


__all__ = ["delete", "insert", "merge", "truncate", "update"]
