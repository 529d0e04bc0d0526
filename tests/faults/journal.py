"""What each client of a campaign meant to do, and what it was told: lines in a file that outlives the client.

    journal = Journal(path)
    journal.intend(txn_id, {"left": {7: "paid"}, "right": {7: "paid"}})     before the transaction
    journal.told(txn_id, "committed", {"left": 3, "right": 5})              after it

A client that is killed leaves an intention without an answer.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, TypeAlias
from uuid import UUID

Rows: TypeAlias = Mapping[int, str | None]
"""The state of each row after the transaction; None: the row is deleted."""

Told: TypeAlias = Literal["committed", "refused", "unknown"]


@dataclass(slots=True)
class Entry:
    """One transaction of one client."""

    txn_id: UUID
    tables: dict[str, Rows]
    told: Told | None = None
    """None: the client heard nothing, or is gone."""
    versions: dict[str, int] = field(default_factory=dict)
    error: str = ""


class Journal:
    """The file of one client. Each line is one write of its own, so a killed client leaves whole lines."""

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)

    def intend(self, txn_id: UUID, tables: Mapping[str, Rows]) -> None:
        self._write({"txn": str(txn_id), "tables": tables})

    def told(self, txn_id: UUID, told: Told, versions: Mapping[str, int] | None = None, error: str = "") -> None:
        self._write({"txn": str(txn_id), "told": told, "versions": dict(versions or {}), "error": error})

    def close(self) -> None:
        os.close(self._file)

    def _write(self, event: Mapping[str, object]) -> None:
        os.write(self._file, (json.dumps(event) + "\n").encode())


def read_journal(path: Path) -> list[Entry]:
    """Return a client's transactions, in its order."""
    entries: dict[UUID, Entry] = {}
    for event in map(json.loads, path.read_text().splitlines()):
        txn_id = UUID(event["txn"])
        if "tables" in event:
            tables: dict[str, Rows] = {
                name: {int(row): state for row, state in rows.items()} for name, rows in event["tables"].items()
            }
            entries[txn_id] = Entry(txn_id, tables)
        else:
            entry = entries[txn_id]
            entry.told, entry.versions, entry.error = event["told"], event["versions"], event["error"]
    return list(entries.values())


def read_journals(directory: Path) -> Iterator[list[Entry]]:
    for path in sorted(directory.glob("*.jsonl")):
        yield read_journal(path)
