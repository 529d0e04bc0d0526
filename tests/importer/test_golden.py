"""Every golden table, imported, read and mirrored: as delta-spark judged it, and action by action."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, field, fields, replace
from itertools import repeat
from pathlib import Path

import pyarrow as pa
import pytest
from msgspec import structs

import deltars
from deltars.importer import LogSource
from deltars.log.arrow_adds import deletion_vectors
from deltars.mirror.files.checkpoint import write_checkpoint
from deltars.protocol import Action, AddFile, DomainMetadata, Metadata, Protocol, RemoveFile, Txn
from deltars.storage import open_storage
from deltars.store.mirror.checkpoint_state import CheckpointRows
from tests.support.golden import SAMPLE, GoldenTable, golden_tables, same_rows
from tests.support.soak import is_soak


def _chosen(backend: str) -> Iterator[GoldenTable]:
    for table in golden_tables():
        if backend == "sqlite" or is_soak() or table.name in SAMPLE:
            yield table


@pytest.mark.soak
def test_every_golden_table_is_imported_and_read_or_refused(
    catalog: deltars.Catalog, backend: str, tmp_path: Path
) -> None:
    wrong = []
    for number, golden in enumerate(_chosen(backend)):
        place = tmp_path / f"golden-{number}"
        shutil.copytree(golden.root, place)
        problem = _problem(catalog, golden, place)
        if problem:
            wrong.append(f"{golden.name}: {problem}")
        shutil.rmtree(place)
    assert not wrong, "\n".join(wrong)


def _problem(catalog: deltars.Catalog, golden: GoldenTable, place: Path) -> str | None:
    before = _files(place)
    try:
        table = catalog.import_table(str(place), place.name)
    except deltars.ImportRefused as error:
        if golden.outcome != "refuse":
            return f"was refused: {error}"
        return "something is left of it" if catalog.table_exists(place.name) or _files(place) != before else None
    if golden.outcome == "refuse":
        return "was not refused"
    if live := _difference(catalog, table, place):
        return live
    missing = () if golden.outcome == "read" else ("missing",)
    alarms = [finding for finding in table.verify(deep=True).findings if finding.problem not in missing]
    if alarms:
        return f"verify alarms: {alarms[0].file} {alarms[0].detail}"
    if golden.outcome == "log":
        return None
    rows = table.to_arrow()
    if golden.num_rows is not None and rows.num_rows != golden.num_rows:
        return f"{rows.num_rows} rows, not {golden.num_rows}"
    expected = golden.expected()
    if expected is not None and not same_rows(rows, expected):
        return "its rows are not the expected ones"
    return None


def _files(place: Path) -> set[str]:
    return {str(path) for path in place.rglob("*")}


@dataclass
class _State:
    """A log, reconciled: what its actions leave of each kind."""

    protocol: Protocol | None = None
    metadata: Metadata | None = None
    adds: dict[tuple[str, str], AddFile] = field(default_factory=dict)
    removes: dict[tuple[str, str], RemoveFile] = field(default_factory=dict)
    txns: dict[str, Txn] = field(default_factory=dict)
    domains: dict[str, DomainMetadata] = field(default_factory=dict)

    @classmethod
    def of(cls, place: Path) -> _State:
        state = cls()
        for version in LogSource(str(place)).versions():
            for batch in version.batches():
                for action in _added(batch) if isinstance(batch, pa.Table) else (action for _, action in batch):
                    state._take(action)
        return state

    def _take(self, action: Action) -> None:
        match action:
            case Protocol():
                self.protocol = action
            case Metadata():
                self.metadata = action
            case AddFile():
                self.adds[action.key] = action
                self.removes.pop(action.key, None)
            case RemoveFile():
                self.adds.pop(action.key, None)
                self.removes[action.key] = action
            case Txn():
                self.txns[action.app_id] = action
            case DomainMetadata():
                self.domains[action.domain] = action

    def of_a_checkpoint(self) -> _State:
        """As much of it as a checkpoint keeps, for a log whose removals are all long ago."""
        adds = {key: structs.replace(add, data_change=False) for key, add in self.adds.items()}
        domains = {name: domain for name, domain in self.domains.items() if not domain.removed}
        return replace(self, adds=adds, removes={}, domains=domains)


def _added(files: pa.Table) -> Iterator[AddFile]:
    """Those of a checkpoint, which come as columns."""
    vectors = deletion_vectors(files["deletion_vector"]) if "deletion_vector" in files.column_names else repeat(None)
    for row, vector in zip(files.to_pylist(maps_as_pydicts="strict"), vectors, strict=False):
        values = row["partition_values"]
        plain = json.loads(values) if isinstance(values, str) else values
        yield AddFile(**row | {"deletion_vector": vector, "partition_values": plain})


def _difference(catalog: deltars.Catalog, table: deltars.Table, place: Path) -> str | None:
    """Between the log that was imported and those that the catalog's versions, or their checkpoint, make elsewhere."""
    theirs = _State.of(place)
    elsewhere = place.with_name(f"{place.name}-elsewhere")
    mirrored, checkpointed = elsewhere / "commits", elsewhere / "checkpoint"
    session = catalog._session
    for entry in table.history():
        session.publisher.republish(table.id, str(mirrored), entry.version)
    write_checkpoint(open_storage(str(checkpointed)), CheckpointRows(session.database).at(table.id, table.version))
    problem = None
    if (mirrored / "_delta_log" / f"{0:020}.json").exists():
        problem = _first_difference(_State.of(mirrored), theirs)
    problem = problem or _first_difference(_State.of(checkpointed).of_a_checkpoint(), theirs.of_a_checkpoint())
    shutil.rmtree(elsewhere)
    return problem


def _first_difference(ours: _State, theirs: _State) -> str | None:
    for kind in fields(_State):
        mine, its = getattr(ours, kind.name), getattr(theirs, kind.name)
        if mine == its:
            continue
        if isinstance(mine, dict):
            key = next(key for key in [*mine, *its] if mine.get(key) != its.get(key))
            mine, its = mine.get(key), its.get(key)
        return f"{kind.name} elsewhere: {mine}, not {its}"
    return None


def test_partition_values_that_are_empty_are_null(catalog: deltars.Catalog, tmp_path: Path) -> None:
    [golden] = [table for table in golden_tables() if table.name == "data-reader-partition-values/delta"]
    place = tmp_path / "partitions"
    shutil.copytree(golden.root, place)
    rows = catalog.import_table(str(place)).to_arrow()
    partitions = [
        name
        for name in rows.column_names
        if name.startswith("as_") and name not in ("as_list_of_records", "as_nested_struct")
    ]
    nulls = [row for row in rows.to_pylist() if row["as_string"] is None]
    assert rows.num_rows == 3
    assert nulls
    assert all(row[name] is None for row in nulls for name in partitions if row["as_int"] is None)
