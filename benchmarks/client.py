"""One client of a race, whichever system it drives: the same loop, clock and counts for all of them.

    race.py ──the work, as JSON──▶ client: opens its connection, warms up ──"ready"──▶
            ──seconds──▶ works as long as that ──what it saw, as JSON──▶     … round after round

Peers run in their own environment: this module uses nothing but Python.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

WARM_UP = 5


def serve(prepare: Callable[[dict[str, Any]], Callable[[], object]]) -> None:
    # What libraries print must not come between the answers.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    spec = json.loads(sys.stdin.readline())
    work = prepare(spec)
    for _ in range(WARM_UP):
        _tried(work)
    print("ready", file=answers, flush=True)
    for line in sys.stdin:
        result = _round(work, float(line), spec.get("threads", 1))
        result["commits"] = len(result["taken"]) * spec.get("commits", 1)
        print(json.dumps(result), file=answers, flush=True)


def _round(work: Callable[[], object], seconds: float, threads: int) -> dict[str, Any]:
    cpu, begun = time.process_time(), time.perf_counter()
    if threads == 1:
        loops = [_loop(work, seconds)]
    else:
        with ThreadPoolExecutor(threads) as pool:
            loops = list(pool.map(lambda _: _loop(work, seconds), range(threads)))
    return {
        "seconds": time.perf_counter() - begun,
        "cpu": time.process_time() - cpu,
        "taken": [took for taken, _ in loops for took in taken],
        "failed": sum(len(errors) for _, errors in loops),
        "error": [error for _, errors in loops for error in errors][:1],
    }


def _loop(work: Callable[[], object], seconds: float) -> tuple[list[float], list[str]]:
    taken, errors = [], []
    begun = now = time.perf_counter()
    while now - begun < seconds:
        error = _tried(work)
        after = time.perf_counter()
        if error is None:
            taken.append(after - now)
        else:
            errors.append(error)
        now = after
    return taken, errors


def _tried(work: Callable[[], object]) -> str | None:
    try:
        work()
    except Exception as error:
        return f"{type(error).__name__}: {error}"[:300]
    return None
