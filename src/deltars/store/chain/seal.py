"""Seals: each version's hash covers its rows and the hash of the version before it.

    version   0 ──▶ 1 ──▶ … ──▶ 16 ──▶ 17     link 17 = SHA-256(link 16, 17, content of 17)
              └ expired ┘        │
    base      what is left of the expired versions, and link 16 as the anchor

A version is sealed after its commit, by the process that publishes it, so a commit costs nothing where the chain is
off. From then on a change of its rows is found. Rows of `dl_chain` are only inserted: no role but the owner can change
them. Two processes that seal the same version write the same row. What a killed process left is sealed by the next.

Only an expiry rewrites the base, and only after a check. The base is open while its rows are deleted.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from hashlib import sha256
from typing import Any
from uuid import UUID

from sqlalchemy import Connection, delete, func, select, update

from deltars.errors import ValidationError, brief
from deltars.log.commit import NO_VERSION
from deltars.store.backends import Opening
from deltars.store.chain.content import contents_of, remainder_of
from deltars.store.database import Database
from deltars.store.read.version_header import first_version
from deltars.store.schema import dl_chain, dl_tables

VERSIONS_AT_ONCE = 1_000
BASE = NO_VERSION
"""Key of the base among the versions."""
OPEN = ""
"""Content of a base whose rows an expiry is deleting."""
_TIMEOUT_S = 60.0
_HEAD = re.compile(r"([0-9]{1,18}):([0-9a-f]{64})")
_chain = dl_chain.c


@dataclass(frozen=True, slots=True)
class Head:
    """The newest seal of a table. Its text, kept elsewhere, proves later that the history up to it is the same."""

    version: int
    link: str

    def __str__(self) -> str:
        return f"{self.version}:{self.link}"

    @classmethod
    def of(cls, text: str) -> Head:
        """Parse the text of a head."""
        match = _HEAD.fullmatch(text.strip())
        if match is None:
            raise ValidationError(
                f"{brief(text)} is not the head of a hash chain",
                field="chain",
                hint="Give chain_head of an earlier verification, such as 17:9f86d081….",
            )
        return cls(int(match[1]), match[2])


def next_link(table_id: UUID, before: str | None, version: int, content: str) -> str:
    return sha256(f"{before or table_id} {version} {content}".encode()).hexdigest()


class Seals:
    """Writer of the seals of one database."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def has_chain(self, table_id: UUID) -> bool:
        with self._database.read() as connection:
            return head_of(connection, table_id) is not None

    def seal(self, table_id: UUID) -> Head | None:
        """Seal every committed version that is not sealed yet. Return the newest seal."""
        while True:
            with self._database.read() as connection:
                head = head_of(connection, table_id)
                rows = self._next(connection, table_id, head)
            if not rows:
                return head
            # Not waiting for the disk: the next run seals again what a crash of the server lost.
            with self._database.write(_TIMEOUT_S, Opening((), waits_for_disk=False)) as connection:
                connection.execute(self._database.backend.insert_unless_present(dl_chain), rows)
            if len(rows) < VERSIONS_AT_ONCE:
                return Head(rows[-1]["version"], rows[-1]["link"])

    def open_base(self, table_id: UUID) -> None:
        """Record that rows of expired versions are about to be deleted."""
        with self._database.write(_TIMEOUT_S) as connection:
            self._set_base(connection, table_id, OPEN)

    def close_base(self, table_id: UUID) -> None:
        """Seal what an expiry left, and forget seals that are no longer needed as an anchor."""
        with self._database.read() as connection:
            first = first_version(connection, table_id)
            content = remainder_of(connection, table_id, first)
        with self._database.write(_TIMEOUT_S) as connection:
            self._set_base(connection, table_id, content)
            is_old = (_chain.table_id == table_id, _chain.version > BASE, _chain.version < first - 1)
            connection.execute(delete(dl_chain).where(*is_old))

    def _next(self, connection: Connection, table_id: UUID, head: Head | None) -> list[dict[str, Any]]:
        """Return the next rows of the chain."""
        first = first_version(connection, table_id)
        start = max(first, NO_VERSION if head is None else head.version + 1, 0)
        current = connection.scalar(select(dl_tables.c.current_version).where(dl_tables.c.table_id == table_id))
        if current is None or start > current:
            return []
        last = min(current, start + VERSIONS_AT_ONCE - 1)
        rows, link = [], None if head is None else head.link
        if head is None and first > 0:
            # The chain begins after an expiry.
            rows.append({"version": BASE, "content": remainder_of(connection, table_id, first), "link": ""})
        for version, content in sorted(contents_of(connection, table_id, start, last).items()):
            link = next_link(table_id, link, version, content)
            rows.append({"version": version, "content": content, "link": link})
        sealed_at = connection.scalar(select(self._database.backend.clock_us()))
        return [{"table_id": table_id, "sealed_at": sealed_at, **row} for row in rows]

    def _set_base(self, connection: Connection, table_id: UUID, content: str) -> None:
        row = {"table_id": table_id, "version": BASE, "content": content, "link": "", "sealed_at": 0}
        connection.execute(self._database.backend.insert_unless_present(dl_chain).values(row))
        is_base = (_chain.table_id == table_id, _chain.version == BASE)
        connection.execute(update(dl_chain).where(*is_base).values(content=content))


def head_of(connection: Connection, table_id: UUID) -> Head | None:
    """Return the newest seal; None if the table has no chain."""
    newest = select(func.max(_chain.version)).where(_chain.table_id == table_id, _chain.version > BASE)
    query = select(_chain.version, _chain.link).where(
        _chain.table_id == table_id, _chain.version == newest.scalar_subquery()
    )
    row = connection.execute(query).one_or_none()
    return None if row is None else Head(row.version, row.link)
