"""How large a transaction over several tables may be: it holds all their locks until the last row is written."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from deltars.config import Settings
from deltars.errors import ConfigError, TransactionTooLarge
from deltars.transaction.staging import StagedTable


@dataclass(frozen=True, slots=True)
class Limits:
    """Given for one transaction; what is not given comes from the catalog's settings."""

    max_tables: int | None = None
    max_files_per_table: int | None = None

    def __post_init__(self) -> None:
        for name in self.__slots__:
            value = getattr(self, name)
            if value is not None and (type(value) is not int or value < 1):
                raise ConfigError(f"{name} must be a whole number from 1 on, not {value!r}")

    def within(self, settings: Settings) -> Limits:
        return Limits(self.max_tables or settings.max_tables, self.max_files_per_table or settings.max_files_per_table)

    def check(self, tables: Sequence[StagedTable]) -> None:
        """One table alone may add any number of files."""
        names = dict.fromkeys(table.name for table in tables)
        if len(names) < 2:
            return
        if self.max_tables is not None and len(names) > self.max_tables:
            raise TransactionTooLarge(
                f"the transaction would write {len(names)} tables, and max_tables is {self.max_tables}",
                limit=self.max_tables,
                asked=len(names),
                stage="validate",
                hint="Split it into smaller transactions, or raise max_tables in begin() or connect().",
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
                    hint="Commit this table by itself, write fewer and larger files, or raise max_files_per_table in"
                    " begin() or connect().",
                )
