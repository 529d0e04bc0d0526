"""A table whose log and catalog contradict each other: the log's word is taken, in place.

    compare ──▶ the last version that both have ──▶ versions of the catalog after it: taken back, if that is wanted
                                                ──▶ versions of the log after it: copied, with their transactions

The table keeps its id, its name and its location. Whatever was interrupted is finished by running it again.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from uuid import UUID

from deltars.errors import LogDiverged, TableHeld
from deltars.importer import Importer, LogSource, Progress
from deltars.importer.commits import CommitFile
from deltars.importer.listing import LogListing
from deltars.mirror.files.commit import commit_path, is_same_commit, render_commit
from deltars.session import CatalogSession
from deltars.store.imports.appender import HeldTable
from deltars.store.imports.reversal import Contradiction, Reversal
from deltars.store.mirror.status import MirrorState


@dataclass(frozen=True, slots=True)
class LogComparison:
    """What `accept_log` would do, or did, to a table."""

    table: str
    agreed_version: int
    """The last version that is the same in the log and in the catalog."""
    log_version: int
    """The last version of the log."""
    discarded: tuple[Contradiction, ...]
    """The versions of the catalog that contradict the log, oldest first."""

    @property
    def taken(self) -> range:
        """The versions that the catalog takes from the log."""
        return range(self.agreed_version + 1, self.log_version + 1)


def compare_log(session: CatalogSession, table_id: UUID) -> LogComparison:
    table, source = _opened(session, table_id)
    return _compare(session, table, source)


def accept_log(
    session: CatalogSession, table_id: UUID, *, discard: bool, report: Callable[[Progress], None] | None
) -> LogComparison:
    table, source = _opened(session, table_id)
    comparison = _compare(session, table, source)
    if not comparison.taken:
        if table.is_held:
            Importer(session.database, session.settings.storage_options).restore(table_id, report=report)
        session.publisher.status.recover(table_id)
        return comparison
    if comparison.discarded and not discard:
        versions = ", ".join(str(found.version) for found in comparison.discarded)
        raise LogDiverged(
            f"versions of the catalog contradict the log and would be discarded: {versions}",
            table=table.name,
            table_id=table_id,
            hint=f"See them: deltars mirror accept-log '{table.name}'. Nothing was changed; pass discard=True"
            " (--discard) to go on.",
        )
    if not table.is_held:
        agreed = comparison.agreed_version
        first = session.publisher.status.read(table_id).published_version + 1
        # What was published, and not noted before the backup was made.
        digests = {
            version: CommitFile(source.storage, source.listing.commits[version]).read_digest()
            for version in range(first, agreed + 1)
            if version in source.listing.commits
        }
        Reversal(session.database).take_back(
            table_id, after=agreed, current_version=table.current_version, digests=digests
        )
    Importer(session.database, session.settings.storage_options).restore(table_id, report=report)
    session.publish_registration(table_id)
    return comparison


def _opened(session: CatalogSession, table_id: UUID) -> tuple[HeldTable, LogSource]:
    importer = Importer(session.database, session.settings.storage_options)
    table = importer.writer.read(table_id)
    is_ours = table.state in (MirrorState.ACTIVE, MirrorState.FAILED, MirrorState.DIVERGED)
    # Held and diverged: this was begun before, and interrupted.
    if not is_ours or (table.is_held and table.state is not MirrorState.DIVERGED):
        raise TableHeld(
            "the table's log is the authority already, or it is changing hands",
            table=table.name,
            table_id=table_id,
            hint="Finish its import or its release, or take it back with catalog.adopt().",
        )
    return table, LogSource(table.location, session.settings.storage_options)


def _compare(session: CatalogSession, table: HeldTable, source: LogSource) -> LogComparison:
    listing = source.listing
    # An interrupted run may have copied versions of the log already, which nobody sees yet.
    newest = table.current_version if not table.is_held else table.last_version
    agreed = _last_agreement(session, table, source, listing, newest)
    # Versions that the log does not have yet contradict nothing: they wait to be published.
    contradicted = listing.latest > agreed and not table.is_held
    discarded = Reversal(session.database).versions_after(table.table_id, agreed) if contradicted else []
    return LogComparison(table.name, agreed, listing.latest, tuple(discarded))


def _last_agreement(
    session: CatalogSession, table: HeldTable, source: LogSource, listing: LogListing, newest: int
) -> int:
    reversal = Reversal(session.database)
    for version in range(min(newest, max(listing.commits, default=-1)), -1, -1):
        file = listing.commits.get(version)
        if file is None:
            continue
        if CommitFile(source.storage, file).read_digest() == reversal.digest(table.table_id, version):
            return version
        commits = session.publisher.status.pending(table.table_id, version - 1, 1)
        if commits and is_same_commit(render_commit(commits[0]), source.storage.get(commit_path(version))):
            return version
    raise LogDiverged(
        f"the log at {table.location} has no version in common with the catalog: it is another table's",
        table=table.name,
        table_id=table.table_id,
        hint="Look whether the right files are there. To keep both, import the log under another name elsewhere.",
    )
