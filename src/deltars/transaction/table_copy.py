"""Version 0 of a copied table: the metadata and the files of an old version, under a new id."""

from __future__ import annotations

import time

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from deltars.errors import ValidationError
from deltars.log.arrow_adds import deletion_vectors
from deltars.log.commit import RowGroup
from deltars.log.new_table import NO_VERSION, NewTable
from deltars.log.snapshot import Snapshot
from deltars.protocol import Action, AddFile, Metadata, Protocol, check_protocol, protocol_of, supported_features
from deltars.protocol.deletion_vectors import relative_path as vector_path
from deltars.protocol.features import NEW_TABLE_FEATURES
from deltars.protocol.paths import is_absolute, path_to_uri
from deltars.protocol.properties import ENABLEMENT_TIMESTAMP, ENABLEMENT_VERSION
from deltars.storage import Storage
from deltars.storage.table_files import relative_path
from deltars.transaction.metadata import IN_COMMIT_TIMESTAMPS
from deltars.transaction.restoration import is_restored_domain, row_groups_of
from deltars.transaction.staged_table import StagedTable, Step, adds_of

CLONE = "CLONE"


def copied_table(
    new: NewTable, snapshot: Snapshot, source: Storage
) -> tuple[StagedTable, list[Action], Step, list[RowGroup]]:
    """Return the new table, and the step that fills it. Its files are at the same paths as those of the source."""
    table = StagedTable(
        new.table_id,
        new.name,
        new.location,
        NO_VERSION,
        None,
        new=new,
        initial=[_protocol(snapshot), _metadata(new, snapshot)],
    )
    files = snapshot.files
    adds = [_inside(source, add) for add in adds_of(files)]
    domains = [domain for name, domain in snapshot.domains.items() if is_restored_domain(name)]
    size, count = pc.sum(files["size"]).as_py() or 0, files.num_rows
    step = Step(
        CLONE,
        {"source": source.root, "sourceVersion": snapshot.version, "isShallow": False},
        {
            "sourceTableSize": size,
            "sourceNumOfFiles": count,
            "numRemovedFiles": 0,
            "numCopiedFiles": count,
            "removedFilesSize": 0,
            "copiedFilesSize": size,
        },
    )
    groups = [group for group in row_groups_of(snapshot, files) if not is_absolute(group.path)]
    return table, [*domains, *adds], step, groups


def refuse_absolute_vectors(files: pa.Table) -> None:
    """Raise for a vector that is named by an absolute path: that path would stay the source's."""
    for vector in deletion_vectors(files["deletion_vector"]):
        if vector is not None and vector.storage_type != "i" and vector_path(vector) is None:
            raise ValidationError(
                f"the deletion vector {vector.unique_id:.80} is named by an absolute path, so it cannot be copied",
                field="deletionVector",
                hint="Rewrite the table's files first, or read it and write the rows to a new table.",
            )


def _protocol(snapshot: Snapshot) -> Protocol:
    protocol = protocol_of({*supported_features(snapshot.protocol), *NEW_TABLE_FEATURES})
    problem = check_protocol(protocol)
    if problem is not None:
        raise ValidationError(f"the table cannot be copied: {problem}", field="protocol")
    return protocol


def _metadata(new: NewTable, snapshot: Snapshot) -> Metadata:
    # All commits of the new table have in-commit timestamps, so no property says since when.
    kept = {
        key: value
        for key, value in snapshot.metadata.configuration.items()
        if key not in (ENABLEMENT_VERSION, ENABLEMENT_TIMESTAMP)
    }
    return msgspec.structs.replace(
        snapshot.metadata,
        id=str(new.table_id),
        configuration={**kept, IN_COMMIT_TIMESTAMPS: "true"},
        created_time=int(time.time() * 1000),
    )


def _inside(source: Storage, add: AddFile) -> AddFile:
    """Return the file with a path relative to the table."""
    if not is_absolute(add.path):
        return add
    return msgspec.structs.replace(add, path=path_to_uri(relative_path(source, add.path)))
