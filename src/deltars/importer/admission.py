"""Which tables are taken in: what must be known to read them, and what must be honoured to write them.

protocol of the log ──check_readable──> a feature that readers must know and this one does not: refused by name
                    ──fenced_protocol──> the protocol with the fence, or which feature writers here cannot honour
metadata            ──check_schema─────> a schema that is not understood, or features that it may be of
                    ──check_writable───> whatever a later write would stumble over
live files          ──check_partitions─> a partition value that is not of its column's type

All of it is judged before the fence: after it nobody else can write to the table, so this catalog must be able to.
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

READ_ONLY = "Import it read-only (read_only=True) to read it from here."

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
                f"the table's {kind} version is {version}, and the highest known is {most}", field="protocol"
            )
    unknown = sorted(set(protocol.reader_features or ()) - READABLE)
    if unknown:
        raise UnsupportedFeature(
            f"the table needs readers to know {', '.join(unknown)}, which is not supported here",
            features=tuple(unknown),
            field="protocol",
        )


def check_schema(metadata: Metadata, protocol: Protocol | None, where: str) -> None:
    """Refuse metadata that is not understood. `where` is the place of it in the log."""
    try:
        Bounds(metadata.schema, metadata.partition_columns, metadata.configuration)
        unknown = [name for name in metadata.partition_columns if name not in metadata.schema]
        if unknown:
            raise ValidationError(f"the partition column {unknown[0]} is not in the schema", field="partitionColumns")
    except (ValidationError, RecursionError) as error:
        reason = error.message if isinstance(error, ValidationError) else "nested too deeply"
        features = sorted(name for name in supported_features(protocol) if not _is_known(name)) if protocol else []
        if features:
            # The schema is damaged only in the eyes of a reader that does not know what it may hold.
            raise UnsupportedFeature(
                f"{where}: {reason}; the table has {', '.join(features)}, which is not supported here",
                features=tuple(features),
                field="protocol",
            ) from error
        raise DamagedLog(f"{where}: {reason}", field="schemaString") from error
    if metadata.format.provider.lower() != "parquet":
        raise UnsupportedFeature(
            f"{where}: the data files are of the format {metadata.format.provider!r}, not Parquet", field="format"
        )


def check_writable(metadata: Metadata, protocol: Protocol) -> None:
    """Refuse a table that no row could be written to from here."""
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
            f"nothing could be written to the table from here: {error.message}", field=error.field, hint=READ_ONLY
        ) from error


def check_partitions(metadata: Metadata, values: Iterable[Mapping[str, str | None]]) -> None:
    """Refuse a table with a live file whose place among the partitions cannot be told."""
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
    """The protocol after the table was taken over; UnsupportedFeature where writers here could not honour it."""
    used = needed_features(metadata.schema, metadata.configuration)
    listed = supported_features(protocol)
    if protocol.writer_features is None:
        # An old version stands for features that the table need not use. One that cannot be honoured here may only be
        # left out where the table provably does not use it: then nothing of it is in the metadata.
        listed = frozenset(name for name in listed if name in used or FEATURES[name].can_write)
    fenced = protocol_of(listed | used | {"inCommitTimestamp", FENCE})
    unsupported = sorted(name for name in supported_features(fenced) if not _can_write(name))
    if unsupported:
        raise UnsupportedFeature(
            f"writers here cannot honour the table's {', '.join(unsupported)}",
            features=tuple(unsupported),
            field="protocol",
            hint=READ_ONLY,
        )
    problem = check_protocol(fenced)
    if problem is not None:
        raise UnsupportedFeature(f"the table cannot be taken over: {problem}", field="protocol")
    return fenced


def released_protocol(protocol: Protocol) -> Protocol:
    """The same protocol without the fence, and without in-commit timestamps: deltalake cannot write those."""
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
