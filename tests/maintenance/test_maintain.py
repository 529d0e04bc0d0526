"""`catalog.maintain`, `deltars advise` and `deltars maintain`: what is done, what is said, what a failure leaves."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any

import pyarrow as pa
import pytest

import deltars
from deltars.observe import Event, MaintenanceEnded, MaintenanceSeen, attach, detach
from deltars.storage.local import LocalStorage
from deltars.store.maintenance.lease import MaintenanceLeases
from tests.cli.conftest import Run, run  # noqa: F401 — the fixture
from tests.support.children import in_child
from tests.support.clock import clock_of
from tests.support.soak import is_soak

pytestmark = pytest.mark.backends("sqlite")

SMALL = {"delta.targetFileSize": "1mb"}


def _rows(*ids: int) -> pa.Table:
    return pa.table({"id": pa.array(ids, pa.int64())})


def _ids(table: deltars.Table) -> list[int]:
    return sorted(table.to_arrow()["id"].to_pylist())


def _scattered(catalog: deltars.Catalog, name: str, files: int = 12) -> deltars.Table:
    """A table with so many small files."""
    table = catalog.create_table(name, "id BIGINT", properties=SMALL)
    for number in range(files):
        table.write(_rows(number))
    return table


def _neglected(catalog: deltars.Catalog, name: str) -> deltars.Table:
    """A table that needs everything: small files, removed files and versions past their retention."""
    with clock_of(catalog) as clock:
        clock.set(-40 * 86_400)
        table = _scattered(catalog, name)
        table.write(_rows(0), "overwrite")
        for number in range(1, 12):
            table.write(_rows(number))
        clock.set(0)
    return table


def test_a_neglected_table_needs_everything_once(catalog: deltars.Catalog) -> None:
    table = _neglected(catalog, "t")
    advice = catalog.advise()
    assert [(one.verb, one.num_files) for one in advice] == [("optimize", 12), ("vacuum", 12), ("expire", 24)]
    assert "12 removed files" in advice[1].reason
    planned = catalog.maintain(dry_run=True)
    assert [one.outcome for one in planned] == ["planned"] * 3
    assert (table.version, table.detail().num_files) == (24, 12)
    done = catalog.maintain()
    assert [(one.advice.verb, one.outcome, one.num_files) for one in done] == [
        ("optimize", "done", 12),
        ("vacuum", "done", 12),
        ("expire", "done", 24),
    ]
    assert done[0].detail == "12 files became 1"
    assert (_ids(table), table.detail().num_files) == (list(range(12)), 1)
    assert catalog.advise() == [] == catalog.maintain()
    assert table.verify(deep=True).is_ok


def test_only_the_named_tables_are_maintained(catalog: deltars.Catalog) -> None:
    one, other = _scattered(catalog, "one"), _scattered(catalog, "other")
    assert [result.advice.table for result in catalog.maintain(["one"])] == ["one"]
    assert (one.detail().num_files, other.detail().num_files) == (1, 12)
    assert [advice.table for advice in catalog.advise()] == ["other"]
    with pytest.raises(deltars.TableNotFound):
        catalog.maintain(["one", "nothing"])


def test_one_tables_failure_stops_no_other_and_is_reported(catalog: deltars.Catalog) -> None:
    for name in ("a", "b", "c"):
        _scattered(catalog, name)
    broken = catalog.table("b")
    for path in Path(broken.location).glob("*.parquet"):
        path.unlink()
    done = {one.advice.table: one for one in catalog.maintain()}
    assert {name: str(one.outcome) for name, one in done.items()} == {"a": "done", "b": "failed", "c": "done"}
    assert isinstance(done["b"].error, deltars.DeltarsError)
    assert done["b"].detail
    assert catalog.table("c").detail().num_files == 1
    assert [advice.table for advice in catalog.advise()] == ["b"]
    # The lease is free again.
    assert MaintenanceLeases(catalog._session.database).claim(broken.id)


def test_a_bug_in_one_verb_is_a_failure_of_that_table_alone(
    catalog: deltars.Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    _scattered(catalog, "a")
    monkeypatch.setattr(deltars.Table, "optimize", lambda *_, **__: 1 // 0)
    [result] = catalog.maintain()
    assert (result.outcome, result.detail) == ("failed", "ZeroDivisionError: integer division or modulo by zero")


def test_a_table_that_was_dropped_meanwhile_is_no_failure_of_the_others(catalog: deltars.Catalog) -> None:
    _scattered(catalog, "a")
    _scattered(catalog, "b")
    results: list[deltars.MaintenanceResult] = []

    def report(advice: deltars.Advice, result: deltars.MaintenanceResult | None) -> None:
        if result is None and advice.table == "a":
            catalog.drop_table("b")
        elif result is not None:
            results.append(result)

    done = catalog.maintain(report=report)
    assert [one.advice.table for one in done] == ["a"]
    assert done == results


def test_a_lagging_table_is_published(catalog: deltars.Catalog) -> None:
    catalog.create_table("t", "id BIGINT")
    with clock_of(catalog) as clock:
        clock.set(300)
        with catalog.begin(mirror="async") as tx:
            tx.write("t", _rows(1))
        assert catalog.advise() == []
        clock.set(600)
        [advice] = catalog.advise()
        assert (advice.verb, advice.reason) == ("publish", "1 version waited 5 minutes to be published.")
        [result] = catalog.maintain()
    assert (result.outcome, result.detail) == ("done", "published up to version 1")
    assert catalog.advise() == []


def test_a_diverged_table_is_left_to_a_person(catalog: deltars.Catalog) -> None:
    table = _scattered(catalog, "t")
    (Path(table.location) / "_delta_log" / f"{table.version + 1:020}.json").write_text("foreign")
    assert [one.state for one in catalog.mirror_status()] == ["diverged"]
    [advice] = catalog.advise()
    assert (advice.verb, advice.is_manual) == ("repair", True)
    [result] = catalog.maintain()
    assert result.outcome == "skipped"
    assert table.detail().num_files == 12


def test_runs_are_events(catalog: deltars.Catalog) -> None:
    _scattered(catalog, "t")
    events: list[Event] = []
    attach(events.append)
    try:
        catalog.maintain()
    finally:
        detach(events.append)
    [seen] = [event for event in events if isinstance(event, MaintenanceSeen)]
    assert seen.due == {"repair": 0, "publish": 0, "optimize": 1, "vacuum": 0, "expire": 0}
    [ended] = [event for event in events if isinstance(event, MaintenanceEnded)]
    assert (ended.table, ended.verb, ended.outcome, ended.num_files) == ("t", "optimize", "done", 12)


@pytest.mark.parametrize("interval", [0, -1.0, float("nan"), float("inf")])
def test_an_interval_is_a_positive_number(catalog: deltars.Catalog, interval: float) -> None:
    with pytest.raises(deltars.ValidationError):
        catalog.maintainer(interval_s=interval)


def test_a_table_that_fails_again_and_again_is_tried_less_often(
    catalog: deltars.Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    _scattered(catalog, "t")
    attempts = 0

    def fail(*_: object, **__: object) -> None:
        nonlocal attempts
        attempts += 1
        raise deltars.StorageError("the storage is away")

    monkeypatch.setattr(deltars.Table, "optimize", fail)
    maintainer = catalog.maintainer(interval_s=0.05)
    rounds = 0
    wait = maintainer._stop.wait

    def counted(seconds: float) -> bool:
        nonlocal rounds
        rounds += 1
        if rounds == 20:
            maintainer.stop()
        return wait(seconds)

    monkeypatch.setattr(maintainer._stop, "wait", counted)
    maintainer.run()
    assert 2 <= attempts <= 8


# -- killed ----------------------------------------------------------------------------------------------------------


@pytest.mark.soak
def test_killed_before_any_storage_call_a_second_run_finishes(catalog: deltars.Catalog) -> None:
    tables = [_neglected(catalog, name) for name in (("a", "b") if is_soak() else ("a",))]
    uri = catalog.uri
    kills, left = 0, 0
    step = 1 if is_soak() else 2
    while True:
        left += step
        catalog.close()

        def work(left: int = left) -> None:
            _die_before(LocalStorage, left)
            with deltars.connect(uri, migrate=False) as opened:
                opened.maintain()

        if in_child(work) == 0:
            break
        kills += 1
        for table in tables:
            assert _ids(table) == list(range(12))
            assert table.verify(deep=True).is_ok
    assert kills >= 2
    catalog.maintain()
    assert catalog.advise() == []
    for table in tables:
        assert _ids(table) == list(range(12))
        assert table.detail().num_files == 1
        assert table.verify(deep=True).is_ok


def _die_before(kind: type, left: int) -> None:
    """Kill this process before the given call of a storage that writes or deletes."""

    def counted(act: Callable[..., object]) -> Callable[..., object]:
        def call(*arguments: object, **options: object) -> object:
            nonlocal left
            left -= 1
            if left <= 0:
                os.kill(os.getpid(), signal.SIGKILL)
            return act(*arguments, **options)

        return call

    for name in ("put", "put_if_absent", "delete", "open_writer"):
        if not hasattr(kind, name):
            continue

        setattr(kind, name, counted(getattr(kind, name)))


# -- the commands ----------------------------------------------------------------------------------------------------


def test_advise_says_what_and_why_and_changes_nothing(run: Run, catalog: deltars.Catalog, catalog_uri: str) -> None:  # noqa: F811
    _scattered(catalog, "t")
    catalog.create_table("quiet", "id BIGINT")
    line = run("advise", "--catalog", catalog_uri).stdout.split("\t")
    assert line[:3] == ["t", "optimize", "12"]
    assert line[4].strip() == "12 of 12 files are smaller than a quarter of the target size 1.0 MiB."
    [advice] = json.loads(run("advise", "t", "--json", "--catalog", catalog_uri).stdout)
    assert (advice["verb"], advice["is_manual"]) == ("optimize", False)
    assert run("advise", "quiet", "--catalog", catalog_uri).stdout == ""
    quiet, scattered = json.loads(run("advise", "--statistics", "--json", "--catalog", catalog_uri).stdout)
    assert (quiet["table"], quiet["num_files"], scattered["small_files"]) == ("quiet", 0, 12)
    assert catalog.table("t").version == 12


def test_maintain_prints_the_plan_does_it_and_reports_it(run: Run, catalog: deltars.Catalog, catalog_uri: str) -> None:  # noqa: F811
    _scattered(catalog, "t")
    dry = run("maintain", "--dry-run", "--catalog", catalog_uri)
    assert dry.stdout.split("\t")[:3] == ["t", "optimize", "planned"]
    assert dry.stderr == "Nothing was changed: this was a dry run.\n"
    result = run("maintain", "--catalog", catalog_uri)
    assert result.exit_code == 0
    assert "t: optimize: 12 of 12 files are smaller" in result.stderr
    fields = result.stdout.strip().split("\t")
    assert (fields[:4], fields[6]) == (["t", "optimize", "done", "12"], "12 files became 1")
    assert run("maintain", "--catalog", catalog_uri).stdout == ""


def test_commands_commit_as_their_user_and_the_service_by_its_name(
    run: Run,  # noqa: F811
    catalog: deltars.Catalog,
    catalog_uri: str,
) -> None:
    for name in ("commanded", "maintained", "served"):
        _scattered(catalog, name)
    run("optimize", "commanded", "--catalog", catalog_uri)
    run("maintain", "maintained", "--catalog", catalog_uri)

    def stop(_advice: deltars.Advice, _result: deltars.MaintenanceResult | None) -> None:
        service.stop()

    service = catalog.maintainer(interval_s=0.01, report=stop)
    service.run()
    newest, oldest = (
        [list(catalog.table(name).history())[place].committer for name in ("commanded", "maintained", "served")]
        for place in (0, -1)
    )
    assert newest == [oldest[0], oldest[1], "deltars maintain"]


def test_maintain_exits_with_one_if_a_table_failed(run: Run, catalog: deltars.Catalog, catalog_uri: str) -> None:  # noqa: F811
    for name in ("a", "b"):
        _scattered(catalog, name)
    for path in Path(catalog.table("a").location).glob("*.parquet"):
        path.unlink()
    result = run("maintain", "--json", "--catalog", catalog_uri)
    assert result.exit_code == 1
    assert {one["table"]: one["outcome"] for one in json.loads(result.stdout)} == {"a": "failed", "b": "done"}


@pytest.mark.parametrize("arguments", [["--watch", "--dry-run"], ["--log-json"], ["--watch", "--interval", "0"]])
def test_options_that_contradict_each_other_are_refused(run: Run, arguments: list[str]) -> None:  # noqa: F811
    assert run("maintain", *arguments).exit_code == 2


def test_the_service_maintains_until_sigterm(catalog: deltars.Catalog, catalog_uri: str) -> None:
    table = _scattered(catalog, "t")
    catalog.close()
    command = [sys.executable, "-m", "deltars.cli", "maintain", "--watch", "--interval", "0.2", "--log-json"]
    command += ["--metrics-port", "0", "--catalog", catalog_uri]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stderr is not None
            metrics = process.stderr.readline().removeprefix("metrics: ").strip()
            assert process.stderr.readline().startswith("maintaining the tables of ")
            line = json.loads(_line_with(process.stderr, "deltars.maintenance"))
            assert (line["table"], line["stage"], line["outcome"], line["level"]) == ("t", "optimize", "done", "INFO")
            # The metrics hear of the step after the log.
            deadline = time.monotonic() + 10
            while 'verb="optimize"} 12.0' not in urllib.request.urlopen(metrics, timeout=10).read().decode():
                assert time.monotonic() < deadline
            # What happens later is seen in a later round.
            for number in range(20, 32):
                table.write(_rows(number))
            catalog.close()
            _line_with(process.stderr, "deltars.maintenance")
            process.send_signal(signal.SIGTERM)
            *_, last = process.stderr
            assert (last, process.wait(30)) == ("stopped\n", 0)
        finally:
            process.kill()
    assert _ids(table) == [*range(12), *range(20, 32)]
    assert catalog.advise() == []


def _line_with(stream: IO[str], logger: str) -> str:
    return next(line for line in stream if f'"logger": "{logger}"' in line)


@pytest.mark.parametrize("arguments", [["--interval", "5"], ["--watch", "--json"], ["--metrics-port", "0"]])
def test_option_that_would_be_ignored_is_refused(run: Run, catalog_uri: str, arguments: list[str]) -> None:  # noqa: F811
    result = run("maintain", "--catalog", catalog_uri, *arguments)
    assert (result.exit_code, "--watch" in result.stderr) == (2, True)


@pytest.mark.parametrize(
    "call",
    [
        lambda catalog: catalog.maintainer(interval_s="x"),
        lambda catalog: catalog.maintainer(interval_s=True),
        lambda catalog: catalog.maintain(report=5),
        lambda catalog: catalog.vacuum(report=5),
        lambda catalog: catalog.table("t").vacuum(report=5),
        lambda catalog: catalog.table("t").optimize(target_size=2**70),
        lambda catalog: catalog.untag(None),
        lambda catalog: catalog.untag(catalog.tag("now")),
    ],
)
def test_argument_of_the_wrong_type_is_refused(catalog: deltars.Catalog, call: Callable[[Any], None]) -> None:
    _scattered(catalog, "t", files=2)
    with pytest.raises(deltars.ValidationError):
        call(catalog)
