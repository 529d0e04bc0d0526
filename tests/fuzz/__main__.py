"""Search for inputs that break a parser, by the branches that they reach: `python -m tests.fuzz --minutes 60`.

    for each target    a process of its own, for its share of the time ──▶ build/fuzz/TARGET: the corpus, and crash-…

`make setup` does not install atheris: run `pip install atheris`. Put an input that breaks a parser into
`tests/fuzz/found/TARGET`, so that `make test` tries it from then on.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from importlib import import_module
from pathlib import Path

PLACE = Path(__file__).parents[2] / "build" / "fuzz"


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("targets", nargs="*", help="all, if none is named")
    parser.add_argument("--minutes", type=float, default=60)
    parser.add_argument("--one", action="store_true", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.one:
        _fuzz(asked.targets[0], asked.minutes * 60)
    names = asked.targets or list(import_module("tests.fuzz.targets").TARGETS)
    PLACE.mkdir(parents=True, exist_ok=True)
    broken = [name for name in names if not _fuzz_elsewhere(name, asked.minutes * 60 / len(names))]
    print(f"{len(names) - len(broken)} passed, {len(broken)} failed")
    return 1 if broken else 0


def _fuzz_elsewhere(name: str, seconds: float) -> bool:
    """Return whether nothing was found. libFuzzer ends its process."""
    command = [sys.executable, "-m", "tests.fuzz", name, "--one", "--minutes", str(seconds / 60)]
    ended = subprocess.run(command, capture_output=True, text=True, errors="replace", check=False)
    (PLACE / f"{name}.log").write_text(ended.stdout + ended.stderr)
    runs = [line for line in ended.stderr.splitlines() if line.startswith(("Done", "stat::number_of_executed_units"))]
    print(f"{name}: {runs[-1] if runs else f'see {PLACE}/{name}.log'}", flush=True)
    return ended.returncode == 0


def _fuzz(name: str, seconds: float) -> None:
    atheris = import_module("atheris")
    # What it watches is instrumented when it is imported.
    with atheris.instrument_imports(include=["deltars", "sqlglot"]):
        targets = import_module("tests.fuzz.targets")
    place = PLACE / name
    place.mkdir(parents=True, exist_ok=True)
    for number, data in enumerate(targets.corpus(name)):
        (place / f"seed-{number}").write_bytes(data)

    def one(data: bytes) -> None:
        targets.survives(targets.TARGETS[name], data)

    options = [f"-max_total_time={seconds:.0f}", f"-artifact_prefix={place}/", "-timeout=20", "-rss_limit_mb=4096"]
    atheris.Setup([sys.argv[0], str(place), *options, "-print_final_stats=1"], one)
    atheris.Fuzz()


if __name__ == "__main__":
    sys.exit(main())
