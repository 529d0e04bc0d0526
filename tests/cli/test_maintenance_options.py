"""The commands of maintenance take tables and options alike."""

from __future__ import annotations

import json

import pyarrow as pa
import pytest

import deltars
from tests.cli.conftest import Run

pytestmark = pytest.mark.backends("sqlite")


@pytest.fixture(autouse=True)
def tables(run: Run) -> None:
    with deltars.connect() as catalog:
        for name in ("features", "labels", "users"):
            for number in range(2):
                catalog.write(name, pa.table({"id": [number]}))


@pytest.mark.parametrize(
    "command", [("expire", "--dry-run"), ("advise", "--statistics"), ("optimize", "--dry-run")], ids=" ".join
)
def test_command_takes_several_tables_or_all(command: tuple[str, str], run: Run) -> None:
    def named(*arguments: str) -> list[str]:
        result = run(*command, *arguments, "--json")
        assert result.exit_code == 0, result.stderr
        return [one["table"] for one in json.loads(result.stdout)]

    assert named("--all") == ["features", "labels", "users"]
    assert named("features", "users") == ["features", "users"]
    both = run(*command, "features", "--all")
    assert (both.exit_code, "Give one TABLE or more, or --all." in both.stderr) == (2, True)
    assert run(*command, "features", "nope").exit_code == 1


def test_maintain_takes_all_but_not_with_a_table(run: Run) -> None:
    assert run("maintain", "--all").exit_code == 0
    assert run("maintain", "--all", "features").exit_code == 2


def test_condition_and_order_are_for_one_table(run: Run) -> None:
    result = run("optimize", "features", "labels", "--where", "id = 1")
    assert (result.exit_code, "--where and --zorder-by need one TABLE." in result.stderr) == (2, True)


def test_create_makes_a_clustered_table(run: Run) -> None:
    assert run("create", "sorted", "--schema", "id BIGINT, x INT", "--cluster-by", "id, x").exit_code == 0
    with deltars.connect() as catalog:
        assert catalog.table("sorted").optimize(dry_run=True).cluster_by == ("id", "x")
    both = run("create", "other", "--schema", "id BIGINT, x INT", "--cluster-by", "id", "--partition-by", "x")
    assert (both.exit_code, "exclude each other" in both.stderr) == (1, True)


@pytest.mark.parametrize(
    ("arguments", "instead"),
    [
        (("expire", "--retention", "7 days"), "Write --older-than '30 days'."),
        (("purge-dropped", "--retention", "7 days"), "Write --older-than '30 days'."),
        (("vacuum", "--all", "--older-than", "7 days"), "Write --retention '7 days'."),
        (("cut", "--as-of", "q3"), "Write the moment by itself: deltars cut MOMENT."),
    ],
)
def test_option_of_another_command_is_answered_with_its_own(arguments: tuple[str, ...], instead: str, run: Run) -> None:
    result = run(*arguments)
    assert (result.exit_code, instead in result.stderr) == (2, True), result.stderr
