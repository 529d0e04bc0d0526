"""Accept the `_delta_log` of a table whose log and catalog have diverged, in place.

    compare ──▶ the last version that both have ──▶ versions of the catalog after it: discarded, if allowed
                                                ──▶ versions of the log after it: imported, with their transactions

The table keeps its id, its name and its location. Run it again to finish an interrupted run.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from uuid import UUID

from deltars.errors import LogDiverged, TableHeld
from deltars.importer import Importer, LogSource, Progress
from deltars.importer.commits import CommitFile
from deltars.importer.listing import LogListing
from deltars.mirror.files.commit import is_same_commit, render_commit
from deltars.protocol.log_files import commit_path
from deltars.session import CatalogSession
from deltars.store.imports.appender import HeldTable
from deltars.store.imports.reversal import Contradiction, Reversal
from deltars.store.mirror.status import MirrorState


@dataclass(frozen=True, slots=True)
class LogComparison:
    """What `accept_log` would do, or did, to a table."""

    table: str
    agreed_version: int
    """Last version that is the same in the log and in the catalog."""
    log_version: int
    """Last version of the log."""
    discarded: tuple[Contradiction, ...]
    """Versions of the catalog that contradict the log, oldest first."""

    @property
    def taken(self) -> range:
        """Versions that the catalog imports from the log."""
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
            hint=f"Nothing was changed. List them with deltars mirror accept-log '{table.name}'; pass discard=True"
            " (--discard) to discard them.",
        )
    if not table.is_held:
        agreed = comparison.agreed_version
        first = session.publisher.status.read(table_id).published_version + 1
        # Versions in the log that the database, restored from a backup, has not marked as published.
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
    # Held and diverged: an earlier run was interrupted.
    if not is_ours or (table.is_held and table.state is not MirrorState.DIVERGED):
        raise TableHeld(
            "the log belongs to other writers already, or the table is being imported or released",
            table=table.name,
            table_id=table_id,
            hint="Finish its import or its release, or call catalog.adopt().",
        )
    return table, LogSource(table.location, session.settings.storage_options)


def _compare(session: CatalogSession, table: HeldTable, source: LogSource) -> LogComparison:
    listing = source.listing
    # An interrupted run may have imported versions of the log already, which are not visible yet.
    newest = table.current_version if not table.is_held else table.last_version
    agreed = _last_agreement(session, table, source, listing, newest)
    # Versions after the log's last one contradict nothing: they are not published yet.
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
        f"the log at {table.location} has no version in common with the catalog: it belongs to another table",
        table=table.name,
        table_id=table.table_id,
        hint="Check whether the right files are there. To keep both, import the log elsewhere under another name.",
    )
