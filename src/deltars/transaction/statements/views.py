"""Temporary views: queries by name, kept as text, so that each use reads the tables as they are then.

    CREATE TEMP VIEW recent AS SELECT … FROM orders      kept for the Spark session and the catalog
    SELECT … FROM recent        ──▶     SELECT … FROM (SELECT … FROM orders) AS recent

A view hides a table of the same name in queries, as in Spark.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from deltars.errors import ValidationError
from deltars.predicate import Query
from deltars.session import CatalogSession
from deltars.store.names import name_key

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_DEEPEST = 16
_views: WeakKeyDictionary[CatalogSession, dict[str | None, Views]] = WeakKeyDictionary()


class Views(dict[str, str]):
    """The texts of views, by the key of their name."""

    def has(self, name: str) -> bool:
        return name_key(name) in self

    def put(self, name: str, query: str) -> None:
        self[name_key(name)] = query

    def forget(self, name: str) -> bool:
        """Drop a view. Return whether there was one."""
        return self.pop(name_key(name), None) is not None


def views_of(session: CatalogSession, spark: SparkSession | None) -> Views:
    """Return the views that a Spark session has of a catalog; without one, those of the open catalog."""
    return _views.setdefault(session, {}).setdefault(_id_of(spark), Views())


def _id_of(spark: Any) -> str | None:
    if spark is None:
        return None
    classic = getattr(spark, "_jsparkSession", None)
    return str(spark.session_id) if classic is None else str(classic.sessionUUID())


def expanded(query: Query, views: Mapping[str, str]) -> Query:
    """Return the query with the text of each view in place of its name."""
    for _ in range(_DEEPEST):
        found = query.tables
        named = [one for one in found if one.changes is None and name_key(one.name) in views]
        if not named:
            return query
        for one in named:
            if one.moment is not None:
                raise query.error("a view has no versions", one, hint="Read the table that it is made of.")
        texts = [views[name_key(one.name)] for one in named]
        inner = query.without([one for one in found if one not in named])
        query = Query(inner.rewritten(lambda place, texts=texts: f"({texts[place]}\n)", str))  # type: ignore[misc]
    raise ValidationError("a view refers to itself, or views are nested too deeply", field="query")
