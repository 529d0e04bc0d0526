"""`python -m deltars.demo.victim`: writes half a transaction to $DELTARS_CATALOG, prints so, and waits to be killed."""

from __future__ import annotations

import time

import deltars
from deltars.demo.batches import features_of

KILLED_WITHIN_S = 600
WRITTEN = "written"


def main() -> None:
    with deltars.connect(migrate=False) as catalog, catalog.begin(committer="victim") as tx:
        tx.write("features", features_of(range(500), batch=99))
        print(WRITTEN, flush=True)
        time.sleep(KILLED_WITHIN_S)
        raise SystemExit(f"this process was not killed within {KILLED_WITHIN_S} s")


if __name__ == "__main__":
    main()
