"""A copied table: the metadata and the files of an old version of another table.

a new table          version 0, with the files at the paths that they have in the source
a table it replaces  the next version; the files are in a new directory, beside those of older versions
"""

from __future__ import annotations

import time
from dataclasses import replace

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from deltars.errors import ValidationError
from deltars.log.arrow_adds import deletion_vectors
from deltars.log.commit import RowGroup
from deltars.log.new_table import NO_VERSION, NewTable
from deltars.log.snapshot import Snapshot
from deltars.protocol import Action, AddFile, Metadata, Protocol, check_protocol, protocol_of, supported_features
from deltars.protocol.deletion_vectors import VECTOR_NAME_CHARACTERS
from deltars.protocol.deletion_vectors import relative_path as vector_path
from deltars.protocol.features import NEW_TABLE_FEATURES
from deltars.protocol.paths import is_absolute, path_to_uri
from deltars.protocol.properties import ENABLEMENT_TIMESTAMP, ENABLEMENT_VERSION
from deltars.protocol.row_tracking import MATERIALIZED
from deltars.storage import Storage
from deltars.storage.table_files import relative_path
from deltars.transaction.create_table import replacement_actions
from deltars.transaction.metadata import IN_COMMIT_TIMESTAMPS, raised, with_row_id_columns
from deltars.transaction.restoration import is_restored_domain, row_groups_of
from deltars.transaction.staged_table import StagedTable, Step, adds_of
from deltars.transaction.view import View

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


def replaced_table(
    view: View, table: StagedTable, snapshot: Snapshot, source: Storage, directory: str
) -> tuple[StagedTable, list[Action], Step, list[RowGroup]]:
    """Return the step that replaces a table by the copy. Its files are in this directory of the table.

    Rows get new ids: the table may have given their old ones to other rows. The table counts as read in whole.
    """
    assert table.metadata is not None
    assert table.protocol is not None
    _protocol(snapshot)  # raises if the table would have a feature that is not supported
    configuration = {
        key: value for key, value in _kept_properties(snapshot.metadata).items() if key not in MATERIALIZED
    }
    metadata = with_row_id_columns(
        msgspec.structs.replace(
            snapshot.metadata,
            id=table.metadata.id,
            configuration=configuration,
            created_time=table.metadata.created_time,
        )
    )
    old = view.files(table, None)
    domains = [domain for name, domain in snapshot.domains.items() if is_restored_domain(name)]
    replacement = replacement_actions(
        table, table.metadata, table.protocol, old, [metadata, *domains], view.domains(table)
    )
    _, others, step, groups = copied_table(NewTable(table.table_id, table.name, table.location), snapshot, source)
    adds = [_in_directory(action, directory) for action in others if isinstance(action, AddFile)]
    metrics = {"numRemovedFiles": old.num_rows, "removedFilesSize": pc.sum(old["size"]).as_py() or 0}
    actions = [
        *raised(table.protocol, supported_features(snapshot.protocol)),
        *(action for action in replacement if not isinstance(action, Protocol)),
        *adds,
    ]
    moved = [replace(group, path=f"{directory}/{group.path}") for group in groups]
    return table, actions, replace(step, metrics={**step.metrics, **metrics}), moved


def _in_directory(add: AddFile, directory: str) -> AddFile:
    """Return a file, and its vector's file, in another directory of the table."""
    vector = add.deletion_vector
    if vector is not None and vector.storage_type != "i":
        inner = vector.path_or_inline_dv
        # A vector's file is named by its last characters. Those before them are its directory.
        is_plain = vector.storage_type == "u" and len(inner) == VECTOR_NAME_CHARACTERS
        text = f"{directory}{inner}" if is_plain else f"{directory}/{inner}"
        vector = msgspec.structs.replace(vector, path_or_inline_dv=text)
    return msgspec.structs.replace(
        add,
        path=f"{directory}/{add.path}",
        deletion_vector=vector,
        base_row_id=None,
        default_row_commit_version=None,
    )


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
    return msgspec.structs.replace(
        snapshot.metadata,
        id=str(new.table_id),
        configuration=_kept_properties(snapshot.metadata),
        created_time=int(time.time() * 1000),
    )


def _kept_properties(metadata: Metadata) -> dict[str, str]:
    # All commits of the copy have in-commit timestamps. Since when is not what the source says.
    gone = (ENABLEMENT_VERSION, ENABLEMENT_TIMESTAMP)
    kept = {key: value for key, value in metadata.configuration.items() if key not in gone}
    return {**kept, IN_COMMIT_TIMESTAMPS: "true"}


def _inside(source: Storage, add: AddFile) -> AddFile:
    """Return the file with a path relative to the table."""
    if not is_absolute(add.path):
        return add
    return msgspec.structs.replace(add, path=path_to_uri(relative_path(source, add.path)))
