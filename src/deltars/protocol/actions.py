"""The actions of the Delta log, and their JSON: one action a line.

    AddFile(path="a=1/part-0.parquet", …)  <->  {"add":{"path":"a=1/part-0.parquet","partitionValues":{…},…}}

Fields that are `None` are not written; required fields always are, `partitionValues` even when empty. Unknown
fields and unknown actions are ignored on read, as the protocol asks. `commitInfo` is free JSON: what it holds
beyond the fields known here is kept in `extra` and written again.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from typing import Any, TypeAlias, cast

import msgspec

from deltars.errors import ValidationError
from deltars.protocol.schema import StructType


# Of file actions there are millions, and never a cycle among them: `gc=False` spares the collector the walk.
#
# `omit_defaults` omits what equals a plain default, or is empty and has the builtin as its factory. What the
# protocol requires has a factory of its own, and so is always written.
def _false() -> bool:
    return False


def _no_names() -> list[str]:
    return []


def _no_properties() -> dict[str, str]:
    return {}


class DeletionVector(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel", gc=False):
    """Which rows of a data file are deleted: inline, or where in a file of its own."""

    storage_type: str
    path_or_inline_dv: str
    offset: int | None = None
    size_in_bytes: int
    cardinality: int

    @property
    def unique_id(self) -> str:
        at = "" if self.offset is None else f"@{self.offset}"
        return f"{self.storage_type}{self.path_or_inline_dv}{at}"


class AddFile(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel", gc=False):
    """A data file becomes part of the table."""

    path: str
    partition_values: dict[str, str | None]
    size: int
    modification_time: int
    data_change: bool
    stats: str | None = None
    tags: dict[str, str | None] | None = None
    deletion_vector: DeletionVector | None = None
    base_row_id: int | None = None
    default_row_commit_version: int | None = None
    clustering_provider: str | None = None

    @property
    def dv_id(self) -> str:
        return self.deletion_vector.unique_id if self.deletion_vector else ""

    @property
    def key(self) -> tuple[str, str]:
        """What the protocol identifies a file by."""
        return self.path, self.dv_id


class RemoveFile(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel", gc=False):
    """A data file is no longer part of the table."""

    path: str
    deletion_timestamp: int | None = None
    data_change: bool
    extended_file_metadata: bool | None = None
    partition_values: dict[str, str | None] | None = None
    size: int | None = None
    stats: str | None = None
    tags: dict[str, str | None] | None = None
    deletion_vector: DeletionVector | None = None
    base_row_id: int | None = None
    default_row_commit_version: int | None = None

    @property
    def dv_id(self) -> str:
        return self.deletion_vector.unique_id if self.deletion_vector else ""

    @property
    def key(self) -> tuple[str, str]:
        """What the protocol identifies a file by."""
        return self.path, self.dv_id


class CdcFile(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel", gc=False):
    """A file with the rows that a commit changed."""

    path: str
    partition_values: dict[str, str | None]
    size: int
    data_change: bool = msgspec.field(default_factory=_false)
    tags: dict[str, str | None] | None = None


class Format(msgspec.Struct, frozen=True, kw_only=True):
    """How the data files are encoded: Parquet."""

    provider: str = "parquet"
    options: dict[str, str] = {}


class Metadata(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    """The table's schema, partitioning and properties, from this version on."""

    id: str
    name: str | None = None
    description: str | None = None
    format: Format = msgspec.field(default_factory=Format)
    schema_string: str = ""  # required, yet missing from real logs of tables without columns
    partition_columns: list[str] = msgspec.field(default_factory=_no_names)
    configuration: dict[str, str] = msgspec.field(default_factory=_no_properties)
    created_time: int | None = None

    @property
    def schema(self) -> StructType:
        return _schema(self.schema_string)


@lru_cache(maxsize=100)
def _schema(text: str) -> StructType:
    """Parsed once: every question about a table's files begins with its schema."""
    return StructType.from_json(text) if text else StructType()


class Protocol(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    """What a client must support to read the table and to write to it."""

    min_reader_version: int
    min_writer_version: int
    reader_features: list[str] | None = None
    writer_features: list[str] | None = None


class Txn(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    """An application's own progress, committed together with its data."""

    app_id: str
    version: int
    last_updated: int | None = None


class DomainMetadata(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    """A named configuration string of some feature or application."""

    domain: str
    configuration: str
    removed: bool


class CommitInfo(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    """Where a commit comes from. The first line of every commit of ours."""

    in_commit_timestamp: int | None = None
    timestamp: int | None = None
    operation: str | None = None
    operation_parameters: dict[str, Any] | None = None
    read_version: int | None = None
    isolation_level: str | None = None
    is_blind_append: bool | None = None
    data_change: bool | None = None
    operation_metrics: dict[str, Any] | None = None
    user_metadata: str | None = None
    tags: dict[str, Any] | None = None
    engine_info: str | None = None
    txn_id: str | None = None
    extra: dict[str, Any] = {}

    @classmethod
    def from_dict(cls, document: dict[str, Any]) -> CommitInfo:
        """Any object will do: what does not fit a known field is kept as `extra`."""
        known = {k: value for k, value in document.items() if k in _COMMIT_INFO_KEYS and value is not None}
        try:
            info = msgspec.convert(known, cls)
        except msgspec.ValidationError:
            known = {name: value for name, value in known.items() if _fits(cls, name, value)}
            info = msgspec.convert(known, cls)
        extra = {key: value for key, value in document.items() if key not in known}
        return msgspec.structs.replace(info, extra=extra) if extra else info

    def to_dict(self) -> dict[str, Any]:
        """As in the log: the known fields, then `extra`, which cannot replace any of them."""
        known = cast(dict[str, Any], msgspec.to_builtins(self))
        known.pop("extra", None)
        return known | self.extra | known


def _fits(cls: type[CommitInfo], name: str, value: Any) -> bool:
    try:
        msgspec.convert({name: value}, cls)
    except msgspec.ValidationError:
        return False
    return True


_COMMIT_INFO_KEYS = frozenset(CommitInfo.__struct_encode_fields__) - {"extra"}


class CheckpointMetadata(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    """The version a V2 checkpoint describes."""

    version: int
    tags: dict[str, str | None] | None = None


class Sidecar(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    """A file in `_sidecars/` that holds file actions of a V2 checkpoint."""

    path: str
    size_in_bytes: int
    modification_time: int
    tags: dict[str, str | None] | None = None


Action: TypeAlias = AddFile | RemoveFile | CdcFile | Metadata | Protocol | Txn | DomainMetadata | CommitInfo
CheckpointAction: TypeAlias = Action | CheckpointMetadata | Sidecar


def encode_action(action: CheckpointAction) -> bytes:
    """One line of a log file, without its newline."""
    try:
        return _encoder.encode(_line(action))
    except (TypeError, ValueError) as error:
        raise ValidationError(f"{type(action).__name__} cannot be written as JSON: {error}") from error


def encode_commit(actions: Iterable[CheckpointAction]) -> bytes:
    """The content of a log file."""
    lines = [_line(action) for action in actions]
    try:
        return _encoder.encode_lines(lines)
    except (TypeError, ValueError) as error:
        raise ValidationError(f"the actions cannot be written as JSON: {error}") from error


def decode_action(line: bytes | str) -> Action | None:
    """The action of one line; `None` where it is one that is not known here."""
    try:
        return _decode(line).action()
    except ValueError as error:
        raise ValidationError(f"not an action of the Delta log: {error}") from error


def loose_action(document: dict[str, Any]) -> Action | None:
    """The action of a line that was parsed already; a number or a truth value may stand there as text."""
    try:
        return msgspec.convert(document, _Line, strict=False).action()
    except ValueError as error:
        raise ValidationError(f"not an action of the Delta log: {error}") from error


def decode_commit(content: bytes) -> list[Action]:
    """The actions of a log file, in order, without those that are not known here."""
    actions = (line.action() for line in _decode_lines(content))
    return [action for action in actions if action is not None]


def decode_checkpoint(content: bytes) -> list[CheckpointAction]:
    """The actions of a V2 checkpoint in JSON, in order."""
    actions = (line.action() or line.checkpointMetadata or line.sidecar for line in _decode_lines(content))
    return [action for action in actions if action is not None]


def check_action(action: CheckpointAction) -> str | None:
    """Why the action's fields do not have the types the protocol gives them; `None` when they do."""
    try:
        _decode(encode_action(action))
    except (ValidationError, ValueError) as error:
        return str(error)
    return None


class _Line(msgspec.Struct, frozen=True, gc=False):
    """One line as it stands in the log: an object with the action's name as its only key."""

    add: AddFile | None = None
    remove: RemoveFile | None = None
    cdc: CdcFile | None = None
    metaData: Metadata | None = None  # noqa: N815
    protocol: Protocol | None = None
    txn: Txn | None = None
    domainMetadata: DomainMetadata | None = None  # noqa: N815
    commitInfo: dict[str, Any] | None = None  # noqa: N815
    checkpointMetadata: CheckpointMetadata | None = None  # noqa: N815
    sidecar: Sidecar | None = None

    def action(self) -> Action | None:
        found = self.add or self.remove or self.cdc or self.metaData or self.protocol or self.txn or self.domainMetadata
        if found is None and self.commitInfo is not None:
            return CommitInfo.from_dict(self.commitInfo)
        return found


_NAMES: dict[type, str] = {
    AddFile: "add",
    RemoveFile: "remove",
    CdcFile: "cdc",
    Metadata: "metaData",
    Protocol: "protocol",
    Txn: "txn",
    DomainMetadata: "domainMetadata",
    CommitInfo: "commitInfo",
    CheckpointMetadata: "checkpointMetadata",
    Sidecar: "sidecar",
}

_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(_Line)
_decode = _decoder.decode


def _line(action: CheckpointAction) -> dict[str, Any]:
    name = _NAMES.get(type(action))
    if name is None:
        raise ValidationError(f"{type(action).__name__} is not an action")
    return {name: action.to_dict() if isinstance(action, CommitInfo) and action.extra else action}


def _decode_lines(content: bytes) -> list[_Line]:
    try:
        return _decoder.decode_lines(content)
    except ValueError as error:
        raise ValidationError(f"not a file of the Delta log: {error}", action=_bad_line(content)) from error


def _bad_line(content: bytes) -> int | None:
    for number, line in enumerate(content.split(b"\n")):
        try:
            if line.strip():
                _decode(line)
        except ValueError:
            return number
    return None
