"""Random logs: at every version the catalog has the files that the protocol's reconciliation leaves live."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest

import deltars
from tests.support.handmade_log import METADATA, HandmadeLog, add, features
from tests.support.soak import record, scaled, seed

Key = tuple[str, str]
Action = dict[str, Any]
PROTOCOL = features(reader=("deletionVectors",))


def _vector(choose: random.Random) -> dict[str, Any] | None:
    if choose.random() < 0.6:
        return None
    name = choose.choice("ab")
    return {"storageType": "i", "pathOrInlineDv": name * 5, "sizeInBytes": 4, "cardinality": 1}


def _write_log(log: HandmadeLog, choose: random.Random) -> list[dict[Key, Action]]:
    """Adds, removals, additions anew, and removals of what is not there; the live files of each version."""
    live: dict[Key, Action] = {}
    states = [dict(live)]
    for version in range(1, choose.randint(20, 30)):
        actions: list[dict[str, Any]] = []
        used: set[Key] = set()
        for _ in range(choose.randint(0, 5)):
            path, vector = f"{choose.randrange(4)}.parquet", _vector(choose)
            key = (path, "i" + vector["pathOrInlineDv"] if vector else "")
            if key in used:
                continue
            used.add(key)
            extra = {"deletionVector": vector} if vector else {}
            if choose.random() < 0.6:
                actions.append(add(path, stats='{"numRecords":9}', **extra))
                live[key] = actions[-1]
            else:
                actions.append({"remove": {"path": path, "dataChange": True, "deletionTimestamp": version} | extra})
                live.pop(key, None)
        log.commit(version, *actions, {"commitInfo": {"timestamp": version, "operation": "X"}})
        states.append(dict(live))
    return states


def _forget_commits(log: HandmadeLog, states: list[dict[Key, Action]], choose: random.Random) -> int:
    """Put a checkpoint in the place of the commits up to its version, which comes back."""
    version = choose.randrange(len(states))
    actions = [PROTOCOL, METADATA, *states[version].values()]
    name = f"{version:020}.checkpoint.00000000-0000-0000-0000-{version:012}.json"
    (log.log / name).write_text("\n".join(map(json.dumps, actions)))
    for old in range(version + 1):
        (log.log / f"{old:020}.json").unlink()
    return version


def _live(table: deltars.Table, version: int) -> list[Key]:
    return sorted((row["path"], _dv_id(row["deletion_vector"])) for row in table.snapshot(version).files.to_pylist())


def _dv_id(document: str | None) -> str:
    return "" if document is None else "i" + json.loads(document)["pathOrInlineDv"]


@pytest.mark.soak
def test_every_version_of_random_logs_is_reconciled(
    catalog: deltars.Catalog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    choose = random.Random(seed())
    logs = scaled(3, soak=300)
    for number in range(logs):
        log = HandmadeLog(tmp_path / f"t{number}", PROTOCOL, METADATA)
        states = _write_log(log, choose)
        first = _forget_commits(log, states, choose) if number % 2 else 0
        monkeypatch.setattr("deltars.store.imports.appender.FLUSH_ROWS", choose.choice((1, 7, 15, 31)))
        table = catalog.import_table(str(log.root))
        for version, state in list(enumerate(states))[first:]:
            assert _live(table, version) == sorted(state), (number, version)
    record("random logs imported", logs=logs)
