"""Extras and commands that texts name exist."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import click

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
