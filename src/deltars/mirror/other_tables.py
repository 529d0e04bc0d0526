"""Files in a table's directory that belong to other tables: they are no orphans and must not be deleted with it.

The catalog's own database counts as one, if it is a file there.

| belongs to another table           | if                                                                    |
|------------------------------------|-----------------------------------------------------------------------|
| everything below `x/`              | there is an `x/_delta_log`, or the catalog has a table at `x`         |
| a file                             | another table's log names it by its full URI, as a shallow clone does |
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from deltars.errors import ValidationError
from deltars.protocol import is_absolute, uri_to_path
from deltars.protocol.log_files import LOG
from deltars.storage import Places, Relation, Storage
from deltars.store.mirror.audit import AuditRows
from deltars.store.mirror.status import MirrorStatus
from deltars.store.registry import Registry


@dataclass(frozen=True, slots=True)
class OthersFiles:
    roots: tuple[str, ...]
    """Beginnings of paths: directories below the table's, with a slash at the end, and the catalog's database."""
    files: frozenset[str]

    def has(self, path: str) -> bool:
        return path.startswith(self.roots) or path in self.files


def others_files(
    status: MirrorStatus, storage: Storage, listed: Iterable[str], *, registry: Registry, audit: AuditRows
) -> OthersFiles:
    """Return which files in a table's directory belong to other tables, by the catalog and by the listing."""
    places = Places()
    roots = {path.partition(f"/{LOG}/")[0] for path in listed if f"/{LOG}/" in path}
    for other in registry.neighbours(status.location, but=status.table_id):
        if other.relation is Relation.AROUND and (root := places.below(other.location, status.location)):
            roots.add(root)
    named = (path_below(storage, uri, places) for uri in audit.absolute_paths(but=status.table_id))
    begins = [f"{root}/" for root in sorted(roots)]
    if registry.database_file and (database := places.below(registry.database_file, status.location)):
        # A database may have more files, whose names begin with its own.
        begins.append(database)
    return OthersFiles(tuple(begins), frozenset(path for path in named if path))


def path_below(storage: Storage, uri: str, places: Places) -> str | None:
    """Return a file's path below the storage's root, from its URI in a log. Return None if it lies elsewhere."""
    try:
        path = uri_to_path(uri)
        return places.below(path, storage.root) if is_absolute(uri) else path
    except ValidationError:
        # An invalid path names no file in this directory.
        return None
