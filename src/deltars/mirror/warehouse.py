"""What the mirror keeps beside the tables, in `<warehouse>/_deltars`: registry and version maps. Pure.

- `tables/<table_id>.json`: name and location of a table, so that the catalog can be rebuilt from its files;
- `txns/<txn_id>.json`: the versions that one transaction made, so that any reader can read them as one cut.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any
from uuid import UUID

import msgspec

from deltars.store.mirror_status import CommittedVersion, MirrorStatus, Registration


def registration_path(table_id: UUID) -> str:
    return f"_deltars/tables/{table_id}.json"


def version_map_path(txn_id: UUID) -> str:
    return f"_deltars/txns/{txn_id}.json"


def render_registration(entry: Registration) -> bytes:
    document: dict[str, Any] = {
        "tableId": entry.table_id,
        "name": entry.name,
        "location": entry.location,
        "catalogId": entry.catalog_id,
        "createdAt": entry.created_at,
    }
    if entry.dropped_at is not None:
        document["droppedAt"] = entry.dropped_at
    return _encode(document)


def render_version_map(commit: CommittedVersion, tables: Iterable[MirrorStatus]) -> bytes:
    """The transaction that `commit` is part of; `tables` are its participants."""
    return _encode(
        {
            "txnId": commit.txn_id,
            "commitTs": commit.commit_ts,
            "tables": [
                {
                    "tableId": table.table_id,
                    "name": table.name,
                    "location": table.location,
                    "version": commit.participants[str(table.table_id)],
                }
                for table in tables
            ],
        }
    )


def _encode(document: dict[str, Any]) -> bytes:
    return msgspec.json.format(msgspec.json.encode(document)) + b"\n"
