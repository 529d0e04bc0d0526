"""High-water marks of identity columns after rows were written."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from deltars.data.write_target import WrittenFile
from deltars.errors import ValidationError
from deltars.protocol import Metadata
from deltars.protocol.identity import counted, with_marks

_decode = msgspec.json.Decoder(dict[str, Any]).decode


def after_rows(metadata: Metadata, names: Iterable[str], files: Sequence[WrittenFile]) -> Metadata:
    """Return the metadata with the marks after files were written for rows with these columns.

    The same object is returned if the table counted nothing.
    """
    marks = {}
    for name, identity in counted(metadata.schema, names).items():
        physical = metadata.schema[name].physical_name
        ends = [end for file in files for end in _ends(file, physical, name)]
        if ends:
            marks[name] = identity.last_of(ends)
    if not marks:
        return metadata
    return msgspec.structs.replace(metadata, schema_string=with_marks(metadata.schema, marks).to_json())


def _ends(file: WrittenFile, physical: str, name: str) -> list[int]:
    stats = _decode(file.add.stats or "{}")
    if stats.get("numRecords") == 0:
        return []
    try:
        return [int(stats[part][physical]) for part in ("minValues", "maxValues")]
    except (KeyError, TypeError, ValueError):
        raise ValidationError(
            f"the file {file.add.path} has no statistics of the identity column {name}", field=name
        ) from None
