"""Which tables are taken in: what must be known to read them, and what must be honoured to write them.

protocol of the log ──check_readable──> a feature that readers must know and this one does not: refused by name
                    ──fenced_protocol──> the protocol with the fence, or which feature writers here cannot honour
"""

from __future__ import annotations

from deltars.errors import UnsupportedFeature
from deltars.protocol import FENCE, Metadata, Protocol, check_protocol, needed_features, protocol_of, supported_features
from deltars.protocol.features import FEATURES, MAX_READER_VERSION, MAX_WRITER_VERSION

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
            hint="Import it read-only (read_only=True) to read it from here.",
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


def _can_write(name: str) -> bool:
    return name in FEATURES and FEATURES[name].can_write
