"""Tables made, filled, changed and dropped on the command line, and a look at their rows."""

from __future__ import annotations

import getpass
import gzip
import json
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

import deltars
from deltars.cli import main
from tests.cli.conftest import Run

SCHEMA = "id BIGINT NOT NULL, day DATE, name STRING, price DECIMAL(10, 2), at TIMESTAMP, ok BOOLEAN, score DOUBLE"
ROW = {
    "id": 1,
    "day": date(2026, 1, 1),
    "name": "007",
    "price": Decimal("1.10"),
    "at": datetime(2026, 1, 1, 12, tzinfo=UTC),
    "ok": True,
    "score": 0.5,
}
CSV = "ID,day,name,price,at,ok,score\n1,2026-01-01,007,1.10,2026-01-01T12:00:00Z,true,0.5\n"
JSON = (
    '{"id": 1, "day": "2026-01-01", "name": "007", "price": 1.10, "at": "2026-01-01T12:00:00Z", "ok": true,'
    ' "score": 0.5}\n'
)


@pytest.fixture
def catalog(run: Run) -> deltars.Catalog:
    assert run("init").exit_code == 0
    assert run("create", "t", "--schema", SCHEMA).exit_code == 0
    return deltars.connect()


def rows(catalog: deltars.Catalog, table: str = "t") -> list[dict[str, Any]]:
    return catalog.table(table).to_arrow().to_pylist()  # type: ignore[no-any-return]


def test_create_takes_what_sql_takes(catalog: deltars.Catalog, run: Run) -> None:
    made = catalog.table("t")
    assert run("create", "p", "--schema", SCHEMA, "--partition-by", "day, id").exit_code == 0
    assert catalog.table("p").detail().partition_columns == ("day", "id")
    again = run("create", "t", "--schema", "x INT")
    assert again.exit_code == 1
    assert "Give --if-not-exists, or another name." in again.stderr
    assert run("create", "t", "--schema", "x INT", "--if-not-exists").exit_code == 0
    assert made.schema.names[0] == "id"
    options = ("--property", "owner=me", "--location", "elsewhere", "--comment", "mine")
    assert run("create", "u", "--schema", "x INT", *options).exit_code == 0
    detail = catalog.table("u").detail()
    assert (detail.properties["owner"], detail.description) == ("me", "mine")
    assert detail.location == str(Path("elsewhere").absolute())
    wrong = run("create", "v", "--schema", "x INTT")
    assert "no type INTT" in wrong.stderr
    assert "^" in wrong.stderr
    assert run("create", "v", "--schema", "x INT", "--property", "owner").exit_code == 2
    assert not catalog.table_exists("v")


@pytest.mark.parametrize(
    ("name", "content"),
    [("a.csv", CSV), ("a.tsv", CSV.replace(",", "\t")), ("a.jsonl", JSON), ("a.csv.gz", CSV), ("a.parquet", "")],
)
def test_load_reads_each_format_in_the_types_of_the_table(
    name: str, content: str, catalog: deltars.Catalog, run: Run
) -> None:
    if name.endswith(".parquet"):
        pq.write_table(pa.Table.from_pylist([ROW]), name)
    elif name.endswith(".gz"):
        Path(name).write_bytes(gzip.compress(content.encode()))
    else:
        Path(name).write_text(content)
    result = run("load", "t", name, "--json")
    assert result.exit_code == 0, result.stderr
    assert json.loads(result.stdout)["rows"] == 1
    assert rows(catalog) == [ROW]


def test_load_commits_all_files_at_once_or_none(catalog: deltars.Catalog, run: Run) -> None:
    Path("a.csv").write_text("id,name\n1,x\n2,y\n")
    Path("b.csv").write_text("name,id\nz,3\n")
    Path("bad.csv").write_text("id,name\n4,x\nfive,y\n")
    assert run("load", "t", "a.csv", "b.csv").exit_code == 0
    assert sorted(row["id"] for row in rows(catalog)) == [1, 2, 3]
    assert catalog.table("t").version == 1
    failed = run("load", "t", "a.csv", "bad.csv")
    assert failed.exit_code == 1
    assert failed.stderr.startswith("Error: bad.csv: row 3, column id: CSV conversion error to int64: invalid value")
    assert catalog.table("t").version == 1
    assert run("load", "t", "b.csv", "--mode", "overwrite").exit_code == 0
    assert [row["id"] for row in rows(catalog)] == [3]


def test_load_with_an_id_is_done_once(catalog: deltars.Catalog, run: Run) -> None:
    Path("a.csv").write_text("id\n1\n")
    first, second = (run("load", "t", "a.csv", "--txn-id", "daily", "--json") for _ in range(2))
    assert first.stdout == second.stdout
    assert "Nothing was loaded" not in first.stderr
    assert second.stderr.startswith("Nothing was loaded: the transaction daily was committed before.")
    assert len(rows(catalog)) == 1
    for _ in range(2):
        assert run("load", "u", "a.csv", "--create", "--schema", "id INT", "--txn-id", "first").exit_code == 0
    assert len(rows(catalog, "u")) == 1
    assert run("load", "t", "a.csv", "--txn-id", "first").exit_code == 1  # it loaded another table
    assert run("load", "t", "a.csv", "--txn-id", " ").exit_code == 2


def test_load_makes_a_table_only_if_asked_for(catalog: deltars.Catalog, run: Run) -> None:
    Path("a.csv").write_text('id,day,text,nothing\n1,2026-01-01,"",\n2,2026-01-02,,\n')
    missing = run("load", "tt", "a.csv")
    assert missing.exit_code == 1
    assert "Did you mean 't'?" in missing.stderr
    assert "--create creates it" in missing.stderr
    assert run("load", "tt", "a.csv", "--create", "--partition-by", "day").exit_code == 0
    assert str(catalog.table("tt").schema.fields[3].type) == "string"
    assert [row["text"] for row in sorted(rows(catalog, "tt"), key=lambda row: str(row["id"]))] == ["", None]
    assert run("load", "tt", "a.csv", "--create").exit_code == 0  # and fills one that is there
    assert run("load", "tt", "a.csv", "--create", "--partition-by", "day").exit_code == 2


def test_load_applies_defaults_and_constraints(catalog: deltars.Catalog, run: Run) -> None:
    Path("a.csv").write_text("id\n1\n")
    assert run("alter", "t", "set-default", "name", "'unknown'").exit_code == 0
    assert run("alter", "t", "add-constraint", "positive", "id > 0").exit_code == 0
    assert run("load", "t", "a.csv").exit_code == 0
    assert rows(catalog)[0]["name"] == "unknown"
    Path("a.csv").write_text("id\n0\n")
    refused = run("load", "t", "a.csv")
    assert refused.exit_code == 1
    assert "violates the constraint positive: id > 0" in refused.stderr


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("a.csv", "id,colour\n1,red\n", "a.csv has the column colour, which the table lacks"),
        ("a.csv", "id\n1\n2,3\n", "a.csv: CSV parse error: Row #3: Expected 1 columns, got 2"),
        ("a.csv", "id,ID\n1,2\n", "a.csv has the column ID twice"),
        ("a.csv", "", "a.csv: Empty CSV file"),
        ("a.csv", "name\nx\n", "column id is NOT NULL and missing"),
        ("a.csv", "id,name\n1,x\n,y\n", "a.csv, rows 1 to 2: the data does not fit the table: column id is NOT NULL"),
        ("a.csv", "id,at\n1,2026-01-01 12:00:00\n", "Write times with a zone"),
        ("a.csv", "id,price\n1,1.123\n", "row 2, column price: Rescaling Decimal value would cause data loss"),
        (
            "a.jsonl",
            '{"id": 1}\n{"id": "x"}\n',
            "a.jsonl: JSON parse error: Column(/id) changed from number to string in row 1",
        ),
        ("a.jsonl", '{"id": 1, "day": "soon"}\n', "a.jsonl, rows 1 to 1: "),
        ("a.parquet", "no", "a.parquet: "),
        ("a.xlsx", "no", "the name of a.xlsx does not show its format"),
    ],
)
def test_file_that_does_not_fit_is_named_and_changes_nothing(
    name: str, content: str, said: str, catalog: deltars.Catalog, run: Run
) -> None:
    Path(name).write_text(content)
    result = run("load", "t", name)
    assert result.exit_code == 1
    assert said in result.stderr
    assert catalog.table("t").version == 0


def test_load_of_a_file_that_is_not_there(catalog: deltars.Catalog, run: Run) -> None:
    assert "there is no file missing.csv" in run("load", "t", "missing.csv").stderr


def test_merge_schema_adds_the_columns_of_the_file(catalog: deltars.Catalog, run: Run) -> None:
    Path("a.csv").write_text("id,colour\n1,red\n")
    assert "--merge-schema" in run("load", "t", "a.csv").stderr
    assert run("load", "t", "a.csv", "--merge-schema").exit_code == 0
    assert rows(catalog)[0]["colour"] == "red"


def test_head_selects_rows_columns_and_versions(catalog: deltars.Catalog, run: Run) -> None:
    for key in (1, 2):
        Path("a.csv").write_text(f"id,name\n{key},n{key}\n")
        assert run("load", "t", "a.csv", "--txn-id", f"load {key}").exit_code == 0
    columns = ("--columns", "id,name")
    assert run("head", "t", *columns, "--where", "id > 1").stdout == "id,name\n2,n2\n"
    assert run("head", "t", *columns, "--version", "1").stdout == "id,name\n1,n1\n"
    assert run("head", "t", *columns, "--as-of", "load 1").stdout == "id,name\n1,n1\n"
    assert len(run("head", "t", "-n", "1").stdout.splitlines()) == 2
    assert len(run("head", "t", "--limit", "1").stdout.splitlines()) == 2
    assert "Write AND in place of &&." in run("head", "t", "--where", "id = 1 && id = 2").stderr
    assert json.loads(run("head", "t", "--json", *columns, "--where", "id = 2").stdout) == [{"id": 2, "name": "n2"}]
    assert run("head", "t", "--version", "1", "--as-of", "load 1").exit_code == 2
    assert "there is no column idd" in run("head", "t", "--where", "idd = 1").stderr
    assert 'Use deltars sql "SELECT …"' in run("head", "t", "--where", "upper(name) = 'X'").stderr


def test_alter_takes_the_table_first_or_last(catalog: deltars.Catalog, run: Run) -> None:
    assert run("alter", "t", "add-column", "note", "ARRAY<STRING>").exit_code == 0
    assert run("alter", "comment", "t", "note", "text").exit_code == 0
    field = catalog.table("t").schema.fields[-1]
    assert (field.name, field.metadata["comment"]) == ("note", "text")
    assert run("alter", "t", "drop-not-null", "id").exit_code == 0
    assert catalog.table("t").schema.fields[0].nullable
    assert run("alter", "t", "drop-constraint", "none").exit_code == 1
    assert run("alter", "t", "drop-constraint", "none", "--if-exists").exit_code == 0
    assert run("alter", "t", "frobnicate").exit_code == 2


def test_drop_asks_and_keeps_the_files_unless_told(catalog: deltars.Catalog, run: Run) -> None:
    location = Path(catalog.table("t").location)
    assert run("drop", "t", input="n\n").exit_code == 1
    assert catalog.table_exists("t")
    dropped = run("drop", "t", input="y\n")
    assert "keeps its files at" in dropped.stderr
    assert not catalog.table_exists("t")
    assert location.exists()
    assert run("drop", "t", "--yes").exit_code == 1
    assert run("create", "t", "--schema", "id INT").exit_code == 0
    second = Path(catalog.table("t").location)
    assert run("drop", "t", "--delete-data", "--yes").exit_code == 0
    assert not second.exists()
    assert run("drop", "t", "--delete-data", "--yes").exit_code == 0  # finishes what was interrupted


def test_shell_completes_the_names_of_tables(catalog: deltars.Catalog) -> None:
    catalog.create_table("Target", "id INT")
    catalog.create_table("other", "id INT")

    def completed(words: str, **environment: str) -> list[str]:
        env = {"_DELTARS_COMPLETE": "bash_complete", "COMP_WORDS": words, "COMP_CWORD": "2", **environment}
        answer = CliRunner().invoke(main, [], env=env, prog_name="deltars").stdout
        return [line.partition(",")[2] for line in answer.splitlines()]

    assert completed("deltars history t") == ["Target", "t"]
    assert completed("deltars load ") == ["Target", "other", "t"]
    assert not any(completed("deltars history t", DELTARS_CATALOG="deltasql://sqlite/missing.db"))


def test_load_creates_text_where_a_number_would_lose_digits(catalog: deltars.Catalog, run: Run) -> None:
    Path("a.csv").write_text("zip,phone,key,n,zero,rate\n123,-1,1.5,1,0,0.5\n")
    Path("b.csv").write_text("zip,phone,key,n,zero,rate\n00123,-012,12345678901234567890,22,0,0.25\n")
    assert run("load", "zips", "a.csv", "b.csv", "--create").exit_code == 0
    types = {field.name: str(field.type) for field in catalog.table("zips").schema.fields}
    assert types == {"zip": "string", "phone": "string", "key": "string", "n": "long", "zero": "long", "rate": "double"}
    assert {row["zip"] for row in rows(catalog, "zips")} == {"123", "00123"}
    assert {row["key"] for row in rows(catalog, "zips")} == {"1.5", "12345678901234567890"}


def test_load_creates_the_table_of_a_schema(catalog: deltars.Catalog, run: Run) -> None:
    Path("a.csv").write_text("zip,day\n00123,2026-01-01\n")
    schema = ("--schema", "zip INT NOT NULL, day STRING, note STRING")
    assert run("load", "u", "a.csv", "--create", *schema, "--partition-by", "day").exit_code == 0
    assert rows(catalog, "u") == [{"zip": 123, "day": "2026-01-01", "note": None}]
    made = catalog.table("u")
    assert (made.version, made.detail().partition_columns, made.schema.fields[0].nullable) == (0, ("day",), False)
    assert "--schema goes with --create" in run("load", "u", "a.csv", *schema).stderr
    assert run("load", "v", "a.csv", "--create", "--schema", "zip INT").exit_code == 1
    assert not catalog.table_exists("v")


def test_load_names_the_character_that_separates_a_file(catalog: deltars.Catalog, run: Run) -> None:
    Path("a.csv").write_text("id;name\n1;x\n")
    refused = run("load", "t", "a.csv")
    assert refused.exit_code == 1
    assert "the fields of a.csv seem to be separated by ';'" in refused.stderr
    assert "--delimiter" in refused.stderr
    assert run("load", "u", "a.csv", "--create").exit_code == 1
    assert run("load", "t", "a.csv", "--delimiter", ";").exit_code == 0
    Path("a.csv").write_text("id\tname\n2\ty\n")
    assert run("load", "t", "a.csv", "--delimiter", r"\t").exit_code == 0
    assert [row["name"] for row in sorted(rows(catalog), key=lambda row: str(row["id"]))] == ["x", "y"]
    Path("a.csv").write_text("id|name\n1\n")
    assert run("load", "u", "a.csv", "--create", "--delimiter", ",").exit_code == 0
    assert run("load", "t", "a.csv", "--delimiter", "::").exit_code == 2


def test_delete_and_update_print_the_version_and_its_transaction(catalog: deltars.Catalog, run: Run) -> None:
    Path("a.csv").write_text("id,name\n1,x\n2,y\n")
    assert run("load", "t", "a.csv").exit_code == 0
    for version, arguments in enumerate((("update", "t", "--set", "name='z'"), ("delete", "t")), start=2):
        done = json.loads(run(*arguments, "--where", "id = 1", "--json").stdout)
        assert (done["table"], done["version"]) == ("t", version)
        entry = catalog.table("t").history(1)[0]
        assert (done["txn_id"], entry.committer) == (str(entry.txn_id), getpass.getuser())
        assert done["rows_updated"] + done["rows_deleted"] == 1
    nothing = run("delete", "t", "--where", "id = 1", "--json")
    assert nothing.exit_code == 0
    assert (json.loads(nothing.stdout)["version"], json.loads(nothing.stdout)["txn_id"]) == (None, None)
    assert catalog.table("t").version == 3


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("load", "t", "a.csv"), "Fill it in the file, or allow nulls in the table: deltars alter TABLE drop-not-null"),
        (("cut", "2999-01-01T00:00:00Z"), "Leave the moment out to get the present cut."),
        (("delete", "t", "--where", " "), 'Give SQL text such as "id = 7".\n'),
        (("alter", "t", "add-constraint", "c", "idd > 0"), "at position 1 of the constraint:"),
        (("alter", "t", "set-property", "delta.foo=1"), "docs/configuration.md lists the known ones."),
        (("alter", "t", "set-property", "delta.apendOnly=true"), "Did you mean delta.appendOnly?"),
        (("alter", "t", "set-property", "delta.mirror=off"), "Did you mean deltars.mirror?"),
        (("rebuild", "/nowhere"), "Give the warehouse that the lost catalog had."),
    ],
)
def test_hint_is_in_the_words_of_the_command_line(
    arguments: tuple[str, ...], said: str, catalog: deltars.Catalog, run: Run
) -> None:
    Path("a.csv").write_text("id,name\n,x\n")
    result = run(*arguments)
    assert result.exit_code in (1, 2)
    assert said in result.stderr


def test_rebuild_into_a_catalog_with_another_warehouse_says_what_to_give(catalog: deltars.Catalog, run: Run) -> None:
    assert catalog.warehouse is not None
    assert run("init", "--catalog", "deltasql://sqlite/other.db").exit_code == 0
    refused = run("rebuild", catalog.warehouse, "--catalog", "deltasql://sqlite/other.db")
    assert refused.exit_code == 2
    assert "or with --catalog a new one to rebuild into." in refused.stderr


@pytest.mark.parametrize("create", [(), ("--create",)])
def test_csv_in_another_encoding_is_refused_until_it_is_named(
    create: tuple[str, ...], catalog: deltars.Catalog, run: Run
) -> None:
    table = "latin" if create else "t"
    Path("latin.csv").write_bytes("id,name\n1,Müller\n".encode("latin-1"))
    refused = run("load", table, "latin.csv", *create)
    assert refused.exit_code == 1
    assert "latin.csv" in refused.stderr
    assert "Give it as --encoding, such as --encoding latin-1, or convert the file to UTF-8." in refused.stderr
    assert run("load", table, "latin.csv", *create, "--encoding", "nonsense").exit_code == 2
    loaded = run("load", table, "latin.csv", *create, "--encoding", "latin-1")
    assert loaded.exit_code == 0, loaded.stderr
    assert [(row["id"], row["name"]) for row in rows(catalog, table)] == [(1, "Müller")]


def test_json_array_is_refused_with_the_way_to_convert_it(catalog: deltars.Catalog, run: Run) -> None:
    Path("rows.json").write_text('\n [{"id": 1}, {"id": 2}]')
    refused = run("load", "a", "rows.json", "--create")
    assert refused.exit_code == 1
    assert "rows.json is a JSON array; each line must be one object" in refused.stderr
    assert "jq -c '.[]' rows.json > rows.jsonl" in refused.stderr


def test_header_with_a_blank_is_loaded_with_column_mapping(catalog: deltars.Catalog, run: Run) -> None:
    Path("blank.csv").write_text("my col\n1\n")
    refused = run("load", "b", "blank.csv", "--create")
    assert refused.exit_code == 1
    option = "--property delta.columnMapping.mode=name"
    assert f"Rename the column, or create the table with {option}." in refused.stderr
    assert run("load", "b", "blank.csv", "--create", *option.split()).exit_code == 0
    assert rows(catalog, "b") == [{"my col": 1}]
    assert run("load", "b", "blank.csv", *option.split()).exit_code == 2


@pytest.mark.parametrize(("form", "text"), [("csv", CSV), ("json", JSON)])
def test_load_reads_standard_input(form: str, text: str, catalog: deltars.Catalog, run: Run) -> None:
    loaded = run("load", "t", "-", "--format", form, input=text)
    assert loaded.exit_code == 0, loaded.stderr
    assert rows(catalog) == [ROW]
    assert run("load", "new", "-", "--format", form, "--create", input=text).exit_code == 0
    nameless = run("load", "t", "-", input=text)
    assert nameless.exit_code == 2
    assert "give --format" in nameless.stderr


def test_date_without_quotes_is_refused_with_the_advice_to_quote_it(catalog: deltars.Catalog, run: Run) -> None:
    Path("rows.csv").write_text(CSV)
    assert run("load", "t", "rows.csv").exit_code == 0
    for command, literal in (
        (("delete", "t", "--where", "day = 2026-01-01"), "DATE '2026-01-31'"),
        (("delete", "t", "--where", "2026-01-01 <= day"), "DATE '2026-01-31'"),
        (("delete", "t", "--where", "day IN (2026-01-01)"), "DATE '2026-01-31'"),
        (("update", "t", "--set", "name='x'", "--where", "at > 2026-01-01"), "TIMESTAMP '2026-01-31 12:30:00Z'"),
        (("head", "t", "--where", "day BETWEEN 2026-01-01 AND 2026-01-02"), "DATE '2026-01-31'"),
    ):
        result = run(*command)
        assert result.exit_code == 1
        assert "is compared with a number, at position" in result.stderr
        assert f"Write it as {literal}." in result.stderr
        assert "Spark" not in result.stderr
    assert rows(catalog) == [ROW]


def test_committer_of_commands_and_tags_is_the_user(catalog: deltars.Catalog, run: Run) -> None:
    Path("rows.csv").write_text(CSV)
    assert run("load", "t", "rows.csv").exit_code == 0
    assert run("update", "t", "--set", "name='x'", "--all").exit_code == 0
    assert run("delete", "t", "--all").exit_code == 0
    tag = json.loads(run("tag", "day0", "--json").stdout)
    assert tag["committer"] == getpass.getuser()
    assert catalog.tags()[0].committer == getpass.getuser()
    assert {entry.committer for entry in catalog.table("t").history()} == {getpass.getuser()}
    assert catalog.tag("mine", committer="nightly job").committer == "nightly job"


def test_option_format_of_a_list_means_json(catalog: deltars.Catalog, run: Run) -> None:
    result = run("tables", "--format", "json")
    assert result.exit_code == 2
    assert "Did you mean '--json'?" in result.stderr
