"""The actions of the Delta log and their JSON, one action per line.

    AddFile(path="a=1/part-0.parquet", …)  <->  {"add":{"path":"a=1/part-0.parquet","partitionValues":{…},…}}

Fields that are `None` are not written. Required fields are always written, `partitionValues` even when empty. Unknown
fields and unknown actions are ignored on read, as the protocol requires. `commitInfo` is free-form JSON: its other
fields are kept in `extra` and written back.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from typing import Any, TypeAlias, cast

import msgspec

from deltars.errors import ValidationError, brief
from deltars.protocol.schema import StructType


# A log has millions of file actions and no reference cycles among them, so `gc=False` exempts them from collection.
#
# `omit_defaults` omits a field that equals its plain default, or is empty with a builtin type as its factory. Required
# fields therefore have one of these functions as their factory, and are always written.
def _false() -> bool:
    return False


def _no_names() -> list[str]:
    return []


def _no_properties() -> dict[str, str]:
    return {}


class DeletionVector(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel", gc=False):
    """The deleted rows of a data file: inline, or a position in a separate file."""

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
        """Return the path and deletion vector id, which identify a file in the Delta protocol."""
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
        """Return the path and deletion vector id, which identify a file in the Delta protocol."""
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
    """Return the parsed schema. It is cached, because nearly every operation on a table needs it."""
    return StructType.from_json(text) if text else StructType()


class Protocol(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    """The features that a client must support to read the table or to write to it."""

    min_reader_version: int
    min_writer_version: int
    reader_features: list[str] | None = None
    writer_features: list[str] | None = None


class Txn(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    """The progress of an application, committed together with its data."""

    app_id: str
    version: int
    last_updated: int | None = None


class DomainMetadata(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    """A named configuration string of some feature or application."""

    domain: str
    configuration: str
    removed: bool


class CommitInfo(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    """Provenance of a commit. It is the first line of every commit that deltars writes."""

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
        """Return the commit info of any object. Values that do not fit a known field are kept in `extra`."""
        if not isinstance(document, dict):
            raise ValidationError(f"commit info is an object, got {brief(document)}", field="commitInfo")
        known = {k: value for k, value in document.items() if k in _COMMIT_INFO_KEYS and value is not None}
        try:
            info = msgspec.convert(known, cls)
        except msgspec.ValidationError:
            known = {name: value for name, value in known.items() if _fits(cls, name, value)}
            info = msgspec.convert(known, cls)
        extra = {key: value for key, value in document.items() if key not in known}
        return msgspec.structs.replace(info, extra=extra) if extra else info

    def to_dict(self) -> dict[str, Any]:
        """Return the fields as in the log: the known ones, then `extra`, which never overrides a known one."""
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
    """The version that a V2 checkpoint describes."""

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
    """Return one line of a log file, without the newline."""
    try:
        return _encoder.encode(_line(action))
    except (TypeError, ValueError) as error:
        raise ValidationError(f"{type(action).__name__} cannot be written as JSON: {error}") from error


def encode_commit(actions: Iterable[CheckpointAction]) -> bytes:
    """Return the content of a log file. Keys of maps are sorted, so that the same actions make the same bytes."""
    lines = [_line(action) for action in actions]
    try:
        return _ordered.encode_lines(lines)
    except (TypeError, ValueError) as error:
        raise ValidationError(f"the actions cannot be written as JSON: {error}") from error


def decode_action(line: bytes | str) -> Action | None:
    """Return the action of one line, or None if its kind is unknown."""
    try:
        return _decode(line).action()
    except ValueError as error:
        raise ValidationError(f"not an action of the Delta log: {error}") from error


def loose_action(document: dict[str, Any]) -> Action | None:
    """Return the action of a parsed line. Numbers and booleans may also be strings."""
    try:
        return msgspec.convert(document, _Line, strict=False).action()
    except ValueError as error:
        raise ValidationError(f"not an action of the Delta log: {error}") from error


def decode_commit(content: bytes) -> list[Action]:
    """Return the actions of a log file, in order, without those of an unknown kind."""
    actions = (line.action() for line in _decode_lines(content))
    return [action for action in actions if action is not None]


def decode_checkpoint(content: bytes) -> list[CheckpointAction]:
    """Return the actions of a V2 checkpoint in JSON, in order."""
    actions = (line.action() or line.checkpointMetadata or line.sidecar for line in _decode_lines(content))
    return [action for action in actions if action is not None]


def check_action(action: CheckpointAction) -> str | None:
    """Return why a field does not have the type that the protocol requires, or None if all do."""
    try:
        _decode(encode_action(action))
    except (ValidationError, ValueError) as error:
        return str(error)
    return None


class _Line(msgspec.Struct, frozen=True, gc=False):
    """One line of the log: an object with the action's name as its only key."""

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
_ordered = msgspec.json.Encoder(order="deterministic")
_decoder = msgspec.json.Decoder(_Line)
_decode = _decoder.decode

decode_partition_values = msgspec.json.Decoder(dict[str, str | None]).decode
decode_deletion_vector = msgspec.json.Decoder(DeletionVector).decode


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
