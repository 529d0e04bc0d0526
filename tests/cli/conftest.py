"""Running the command line in this process, with its streams apart."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias

import pytest
from click.testing import CliRunner, Result

from deltars.cli import main

Run: TypeAlias = Callable[..., Result]


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """`run("history", "features")`: in an empty directory; what is typed comes from `input=`."""
    directory = tmp_path / "here"
    directory.mkdir()
    monkeypatch.chdir(directory)

    def run_command(*arguments: str, input: str | None = None) -> Result:
        result = CliRunner().invoke(main, arguments, input=input, prog_name="deltars")
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        return result

    return run_command
