"""Queries over several tables: the tables that a query names, and its conditions on each table alone.

    text ──sqlglot──▶ tree ──table names that are not CTEs──▶ references ──conditions on one table──▶ predicates
      └── each table name replaced, every other character kept ──▶ text for Spark

A condition can prune a table's files if rows that do not fulfil it cannot affect the result. That holds in the WHERE of
the table's SELECT and in the ON of its join, but not across an outer join, which turns a missing row into nulls.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from copy import copy
from dataclasses import dataclass
from datetime import tzinfo
from difflib import get_close_matches

from sqlglot import TokenType, exp

from deltars.errors import PredicateError
from deltars.predicate.duckdb_sql import DuckDBText, Untranslatable, in_duckdb
from deltars.predicate.parser import bind
from deltars.predicate.source import Source, named_in
from deltars.predicate.statements.change_ranges import ChangeRange, change_ranges_in
from deltars.predicate.statements.moments import FoundMoment, moments_in
from deltars.predicate.statements.tree import Fragment, Moment
from deltars.predicate.syntax import names_of, operands
from deltars.predicate.tree import Predicate, conjunction
from deltars.protocol import StructType

_CALLS = {
    "DELETE": "tx.delete(table, where)",
    "UPDATE": "tx.update(table, set, where)",
    "MERGE": "tx.merge(table, rows, on)",
    "INSERT": "tx.write(table, rows)",
    "COPY": "tx.write(table, rows)",
    "CREATE": "tx.create_table(name, schema)",
    "DROP": "tx.drop_table(table)",
    "ALTER": "tx.alter(table)",
    "TRUNCATE": "tx.delete(table)",
    "OPTIMIZE": "table.optimize()",
    "VACUUM": "table.vacuum()",
    "RESTORE": "table.restore(version)",
    "REORG": "table.purge()",
    "CONVERT": "catalog.import_table(location)",
    "FSCK": "table.verify()",
    "DESCRIBE HISTORY": "table.history()",
    "DESCRIBE": "table.detail()",
    "SHOW TABLES": "catalog.tables()",
    "SHOW PARTITIONS": "table.detail(partitions=True)",
    "SHOW": "table.detail()",
    "EXPLAIN": "catalog.sql(query).explain()",
}
"""The call for a statement that is no query, by its first words."""
_FORMS = "Write VERSION AS OF 3, TIMESTAMP AS OF '2026-01-31', or features@v3, behind the name of a table."
_CHANGES = "deltars_chg"
_NO_QUERY = "only one query is allowed"
_FIRST_WORDS = re.compile(r"(?:\s|--[^\n]*|/\*.*?\*/)*([a-z]+)\s*([a-z]*)", re.IGNORECASE | re.DOTALL)


@dataclass(frozen=True)
class TableReference:
    """A position in a query where a table is named."""

    name: str
    """The name as written, without quotes; several parts are joined by dots."""
    position: int
    """The position of its first character in the text."""
    moment: Moment | None = None
    """The version or the time that the query reads, if it says so."""
    changes: ChangeRange | None = None
    """The versions whose changed rows the query reads, instead of the table's rows."""


class Query:
    """A query over tables. `Query.inside` makes one of a part of a statement."""

    def __init__(self, text: str, *, shown: str | None = None) -> None:
        """Parse a query. `shown` is the statement that it is part of, with the same positions."""
        given = Source(text, "query") if shown is None else Source(text, "statement", shown)
        call = None if shown is not None else _call_for(text)
        if call is not None:
            raise given.error_at(_NO_QUERY, 0, hint=f"Begin with SELECT or WITH. {call} does this.")
        self._moments = _moments(given)
        # A moment is no part of the query that Spark runs: the table's name becomes a frame of that moment.
        source = given.without((found.start, found.end) for found in self._moments.values())
        # So are calls of table_changes, each of which becomes one name.
        self._changes = {f"{_CHANGES}{place}": found for place, found in enumerate(change_ranges_in(source))}
        self._source = source.with_names({(found.start, found.end): name for name, found in self._changes.items()})
        statements = self._source.statements()
        if len(statements) != 1 or not isinstance(statements[0], exp.Query):
            raise self._no_query("Run one query at a time.")
        self._statement = statements[0]
        # sqlglot merges the steps of a pipe (|>) into one SELECT, which changes their meaning.
        self._is_piped = self._source.has(TokenType.PIPE_GT)
        self._nodes = _tables(self._statement)
        for node in self._nodes:
            if any(node.args.get(part) is not None for part in ("version", "when", "changes")):
                raise self._source.error("this form of a moment is not supported", node, hint=_FORMS)
        ends = {_span(node)[1] for node in self._nodes}
        for end, found in self._moments.items():
            if end not in ends:
                raise self._source.error_at("only a table can be read at a moment", found.start, hint=_FORMS)

    @classmethod
    def inside(cls, whole: str, fragment: Fragment, prefix: str = "") -> Query:
        """Parse a part of a statement, with `prefix` before it. Errors point at the place in the statement."""
        before = re.sub(r"[^\n]", " ", whole[: fragment.start])
        # The prefix replaces blanks where there are enough, so that positions stay.
        return cls(before[: max(0, len(before) - len(prefix))] + prefix + fragment.text, shown=whole)

    def _no_query(self, advice: str) -> PredicateError:
        return self._source.error_at(_NO_QUERY, 0, hint=f"Begin with SELECT or WITH. {advice}")

    @property
    def tables(self) -> list[TableReference]:
        """Return every table reference, in the order of the text."""
        return [self._reference(node) for node in self._nodes]

    def _reference(self, node: exp.Table) -> TableReference:
        start, end = _span(node)
        changes = self._changes.get(node.name)
        if changes is not None:
            return TableReference(changes.table, start, changes=changes)
        found = self._moments.get(end)
        return TableReference(".".join(part.name for part in node.parts), start, found.moment if found else None)

    @property
    def source(self) -> Source:
        return self._source

    @property
    def parameters(self) -> list[int]:
        """Positions of the parameters without a name, `?`."""
        return self._source.positions_of(TokenType.PLACEHOLDER)

    def without(self, views: Container[TableReference]) -> Query:
        """Return the query with these names left as they are: they are no tables, Spark resolves them."""
        other = copy(self)
        tables = zip(self._nodes, self.tables, strict=True)
        other._nodes = [node for node, reference in tables if reference not in views]
        return other

    def error(self, problem: str, at: TableReference, *, hint: str) -> PredicateError:
        return self._source.error_at(problem, at.position, hint=hint)

    def predicates(self, schemas: Sequence[StructType], zone: tzinfo) -> list[Predicate | None]:
        """Return the condition on each table alone, or None, in the order of `tables`. So are the `schemas`."""
        if self._is_piped:
            return [None] * len(schemas)
        known = {
            id(node): schema
            for node, schema in zip(self._nodes, schemas, strict=True)
            if not node.alias_column_names  # column aliases rename its columns
        }
        return [self._predicate(node, known, zone) for node in self._nodes]

    def columns(self, schemas: Sequence[StructType]) -> list[list[str] | None]:
        """Return the columns of each table that the query may need, in the order of `tables`; None means all.

        A column whose name does not occur in the text is not needed, unless the query refers to all columns.
        """
        text = self._source.text
        # IDENTIFIER(…) can refer to names that are not in the text.
        if self._is_piped or self._has_all_columns() or "identifier" in text.lower():
            return [None] * len(schemas)
        found: list[list[str] | None] = []
        for node, schema in zip(self._nodes, schemas, strict=True):
            needed = named_in(text, schema.names)
            # One column is enough to count rows.
            found.append(None if node.alias_column_names else needed or [*schema.names[:1]])
        return found

    def _has_all_columns(self) -> bool:
        """Return whether the query selects or joins columns without naming them."""
        return (
            any(not isinstance(star.parent, exp.Count) for star in self._statement.find_all(exp.Star))
            or self._statement.find(exp.Pivot) is not None
            or any(join.method for join in self._statement.find_all(exp.Join))
            or any(not isinstance(node.parent, exp.From | exp.Join) for node in self._nodes)
        )

    def rewritten(self, name: Callable[[int], str], escape: Callable[[str], str]) -> str:
        """Return the text with the n-th table name replaced by `name(n)` and all other text passed to `escape`."""
        text = self._source.text
        pieces = [(*_namespace_span(column), "") for column in _in_namespaces(self._statement, self._nodes)]
        for place, node in enumerate(self._nodes):
            start, stop = _span(node)
            end = stop if node.alias else self._behind_sample(node, stop)
            # The query may qualify its columns with the table's original name.
            alias = "" if node.alias else escape(f"{text[stop:end]} AS `{node.name.replace('`', '``')}`")
            pieces.append((start, end, name(place) + alias))
        whole, behind = "", 0
        for start, end, piece in sorted(pieces):
            whole += escape(text[behind:start]) + piece
            behind = end
        return whole + escape(text[behind:])

    def in_duckdb(self, schemas: Sequence[StructType]) -> DuckDBText:
        """Return the query in DuckDB's SQL, the n-th table named `table_n`. Raise Untranslatable if it has none."""
        statement = self._statement.copy()
        named = {}
        for column in _in_namespaces(statement, _tables(statement)):
            column.set("db", None)
        for place, node in enumerate(_tables(statement)):
            if not node.alias:
                # The query may qualify its columns with the table's original name.
                node.set("alias", exp.TableAlias(this=exp.to_identifier(node.name, quoted=True)))
            for part in ("catalog", "db"):
                node.set(part, None)
            node.set("this", exp.to_identifier(f"table_{place}"))
            named[f"table_{place}"] = schemas[place]
        if self._is_piped:
            raise Untranslatable("it has no pipes")
        if any(cte.alias.lower() in named for cte in statement.find_all(exp.CTE)):
            raise Untranslatable("a WITH has the name of a table of DuckDB")
        _name_columns(statement)
        return in_duckdb(statement, named, self._source.text)

    def check_columns(self, schemas: Sequence[StructType]) -> None:
        """Raise PredicateError for a column that is in none of the tables, and that the query does not define."""
        statement = self._statement
        if self._is_piped or statement.find(exp.Pivot, exp.Lambda, exp.Placeholder, exp.Parameter) is not None:
            return
        if len(_tables(statement)) > len(self._nodes):
            return  # a view may have any column
        known = dict(zip(map(id, self._nodes), schemas, strict=True))
        columns = {name.lower() for schema in schemas for name in schema.names}
        defined = {alias.alias.lower() for alias in statement.find_all(exp.Alias)}
        defined |= {part.name.lower() for alias in statement.find_all(exp.TableAlias) for part in alias.columns}
        defined |= {alias.name.lower() for alias in statement.find_all(exp.TableAlias)}
        defined |= {node.name.lower() for node in self._nodes}
        generators = statement.find(exp.Lateral, exp.Unnest, exp.Explode, exp.Inline, exp.Values, exp.UDTF) is not None
        for column in statement.find_all(exp.Column):
            name = column.name
            if isinstance(column.this, exp.Star) or generators or name.lower() in _WITHOUT_PARENTHESES:
                continue
            first = names_of(column)[0].name
            owner = self._owner(column)
            if owner is not None and not owner.alias_column_names:
                schema = known[id(owner)]
                if name.lower() not in (one.lower() for one in schema.names):
                    raise self._no_column(column, name, schema.names)
            elif not column.table and first.lower() not in columns | defined:
                raise self._no_column(column, first, [one for schema in schemas for one in schema.names])

    def _owner(self, column: exp.Column) -> exp.Table | None:
        """Return the table that qualifies a column, if only one source of the query has that name."""
        if not column.table or column.args.get("db") is not None or isinstance(column.parent, exp.Dot):
            return None
        name = column.table.lower()
        found = [node for node in self._nodes if node.alias_or_name.lower() == name]
        others = [alias for alias in self._statement.find_all(exp.TableAlias) if alias.name.lower() == name]
        if any(name == one.lower() for node in self._nodes for one in (node.name,) if node not in found):
            return None
        return found[0] if len(found) == 1 and all(alias.parent is found[0] for alias in others) else None

    def _no_column(self, column: exp.Column, name: str, known: Sequence[str]) -> PredicateError:
        close = get_close_matches(name.lower(), {one.lower() for one in known})
        meant = [one for one in dict.fromkeys(known) if one.lower() in close]
        shown = ", ".join(dict.fromkeys(known))
        hint = f"Did you mean {' or '.join(meant)}?" if meant else f"The columns are: {shown or 'none'}."
        return self._source.error(f"there is no column {name}", column, hint=hint)

    def _behind_sample(self, node: exp.Table, stop: int) -> int:
        sample = node.args.get("sample")
        if sample is None:
            return stop
        end = self._source.behind_parentheses(stop)
        return end if sample.args.get("seed") is None else self._source.behind_parentheses(end)

    def _predicate(self, node: exp.Table, known: dict[int, StructType], zone: tzinfo) -> Predicate | None:
        select = node.parent.parent if isinstance(node.parent, exp.From | exp.Join) else None
        if not isinstance(select, exp.Select) or id(node) not in known:
            return None
        if node.args.get("sample") is not None or node.args.get("pivots"):
            return None
        sources = _sources(select)
        times = Counter(source.alias_or_name.lower() for source in sources)
        if times[node.alias_or_name.lower()] > 1:
            return None
        found = []
        for condition in _conditions_on(select, node):
            alone = _alone(condition, node, sources, known)
            if alone is None:
                continue
            try:
                found.append(bind(self._source, alone, known[id(node)], zone))
            except PredicateError:
                continue  # Spark reports the error, if it is one
        return conjunction(found) if found else None


_WITHOUT_PARENTHESES = frozenset(
    {
        *("current_catalog", "current_database", "current_date", "current_schema", "current_time", "current_timestamp"),
        *("current_timezone", "current_user", "localtimestamp", "now", "session_user", "user", "value", "col"),
    }
)
"""Functions that are called without parentheses, which look like columns, and columns that functions define."""


# -- names -------------------------------------------------------------------------------------------------------------


def _call_for(text: str) -> str | None:
    """Return the call that does what a statement would, if the statement is no query."""
    words = _FIRST_WORDS.match(text)
    if words is None:
        return None
    first = {"DESC": "DESCRIBE"}.get(words[1].upper(), words[1].upper())
    return _CALLS.get(f"{first} {words[2].upper()}") or _CALLS.get(first)


def _moments(source: Source) -> dict[int, FoundMoment]:
    """Return the moments of a text, by the end of the name that they follow."""
    return {len(source.text[: found.start].rstrip()): found for found in moments_in(source)}


def _tables(statement: exp.Expr) -> list[exp.Table]:
    """Return the places where tables are named, in the order of the text."""
    found = [node for node in statement.find_all(exp.Table) if _is_named(node) and not _is_cte(node)]
    return sorted(found, key=lambda node: _span(node)[0])


def _name_columns(statement: exp.Expr) -> None:
    """Name the result's computed columns by their text; DuckDB has its own names, such as count_star()."""
    while isinstance(statement, exp.SetOperation | exp.Subquery):
        statement = statement.this
    if not isinstance(statement, exp.Select):
        return
    for column in statement.expressions:
        if not isinstance(column, exp.Alias | exp.Column | exp.Star):
            name = column.sql(dialect="spark", normalize_functions="lower")
            column.replace(exp.alias_(column.copy(), name, quoted=True))


def _is_named(node: exp.Table) -> bool:
    """Return whether the table is a name, not a table-valued function."""
    return isinstance(node.this, exp.Identifier)


def _is_cte(node: exp.Table) -> bool:
    """Return whether the name is defined by an enclosing WITH, or earlier in the same WITH."""
    if node.args.get("db") is not None:
        return False
    name = node.name.lower()
    inner: exp.Expr = node
    while (outer := inner.parent) is not None:
        visible: Iterable[exp.Expr] = ()
        if isinstance(outer, exp.With):
            own = outer.expressions.index(inner)
            visible = outer.expressions[: own + 1 if outer.recursive else own]
        elif (with_ := outer.args.get("with_")) is not None and with_ is not inner:
            visible = with_.expressions
        if any(cte.alias.lower() == name for cte in visible):
            return True
        inner = outer
    return False


def _in_namespaces(statement: exp.Expr, tables: Sequence[exp.Table]) -> list[exp.Column]:
    """Return the columns that are qualified by a namespace and a table: `sales.orders.id`."""
    known = {(node.db.lower(), node.name.lower()) for node in tables if node.db and not node.alias}
    return [column for column in statement.find_all(exp.Column) if (column.db.lower(), column.table.lower()) in known]


def _namespace_span(column: exp.Column) -> tuple[int, int]:
    return column.args["db"].meta["start"], column.args["table"].meta["start"]


def _span(node: exp.Table) -> tuple[int, int]:
    """Return the start and end of its name in the text."""
    return node.parts[0].meta["start"], node.parts[-1].meta["end"] + 1


# -- conditions on one table -------------------------------------------------------------------------------------------


_JOINS = {(side, kind) for side in ("LEFT", "RIGHT", "FULL") for kind in ("", "OUTER")} | {
    *(("", kind) for kind in ("", "INNER", "CROSS", "SEMI", "ANTI")), ("LEFT", "SEMI"), ("LEFT", "ANTI")
}  # fmt: skip


def _sources(select: exp.Select) -> list[exp.Expr]:
    joins = [join.this for join in select.args.get("joins") or ()]
    return [select.args["from_"].this, *joins, *(select.args.get("laterals") or ())]


def _conditions_on(select: exp.Select, node: exp.Table) -> Iterator[exp.Expr]:
    """Yield the conditions of a SELECT that a row of this table must fulfil to affect the result."""
    seen, can_filter = select.args["from_"].this is node, True
    for join in select.args.get("joins") or ():
        is_right = join.this is node
        if join.method or (join.side, join.kind) not in _JOINS:
            return
        side = "LEFT" if join.kind in ("SEMI", "ANTI") else join.side
        on = join.args.get("on")
        if is_right:
            seen = True
            if on is not None and side in ("", "LEFT"):
                yield from _conjuncts(on)
            can_filter = side in ("", "RIGHT")
        elif seen and can_filter:
            if on is not None and (side in ("", "RIGHT") or join.kind == "SEMI"):
                yield from _conjuncts(on)
            can_filter = side in ("", "LEFT")
    where = select.args.get("where")
    if seen and can_filter and where is not None:
        yield from _conjuncts(where.this)


def _conjuncts(condition: exp.Expr) -> Iterator[exp.Expr]:
    for part in operands(condition, exp.And):
        inner = part.unnest()
        if isinstance(inner, exp.And):
            yield from _conjuncts(inner)
        else:
            yield inner


def _alone(
    condition: exp.Expr, node: exp.Table, sources: Sequence[exp.Expr], known: dict[int, StructType]
) -> exp.Expr | None:
    """Return the condition with unqualified columns, or None if it involves anything but this table."""
    if condition.find(exp.Query, exp.Subquery) is not None:
        return None
    alias = node.alias_or_name.lower()
    aliases = {source.alias_or_name.lower() for source in sources}
    alone = condition.copy()
    for column in list(alone.find_all(exp.Column)):
        first, *rest = names_of(column)
        if rest and first.name.lower() == alias:
            _drop_qualifier(column)
        elif (rest and first.name.lower() in aliases) or not _is_only_in(first.name, node, sources, known):
            return None
    return alone


def _drop_qualifier(column: exp.Column) -> None:
    for part in ("catalog", "db", "table"):
        if column.args.get(part) is not None:
            column.set(part, None)
            return


def _is_only_in(name: str, node: exp.Table, sources: Sequence[exp.Expr], known: dict[int, StructType]) -> bool:
    """Return whether an unqualified column can only be this table's. The columns of all sources must be known."""
    having = []
    for source in sources:
        schema = known.get(id(source))
        if schema is None:
            return False
        if name.lower() in (column.lower() for column in schema.names):
            having.append(source)
    return len(having) == 1 and having[0] is node
