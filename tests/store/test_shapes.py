"""A statement that was compiled for other values is the same as one compiled for its own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from uuid import UUID

import pytest
from sqlalchemy import Dialect, Select, bindparam, func, select
from sqlalchemy.dialects.postgresql.psycopg import PGDialect_psycopg
from sqlalchemy.dialects.sqlite.pysqlite import SQLiteDialect_pysqlite
from sqlalchemy.sql.compiler import SQLCompiler

from deltars.remembered import Remembered
from deltars.store.backends import prepared
from deltars.store.backends.prepared import Prepared
from deltars.store.schema import dl_add_files

FILES = dl_add_files.c
QUERIES: dict[str, tuple[Callable[..., Select[Any]], list[tuple[Any, ...]]]] = {
    "two values of one column": (
        lambda low, high: select(FILES.path).where(FILES.version > low, FILES.version < high),
        [(1, 2), (2, 1), (7, 7)],
    ),
    "a text, a number and an id": (
        lambda text, number, table_id: select(func.concat(FILES.path, text)).where(
            FILES.size == number, FILES.table_id == table_id
        ),
        [("a", 1, UUID(int=1)), ("100%", 2, UUID(int=2)), ("%(size_1)s '", None, UUID(int=3))],
    ),
    "lists of several lengths": (
        lambda paths, size: select(FILES.path).where(FILES.path.in_(paths), FILES.size == size),
        [(["a"], 1), (["b", "c", "d"], 2), ([], 3), (["e", "f"], 4)],
    ),
    "a limit": (lambda count: select(FILES.path).limit(count), [(1,), (2,)]),
}


def _dialect(paramstyle: str) -> Dialect:
    return PGDialect_psycopg(paramstyle=paramstyle)  # type: ignore[no-untyped-call]


@pytest.mark.parametrize("name", QUERIES)
@pytest.mark.parametrize(
    "dialect",
    [_dialect("numeric_dollar"), _dialect("format"), SQLiteDialect_pysqlite()],
    ids=["postgres", "copy", "sqlite"],
)
def test_prepared_statement_has_its_own_constants_and_schema(name: str, dialect: Dialect) -> None:
    query, asked = QUERIES[name]
    for values in [*asked, *reversed(asked)]:
        for schema in ("my schema", "lake", None):
            options: dict[str, Any] = {"schema_translate_map": {None: schema}, "render_schema_translate": True}
            fresh = query(*values).compile(
                dialect=dialect,
                **(options if schema else {}),
                compile_kwargs={"render_postcompile": True},
            )
            assert isinstance(fresh, SQLCompiler)
            found = Prepared(query(*values), dialect, schema)
            assert (found.text, found.names) == (str(fresh), tuple(fresh.positiontup or ()))
            assert found.values({}) == [fresh.params[name] for name in found.names]


def test_statement_is_compiled_once_for_all_catalogs_of_a_process(monkeypatch: pytest.MonkeyPatch) -> None:
    query = select(FILES.path, FILES.size).where(FILES.version == bindparam("wanted"), FILES.size > 4)
    Prepared(query, _dialect("numeric_dollar"), "one")
    monkeypatch.setattr(prepared, "_compile", None)
    other = select(FILES.path, FILES.size).where(FILES.version == bindparam("wanted"), FILES.size > 5)
    found = Prepared(other, _dialect("numeric_dollar"), "two")
    assert "two.dl_add_files" in found.text
    assert found.values({"wanted": 7}) == [7, 5]


def test_query_is_compiled_once_for_lists_of_any_length(monkeypatch: pytest.MonkeyPatch) -> None:
    Prepared(select(FILES.path).where(FILES.path.in_(["a", "b"])), _dialect("format"), None)
    monkeypatch.setattr(prepared, "_compile", None)
    found = Prepared(select(FILES.path).where(FILES.path.in_(["c"])), _dialect("format"), None)
    assert found.values({}) == ["c"]
    assert found.text.count("%s") == 1


def test_last_shapes_are_kept_and_older_ones_compiled_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prepared, "_forms", Remembered(3))
    for column in (FILES.path, FILES.size, FILES.version, FILES.stats, FILES.path):
        assert Prepared(select(column).where(FILES.version == 3), _dialect("format"), None).values({}) == [3]
    assert len(prepared._forms) == 3
