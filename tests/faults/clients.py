"""Clients of a campaign: transactions over two tables, with changes of rows, and maintenance beside them.

Each client owns its rows, and makes one transaction after the other:

    pays        inserts a row into both tables
    notes       inserts a row into one of them
    amends      updates one of its rows in both
    cancels     deletes one of its rows in both

So the rows of a client are known from its own journal alone, however many others are at work.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from datetime import timedelta
from pathlib import Path
from typing import TypeAlias
from uuid import UUID, uuid4

import pyarrow as pa

import deltars
from deltars.errors import CommitUnknown
from tests.faults.journal import Journal, Rows, read_journal

TABLES = ("left", "right")
KINDS = {"pay": 5, "note": 1, "amend": 2, "cancel": 1}
ROWS_OF_A_CLIENT = 1_000_000

Work: TypeAlias = Callable[[deltars.Transaction], object]


def create_tables(catalog: deltars.Catalog) -> None:
    """`left` changes rows by copying files, `right` by deletion vectors."""
    properties = {"delta.checkpointInterval": "5", "delta.setTransactionRetentionDuration": "interval 1 days"}
    for name in TABLES:
        vectors = {"delta.enableDeletionVectors": "true"} if name == "right" else {}
        catalog.create_table(name, "id BIGINT, state STRING", properties=properties | vectors)


class Client:
    """One client: knows its rows from its journal, and goes on after them."""

    def __init__(self, catalog: deltars.Catalog, directory: Path, number: int, lot: random.Random) -> None:
        path = directory / f"{number}.jsonl"
        before = read_journal(path) if path.exists() else []
        self.errors: Counter[str] = Counter()
        self.committed = 0
        self._catalog = catalog
        self._lot = lot
        self.next_row = number * ROWS_OF_A_CLIENT + sum(len(rows) for entry in before for rows in entry.tables.values())
        # Rows of earlier lives are left alone: of some of them it is not known whether they are there.
        self._rows: list[int] = []
        self._journal = Journal(path)
        self._kinds = {"pay": self._pay, "note": self._note, "amend": self._amend, "cancel": self._cancel}

    def step(self, kind: str | None = None) -> bool:
        """Make one transaction, and return whether it was committed."""
        kind = kind or self._lot.choices(list(KINDS), list(KINDS.values()))[0]
        if kind in ("amend", "cancel") and not self._rows:
            kind = "pay"
        txn_id = uuid4()
        tables, work = self._kinds[kind](txn_id)
        self._journal.intend(txn_id, tables)
        try:
            with self._catalog.begin(isolation="serializable", txn_id=txn_id) as tx:
                work(tx)
        except CommitUnknown as error:
            return self._settle(txn_id, tables, error)
        except deltars.DeltarsError as error:
            self.errors[type(error).__name__] += 1
            self._journal.told(txn_id, "refused", error=f"{type(error).__name__}: {error}")
            return False
        self._keep(txn_id, tables, tx.result.versions)
        return True

    def close(self) -> None:
        self._journal.close()

    def _settle(self, txn_id: UUID, tables: dict[str, Rows], error: CommitUnknown) -> bool:
        self.errors[type(error).__name__] += 1
        self._journal.told(txn_id, "unknown", error=str(error))
        try:
            result = self._catalog.resolve(txn_id)
        except deltars.DeltarsError as still:
            self.errors[f"resolve: {type(still).__name__}"] += 1
            # Whether its rows are there is for the audit to find out.
            for rows in tables.values():
                self._rows = [row for row in self._rows if row not in rows]
            return False
        if result is None:
            self._journal.told(txn_id, "refused", error="resolved as not committed")
            return False
        self._keep(txn_id, tables, result.versions)
        return True

    def _keep(self, txn_id: UUID, tables: dict[str, Rows], versions: Mapping[str, int]) -> None:
        self.committed += 1
        self._journal.told(txn_id, "committed", versions)
        if len(tables) < len(TABLES):
            return
        for row, state in tables[TABLES[0]].items():
            if state is None:
                self._rows.remove(row)
            elif row not in self._rows:
                self._rows.append(row)

    def _pay(self, txn_id: UUID) -> tuple[dict[str, Rows], Work]:
        row = self._new_row()
        return {name: {row: str(txn_id)} for name in TABLES}, lambda tx: _insert(tx, TABLES, row, txn_id)

    def _note(self, txn_id: UUID) -> tuple[dict[str, Rows], Work]:
        row, name = self._new_row(), self._lot.choice(TABLES)
        return {name: {row: str(txn_id)}}, lambda tx: _insert(tx, [name], row, txn_id)

    def _amend(self, txn_id: UUID) -> tuple[dict[str, Rows], Work]:
        row = self._lot.choice(self._rows)

        def work(tx: deltars.Transaction) -> None:
            for name in TABLES:
                tx.update(name, {"state": f"'{txn_id}'"}, f"id = {row}")

        return {name: {row: str(txn_id)} for name in TABLES}, work

    def _cancel(self, txn_id: UUID) -> tuple[dict[str, Rows], Work]:
        row = self._lot.choice(self._rows)

        def work(tx: deltars.Transaction) -> None:
            for name in TABLES:
                tx.delete(name, f"id = {row}")

        return {name: {row: None} for name in TABLES}, work

    def _new_row(self) -> int:
        self.next_row += 1
        return self.next_row


def _insert(tx: deltars.Transaction, tables: Iterable[str], row: int, txn_id: UUID) -> None:
    for name in tables:
        tx.write(name, pa.table({"id": pa.array([row], pa.int64()), "state": [str(txn_id)]}))


def maintain(catalog: deltars.Catalog, lot: random.Random) -> None:
    """Do one piece of maintenance, drawn by lot."""
    table = catalog.table(lot.choice(TABLES))
    match lot.choice(["optimize", "vacuum", "reconcile"]):
        case "optimize":
            table.optimize()
        case "vacuum":
            table.vacuum(retention=timedelta(0), force=True)
        case _:
            catalog.reconciler().once()
