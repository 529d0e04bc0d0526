"""Size limits of a transaction over several tables: its commit holds all their locks until the last row is written."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from deltars.config import Settings
from deltars.errors import ConfigError, TransactionTooLarge, brief
from deltars.transaction.staged_table import StagedTable


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of one transaction. None means the catalog's setting."""

    max_tables: int | None = None
    max_files_per_table: int | None = None

    def __post_init__(self) -> None:
        for name in self.__slots__:
            value = getattr(self, name)
            if value is not None and (type(value) is not int or value < 1):
                raise ConfigError(f"{name} must be a whole number of 1 or more, got {brief(value)}")

    def within(self, settings: Settings) -> Limits:
        """Return the limits, with the catalog's settings for those not given."""
        return Limits(self.max_tables or settings.max_tables, self.max_files_per_table or settings.max_files_per_table)

    def check(self, tables: Sequence[StagedTable]) -> None:
        """Raise `TransactionTooLarge` if a limit is exceeded. A single table may add any number of files."""
        count = len({table.table_id for table in tables})
        if count < 2:
            return
        if self.max_tables is not None and count > self.max_tables:
            raise TransactionTooLarge(
                f"the transaction would write {count} tables, and max_tables is {self.max_tables}",
                limit=self.max_tables,
                asked=count,
                stage="validate",
                hint=f"Split it into smaller transactions, or {how_to_raise('max_tables', count)}.",
            )
        for table in tables:
            if self.max_files_per_table is not None and table.num_added > self.max_files_per_table:
                raise TransactionTooLarge(
                    f"the transaction would add {table.num_added} files to {table.name}, and max_files_per_table is"
                    f" {self.max_files_per_table}",
                    limit=self.max_files_per_table,
                    asked=table.num_added,
                    table=table.name,
                    stage="validate",
                    hint=FEWER_FILES.format(how_to_raise("max_files_per_table", table.num_added)),
                )

    def max_new_files(self, tables: Sequence[StagedTable], table: StagedTable, *, overwrites: bool) -> int | None:
        """Return how many files a write of this table may still add; None for any number.

        A table that is the only one so far may add any number, because a second table may never follow.
        """
        if self.max_files_per_table is None or not any(other.table_id != table.table_id for other in tables):
            return None
        # Staged files that this write overwrites do not count. The others are counted when the write is staged.
        return self.max_files_per_table if overwrites else max(0, self.max_files_per_table - table.num_added)


FEWER_FILES = "Commit this table by itself, write fewer and larger files, or {}."


def how_to_raise(name: str, needed: int) -> str:
    return (
        f"raise {name}: for this transaction with begin({name}={needed}), for the catalog with"
        f" connect(…, {name}={needed}), ${'DELTARS_' + name.upper()} or deltars.toml"
    )
