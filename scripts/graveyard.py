"""Write docs/graveyard.md: published bugs of other projects, and what deltars and its peers do with each case today.

    python -m scripts.graveyard [--ducklake path/to/ducklake.duckdb_extension]

deltalake is the installed one. DuckLake needs its extension: the one in the path, of the installed version of DuckDB.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from tempfile import TemporaryDirectory

import deltars
from tests.graveyard.cases import CASES, Case
from tests.graveyard.engines import DeltaRs, Deltars, DuckLake, Engine, NotOffered

PAGE = Path(__file__).parent.parent / "docs" / "graveyard.md"
HEAD = """# The peers' graveyard

Bugs that other projects published, as cases of `make test` (`tests/graveyard`). Each is named after its issue. The same
steps are run on the peers that can be installed: {versions}. `python -m scripts.graveyard` writes this page.

**right**: the expected outcome. **wrong**: another outcome, silently. **error**: a step that should work is refused.
 **–**: the peer has no such verb. Most of these bugs are repaired in the versions that ran here; the cases stay.

| issue | what went wrong there | deltars | deltalake | DuckLake |
|---|---|---|---|---|
"""


def outcome(case: Case, make: Callable[[str], Engine]) -> str:
    """Run a case on an engine, and say what came of it."""
    try:
        seen, expected = case.run(make(case.run.__name__))
    except NotOffered:
        return "–"
    except BaseException as error:
        if isinstance(error, KeyboardInterrupt):
            raise
        print(f"{case.name}: {type(error).__name__}: {error!s:.200}", file=sys.stderr)
        return "error"
    if seen != expected:
        print(f"{case.name}: {seen!r:.200} in place of {expected!r:.200}", file=sys.stderr)
    return "right" if seen == expected else "**wrong**"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ducklake", type=Path, help="DuckDB's extension ducklake, as a file")
    extension: Path | None = parser.parse_args().ducklake
    rows: list[str] = []
    with TemporaryDirectory() as directory:
        place = Path(directory)
        with deltars.connect(f"deltasql://sqlite/{place}/catalog.db", warehouse=str(place / "warehouse")) as catalog:
            for case in CASES:
                ours = outcome(case, lambda name: Deltars(catalog, name))
                delta_rs = outcome(case, lambda name: DeltaRs(place / "deltalake", name))
                duck = "–" if extension is None else outcome(case, lambda name: DuckLake(place, name, extension))
                rows.append(f"| {case.name} | {case.what} | {ours} | {delta_rs} | {duck} |")
    versions = f"deltalake {version('deltalake')}"
    if extension is not None:
        versions += f", DuckLake of DuckDB {version('duckdb')}"
    PAGE.write_text(HEAD.format(versions=versions) + "\n".join(rows) + "\n")


if __name__ == "__main__":
    main()
