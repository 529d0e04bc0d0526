"""What the top of the house hands down to layers that must not import it.

    deltars/__init__ ── provide_spark(factory) ──▶ here ──▶ transaction.plane.spark_plane()

A module of its own, and one that imports nothing: `import deltars` wires the parts together without loading them.
"""

from __future__ import annotations

from collections.abc import Callable

_spark: Callable[[], object] | None = None


def provide_spark(factory: Callable[[], object]) -> None:
    global _spark
    _spark = factory


def provided_spark() -> object | None:
    """The Spark plane, made by the factory that was provided."""
    return None if _spark is None else _spark()
