"""The page on architecture names modules and folders that exist, in short walks that the code follows."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import pyarrow as pa
import pytest

import deltars

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "deltars"
PAGE = (ROOT / "docs" / "architecture.md").read_text()
MODULES = sorted(set(re.findall(r"`(\w+(?:/\w+)*\.py)`", PAGE)) - {"base.py"})
FOLDERS = sorted(set(re.findall(r"`(\w+(?:/\w+)+)`", PAGE)) - {"src/deltars"})


WITHOUT_SPARK = {"spark/plane.py": "data/plane.py", "spark/read/scan.py": "data/reader.py"}
ONLY_SPARK = {"spark/read/files.py"}


def modules_of(walk: str) -> list[str]:
    """Return the modules of a walk's steps, as they are without Spark."""
    section = PAGE.partition(f"# {walk}\n")[2].partition("\n#")[0]
    steps = re.findall(r"^(?:\| \d+ \||\d+\.) `([\w/]+\.py)`", section, re.MULTILINE)
    return [WITHOUT_SPARK.get(step, step) for step in steps if step not in ONLY_SPARK]


def entered(run: Callable[[], Any]) -> list[str]:
    """Return the modules of deltars that a call enters in this thread, in the order of the first entry."""
    seen: dict[str, None] = {}

    def note(frame: FrameType, event: str, _: Any) -> None:
        file = frame.f_code.co_filename
        if event == "call" and file.startswith(f"{SOURCE}/"):
            seen.setdefault(file.removeprefix(f"{SOURCE}/"))

    sys.setprofile(note)
    try:
        run()
    finally:
        sys.setprofile(None)
    return list(seen)


@pytest.mark.backends("sqlite")
def test_a_write_passes_through_the_modules_of_its_walks(catalog: deltars.Catalog) -> None:
    catalog.write("t", pa.table({"a": [1]}))

    def write() -> None:
        with catalog.begin() as tx:
            tx.write("t", pa.table({"a": [2]}))

    seen = entered(write)
    ten = modules_of("From the call to the published file, in ten modules")
    assert len(ten) == 10
    for walk in (modules_of("One write"), modules_of("One publication"), ten):
        assert len(walk) > 5
        assert set(walk) - set(seen) == set()


@pytest.mark.backends("sqlite")
def test_a_read_passes_through_the_modules_of_its_walk(catalog: deltars.Catalog) -> None:
    catalog.write("t", pa.table({"a": [1]}))
    walk = modules_of("One read")
    assert len(walk) > 5
    assert set(walk) - set(entered(lambda: catalog.table("t").to_arrow(where="a = 1"))) == set()


@pytest.mark.backends("sqlite")
def test_a_change_of_rows_passes_through_the_modules_of_its_walk(catalog: deltars.Catalog) -> None:
    catalog.write("t", pa.table({"a": [1, 2]}))
    walk = modules_of("One change of rows")
    assert len(walk) > 5
    assert set(walk) - set(entered(lambda: catalog.table("t").update({"a": "a + 1"}, where="a = 1"))) == set()


@pytest.mark.backends("sqlite")
def test_a_compaction_passes_through_the_modules_of_its_walk(catalog: deltars.Catalog) -> None:
    for number in range(2):
        catalog.write("t", pa.table({"a": [number]}))
    walk = modules_of("One compaction")
    assert len(walk) == 6
    assert set(walk) - set(entered(lambda: catalog.table("t").optimize(zorder_by="a"))) == set()


@pytest.mark.backends("sqlite")
def test_a_maintenance_run_passes_through_the_modules_of_its_walk(
    catalog: deltars.Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The versions of this test are old enough, and each of them is enough.
    monkeypatch.setattr("deltars.log.maintenance.EXPIRABLE_VERSIONS", 1)
    now = {"delta.deletedFileRetentionDuration": "interval 0 days", "delta.logRetentionDuration": "interval 0 days"}
    catalog.create_table("t", "a BIGINT", properties=now)
    for number in range(12):
        catalog.write("t", pa.table({"a": [number]}))
    catalog.table("t").write(pa.table({"a": [1]}), mode="overwrite")
    for number in range(12):
        catalog.write("t", pa.table({"a": [number]}))
    walk = modules_of("One maintenance run")
    assert len(walk) == 7
    assert set(walk) - set(entered(catalog.maintain)) == set()


def test_page_names_modules_and_folders() -> None:
    assert MODULES
    assert FOLDERS


@pytest.mark.parametrize("module", MODULES)
def test_module_on_the_page_exists(module: str) -> None:
    assert (SOURCE / module).is_file()


@pytest.mark.parametrize("folder", FOLDERS)
def test_folder_on_the_page_exists(folder: str) -> None:
    assert (SOURCE / folder).is_dir()


def test_every_package_is_on_the_page() -> None:
    packages = {path.parent.name for path in SOURCE.glob("*/__init__.py")}
    assert {name for name in packages if not re.search(rf"\b{name}\b", PAGE)} == set()


@pytest.mark.parametrize(
    "walk", ["One write", "One change of rows", "One compaction", "One maintenance run", "One publication", "One read"]
)
def test_walk_has_at_most_ten_steps(walk: str) -> None:
    _, _, section = PAGE.partition(f"## {walk}\n")
    steps = re.findall(r"^\| (\d+) \| `", section.partition("\n## ")[0], re.MULTILINE)
    assert [int(step) for step in steps] == list(range(1, len(steps) + 1))
    assert 1 < len(steps) <= 10
