"""The data plane: how rows become files and files become frames, seen from a transaction.

    a frame arrives ──▶ plane_for(frame) ──▶ SparkPlane    Spark DataFrames: written by the executors
                                         └─▶ ArrowPlane    everything else that Arrow can carry: written right here

pyspark is an extra and lies above this layer, so its plane is provided from outside (`deltars/__init__`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol, cast

from deltars.data.conditions import Condition
from deltars.data.plane import ArrowPlane
from deltars.data.scan import Scan, WriteTarget, WrittenFile
from deltars.errors import ConfigError, ValidationError
from deltars.log.snapshot import Moment
from deltars.predicate import Predicate, Query, Unknown, leaves_of, parse
from deltars.protocol import StructType
from deltars.wiring import provided_spark


class DataPlane(Protocol):
    """Writes frames of the kind it accepts. Nothing it writes is visible before the SQL commit."""

    def accepts(self, frame: object) -> bool: ...

    def opened(self, frame: object) -> object:
        """The frame for one write: what the methods below take. Its rows are read once."""

    def schema(self, frame: object) -> StructType: ...

    def completed(self, frame: object, table: StructType) -> object:
        """The frame with what the table's columns ask: defaults, generated columns, strings of limited length."""

    def write(self, frame: object, target: WriteTarget, conditions: Sequence[Condition] = ()) -> list[WrittenFile]:
        """The frame's rows as data files; a row that breaks a condition is an error."""

    def condition(self, frame: object, where: str, schema: StructType) -> Predicate:
        """A condition on a table's rows, as `write` and `without` understand it."""

    def without(self, frame: object, scan: Scan, where: str) -> object:
        """The rows of a scan that do not match, as a frame of the same kind."""


class SparkDataPlane(DataPlane, Protocol):
    """`spark` is a session, or None for the active one."""

    def predicate(self, spark: Any, where: str | None, schema: StructType) -> Predicate | None:
        """The condition as this session understands it: in its time zone. None where there is nothing to prune by."""

    def predicates(self, spark: Any, query: Query, schemas: Sequence[StructType]) -> list[Predicate | None]:
        """What a query asks of each of its tables alone, as this session understands it."""

    def query(
        self,
        spark: Any,
        query: Query,
        scans: Sequence[Scan],
        predicates: Sequence[Predicate | None],
        args: Mapping[str, Any] | Sequence[Any] | None,
    ) -> Any:
        """The answer to a query, each of its tables read by the scan in its place, as a DataFrame."""

    def access(self, spark: Any, root: str, path: str) -> Any:
        """How the session gets at this file of an object store: `scheme`, `why` and `has_classes`."""

    def moment(self, spark: Any, timestamp: Moment | None) -> Moment | None:
        """A time without a zone is in the session's."""

    def read(self, spark: Any, scan: Scan, *, where: str | None = None, columns: Sequence[str] | None = None) -> Any:
        """The rows of a scan's files as a DataFrame: those that match, and of them these columns."""


def spark_plane() -> SparkDataPlane:
    plane = provided_spark()
    if plane is None:
        raise ConfigError("no Spark plane was provided")
    return cast(SparkDataPlane, plane)


def plane_for(frame: object) -> DataPlane:
    plane: DataPlane = spark_plane() if type(frame).__module__.startswith("pyspark.sql") else ArrowPlane()
    if not plane.accepts(frame):
        raise ValidationError(
            f"a {type(frame).__module__}.{type(frame).__qualname__} cannot be written as a table",
            field="df",
            hint="Give a Spark, pandas, Polars or pyarrow frame, or anything with __arrow_c_stream__.",
        )
    return plane


def any_breaks(scan: Scan, condition: str) -> bool:
    """Whether a row of the scan does not fulfil a condition; what only Spark can judge is asked of Spark."""
    if any(isinstance(leaf, Unknown) for leaf in leaves_of(parse(condition, scan.schema))):
        plane = spark_plane()
        unmatched: Any = plane.without(plane.read(None, scan), scan, condition)
        return not unmatched.isEmpty()
    return any(batch.num_rows for batch in ArrowPlane().without(None, scan, condition))
