"""A small catalog to attack, and what is compared before and after a call.

with World(directory) as world:
    world.catalog …                     two tables, a tag, three versions
    before = world.state()
    …
    world.state() == before             nothing was changed: neither a row nor a file
    world.reset()                       as at the beginning
"""

from __future__ import annotations

import hashlib
import os
import shutil
import sqlite3
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any

import pyarrow as pa

import deltars

Files = dict[str, tuple[int, int]]
Rows = dict[str, str]

BOOKKEEPING = frozenset({"dl_conflicts", "dl_reads", "dl_writers", "dl_mirror_status", "dl_schema_version"})
"""Tables that record attempts, too: a refused call may write there."""


def frame() -> pa.Table:
    return pa.table({"id": pa.array([7, 8], pa.int64()), "name": ["seven", "eight"]})


class World:
    def __init__(self, directory: Path) -> None:
        self.root = directory / "world"
        self._original = directory / "original"
        self._make()
        self.root.rename(self._original)
        self._catalog: deltars.Catalog | None = None
        self._watch: sqlite3.Connection | None = None
        self._before: tuple[int, Rows] | None = None
        self.reset()

    def __enter__(self) -> World:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._close()

    @property
    def catalog(self) -> deltars.Catalog:
        assert self._catalog is not None
        return self._catalog

    @property
    def uri(self) -> str:
        return f"deltasql://sqlite/{self.root}/catalog.db"

    def _make(self) -> None:
        (self.root / "outside").mkdir(parents=True)
        (self.root / "outside" / "secret.txt").write_text("not yours")
        (self.root / "here").mkdir()
        with deltars.connect(self.uri, warehouse=str(self.root / "warehouse")) as catalog:
            catalog.create_table("features", "id BIGINT, name STRING", description="to be attacked")
            catalog.create_table("other", "id BIGINT, day DATE", partition_by="day")
            catalog.write("features", frame())
            catalog.tag("first")
            catalog.write("features", frame())

    def reset(self) -> None:
        """Restore the catalog and all files."""
        self._close()
        shutil.rmtree(self.root, ignore_errors=True)
        shutil.copytree(self._original, self.root, symlinks=True)
        os.chdir(self.root / "here")
        self._catalog = deltars.connect(self.uri)
        self._watch = sqlite3.connect(self.root / "catalog.db", isolation_level=None)
        self._before = None

    def _close(self) -> None:
        if self._watch is not None:
            self._watch.close()
        if self._catalog is not None:
            with suppress(deltars.DeltarsError):
                self._catalog.close()
        self._watch = self._catalog = None

    # -- what is compared ----------------------------------------------------------------------------------------------

    def state(self) -> tuple[Rows, Files]:
        """Return a digest of each table of the catalog, and size and inode of each file."""
        return self._rows(), self._files()

    def _rows(self) -> Rows:
        assert self._watch is not None
        (changed,) = self._watch.execute("PRAGMA data_version").fetchone()
        if self._before is not None and self._before[0] == changed:
            return self._before[1]
        found: Rows = {}
        names = self._watch.execute("SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY name").fetchall()
        for (name,) in names:
            if name in BOOKKEEPING or name.startswith("sqlite_"):
                continue
            rows = sorted(map(repr, self._watch.execute(f'SELECT * FROM "{name}"').fetchall()))
            found[name] = hashlib.sha256("\n".join(rows).encode(errors="surrogatepass")).hexdigest()
        self._before = changed, found
        return found

    def _files(self) -> Files:
        found: Files = {}
        for place, directories, files in os.walk(self.root):
            for name in files:
                if place == str(self.root) and name.startswith("catalog.db"):
                    continue
                status = os.lstat(os.path.join(place, name))
                found[os.path.relpath(os.path.join(place, name), self.root)] = status.st_size, status.st_ino
            if not files and not directories:
                found[os.path.relpath(place, self.root) + "/"] = 0, 0
        return found

    def stored_texts(self) -> str:
        """Return every text of the catalog's rows, one after the other."""
        assert self._watch is not None
        names = self._watch.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall()
        texts: list[str] = []
        for (name,) in names:
            for row in self._watch.execute(f'SELECT * FROM "{name}"'):
                texts += [value for value in row if isinstance(value, str)]
        return "\n".join(texts)


def difference(before: tuple[Any, Any], after: tuple[Any, Any]) -> str:
    """Return which rows and files differ between two states."""
    (rows, files), (new_rows, new_files) = before, after
    tables = sorted(name for name in {*rows, *new_rows} if rows.get(name) != new_rows.get(name))
    changed = sorted(name for name in {*files, *new_files} if files.get(name) != new_files.get(name))
    return f"tables {tables}, files {changed[:5]}" + (f" and {len(changed) - 5} more" if len(changed) > 5 else "")
