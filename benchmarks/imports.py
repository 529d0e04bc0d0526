"""Importing a table of very many files, beside deltalake opening the same log.

    python -m benchmarks.imports [--quick] [--only postgres,sqlite,duckdb]

Each in a process of its own, one after the other for each log: what a noisy neighbour slows, it slows for both.
"""

from __future__ import annotations

import argparse
import shutil
import tempfile
import time
from pathlib import Path

from deltalake import DeltaTable

import deltars
from benchmarks.report import table, write_section
from benchmarks.rig import durable_server, in_own_process, new_catalog
from deltars.uri import BACKENDS
from tests.support.large_log import LARGE_LOGS
from tests.support.memory import peak_mib
from tests.support.run_directory import RunDirectory

FILES = 1_000_000
QUICK_FILES = 20_000
TITLE = "Importing a large table"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="small sizes, nothing is written to the docs")
    parser.add_argument("--only", default=",".join(BACKENDS))
    arguments = parser.parse_args()
    files = QUICK_FILES if arguments.quick else FILES
    run = RunDirectory()
    try:
        with tempfile.TemporaryDirectory() as directory:
            body = measure(Path(directory), files, arguments.only.split(","))
    finally:
        run.close()
    print(f"\n{TITLE}\n\n{body}", flush=True)
    if not arguments.quick:
        write_section(TITLE, "make bench-import", body)


def measure(directory: Path, files: int, backends: list[str]) -> str:
    rows: list[list[object]] = []
    for form, make in LARGE_LOGS.items():
        original = directory / form
        make(original, files)
        for backend in backends:
            # An import puts its fence into the log: each has a copy.
            place = directory / f"{form}-{backend}"
            shutil.copytree(original, place)
            theirs, their_memory = in_own_process(_open, str(place))
            ours, memory = in_own_process(_import, _uri(backend, place), str(place))
            rows.append(
                [
                    f"{form}, {backend}",
                    f"{ours:.1f}",
                    f"{theirs:.1f}",
                    f"{ours / theirs:.1f}",
                    f"{memory:,.0f}",
                    f"{their_memory:,.0f}",
                    "120 s, 2,048 MiB",
                ]
            )
            print(rows[-1], flush=True)
    ours_of, theirs_of = ("import, s", "memory, MiB"), ("deltalake opens it, s", "memory of deltalake, MiB")
    header = ["from, into", ours_of[0], theirs_of[0], "times deltalake", ours_of[1], theirs_of[1], "target"]
    note = (
        f"{files:,} files with statistics of two columns. deltalake opens the log and lists its files. "
        "Memory is at least what the process that made the log had: an upper bound."
    )
    return f"{note}\n\n{table(header, rows)}"


def _uri(backend: str, place: Path) -> str:
    if backend == "postgres":
        return new_catalog(durable_server())
    return f"deltasql://{backend}/{place}.db"


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


if __name__ == "__main__":
    main()
