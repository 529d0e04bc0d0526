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
from deltars.catalog.table_path import location_at, table_at
from deltars.data.scan import Scan
from deltars.enabled.reads import Reads
from deltars.enabled.tables import SOURCES, Tables, name_in, path_in
from deltars.errors import DeltarsError, PredicateError, ValidationError
from deltars.predicate import Predicate, Query, TableReference
from deltars.predicate.statements.parser import parse_statement
from deltars.predicate.statements.tree import Atomic, CreateTable, Name
from deltars.protocol import StructType
from deltars.spark.plane import SparkPlane
from deltars.spark.verbs.names import NAME, quoted
from deltars.spark.verbs.wrapping import NOT_OURS

_ARGUMENT = re.compile(r"\{[^{}]*\}")
_MASK = "deltars_argument_{}_"
_VIEW = re.compile(
    r"\s*CREATE\s+(?P<replace>OR\s+REPLACE\s+)?(?:LOCAL\s+)?TEMP(?:ORARY)?\s+VIEW\s+(?P<name>`(?:[^`]|``)+`|\w+)\s+AS\s+"
    r"(?P<query>.+)",
    re.IGNORECASE | re.DOTALL,
)


_USING = re.compile(r"\bUSING\s+(?:delta|deltasql)\b", re.IGNORECASE)


class Queries:
    def __init__(self, tables: Tables, reads: Reads) -> None:
        self._tables = tables
        self._reads = reads

    def sql(self, session: Any, text: str, args: Any, frames: dict[str, Any]) -> Any:
        view = _VIEW.fullmatch(text.rstrip().rstrip(";"))
        if view is not None:
            return self._create_view(session, view, args, frames)
        done = self._query(session, text, args, frames)
        return self._statement(session, text, args) if done is NOT_OURS and not frames else done

    def _statement(self, session: Any, text: str, args: Any) -> Any:
        """Run a statement on a table of the catalog, or one that creates one: in the block's transaction, or alone."""
        try:
            action = parse_statement(text).action
        except DeltarsError:
            return NOT_OURS  # Spark may understand it
        name = getattr(action, "table", None)
        if isinstance(name, Name) and self._is_target(session, action, name, text):
            text = self._with_own_name(text, name)
        elif not isinstance(action, Atomic):
            return NOT_OURS
        joined = self._tables.joined()
        if joined is not None:
            return joined[0].sql(text, args=args, spark=session)
        return self._tables.catalog.sql(text, args=args, spark=session)

    def _is_target(self, session: Any, action: object, name: Name, text: str) -> bool:
        if isinstance(action, CreateTable) and not self._tables.has(name.parts):
            default = str(session.conf.get("spark.sql.sources.default")).lower()
            return path_in(name.parts) is None and (_USING.search(text) is not None or default in SOURCES)
        return self._tables.has(name.parts) and not self._reads.is_view(session, name.parts)

    def _with_own_name(self, text: str, name: Name) -> str:
        """Return the statement with the table's name in the catalog in place of default.t or delta.`/lake/t`."""
        path = path_in(name.parts)
        own = name_in(name.parts) if path is None else self._tables.name_at(path)
        if own == str(name):
            return text
        written = NAME.match(text, name.position)
        assert written is not None
        return f"{text[: name.position]}{quoted([own])}{text[written.end() :]}"

    def _create_view(self, session: Any, view: re.Match[str], args: Any, frames: dict[str, Any]) -> Any:
        rows = self._query(session, view["query"], args, frames)
        if rows is NOT_OURS:
            return NOT_OURS
        (rows.createOrReplaceTempView if view["replace"] else rows.createTempView)(view["name"])
        return session.createDataFrame([], "result STRING").drop("result")

    def _query(self, session: Any, text: str, args: Any, frames: dict[str, Any]) -> Any:
        masked, arguments = _masked(text) if frames else (text, [])
        try:
            query = Query(masked)
        except PredicateError:
            return NOT_OURS  # another statement, or text that Spark may understand
        ours = [reference for reference in query.tables if self._is_ours(session, reference)]
        if not ours:
            return NOT_OURS
        if any(getattr(reference, "moment", None) is not None for reference in ours):
            return self._query_at_moments(session, text, args, frames)
        query = query.without([reference for reference in query.tables if reference not in ours])
        cut = None if self._tables.joined() else self._tables.catalog.snapshot()
        found = [self._opened(reference, cut) for reference in query.tables]
        schemas = [schema for schema, _ in found]
        plane = SparkPlane()
        predicates = plane.predicates(session, query, schemas)
        columns = query.columns(schemas)
        rows = {
            f"deltars_table_{place}": plane.read(session, scan(predicate), columns=columns[place])
            for place, ((_, scan), predicate) in enumerate(zip(found, predicates, strict=True))
        }
        rewritten = query.rewritten(lambda place: f"{{deltars_table_{place}}}", _doubled)
        for place, argument in enumerate(arguments):
            rewritten = rewritten.replace(_MASK.format(place), argument)
        return session.sql(rewritten, args, **frames, **rows)

    def _query_at_moments(self, session: Any, text: str, args: Any, frames: dict[str, Any]) -> Any:
        """Run a query that reads a table at a version or a time of its own."""
        if frames or self._tables.joined() is not None:
            raise ValidationError(
                "a query with AS OF is not supported in a transaction, or with frames as arguments",
                field="query",
                hint='Read the version by spark.read.option("versionAsOf", 3).table(name).',
            )
        return self._tables.catalog.sql(text, args=args, spark=session)

    def _is_ours(self, session: Any, reference: TableReference) -> bool:
        parts = _parts(reference)
        return self._tables.has(parts) and not self._reads.is_view(session, parts)

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
