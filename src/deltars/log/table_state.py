"""State of a table as far as commits to it are concerned: metadata, protocol, and what follows from them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from deltars.protocol import Metadata, Protocol, check_protocol
from deltars.protocol.properties import boolean_property

APPEND_ONLY = "delta.appendOnly"
ROW_TRACKING = "delta.enableRowTracking"


@dataclass(frozen=True)
class TableState:
    """The parts of a table's state that a commit is validated against. `None` before version 0.

    Writers keep it from commit to commit. So what every commit needs of it is computed once.
    """

    metadata: Metadata | None = None
    protocol: Protocol | None = None

    @cached_property
    def protocol_problem(self) -> str | None:
        """Return why deltars cannot write to the table, or None if it can."""
        return None if self.protocol is None else check_protocol(self.protocol)

    @cached_property
    def tracks_rows(self) -> bool:
        """Return whether new files get row ids."""
        return self.metadata is not None and tracks_rows(self.metadata)

    @cached_property
    def is_append_only(self) -> bool:
        return self.metadata is not None and boolean_property(self.metadata.configuration, APPEND_ONLY)

    @cached_property
    def partition_names(self) -> frozenset[str]:
        """Return the physical names of the partition columns."""
        if self.metadata is None or not self.metadata.partition_columns:
            return frozenset()
        fields = {field.name: field for field in self.metadata.schema.fields}
        return frozenset(fields[name].physical_name for name in self.metadata.partition_columns)


def tracks_rows(metadata: Metadata) -> bool:
    return boolean_property(metadata.configuration, ROW_TRACKING)
