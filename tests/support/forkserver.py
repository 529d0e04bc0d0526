"""Processes for tests, each forked from a server that has loaded deltars, used it once, and holds nothing open.

A process that began with nothing would take a second to load deltars: longer than what most tests do in it.
"""

from __future__ import annotations

import multiprocessing
from multiprocessing.context import ForkServerContext


def forkserver() -> ForkServerContext:
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["tests.support.rehearsal"])
    return context
