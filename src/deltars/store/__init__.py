"""SQL side of the catalog: the schema and its migrations, the three backends, the log's reader and writer."""

from typing import TYPE_CHECKING

from deltars.late_names import late_names

if TYPE_CHECKING:
    from deltars.store import grants
    from deltars.store.commit.conflict_log import record_conflict
    from deltars.store.commit.statements import lock_tables, next_commit_ts
    from deltars.store.commit.winner import lost_race
    from deltars.store.commit.writer import LogWriter
    from deltars.store.heartbeat import Heartbeat
    from deltars.store.identities import Identities, IdentityRange
    from deltars.store.mirror.status import MirrorMode
    from deltars.store.read.as_of import AsOf, CutFinder
    from deltars.store.read.cuts import Cut, Cuts
    from deltars.store.read.reader import LogReader
    from deltars.store.read.version_header import history_expired
    from deltars.store.tags import Tags
    from deltars.store.vacuum_marks import condemn_dropped
    from deltars.store.writers import Writers
else:
    __getattr__ = late_names(
        __name__,
        {
            "commit.conflict_log": "record_conflict",
            "commit.statements": "lock_tables next_commit_ts",
            "commit.winner": "lost_race",
            "commit.writer": "LogWriter",
            "grants": "grants",
            "heartbeat": "Heartbeat",
            "identities": "Identities IdentityRange",
            "mirror.status": "MirrorMode",
            "read.as_of": "AsOf CutFinder",
            "read.cuts": "Cut Cuts",
            "read.reader": "LogReader",
            "read.version_header": "history_expired",
            "tags": "Tags",
            "vacuum_marks": "condemn_dropped",
            "writers": "Writers",
        },
    )
