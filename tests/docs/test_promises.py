"""Extras and commands that texts name exist."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import click

import deltars
from deltars.cli import main

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md", *sorted(ROOT.glob("docs/**/*.md"))]
SOURCES = sorted(ROOT.glob("src/**/*.py"))
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
COMMAND = re.compile(r"^deltars ([a-z][a-z-]*(?: [a-z][a-z-]*)?)", re.MULTILINE)


def test_every_extra_that_is_named_exists() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = set(project["optional-dependencies"])
    for path in (*PAGES, *SOURCES):
        for named in re.findall(r"deltars\[([\w,-]+)\]", path.read_text()):
            assert set(named.split(",")) <= extras, f"{path.relative_to(ROOT)}: deltars[{named}]"


def test_page_on_installing_has_every_extra_for_users_and_the_version() -> None:
    page = (ROOT / "docs/install.md").read_text()
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    listed = set(re.findall(r"^\| `([\w-]+)` \|", page, re.MULTILINE))
    assert listed == set(project["optional-dependencies"]) - {"test", "docs", "lint", "dev"}
    for text in (page, (ROOT / "README.md").read_text()):
        assert f"alpha, version {deltars.__version__}" in text
    assert f"deltars-{deltars.__version__}-py3-none-any.whl" in page


def test_no_cell_of_the_readme_is_longer_than_fifteen_words() -> None:
    rows = re.findall(r"^\|(.+)\|$", (ROOT / "README.md").read_text(), re.MULTILINE)
    assert len(rows) > 5
    for row in rows:
        for cell in row.split("|"):
            assert len(cell.split()) <= 15, cell


def test_every_command_that_is_named_exists() -> None:
    num_checked = 0
    for page in PAGES:
        text = page.read_text()
        shell = [block for language, block in BLOCK.findall(text) if not language]
        inline = re.findall(r"`([^`\n]+)`", BLOCK.sub("", text))
        for part in (*shell, *inline):
            for words in COMMAND.findall(part):
                name, _, below = words.partition(" ")
                command = main.commands.get(name)
                assert command is not None, f"{page.relative_to(ROOT)}: deltars {words}"
                if isinstance(command, click.Group):
                    assert below in command.commands, f"{page.relative_to(ROOT)}: deltars {words}"
                num_checked += 1
    assert num_checked > 50
