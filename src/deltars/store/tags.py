"""Tags: names for cuts. Whatever deletes history or files must keep what `pinned_versions` returns.

    tag "q3" ── commit_ts c ──▶ the cut as of c: every table's last version with commit_ts <= c

The row is written after the cut is sealed (`read.cuts`), so that the cut of a tag never changes, and needs no wait.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from sqlalchemy import Connection, delete, func, insert, select

from deltars.errors import TagExists, TagNotFound, ValidationError, brief
from deltars.log.moments import from_microseconds, parse_moment
from deltars.log.transaction_id import as_txn_id, is_uuid
from deltars.store.database import Database
from deltars.store.read.past_versions import past_versions
from deltars.store.read.version_header import history_expired
from deltars.store.schema import dl_table_versions, dl_tables, dl_tags, dl_transactions

_TIMEOUT_S = 30.0

# A tag is published as a file of its name. At most 100 characters, because file systems allow 255 bytes.
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,99}")


@dataclass(frozen=True, slots=True)
class Tag:
    """A name for a cut."""

    name: str
    commit_ts: int
    """Moment of the cut, in microseconds since 1970."""
    txn_id: UUID | None
    """Transaction that the cut ends with, if the tag was given one."""
    created_at: datetime
    committer: str | None = None
    description: str | None = None

    @property
    def as_of(self) -> datetime:
        """Moment of the cut."""
        return from_microseconds(self.commit_ts)


_COLUMNS = tuple(dl_tags.c[name] for name in Tag.__dataclass_fields__)


class Tags:
    """Tags of one database."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def all(self) -> list[Tag]:
        with self._database.read() as connection:
            return [Tag(*row) for row in connection.execute(select(*_COLUMNS).order_by(dl_tags.c.name))]

    def find(self, name: str) -> Tag | None:
        """Find a tag by its name, in any case."""
        if not _NAME.fullmatch(name):
            return None
        with self._database.read() as connection:
            return _find(connection, name)

    def user(self) -> str | None:
        """Return the committer of a tag that names none: the user, as for a commit."""
        with self._database.read() as connection:
            return self._database.backend.user(connection)

    def create(self, tag: Tag, check: Callable[[Connection, int], None]) -> None:
        """Insert a tag whose cut is sealed. Raise `TagExists` if its name is taken.

        `check` raises if the cut, given by its `commit_ts`, has lost files.
        """
        with self._database.write(_TIMEOUT_S) as connection:
            # Two names that differ only in case are two keys: the lock lets only one of them in.
            self._database.backend.lock_registry(connection)
            known = _find(connection, tag.name)
            if known is not None:
                raise TagExists(
                    f"there is already a tag {known.name!r}, as of {known.as_of.isoformat()}",
                    field="name",
                    hint=f"Use another name, or remove it first: catalog.untag({known.name!r}).",
                )
            # Under the lock that an expiry takes too: it either keeps what this tag needs, or was there first.
            _, expired = past_versions(connection, self._database.backend, tag.commit_ts, only_kept=True)
            if expired:
                table_id, name = min(expired.items(), key=lambda item: item[1])
                message = f"the table {name!r} has no version as of {tag.as_of.isoformat()} any more"
                raise history_expired(connection, UUID(table_id), message, field="as_of").located(table=name)
            check(connection, tag.commit_ts)
            connection.execute(insert(dl_tags).values({name: getattr(tag, name) for name in tag.__slots__}))

    def delete(self, name: str) -> Tag:
        """Delete a tag, and return it. Raise `TagNotFound` if there is none."""
        if not isinstance(name, str):
            raise ValidationError(
                f"a tag's name is a text, got {brief(name)}", field="name", hint="catalog.tags() lists the tags."
            )
        with self._database.write(_TIMEOUT_S) as connection:
            self._database.backend.lock_registry(connection)
            known = _find(connection, name)
            if known is None:
                raise TagNotFound(f"there is no tag {name!r}", hint="catalog.tags() lists the tags.")
            connection.execute(delete(dl_tags).where(dl_tags.c.name == known.name))
            return known

    def check_new_name(self, name: object) -> None:
        """Raise `ValidationError` unless a tag can have the name, and `as_of` means nothing else by it yet."""
        if not isinstance(name, str) or not _NAME.fullmatch(name):
            raise ValidationError(
                f"{brief(name)} is not a tag's name",
                field="name",
                hint="A name has 1 to 100 letters, digits, dots, dashes and underscores, and begins with a letter or a"
                " digit.",
            )
        if parse_moment(name) is not None:
            raise ValidationError(f"a tag cannot be named {name!r}: it is a time", field="name")
        if is_uuid(name):
            raise ValidationError(f"a tag cannot be named {name!r}: it is a transaction's id", field="name")
        # Refuses what is nearly a UUID too.
        txn_id = as_txn_id(name)
        with self._database.read() as connection:
            taken = select(dl_transactions.c.txn_id).where(dl_transactions.c.txn_id == txn_id)
            if connection.execute(taken).first() is not None:
                raise ValidationError(
                    f"a tag cannot be named {name!r}: a transaction was begun with this text as its id",
                    field="name",
                    hint=f"as_of={name!r} already finds that transaction. Use another name.",
                )


def pinned_versions(connection: Connection, table_id: UUID) -> dict[int, tuple[str, ...]]:
    """Return the versions of a table that tags need, each with the names of its tags.

    A tag from before the table's first version, or after it was dropped, needs none.
    """
    versions = dl_table_versions.c
    # As in a cut: the last version with a time stamp that is not later than the tag's.
    version = (
        select(versions.version)
        .where(versions.table_id == table_id, versions.commit_ts <= dl_tags.c.commit_ts)
        .order_by(versions.commit_ts.desc(), versions.version.desc())
        .limit(1)
        .correlate(dl_tags)
        .scalar_subquery()
    )
    dropped_at = connection.scalar(select(dl_tables.c.dropped_at).where(dl_tables.c.table_id == table_id))
    pinned: dict[int, tuple[str, ...]] = {}
    for row in connection.execute(select(*_COLUMNS, version.label("version")).order_by(dl_tags.c.name)):
        tag = Tag(*row[: len(_COLUMNS)])
        if row.version is not None and (dropped_at is None or dropped_at > tag.as_of):
            pinned[row.version] = (*pinned.get(row.version, ()), tag.name)
    return dict(sorted(pinned.items()))


def needed_by_tags(names: Sequence[str], table_id: UUID, table: str | None = None) -> ValidationError:
    """Return the error for files that are to be deleted although tags need them."""
    return ValidationError(
        f"the files of the table are needed by the tag{'s' if len(names) > 1 else ''} {', '.join(names[:10])}",
        table=table,
        table_id=table_id,
        field="delete_data",
        hint="Remove the tags first (catalog.untag), or drop the table without its files.",
    )


def _find(connection: Connection, name: str) -> Tag | None:
    # Names are ASCII, so every database's lower() agrees.
    row = connection.execute(select(*_COLUMNS).where(func.lower(dl_tags.c.name) == name.lower())).one_or_none()
    return None if row is None else Tag(*row)


__all__ = ["Tag", "Tags", "needed_by_tags", "pinned_versions"]
