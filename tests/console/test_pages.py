"""Each page and its JSON, on a catalog with real history, on an empty one, and on one that is lost."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator
from pathlib import Path
from uuid import UUID

import pytest
from markupsafe import escape
from sqlalchemy import text
from starlette.datastructures import URL
from starlette.testclient import TestClient

import deltars
from deltars.console import app, model
from deltars.console.app import create_app
from deltars.console.dry_runs import dry_run
from deltars.console.security import without_token
from deltars.console.server import make_sessions_read_only
from deltars.log.maintenance import Advice, MaintenanceVerb
from deltars.store.backends.time_limit import TimeLimit
from tests.console.history import HOSTILE, fill, lose_a_race, rows
from tests.store.test_time_limit import ENDLESS

HOST = "127.0.0.1:8800"
PAGES = ("/", "/transactions", "/conflicts", "/cuts", "/mirror", "/streams", "/maintenance")

pytestmark = pytest.mark.backends("sqlite", "postgres")


def client_of(catalog: deltars.Catalog) -> TestClient:
    pages = create_app(catalog, token="secret", hosts=[HOST])
    client = TestClient(pages, base_url=f"http://{HOST}", raise_server_exceptions=False)
    assert client.get("/?token=secret").status_code == 200
    return client


@pytest.fixture
def client(catalog: deltars.Catalog) -> Iterator[TestClient]:
    fill(catalog)
    with client_of(catalog) as client:
        yield client


def as_json(page: str) -> str:
    return "/overview.json" if page == "/" else f"{page}.json"


def test_every_page_shows_what_its_json_has(client: TestClient, catalog: deltars.Catalog) -> None:
    for page in PAGES:
        shown, values = client.get(page), client.get(as_json(page))
        assert (shown.status_code, values.status_code) == (200, 200), page
        assert "<script>alert" not in shown.text, page
    overview = client.get("/overview.json").json()
    assert {table["name"]: table["version"] for table in overview["tables"]} == {
        table.name: table.version for table in catalog.tables()
    }
    assert [tag["name"] for tag in overview["tags"]] == ["q3"]
    assert "the &lt;i&gt;third&lt;/i&gt; quarter" in client.get("/").text


def test_swimlanes_draw_a_line_through_the_tables_of_a_transaction(client: TestClient) -> None:
    page = client.get("/transactions.json").json()
    by_id = {one["txn_id"]: one for one in page["transactions"]}
    marks = {mark["txn_id"]: mark for mark in page["drawing"]["marks"]}
    assert marks.keys() == by_id.keys()
    for txn_id, mark in marks.items():
        assert {dot["table"]: dot["version"] for dot in mark["dots"]} == by_id[txn_id]["versions"]
    assert sum(len(mark["dots"]) for mark in marks.values()) == page["num_commits"]
    [unpublished] = [mark for mark in marks.values() if mark["dots"][0]["published_x"] is None]
    assert by_id[unpublished["txn_id"]]["published_at"] is None
    text = client.get("/transactions").text
    assert text.count('<circle class="version"') == page["num_commits"] + 1  # and the legend
    assert str(escape(HOSTILE)) in text
    two = next(mark for mark in marks.values() if len(mark["dots"]) == 2)
    assert re.search(rf'href="/transaction/{two["txn_id"]}"[^§]*?<line class="txn"', text)


def test_swimlanes_are_filtered_by_table_operation_committer_and_time(client: TestClient) -> None:
    def commits(query: str) -> int:
        count: int = client.get(f"/transactions.json?{query}").json()["num_commits"]
        return count

    everything = commits("")
    assert 0 < commits("table=label") < everything
    assert commits("committer=ada") == 2
    assert commits("operation=ADD+COLUMNS") == 1
    assert commits("operation=%27+OR+1%3D1+--") == 0
    page = client.get("/transactions.json").json()
    middle = (page["from_us"] + page["to_us"]) // 2
    assert commits(f"from={page['from_us']}&to={middle}") + commits(f"from={middle}&to={page['to_us']}") == everything
    assert commits("from=x&to=99999999999999999999999&page=-3") == everything
    wrong = client.get(f"/transactions?from={middle}&to={middle - 1}")
    assert (wrong.status_code, "the window ends before it begins" in wrong.text) == (400, True)


def test_lost_races_are_crosses_in_the_lane_of_their_table(client: TestClient, catalog: deltars.Catalog) -> None:
    def drawn(query: str) -> tuple[int, list[str]]:
        page = client.get(f"/transactions.json?{query}").json()
        assert page["num_lost"] == len(page["drawing"]["crosses"])
        return page["num_commits"], [cross["winning_txn_id"] for cross in page["drawing"]["crosses"]]

    [lost] = catalog.conflicts()
    everything, crosses = drawn("")
    assert crosses == [str(lost.winning_txn_id)]
    assert drawn("outcome=committed") == (everything, [])
    assert drawn("outcome=lost") == (0, crosses)
    assert drawn("outcome=nonsense") == (everything, crosses)
    assert drawn("outcome=lost&table=label") == (0, [])
    assert drawn("outcome=lost&committer=winner") == (0, [])
    assert drawn("outcome=lost&committer=loser") == (0, crosses)
    text = client.get("/transactions?outcome=lost").text
    assert "by loser lost to version 2 of features" in text
    assert "Nothing was committed in this window" not in text


def test_many_commits_are_drawn_as_cells(
    client: TestClient, catalog: deltars.Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(model, "MOST_MARKS", 5)
    page = client.get("/transactions.json").json()
    assert page["drawing"]["marks"] == []
    titles = [re.search(r": (\d+) commits of (.*)", cell["title"]) for cell in page["drawing"]["cells"]]
    assert sum(int(found[1]) for found in titles if found) == page["num_commits"]
    for cell in page["drawing"]["cells"]:
        inside = client.get(f"/transactions.json?from={cell['from_us']}&to={cell['to_us']}").json()
        assert inside["num_commits"] >= 1


def test_transaction_shows_tables_reads_and_the_races_it_won(client: TestClient, catalog: deltars.Catalog) -> None:
    derived = catalog.table(HOSTILE).history(1)[0].txn_id
    page = client.get(f"/transaction/{derived}.json").json()
    assert [(one["table"], one["version"], one["rows_added"]) for one in page["tables"]] == [(HOSTILE, 1, 3)]
    assert [(one["table"], one["version"], one["condition"]) for one in page["read"]] == [("features", 1, "`id` > 2")]
    assert page["tables"][0]["publication_s"] >= 0
    assert page["stages"] == catalog.transaction(derived).stages
    assert {"open", "read", "data", "validate", "lock", "publish"} <= page["stages"].keys()
    text = client.get(f"/transaction/{derived}").text
    assert all(f'<th scope="row">{stage}</th>' in text for stage in page["stages"])
    assert "&lt;b&gt;derived&lt;/b&gt;" in text
    assert "<b>" not in text
    assert [box["label"] for box in page["graph"]["boxes"]][::2] == ["features", HOSTILE]
    assert page["torn_s"] is None
    both = next(one for one in catalog.activity() if one.committer == "ada")
    assert client.get(f"/transaction/{both.txn_id}.json").json()["torn_s"] >= 0
    won = catalog.conflicts()[0].winning_txn_id
    assert client.get(f"/transaction/{won}.json").json()["conflicts"][0]["committer"] == "loser"
    assert client.get(f"/transaction/{UUID(int=7)}").status_code == 404


def test_table_shows_schema_history_growth_and_lineage(client: TestClient, catalog: deltars.Catalog) -> None:
    page = client.get("/table.json", params={"name": "features"}).json()
    table = catalog.table("features")
    assert (page["version"], page["num_records"], page["num_files"]) == (3, 9, table.detail().num_files)
    assert [entry["version"] for entry in page["history"]] == [3, 2, 1, 0]
    charts = {chart["title"]: (chart["least"], chart["most"]) for chart in page["charts"]}
    assert charts["rows"] == (0, 9)
    assert charts["files"] == (0, page["num_files"])
    assert sum(bar["count"] for bar in page["file_sizes"]) == page["num_files"]
    assert [edge["target"] for edge in page["dependents"]] == [HOSTILE]
    assert [box["label"] for box in page["graph"]["boxes"]] == ["features", HOSTILE]
    assert len(page["graph"]["arrows"]) == 1
    assert page["statistics"]["id"] == {"least": "0", "most": "5", "num_nulls": 0}
    assert "day" not in page["statistics"]  # a partition column
    assert [(tag["name"], tag["version"]) for tag in page["tags"]] == [("q3", 2)]
    assert (page["health"]["num_versions"], page["vectors"]) == (4, {"num_files": 0, "deleted_rows": 0})
    labels = client.get("/table.json", params={"name": "labels"}).json()
    assert [(one["version"], one["added"]) for one in labels["schema_changes"]] == [(3, ["note"])]
    for name in ("features", "labels", HOSTILE):
        assert client.get("/table", params={"name": name}).status_code == 200
    missing = client.get("/table", params={"name": "featurs"})
    assert (missing.status_code, "Did you mean &#39;features&#39;?" in missing.text) == (404, True)
    assert client.get("/table").status_code == 404


def test_conflicts_say_who_lost_to_whom(client: TestClient, catalog: deltars.Catalog) -> None:
    lose_a_race(catalog)
    page = client.get("/conflicts.json").json()
    assert [(one["table"], one["committer"], one["winning_version"]) for one in page["conflicts"]] == [
        ("features", "loser", 4),
        ("features", "loser", 2),
    ]
    assert [(bar["label"], bar["count"]) for bar in page["by_table"]] == [("features", 2)]
    assert sum(bar["count"] for bar in page["by_hour"]) == 2
    cells = page["drawing"]["cells"]
    assert sum(int(cell["title"].split(": ")[1].split()[0]) for cell in cells) == 2
    for cell in cells:
        assert cell["to_us"] - cell["from_us"] == 3_600_000_000
        inside = client.get(f"/transactions.json?outcome=lost&from={cell['from_us']}&to={cell['to_us']}").json()
        assert inside["num_lost"] > 0
    assert 'class="cell losses' in client.get("/conflicts").text


@pytest.mark.backends("sqlite")
def test_advice_has_the_text_of_its_dry_run(catalog: deltars.Catalog) -> None:
    table = catalog.create_table("t", "id BIGINT", properties={"delta.enableDeletionVectors": "true"})
    table.write(rows(8).select(["id"]))
    table.delete("id < 3")
    with catalog.begin(mirror="off") as tx:
        tx.write("t", rows(1).select(["id"]))
    with client_of(catalog) as client:
        page = client.get("/table.json?name=t").json()
        assert page["vectors"] == {"num_files": 1, "deleted_rows": 3}
        [advice] = [one for one in page["advice"] if one["verb"] == "optimize"]
        planned = table.optimize(dry_run=True)
        assert advice["dry_run"].startswith(f"Would write {planned.num_files_removed} files (")
        assert advice["command"] == "deltars optimize t --dry-run"
        assert advice["dry_run"] in client.get("/table?name=t").text
        assert table.version == 3
        table.optimize()
        runs = client.get("/maintenance.json").json()
        assert [(run["table"], run["version"]) for run in runs["runs"]] == [("t", 4)]
        assert runs["tables"][0]["optimized_at"] is not None


@pytest.mark.parametrize(
    ("verb", "sentence"),
    [
        (MaintenanceVerb.VACUUM, "Would delete about 5 files (2.0 KiB)."),
        (MaintenanceVerb.EXPIRE, "Would delete 0 versions: the history would begin with version 0."),
        (MaintenanceVerb.PUBLISH, "Would publish the versions up to 0."),
        (MaintenanceVerb.REPAIR, "A person must decide: compare the log with the catalog first."),
    ],
)
@pytest.mark.backends("sqlite")
def test_every_verb_has_a_sentence(catalog: deltars.Catalog, verb: MaintenanceVerb, sentence: str) -> None:
    catalog.write("t", rows(1))
    table = catalog.table("t")
    assert dry_run(table, Advice("t", table.id, verb, "", 5, 2048)) == sentence


def test_conflicts_are_counted_whole_and_listed_by_pages(
    client: TestClient, catalog: deltars.Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(model, "CONFLICTS", 2)
    lose_a_race(catalog)
    lose_a_race(catalog)
    first, second, third = (client.get(f"/conflicts.json?page={page}").json() for page in range(3))
    listed = [one["winning_version"] for page in (first, second, third) for one in page["conflicts"]]
    assert listed == [one.winning_version for one in catalog.conflicts()]
    assert [page["has_more"] for page in (first, second, third)] == [True, False, False]
    assert [page["num_conflicts"] for page in (first, second, third)] == [3, 3, 3]
    assert [bar["count"] for bar in first["by_rule"]] == [3]
    assert 'href="/conflicts?page=1"' in client.get("/conflicts").text
    assert client.get("/conflicts?page=99999999999999999").status_code == 200


@pytest.mark.backends("sqlite")
def test_page_that_takes_too_long_is_given_up_and_keeps_no_other(
    client: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    held = threading.Event()
    monkeypatch.setattr(app, "PATIENCE_S", 0.2)
    monkeypatch.setattr(model.ConsoleModel, "overview", lambda _: held.wait(60))
    try:
        slow = client.get("/")
        assert (slow.status_code, "the page was not ready after 0.2 s" in slow.text) == (503, True)
        assert client.get("/conflicts.json").status_code == 200
    finally:
        held.set()


def test_cuts_compare_a_tag_a_transaction_and_a_time(client: TestClient, catalog: deltars.Catalog) -> None:
    def changed(**query: str) -> dict[str, tuple[int | None, int | None]]:
        tables = client.get("/cuts.json", params=query).json()["tables"]
        return {one["table"]: (one["before"], one["after"]) for one in tables if one["before"] != one["after"]}

    assert changed(before="q3") == {"features": (2, 3)}
    first = str(catalog.table("labels").history()[-2].txn_id)
    assert changed(before=first, after="q3") == {"features": (1, 2), "labels": (1, 3), HOSTILE: (0, 1)}
    assert changed(before="2020-01-01") == {"features": (None, 3), "labels": (None, 3), HOSTILE: (None, 1)}
    assert client.get("/cuts", params={"before": "no time"}).status_code == 400
    page = client.get("/cuts.json", params={"before": "q3"}).json()
    [features] = [one for one in page["tables"] if one["table"] == "features"]
    assert (features["rows_added"], features["rows_removed"], page["num_changed"]) == (1, 0, 1)
    assert page["page"]["num_commits"] == 1
    back = client.get("/cuts.json", params={"before": "2030-01-01", "after": "q3"}).json()
    assert back["page"] is None


def test_mirror_streams_and_maintenance(client: TestClient) -> None:
    mirror = {one["table"]: one for one in client.get("/mirror.json").json()["tables"]}
    assert (mirror["features"]["num_pending"], mirror["labels"]["num_pending"]) == (1, 0)
    assert mirror["features"]["lag_s"] > 0
    [stream] = client.get("/streams.json").json()["streams"]
    assert (stream["app_id"], stream["table"], stream["batch"]) == ("stream-of-labels", "labels", 7)
    assert (stream["lag_s"] > 0, stream["usual_pause_s"], stream["is_late"]) == (True, None, False)
    assert {one["table"] for one in client.get("/maintenance.json").json()["tables"]} == {"features", "labels", HOSTILE}


@pytest.mark.backends("sqlite")
def test_empty_catalog_says_what_to_do_next(catalog: deltars.Catalog) -> None:
    with client_of(catalog) as client:
        for page in PAGES:
            assert client.get(page).status_code == 200, page
            assert client.get(as_json(page)).status_code == 200, page
        assert "deltars load features features.parquet --create" in client.get("/").text


@pytest.mark.backends("sqlite")
def test_lost_database_is_an_error_page_and_comes_back(catalog: deltars.Catalog, tmp_path: Path) -> None:
    fill(catalog)
    [file] = tmp_path.glob("*.db")
    with client_of(catalog) as client:
        catalog.close()
        file.rename(tmp_path / "gone")
        for page in ("/", "/transactions.json"):
            assert client.get(page).status_code in (400, 503)
        catalog.close()
        (tmp_path / "gone").rename(file)
        assert client.get("/").status_code == 200


@pytest.mark.backends("sqlite")
def test_pages_write_nothing(catalog: deltars.Catalog, tmp_path: Path) -> None:
    fill(catalog)

    def written() -> dict[Path, int]:
        return {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*") if path.suffix not in (".db-shm",)}

    with client_of(catalog) as client:
        before = written()
        for page in (*PAGES, "/table?name=features"):
            assert client.get(page).status_code == 200
        assert written() == before


@pytest.mark.backends("postgres")
def test_every_page_is_made_by_sessions_that_cannot_write(catalog: deltars.Catalog, migrated_uri: str) -> None:
    fill(catalog)
    catalog.table("labels").alter.set_properties({"delta.enableDeletionVectors": "true"})
    catalog.table("labels").delete("id < 3")
    derived = catalog.activity(limit=1)[0].txn_id
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PGOPTIONS", "")
        make_sessions_read_only()
        with deltars.connect(migrated_uri, migrate=False) as reading, client_of(reading) as client:
            with pytest.raises(deltars.DeltarsError):
                reading.tag("never")
            for page in (*PAGES, f"/transaction/{derived}", "/table?name=labels", "/table?name=features"):
                assert client.get(page).status_code == 200, page
            advice = client.get("/table.json?name=labels").json()["advice"]
            assert any(one["dry_run"].startswith("Would write") for one in advice), advice
            assert not any("cannot be tried" in one["dry_run"] for one in advice), advice


@pytest.mark.backends("sqlite")
class TestGuard:
    def test_needs_the_token_and_keeps_it_out_of_the_address(self, catalog: deltars.Catalog) -> None:
        pages = create_app(catalog, token="secret", hosts=[HOST])
        client = TestClient(pages, base_url=f"http://{HOST}", follow_redirects=False)
        for address in ("/", "/overview.json", "/static/console.css", "/?token=wrong"):
            assert client.get(address).status_code == 401
        first = client.get("/cuts?before=q3&token=secret")
        assert (first.status_code, first.headers["location"]) == (303, "/cuts?before=q3")
        assert {"HttpOnly", "SameSite=strict"} <= set(first.headers["set-cookie"].split("; "))
        assert client.get("/").status_code == 200

    def test_sends_nobody_to_another_host(self) -> None:
        assert without_token(URL(f"http://{HOST}//elsewhere.example/?token=secret&a=1")) == "/elsewhere.example/?a=1"

    @pytest.mark.parametrize(
        ("headers", "status"),
        [
            ({"host": "elsewhere.example"}, 403),
            ({"host": "127.0.0.1:1"}, 403),
            ({"origin": "http://elsewhere.example"}, 403),
            ({"origin": "null"}, 403),
            ({"origin": f"http://{HOST}"}, 200),
        ],
    )
    def test_refuses_other_hosts_and_sites(
        self, catalog: deltars.Catalog, headers: dict[str, str], status: int
    ) -> None:
        assert client_of(catalog).get("/", headers=headers).status_code == status

    def test_only_reads_and_runs_no_script_of_others(self, catalog: deltars.Catalog) -> None:
        client = client_of(catalog)
        assert client.post("/").status_code == 405
        policy = client.get("/").headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy
        for path in Path(model.__file__).parent.glob("templates/*.html"):
            # Inline scripts, handlers and styles would not run under this policy.
            assert not re.search(r"<script(?! src=)|\son\w+=|\sstyle=|javascript:", path.read_text()), path.name


def test_64_bit_numbers_are_text_in_json(catalog: deltars.Catalog) -> None:
    catalog.write("features", rows(1), app_id="large", app_version=2**63 - 1)
    with client_of(catalog) as client:
        assert client.get("/streams.json").json()["streams"][0]["batch"] == str(2**63 - 1)


@pytest.mark.backends("sqlite", "duckdb")
def test_page_whose_statement_takes_too_long_ends(
    catalog: deltars.Catalog, backend: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The database is interrupted, the page says so, and its connection serves the next page."""
    catalog.write("t", rows(1))
    database = catalog._session.database
    monkeypatch.setattr(database.backend, "read_limit", TimeLimit(0.2), raising=False)

    def look(_: model.ConsoleModel) -> None:
        with database.read() as connection:
            connection.execute(text(ENDLESS[backend])).all()

    monkeypatch.setattr(model.ConsoleModel, "mirror", look)
    with client_of(catalog) as client:
        slow = client.get("/mirror")
        assert (slow.status_code, "reading for too long" in slow.text) == (503, True)
        assert client.get("/overview.json").status_code == 200
    use = database.pool_use()
    assert use is not None
    assert use.in_use == 0
