"""The behaviour of the data plane on every line of Spark that we support, each in its own environment.

    .venv/bin/python scripts/spark_matrix.py [VERSION …]     4.1, 4.2 and the newest, unless told otherwise

    pip says which releases there are ──▶ build/spark-matrix/<release>: that pyspark, all else by constraints.txt
                                      ──▶ pytest there ──▶ one table: releases across, what was tried down

An environment is made once, and again when what it is made of has changed.
"""

from __future__ import annotations

import hashlib
import re
import subprocess
import sys
import venv
import xml.etree.ElementTree as ElementTree
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

LINES = ("4.1", "4.2", "newest")

ROOT = Path(__file__).parents[1]
PLACE = ROOT / "build" / "spark-matrix"

BUILDERS = ("hatchling", "editables", "setuptools")
PACKAGES = (
    "-e",
    ".[spark,duckdb]",
    "deltalake",
    "duckdb-extension-delta",
    "flask",
    "flask-cors",
    "hypothesis",
    "moto[s3]",
    "polars",
    "psutil",
    "pytest",
    "pytest-timeout",
    "pytest-xdist",
)
"""With pyspark itself, all that the tests below import."""

PINNED_BY_SPARK = ("pyspark", "py4j")

AREAS = {
    "list of files (manifest)": "manifest|list_of_files|lost_its_list|by_a_list",
    "deletion vectors": "deleted_rows|vector",
    "column mapping": "mapping|field_ids|renamed_columns|physical",
    "Spark Connect": "test_connect",
    "SQL": "test_sql",
    "object store (simulated)": "test_s3",
    "write": "test_write|test_transactions|test_column_rules",
    "read": "test_read|test_plane|test_golden",
}
"""A test is of the first area whose pattern is in its name, its module's included."""

MODULES = (
    "connect",
    "column_mapping",
    "golden",
    "manifest_format",
    "plane",
    "read",
    "s3",
    "sql",
    "transactions",
    "write",
)
TESTS = [f"tests/spark/test_{name}.py" for name in MODULES]

# Which database has the log is nothing that Spark could notice.
CHOSEN = "not postgres and not duckdb"


def main(asked: Sequence[str]) -> int:
    releases = chosen(asked or LINES, known_releases())
    results: dict[str, Counter[tuple[str, str]]] = {}
    for release in releases:
        python = environment(release)
        print(f"spark-matrix: testing pyspark {release}", flush=True)
        results[release] = tested(release, python)
    print(table(results))
    return 0 if all(is_green(counts) for counts in results.values()) else 1


def known_releases() -> list[str]:
    """Newest first."""
    answer = subprocess.run(
        [sys.executable, "-m", "pip", "index", "versions", "pyspark"], capture_output=True, text=True, check=False
    )
    found = re.search(r"Available versions: (.*)", answer.stdout)
    if found is None:
        raise SystemExit(f"spark-matrix: pip does not say which releases of pyspark there are:\n{answer.stderr}")
    return [release for release in found[1].split(", ") if re.fullmatch(r"[0-9.]+", release)]


def chosen(lines: Sequence[str], releases: Sequence[str]) -> list[str]:
    """The newest release of each line, each once."""
    found = []
    for line in lines:
        of_line = [release for release in releases if line == "newest" or f"{release}.".startswith(f"{line}.")]
        if not of_line:
            raise SystemExit(f"spark-matrix: there is no pyspark {line}")
        found.append(of_line[0])
    return list(dict.fromkeys(found))


def environment(release: str) -> Path:
    """The Python of the release's environment."""
    place = PLACE / release
    python = place / "bin" / "python"
    pins = (ROOT / "constraints.txt").read_text().splitlines()
    kept = [pin for pin in pins if pin.partition("==")[0] not in PINNED_BY_SPARK]
    made_of = "\n".join([release, *PACKAGES, *kept, (ROOT / "pyproject.toml").read_text()])
    digest = hashlib.sha256(made_of.encode()).hexdigest()
    stamp = place / "made-of"
    if stamp.exists() and stamp.read_text() == digest:
        return python
    print(f"spark-matrix: making {place.relative_to(ROOT)} (pyspark alone is 450 MB)", flush=True)
    venv.create(place, clear=True, with_pip=True)
    constraints = place / "constraints.txt"
    constraints.write_text("\n".join(kept))
    install = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "-c", str(constraints)]
    # As in scripts/setup.sh: what builds packages is pinned as well.
    subprocess.run([*install, *BUILDERS], cwd=ROOT, check=True)
    spark = f"pyspark[connect]=={release}"
    subprocess.run([*install, "--no-build-isolation", "--use-pep517", *PACKAGES, spark], cwd=ROOT, check=True)
    stamp.write_text(digest)
    return python


def tested(release: str, python: Path) -> Counter[tuple[str, str]]:
    """How many tests of each area came to which end."""
    report = PLACE / f"{release}.xml"
    report.unlink(missing_ok=True)
    command = [str(python), "-m", "pytest", "-q", "-k", CHOSEN, f"--junitxml={report}", "--durations=0", "-ra", *TESTS]
    subprocess.run([*command, "-p", "no:cacheprovider"], cwd=ROOT, check=False)
    if not report.exists():
        raise SystemExit(f"spark-matrix: pytest did not run with pyspark {release}")
    return counted(ElementTree.parse(report).getroot())


def counted(report: ElementTree.Element) -> Counter[tuple[str, str]]:
    counts: Counter[tuple[str, str]] = Counter()
    for case in report.iter("testcase"):
        name = f"{case.get('classname')}::{case.get('name')}"
        ends = {child.tag for child in case} & {"failure", "error", "skipped"}
        end = "failed" if ends & {"failure", "error"} else "skipped" if ends else "passed"
        counts[area_of(name), end] += 1
    return counts


def area_of(name: str) -> str:
    return next((area for area, pattern in AREAS.items() if re.search(pattern, name)), "other")


def is_green(counts: Counter[tuple[str, str]]) -> bool:
    """Nothing failed, and nothing was passed over: each area was tried."""
    return (
        all(counts[area, "passed"] and not counts[area, "failed"] for area in AREAS) and not counts["other", "failed"]
    )


def table(results: dict[str, Counter[tuple[str, str]]]) -> str:
    areas = [*AREAS, *(["other"] if any(counts["other", "passed"] for counts in results.values()) else [])]
    rows = [["", *(f"pyspark {release}" for release in results)]]
    rows += [[area, *(_cell(counts, area) for counts in results.values())] for area in areas]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows
    )


def _cell(counts: Counter[tuple[str, str]], area: str) -> str:
    ends = [f"{counts[area, end]} {end}" for end in ("failed", "passed", "skipped") if counts[area, end]]
    return ", ".join(ends) or "not tried"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
