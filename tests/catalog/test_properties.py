"""Properties are checked wherever users set them; tables of others keep theirs."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import write_deltalake

import deltars

ROWS = pa.table({"id": [1, 2, 3]})
WRONG = [
    {"delta.appendOnly": "yes"},
    {"delta.checkpointInterval": "often"},
    {"deltars.mirror": "sometimes"},
    {"delta.minReaderVersion": "3"},
    {"delta.apendOnly": "true"},
    {"delta.appendOnly": "true", "delta.appendonly": "false"},
]
SETTERS: dict[str, Callable[[deltars.Catalog, dict[str, str]], object]] = {
    "create_table": lambda catalog, given: catalog.create_table("new", "id BIGINT", properties=given),
    "write a new table": lambda catalog, given: catalog.write("new", ROWS, properties=given),
    "write a table": lambda catalog, given: catalog.write("events", ROWS, properties=given),
    "catalog.set_properties": lambda catalog, given: catalog.set_properties("events", given),
    "alter.set_properties": lambda catalog, given: catalog.table("events").alter.set_properties(given),
}


@pytest.fixture
def events(catalog: deltars.Catalog) -> deltars.Table:
    catalog.write("events", ROWS, properties={"owner": "ada"})
    return catalog.table("events")


@pytest.mark.backends("sqlite")
@pytest.mark.parametrize("setter", SETTERS)
def test_wrong_properties_are_refused_before_anything_changes(
    catalog: deltars.Catalog, events: deltars.Table, setter: str
) -> None:
    for wrong in WRONG:
        with pytest.raises(deltars.ValidationError):
            SETTERS[setter](catalog, wrong)
    assert [table.name for table in catalog.tables()] == ["events"]
    assert catalog.table("events").version == 0
    assert "delta.appendOnly" not in catalog.table("events").properties


def test_append_only_is_what_the_value_says_however_it_is_spelled(
    catalog: deltars.Catalog, events: deltars.Table
) -> None:
    catalog.set_properties("events", {"DELTA.appendonly": "TRUE"})
    assert catalog.table("events").properties["delta.appendOnly"] == "TRUE"
    with pytest.raises(deltars.ValidationError, match="append-only"):
        catalog.write("events", ROWS, mode="overwrite")
    catalog.set_properties("events", {}, unset=["delta.APPENDONLY"])
    catalog.write("events", ROWS, mode="overwrite")


@pytest.mark.backends("sqlite")
def test_what_the_log_itself_keeps_cannot_be_unset(catalog: deltars.Catalog, tmp_path: Path) -> None:
    write_deltalake(str(tmp_path / "plain"), ROWS)
    catalog.import_table(str(tmp_path / "plain"), "t")
    kept = catalog.table("t").properties
    assert kept["delta.inCommitTimestampEnablementVersion"] == "1"
    for name in (*kept, "DELTA.INCOMMITTIMESTAMPENABLEMENTVERSION", "delta.columnMapping.maxColumnId"):
        with pytest.raises(deltars.ValidationError, match="cannot be"):
            catalog.set_properties("t", {}, unset=[name])
    assert catalog.table("t").properties == kept


@pytest.mark.backends("sqlite")
def test_replaced_table_still_says_since_when_commits_have_their_time(catalog: deltars.Catalog, tmp_path: Path) -> None:
    """Else readers of the log look for it in commits of others, which lack it."""
    write_deltalake(str(tmp_path / "plain"), ROWS)
    before = catalog.import_table(str(tmp_path / "plain"), "t").properties
    assert before["delta.inCommitTimestampEnablementVersion"] == "1"
    catalog.create_table("t", "name STRING", properties={"owner": "ada"}, replace=True)
    assert catalog.table("t").properties == {**before, "owner": "ada"}


@pytest.mark.backends("sqlite")
def test_constraints_are_checked_with_the_rows_that_are_there(catalog: deltars.Catalog, events: deltars.Table) -> None:
    with pytest.raises(deltars.ValidationError, match=r"Use table.alter.add_constraint\('low', …\)"):
        events.alter.set_properties({"delta.constraints.low": "id < 2"})
    with pytest.raises(deltars.PredicateError, match="there is no column nane"):
        catalog.create_table("new", "id BIGINT", properties={"delta.constraints.named": "nane IS NOT NULL"})


@pytest.fixture
def foreign(tmp_path: Path) -> Callable[[dict[str, str]], str]:
    def make(configuration: dict[str, str]) -> str:
        place = tmp_path / "foreign"
        write_deltalake(place, ROWS)
        log = place / "_delta_log" / f"{0:020}.json"
        lines = [json.loads(line) for line in log.read_text().splitlines()]
        for line in lines:
            if "metaData" in line:
                line["metaData"]["configuration"] |= configuration
        log.write_text("\n".join(map(json.dumps, lines)) + "\n")
        return str(place)

    return make


def test_imported_table_keeps_what_nobody_knows(catalog: deltars.Catalog, foreign: Callable[..., str]) -> None:
    odd = {"delta.quiteUnheardOf": "1", "delta.checkpointInterval": "often", "deltars.mirror": "sometimes"}
    catalog.import_table(foreign(odd), "events")
    catalog.set_properties("events", {"owner": "ada"})
    catalog.table("events").alter.add_columns("note STRING")
    catalog.write("events", pa.table({"id": [4], "note": ["x"]}))
    assert catalog.table("events").properties.items() >= odd.items()


@pytest.mark.parametrize("name", ["delta.appendOnly", "delta.enableRowTracking"])
def test_imported_value_that_is_neither_true_nor_false_is_not_taken_for_false(
    catalog: deltars.Catalog, foreign: Callable[..., str], name: str
) -> None:
    catalog.import_table(foreign({name: "yes"}), "events")
    with pytest.raises(deltars.ValidationError) as raised:
        catalog.write("events", ROWS, mode="overwrite")
    assert f"the table's property {name} is 'yes', which is neither true nor false" in str(raised.value)
    assert "catalog.set_properties" in str(raised.value)
    assert catalog.table("events").to_arrow().num_rows == 3
    catalog.set_properties("events", {name: "false"})
    catalog.write("events", ROWS, mode="overwrite")


@pytest.mark.backends("sqlite")
def test_imported_prefix_length_that_is_no_number_is_a_clear_error(
    catalog: deltars.Catalog, foreign: Callable[..., str]
) -> None:
    catalog.import_table(foreign({"delta.dataSkippingStringPrefixLength": "long"}), "events")
    with pytest.raises(deltars.ValidationError, match="a whole number from 1 on, not 'long'"):
        catalog.write("events", ROWS)
