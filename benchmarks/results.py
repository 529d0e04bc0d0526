"""The figures of all lanes as one JSON file. A lane that is run again replaces its own part, with its own date."""

from __future__ import annotations

import os
import platform
import re
import subprocess
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path

import msgspec

import deltars
from benchmarks.figures import Figure
from benchmarks.race import PEERS
from tests.support.delta_spark import DELTA
from tests.support.postgres import PostgresServer

_OF_PEERS = {"duckdb_extension_ducklake": "DuckLake", "pyiceberg": "PyIceberg"}
_ASK = f"from importlib.metadata import version\nfor name in {list(_OF_PEERS)}: print(name, version(name))"


class LaneResult(msgspec.Struct, frozen=True):
    """What one run of a lane found, and where."""

    title: str
    note: str
    size: str
    date: str
    machine: str
    load: float
    """Of the machine, when the lane ended: other programs included."""
    seconds: float
    versions: dict[str, str]
    figures: list[Figure]


class Results(msgspec.Struct):
    lanes: dict[str, LaneResult] = {}


def load(path: Path) -> Results:
    return msgspec.json.decode(path.read_bytes(), type=Results) if path.exists() else Results()


def save(path: Path, results: Results) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(msgspec.json.format(msgspec.json.encode(_rounded(results)), indent=1) + b"\n")


def _rounded(results: Results) -> object:
    """Four digits are more than a noisy machine can promise."""

    def walk(value: object) -> object:
        match value:
            case float():
                return float(f"{value:.4g}")
            case dict():
                return {key: walk(item) for key, item in value.items()}
            case list():
                return [walk(item) for item in value]
        return value

    return walk(msgspec.to_builtins(results))


def now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC")


def machine() -> str:
    model = re.search(r"model name\s*: (.*)", Path("/proc/cpuinfo").read_text())
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    name = model[1] if model else platform.machine()
    return f"{os.cpu_count()} cores ({name}), {memory:.0f} GiB"


def versions(server: PostgresServer) -> dict[str, str]:
    with server.connect() as connection:
        postgres = connection.execute("SHOW server_version").fetchone()
    assert postgres is not None
    found = {
        "deltars": deltars.__version__,
        "Python": platform.python_version(),
        "PostgreSQL": postgres[0].split()[0],
        "DuckDB": version("duckdb"),
        "delta-rs": version("deltalake"),
        "Spark": version("pyspark"),
        "delta-spark": DELTA,
    }
    if PEERS.exists():
        listed = subprocess.run([PEERS, "-c", _ASK], capture_output=True, text=True, check=True).stdout
        found |= {_OF_PEERS[name]: number for name, number in (line.split() for line in listed.splitlines())}
    return found
