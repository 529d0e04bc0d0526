"""What a program has set on Spark's readers and writers when it calls their last verb.

    df.write.format("delta").mode("append").option(…) ──.save(path)──▶ WriteRequest
    df.writeTo("a.t").using("delta").tableProperty(…) ──.create()────▶ TableWriteRequest
    spark.read.format("delta").option(…) ───────────────.load(path)──▶ ReadRequest

The settings are read from the object itself, not recorded as they are made: a writer that was made before the session
was enabled counts too. Classic objects keep them in the JVM, those of Spark Connect in Python.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark.sql import DataFrame, SparkSession

from deltars.spark.verbs.names import parts_of

_DEFAULT_SOURCE = "spark.sql.sources.default"
_IDENTITY = "identity("


@dataclass(frozen=True)
class Options(Mapping[str, str]):
    """Options by name, in any case."""

    given: Mapping[str, str]
    """By the names as they were given."""
    _by_key: dict[str, str] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_by_key", {name.lower(): value for name, value in self.given.items()})

    def __getitem__(self, name: str) -> str:
        return self._by_key[name.lower()]

    def __iter__(self) -> Iterator[str]:
        return iter(self.given)

    def __len__(self) -> int:
        return len(self.given)

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and name.lower() in self._by_key


@dataclass(frozen=True, slots=True)
class WriteRequest:
    """What is set on a `DataFrameWriter`."""

    frame: DataFrame
    source: str
    """Format, the session's default if none was set, in lower case."""
    is_default_source: bool
    mode: str
    """append, overwrite, errorifexists or ignore."""
    options: Options
    partition_by: Sequence[str] | None = None
    cluster_by: Sequence[str] | None = None
    is_bucketed: bool = False
    is_sorted: bool = False
    evolves_schema: bool = False


@dataclass(frozen=True, slots=True)
class TableWriteRequest:
    """What is set on a `DataFrameWriterV2`."""

    frame: DataFrame
    name: Sequence[str]
    """Parts of the table's name."""
    source: str | None
    options: Options
    properties: Mapping[str, str]
    partition_by: Sequence[str] | None
    """Columns, or expressions such as years(day) as text."""
    cluster_by: Sequence[str] | None
    evolves_schema: bool = False


@dataclass(frozen=True, slots=True)
class ReadRequest:
    """What is set on a `DataFrameReader`."""

    session: SparkSession
    source: str
    options: Options
    has_schema: bool


def session_of(owner: Any) -> Any:
    """Return the session that a reader, a writer or a catalog belongs to; a session belongs to itself."""
    for name in ("_sparkSession", "_spark", "_client", "_session"):
        # A session has these names too, of its own parts.
        found = None if _is_session(owner) else getattr(owner, name, None)
        if _is_session(found):
            return found
    return owner


def is_connect(session: Any) -> bool:
    return type(session).__module__.startswith("pyspark.sql.connect")


def write_request(writer: Any) -> WriteRequest:
    session = session_of(writer)
    if is_connect(session):
        plan = writer._write
        source, mode = plan.source, plan.mode or "errorifexists"
        options = {name: value for name, value in plan.options.items() if value is not None}
        columns = list(plan.partitioning_cols), list(plan.clustering_cols)
        is_bucketed, is_sorted = plan.num_buckets > 0, bool(plan.sort_cols)
        frame = _connect_frame(writer._df, session)
        evolves = bool(getattr(plan, "with_schema_evolution", False))
    else:
        java = writer._jwrite
        source, mode = java.source(), java.curmode().toString()
        options = _dict(session, java.extraOptions().originalMap())
        columns = _list(session, java.partitioningColumns()), _list(session, java.clusteringColumns())
        is_bucketed, is_sorted = java.numBuckets().isDefined(), java.sortColumnNames().isDefined()
        frame, evolves = writer._df, bool(_field(java, "_withSchemaEvolution"))
    default = session.conf.get(_DEFAULT_SOURCE)
    return WriteRequest(
        frame,
        (source or default).lower(),
        source is None or source.lower() == default.lower(),
        {"error": "errorifexists", "default": "errorifexists"}.get(mode.lower(), mode.lower()),
        Options(options),
        columns[0] or None,
        columns[1] or None,
        is_bucketed,
        is_sorted,
        evolves,
    )


def table_write_request(writer: Any) -> TableWriteRequest:
    session = session_of(writer)
    if is_connect(session):
        plan = writer._write
        return TableWriteRequest(
            _connect_frame(writer._df, session),
            parts_of(writer._table_name),
            plan.provider,
            Options({name: value for name, value in plan.options.items() if value is not None}),
            {name: value for name, value in plan.table_properties.items() if value is not None},
            [_column_text(column) for column in plan.partitioning_columns] or None,
            list(plan.clustering_columns) or None,
            bool(getattr(plan, "with_schema_evolution", False)),
        )
    java = writer._jwriter
    partitioning = _field(java, "partitioning")
    provider = _field(java, "provider")
    return TableWriteRequest(
        writer._df,
        _list(session, _field(java, "tableName")),
        provider.get() if provider.isDefined() else None,
        Options(_dict(session, _field(java, "options"))),
        _dict(session, _field(java, "properties")),
        [_transform_text(one) for one in _list(session, partitioning)] or None,
        _clustering(session, _field(java, "clustering")),
        bool(_field(java, "_withSchemaEvolution")),
    )


def read_request(reader: Any) -> ReadRequest:
    session = session_of(reader)
    if is_connect(session):
        source, options, has_schema = reader._format, reader._options, bool(reader._schema)
    else:
        java = reader._jreader
        source, options = java.source(), _dict(session, java.extraOptions().originalMap())
        has_schema = java.userSpecifiedSchema().isDefined()
    given = {name: value for name, value in options.items() if value is not None}
    return ReadRequest(session, (source or session.conf.get(_DEFAULT_SOURCE)).lower(), Options(given), has_schema)


def stream_source(owner: Any) -> str:
    """Return the format of a stream's reader or writer, in lower case; empty if it is not known."""
    if is_connect(session_of(owner)):
        plan = getattr(owner, "_write_proto", None)
        return str(getattr(owner, "_format", None) or getattr(plan, "format", "") or "").lower()
    java = getattr(owner, "_jwrite", None) or getattr(owner, "_jreader", None)
    found = None if java is None else _field(java, "source")
    return str(found or "").lower()


def _is_session(candidate: Any) -> bool:
    return candidate is not None and hasattr(candidate, "createDataFrame") and hasattr(candidate, "conf")


def _connect_frame(plan: Any, session: Any) -> DataFrame:
    from pyspark.sql.connect.dataframe import DataFrame as ConnectFrame

    return ConnectFrame(plan, session)


def _column_text(column: Any) -> str:
    text = str(column)
    return text.removeprefix("Column<'").removesuffix("'>")


def _transform_text(transform: Any) -> str:
    text = str(transform.toString())
    return text[len(_IDENTITY) : -1] if text.startswith(_IDENTITY) else text


def _clustering(session: Any, clustering: Any) -> list[str] | None:
    """Return the clustering columns, which the JVM keeps as one transform: cluster_by(a, b)."""
    found = clustering.get() if clustering.isDefined() else None
    return None if found is None else [str(name.toString()) for name in _list(session, found.columnNames())]


def _field(java: Any, name: str) -> Any:
    """Return a field of a JVM object, declared by its class or one above it; None if there is none."""
    kind = java.getClass()
    while kind is not None:
        try:
            declared = kind.getDeclaredField(name)
        except Py4JJavaError:
            kind = kind.getSuperclass()
            continue
        declared.setAccessible(True)
        return declared.get(java)
    return None


def _converters(session: Any) -> Any:
    return session._jvm.scala.jdk.javaapi.CollectionConverters


def _dict(session: Any, scala: Any) -> dict[str, str]:
    return dict(_converters(session).asJava(scala))


def _list(session: Any, scala: Any) -> list[Any]:
    """Return the elements of a Scala sequence, or of one in an Option; none of an empty Option."""
    kind = "scala.None$" if scala is None else scala.getClass().getName()
    if kind == "scala.None$":
        return []
    return _list(session, scala.get()) if kind == "scala.Some" else list(_converters(session).asJava(scala))
