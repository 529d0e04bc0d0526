"""The promises of docs/reliability.md, checked from outside after faults: journals against database, files and log.

    journals of the clients ─┐
    rows of the catalog ─────┼─▶ audit() ──▶ what is broken, by promise; nothing where all is well
    files and _delta_log ────┘

Nothing of deltars decides here: the database is read as rows, the files as files, the log by deltalake.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple
from urllib.parse import unquote
from uuid import UUID

import pyarrow.parquet as pq
from deltalake import DeltaTable
from sqlalchemy import select

import deltars
from deltars.store.imports.table_hold import HELD
from deltars.store.schema import dl_table_versions, dl_tables
from tests.faults.journal import Entry, read_journals

_COMMIT = re.compile(r"(\d{20})\.json")


class Broken(NamedTuple):
    """A promise that does not hold."""

    promise: str
    what: str


@dataclass(slots=True)
class Facts:
    """What the database says of one table."""

    name: str
    location: Path
    current: int
    txns: dict[int, UUID]
    """The transaction of each version."""
    is_held: bool = False
    """Whether the log is authoritative, and not the catalog: while a table is handed over, and after that."""
    is_imported: bool = False
    """Whether others wrote a part of its log: their commits name no transaction."""

    def versions_of(self, txn_id: UUID) -> list[int]:
        return [version for version, txn in self.txns.items() if txn == txn_id]


@dataclass
class Auditor:
    """Audits a catalog again and again; a file must stay as it was when it was first seen."""

    directory: Path
    """Where the journals are."""
    digests: dict[Path, str] = field(default_factory=dict)

    def audit(self, catalog: deltars.Catalog) -> list[Broken]:
        journals = list(read_journals(self.directory))
        facts = facts_of(catalog)
        return [
            *_versions(facts),
            *(one for entries in journals for entry in entries for one in _transaction(facts, entry)),
            *_guarded("N1", _rows(catalog, facts, journals)),
            *_guarded("N5", self._files([catalog.table(name) for name in facts])),
            *(one for table in facts.values() for one in log_problems(table)),
        ]

    def _files(self, tables: Iterable[deltars.Table]) -> Iterator[Broken]:
        for table in tables:
            for file in table.files().to_pylist():
                path = Path(table.location) / unquote(file["path"])
                if not path.exists():
                    yield Broken("N5", f"{table.name}: the live file {path.name} is gone")
                elif path.stat().st_size != file["size"]:
                    yield Broken("N5", f"{table.name}: {path.name} has {path.stat().st_size} bytes, not {file['size']}")
                else:
                    yield from self._content(table.name, path, file["stats"])

    def _content(self, name: str, path: Path, stats: str | None) -> Iterator[Broken]:
        digest = hashlib.sha256(path.read_bytes()).hexdigest()
        if self.digests.setdefault(path, digest) != digest:
            yield Broken("N5", f"{name}: {path.name} has another content than before")
        try:
            rows = pq.read_table(path).num_rows
        except (OSError, ValueError) as error:
            yield Broken("N5", f"{name}: {path.name} cannot be read: {error}")
            return
        if stats and rows != json.loads(stats)["numRecords"]:
            yield Broken("N5", f"{name}: {path.name} has {rows} rows, and {stats}")


def facts_of(catalog: deltars.Catalog) -> dict[str, Facts]:
    tables, versions = dl_tables.c, dl_table_versions.c
    with catalog._session.database.read() as connection:
        found = {
            row.table_id: Facts(row.name, Path(row.location), row.current_version, {}, row.protocol_version == HELD)
            for row in connection.execute(
                select(dl_tables).where(
                    # A table without a version, as while it is imported, is there for no one yet.
                    tables.dropped_at.is_(None),
                    tables.current_version >= 0,
                )
            )
        }
        for row in connection.execute(select(versions.table_id, versions.version, versions.txn_id, versions.operation)):
            if row.table_id in found:
                found[row.table_id].txns[row.version] = row.txn_id
                found[row.table_id].is_imported |= row.operation == "ADOPT TABLE"
    return {facts.name: facts for facts in found.values()}


def _guarded(promise: str, found: Iterator[Broken]) -> Iterator[Broken]:
    """What cannot be read is broken too."""
    try:
        yield from found
    except (deltars.DeltarsError, OSError) as error:
        yield Broken(promise, f"{type(error).__name__}: {error}")


def _versions(facts: Mapping[str, Facts]) -> Iterator[Broken]:
    for name, table in facts.items():
        # Versions of a log that is being imported are not there until all of them are.
        there = sorted(version for version in table.txns if version <= table.current or not table.is_held)
        # Older versions may have expired.
        if there != list(range(min(there, default=0), table.current + 1)):
            yield Broken("N4", f"{name} is at version {table.current}, and has {there}")


def _transaction(facts: Mapping[str, Facts], entry: Entry) -> Iterator[Broken]:
    found = {name: facts[name].versions_of(entry.txn_id) for name in entry.tables}
    for name, versions in found.items():
        if len(versions) > 1:
            yield Broken("N2", f"{entry.txn_id} is in {name} at {versions}")
    if any(found.values()) and not all(found.values()):
        yield Broken("N3", f"{entry.txn_id} is in {found}")
    match entry.told:
        case "committed":
            if not any(found.values()):
                yield Broken("N1", f"{entry.txn_id} was acknowledged, and is gone")
            elif entry.versions != {name: versions[0] for name, versions in found.items() if versions}:
                yield Broken("N7", f"{entry.txn_id} was said to be {entry.versions}, and is {found}")
        case "refused" if any(found.values()):
            yield Broken("N7", f"{entry.txn_id} was refused ({entry.error}), and is {found}")


def _rows(catalog: deltars.Catalog, facts: Mapping[str, Facts], journals: Iterable[list[Entry]]) -> Iterator[Broken]:
    """Compare each table with what its committed transactions left of it."""
    expected: dict[str, dict[int, str]] = {}
    for entries in journals:
        for entry in entries:
            for name, rows in entry.tables.items():
                expected.setdefault(name, {})
                if not facts[name].versions_of(entry.txn_id):
                    continue
                for row, state in rows.items():
                    expected[name].pop(row, None)
                    if state is not None:
                        expected[name][row] = state
    for name, rows in expected.items():
        found = Counter(
            (row["id"], row["state"]) for row in catalog.table(name).to_arrow(columns=["id", "state"]).to_pylist()
        )
        wanted = Counter(rows.items())
        for missing in wanted - found:
            yield Broken("N1", f"{name}: the row {missing} is missing")
        for extra in found - wanted:
            times = f"{found[extra]} times, instead of {wanted[extra]}"
            yield Broken("N2", f"{name}: the row {extra} is there {times}")


def log_problems(table: Facts, upto: int | None = None) -> Iterator[Broken]:
    """Compare `_delta_log` with the table's versions."""
    log = table.location / "_delta_log"
    found = sorted(int(match[1]) for path in log.glob("*.json") if (match := _COMMIT.fullmatch(path.name)))
    if not found:
        return
    if found != list(range(found[0], found[-1] + 1)):
        yield Broken("N6", f"{table.name}: the log has a gap: {found}")
        return
    if found[-1] > table.current and not table.is_held:
        yield Broken("N6", f"{table.name}: the log has version {found[-1]}, the catalog {table.current}")
    for version in found:
        lines = (log / f"{version:020}.json").read_text().splitlines()
        infos = [line["commitInfo"] for line in map(json.loads, lines) if "commitInfo" in line]
        names = [info.get("txnId") for info in infos]
        if table.is_imported and names in ([], [None]):
            continue
        if version in table.txns and names != [str(table.txns[version])]:
            yield Broken("N6", f"{table.name}: version {version} of the log is not the catalog's")
    try:
        read = DeltaTable(str(table.location)).version()
    except Exception as error:
        yield Broken("N6", f"{table.name}: deltalake cannot open the log: {error}")
        return
    if read != found[-1]:
        yield Broken("N6", f"{table.name}: deltalake sees version {read}, and the log ends at {found[-1]}")


def promises(broken: Iterable[Broken]) -> set[str]:
    return {one.promise for one in broken}
