"""Processor time of one small commit, in this process: it hardly moves with a noisy neighbour, unlike wall time.

    python -m benchmarks.commit_cost [--lanes log,stage,append,rows] [--backends postgres,sqlite] [--against DIRECTORY]

    log     SqlTxnLogWriter.commit of one file
    stage   begin, stage one file, commit; no mirror
    append  the same at the level `serializable`: a blind append, which could share its transaction
    rows    ten Arrow rows: written, committed, published to `_delta_log`

`--against` names another checkout, whose rounds alternate with ours.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa

import deltars
from benchmarks.report import table
from benchmarks.rig import SCHEMA, add_file, durable_server, new_catalog
from tests.support.run_directory import RunDirectory

WARM_UP = 60
_HERE = Path(__file__).parent.parent


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--lanes", default=",".join(LANES))
    parser.add_argument("--backends", default="postgres,sqlite")
    parser.add_argument("--against", type=Path, help="another checkout to compare with")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--commits", type=int, default=300)
    parser.add_argument("--one-round", nargs=2, metavar=("LANE", "URI"), help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.one_round:
        lane, uri = arguments.one_round
        print(json.dumps(_round(LANES[lane], uri, arguments.commits)))
        return
    trees = {"ours": _HERE} | ({"theirs": arguments.against.resolve()} if arguments.against else {})
    rows: list[list[object]] = []
    for backend in arguments.backends.split(","):
        with _catalogs(backend) as new_uri:
            for lane in arguments.lanes.split(","):
                seen: dict[str, list[tuple[float, float]]] = {name: [] for name in trees}
                for _ in range(arguments.rounds):
                    for name, tree in trees.items():
                        seen[name].append(_in_tree(tree, lane, new_uri(), arguments.commits))
                for name, results in seen.items():
                    cpu, wall = (statistics.median(column) for column in zip(*results, strict=True))
                    rows.append([backend, lane, name, f"{cpu:,.0f}", f"{wall:,.0f}"])
    print(table(["backend", "lane", "checkout", "CPU µs a commit", "wall µs"], rows), flush=True)


def _log(catalog: deltars.Catalog) -> Callable[[], None]:
    table_id, writer, version = catalog.create_table("t", SCHEMA).id, deltars.SqlTxnLogWriter(catalog), 0

    def commit() -> None:
        nonlocal version
        version += 1
        writer.commit(table_id, version, [add_file(version)], operation="WRITE", operation_params={"mode": "Append"})

    return commit


def _stage(catalog: deltars.Catalog) -> Callable[[], None]:
    catalog.create_table("t", SCHEMA)

    def commit() -> None:
        with catalog.begin(mirror="off") as tx:
            tx.stage("t", [add_file(1)])

    return commit


def _append(catalog: deltars.Catalog) -> Callable[[], None]:
    catalog.create_table("t", SCHEMA)

    def commit() -> None:
        with catalog.begin(mirror="off", isolation="serializable") as tx:
            tx.stage("t", [add_file(1)])

    return commit


def _rows(catalog: deltars.Catalog) -> Callable[[], object]:
    rows = pa.table({"id": range(10), "name": [f"name {i}" for i in range(10)], "score": [i / 3 for i in range(10)]})
    catalog.write("t", rows)
    return lambda: catalog.write("t", rows)


LANES: dict[str, Callable[[deltars.Catalog], Callable[[], object]]] = {
    "log": _log,
    "stage": _stage,
    "append": _append,
    "rows": _rows,
}


def _round(prepare: Callable[[deltars.Catalog], Callable[[], object]], uri: str, commits: int) -> tuple[float, float]:
    with deltars.connect(uri) as catalog:
        commit = prepare(catalog)
        for _ in range(WARM_UP):
            commit()
        cpu, wall = time.process_time(), time.perf_counter()
        for _ in range(commits):
            commit()
    # Closing the catalog waits for what goes on behind a commit, such as checkpoints.
    return (time.process_time() - cpu) / commits * 1e6, (time.perf_counter() - wall) / commits * 1e6


def _in_tree(tree: Path, lane: str, uri: str, commits: int) -> tuple[float, float]:
    environment = os.environ | {"PYTHONPATH": f"{tree / 'src'}{os.pathsep}{_HERE}"}
    command = [sys.executable, "-m", "benchmarks.commit_cost", "--one-round", lane, uri, "--commits", str(commits)]
    done = subprocess.run(command, env=environment, cwd=_HERE, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(done.stderr)
    cpu, wall = json.loads(done.stdout.splitlines()[-1])
    return cpu, wall


@contextmanager
def _catalogs(backend: str) -> Iterator[Callable[[], str]]:
    """Yield a function that makes an empty catalog and returns its URI."""
    if backend == "postgres":
        run = RunDirectory()
        try:
            server = durable_server()
            yield lambda: new_catalog(server)
        finally:
            run.close()
        return
    with tempfile.TemporaryDirectory() as directory:
        yield lambda: f"deltasql://{backend}/{tempfile.mkdtemp(dir=directory)}/catalog.db"


if __name__ == "__main__":
    main()
