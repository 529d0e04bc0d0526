"""CREATE TABLE, ALTER TABLE and DROP TABLE; CREATE TEMP VIEW and DROP VIEW."""

from __future__ import annotations

from deltars.predicate.statements.tokens import Cursor, path_of
from deltars.predicate.statements.tree import (
    AddColumns,
    AddConstraint,
    Alteration,
    AlterTable,
    ChangeColumn,
    ClusterBy,
    CreateTable,
    CreateView,
    DropColumns,
    DropConstraint,
    DropFeature,
    DropTable,
    DropView,
    Fragment,
    Place,
    RenameColumn,
    RenameTable,
    SetProperties,
    UnsetProperties,
)

_CREATE = "Write CREATE TABLE name (id BIGINT, day DATE) [PARTITIONED BY (day)], or CREATE TABLE name AS SELECT …."
_VIEW = "Write CREATE [OR REPLACE] TEMP VIEW name AS SELECT …."
_ALTER = (
    "Write ALTER TABLE name ADD COLUMNS (…), RENAME COLUMN … TO …, DROP COLUMN …, ALTER COLUMN …,"
    " SET TBLPROPERTIES (…), UNSET TBLPROPERTIES (…), ADD CONSTRAINT … CHECK (…), DROP CONSTRAINT …,"
    " DROP FEATURE …, CLUSTER BY (…) or RENAME TO …."
)
_ADD = "Write ADD COLUMNS (name TYPE [COMMENT 'text'] [FIRST | AFTER column], …)."
_CHANGE = "Write ALTER COLUMN name TYPE …, COMMENT '…', SET NOT NULL, DROP NOT NULL, SET DEFAULT …, FIRST or AFTER …."
_PROPERTIES = "Write ('delta.appendOnly' = 'true')."


def create(cursor: Cursor, *, or_replace: bool = False, must_exist: bool = False) -> CreateTable:
    """Read CREATE [OR REPLACE] TABLE and REPLACE TABLE, behind the word TABLE."""
    if_not_exists = cursor.take("IF", "NOT", "EXISTS")
    table = cursor.name(hint=_CREATE)
    if cursor.is_at("CLONE|SHALLOW|DEEP"):
        raise cursor.error(
            f"CREATE TABLE … {cursor.next.text.upper()} is not supported", hint="catalog.copy_table copies a table."
        )
    like = cursor.name(hint=_CREATE) if cursor.take("LIKE") else None
    columns = None
    if like is None and cursor.is_at("(") and not cursor.ahead(1).matches("SELECT", "WITH", "VALUES"):
        columns = cursor.parenthesized(hint=_CREATE)
    found: dict[str, object] = {}
    while not cursor.is_done and not cursor.is_at("AS|SELECT|WITH|VALUES|FROM|TABLE|("):
        position = cursor.position
        clause, values = _clause(cursor)
        if clause in found:
            raise cursor.source.error_at(f"{clause} is given twice", position, hint="Give it once.")
        found[clause] = True
        found.update(values)
    query = None
    if like is not None:
        cursor.expect_end(_CREATE)
        if unknown := found.keys() & {"PARTITIONED BY", "CLUSTER BY", "COMMENT"}:
            raise cursor.source.error_at(
                f"CREATE TABLE … LIKE takes {min(unknown)} from the other table", like.position, hint="Leave it out."
            )
    elif not cursor.is_done:
        cursor.take("AS")
        query = cursor.rest("a query", hint=_CREATE)
    if like is None and query is None and columns is None and "partition_columns" not in found:
        raise cursor.missing("columns or AS SELECT", hint=_CREATE)
    if query is not None and (columns is not None or "partition_columns" in found):
        at = columns.start if columns is not None else table.position
        raise cursor.source.error_at(
            "CREATE TABLE … AS takes its columns from the query", at, hint="Leave the columns out, or the query."
        )
    values_only = {key: value for key, value in found.items() if key.islower()}
    return CreateTable(
        table,
        columns,
        query,
        or_replace=or_replace,
        must_exist=must_exist,
        if_not_exists=if_not_exists,
        like=like,
        **values_only,  # type: ignore[arg-type]
    )


def _clause(cursor: Cursor) -> tuple[str, dict[str, object]]:
    """Read one clause behind the columns. Return its name, and its values by the field of `CreateTable`."""
    if cursor.take("USING"):
        if not cursor.take("DELTA") and not cursor.take("DELTASQL"):
            raise cursor.error(f"USING {cursor.next.text} is not supported", hint="Write USING DELTA, or leave it out.")
        return "USING", {}
    if cursor.take("PARTITIONED", "BY"):
        return "PARTITIONED BY", _partitioned(cursor)
    if cursor.take("CLUSTER", "BY"):
        if cursor.take("NONE"):
            return "CLUSTER BY", {}
        if cursor.is_at("AUTO"):
            raise cursor.error("CLUSTER BY AUTO is not supported", hint="Name up to four columns: CLUSTER BY (id).")
        return "CLUSTER BY", {"cluster_by": cursor.names_in_parentheses("the name of a column", hint=_CREATE)}
    if cursor.take("TBLPROPERTIES"):
        return "TBLPROPERTIES", {"properties": properties(cursor)}
    if cursor.take("COMMENT"):
        return "COMMENT", {"comment": cursor.string(hint="Write COMMENT 'text'.")}
    if cursor.take("LOCATION"):
        return "LOCATION", {"location": cursor.string(hint="Write LOCATION '/data/features'.")}
    if cursor.is_at("OPTIONS|CLUSTERED|ROW|STORED|SKEWED|DEFAULT"):
        raise cursor.error(f"{cursor.next.text.upper()} is not supported in CREATE TABLE", hint="Use TBLPROPERTIES.")
    raise cursor.missing(
        "PARTITIONED BY, CLUSTER BY, TBLPROPERTIES, COMMENT, LOCATION, USING DELTA or AS", hint=_CREATE
    )


def _partitioned(cursor: Cursor) -> dict[str, object]:
    """Read (day), or (day DATE), which adds a column."""
    names: list[str] = []
    with_types: list[Fragment] = []
    cursor.expect("(", hint=_CREATE)
    while True:
        start, column = cursor.position, cursor.identifier("the name of a column", hint=_CREATE)
        names.append(column)
        if cursor.is_at("("):
            hint = "Add a generated column, and partition by it."
            raise cursor.error(f"{column}(…) is not supported in PARTITIONED BY", hint=hint)
        if not cursor.is_at(",|)"):
            end = cursor.until((",",), what="a type", hint=_CREATE)
            with_types.append(Fragment(cursor.source.text[start : end.start + len(end.text)], start))
        if not cursor.take(","):
            break
    cursor.expect(")", hint=_CREATE)
    if not with_types:
        return {"partition_by": tuple(names)}
    if len(with_types) != len(names):
        raise cursor.source.error_at(
            "PARTITIONED BY mixes columns with and without a type", with_types[0].start, hint="Leave the types out."
        )
    first, last = with_types[0], with_types[-1]
    whole = Fragment(cursor.source.text[first.start : last.start + len(last.text)], first.start)
    return {"partition_by": tuple(names), "partition_columns": whole}


def properties(cursor: Cursor) -> dict[str, str]:
    cursor.expect("(", hint=_PROPERTIES)
    found: dict[str, str] = {}
    while True:
        position, key = cursor.position, _property(cursor)
        cursor.take("=|==")
        if key in found:
            raise cursor.source.error_at(f"the property {key} is given twice", position, hint="Give it once.")
        found[key] = _property_value(cursor)
        if not cursor.take(","):
            break
    cursor.expect(")", hint=_PROPERTIES)
    return found


def _property(cursor: Cursor) -> str:
    if cursor.next.kind == "string":
        return cursor.string(hint=_PROPERTIES)
    return ".".join(cursor.parts("a property", hint=_PROPERTIES))


def _property_value(cursor: Cursor) -> str:
    if cursor.next.kind == "string":
        return cursor.string(hint=_PROPERTIES)
    sign = "-" if cursor.take("-") else ""
    if cursor.next.kind == "number":
        return sign + cursor.advance().text
    if cursor.is_at("TRUE|FALSE") and not sign:
        return cursor.advance().text.lower()
    raise cursor.missing("a value", hint=_PROPERTIES)


def create_view(cursor: Cursor, *, or_replace: bool) -> CreateView:
    """Read CREATE [OR REPLACE] TEMP VIEW, behind the word VIEW."""
    if_not_exists = cursor.take("IF", "NOT", "EXISTS")
    view = cursor.name(hint=_VIEW)
    if len(view.parts) != 1:
        raise cursor.source.error_at("a temporary view has a name without a schema", view.position, hint=_VIEW)
    columns = cursor.names_in_parentheses("the name of a column", hint=_VIEW) if cursor.is_at("(") else ()
    if cursor.take("COMMENT"):
        cursor.string(hint="Write COMMENT 'text'.")
    cursor.expect("AS", hint=_VIEW)
    return CreateView(view, cursor.rest("a query", hint=_VIEW), columns, or_replace, if_not_exists)


def drop(cursor: Cursor) -> DropTable | DropView:
    hint = "Write DROP TABLE [IF EXISTS] name."
    if cursor.take("VIEW"):
        if_exists = cursor.take("IF", "EXISTS")
        view = cursor.name(hint="Write DROP VIEW [IF EXISTS] name.")
        cursor.expect_end("Write DROP VIEW [IF EXISTS] name.")
        return DropView(view, if_exists)
    if cursor.is_at("SCHEMA|DATABASE|FUNCTION|TEMPORARY|INDEX|NAMESPACE|CATALOG"):
        raise cursor.error(f"DROP {cursor.next.text.upper()} is not supported", hint="DROP TABLE drops a table.")
    cursor.expect("TABLE", hint=hint)
    if_exists = cursor.take("IF", "EXISTS")
    table = cursor.name(hint=hint)
    purge = cursor.take("PURGE")
    cursor.expect_end(hint)
    return DropTable(table, if_exists, purge)


def alter(cursor: Cursor) -> AlterTable:
    if not cursor.is_at("TABLE"):
        raise cursor.error(f"ALTER {cursor.next.text.upper()} is not supported", hint=_ALTER)
    cursor.take("TABLE")
    table = cursor.name(hint=_ALTER)
    if cursor.is_at("PARTITION"):
        raise cursor.error("ALTER TABLE … PARTITION is not supported", hint="The log knows its partitions.")
    changes = _changes(cursor)
    cursor.expect_end(_ALTER)
    return AlterTable(table, changes)


def _changes(cursor: Cursor) -> tuple[Alteration, ...]:
    if cursor.take("ADD", "COLUMN|COLUMNS"):
        return (_added(cursor),)
    if cursor.take("ADD", "CONSTRAINT"):
        return (_constraint(cursor),)
    if cursor.take("DROP", "CONSTRAINT"):
        if_exists = cursor.take("IF", "EXISTS")
        name = cursor.identifier("the name of a constraint", hint="Write DROP CONSTRAINT name.")
        return (DropConstraint(name, if_exists),)
    if cursor.take("DROP", "FEATURE"):
        hint = "Write DROP FEATURE deletionVectors, or DROP FEATURE deletionVectors TRUNCATE HISTORY."
        is_text = cursor.next.kind == "string"
        feature = cursor.string(hint=hint) if is_text else cursor.identifier("the name of a feature", hint=hint)
        return (DropFeature(feature, cursor.take("TRUNCATE", "HISTORY")),)
    if cursor.take("RENAME", "COLUMN"):
        hint = "Write RENAME COLUMN old TO new."
        old = cursor.column(hint=hint)
        cursor.expect("TO", hint=hint)
        return (RenameColumn(old, cursor.identifier("the new name", hint=hint)),)
    if cursor.take("RENAME", "TO"):
        return (RenameTable(cursor.name(hint="Write RENAME TO name.")),)
    if cursor.take("DROP", "COLUMN|COLUMNS"):
        return (_dropped(cursor),)
    if cursor.take("SET", "TBLPROPERTIES"):
        return (SetProperties(properties(cursor)),)
    if cursor.take("UNSET", "TBLPROPERTIES"):
        cursor.take("IF", "EXISTS")
        return (UnsetProperties(_property_names(cursor)),)
    if cursor.take("CLUSTER", "BY"):
        if cursor.take("NONE"):
            return (ClusterBy(()),)
        return (ClusterBy(cursor.names_in_parentheses("the name of a column", hint="Write CLUSTER BY (id), or NONE.")),)
    if cursor.is_at("ALTER|CHANGE"):
        return _changed(cursor)
    if cursor.is_at("ADD|DROP|SET|REPLACE|RECOVER|SYNC"):
        words = f"{cursor.next.text} {cursor.ahead(1).text}".upper().strip()
        raise cursor.error(f"ALTER TABLE … {words} is not supported", hint=_ALTER)
    raise cursor.missing("what to alter", hint=_ALTER)


def _added(cursor: Cursor) -> AddColumns:
    if cursor.is_at("IF", "NOT", "EXISTS"):
        raise cursor.error("IF NOT EXISTS is not supported for a column", hint=_ADD)
    if cursor.is_at("("):
        return AddColumns(cursor.parenthesized(hint=_ADD))
    return AddColumns(cursor.rest("columns", hint=_ADD))


def _place(cursor: Cursor) -> Place | None:
    if cursor.take("FIRST"):
        return Place(None)
    if cursor.take("AFTER"):
        return Place(cursor.column(hint="Write AFTER column."))
    return None


def _constraint(cursor: Cursor) -> AddConstraint:
    hint = "Write ADD CONSTRAINT name CHECK (condition)."
    name = cursor.identifier("the name of a constraint", hint=hint)
    if cursor.is_at("PRIMARY|FOREIGN|UNIQUE"):
        raise cursor.error(f"{cursor.next.text.upper()} constraints are not supported", hint=hint)
    cursor.expect("CHECK", hint=hint)
    return AddConstraint(name, cursor.parenthesized(hint=hint))


def _dropped(cursor: Cursor) -> DropColumns:
    hint = "Write DROP COLUMN name, or DROP COLUMNS (a, b)."
    if_exists = cursor.take("IF", "EXISTS")
    if cursor.is_at("("):
        return DropColumns(cursor.names_in_parentheses("the name of a column", hint=hint), if_exists)
    names = [cursor.column(hint=hint)]
    while cursor.take(","):
        names.append(cursor.column(hint=hint))
    return DropColumns(tuple(names), if_exists)


def _property_names(cursor: Cursor) -> tuple[str, ...]:
    hint = "Write UNSET TBLPROPERTIES ('delta.appendOnly')."
    cursor.expect("(", hint=hint)
    found = [_property(cursor)]
    while cursor.take(","):
        found.append(_property(cursor))
    cursor.expect(")", hint=hint)
    return tuple(found)


def _changed(cursor: Cursor) -> tuple[Alteration, ...]:
    """Read ALTER COLUMN name …, and Hive's CHANGE COLUMN old new TYPE …."""
    is_hive = cursor.advance().text.upper() == "CHANGE"
    cursor.take("COLUMN|COLUMNS")
    found: list[Alteration] = []
    while True:
        name = cursor.column(hint=_CHANGE)
        found.append(_hive_change(cursor, name) if is_hive and _is_hive(cursor) else _column_change(cursor, name))
        if not cursor.take(","):
            return tuple(found)


def _is_hive(cursor: Cursor) -> bool:
    return not cursor.is_at("TYPE|COMMENT|SET|DROP|FIRST|AFTER")


def _hive_change(cursor: Cursor, name: str) -> ChangeColumn:
    new = path_of(cursor.parts("the name of a column", hint="Write CHANGE COLUMN old new TYPE."))
    type_ = cursor.until(("COMMENT",), ("FIRST",), ("AFTER",), (",",), what="a type", hint=_CHANGE)
    comment = cursor.string(hint="Write COMMENT 'text'.") if cursor.take("COMMENT") else None
    is_same = new.lower() == name.lower()
    return ChangeColumn(name, None if is_same else new, type_, comment, place=_place(cursor))


def _column_change(cursor: Cursor, name: str) -> ChangeColumn:
    if cursor.take("TYPE"):
        type_ = cursor.until(("COMMENT",), ("FIRST",), ("AFTER",), (",",), what="a type", hint=_CHANGE)
        return ChangeColumn(name, type=type_)
    if cursor.take("COMMENT"):
        return ChangeColumn(name, comment=cursor.string(hint="Write COMMENT 'text'."))
    if cursor.take("SET", "NOT", "NULL"):
        return ChangeColumn(name, nullable=False)
    if cursor.take("DROP", "NOT", "NULL"):
        return ChangeColumn(name, nullable=True)
    if cursor.take("SET", "DEFAULT"):
        return ChangeColumn(name, default=cursor.until((",",), what="a value", hint="Write SET DEFAULT 0."))
    if cursor.take("DROP", "DEFAULT"):
        return ChangeColumn(name, drops_default=True)
    place = _place(cursor)
    if place is None:
        raise cursor.missing("TYPE, COMMENT, SET, DROP, FIRST or AFTER", hint=_CHANGE)
    return ChangeColumn(name, place=place)


__all__ = ["alter", "create", "create_view", "drop"]
