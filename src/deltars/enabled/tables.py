"""Tables of a catalog as Spark's verbs name them: by name, or by path.

t, default.t, spark_catalog.default.t ──▶ the table t      a.t ──▶ the table named a.t
delta.`/lake/t`, save("/lake/t") ───────▶ the table at this directory
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from fnmatch import fnmatchcase
from typing import Any

from deltars.catalog.catalog import Catalog
from deltars.catalog.table_path import location_at, table_at
from deltars.errors import ValidationError
from deltars.session import CatalogSession
from deltars.transaction.create_table import has_log
from deltars.transaction.current import current_transaction, transaction_left_behind
from deltars.transaction.staged_table import StagedTable
from deltars.transaction.transaction import Transaction
from deltars.transaction.view import View

SOURCES = ("delta", "deltasql")
IMPORTS = "spark.deltars.importPaths"
"""Setting of a Spark session: import a Delta table that the catalog does not have, when a program names its path."""

_log = logging.getLogger(__name__)


def path_in(parts: Sequence[str]) -> str | None:
    """Return the path of a name such as delta.`/lake/t`; None for other names."""
    is_path = len(parts) == 2 and parts[0].lower() in SOURCES and "/" in parts[1]
    return parts[1] if is_path else None


def name_in(parts: Sequence[str]) -> str:
    """Return the name of a table in the catalog, without the names of Spark's default catalog and database."""
    rest = list(parts)
    if len(rest) > 2 and rest[0].lower() == "spark_catalog":
        rest = rest[1:]
    if len(rest) > 1 and rest[0].lower() == "default":
        rest = rest[1:]
    return ".".join(rest)


class Tables:
    """The tables of an enabled session, as the current transaction sees them, else as they are now."""

    def __init__(self, catalog: Catalog, *, import_paths: bool) -> None:
        self.catalog = catalog
        self._import_paths = import_paths

    @property
    def session(self) -> CatalogSession:
        return self.catalog._session

    @contextmanager
    def writing(self) -> Iterator[tuple[Transaction, View]]:
        """Give the block's transaction, which the caller does not commit, or one that is committed at the end."""
        joined = current_transaction()
        if joined is not None:
            yield joined, joined._join(self.session)
            return
        left = transaction_left_behind()
        if left is not None:
            _log.warning(
                "this thread writes outside of transaction %s, which another thread has open: run it by"
                " contextvars.copy_context().run to make it part of the transaction",
                left.id,
            )
        with Transaction(self.session, isolation="serializable") as tx:
            yield tx, tx._join(self.session)

    def joined(self) -> tuple[Transaction, View] | None:
        """Return the block's transaction, if there is one."""
        joined = current_transaction()
        return None if joined is None else (joined, joined._join(self.session))

    def has(self, parts: Sequence[str]) -> bool:
        """Return whether a name is a table of the catalog, as the current transaction sees it."""
        path = path_in(parts)
        joined = self.joined()
        if path is not None:
            location = location_at(path)
            found = self.session.registry.find_at(location) if joined is None else joined[1].find_at(location)
            return found is not None
        return self.has_name(name_in(parts))

    def has_name(self, name: str) -> bool:
        joined = self.joined()
        if joined is None:
            return self.catalog.table_exists(name)
        found = joined[1].find(self.session.name_or_id(name))
        return found is not None and found.exists

    def names(self) -> list[str]:
        """Return the names of all tables, as the current transaction sees them."""
        joined = self.joined()
        if joined is None:
            return [table.name for table in self.catalog.tables()]
        return joined[1].names

    def name_at(self, path: str) -> str:
        """Return the name of the catalog's table at a path."""
        location, joined = location_at(path), self.joined()
        staged = None if joined is None else joined[1].find_at(location)
        return table_at(self.session, location).name if staged is None else staged.name

    def settle_path(self, path: str, settings: Any) -> str:
        """Return the location of a path. Import a Delta table there that the catalog does not have, or refuse it."""
        location = location_at(path)
        joined = self.joined()
        known = self.session.registry.find_at(location) if joined is None else joined[1].find_at(location)
        if known is None and has_log(self.session, location):
            table_at(self.session, location, imports=self.imports(settings))
        return location

    def imports(self, settings: Any) -> bool:
        chosen = str(settings.get(IMPORTS, self._import_paths)).lower()
        if chosen not in ("true", "false"):
            raise ValidationError(f"the setting {IMPORTS} is true or false, got {chosen!r}", field=IMPORTS)
        return chosen == "true"


def is_partitioned(table: StagedTable | None) -> bool:
    return table is not None and table.metadata is not None and bool(table.metadata.partition_columns)


def listed_tables(session: Any, tables: Tables, database: str | None, pattern: str | None) -> list[str]:
    """Return the names of the catalog's tables that a database of Spark shows: the default one shows them all."""
    if (database or session.catalog.currentDatabase()).lower() not in ("default", "spark_catalog.default"):
        return []
    return [name for name in tables.names() if _matches(name, pattern)]


def _matches(name: str, pattern: str | None) -> bool:
    """Return whether a name matches one of Spark's patterns: * is any text, and | is or."""
    return pattern is None or any(fnmatchcase(name.lower(), one.strip().lower()) for one in pattern.split("|"))
