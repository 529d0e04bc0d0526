"""SQL of an enabled session: queries over tables of the catalog, views of the session and tables of Spark.

spark.sql(query) ── no name is the catalog's ──▶ Spark
                 └─ each name that is ──▶ a frame of its rows at one moment, or as the transaction sees them
                    every other name stays: a temporary view hides a table, as in Spark
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

from deltars.catalog.snapshot import CatalogSnapshot
from deltars.catalog.statements import read_changes, run_statement
from deltars.catalog.table_path import location_at, table_at
from deltars.data.scan import Scan
from deltars.enabled.reads import Reads
from deltars.enabled.tables import SOURCES, Tables, listed_tables, name_in, path_in
from deltars.errors import DeltarsError, PredicateError, ValidationError
from deltars.predicate import Predicate, Query, TableReference
from deltars.predicate.statements.parser import parse_statement
from deltars.predicate.statements.tree import (
    Atomic,
    Convert,
    CreateTable,
    CreateView,
    DropView,
    Explain,
    Fragment,
    Insert,
    Name,
    ShowTables,
)
from deltars.protocol import StructType
from deltars.spark.plane import SparkPlane
from deltars.spark.read.nullability import with_nullability
from deltars.spark.verbs.names import NAME, quoted
from deltars.spark.verbs.wrapping import NOT_OURS
from deltars.transaction.statements.engine import Engine
from deltars.transaction.statements.views import Views, expanded, views_of

_ARGUMENT = re.compile(r"\{[^{}]*\}")
_MASK = "deltars_argument_{}_"
_USING = re.compile(r"\bUSING\s+(?:delta|deltasql)\b", re.IGNORECASE)


class Queries:
    def __init__(self, tables: Tables, reads: Reads) -> None:
        self._tables = tables
        self._reads = reads

    def sql(self, session: Any, text: str, args: Any, frames: dict[str, Any]) -> Any:
        done = self._query(session, text, args, frames)
        return self._statement(session, text, args) if done is NOT_OURS and not frames else done

    def views(self, session: Any) -> Views:
        """Return the temporary views of a session that were created by SQL over tables of the catalog."""
        return views_of(self._tables.session, session)

    def _statement(self, session: Any, text: str, args: Any) -> Any:
        """Run a statement on a table of the catalog, or one that creates one: in the block's transaction, or alone."""
        try:
            action = parse_statement(text).action
        except DeltarsError:
            return NOT_OURS  # Spark may understand it
        name = getattr(action, "table", None)
        match action:
            case CreateView(view, query):
                return self._create_view(session, text, args, view, query, replaces=action.or_replace)
            case DropView(view):
                self.views(session).forget(str(view))
                return NOT_OURS  # Spark has the view too
            case Explain(query):
                if not self._names_ours(session, query.text):
                    return NOT_OURS
            case ShowTables(pattern, namespace):
                return self._show_tables(session, text, pattern, namespace)
            case Convert() | Atomic():
                pass
            case _ if isinstance(name, Name) and self._is_target(session, action, name, text):
                text = self._with_own_name(text, name)
            case _:
                return NOT_OURS
        done = self._run(session, text, args)
        # As in Spark, where these return nothing. UPDATE, DELETE and MERGE return numbers in delta-spark too.
        return done.select().limit(0) if isinstance(action, Insert | CreateTable) else done

    def _run(self, session: Any, text: str, args: Any) -> Any:
        """Run a statement, in the block's transaction or alone."""
        joined = self._tables.joined()
        engine = Engine(session, prefers_spark=True, views=self.views(session))
        if joined is None:
            return run_statement(self._tables.catalog, text, args, engine).to_spark(session)
        engine.changes = read_changes(self._tables.session)
        return joined[0]._execute_text(text, args, engine).to_spark(session)

    def _show_tables(self, session: Any, text: str, pattern: str | None, namespace: str | None) -> Any:
        """Return Spark's tables, and those of the catalog beside those of the default database."""
        found = [tuple(row) for row in session.sql(text).collect()]
        hidden = {str(row[1]).lower() for row in found}
        for name in listed_tables(session, self._tables, namespace, pattern):
            if name.lower() not in hidden:
                found.append(("default", name, False))
        rows = sorted(found, key=lambda row: str(row[1]))
        return session.createDataFrame(rows, "namespace STRING, tableName STRING, isTemporary BOOLEAN")

    def _names_ours(self, session: Any, text: str) -> bool:
        views = self.views(session)
        return any(views.has(one.name) or self._is_ours(session, one) for one in Query(text).tables)

    def _is_target(self, session: Any, action: object, name: Name, text: str) -> bool:
        if isinstance(action, CreateTable) and not self._tables.has(name.parts):
            default = str(session.conf.get("spark.sql.sources.default")).lower()
            return path_in(name.parts) is not None or _USING.search(text) is not None or default in SOURCES
        return self._tables.has(name.parts) and not self._reads.is_view(session, name.parts)

    def _with_own_name(self, text: str, name: Name) -> str:
        """Return the statement with the table's name in the catalog in place of default.t."""
        own = name_in(name.parts)
        if own == str(name) or path_in(name.parts) is not None:
            return text
        written = NAME.match(text, name.position)
        assert written is not None
        return f"{text[: name.position]}{quoted([own])}{text[written.end() :]}"

    def _create_view(self, session: Any, text: str, args: Any, view: Name, query: Fragment, *, replaces: bool) -> Any:
        """Create a view over tables of the catalog. Spark gets one too, so that its other verbs know the name."""
        if not self._names_ours(session, query.text):
            self.views(session).forget(str(view))
            return NOT_OURS
        if not replaces and self._reads.is_view(session, view.parts):
            return NOT_OURS  # which refuses it
        self.views(session).forget(str(view))
        done = self._run(session, text, args)
        self._query(session, f"SELECT * FROM {quoted(view.parts)}", None, {}).createOrReplaceTempView(
            quoted(view.parts)
        )
        return done

    def _query(self, session: Any, text: str, args: Any, frames: dict[str, Any]) -> Any:
        masked, arguments = _masked(text) if frames else (text, [])
        try:
            query = Query(masked)
        except PredicateError:
            return NOT_OURS  # another statement, or text that Spark may understand
        views = self.views(session)
        if any(views.has(reference.name) for reference in query.tables if reference.changes is None):
            # Names of parameters stay; those without a name would be in other places.
            if not isinstance(args, list):
                query = expanded(query, views)
            else:
                return self._run(session, text, args)
        ours = [reference for reference in query.tables if self._is_ours(session, reference)]
        if not ours:
            return NOT_OURS
        if any(reference.moment is not None or reference.changes is not None for reference in ours):
            return self._query_of_versions(session, text, args, frames)
        query = query.without([reference for reference in query.tables if reference not in ours])
        cut = None if self._tables.joined() else self._tables.catalog.snapshot()
        found = [self._opened(reference, cut) for reference in query.tables]
        schemas = [schema for schema, _ in found]
        plane = SparkPlane()
        predicates = plane.predicates(session, query, schemas)
        columns = query.columns(schemas)
        rows = {
            f"deltars_table_{place}": with_nullability(
                plane.read(session, scan(predicate), columns=columns[place]), schemas[place]
            )
            for place, ((_, scan), predicate) in enumerate(zip(found, predicates, strict=True))
        }
        rewritten = query.rewritten(lambda place: f"{{deltars_table_{place}}}", _doubled)
        for place, argument in enumerate(arguments):
            rewritten = rewritten.replace(_MASK.format(place), argument)
        return session.sql(rewritten, args, **frames, **rows)

    def _query_of_versions(self, session: Any, text: str, args: Any, frames: dict[str, Any]) -> Any:
        """Run a query that reads a table at a version or a time of its own, or what versions of it changed."""
        if frames:
            raise ValidationError(
                "a query with AS OF or table_changes is not supported with frames as arguments",
                field="query",
                hint='Read the version by spark.read.option("versionAsOf", 3).table(name).',
            )
        return self._run(session, text, args)

    def _is_ours(self, session: Any, reference: TableReference) -> bool:
        parts = _parts(reference)
        return self._tables.has(parts) and (reference.changes is not None or not self._reads.is_view(session, parts))

    def _opened(
        self, reference: TableReference, cut: CatalogSnapshot | None
    ) -> tuple[StructType, Callable[[Predicate | None], Scan]]:
        """Return the schema of a table, and what scans it: in a cut, or as the transaction sees it without one."""
        parts = _parts(reference)
        path, joined = path_in(parts), self._tables.joined()
        if cut is None:
            assert joined is not None
            view = joined[1]
            staged = view.readable(name_in(parts)) if path is None else view.find_at(location_at(path))
            assert staged is not None
            assert staged.metadata is not None
            return staged.metadata.schema, lambda where: view.scan(staged, where)
        at_path = None if path is None else table_at(self._tables.session, path).table_id
        found = cut._find(at_path or name_in(parts))
        snapshot = cut._snapshot(found)
        return snapshot.schema, lambda where: cut._scan(found, snapshot, where)


def _parts(reference: TableReference) -> Sequence[str]:
    """Return the parts of a name in a query. Only a path may have dots in its last part."""
    first, dot, rest = reference.name.partition(".")
    return [first, rest] if dot and "/" in rest else reference.name.split(".")


def _masked(text: str) -> tuple[str, list[str]]:
    """Return the text with names in place of {arguments}, and the arguments."""
    arguments: list[str] = []

    def name(match: re.Match[str]) -> str:
        arguments.append(match[0])
        return _MASK.format(len(arguments) - 1)

    return _ARGUMENT.sub(name, text), arguments


def _doubled(text: str) -> str:
    return text.replace("{", "{{").replace("}", "}}")
