"""A backup older than the mirror was restored: that is said, refuses commits, and can be put right."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from click.testing import CliRunner, Result
from sqlalchemy import delete, insert, select

import deltars
from deltars.cli import main
from deltars.mirror.divergence import Divergence
from deltars.mirror.verify import Problem
from deltars.store.mirror.status import MirrorState
from deltars.store.schema import metadata

Backup = dict[str, list[dict[str, Any]]]


def run(*arguments: str) -> Result:
    return CliRunner().invoke(main, arguments, prog_name="deltars")


def rows(*ids: int) -> pa.Table:
    return pa.table({"id": list(ids)})


def ids(catalog: deltars.Catalog, table: str = "t") -> list[int]:
    return sorted(catalog.table(table).to_arrow()["id"].to_pylist())


def back_up(catalog: deltars.Catalog) -> Backup:
    with catalog._session.database.read() as connection:
        return {t.name: [dict(row._mapping) for row in connection.execute(select(t))] for t in metadata.sorted_tables}


def restore(catalog: deltars.Catalog, backup: Backup) -> None:
    """Every row of every table as it was; each in a transaction of its own, for DuckDB's foreign keys."""
    database = catalog._session.database
    for table in reversed(metadata.sorted_tables):
        with database.write(60) as connection:
            connection.execute(delete(table))
    for table in metadata.sorted_tables:
        if backup[table.name]:
            with database.write(60) as connection:
                connection.execute(insert(table), backup[table.name])


@pytest.fixture
def restored(catalog: deltars.Catalog, catalog_uri: str) -> Iterator[deltars.Catalog]:
    """The catalog has `t` at version 2, its log is at version 4; a process that knows nothing of before."""
    catalog.create_table("t", "id BIGINT")
    catalog.write("t", rows(1))
    catalog.write("t", rows(2))
    catalog._session.publisher.close()
    backup = back_up(catalog)
    catalog.write("t", rows(3))
    catalog.write("t", rows(3, 4), "overwrite")
    catalog._session.publisher.close()
    restore(catalog, backup)
    catalog.close()
    with deltars.connect(catalog_uri) as opened:
        assert opened.table("t").version == 2
        yield opened


def state(catalog: deltars.Catalog) -> MirrorState:
    [status] = [s for s in catalog._session.publisher.status.overview() if s.name == "t"]
    return status.state


def look_status(catalog: deltars.Catalog) -> bool:
    return [status.state for status in catalog.mirror_status() if status.name == "t"] == [MirrorState.DIVERGED]


def look_once(catalog: deltars.Catalog) -> bool:
    return "no version after 2" in str(catalog.reconciler().once().errors)


@pytest.mark.every_case_on("sqlite")
@pytest.mark.parametrize("look", [look_status, look_once])
@pytest.mark.promise("N6")
def test_commit_file_above_the_catalogs_version_is_divergence_at_once_and_refuses_commits(
    restored: deltars.Catalog, catalog_uri: str, look: Callable[[deltars.Catalog], bool]
) -> None:
    restored.create_table("u", "id BIGINT")
    assert look(restored)
    assert state(restored) is MirrorState.DIVERGED
    with pytest.raises(deltars.LogDiverged, match="mirror accept-log 't'") as refused:
        restored.write("t", rows(9))
    assert refused.value.table == "t"
    tx = restored.begin()
    tx.write("u", rows(9))
    tx.write("t", rows(9))
    with pytest.raises(deltars.LogDiverged):
        tx.commit()
    assert (ids(restored, "t"), ids(restored, "u")) == ([1, 2], [])
    restored.write("u", rows(1))
    with pytest.raises(deltars.LogDiverged, match="no log file was deleted"):
        restored.table("t").clean_up_log()
    # It is said each time, and nothing that only reads is refused.
    assert look_once(restored)
    with restored.begin() as tx:
        assert tx.files("t").num_rows == 2
        tx.write("u", rows(2))
    restored.close()
    with deltars.connect(catalog_uri, allow_diverged=True) as allowing:
        assert allowing.write("t", rows(9)).versions == {"t": 3}


def test_first_commit_after_the_restore_finds_the_divergence_and_the_second_is_refused(
    restored: deltars.Catalog,
) -> None:
    outcome = restored.write("t", rows(9)).mirror["t"]
    assert outcome.failure is not None
    assert "is another commit" in outcome.failure.error
    with pytest.raises(deltars.LogDiverged):
        restored.write("t", rows(10))


def test_verify_doctor_and_the_commands_say_that_the_log_diverged(restored: deltars.Catalog, catalog_uri: str) -> None:
    findings = restored.table("t").verify().findings
    assert [(found.problem, found.file[-25:]) for found in findings] == [
        (Problem.DIVERGED, f"{version:020}.json") for version in (3, 4)
    ]
    restored.close()
    doctor = json.loads(run("doctor", "--no-spark", "--json", "--catalog", catalog_uri).stdout)
    [mirror] = [finding for finding in doctor if finding["check"] == "mirror"]
    assert (mirror["state"], "no version after 2" in mirror["found"]) == ("failed", True)
    [status] = json.loads(run("mirror", "status", "--json", "--catalog", catalog_uri).stdout)
    assert status["state"] == "diverged"
    once = run("mirror", "once", "--catalog", catalog_uri)
    assert (once.exit_code, "no version after 2" in once.stdout) == (1, True)


def test_logs_word_is_taken_in_place(restored: deltars.Catalog) -> None:
    before = restored.table("t")
    assert look_status(restored)
    done = restored.accept_log("t")
    assert (done.agreed_version, done.log_version, done.discarded, list(done.taken)) == (2, 4, (), [3, 4])
    after = restored.table("t")
    assert (after.id, after.name, after.version) == (before.id, before.name, 4)
    assert ids(restored) == [3, 4]
    assert sorted(after.to_arrow(version=3)["id"].to_pylist()) == [1, 2, 3]
    assert restored.write("t", rows(5)).mirror["t"].publication == "published"
    assert ids(restored) == [3, 4, 5]
    assert after.verify(deep=True).findings == ()
    assert restored.reconciler().once().errors == []
    again = restored.accept_log("t")
    assert (again.agreed_version, list(again.taken)) == (5, [])


def test_versions_that_contradict_the_log_are_listed_and_discarded_only_when_told_to(
    restored: deltars.Catalog, catalog_uri: str
) -> None:
    with restored.begin(committer="after the restore") as tx:
        tx.write("t", rows(8), "overwrite")
        tx.write("u", rows(8))
    restored.close()
    with deltars.connect(catalog_uri, allow_diverged=True) as allowing:
        with allowing.begin(committer="alone") as alone:
            alone.write("t", rows(9))
        assert allowing.table("t").version == 4
        with pytest.raises(deltars.LogDiverged, match="would be discarded: 3, 4"):
            allowing.accept_log("t")
    refused = run("mirror", "accept-log", "t", "--json", "--catalog", catalog_uri)
    assert refused.exit_code == 1
    assert [(r["version"], r["what"], r["committer"], r["other_tables"]) for r in json.loads(refused.stdout)] == [
        (3, "would be discarded", "after the restore", "u"),
        (4, "would be discarded", "alone", ""),
        (3, "would be imported from the log", None, None),
        (4, "would be imported from the log", None, None),
    ]
    with deltars.connect(catalog_uri) as unchanged:
        assert ids(unchanged) == [8, 9]
    done = run("mirror", "accept-log", "t", "--discard", "--json", "--catalog", catalog_uri)
    assert (done.exit_code, json.loads(done.stdout)[0]["what"]) == (0, "discarded"), done.stderr
    with deltars.connect(catalog_uri) as after:
        assert (ids(after, "t"), ids(after, "u")) == ([3, 4], [8])
        # What a discarded transaction did to other tables stays; one that did nothing else is as if it had never been.
        assert [part.table for part in after.transaction(tx.id).tables] == ["u"]
        assert after.resolve(alone.id) is None
        assert after.table("t").verify(deep=True).findings == ()
        assert after.write("t", rows(5)).mirror["t"].publication == "published"
        assert ids(after) == [3, 4, 5]


@pytest.mark.backends("sqlite", "duckdb")
def test_discarded_change_of_the_schema_and_of_removed_files_leaves_no_trace(restored: deltars.Catalog) -> None:
    with restored.begin() as tx:
        tx.write("t", pa.table({"name": ["x"], "id": [7]}), "overwrite", overwrite_schema=True)
    restored.accept_log("t", discard=True)
    assert restored.table("t").to_arrow().column_names == ["id"]
    assert ids(restored) == [3, 4]
    assert restored.table("t").to_arrow(version=2, where="id = 2")["id"].to_pylist() == [2]


def test_process_that_lives_through_accept_log_writes_for_the_table_as_it_is_then(
    restored: deltars.Catalog, catalog_uri: str
) -> None:
    with deltars.connect(catalog_uri, allow_diverged=True) as living:
        # Version 3, as this process remembers it, has other columns than version 3 of the log.
        living.write("t", pa.table({"x": [0.5], "id": [9]}), "overwrite", overwrite_schema=True)
        assert restored.accept_log("t", discard=True).discarded
        assert restored.table("t").version == 4
        living.write("t", rows(70))
        assert living.table("t").version == 5
        assert ids(living) == [3, 4, 70]
        for reader in (living, restored):
            assert reader.table("t").to_arrow(where="id > 50")["id"].to_pylist() == [70]
            assert reader.table("t").scan(where="id > 50").files.num_rows == 1


@pytest.mark.backends("sqlite")
def test_interrupted_accept_log_is_finished_by_running_it_again(
    restored: deltars.Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    restored.write("t", rows(9))
    with monkeypatch.context() as patch:
        patch.setattr("deltars.store.imports.import_writer.ImportWriter.finish", _interrupted)
        with pytest.raises(KeyboardInterrupt):
            restored.accept_log("t", discard=True)
    with pytest.raises(deltars.LogDiverged, match="accept-log"):
        restored.write("t", rows(9))
    assert restored.reconciler().once().errors == []
    assert ids(restored) == [1, 2]
    restored.accept_log("t")
    assert (ids(restored), state(restored)) == ([3, 4], MirrorState.ACTIVE)


def _interrupted(*_: object) -> None:
    raise KeyboardInterrupt


@pytest.mark.backends("sqlite")
def test_log_of_another_table_is_not_accepted(restored: deltars.Catalog) -> None:
    restored.create_table("other", "id BIGINT")
    log = Path(restored.table("t").location) / "_delta_log"
    shutil.rmtree(log)
    shutil.copytree(Path(restored.table("other").location) / "_delta_log", log)
    with pytest.raises(deltars.LogDiverged, match="no version in common"):
        restored.accept_log("t", discard=True)
    assert ids(restored) == [1, 2]


@pytest.mark.backends("sqlite")
def test_table_whose_log_a_person_has_put_right_is_published_again(restored: deltars.Catalog) -> None:
    assert look_status(restored)
    for version in (3, 4):
        (Path(restored.table("t").location) / "_delta_log" / f"{version:020}.json").unlink()
    assert restored.reconciler().once().errors == []
    assert state(restored) is MirrorState.ACTIVE
    assert restored.write("t", rows(9)).mirror["t"].publication == "published"


@pytest.mark.backends("sqlite")
def test_look_at_many_commits_while_others_publish_alarms_nobody(catalog: deltars.Catalog) -> None:
    catalog.create_table("t", "id BIGINT")
    status = catalog._session.publisher.status.overview()
    catalog.write("t", rows(1))
    # What was read before the commit is older than the file that it finds.
    [looked] = Divergence(catalog._session.publisher).look_at(status)
    assert looked.state is MirrorState.ACTIVE
    assert state(catalog) is MirrorState.ACTIVE


@pytest.mark.backends("sqlite")
def test_released_and_read_only_tables_have_logs_ahead_of_the_catalog(catalog: deltars.Catalog) -> None:
    catalog.create_table("t", "id BIGINT")
    catalog.release("t")
    log = Path(catalog.table("t").location) / "_delta_log"
    (log / f"{2:020}.json").write_text('{"commitInfo":{"operation":"WRITE"}}\n')
    assert [status.state for status in catalog.mirror_status()] == [MirrorState.RELEASED]
    with pytest.raises(deltars.TableHeld, match="being imported or released"):
        catalog.accept_log("t")
