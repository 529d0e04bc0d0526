"""One test, two sizes: small in `make test`, long in `make soak`.

    @pytest.mark.soak
    def test_nothing_is_lost_under_many_writers(catalog_uri: str) -> None:
        commits = scaled(200, soak=200_000)
        ...
        record("many writers", commits=commits, lost=0)       # a row of docs/reliability.md

DELTARS_SOAK=1 chooses the long size, and DELTARS_SOAK=0.1 a tenth of it; the figures say how much was done.
DELTARS_SEED repeats a run; it is printed, and drawn if not given. What becomes of the figures is the matter of
`soak_report`.
"""

from __future__ import annotations

import json
import os
import random
from typing import TypeAlias

from tests.support.run_directory import run_directory

Figure: TypeAlias = int | float | str


def is_soak() -> bool:
    return _share() > 0


def scaled(test: int, soak: int) -> int:
    """The size of this run. A `soak` smaller than `test`, such as a stride, is taken whole."""
    if not is_soak():
        return test
    return soak if soak <= test else max(test, round(soak * _share()))


def _share() -> float:
    """How much of the long size is asked for, at most all of it; nothing in `make test`."""
    return min(float(os.environ.get("DELTARS_SOAK") or 0), 1.0)


def seed() -> int:
    """The run's seed, the same in all its processes."""
    return int(os.environ.setdefault("DELTARS_SEED", str(random.SystemRandom().randrange(2**32))))


def record(name: str, **figures: Figure) -> None:
    """Keep the figures of the test that is running for the report of a soak run."""
    if is_soak():
        test, _, _ = os.environ["PYTEST_CURRENT_TEST"].rpartition(" ")
        line = json.dumps({"test": test, "name": name, "figures": figures}) + "\n"
        with (run_directory() / "soak.jsonl").open("a") as records:
            records.write(line)


def records() -> list[tuple[str, str, dict[str, Figure]]]:
    """What the tests of this run recorded: test, name and figures."""
    path = run_directory() / "soak.jsonl"
    if not path.exists():
        return []
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    return [(line["test"], line["name"], line["figures"]) for line in lines]
