"""Run lanes, keep their figures as JSON, and write the page.

python -m benchmarks                       every lane, full size, into docs/
python -m benchmarks --size quick          the main ratios, into build/bench/
python -m benchmarks --only commits,bulk   some lanes; the figures of the others stay
python -m benchmarks --report              the page again, from the JSON that is there
"""

from __future__ import annotations

import argparse
import logging
import os
import sys
import time
import traceback
from pathlib import Path

from benchmarks.figures import OURS
from benchmarks.lane import SIZES, Lane
from benchmarks.lanes import LANES
from benchmarks.report import JSON, PAGE, figures_table, table, write
from benchmarks.results import LaneResult, load, machine, now, save, versions
from benchmarks.rig import Rig, open_rig

ROOT = Path(__file__).parent.parent


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", choices=SIZES, default="full")
    parser.add_argument("--only", help="names of lanes, separated by commas")
    parser.add_argument("--out", type=Path, help="where the JSON, the page and the plots are")
    parser.add_argument("--list", action="store_true", help="list the lanes and their sizes")
    parser.add_argument("--report", action="store_true", help="run nothing, and write the page from the JSON")
    arguments = parser.parse_args()
    if arguments.list:
        rows = [[lane.name, lane.title, *(lane.sizes.get(size, "–") for size in SIZES)] for lane in LANES.values()]
        print(table(["lane", "title", *SIZES], rows))
        return
    out = arguments.out or ROOT / ("docs" if arguments.size == "full" else "build/bench")
    failed = [] if arguments.report else run(chosen(arguments.only, arguments.size), arguments.size, out)
    write(out, load(out / JSON), LANES.values())
    print(f"\n{out / PAGE}")
    if failed:
        sys.exit(f"failed: {', '.join(failed)}")


def chosen(only: str | None, size: str) -> list[Lane]:
    if only is None:
        return [lane for lane in LANES.values() if size in lane.sizes and (lane.is_main or size == "full")]
    names = only.split(",")
    if unknown := [name for name in names if size not in getattr(LANES.get(name), "sizes", ())]:
        sys.exit(f"no lane of size {size}: {', '.join(unknown)}. --list has them all.")
    return [LANES[name] for name in names]


def run(lanes: list[Lane], size: str, out: Path) -> list[str]:
    """Run lanes one after the other; each one's figures are kept as soon as it ends. Return those that failed."""
    failed = []
    # Some lanes commit what they staged past their transactions, which then warn.
    logging.getLogger("deltars").setLevel(logging.ERROR)
    with open_rig() as rig:
        for lane in lanes:
            print(f"{lane.name} ({size})", flush=True)
            try:
                result = measure(lane, size, rig)
            except Exception:
                # One lane that fails must not cost the figures of the others.
                traceback.print_exc()
                failed.append(lane.name)
                continue
            assert all(OURS in figure.sides for figure in result.figures), lane.name
            results = load(out / JSON)
            results.lanes[lane.name] = result
            save(out / JSON, results)
            print(f"{figures_table(result.figures)}\n{result.seconds:.0f} s\n", flush=True)
    return failed


def measure(lane: Lane, size: str, rig: Rig) -> LaneResult:
    sizes = lane.sizes[size]
    begun = time.perf_counter()
    figures = lane.run(rig, sizes)
    took = time.perf_counter() - begun
    return LaneResult(
        lane.title,
        lane.described(sizes),
        size,
        now(),
        machine(),
        os.getloadavg()[1],
        took,
        rig.once("versions", lambda: versions(rig.server)),
        figures,
    )


if __name__ == "__main__":
    main()
