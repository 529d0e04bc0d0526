"""Make and remove tags: named cuts."""

from __future__ import annotations

from datetime import UTC, datetime
from uuid import UUID

from deltars.arguments import check_texts
from deltars.errors import VersionNotFound
from deltars.mirror.deletion import tags_of_directory
from deltars.session import CatalogSession
from deltars.store.read.as_of import AsOf
from deltars.store.registry import TableRecord
from deltars.store.tags import Tag, needed_by_tags
from deltars.store.vacuum_marks import refuse_condemned_cut


def create_tag(
    session: CatalogSession, name: str, as_of: AsOf | None, *, description: str | None, committer: str | None
) -> Tag:
    """Name a cut. The cut is sealed first, so that it never changes."""
    session.tags.check_new_name(name)
    check_texts(description=description, committer=committer)
    resolved = session.cut_finder.resolve(as_of)
    txn_id = resolved.txn_id if isinstance(resolved, Tag) else resolved if isinstance(resolved, UUID) else None
    by = session.tags.user() if committer is None else committer
    tag = Tag(name, _sealed(session, as_of), txn_id, datetime.now(UTC), by, description)
    session.tags.create(tag, refuse_condemned_cut)
    session.publisher.publish_tag(name)
    return tag


def delete_tag(session: CatalogSession, name: str) -> Tag:
    tag = session.tags.delete(name)
    session.publisher.publish_tag(tag.name)
    return tag


def refuse_tagged(session: CatalogSession, table: TableRecord) -> None:
    """Raise `ValidationError` if a tag needs files of a table that is to be deleted."""
    names = tags_of_directory(session.database, session.registry, table.table_id)
    if names:
        raise needed_by_tags(names, table.table_id, table.name)


def _sealed(session: CatalogSession, as_of: AsOf | None) -> int:
    """Return the moment of a cut that is settled and sealed."""
    if as_of is None:
        # The clock's time is not enough if it was set back: commits are stamped after the newest one.
        now = max(session.cuts.clock_us(), session.cuts.newest_us() or 0)
        cut = session.cuts.at(now, timeout_s=session.settings.timeout)
    else:
        cut = session.cut(as_of)
        if not cut.tables and not cut.expired:
            raise VersionNotFound(
                f"no table had a version as of {as_of}: there is nothing to tag",
                field="as_of",
                hint="They were created later. history() of a table lists its versions.",
            )
    assert cut.commit_ts is not None
    return cut.commit_ts
