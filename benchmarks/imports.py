"""Importing a table of very many files, beside deltalake opening the same log.

Each in its own process, one after the other for each log: what a noisy neighbour slows, it slows for both.
"""

from __future__ import annotations

import shutil
import time
from dataclasses import dataclass

from deltalake import DeltaTable

import deltars
from benchmarks.figures import OURS, Figure, Side, Target
from benchmarks.lane import Lane
from benchmarks.rig import Rig, in_own_process, new_catalog
from tests.support.large_log import LARGE_LOGS
from tests.support.memory import peak_mib

PEER = "delta-rs opens it"
LARGE = 1_000_000


@dataclass(frozen=True)
class Sizes:
    files: int = LARGE
    backends: tuple[str, ...] = ("postgres", "sqlite", "duckdb")
    forms: tuple[str, ...] = tuple(LARGE_LOGS)


def imports(rig: Rig, sizes: Sizes) -> list[Figure]:
    directory, figures = rig.new_directory("import"), []
    for form in sizes.forms:
        original = directory / form
        LARGE_LOGS[form](original, sizes.files)
        for backend in sizes.backends:
            # An import puts its fence into the log: each has a copy.
            place = directory / f"{form}-{backend}"
            shutil.copytree(original, place)
            theirs, their_memory = in_own_process(_open, str(place))
            ours, memory = in_own_process(_import, _uri(rig, backend), str(place))
            sides = {OURS: Side([ours], memory_mib=memory), PEER: Side([theirs], memory_mib=their_memory)}
            targets = [Target("at_most", 25), Target("memory_mib", 2_048)] if sizes.files >= LARGE else []
            what = f"{sizes.files:,} files of a {form}, into {backend}"
            figures.append(Figure(what, "s", sides, targets=targets))
    return figures


def _uri(rig: Rig, backend: str) -> str:
    return new_catalog(rig.server) if backend == "postgres" else rig.new_embedded_catalog(backend)


def _import(uri: str, place: str) -> tuple[float, float]:
    with deltars.connect(uri) as catalog:
        begun = time.perf_counter()
        catalog.import_table(place, "large")
        return time.perf_counter() - begun, peak_mib()


def _open(place: str) -> tuple[float, float]:
    begun = time.perf_counter()
    opened = DeltaTable(place)
    assert opened.get_add_actions().num_rows
    return time.perf_counter() - begun, peak_mib()


LANES = [
    Lane(
        "imports",
        "Importing a large table",
        "{sizes.files:,} files with statistics of two columns. delta-rs opens the log and lists its files. Memory is "
        "at least what the process that made the log had: an upper bound.",
        imports,
        {
            "tiny": Sizes(300, ("sqlite",), ("checkpoint",)),
            "quick": Sizes(20_000, ("postgres",), ("checkpoint",)),
            "full": Sizes(),
        },
        missed="the same as for large commits: an import is one.",
    ),
]
