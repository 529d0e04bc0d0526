"""Functions that Spark Connect sends to its server, and runs there.

The server loads them by their module's name. Where deltars is missing, Python's own error would name a module that the
user never wrote. So what is sent is a loader without deltars in it, and the object's parts as bytes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pyspark import cloudpickle


def sent_to_server(make: Callable[..., Any], parts: tuple[Any, ...]) -> tuple[Callable[..., Any], tuple[bytes]]:
    """Return what `__reduce__` returns for an object that `make(*parts)` makes."""

    def load(content: bytes) -> Any:
        import pickle

        try:
            made, given = pickle.loads(content)
        except ModuleNotFoundError as error:
            raise ModuleNotFoundError(
                f"the Spark Connect server, where foreachBatch runs, cannot import {error.name}. Install deltars in the"
                " server's Python, or send it with spark.addArtifacts(…, pyfile=True)."
            ) from error
        return made(*given)

    return load, (cloudpickle.dumps((make, parts)),)  # type: ignore[no-untyped-call]
