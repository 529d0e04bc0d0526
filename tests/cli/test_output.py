"""The forms of an answer: any number of records, written one by one."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pytest

from deltars.cli.output import Json, Lines, Record

RECORDS: list[dict[str, Any]] = [
    {"id": 1, "text": "a\nb", "list": [1, {"x": None}]},
    {"id": None, "text": "é", "list": [], "at": datetime(2026, 1, 1, tzinfo=UTC)},
]


@pytest.mark.parametrize("count", [0, 1, 2])
def test_json_written_record_by_record_is_the_json_of_them_all(count: int, capsys: pytest.CaptureFixture[str]) -> None:
    Json().records(iter(RECORDS[:count]), ("id",), none="")
    whole = json.dumps(RECORDS[:count], default=lambda value: value.isoformat(), ensure_ascii=False, indent=2)
    assert capsys.readouterr().out == whole + "\n"


@pytest.mark.parametrize("output", [Lines(), Json()], ids=["lines", "json"])
def test_record_is_written_before_the_next_one_is_asked_for(
    output: Lines | Json, capsys: pytest.CaptureFixture[str]
) -> None:
    def records() -> Iterator[Record]:
        yield {"id": "first"}
        assert "first" in capsys.readouterr().out
        yield {"id": "second"}

    output.records(records(), ("id",), none="")
    assert "second" in capsys.readouterr().out


def test_reader_that_goes_away_ends_a_command_quietly() -> None:
    reader, writer = os.pipe()
    os.close(reader)
    try:
        command = [sys.executable, "-m", "deltars.cli", "completion", "bash"]
        ended = subprocess.run(command, stdout=writer, stderr=subprocess.PIPE, check=False)
    finally:
        os.close(writer)
    assert (ended.returncode, ended.stderr) == (141, b"")
