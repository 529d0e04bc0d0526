"""Statements that are built for one test only: a process keeps those that it built, for all catalogs."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from unittest import mock

from deltars.remembered import Remembered
from deltars.store.backends import base


@contextmanager
def built_anew() -> Iterator[None]:
    """Have catalogs that are opened here build their statements, and forget them at the end."""
    with (
        mock.patch.object(base, "_kept", Remembered(base.MAX_KEPT)),
        mock.patch.object(base, "_shared", Remembered(base.MAX_SHARED)),
    ):
        yield
