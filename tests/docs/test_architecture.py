"""The page on architecture names modules and folders that exist, in walks of at most ten steps."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "deltars"
PAGE = (ROOT / "docs" / "architecture.md").read_text()
MODULES = sorted(set(re.findall(r"`(\w+(?:/\w+)*\.py)`", PAGE)) - {"base.py"})
FOLDERS = sorted(set(re.findall(r"`(\w+(?:/\w+)+)`", PAGE)) - {"src/deltars"})


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


@pytest.mark.parametrize("walk", ["One write", "One publication", "One read"])
def test_walk_has_at_most_ten_steps(walk: str) -> None:
    _, _, section = PAGE.partition(f"## {walk}\n")
    steps = re.findall(r"^\| (\d+) \| `", section.partition("\n## ")[0], re.MULTILINE)
    assert [int(step) for step in steps] == list(range(1, len(steps) + 1))
    assert 1 < len(steps) <= 10
