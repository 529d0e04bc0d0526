"""Table properties: the known names and the values that each accepts.

    check_property("delta.appendonly", "TRUE") ──▶ ("delta.appendOnly", "TRUE")
                  ("delta.appendOnly", "yes")  ──▶ ValidationError: is true or false, not 'yes'
                  ("delta.apendOnly", "true")  ──▶ ValidationError: did you mean delta.appendOnly?

Properties are checked when users set them. Imported tables keep theirs; `boolean_property` raises an error when a value
that is neither true nor false would matter. Names outside `delta.` and `deltars.` are free for users.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from difflib import get_close_matches
from typing import Any

from deltars.errors import ValidationError, brief
from deltars.protocol.features import FEATURE_PROPERTY, FEATURES

CONSTRAINT = "delta.constraints."
"""Prefix of the properties that hold CHECK constraints; the constraint's name follows."""

ENABLEMENT_VERSION = "delta.inCommitTimestampEnablementVersion"
ENABLEMENT_TIMESTAMP = "delta.inCommitTimestampEnablementTimestamp"

UNIFORM = "delta.universalFormat.config."
DELETED_FILE_RETENTION = "delta.deletedFileRetentionDuration"
LOG_RETENTION = "delta.logRetentionDuration"
LARGEST_SIZE = 2**63 - 1
"""Most bytes that a size can be."""
_SHOWN = 100
"""Most characters of a value that an error quotes."""
_OURS = ("delta.", "deltars.")
_INTEGER = re.compile(r"-?[0-9]{1,18}")
_SIZE = re.compile(r"([0-9]{1,18})\s*(?:b|([kmgt])b?)?", re.IGNORECASE)
_UNITS_MS = {
    "week": 604_800_000,
    "day": 86_400_000,
    "hour": 3_600_000,
    "minute": 60_000,
    "second": 1_000,
    "millisecond": 1,
}
_LONGEST_MS = 3_652_500 * _UNITS_MS["day"]
"""Longest span, ten thousand years: times that are computed with it fit the databases' integers."""
_PART = re.compile(rf"(\d{{1,18}})\s+({'|'.join(_UNITS_MS)})s?", re.IGNORECASE)
_SPAN = re.compile(rf"\s*(?:interval\s+)?((?:{_PART.pattern}\s*)+)", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class TableProperty:
    name: str
    value: str
    """The accepted values in words, for errors: "true or false", "a column with statistics", …"""
    choices: tuple[str, ...] = ()
    at_least: int | None = None
    refused: str | None = None
    """Why users cannot set it."""
    has_effect: bool = False
    """Whether deltars acts on it. Other properties are kept for engines that do."""

    def problem(self, value: str) -> str | None:
        """Return why the property cannot have this value, or None if it can."""
        if self.at_least is not None:
            is_valid = _INTEGER.fullmatch(value) is not None and int(value) >= self.at_least
        elif self.choices:
            is_valid = value.lower() in (choice.lower() for choice in self.choices)
        elif self.value == _INTERVAL:
            is_valid = parse_interval_ms(value) is not None
        elif self.value == _FORMATS:
            is_valid = {part.strip() for part in value.split(",")} <= {"", "iceberg", "hudi"}
        elif self.value == _BYTES:
            is_valid = 0 < (parse_size_bytes(value) or 0) <= LARGEST_SIZE
        else:
            is_valid = bool(value.strip())
        shown = value if len(value) <= _SHOWN else value[:_SHOWN] + "…"
        return None if is_valid else f"{self.name} is {self.value}, not {brief(shown)}"


_BOOLEAN = ("true", "false")
_INTERVAL = "a span such as 'interval 7 days', without months and years"
_FORMATS = "a list of iceberg and hudi"
_BYTES = "a size such as 134217728 or 128mb"
_BY_FEATURES = "the protocol follows from the features that the table uses"
_BY_US = "deltars sets it itself"


def _boolean(name: str, *, has_effect: bool = False) -> TableProperty:
    return TableProperty(name, "true or false", _BOOLEAN, has_effect=has_effect)


def _choice(name: str, *choices: str, has_effect: bool = False) -> TableProperty:
    words = " or ".join(filter(None, [", ".join(choices[:-1]), choices[-1]]))
    return TableProperty(name, words, choices, has_effect=has_effect)


def _number(name: str, at_least: int, *, has_effect: bool = False) -> TableProperty:
    return TableProperty(name, f"a whole number from {at_least} on", at_least=at_least, has_effect=has_effect)


def _interval(name: str, *, has_effect: bool = False) -> TableProperty:
    return TableProperty(name, _INTERVAL, has_effect=has_effect)


PROPERTIES: tuple[TableProperty, ...] = (
    _choice("deltars.mirror", "inline", "async", "off", has_effect=True),
    TableProperty("deltars.rangeColumn", "a column with statistics", has_effect=True),
    _number("deltars.autoCompact.minNumFiles", 2, has_effect=True),
    _boolean("deltars.hashChain", has_effect=True),
    TableProperty("deltars.demo", "true", ("true",)),
    _boolean("delta.appendOnly", has_effect=True),
    _boolean("delta.autoOptimize"),
    _choice("delta.autoOptimize.autoCompact", "true", "false", "auto", "legacy", has_effect=True),
    _boolean("delta.autoOptimize.optimizeWrite"),
    _boolean("delta.castIcebergTimeType"),
    _number("delta.checkpointInterval", 1, has_effect=True),
    _choice("delta.checkpointPolicy", "classic", "v2", has_effect=True),
    _interval("delta.checkpointRetentionDuration"),
    _boolean("delta.checkpoint.writeStatsAsJson", has_effect=True),
    _boolean("delta.checkpoint.writeStatsAsStruct", has_effect=True),
    TableProperty("delta.columnMapping.maxColumnId", "a number", refused=_BY_US),
    _choice("delta.columnMapping.mode", "none", "name", "id", has_effect=True),
    _boolean("delta.compatibility.symlinkFormatManifest.enabled"),
    _number("delta.dataSkippingNumIndexedCols", -1, has_effect=True),
    TableProperty("delta.dataSkippingStatsColumns", "a list of columns, with commas between them", has_effect=True),
    _number("delta.dataSkippingStringPrefixLength", 1, has_effect=True),
    _interval(DELETED_FILE_RETENTION, has_effect=True),
    _interval("delta.dropFeatureTruncateHistory.retentionDuration", has_effect=True),
    TableProperty("delta.enableChangeDataCapture", "true or false", refused="it is now delta.enableChangeDataFeed"),
    _boolean("delta.enableChangeDataFeed", has_effect=True),
    _boolean("delta.enableDeletionVectors", has_effect=True),
    _boolean("delta.enableExpiredLogCleanup", has_effect=True),
    _boolean("delta.enableFullRetentionRollback"),
    _boolean("delta.enableIcebergCompatV1", has_effect=True),
    _boolean("delta.enableIcebergCompatV2", has_effect=True),
    _boolean("delta.enableIcebergCompatV3", has_effect=True),
    _boolean("delta.enableInCommitTimestamps", has_effect=True),
    _boolean("delta.enableRowTracking", has_effect=True),
    _boolean("delta.enableTypeWidening", has_effect=True),
    _boolean("delta.enableVariantShredding", has_effect=True),
    _boolean("delta.ignoreProtocolDefaults"),
    TableProperty("delta.inCommitTimestampEnablementTimestamp", "a number", refused=_BY_US),
    TableProperty("delta.inCommitTimestampEnablementVersion", "a number", refused=_BY_US),
    _choice("delta.isolationLevel", "Serializable"),
    _interval(LOG_RETENTION, has_effect=True),
    TableProperty("delta.minReaderVersion", "a number", refused=_BY_FEATURES),
    TableProperty("delta.minWriterVersion", "a number", refused=_BY_FEATURES),
    TableProperty("delta.parquet.compression.codec", "the name of a codec"),
    _number("delta.randomPrefixLength", 1),
    _boolean("delta.randomizeFilePrefixes"),
    _number("delta.requireCheckpointProtectionBeforeVersion", 0),
    TableProperty("delta.rowTracking.materializedRowCommitVersionColumnName", "a name", refused=_BY_US),
    TableProperty("delta.rowTracking.materializedRowIdColumnName", "a name", refused=_BY_US),
    _boolean("delta.rowTrackingSuspended"),
    _interval("delta.sampleRetentionDuration"),
    _interval("delta.setTransactionRetentionDuration"),
    TableProperty("delta.targetFileSize", _BYTES, has_effect=True),
    _boolean("delta.tuneFileSizesForRewrites"),
    TableProperty("delta.universalFormat.enabledFormats", _FORMATS),
)
"""All properties that are known by their full name."""

_BY_NAME = {known.name.lower(): known for known in PROPERTIES}
_FEATURES = {name.lower(): name for name in FEATURES}


def check_property(name: str, value: str) -> tuple[str, str]:
    """Return the property, its name in Delta's spelling. Raise `ValidationError` if it cannot be set to this value."""
    lower = name.lower()
    if lower.startswith(FEATURE_PROPERTY):
        return _feature(name, value), value
    if not lower.startswith(_OURS) or lower.startswith(UNIFORM.lower()):
        return name, value
    if lower.startswith(CONSTRAINT):
        return CONSTRAINT + lower.removeprefix(CONSTRAINT), value
    check_known(name)
    known = _BY_NAME[lower]
    if known.refused is not None:
        hint = (
            f"Enable the feature you need: {FEATURE_PROPERTY}<name>='supported'."
            if known.refused == _BY_FEATURES
            else None
        )
        raise ValidationError(f"{known.name} cannot be set: {known.refused}", field=name, hint=hint)
    problem = known.problem(value)
    if problem is not None:
        raise ValidationError(f"the property {problem}", field=known.name)
    return known.name, value


def check_known(name: str) -> None:
    """Raise `ValidationError` if a name of Delta's or ours is none that exists."""
    lower = name.lower()
    is_prefixed = lower.startswith((FEATURE_PROPERTY, CONSTRAINT, UNIFORM.lower()))
    if lower.startswith(_OURS) and not is_prefixed and lower not in _BY_NAME:
        raise ValidationError(f"there is no table property {name}", field=name, hint=_near(name))


def property_name(name: str) -> str:
    """Return the name in Delta's spelling. Known names are matched without case; others are returned unchanged."""
    known = _BY_NAME.get(name.lower())
    return name if known is None else known.name


def is_kept_by_log(name: str) -> bool:
    """Whether the log itself keeps the property: users can neither set it nor take it away."""
    known = _BY_NAME.get(name.lower())
    return known is not None and known.refused == _BY_US


def boolean_property(properties: Mapping[str, str], name: str) -> bool:
    """Return a boolean property, false by default. Raise `ValidationError` if an imported table has another value."""
    value = properties.get(name, "false").strip().lower()
    if value not in _BOOLEAN:
        raise ValidationError(
            f"the table's property {name} is {properties[name]!r}, which is neither true nor false",
            field=name,
            hint=f"Set it: catalog.set_properties(table, {{{name!r}: 'true'}}).",
        )
    return value == "true"


def number_property(properties: Mapping[str, str], name: str, default: int) -> int:
    """Return a numeric property, or the default. Raise `ValidationError` if an imported table has an invalid value."""
    value = properties.get(name)
    problem = None if value is None else _BY_NAME[name.lower()].problem(value)
    if problem is not None:
        raise ValidationError(
            f"the table's property {problem}",
            field=name,
            hint="Set it to a number, or unset it: catalog.set_properties.",
        )
    return default if value is None else int(value)


def _feature(name: str, value: str) -> str:
    feature_name = name[len(FEATURE_PROPERTY) :]
    feature = _FEATURES.get(feature_name.lower())
    if feature is None:
        near = get_close_matches(feature_name.lower(), _FEATURES, n=1)
        hint = (
            f"Did you mean {FEATURE_PROPERTY}{_FEATURES[near[0]]}?"
            if near
            else f"Known features: {', '.join(FEATURES)}."
        )
        raise ValidationError(f"there is no table feature {feature_name!r}", field=name, hint=hint)
    if value not in ("supported", "enabled"):
        raise ValidationError(f"the property {name} can only be 'supported', not {brief(value)}", field=name)
    return FEATURE_PROPERTY + feature


def _near(name: str) -> str:
    # Compared without delta. and deltars., which make all names similar.
    known = {full.partition(".")[2]: full for full in _BY_NAME}
    near = get_close_matches(name.lower().partition(".")[2], known, n=1)
    if near:
        return f"Did you mean {_BY_NAME[known[near[0]]].name}?"
    return "docs/configuration.md lists the known ones. Your own names must not begin with delta. or deltars."


def parse_interval_ms(text: str) -> int | None:
    """Return the milliseconds of `interval 1 week`, `7 days` or `interval 1 day 12 hours`; None for any other text.

    Months and years vary in length, so they are no intervals. Spans of more than ten thousand years count as that long.
    """
    span = _SPAN.fullmatch(text)
    if span is None:
        return None
    return min(_LONGEST_MS, sum(int(count) * _UNITS_MS[unit.lower()] for count, unit in _PART.findall(span[1])))


def span_text(span: timedelta) -> str:
    """Return a span as people write it: "7 days", "1 day, 12:00:00", "0 seconds"."""
    return str(span).removesuffix(", 0:00:00") if span else "0 seconds"


def parse_span(span: Any) -> timedelta | None:
    """Return the span of a timedelta, or of a text such as "7 days"; None for anything else."""
    if isinstance(span, str):
        span_ms = parse_interval_ms(span)
        return None if span_ms is None else timedelta(milliseconds=span_ms)
    return span if isinstance(span, timedelta) else None


def deleted_file_retention_ms(properties: Mapping[str, str]) -> int:
    """Return how long readers may need removed files, by default 7 days. Ignore a value that is not an interval."""
    return _interval_of(properties, DELETED_FILE_RETENTION, 7 * _UNITS_MS["day"])


def log_retention_ms(properties: Mapping[str, str]) -> int:
    """Return how long history is kept, by default 30 days. Ignore a value that is not an interval."""
    return _interval_of(properties, LOG_RETENTION, 30 * _UNITS_MS["day"])


def _interval_of(properties: Mapping[str, str], name: str, default_ms: int) -> int:
    span = parse_interval_ms(properties.get(name, ""))
    return default_ms if span is None else span


def parse_size_bytes(text: str) -> int | None:
    """Return the bytes of `134217728` or `128mb`; None for any other text. A kilobyte has 1,024 bytes."""
    size = _SIZE.fullmatch(text.strip())
    if size is None:
        return None
    return int(size[1]) << (10 * (" kmgt".index(size[2].lower()) if size[2] else 0))
