"""A change feed as data: which columns of its events are keys, values, and history; all checks that need no rows.

id  name  city  op  ts        keys="id", sequence_by="ts", except_column_list=["op", "ts"]
└key └────┴values   └sequence
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from deltars.arguments import check_flags
from deltars.data.row_change import Expression, KeyValues
from deltars.data.scan import Scan
from deltars.errors import ValidationError, brief
from deltars.protocol import StructType, as_names

SEQUENCE = "__SEQUENCE"
"""Column with the sequence of the last event: in an SCD 1 target that keeps no such column, and in companions."""
START_AT = "__START_AT"
END_AT = "__END_AT"
DELETED = "__DELETED"
"""Column of the companion of an SCD 2 target: whether an event deletes."""


@dataclass(frozen=True, slots=True)
class ChangeFeed:
    """How the events of a frame change a table, as the caller gave it."""

    keys: tuple[str, ...]
    sequence_by: Expression
    apply_as_deletes: Expression | None
    column_list: tuple[str, ...] | None
    except_column_list: tuple[str, ...] | None
    has_history: bool
    """Whether the table is an SCD 2: it keeps every state of a key."""
    ignore_null_updates: bool
    track_history_column_list: tuple[str, ...] | None
    track_history_except_column_list: tuple[str, ...] | None

    @classmethod
    def given(
        cls,
        *,
        keys: str | Sequence[str],
        sequence_by: Any,
        apply_as_deletes: Expression | None,
        column_list: str | Sequence[str] | None,
        except_column_list: str | Sequence[str] | None,
        stored_as_scd_type: Any,
        ignore_null_updates: Any,
        track_history_column_list: str | Sequence[str] | None,
        track_history_except_column_list: str | Sequence[str] | None,
    ) -> ChangeFeed:
        """Return the feed. Raise ValidationError for arguments that no frame and no table can fit."""
        if isinstance(stored_as_scd_type, bool) or stored_as_scd_type not in (1, 2, "1", "2"):
            raise ValidationError(
                f"stored_as_scd_type must be 1 or 2, got {brief(stored_as_scd_type)}", field="stored_as_scd_type"
            )
        check_flags(ignore_null_updates=ignore_null_updates)
        has_history = str(stored_as_scd_type) == "2"
        feed = cls(
            as_names(keys),
            sequence_by,
            apply_as_deletes,
            _names(column_list),
            _names(except_column_list),
            has_history,
            ignore_null_updates,
            _names(track_history_column_list),
            _names(track_history_except_column_list),
        )
        if not isinstance(sequence_by, str) and not type(sequence_by).__module__.startswith("pyspark."):
            raise ValidationError(
                f"sequence_by must be a column's name or a Spark Column, got {brief(sequence_by)}",
                field="sequence_by",
                hint='Write sequence_by="changed_at".',
            )
        if not feed.keys:
            raise ValidationError("keys must name at least one column", field="keys", hint='Write keys=["id"].')
        _refuse_both("column_list", feed.column_list, feed.except_column_list)
        _refuse_both("track_history_column_list", feed.track_history_column_list, feed.track_history_except_column_list)
        tracks = (feed.track_history_column_list, feed.track_history_except_column_list)
        if not has_history and tracks != (None, None):
            raise ValidationError(
                "only an SCD 2 table has a history to track",
                field="track_history_column_list",
                hint="Pass stored_as_scd_type=2, or leave the list out.",
            )
        return feed

    def columns(self, source: Sequence[str]) -> FeedColumns:
        """Return the parts of the columns of the source. Raise ValidationError for a name that it does not have."""
        keys = _found(self.keys, source, "keys")
        if self.column_list is not None:
            kept = _found(self.column_list, source, "column_list")
        else:
            left_out = _found(self.except_column_list or (), source, "except_column_list")
            kept = tuple(name for name in source if name not in left_out)
        for key in keys:
            if key not in kept:
                field = "except_column_list" if self.column_list is None else "column_list"
                raise ValidationError(
                    f"the key {key} must be a column of the table",
                    field=field,
                    hint=f"Keep {key} in {field}." if self.column_list is not None else f"Take {key} out of {field}.",
                )
        named = _found([self.sequence_by], source, "sequence_by")[0] if isinstance(self.sequence_by, str) else None
        values = tuple(name for name in kept if name not in keys)
        self._refuse_reserved(keys, values, is_kept=named in kept)
        return FeedColumns(keys, values, self._tracked(values, kept), named if named in kept else None)

    def _tracked(self, values: Sequence[str], kept: Sequence[str]) -> tuple[str, ...]:
        if self.track_history_column_list is not None:
            listed = _found(self.track_history_column_list, kept, "track_history_column_list")
            return tuple(name for name in values if name in listed)
        left_out = _found(self.track_history_except_column_list or (), kept, "track_history_except_column_list")
        return tuple(name for name in values if name not in left_out)

    def _refuse_reserved(self, keys: Sequence[str], values: Sequence[str], *, is_kept: bool) -> None:
        reserved = {START_AT, END_AT, SEQUENCE, DELETED} if self.has_history else set() if is_kept else {SEQUENCE}
        for name in (*keys, *values):
            if name.upper() in reserved or (name in keys and name.upper() == SEQUENCE):
                raise ValidationError(
                    f"the name {name} is reserved for the sequence of events",
                    field=name,
                    hint="Rename the column, or leave it out with except_column_list.",
                )


@dataclass(frozen=True, slots=True)
class FeedColumns:
    """Columns of the events by what they are for."""

    keys: tuple[str, ...]
    values: tuple[str, ...]
    """Columns that the table keeps, without the keys."""
    tracked: tuple[str, ...]
    """Values whose change begins a new row of the history."""
    sequence: str | None
    """The column that is the sequence, if the table keeps it."""

    @property
    def kept(self) -> tuple[str, ...]:
        return (*self.keys, *self.values)

    def spelt_as(self, table: StructType) -> FeedColumns:
        """Return the columns as a table spells them. Raise ValidationError for one that it does not have."""
        spelt = {name.lower(): name for name in table.names}
        for name in self.kept:
            if name.lower() not in spelt:
                raise ValidationError(
                    f"the table has no column {name!r}; its columns are {', '.join(table.names)}",
                    field=name,
                    hint="Add it with table.alter.add_columns, or leave it out with except_column_list.",
                )

        def each(names: Iterable[str]) -> tuple[str, ...]:
            return tuple(spelt[name.lower()] for name in names)

        sequence = None if self.sequence is None else spelt[self.sequence.lower()]
        return FeedColumns(each(self.keys), each(self.values), each(self.tracked), sequence)


class Events(Protocol):
    """Events, one for each key and sequence, of which every use gives the same rows."""

    @property
    def columns(self) -> FeedColumns: ...
    @property
    def sequence(self) -> str:
        """Column of the sequence."""

    @property
    def deleted(self) -> str:
        """Column that says whether the event deletes. Then its values are null."""

    @property
    def sequence_type(self) -> Any: ...
    @property
    def found_keys(self) -> Sequence[KeyValues] | None:
        """Values of the keys that are in the events; None if there are no events."""

    def schema_with(self, more: Mapping[str, Any], *, only_keys: bool = False) -> StructType:
        """Return the schema of a table with the kept columns, or only the keys, and more columns."""


class FeedPlane(Protocol):
    """What finds out how a table changes: Spark, or this process. Frames are of the plane's own kind."""

    def opened(self, source: Any) -> tuple[Any, Sequence[str]]:
        """Return the source as a frame, and the names of its columns."""

    def events(self, source: Any, feed: ChangeFeed, given: FeedColumns, table: StructType | None) -> Any:
        """Return the events of a frame. `table` is the schema of the target, if it exists."""

    def rows(self, events: Any, scan: Scan, columns: Sequence[str] | None) -> Any:
        """Return the rows of a scan that have a key of the events."""

    def last(self, events: Any, known: Sequence[Any], *, ignore_nulls: bool) -> tuple[Any, str]:
        """Return the last event of each key, and the name of a column that says whether a delete came before it.

        `known` have the keys and a sequence: events up to it change nothing. With `ignore_nulls`, a null takes the
        value of the event before it, up to a delete.
        """

    def history(self, events: Any, rows: Any, hidden: Any, *, ignore_nulls: bool) -> tuple[Any, Any, str]:
        """Return what changes in the history and in the hidden events, and the column of the action.

        `rows` and `hidden` are those of the events' keys; None if there is no table.
        """


def null_in_events(key: str | None, count: int) -> ValidationError:
    """Return the error for events without a key, or without a sequence (None)."""
    what, field = ("sequence_by", "sequence_by") if key is None else (f"the key {key}", key)
    return ValidationError(
        f"{what} is null in {count} event{'s' if count > 1 else ''}",
        field=field,
        hint="Filter these events out, or repair them.",
    )


def contradiction(key: Mapping[str, object], at: object) -> ValidationError:
    """Return the error for two different events of one key that have one sequence."""
    shown = ", ".join(f"{name} = {value}" for name, value in key.items())
    return ValidationError(
        f"two different events have one sequence: {shown}, sequence {at}",
        field="sequence_by",
        hint="Choose a sequence that orders the events of each key, or leave one of them out.",
    )


def no_order(kind: str) -> ValidationError:
    """Return the error for a sequence whose values cannot be sorted."""
    return ValidationError(f"sequence_by is of type {kind}, which has no order", field="sequence_by")


def no_start() -> ValidationError:
    """Return the error for a row of a history that does not say when it begins."""
    return ValidationError(
        f"a row of the table has no {START_AT}, so its place in the history is not known",
        field=START_AT,
        hint=f"Give every row a {START_AT} before you apply changes to its key.",
    )


def _names(names: str | Sequence[str] | None) -> tuple[str, ...] | None:
    return None if names is None else as_names(names)


def _refuse_both(name: str, listed: object, left_out: object) -> None:
    if listed is not None and left_out is not None:
        other = name.replace("column_list", "except_column_list")
        raise ValidationError(f"{name} and {other} exclude each other", field=name)


def _found(names: Iterable[str], source: Sequence[str], field: str) -> tuple[str, ...]:
    """Return the names as the source spells them."""
    spelt = {name.lower(): name for name in source}
    found: dict[str, None] = {}
    for name in names:
        if name.lower() not in spelt:
            raise ValidationError(
                f"{field} names {name!r}, which is no column of the events; their columns are {', '.join(source)}",
                field=field,
            )
        if spelt[name.lower()] in found:
            raise ValidationError(f"{field} names {name!r} twice", field=field)
        found[spelt[name.lower()]] = None
    return tuple(found)


__all__ = [
    "DELETED",
    "END_AT",
    "SEQUENCE",
    "START_AT",
    "ChangeFeed",
    "Events",
    "FeedColumns",
    "FeedPlane",
    "contradiction",
    "no_order",
    "no_start",
    "null_in_events",
]
