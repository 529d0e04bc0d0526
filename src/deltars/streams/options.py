"""Options of `format("deltasql")`, as Spark hands them over: texts, by names without case.

load("deltasql://sqlite/lake.db/features")     a table by its URI
option("catalog", …).load("features")          a table by its name, in this catalog or in the default one
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import Any

from deltars.catalog.catalog import Catalog
from deltars.catalog.connection import shared_catalog
from deltars.catalog.table import Table
from deltars.errors import ValidationError, brief
from deltars.log.moments import parse_moment
from deltars.uri import is_uri, parse_table_uri

_PLACE = ("path", "table", "catalog", "catalogSecret")
_READ = ("versionAsOf", "timestampAsOf", "asOf", "where")
_STREAM = (
    "startingVersion", "startingTimestamp", "schemaVersion", "maxFilesPerTrigger", "maxBytesPerTrigger",
    "skipChangeCommits", "ignoreDeletes", "ignoreChanges", "readChangeFeed",
)  # fmt: skip
_WRITE = (
    "mergeSchema", "overwriteSchema", "replaceWhere", "partitionOverwriteMode", "partitionBy", "txnAppId", "txnVersion",
    "userMetadata", "maxRecordsPerFile", "targetFileSize", "compression",
)  # fmt: skip
_TRANSACTIONS = ("transactions", "tables", "since", "maxTransactionsPerTrigger")
_SPARKS = ("checkpointLocation", "queryName")
"""Options that Spark itself reads, and hands over too."""


@dataclass(frozen=True, slots=True)
class Options:
    """Options of one read or write. A wrong value raises when it is read."""

    given: Mapping[str, str] = field(repr=False)
    """By names in lower case. They are not shown: a URI can hold a password."""

    @classmethod
    def of(cls, given: Mapping[str, str]) -> Options:
        known = {name.lower(): name for name in (*_PLACE, *_READ, *_STREAM, *_WRITE, *_TRANSACTIONS, *_SPARKS)}
        for name in given:
            # Names with a dot are settings of file systems.
            if name.lower() not in known and "." not in name:
                close = get_close_matches(name.lower(), known, n=1)
                raise ValidationError(
                    f'format("deltasql") has no option {name!r}',
                    field=name,
                    hint=f"Did you mean {known[close[0]]}?" if close else "docs/streams.md lists the options.",
                )
        return cls({name.lower(): value for name, value in given.items()})

    def text(self, name: str) -> str | None:
        return self.given.get(name.lower())

    def flag(self, name: str) -> bool:
        value = self.text(name)
        if value is not None and value.lower() not in ("true", "false"):
            raise ValidationError(f"{name} must be true or false, got {brief(value)}", field=name)
        return value is not None and value.lower() == "true"

    def number(self, name: str, least: int = 0) -> int | None:
        value = self.text(name)
        if value is None:
            return None
        if not value.strip().isdecimal() or int(value) < least:
            raise ValidationError(f"{name} must be a whole number of {least} or more, got {brief(value)}", field=name)
        return int(value)

    def size(self, name: str) -> int | None:
        """Return a number of bytes, which may be written as 64m or 1g."""
        value = self.text(name)
        if value is None:
            return None
        number = value.strip().lower().removesuffix("b")
        unit = {"k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}.get(number[-1:], 1)
        digits = number if unit == 1 else number[:-1]
        if not digits.isdecimal() or not int(digits):
            raise ValidationError(f"{name} must be a size such as 64m or 1g, got {brief(value)}", field=name)
        return int(digits) * unit

    def moment(self, name: str) -> str | None:
        """Return a time. Raise if it has no zone: Spark does not hand the session's zone to a Python source."""
        value = self.text(name)
        parsed = None if value is None else parse_moment(value, zone=None)
        if value is not None and (parsed is None or parsed.tzinfo is None):
            raise ValidationError(
                f"{name} must be a time with its zone, got {brief(value)}",
                field=name,
                hint="Write it as 2026-01-31T12:00:00Z.",
            )
        return value

    def catalog(self, *, create: bool = False) -> Catalog:
        """Return the catalog. Processes of Spark's workers are short, so it is opened for each."""
        return shared_catalog(self._table_uri or self.text("catalogSecret") or self.text("catalog"), create=create)

    @property
    def name(self) -> str:
        """Name of the table, without the URI."""
        place, table = self.text("path"), self.text("table")
        if (place is None) == (table is None):
            raise ValidationError(
                "name one table" if place is None else "path and table exclude each other",
                field="path",
                hint='Write .load("deltasql://…/features"), or .option("catalog", uri).option("table", "features").',
            )
        given = place or table or ""
        return parse_table_uri(given)[1] if is_uri(given) else given

    @property
    def _table_uri(self) -> str | None:
        """URI of the catalog, if the table is given by its URI."""
        given = self.text("path") or self.text("table") or ""
        if not is_uri(given):
            return None
        if self.text("catalog") is not None:
            raise ValidationError(
                "the URI of the table names its catalog, so the option catalog is too much", field="catalog"
            )
        return parse_table_uri(given)[0].absolute().with_secrets()

    def table(self) -> Table:
        return self.catalog().table(self.name)

    def write_options(self) -> dict[str, Any]:
        """Return the options of `tx.write`, by their names there."""
        readers: dict[str, tuple[str, Callable[[str], Any]]] = {
            "mergeSchema": ("merge_schema", self.flag),
            "overwriteSchema": ("overwrite_schema", self.flag),
            "replaceWhere": ("replace_where", self.text),
            "partitionOverwriteMode": ("partition_overwrite", lambda name: (self.text(name) or "").lower()),
            "partitionBy": ("partition_by", lambda name: [part.strip() for part in (self.text(name) or "").split(",")]),
            "userMetadata": ("user_metadata", self.text),
            "maxRecordsPerFile": ("max_records_per_file", lambda name: self.number(name, 1)),
            "targetFileSize": ("target_file_size", self.size),
            "compression": ("compression", self.text),
        }
        return {key: read(name) for name, (key, read) in readers.items() if self.text(name) is not None}
