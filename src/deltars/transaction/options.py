"""Keyword options of `begin`, `write` and row-level changes: editors complete them, type checkers check them.

begin(**options) ────────────────────── BeginOptions
write(table, df, mode, **options) ───── WriteOptions         what may be given
                                     └─ CheckedWriteOptions  what was given, with defaults; raises if it is wrong
delete, update, merge(…, **options) ─── ChangeOptions, CheckedChangeOptions
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from operator import index
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, TypedDict

from deltars.arguments import check_flags, check_texts
from deltars.config import Isolation
from deltars.data.write_target import COMPRESSIONS
from deltars.errors import ValidationError, brief
from deltars.log.new_table import NO_VERSION
from deltars.log.snapshot import as_whole
from deltars.log.transaction_id import TxnId
from deltars.transaction.metadata import check_properties
from deltars.transaction.result import SkippedWrite

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MirrorChoice: TypeAlias = Literal["inline", "async", "off"]
WriteMode: TypeAlias = Literal["append", "overwrite", "error", "errorifexists", "ignore"]

MODES = {"append": "append", "overwrite": "overwrite", "error": "error", "errorifexists": "error", "ignore": "ignore"}
PARTITION_OVERWRITES = ("static", "dynamic")


class BeginOptions(TypedDict, total=False):
    """Keyword options of `deltars.begin`, `catalog.begin`, `catalog.run` and `MultiTableTransaction`.

    What is left out, or None, comes from the catalog's settings.
    """

    isolation: Isolation | None
    """"strict" (no table that was read or is written has a newer version), "serializable", "write_serializable" or
    "snapshot"; by default the connection's setting, then the level that the catalog stores, then "strict"."""
    timeout: float | None
    """Seconds that the commit may take, waiting included."""
    committer: str | None
    """Name of the program or person, for the tables' history; by default the user of the database (PostgreSQL) or of
    the operating system (SQLite, DuckDB)."""
    txn_id: TxnId | None
    """Your id of the transaction: a UUID, or any text ("daily-2026-01-30"). It makes the transaction repeatable: after
    the commit, another transaction with the same id changes nothing and returns the first one's result."""
    user_metadata: str | None
    """Text for the commit, shown in the tables' history."""
    max_tables: int | None
    """Most tables that the transaction may write."""
    max_files_per_table: int | None
    """Most files that the transaction may add to each table, if it writes several."""
    mirror: MirrorChoice | None
    """Who publishes the commit to `_delta_log`: the committer ("inline") or the reconciler ("async"). With "off" the
    committer does not; a reconciler still does, unless the table's property `deltars.mirror` is "off" too. The option
    overrides the tables' and the catalog's setting for the committer."""


class WriteOptions(TypedDict, total=False):
    """Keyword options of `tx.write`, `catalog.write`, `table.write` and `deltars.write`."""

    replace_where: str | None
    """With `mode="overwrite"`: replace the rows that match this condition, in Spark's SQL, and no others."""
    partition_overwrite: Literal["static", "dynamic"]
    """With `mode="overwrite"`: "dynamic" replaces only the partitions that the frame has rows for."""
    merge_schema: bool
    """Add the frame's new columns to the table."""
    overwrite_schema: bool
    """With `mode="overwrite"`: replace the table's schema by the frame's."""
    partition_by: str | Sequence[str] | None
    """Partition columns of a new table, or with `overwrite_schema` of the replaced one."""
    cluster_by: str | Sequence[str] | None
    """Clustering columns of a new table. An existing table must have the same ones."""
    properties: Mapping[str, str] | None
    """Properties of a new table."""
    location: str | None
    """Directory of a new table; by default one of the warehouse. An existing table must be there."""
    app_id: str | None
    """Name of the writing application. With `app_version` it makes the write idempotent."""
    app_version: int | None
    """Version of the application's write. The write is skipped if this version, or a later one, is in the table."""
    target_file_size: int | None
    """Size in bytes at which a new data file is begun; by default 128 MiB."""
    max_records_per_file: int | None
    """Most rows in a data file; by default any number."""
    compression: Literal["zstd", "snappy", "gzip", "lz4", "none"] | None
    """Compression of the data files; by default "zstd"."""
    user_metadata: str | None
    """Text for the commit, shown in the table's history. The last one given in a transaction counts."""
    expected_version: int | None
    """Version that the table must have when the transaction commits, at any isolation level; −1: it must not exist.
    Otherwise `VersionConflict` is raised, if it is known by then before a row is written."""


class ChangeOptions(TypedDict, total=False):
    """Keyword options of every change of rows."""

    app_id: str | None
    """Name of the changing application. With `app_version` it makes the change idempotent."""
    app_version: int | None
    """Version of the application's change. The change is skipped if this version, or a later one, is in the table."""
    target_file_size: int | None
    """Size in bytes at which a new data file is begun; by default 128 MiB."""
    compression: Literal["zstd", "snappy", "gzip", "lz4", "none"] | None
    """Compression of the data files; by default "zstd"."""
    user_metadata: str | None
    """Text for the commit, shown in the table's history. The last one given in a transaction counts."""
    spark: SparkSession | None
    """Spark session for a change that needs one; by default the active session, if there is one."""


class AliasedChangeOptions(ChangeOptions, total=False):
    """Keyword options of `delete` and `update`."""

    alias: str | None
    """Name of the table in conditions and values: with "t", its column id may be written t.id."""


@dataclass(frozen=True, slots=True)
class CheckedChangeOptions:
    """The options of one row-level change, with their defaults."""

    app_id: str | None = None
    app_version: int | None = None
    target_file_size: int | None = None
    compression: str | None = None
    user_metadata: str | None = None
    spark: Any = None
    alias: str | None = None

    def __post_init__(self) -> None:
        if self.compression is not None:
            _choose("compression", self.compression, COMPRESSIONS)
        _check_counts(target_file_size=self.target_file_size)
        check_texts(user_metadata=self.user_metadata, alias=self.alias)
        object.__setattr__(self, "app_version", _checked_application(self.app_id, self.app_version))

    def skipped(self, table: str, progress: Callable[[str], int | None]) -> SkippedWrite | None:
        """Return the skipped change if the application's progress has reached this version."""
        return skipped_by(self.app_id, self.app_version, table, progress)


def skipped_by(
    app_id: str | None, app_version: int | None, table: str, progress: Callable[[str], int | None]
) -> SkippedWrite | None:
    """Return what is skipped if an application has already committed this version or a later one, else None."""
    if app_id is None or app_version is None:
        return None
    known = progress(app_id)
    return None if known is None or known < app_version else SkippedWrite(table, app_id, app_version, known)


@dataclass(frozen=True, slots=True)
class CheckedWriteOptions:
    """The mode and the options of one write, with their defaults."""

    mode: str = "append"
    replace_where: str | None = None
    partition_overwrite: str = "static"
    merge_schema: bool = False
    overwrite_schema: bool = False
    partition_by: str | Sequence[str] | None = None
    cluster_by: str | Sequence[str] | None = None
    properties: Mapping[str, str] | None = None
    location: str | None = None
    app_id: str | None = None
    app_version: int | None = None
    target_file_size: int | None = None
    max_records_per_file: int | None = None
    compression: str | None = None
    user_metadata: str | None = None
    expected_version: int | None = None

    def __post_init__(self) -> None:
        _choose("mode", self.mode, MODES)
        _choose("partition_overwrite", self.partition_overwrite, PARTITION_OVERWRITES)
        if self.compression is not None:
            _choose("compression", self.compression, COMPRESSIONS)
        check_texts(user_metadata=self.user_metadata)
        check_flags(merge_schema=self.merge_schema, overwrite_schema=self.overwrite_schema)
        object.__setattr__(self, "mode", MODES[self.mode])
        _check_counts(target_file_size=self.target_file_size, max_records_per_file=self.max_records_per_file)
        if self.expected_version is not None:
            object.__setattr__(self, "expected_version", check_expected_version(self.expected_version))
        self._check_combinations()
        if self.properties is not None:
            check_properties(self.properties)

    def _check_combinations(self) -> None:
        overwrites = self.overwrites
        for name, is_given in (
            ("replace_where", self.replace_where is not None),
            ("overwrite_schema", self.overwrite_schema),
            ("partition_overwrite='dynamic'", self.is_dynamic),
        ):
            if is_given and not overwrites:
                raise ValidationError(f"{name} goes with mode='overwrite' only", field=name.partition("=")[0])
        if self.replace_where is not None and (self.is_dynamic or self.overwrite_schema):
            other = "partition_overwrite='dynamic'" if self.is_dynamic else "overwrite_schema"
            raise ValidationError(f"replace_where and {other} exclude each other", field="replace_where")
        if self.is_dynamic and self.overwrite_schema:
            raise ValidationError(
                "partition_overwrite='dynamic' and overwrite_schema exclude each other", field="overwrite_schema"
            )
        if self.merge_schema and self.overwrite_schema:
            raise ValidationError("merge_schema and overwrite_schema exclude each other", field="merge_schema")
        object.__setattr__(self, "app_version", _checked_application(self.app_id, self.app_version))

    @property
    def overwrites(self) -> bool:
        return self.mode == "overwrite"

    @property
    def is_dynamic(self) -> bool:
        return self.partition_overwrite == "dynamic"


def _check_counts(**counts: int | None) -> None:
    for name, value in counts.items():
        if value is not None and (type(value) is not int or value < 1):
            raise ValidationError(f"{name} must be a whole number of 1 or more, got {brief(value)}", field=name)


def _checked_application(app_id: Any, app_version: Any) -> int | None:
    """Return the application's version as an int."""
    if (app_id is None) != (app_version is None):
        raise ValidationError(
            "app_id and app_version must be given together",
            field="app_id",
            hint="Name the job, and count its runs: app_id='daily', app_version=1.",
        )
    if app_id is not None and not isinstance(app_id, str):
        raise ValidationError(
            f"app_id must be a text, got {brief(app_id)}", field="app_id", hint="Name the job: app_id='daily'."
        )
    if app_version is None:
        return None
    return as_whole(app_version, "app_version", field="app_version", hint="Count up: 1, 2, 3.")


def check_expected_version(version: Any) -> int:
    """Return the version as an int. Raise `ValidationError` if a table cannot have it."""
    try:
        number = NO_VERSION - 1 if isinstance(version, bool) else index(version)
    except TypeError:
        number = NO_VERSION - 1
    if number < NO_VERSION or number.bit_length() > 63:
        raise ValidationError(
            f"expected_version must be −1 or more, and a version, got {brief(version)}",
            field="expected_version",
            hint="Give the version that you read, such as table.version; −1 means that the table must not exist.",
        )
    return number


def _choose(name: str, value: Any, known: Mapping[str, str] | Sequence[str]) -> None:
    if not isinstance(value, str) or value not in known:
        raise ValidationError(f"unknown {name} {brief(value)}", field=name, hint=f"Known values: {', '.join(known)}.")
