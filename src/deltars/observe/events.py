"""What happens in deltars that somebody may want to watch.

    begin ──────▶ write ──────▶ commit ──────────────────────▶ publish, table by table
    TransactionBegun   WriteSkipped   CommitEnded, TransactionEnded    VersionPublished or PublicationFailed;
                                                                       TransactionPublished

What takes time is told when it is over, with how long it took.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TypeAlias
from uuid import UUID

from deltars.errors import CommitUnknown, DeltarsError, VersionConflict
from deltars.uri import CatalogUri

_SYSTEMS = {"postgres": "postgresql"}


@dataclass(frozen=True, slots=True)
class Source:
    """The catalog that an event is about, in the words of those who watch."""

    catalog: str
    """Its URI without parameters: the same for every process, and without a secret."""
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
    """What became of a commit or a transaction."""

    COMMITTED = "committed"
    REPEATED = "repeated"
    """It had been committed before, under the same id."""
    CONFLICT = "conflict"
    FAILED = "failed"
    UNKNOWN = "unknown"
    ROLLED_BACK = "rolled_back"
    EMPTY = "empty"
    """There was nothing to commit."""

    @classmethod
    def of(cls, error: BaseException, stage: str | None = None) -> Outcome:
        """What an error means that ended a commit in this stage."""
        match error:
            case VersionConflict():
                return cls.CONFLICT
            case CommitUnknown():
                return cls.UNKNOWN
            case DeltarsError():
                return cls.FAILED
        # An interrupt, or a defect: what the server made of a COMMIT that was sent is not known.
        return cls.UNKNOWN if stage == "commit" else cls.FAILED


class Stopwatch:
    """How long each stage of something took."""

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
        """The seconds in all; the last stage is over."""
        self.enter(self.stage)
        return sum(self.stages.values())


@dataclass(frozen=True, slots=True)
class TransactionBegun:
    source: Source
    txn_id: UUID
    isolation: str
    began_ns: int


@dataclass(frozen=True, slots=True)
class TransactionEnded:
    """From `begin` until its changes stand in the database, or never will."""

    source: Source
    txn_id: UUID
    outcome: Outcome
    duration_s: float
    versions: Mapping[str, int | None] = field(default_factory=dict)
    """The tables that it changes, by name; the versions only where it committed."""
    error: BaseException | None = None


@dataclass(frozen=True, slots=True)
class WriteSkipped:
    """A write was left out, because its application had written this version, or a later one, before."""

    source: Source
    txn_id: UUID
    table: str
    app_id: str
    app_version: int
    known_version: int

    @property
    def is_late(self) -> bool:
        """Whether a later version is there: these rows may be in no version at all."""
        return self.known_version > self.app_version


@dataclass(frozen=True, slots=True)
class CommitEnded:
    """One database transaction, from the validation of its actions to the answer to its COMMIT."""

    source: Source
    txn_id: UUID
    outcome: Outcome
    began_ns: int
    duration_s: float
    stages: dict[str, float]
    """Seconds: validate, lock, check, write, commit, as far as it came."""
    tables: Sequence[UUID]
    added_files: int
    removed_files: int
    conflict: str | None = None
    """The name of the rule that it broke."""
    error: BaseException | None = None

    @property
    def stage(self) -> str | None:
        """The one that it ended in."""
        said = self.error.stage if isinstance(self.error, DeltarsError) else None
        return said or next(reversed(self.stages), None)


@dataclass(frozen=True, slots=True)
class VersionPublished:
    source: Source
    txn_id: UUID
    table: str
    version: int
    began_ns: int
    duration_s: float
    lag_s: float
    """From its commit until the catalog knew that it is published, by the database's clock."""


@dataclass(frozen=True, slots=True)
class PublicationFailed:
    source: Source
    txn_id: UUID | None
    table: str
    version: int
    state: str
    """`failed`: it will be tried again; `diverged`: it will not."""
    error: BaseException


@dataclass(frozen=True, slots=True)
class TransactionPublished:
    """The last table of a transaction over several was published."""

    source: Source
    txn_id: UUID
    tables: int
    skew_s: float
    """For how long readers of `_delta_log` could see some of its tables changed and others not."""


@dataclass(frozen=True, slots=True)
class TableLag:
    table: str
    state: str
    lag_s: float
    """The age of its oldest version that is not published; 0 where all are."""


@dataclass(frozen=True, slots=True)
class MirrorSeen:
    """Somebody looked how far every table of the catalog is published."""

    source: Source
    tables: Sequence[TableLag]


Event: TypeAlias = (
    TransactionBegun
    | TransactionEnded
    | WriteSkipped
    | CommitEnded
    | VersionPublished
    | PublicationFailed
    | TransactionPublished
    | MirrorSeen
)
