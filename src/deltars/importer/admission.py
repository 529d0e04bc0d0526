"""Admission: which tables can be imported, and with which protocol.

protocol of the log ──check_readable──> refuses reader features that deltars does not support, by name
                    ──fenced_protocol──> adds the fence; refuses writer features that deltars does not support
metadata            ──check_schema─────> refuses a schema that cannot be parsed
                    ──check_writable───> refuses whatever would make a later write fail
live files          ──check_partitions─> refuses a partition value that does not have its column's type

All checks run before the fence is written: after it only this catalog can write to the table, so it must be able to.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from deltars.errors import DamagedLog, ImportRefused, UnsupportedFeature, ValidationError
from deltars.log.bounds import Bounds
from deltars.log.validation import check_metadata
from deltars.predicate import check_column_rules, check_expression
from deltars.protocol import (
    FENCE,
    Metadata,
    Protocol,
    check_protocol,
    needed_features,
    parse_partition_value,
    protocol_of,
    supported_features,
)
from deltars.protocol.column_mapping import check_mapping
from deltars.protocol.column_rules import row_rules
from deltars.protocol.features import FEATURES, MAX_READER_VERSION, MAX_WRITER_VERSION

READ_ONLY = "To only read it, import it with read_only=True (deltars import --read-only)."

READABLE = frozenset(
    {
        "columnMapping",
        "deletionVectors",
        "timestampNtz",
        "v2Checkpoint",
        "vacuumProtocolCheck",
        "typeWidening",
        "typeWidening-preview",
        "variantType",
        "variantType-preview",
    }
)


def check_readable(protocol: Protocol) -> None:
    for kind, version, most in (
        ("reader", protocol.min_reader_version, MAX_READER_VERSION),
        ("writer", protocol.min_writer_version, MAX_WRITER_VERSION),
    ):
        if not 1 <= version <= most:
            raise UnsupportedFeature(
                f"the table needs {kind} version {version}; deltars supports versions 1 to {most}", field="protocol"
            )
    unknown = sorted(set(protocol.reader_features or ()) - READABLE)
    if unknown:
        raise UnsupportedFeature(
            f"the table needs reader features that deltars does not support: {', '.join(unknown)}",
            features=tuple(unknown),
            field="protocol",
        )


def check_schema(metadata: Metadata, protocol: Protocol | None, where: str) -> None:
    """Raise if the schema or the partition columns are invalid. `where` says where the metadata is in the log."""
    try:
        Bounds(metadata.schema, metadata.partition_columns, metadata.configuration)
        unknown = [name for name in metadata.partition_columns if name not in metadata.schema]
        if unknown:
            raise ValidationError(f"the partition column {unknown[0]} is not in the schema", field="partitionColumns")
    except (ValidationError, RecursionError) as error:
        reason = error.message if isinstance(error, ValidationError) else "nested too deeply"
        features = sorted(name for name in supported_features(protocol) if not _is_known(name)) if protocol else []
        if features:
            # The schema may be valid for a reader that supports these features.
            raise UnsupportedFeature(
                f"{where}: {reason}; the table has features that deltars does not support: {', '.join(features)}",
                features=tuple(features),
                field="protocol",
            ) from error
        raise DamagedLog(f"{where}: {reason}", field="schemaString") from error
    if metadata.format.provider.lower() != "parquet":
        raise UnsupportedFeature(
            f"{where}: the format of the data files is {metadata.format.provider!r}; deltars supports only Parquet",
            field="format",
        )


def check_writable(metadata: Metadata, protocol: Protocol) -> None:
    """Raise ImportRefused if deltars could not write to the table."""
    try:
        fenced_protocol(protocol, metadata)
        problem = check_metadata(metadata) if metadata.schema_string else None
        reason = problem[1] if problem else check_mapping(metadata)
        if reason is not None:
            raise ValidationError(reason, field=problem[0] if problem else "schema_string")
        check_column_rules(metadata.schema)
        for name, sql in row_rules(metadata):
            try:
                check_expression(sql, metadata.schema, is_steady=False)
            except ValidationError as error:
                raise ValidationError(f"{name}: {error.message}", field=error.field) from error
    except ImportRefused:
        raise
    except ValidationError as error:
        raise ImportRefused(
            f"deltars could not write to the table: {error.message}", field=error.field, hint=READ_ONLY
        ) from error


def check_partitions(metadata: Metadata, values: Iterable[Mapping[str, str | None]]) -> None:
    """Raise if a live file lacks a partition value, or has one that does not fit its column's type."""
    fields = [metadata.schema[name] for name in metadata.partition_columns]
    for found in values:
        for field in fields:
            if field.physical_name not in found:
                raise DamagedLog(
                    f"a data file has no value for the partition column {field.name}", field="partitionValues"
                )
            try:
                parse_partition_value(found[field.physical_name], field.type)
            except ValidationError as error:
                raise ImportRefused(
                    f"the partition column {field.name}: {error.message}", field="partitionValues"
                ) from error


def fenced_protocol(protocol: Protocol, metadata: Metadata) -> Protocol:
    """Return the protocol with the fence. Raise UnsupportedFeature if deltars cannot write a feature of it."""
    used = needed_features(metadata.schema, metadata.configuration)
    listed = supported_features(protocol)
    if protocol.writer_features is None:
        # An old protocol version implies features that the table may not use. An unsupported one is left out only if
        # the table does not use it, which its metadata proves.
        listed = frozenset(name for name in listed if name in used or FEATURES[name].can_write)
    fenced = protocol_of(listed | used | {"inCommitTimestamp", FENCE})
    unsupported = sorted(name for name in supported_features(fenced) if not _can_write(name))
    if unsupported:
        raise UnsupportedFeature(
            f"the table needs writer features that deltars does not support: {', '.join(unsupported)}",
            features=tuple(unsupported),
            field="protocol",
            hint=READ_ONLY,
        )
    problem = check_protocol(fenced)
    if problem is not None:
        raise UnsupportedFeature(f"the table cannot be imported: {problem}", field="protocol")
    return fenced


def released_protocol(protocol: Protocol) -> Protocol:
    """Return the protocol without the fence and in-commit timestamps, which deltalake cannot write."""
    left = [name for name in protocol.writer_features or () if name not in (FENCE, "inCommitTimestamp")]
    return Protocol(
        min_reader_version=protocol.min_reader_version,
        min_writer_version=protocol.min_writer_version,
        reader_features=protocol.reader_features,
        writer_features=left,
    )


def is_fenced(protocol: Protocol) -> bool:
    return FENCE in (protocol.writer_features or ())


def _is_known(name: str) -> bool:
    return name in READABLE or (name in FEATURES and not FEATURES[name].is_reader)


def _can_write(name: str) -> bool:
    return name in FEATURES and FEATURES[name].can_write
