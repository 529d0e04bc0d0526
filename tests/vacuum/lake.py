"""Tables with a past, for vacuums to work on."""

from __future__ import annotations

import os
import time
from datetime import timedelta
from pathlib import Path
from typing import TypedDict

import pyarrow as pa
from sqlalchemy import update

import deltars
from deltars.store.schema import dl_add_files, dl_mirror_log, dl_table_versions


class _Now(TypedDict):
    retention: timedelta
    force: bool


NOW: _Now = {"retention": timedelta(0), "force": True}
"""Options of a vacuum that deletes whatever it may."""
VECTORS = {"delta.enableDeletionVectors": "true"}


def rows(*ids: int) -> pa.Table:
    return pa.table({"id": pa.array(ids, pa.int64())})


def ids(table: deltars.Table, version: int | None = None, as_of: str | None = None) -> list[int]:
    return sorted(table.to_arrow(version=version, as_of=as_of)["id"].to_pylist())


def overwritten(catalog: deltars.Catalog, name: str = "t", times: int = 3) -> deltars.Table:
    """A table of which each version n > 0 has the one row n, in a file that the next version removes."""
    table = catalog.create_table(name, "id BIGINT")
    for number in range(1, times + 1):
        table.write(rows(number), "overwrite")
    return table


def files(table: deltars.Table, pattern: str = "*") -> set[str]:
    """Files in the table's directory, but for its log."""
    root = Path(table.location)
    found = (path for path in root.rglob(pattern) if path.is_file() and "_delta_log" not in path.parts)
    return {str(path.relative_to(root)) for path in found}


def live(table: deltars.Table, version: int | None = None) -> set[str]:
    return set(table.files(version)["path"].to_pylist())


def put(table: deltars.Table, path: str, *, days_old: float = 0, content: bytes = b"x") -> Path:
    """Put a file into a table's directory."""
    file = Path(table.location) / path
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(content)
    age(file, days_old)
    return file


def age(file: Path, days: float) -> None:
    moment = time.time() - days * 86_400
    os.utime(file, (moment, moment))


def spell(table: deltars.Table, version: int, path: str, spelling: str) -> None:
    """Let the catalog name a file that a version added in another way, as an imported log may."""
    with table._session.database.write(30) as connection:
        mine = (dl_add_files.c.table_id == table.id, dl_add_files.c.version == version, dl_add_files.c.path == path)
        assert connection.execute(update(dl_add_files).where(*mine).values(path=spelling)).rowcount == 1


def publish_earlier(table: deltars.Table, days: float, *, up_to: int | None = None) -> None:
    """As if the table's versions had been committed and published so many days ago."""
    earlier_us = int(days * 86_400_000_000)
    last = table.version if up_to is None else up_to
    with table._session.database.write(30) as connection:
        for part, column in ((dl_mirror_log, "published_at"), (dl_table_versions, "commit_ts")):
            mine = (part.c.table_id == table.id, part.c.version <= last)
            connection.execute(update(part).where(*mine).values({column: part.c[column] - earlier_us}))
