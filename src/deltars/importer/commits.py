"""Commit reader: reads one commit of a log line by line, in bounded memory.

<version>.json ──a batch of lines──> actions, checked one by one ──> …
                                     protocol and metaData first, wherever they are in the file: the checks of
                                     file actions depend on them
"""

from __future__ import annotations

import io
import os
from collections.abc import Iterator
from hashlib import sha256
from typing import BinaryIO, cast

from deltars.errors import DamagedLog, DeltarsError, ValidationError
from deltars.importer.file_actions import canonical, check_imported
from deltars.protocol import Action, CommitInfo, Metadata, Protocol
from deltars.protocol.foreign_actions import decode_foreign_action
from deltars.storage import ObjectInfo, Storage
from deltars.storage.table_files import refuse_link_outside

BATCH_ACTIONS = 10_000
MAX_LINE_BYTES = 64 * 1024 * 1024
READ_BYTES = 1024 * 1024
SMALL_BYTES = 8 * 1024 * 1024


class CommitFile:
    """One commit file. `info` and `digest` are set once `batches` has been read to the end."""

    def __init__(self, storage: Storage, file: ObjectInfo) -> None:
        self._storage = storage
        self._file = file
        self.info: CommitInfo | None = None
        self.digest = ""

    def batches(self) -> Iterator[list[tuple[int, Action]]]:
        """Yield batches of actions with their positions in the commit, without `commitInfo`."""
        seen: set[tuple[str, ...]] = set()
        late = self._late_heads(seen) if self._file.size > SMALL_BYTES else {}
        batch: list[tuple[int, Action]] = list(late.items())
        content = sha256()
        for place, line in enumerate(self._lines()):
            content.update(line)
            action = None if place in late or not line.strip() else self._action(place, line, seen)
            if isinstance(action, CommitInfo):
                self.info = self.info or action
            elif action is not None:
                batch.append((place, action))
            if len(batch) >= BATCH_ACTIONS:
                yield batch
                batch = []
        self.digest = content.hexdigest()
        yield batch

    def read_digest(self) -> str:
        """Return the digest without parsing the file."""
        content = sha256()
        with open_log_file(self._storage, self._file.path) as file:
            while part := file.read(READ_BYTES):
                content.update(part)
        return content.hexdigest()

    def _late_heads(self, seen: set[tuple[str, ...]]) -> dict[int, Action]:
        """Return protocol and metaData of a large commit. This is an extra pass over the file."""
        found: dict[int, Action] = {}
        for place, line in enumerate(self._lines()):
            if line.startswith((b'{"metaData"', b'{"protocol"')):
                action = self._action(place, line, seen)
                if isinstance(action, Metadata | Protocol):
                    found[place] = action
        return found

    def _action(self, place: int, line: bytes, seen: set[tuple[str, ...]]) -> Action | None:
        try:
            action = decode_foreign_action(line)
            if action is None:
                return None
            action = canonical(action)
            check_imported(action, seen, has_null=b"\\u0000" in line)
            return action
        except ValidationError as error:
            raise DamagedLog(
                f"{self._file.path}, line {place + 1}: {error.message}", path=self._file.path, field=error.field
            ) from error
        except RecursionError as error:
            raise DamagedLog(f"{self._file.path}, line {place + 1}: nested too deeply", path=self._file.path) from error

    def _lines(self) -> Iterator[bytes]:
        with open_log_file(self._storage, self._file.path) as file:
            while line := file.readline(MAX_LINE_BYTES + 1):
                if len(line) > MAX_LINE_BYTES:
                    raise DamagedLog(
                        f"{self._file.path} has a line of more than {MAX_LINE_BYTES:,} bytes", path=self._file.path
                    )
                yield line


def open_log_file(storage: Storage, path: str) -> BinaryIO:
    """Open a log file for buffered reading. Refuse a symbolic link that leads out of the table."""
    try:
        if storage.location.is_local:
            refuse_link_outside(storage, os.path.join(storage.location.path, path))
        return cast(BinaryIO, io.BufferedReader(cast(io.RawIOBase, storage.open_reader(path)), READ_BYTES))
    except DeltarsError as error:
        raise DamagedLog(f"{path} cannot be read: {error.message}", path=path) from error
