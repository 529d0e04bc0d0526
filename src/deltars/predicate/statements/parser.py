"""Statements and scripts: splits a text at its semicolons, and reads each statement by its first words.

INSERT …; BEGIN ATOMIC DELETE …; MERGE …; END; BEGIN; UPDATE …; COMMIT
└ parse_script: every statement, before any of them runs
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from difflib import get_close_matches

from deltars.errors import PredicateError
from deltars.predicate.source import Source
from deltars.predicate.statements import commands, definitions, row_changes
from deltars.predicate.statements.syntax_check import check_syntax
from deltars.predicate.statements.tokens import Cursor, Token, tokens_of
from deltars.predicate.statements.tree import (
    Action,
    AlterTable,
    Atomic,
    Begin,
    Commit,
    Convert,
    DropFeature,
    DropTable,
    Fragment,
    Generate,
    Optimize,
    RenameTable,
    Rollback,
    Select,
    Statement,
    Vacuum,
)

FIELD = "statement"
_QUERIES = ("SELECT", "WITH", "FROM", "(")
_OPENING: Mapping[str, Callable[[Cursor], Action]] = {
    "INSERT": row_changes.insert,
    "UPDATE": row_changes.update,
    "DELETE": row_changes.delete,
    "MERGE": row_changes.merge,
    "TRUNCATE": row_changes.truncate,
    "DROP": definitions.drop,
    "ALTER": definitions.alter,
    "DESCRIBE": commands.describe,
    "DESC": commands.describe,
    "SHOW": commands.show,
    "OPTIMIZE": commands.optimize,
    "VACUUM": commands.vacuum,
    "RESTORE": commands.restore,
    "REORG": commands.reorg,
    "GENERATE": commands.generate,
    "CONVERT": commands.convert,
    "EXPLAIN": commands.explain,
}
_INSTEAD = {
    "COPY": "Use INSERT INTO, or catalog.write(table, rows).",
    "USE": "Write the whole name of the table: schema.table.",
    "SET": "Use spark.conf.set, or ALTER TABLE … SET TBLPROPERTIES.",
    "ANALYZE": "Statistics are written with every file.",
    "FSCK": "catalog.table(name).verify() compares the log with the files.",
    "CLONE": "catalog.copy_table copies a table.",
    "CACHE": "Use catalog.read(table).cache().",
    "REFRESH": "Every query reads the current version.",
    "UNDROP": "A dropped table's files can be imported: catalog.import_table(location).",
    "SAVEPOINT": "Begin a transaction for each part that may fail alone.",
    "GRANT": "Rights are those of the catalog's database.",
    "CALL": "There are no procedures.",
}
_KNOWN = (
    "SELECT, INSERT, UPDATE, DELETE, MERGE, CREATE TABLE, CREATE TEMP VIEW, ALTER TABLE, DROP TABLE, TRUNCATE,"
    " DESCRIBE, SHOW, EXPLAIN, OPTIMIZE, VACUUM, RESTORE, REORG, GENERATE and CONVERT work"
)
_ATOMIC = "Write BEGIN ATOMIC statement; statement; END."


def parse_statement(text: str) -> Statement:
    """Return the one statement of a text: also one BEGIN ATOMIC … END. A semicolon may end it."""
    statements = _Script(text).statements()
    if len(statements) != 1:
        at = statements[1].position if statements else 0
        raise Source(text, FIELD).error_at(
            "there is more than one statement" if statements else "the statement is empty",
            at,
            hint="Run one statement at a time, put them between BEGIN ATOMIC and END, or use sql_script(…).",
        )
    found = statements[0]
    check_syntax(text, [found])
    if isinstance(found.action, Begin | Commit | Rollback):
        raise Source(text, FIELD).error_at(
            f"{type(found.action).__name__.upper()} goes with several statements",
            found.position,
            hint="Use sql_script(…), BEGIN ATOMIC … END, or the sql of a transaction that you began.",
        )
    return found


def parse_script(text: str) -> list[Statement]:
    """Return every statement of a script. BEGIN and COMMIT must belong together."""
    script = _Script(text)
    statements = script.statements()
    _check_transactions(script.source, statements)
    check_syntax(text, statements)
    return statements


def parse_statements(text: str) -> list[Statement]:
    """Return every statement of a text that goes on: what it begins may be committed by another text."""
    statements = _Script(text).statements()
    check_syntax(text, statements)
    return statements


def is_complete(text: str) -> bool:
    """Return whether a text that a user is typing ends a statement: it ends with a semicolon, or END of a block."""
    try:
        tokens = tokens_of(Source(text, FIELD))[:-1]
    except PredicateError:
        return False  # a quote or a comment is open
    if not tokens or not tokens[-1].matches(";"):
        return False
    is_open = False
    starts = True
    for place, token in enumerate(tokens):
        if starts and token.matches("BEGIN") and tokens[min(place + 1, len(tokens) - 1)].matches("ATOMIC"):
            is_open = True
        elif starts and is_open and token.matches("END"):
            is_open = False
        starts = token.matches(";") or (is_open and token.matches("ATOMIC"))
    return not is_open


class _Script:
    def __init__(self, text: str) -> None:
        self.source = Source(text, FIELD)
        if not text.strip():
            raise self.source.error_at("the statement is empty", 0, hint=f"{_KNOWN}.")
        self._tokens = tokens_of(self.source)
        self._place = 0

    def statements(self) -> list[Statement]:
        found: list[Statement] = []
        while (statement := self._next()) is not None:
            found.append(statement)
        if not found:
            raise self.source.error_at("the statement is empty", 0, hint=f"{_KNOWN}.")
        return found

    def _next(self) -> Statement | None:
        while self._tokens[self._place].matches(";"):
            self._place += 1
        first = self._tokens[self._place]
        if first.kind == "end":
            return None
        if first.matches("BEGIN") and self._tokens[self._place + 1].matches("ATOMIC"):
            return self._atomic(first)
        return self._one()

    def _one(self) -> Statement:
        """Read one statement, up to its semicolon."""
        begin = self._place
        while not (self._tokens[self._place].matches(";") or self._tokens[self._place].kind == "end"):
            self._place += 1
        tokens = self._tokens[begin : self._place]
        end = tokens[-1].end
        behind = Token("end", "", end, end)
        action = _action(Cursor(self.source, [*tokens, behind]))
        return Statement(action, tokens[0].start, self.source.text[tokens[0].start : end])

    def _atomic(self, first: Token) -> Statement:
        self._place += 2
        found: list[Statement] = []
        while True:
            while self._tokens[self._place].matches(";"):
                self._place += 1
            token = self._tokens[self._place]
            if token.kind == "end":
                raise self.source.error_at("BEGIN ATOMIC has no END", first.start, hint=_ATOMIC)
            if token.matches("END"):
                self._place += 1
                break
            if token.matches("BEGIN"):
                raise self.source.error_at("there are no transactions inside a transaction", token.start, hint=_ATOMIC)
            found.append(self._one())
            if not self._tokens[self._place].matches(";"):
                raise self.source.error_at("BEGIN ATOMIC has no END", first.start, hint=_ATOMIC)
        if not found:
            raise self.source.error_at("BEGIN ATOMIC has no statements", first.start, hint=_ATOMIC)
        end = self._tokens[self._place]
        if not (end.matches(";") or end.kind == "end"):
            raise self.source.error_at("expected ; behind END", end.start, hint=_ATOMIC)
        for statement in found:
            refuse_in_transaction(self.source, statement)
        stop = self._tokens[self._place - 1].end
        return Statement(Atomic(tuple(found)), first.start, self.source.text[first.start : stop])


def _action(cursor: Cursor) -> Action:
    first = cursor.next
    if first.matches(*_QUERIES):
        return Select(cursor.rest("a query", hint="Write SELECT …."))
    if first.matches("CREATE", "REPLACE"):
        return _creation(cursor)
    if first.matches("BEGIN", "START", "COMMIT", "ROLLBACK", "ABORT"):
        return _transaction(cursor)
    read = _OPENING.get(first.text.upper()) if first.kind == "word" else None
    if read is None:
        word = first.text.upper() if first.kind == "word" else cursor.shown()
        close = get_close_matches(word, [*_OPENING, *_QUERIES, "CREATE", "BEGIN", "COMMIT"], n=1)
        hint = _INSTEAD.get(word) or (f"Did you mean {close[0]}?" if close else f"{_KNOWN}.")
        raise cursor.error(f"{word} is not supported", hint=hint)
    cursor.advance()
    return read(cursor)


def _creation(cursor: Cursor) -> Action:
    must_exist = cursor.take("REPLACE")
    or_replace = False
    if not must_exist:
        cursor.take("CREATE")
        or_replace = cursor.take("OR", "REPLACE")
    cursor.take("EXTERNAL")
    cursor.take("LOCAL")
    is_temporary = not must_exist and cursor.take("TEMP|TEMPORARY")
    if is_temporary and cursor.take("VIEW"):
        return definitions.create_view(cursor, or_replace=or_replace)
    if is_temporary:
        raise cursor.error(f"CREATE TEMP {cursor.next.text.upper()} is not supported", hint="Write CREATE TEMP VIEW.")
    if cursor.is_at("VIEW"):
        raise cursor.error(
            "a catalog keeps tables, and no views",
            hint="Write CREATE [OR REPLACE] TEMP VIEW name AS SELECT …; it lasts as long as the session.",
        )
    if not cursor.take("TABLE"):
        what = "REPLACE" if must_exist else "CREATE"
        hint = "CREATE [OR REPLACE] TABLE creates a table; a schema is created with its first table."
        raise cursor.error(f"{what} {cursor.next.text.upper()} is not supported", hint=hint)
    return definitions.create(cursor, or_replace=or_replace, must_exist=must_exist)


def _transaction(cursor: Cursor) -> Action:
    word = cursor.advance().text.upper()
    if word == "START":
        cursor.expect("TRANSACTION", hint="Write START TRANSACTION, or BEGIN.")
    else:
        cursor.take("TRANSACTION|WORK")
    if word == "BEGIN" and not cursor.is_done:
        hint = "Write BEGIN; … COMMIT; or BEGIN ATOMIC … END."
        raise cursor.error("BEGIN … END without ATOMIC is not supported", hint=hint)
    cursor.expect_end("Write BEGIN, COMMIT or ROLLBACK alone.")
    return Begin() if word in ("BEGIN", "START") else Commit() if word == "COMMIT" else Rollback()


def refuse_in_transaction(source: Source, statement: Statement) -> None:
    """Raise PredicateError for a statement that cannot be part of a transaction."""
    action = statement.action
    what = None
    if isinstance(action, Optimize | Vacuum):
        what = f"{type(action).__name__.upper()} commits by itself, and cannot be part of a transaction"
    elif isinstance(action, Generate | Convert):
        what = f"{type(action).__name__.upper()} writes files at once, and cannot be part of a transaction"
    elif isinstance(action, AlterTable) and any(isinstance(one, RenameTable) for one in action.changes):
        what = "ALTER TABLE … RENAME TO changes the catalog at once, and cannot be part of a transaction"
    elif isinstance(action, AlterTable) and any(isinstance(one, DropFeature) for one in action.changes):
        what = "ALTER TABLE … DROP FEATURE commits by itself, and cannot be part of a transaction"
    elif isinstance(action, DropTable) and action.purge:
        what = "DROP TABLE … PURGE deletes files, and cannot be part of a transaction"
    elif isinstance(action, Begin | Commit | Rollback | Atomic):
        what = f"{statement.text.split()[0].upper()} is not allowed inside a transaction"
    if what is not None:
        raise source.error_at(what, statement.position, hint="Run it before or after the transaction.")


def _check_transactions(source: Source, statements: Sequence[Statement]) -> None:
    begun: Statement | None = None
    for statement in statements:
        match statement.action:
            case Begin() if begun is None:
                begun = statement
            case Commit() | Rollback() if begun is not None:
                begun = None
            case Commit() | Rollback():
                word = statement.text.split()[0].upper()
                raise source.error_at(f"{word} without BEGIN", statement.position, hint="Write BEGIN first.")
            case _ if begun is not None:
                refuse_in_transaction(source, statement)
    if begun is not None:
        raise source.error_at("BEGIN without COMMIT", begun.position, hint="End the transaction: COMMIT or ROLLBACK.")


__all__ = ["Fragment", "is_complete", "parse_script", "parse_statement", "parse_statements", "refuse_in_transaction"]
