"""Events of deltars, for logs, metrics, spans and lineage.

    begin ──────▶ write ──────▶ commit ──────────────────────▶ publish, table by table
    TransactionBegun   WriteSkipped   CommitEnded, TransactionEnded    VersionPublished or PublicationFailed;
                                                                       TransactionPublished

An event is emitted when its operation is over, with the duration.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import TypeAlias
from uuid import UUID

from deltars.errors import CommitUnknown, DeltarsError, VersionConflict
from deltars.uri import CatalogUri

_SYSTEMS = {"postgres": "postgresql"}


@dataclass(frozen=True, slots=True)
class Source:
    """The catalog that an event is about, in the terms of metrics and traces."""

    catalog: str
    """Its URI without parameters, so that it is the same in every process and has no secret."""
    system: str
    namespace: str
    host: str | None = None
    port: int | None = None

    @classmethod
    def of(cls, uri: CatalogUri) -> Source:
        port = uri.parameters.get("port", "")
        return cls(
            str(CatalogUri(uri.backend, uri.database, uri.schema)),
            _SYSTEMS.get(uri.backend, uri.backend),
            uri.database if uri.schema is None else f"{uri.database}|{uri.schema}",
            uri.parameters.get("host"),
            int(port) if port.isdecimal() else None,
        )


class Outcome(StrEnum):
    """Outcome of a commit or a transaction."""

    COMMITTED = "committed"
    REPEATED = "repeated"
    """A transaction with the same id was committed before."""
    CONFLICT = "conflict"
    FAILED = "failed"
    UNKNOWN = "unknown"
    ROLLED_BACK = "rolled_back"
    EMPTY = "empty"
    """There was nothing to commit."""

    @classmethod
    def of(cls, error: BaseException, stage: str | None = None) -> Outcome:
        """Return the outcome of a commit that an error ended in this stage."""
        match error:
            case VersionConflict():
                return cls.CONFLICT
            case CommitUnknown():
                return cls.UNKNOWN
            case DeltarsError():
                return cls.FAILED
        # After an interrupt or a bug, it is not known whether the server processed a COMMIT that was sent.
        return cls.UNKNOWN if stage == "commit" else cls.FAILED


class Stopwatch:
    """Timer of the stages of an operation."""

    __slots__ = ("_entered", "began_ns", "stage", "stages")

    def __init__(self, stage: str) -> None:
        self.began_ns = time.time_ns()
        self.stages: dict[str, float] = {}
        self.stage = stage
        self._entered = time.perf_counter()

    def enter(self, stage: str) -> None:
        now = time.perf_counter()
        self.stages[self.stage] = self.stages.get(self.stage, 0.0) + now - self._entered
        self.stage, self._entered = stage, now

    def stop(self) -> float:
        """End the last stage and return the seconds of all stages."""
        self.enter(self.stage)
        return sum(self.stages.values())


@dataclass(frozen=True, slots=True)
class TransactionBegun:
    source: Source
    txn_id: UUID
    isolation: str
    began_ns: int


@dataclass(frozen=True, slots=True)
class ReadTable:
    """Table that a transaction read rows of."""

    name: str
    location: str
    version: int
    condition: str | None
    """Condition in SQL, cut if it is long; None if every row was read."""


@dataclass(frozen=True, slots=True)
class WrittenTable:
    """Table that a transaction changed."""

    name: str
    location: str
    version: int | None
    """Version that it made; None if it dropped the table."""
    operation: str
    is_new: bool = False
    replaces: bool = False
    """Whether an overwrite replaced rows."""
    columns: Sequence[tuple[str, str]] = ()
    """Names and types."""
    num_rows: int | None = None
    num_files: int = 0
    size_bytes: int = 0
    """Rows, files and bytes that it wrote."""


@dataclass(frozen=True, slots=True)
class Lineage:
    """What a committed transaction read and wrote."""

    committed_at: datetime
    committer: str | None
    read: Sequence[ReadTable]
    written: Sequence[WrittenTable]


@dataclass(frozen=True, slots=True)
class TransactionEnded:
    """A transaction ended: it committed, failed or was rolled back. The duration counts from `begin`."""

    source: Source
    txn_id: UUID
    outcome: Outcome
    duration_s: float
    versions: Mapping[str, int | None] = field(default_factory=dict)
    """The tables that it changes, by name, with their versions if it committed."""
    error: BaseException | None = None
    lineage: Callable[[], Lineage] | None = field(default=None, repr=False, compare=False)
    """Makes the lineage of a transaction that committed. Call it in the exporter itself; it costs some microseconds."""


@dataclass(frozen=True, slots=True)
class WriteSkipped:
    """A write was skipped, because its application had already written this version or a later one."""

    source: Source
    txn_id: UUID
    table: str
    app_id: str
    app_version: int
    known_version: int

    @property
    def is_late(self) -> bool:
        """Return whether a later version was written before. The skipped rows may then be in no version at all."""
        return self.known_version > self.app_version


@dataclass(frozen=True, slots=True)
class CommitEnded:
    """A database transaction ended. It spans the validation of the actions to the response to COMMIT."""

    source: Source
    txn_id: UUID
    outcome: Outcome
    began_ns: int
    duration_s: float
    stages: dict[str, float]
    """Seconds of each stage it reached: validate, lock, check, write, commit."""
    tables: Sequence[UUID]
    added_files: int
    removed_files: int
    conflict: str | None = None
    """The name of the conflict rule that it broke."""
    error: BaseException | None = None

    @property
    def stage(self) -> str | None:
        """Return the stage that it ended in."""
        stage = self.error.stage if isinstance(self.error, DeltarsError) else None
        return stage or next(reversed(self.stages), None)


@dataclass(frozen=True, slots=True)
class VersionPublished:
    source: Source
    txn_id: UUID
    table: str
    version: int
    began_ns: int
    duration_s: float
    lag_s: float
    """Seconds from its commit until the catalog recorded the publication, by the database's clock."""


@dataclass(frozen=True, slots=True)
class PublicationFailed:
    source: Source
    txn_id: UUID | None
    table: str
    version: int
    state: str
    """`failed`: it will be retried; `diverged`: it will not."""
    error: BaseException


@dataclass(frozen=True, slots=True)
class TransactionPublished:
    """The last table of a transaction over several tables was published."""

    source: Source
    txn_id: UUID
    tables: int
    skew_s: float
    """How long readers of `_delta_log` could see some of its tables changed and others unchanged."""


@dataclass(frozen=True, slots=True)
class TableLag:
    table: str
    state: str
    lag_s: float
    """The age of its oldest unpublished version; 0 if all are published."""


@dataclass(frozen=True, slots=True)
class MirrorSeen:
    """The publication state of every table of the catalog was read."""

    source: Source
    tables: Sequence[TableLag]


@dataclass(frozen=True, slots=True)
class MaintenanceSeen:
    """The statistics of the tables were read, to find out what maintenance they need."""

    source: Source
    due: Mapping[str, int]
    """Tables that need each verb: `publish`, `optimize`, `vacuum`, `expire`, `repair`."""


@dataclass(frozen=True, slots=True)
class MaintenanceEnded:
    """A table was published, optimized, vacuumed or expired by `maintain`, or that failed."""

    source: Source
    table: str
    verb: str
    outcome: str
    """`done` or `failed`."""
    duration_s: float
    num_files: int
    """Files that were written again, deleted or published; versions that expired."""
    size_bytes: int
    detail: str | None = None
    error: BaseException | None = None


@dataclass(frozen=True, slots=True)
class BatchEnded:
    """A micro-batch of a stream ended: it committed, was committed before, or failed."""

    source: Source
    txn_id: UUID
    app_id: str
    batch_id: int
    outcome: Outcome
    duration_s: float
    versions: Mapping[str, int] = field(default_factory=dict)
    error: BaseException | None = None


Event: TypeAlias = (
    TransactionBegun
    | TransactionEnded
    | WriteSkipped
    | CommitEnded
    | VersionPublished
    | PublicationFailed
    | TransactionPublished
    | MirrorSeen
    | MaintenanceSeen
    | MaintenanceEnded
    | BatchEnded
)
