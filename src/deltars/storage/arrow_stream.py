"""Stream through which Arrow writes a file."""

from __future__ import annotations

from typing import Any, cast

import pyarrow as pa

from deltars.storage.storage import Writer

BUFFER_BYTES = 1 << 18


def arrow_stream(sink: Writer) -> pa.BufferedOutputStream:
    """Return a stream into a file. It is buffered, because Arrow makes a write call for each page and header.

    The caller flushes the stream and closes the file.
    """
    return pa.BufferedOutputStream(pa.PythonFile(cast(Any, _Behind(sink)), mode="w"), BUFFER_BYTES)


class _Behind:
    """File behind the buffer. The buffer flushes when it is destroyed, so what comes after `discard` is dropped."""

    closed = False

    def __init__(self, sink: Writer) -> None:
        self._sink = sink

    def write(self, data: bytes | memoryview) -> int:
        return memoryview(data).nbytes if self._sink.is_discarded else self._sink.write(data)

    def tell(self) -> int:
        return self._sink.tell()

    def flush(self) -> None:
        """Do nothing: no part of the file is visible before it is closed."""

    def close(self) -> None:
        """Do nothing: Arrow closes the stream when it is destroyed, whatever became of the file."""
