"""Wrap the verbs of Spark's classes, so that they go to deltars in sessions that are enabled.

    enable(session, verbs) ── first of its kind ──▶ each verb's method of Spark's classes is wrapped, once
                           └─ mark of the session ──▶ verbs
    df.write.save(path) ── session without a mark ──────────────▶ Spark's own method
                        └─ verbs.save(…) ── NOT_OURS ───────────▶ Spark's own method
                                         └─ anything else ──────▶ the result
    disable(session) ── last of its kind ──▶ Spark's own methods are back

A classic session carries its mark in its configuration: a clone of the session, such as the one that a stream's batches
use, has it too, and a new session has not. With Spark Connect the session's id is the mark.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from contextvars import ContextVar
from functools import wraps
from importlib import import_module
from typing import Any, Protocol
from uuid import uuid4

from pyspark.sql.catalog import Table

from deltars.errors import DeltarsError
from deltars.spark.verbs.errors import make_sparks
from deltars.spark.verbs.merge_writer import MergeIntoWriter, MergeRequest
from deltars.spark.verbs.names import parts_of
from deltars.spark.verbs.request import (
    ReadRequest,
    TableWriteRequest,
    WriteRequest,
    is_connect,
    read_request,
    session_of,
    stream_source,
    table_write_request,
    write_request,
)

MARK = "spark.deltars.session"
"""Setting of a classic session that is enabled."""

NOT_OURS: Any = object()
"""What a verb returns for a call that is Spark's."""


class Verbs(Protocol):
    """What an enabled session does in place of Spark. Each verb returns `NOT_OURS` for a call that is Spark's."""

    def save(self, request: WriteRequest, path: str | None) -> Any: ...
    def save_as_table(self, request: WriteRequest, name: Sequence[str]) -> Any: ...
    def insert_into(self, request: WriteRequest, name: Sequence[str]) -> Any: ...
    def create(self, request: TableWriteRequest) -> Any: ...
    def replace(self, request: TableWriteRequest) -> Any: ...
    def create_or_replace(self, request: TableWriteRequest) -> Any: ...
    def append(self, request: TableWriteRequest) -> Any: ...
    def overwrite(self, request: TableWriteRequest, condition: Any) -> Any: ...
    def overwrite_partitions(self, request: TableWriteRequest) -> Any: ...
    def load(self, request: ReadRequest, path: Any) -> Any: ...
    def table(self, request: ReadRequest, name: Sequence[str]) -> Any: ...
    def sql(self, session: Any, query: str, args: Any, frames: dict[str, Any]) -> Any: ...
    def table_exists(self, session: Any, name: Sequence[str]) -> Any: ...
    def list_tables(self, session: Any, database: str | None, pattern: str | None) -> list[str]: ...
    def stream(self, source: str, verb: str) -> Any: ...
    def has_table(self, session: Any, name: Sequence[str]) -> bool: ...
    def merge(self, request: MergeRequest) -> None: ...
    def forget_view(self, session: Any, name: str) -> None: ...


Original = Callable[..., Any]
Verb = Callable[..., Any]
"""Called with the verbs, Spark's own method, the object that it is called on, and the arguments."""


# -- one function for each of Spark's methods --------------------------------------------------------------------------


def _save(
    verbs: Verbs,
    original: Original,
    writer: Any,
    path: str | None = None,
    format: str | None = None,
    mode: str | None = None,
    partitionBy: str | list[str] | None = None,  # noqa: N803 — Spark's name
    **options: Any,
) -> Any:
    writer = _set(writer, format, mode, partitionBy, options)
    done = verbs.save(write_request(writer), path)
    return original(writer, path) if done is NOT_OURS else done


def _save_as_table(
    verbs: Verbs,
    original: Original,
    writer: Any,
    name: str,
    format: str | None = None,
    mode: str | None = None,
    partitionBy: str | list[str] | None = None,  # noqa: N803
    **options: Any,
) -> Any:
    writer = _set(writer, format, mode, partitionBy, options)
    done = verbs.save_as_table(write_request(writer), parts_of(name))
    return original(writer, name) if done is NOT_OURS else done


def _set(writer: Any, format: Any, mode: Any, partition_by: Any, options: dict[str, Any]) -> Any:
    """Apply the arguments to the writer, as Spark's own method does."""
    writer = writer.mode(mode).options(**options)
    if partition_by is not None:
        writer = writer.partitionBy(partition_by)
    return writer if format is None else writer.format(format)


def _insert_into(
    verbs: Verbs,
    original: Original,
    writer: Any,
    tableName: str,  # noqa: N803
    overwrite: bool | None = None,
) -> Any:
    if overwrite is not None:
        writer = writer.mode("overwrite" if overwrite else "append")
    done = verbs.insert_into(write_request(writer), parts_of(tableName))
    return original(writer, tableName) if done is NOT_OURS else done


def _of_table_writer(verb: str) -> Verb:
    def call(verbs: Verbs, original: Original, writer: Any, *args: Any, **keywords: Any) -> Any:
        done = getattr(verbs, verb)(table_write_request(writer), *args, **keywords)
        return original(writer, *args, **keywords) if done is NOT_OURS else done

    return call


def _load(
    verbs: Verbs,
    original: Original,
    reader: Any,
    path: Any = None,
    format: str | None = None,
    schema: Any = None,
    **options: Any,
) -> Any:
    reader = reader if format is None else reader.format(format)
    reader = reader if schema is None else reader.schema(schema)
    reader = reader.options(**options)
    done = verbs.load(read_request(reader), path)
    return original(reader, path) if done is NOT_OURS else done


def _read_table(verbs: Verbs, original: Original, owner: Any, tableName: Any) -> Any:  # noqa: N803
    if not isinstance(tableName, str):
        return original(owner, tableName)  # which refuses it
    request = read_request(owner.read if hasattr(owner, "createDataFrame") else owner)
    done = verbs.table(request, parts_of(tableName))
    return original(owner, tableName) if done is NOT_OURS else done


def _sql(
    verbs: Verbs,
    original: Original,
    session: Any,
    sqlQuery: Any,  # noqa: N803
    args: Any = None,
    **kwargs: Any,
) -> Any:
    done = verbs.sql(session, sqlQuery, args, kwargs) if isinstance(sqlQuery, str) else NOT_OURS
    return original(session, sqlQuery, args, **kwargs) if done is NOT_OURS else done


def _table_exists(
    verbs: Verbs,
    original: Original,
    catalog: Any,
    tableName: str,  # noqa: N803
    dbName: str | None = None,  # noqa: N803
) -> Any:
    parts = parts_of(tableName) if dbName is None else [*parts_of(dbName), tableName]
    done = verbs.table_exists(session_of(catalog), parts)
    return original(catalog, tableName, dbName) if done is NOT_OURS else done


def _list_tables(
    verbs: Verbs,
    original: Original,
    catalog: Any,
    dbName: str | None = None,  # noqa: N803
    pattern: str | None = None,
) -> Any:
    theirs = original(catalog, dbName, pattern)
    hidden = {table.name.lower() for table in theirs}
    names = [name for name in verbs.list_tables(session_of(catalog), dbName, pattern) if name.lower() not in hidden]
    ours = [Table(name, "spark_catalog", ["default"], None, "EXTERNAL", False) for name in names]
    return sorted([*theirs, *ours], key=lambda table: str(table.name))


def _merge_into(verbs: Verbs, original: Original, frame: Any, table: str, condition: Any) -> Any:
    name = parts_of(table)
    if not verbs.has_table(frame.sparkSession, name):
        return original(frame, table, condition)

    def run(request: MergeRequest) -> None:
        # Called by the program, outside of the verb that began the merge.
        token = _is_inside.set(True)
        try:
            verbs.merge(request)
        except DeltarsError as error:
            make_sparks(error)
            raise
        finally:
            _is_inside.reset(token)

    return MergeIntoWriter(MergeRequest(frame, tuple(name), condition), run)


def _replace_view(verbs: Verbs, original: Original, owner: Any, *args: Any, **keywords: Any) -> Any:
    """Let Spark create or drop a temporary view; one of the same name that SQL created is gone then."""
    done = original(owner, *args, **keywords)
    name = args[0] if args else next(iter(keywords.values()), None)
    if isinstance(name, str):
        verbs.forget_view(session_of(owner), name.strip("`").replace("``", "`"))
    return done


def _stream(verb: str) -> Verb:
    def call(verbs: Verbs, original: Original, owner: Any, *args: Any, **keywords: Any) -> Any:
        source = keywords.get("format") or stream_source(owner)
        done = verbs.stream(str(source or "").lower(), verb)
        return original(owner, *args, **keywords) if done is NOT_OURS else done

    return call


_VERBS: dict[str, dict[str, Verb]] = {
    "readwriter.DataFrameWriter": {"save": _save, "saveAsTable": _save_as_table, "insertInto": _insert_into},
    "readwriter.DataFrameWriterV2": {
        "create": _of_table_writer("create"),
        "replace": _of_table_writer("replace"),
        "createOrReplace": _of_table_writer("create_or_replace"),
        "append": _of_table_writer("append"),
        "overwrite": _of_table_writer("overwrite"),
        "overwritePartitions": _of_table_writer("overwrite_partitions"),
    },
    "readwriter.DataFrameReader": {"load": _load, "table": _read_table},
    "session.SparkSession": {"table": _read_table, "sql": _sql},
    "catalog.Catalog": {"tableExists": _table_exists, "listTables": _list_tables, "dropTempView": _replace_view},
    "dataframe.DataFrame": {
        "mergeInto": _merge_into,
        "createTempView": _replace_view,
        "createOrReplaceTempView": _replace_view,
    },
    "streaming.readwriter.DataStreamReader": {"load": _stream("readStream")},
    "streaming.readwriter.DataStreamWriter": {"start": _stream("writeStream")},
}
"""By class, below `pyspark.sql` and `pyspark.sql.connect`: the function that each of its methods goes to."""

_lock = threading.Lock()
_enabled: dict[str, Verbs] = {}
_originals: dict[tuple[type, str], Original] = {}
_is_inside: ContextVar[bool] = ContextVar("deltars_inside_a_verb", default=False)


# -- sessions ----------------------------------------------------------------------------------------------------------


def enable_session(session: Any, verbs: Verbs) -> None:
    """Send the verbs of a session to deltars. A session that is enabled gets the new verbs."""
    with _lock:
        mark = _mark_of(session)
        if mark is None:
            mark = uuid4().hex
            session.conf.set(MARK, mark)
        _enabled[mark] = verbs
        _wrap(is_connect(session))


def disable_session(session: Any) -> None:
    """Send the verbs of a session to Spark again. After the last session, Spark's own methods are back."""
    with _lock:
        mark = _mark_of(session)
        if mark is None or _enabled.pop(mark, None) is None:
            return
        if not is_connect(session):
            session.conf.unset(MARK)
        if not _enabled:
            _unwrap()


def verbs_of(session: Any) -> Verbs | None:
    """Return the verbs of a session that is enabled, or None."""
    if not _enabled or _is_inside.get():
        return None
    mark = _mark_of(session)
    return None if mark is None else _enabled.get(mark)


def enabled_verbs(session: Any) -> Verbs | None:
    """Return the verbs of a session that is enabled, also for a call that a verb itself makes."""
    mark = _mark_of(session) if _enabled else None
    return None if mark is None else _enabled.get(mark)


def _mark_of(session: Any) -> str | None:
    if is_connect(session):
        return str(session.session_id)
    found = session.conf.get(MARK, None)
    return None if found is None else str(found)


# -- classes -----------------------------------------------------------------------------------------------------------


def _wrap(connect: bool) -> None:
    package = "pyspark.sql.connect" if connect else "pyspark.sql"
    for path, methods in _VERBS.items():
        module, _, name = path.rpartition(".")
        if path == "dataframe.DataFrame" and not connect:
            module = "classic.dataframe"  # pyspark.sql.dataframe has the class that both derive from
        kind = getattr(import_module(f"{package}.{module}"), name)
        for method, verb in methods.items():
            original = kind.__dict__.get(method)
            if original is not None and (kind, method) not in _originals:
                _originals[kind, method] = original
                setattr(kind, method, _wrapped(original, verb))


def _unwrap() -> None:
    for (kind, method), original in list(_originals.items()):
        # What another library has wrapped since stays: below it, our wrapper finds no session and calls Spark's method.
        if getattr(kind.__dict__.get(method), "_is_deltars", False):
            setattr(kind, method, original)
            del _originals[kind, method]


def _wrapped(original: Original, verb: Verb) -> Original:
    @wraps(original)
    def method(self: Any, *args: Any, **keywords: Any) -> Any:
        verbs = verbs_of(session_of(self))
        if verbs is None:
            return original(self, *args, **keywords)
        # What the verb calls goes to Spark: deltars itself uses Spark's verbs.
        token = _is_inside.set(True)
        try:
            return verb(verbs, original, self, *args, **keywords)
        except DeltarsError as error:
            make_sparks(error)
            raise
        finally:
            _is_inside.reset(token)

    method._is_deltars = True  # type: ignore[attr-defined]
    return method
