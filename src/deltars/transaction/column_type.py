"""Changes of a column's type that need no rewrite of its data files."""

from __future__ import annotations

from dataclasses import replace

from deltars.errors import ValidationError
from deltars.protocol import StructField
from deltars.protocol.char_varchar import CHAR_VARCHAR, Limit
from deltars.protocol.column_path import ColumnPath, path_text
from deltars.protocol.column_rules import limits_of
from deltars.protocol.identity import identity_of
from deltars.protocol.schema_change import widened, with_type_at
from deltars.protocol.schema_like import TypeLike, as_type_of_column

TYPE_WIDENING = "delta.enableTypeWidening"


def retyped(field: StructField, inside: ColumnPath, type_: TypeLike, path: ColumnPath) -> StructField:
    """Return a column with another type, at `inside` (element, key, value). Raise if it is not a wider one."""
    new = as_type_of_column(type_)
    if identity_of(field) is not None:
        raise ValidationError(f"the type of the identity column {path_text(path)} cannot change", field=path_text(path))
    column = path_text((*path, *inside))
    if not limits_of(field) and not limits_of(new):
        return widened(field, with_type_at(field.type, inside, new.type), column)
    before, after = limits_of(field).get(()), limits_of(new).get(())
    is_whole = not inside and field.type == new.type and set(limits_of(field)) | set(limits_of(new)) <= {()}
    if not is_whole or not _holds(before, after):
        shown = new.metadata.get(CHAR_VARCHAR, new.type)
        raise ValidationError(
            f"the type of {column} cannot change from {field.metadata.get(CHAR_VARCHAR, field.type)} to {shown}:"
            " strings in existing files may not fit",
            field=column,
            hint="A VARCHAR can become a longer VARCHAR or a STRING. For others, write the rows again:"
            " tx.write(table, rows, mode='overwrite', overwrite_schema=True).",
        )
    rest = {key: value for key, value in field.metadata.items() if key != CHAR_VARCHAR}
    return replace(field, metadata=rest if after is None else {**rest, CHAR_VARCHAR: str(after)})


def _holds(before: Limit | None, after: Limit | None) -> bool:
    """Return whether every string of one limit is one of the other."""
    if after is None or before == after:
        return True
    return before is not None and not after.is_padded and after.length >= before.length
