"""DESCRIBE, SHOW, EXPLAIN, OPTIMIZE, VACUUM, RESTORE, REORG, GENERATE and CONVERT."""

from __future__ import annotations

from deltars.predicate.statements.moments import moment_at
from deltars.predicate.statements.tokens import Cursor
from deltars.predicate.statements.tree import (
    Action,
    Convert,
    DescribeDetail,
    DescribeHistory,
    DescribeTable,
    Explain,
    Fragment,
    Generate,
    Name,
    Optimize,
    Purge,
    Restore,
    ShowColumns,
    ShowCreate,
    ShowPartitions,
    ShowProperties,
    ShowTables,
    Vacuum,
)

_DESCRIBE = "Write DESCRIBE [TABLE] [EXTENDED] name [column], DESCRIBE HISTORY name, or DESCRIBE DETAIL name."
_SHOW = (
    "Write SHOW TABLES [LIKE 'pattern'], SHOW TBLPROPERTIES name, SHOW COLUMNS IN name, SHOW PARTITIONS name, or SHOW"
    " CREATE TABLE name."
)
_OPTIMIZE = "Write OPTIMIZE name [WHERE condition] [ZORDER BY (columns)]."
_VACUUM = "Write VACUUM name [LITE | FULL] [RETAIN n HOURS] [DRY RUN]."
_RESTORE = "Write RESTORE TABLE name TO VERSION AS OF 3, or TO TIMESTAMP AS OF '2026-01-31'."
_GENERATE = "Write GENERATE symlink_format_manifest FOR TABLE name."
_CONVERT = "Write CONVERT TO DELTA parquet.`/lake/events` [PARTITIONED BY (day DATE)]."
_MODES = "EXTENDED|FORMATTED|COST|CODEGEN|LOGICAL"
_REORG = "Write REORG TABLE name [WHERE condition] APPLY (PURGE)."


def describe(cursor: Cursor) -> Action:
    if cursor.take("HISTORY"):
        table = cursor.name_or_path(hint=_DESCRIBE)
        limit = _limit(cursor) if cursor.take("LIMIT") else None
        cursor.expect_end(_DESCRIBE)
        return DescribeHistory(table, limit)
    if cursor.take("DETAIL"):
        table = cursor.name_or_path(hint=_DESCRIBE)
        cursor.expect_end(_DESCRIBE)
        return DescribeDetail(table)
    if cursor.is_at("FUNCTION|DATABASE|SCHEMA|NAMESPACE|QUERY|CATALOG|SELECT|WITH|PROCEDURE") and cursor.ahead(
        1
    ).kind not in ("end", "mark"):
        raise cursor.error(f"DESCRIBE {cursor.next.text.upper()} is not supported", hint=_DESCRIBE)
    cursor.take("TABLE")
    is_extended = cursor.take("EXTENDED") or cursor.take("FORMATTED")
    table = cursor.name(hint=_DESCRIBE)
    column = None if cursor.is_done else cursor.column(hint=_DESCRIBE)
    cursor.expect_end(_DESCRIBE)
    return DescribeTable(table, is_extended, column)


def _limit(cursor: Cursor) -> int:
    if cursor.next.kind != "number" or not cursor.next.text.isdecimal():
        raise cursor.missing("a whole number", hint="Write LIMIT 10.")
    return int(cursor.advance().text)


def show(cursor: Cursor) -> Action:
    if cursor.take("TABLES"):
        namespace = None
        if cursor.take("IN|FROM"):
            namespace = cursor.identifier("the name of a schema", hint=_SHOW)
        cursor.take("LIKE")
        pattern = cursor.string(hint=_SHOW) if cursor.next.kind == "string" else None
        cursor.expect_end(_SHOW)
        return ShowTables(pattern, namespace)
    if cursor.take("TBLPROPERTIES"):
        table = cursor.name(hint=_SHOW)
        key = None
        if cursor.take("("):
            if cursor.next.kind == "string":
                key = cursor.string(hint=_SHOW)
            else:
                key = ".".join(cursor.parts("a property", hint=_SHOW))
            cursor.expect(")", hint=_SHOW)
        cursor.expect_end(_SHOW)
        return ShowProperties(table, key)
    if cursor.take("COLUMNS"):
        cursor.expect("IN|FROM", hint=_SHOW)
        table = cursor.name(hint=_SHOW)
        if cursor.take("IN|FROM"):
            table = Name((cursor.identifier("the name of a schema", hint=_SHOW), *table.parts), table.position)
        cursor.expect_end(_SHOW)
        return ShowColumns(table)
    if cursor.take("PARTITIONS"):
        table = cursor.name(hint=_SHOW)
        cursor.expect_end(_SHOW)
        return ShowPartitions(table)
    if cursor.take("CREATE", "TABLE"):
        table = cursor.name(hint=_SHOW)
        cursor.expect_end(_SHOW)
        return ShowCreate(table)
    raise cursor.error(f"SHOW {cursor.next.text.upper()} is not supported", hint=_SHOW)


def optimize(cursor: Cursor) -> Optimize:
    table = cursor.name_or_path(hint=_OPTIMIZE)
    if cursor.is_at("FULL"):
        raise cursor.error("OPTIMIZE FULL is not supported", hint=_OPTIMIZE)
    where = cursor.until(("ZORDER", "BY"), what="a condition", hint=_OPTIMIZE) if cursor.take("WHERE") else None
    columns: tuple[str, ...] = ()
    if cursor.take("ZORDER", "BY"):
        if cursor.is_at("("):
            columns = cursor.names_in_parentheses("the name of a column", hint=_OPTIMIZE)
        else:
            found = [cursor.column(hint=_OPTIMIZE)]
            while cursor.take(","):
                found.append(cursor.column(hint=_OPTIMIZE))
            columns = tuple(found)
    cursor.expect_end(_OPTIMIZE)
    return Optimize(table, where, columns)


def vacuum(cursor: Cursor) -> Vacuum:
    cursor.take("TABLE")
    table = cursor.name_or_path(hint=_VACUUM)
    hours: float | None = None
    dry_run, is_full = False, True
    seen: set[str] = set()
    while not cursor.is_done:
        word = cursor.next.text.upper()
        if word in seen or (word in ("LITE", "FULL") and seen & {"LITE", "FULL"}):
            raise cursor.error(f"{word} is given twice", hint=_VACUUM)
        if cursor.take("RETAIN"):
            if cursor.next.kind != "number":
                raise cursor.missing("a number of hours", hint=_VACUUM)
            try:
                hours = float(cursor.next.text)
            except ValueError:
                raise cursor.missing("a number of hours", hint=_VACUUM) from None
            cursor.advance()
            cursor.expect("HOURS|HOUR", hint=_VACUUM)
        elif cursor.take("DRY", "RUN"):
            dry_run = True
        elif cursor.take("FULL"):
            is_full = True
        elif cursor.is_at("USING"):
            raise cursor.error("VACUUM USING INVENTORY is not supported", hint=_VACUUM)
        elif cursor.take("LITE"):
            is_full = False
        else:
            raise cursor.missing("RETAIN, DRY RUN, LITE or FULL", hint=_VACUUM)
        seen.add(word)
    return Vacuum(table, hours, dry_run, is_full)


def restore(cursor: Cursor) -> Restore:
    cursor.take("TABLE")
    table = cursor.name_or_path(hint=_RESTORE)
    cursor.take("TO")
    moment = moment_at(cursor)
    if moment is None:
        raise cursor.missing("VERSION AS OF or TIMESTAMP AS OF", hint=_RESTORE)
    cursor.expect_end(_RESTORE)
    return Restore(table, moment)


def generate(cursor: Cursor) -> Generate:
    mode = (
        cursor.string(hint=_GENERATE) if cursor.next.kind == "string" else cursor.identifier("a mode", hint=_GENERATE)
    )
    cursor.expect("FOR", "TABLE", hint=_GENERATE)
    table = cursor.name_or_path(hint=_GENERATE)
    cursor.expect_end(_GENERATE)
    return Generate(table, mode)


def convert(cursor: Cursor) -> Convert:
    cursor.expect("TO", "DELTA", hint=_CONVERT)
    position = cursor.position
    parts = cursor.parts("a directory", hint=_CONVERT)
    if len(parts) != 2 or parts[0].lower() != "parquet":
        raise cursor.source.error_at("only a directory of Parquet files can be converted", position, hint=_CONVERT)
    cursor.take("NO", "STATISTICS")
    partitions = None
    if cursor.take("PARTITIONED", "BY"):
        partitions = cursor.parenthesized(hint=_CONVERT)
    cursor.expect_end(_CONVERT)
    return Convert(parts[1], position, partitions)


def explain(cursor: Cursor) -> Explain:
    mode = "simple"
    if cursor.is_at(_MODES) and not cursor.ahead(1).matches(".", "AS"):
        mode = cursor.advance().text.lower()
    if not cursor.is_at("SELECT|WITH|FROM|("):
        raise cursor.error("only a query can be explained", hint="Write EXPLAIN [EXTENDED | FORMATTED] SELECT ….")
    return Explain(cursor.rest("a query", hint="Write EXPLAIN SELECT …."), mode)


def reorg(cursor: Cursor) -> Purge:
    cursor.expect("TABLE", hint=_REORG)
    table = cursor.name(hint=_REORG)
    where: Fragment | None = None
    if cursor.take("WHERE"):
        where = cursor.until(("APPLY",), what="a condition", hint=_REORG)
    cursor.expect("APPLY", "(", hint=_REORG)
    if not cursor.is_at("PURGE"):
        raise cursor.error(f"REORG … APPLY ({cursor.next.text.upper()}) is not supported", hint=_REORG)
    cursor.expect("PURGE", ")", hint=_REORG)
    cursor.expect_end(_REORG)
    return Purge(table, where)


__all__ = ["convert", "describe", "explain", "generate", "optimize", "reorg", "restore", "show", "vacuum"]
