"""Identity columns of a write: the values that it may give, and the high-water marks after it.

    reserve a range of values ──▶ count rows from its start ──▶ write files ──▶ mark = last value in their statistics
          └─ what was not used is given back, unless another writer has reserved values since

A table that the transaction creates has no other writer, so nothing is reserved for it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import msgspec

from deltars.data.write_target import WrittenFile
from deltars.errors import ValidationError
from deltars.log.new_table import NO_VERSION
from deltars.protocol import Metadata
from deltars.protocol.identity import counted, with_marks
from deltars.transaction.staged_table import StagedTable

if TYPE_CHECKING:
    from deltars.session import CatalogSession
    from deltars.store import IdentityRange

_decode = msgspec.json.Decoder(dict[str, Any]).decode

UNKNOWN_ROWS = 2**43
"""Values that are reserved for rows of unknown number. A task of Spark counts in a block of 2**33: 1,024 tasks fit."""


class CountedRows:
    """The identity columns that a table counts for the rows of one frame."""

    def __init__(self, metadata: Metadata, names: Iterable[str], ranges: dict[str, IdentityRange]) -> None:
        self._metadata = metadata
        self._names = list(names)
        self._ranges = ranges
        self._is_written = False
        schema = metadata.schema
        marks = {name: one.first - counted(schema, self._names)[name].step for name, one in ranges.items()}
        self.schema = with_marks(schema, marks) if marks else schema
        """Schema whose marks say where to count from."""

    def after(self, session: CatalogSession, files: Sequence[WrittenFile]) -> Metadata:
        """Return the metadata after these files were written: the same object if the table counted nothing.

        Raise `ValidationError` if the rows have got values that another writer may have given too.
        """
        self._is_written = True
        marks = {}
        for name, identity in counted(self._metadata.schema, self._names).items():
            physical = self._metadata.schema[name].physical_name
            ends = [end for file in files for end in _ends(file, physical, name)]
            used = identity.last_of(ends) if ends else None
            reserved = self._ranges.get(name)
            if reserved is not None:
                is_settled = session.identities.settle(reserved, used)
                if used is not None and not is_settled and identity.last_of([used, reserved.last]) != reserved.last:
                    raise ValidationError(
                        f"the rows have got values of the identity column {name} beyond those that were reserved, while"
                        " another writer reserved more",
                        field=name,
                        hint="Write the frame again in fewer partitions: df.coalesce(500).",
                    )
            if used is not None:
                marks[name] = used
        if not marks:
            return self._metadata
        schema = with_marks(self._metadata.schema, marks)
        return msgspec.structs.replace(self._metadata, schema_string=schema.to_json())

    def give_back(self, session: CatalogSession) -> None:
        """Free the values if no file was written with them."""
        if not self._is_written:
            for reserved in self._ranges.values():
                session.identities.settle(reserved, None)


@contextmanager
def counting(
    session: CatalogSession, table: StagedTable, metadata: Metadata, names: Iterable[str], frame: object
) -> Iterator[CountedRows]:
    """Reserve values for the rows of a frame with these columns. What fails gives them back."""
    names = list(names)
    found = {} if table.version == NO_VERSION or table.new is not None else counted(metadata.schema, names)
    rows = _number_of(frame)
    ranges = {
        name: session.identities.reserve(table.table_id, metadata.schema[name].physical_name, identity, rows)
        for name, identity in found.items()
        if rows
    }
    rows_of = CountedRows(metadata, names, ranges)
    try:
        yield rows_of
    finally:
        rows_of.give_back(session)


def _number_of(frame: object) -> int:
    count = getattr(frame, "num_rows", None)
    return count if isinstance(count, int) else UNKNOWN_ROWS


def _ends(file: WrittenFile, physical: str, name: str) -> list[int]:
    stats = _decode(file.add.stats or "{}")
    if stats.get("numRecords") == 0:
        return []
    try:
        return [int(stats[part][physical]) for part in ("minValues", "maxValues")]
    except (KeyError, TypeError, ValueError):
        raise ValidationError(
            f"the file {file.add.path} has no statistics of the identity column {name}", field=name
        ) from None
