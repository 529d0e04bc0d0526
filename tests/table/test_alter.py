"""table.alter and tx.alter: schema and properties changed by metadata commits."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

import deltars
from deltars.errors import PredicateError, SchemaMismatch, ValidationError, VersionConflict

# The subject is not the database.
pytestmark = pytest.mark.backends("sqlite")


def ids(*values: int | None) -> pa.Table:
    return pa.table({"id": pa.array(values, pa.int64())})


@pytest.fixture
def table(catalog: deltars.Catalog) -> deltars.Table:
    catalog.write("events", ids(1, 2))
    return catalog.table("events")


def test_added_columns_are_null_in_old_rows_and_written_in_new_ones(
    catalog: deltars.Catalog, table: deltars.Table
) -> None:
    table.alter.add_columns("note STRING COMMENT 'free text', more STRUCT<a: INT>")
    assert list(table.schema.names) == ["id", "note", "more"]
    catalog.write("events", ids(3).append_column("note", pa.array(["new"])))
    rows = table.to_arrow(columns=["id", "note"]).sort_by("id").to_pydict()
    assert rows == {"id": [1, 2, 3], "note": [None, None, "new"]}
    assert table.history()[1].operation == "ADD COLUMNS"


@pytest.mark.parametrize("columns", ["ID STRING", "note STRING NOT NULL"])
def test_column_that_cannot_be_added_is_refused(table: deltars.Table, columns: str) -> None:
    with pytest.raises(ValidationError):
        table.alter.add_columns(columns)
    assert table.version == 0


def test_column_becomes_nullable(catalog: deltars.Catalog) -> None:
    table = catalog.create_table("strict", "id BIGINT NOT NULL, more STRUCT<a: INT NOT NULL>")
    with pytest.raises(SchemaMismatch):
        catalog.write("strict", ids(None))
    table.alter.set_nullable("ID")
    table.alter.set_nullable("more.a")
    catalog.write("strict", ids(None))
    assert str(table.schema) == "struct<id: long, more: struct<a: integer>>"


def test_comment_comes_and_goes(table: deltars.Table) -> None:
    table.alter.comment("id", "the key")
    assert table.schema["id"].metadata == {"comment": "the key"}
    table.alter.comment("id", None)
    assert table.schema["id"].metadata == {}
    with pytest.raises(ValidationError, match=r"no column 'key'.*id"):
        table.alter.comment("key", "x")


def test_constraint_checks_the_rows_that_are_there_and_those_to_come(
    catalog: deltars.Catalog, table: deltars.Table
) -> None:
    with pytest.raises(ValidationError, match="small: id < 2"):
        table.alter.add_constraint("small", "id < 2")
    assert table.version == 0
    table.alter.add_constraint("small", "id < 3")
    with pytest.raises(ValidationError, match="small"):
        catalog.write("events", ids(3))
    assert "checkConstraints" in (table.snapshot().protocol.writer_features or ())
    table.alter.drop_constraint("SMALL")
    catalog.write("events", ids(3))
    assert table.to_arrow().num_rows == 3


def test_constraint_that_makes_no_sense_is_refused(table: deltars.Table) -> None:
    table.alter.add_constraint("small", "id < 3")
    refused: list[tuple[type[Exception], Callable[[], object]]] = [
        (PredicateError, lambda: table.alter.add_constraint("other", "idd < 3")),
        (ValidationError, lambda: table.alter.add_constraint("Small", "id < 9")),
        (ValidationError, lambda: table.alter.add_constraint("", "id < 9")),
        (ValidationError, lambda: table.alter.drop_constraint("large")),
    ]
    for kind, call in refused:
        with pytest.raises(kind):
            call()
    table.alter.drop_constraint("large", if_exists=True)
    assert table.snapshot().metadata.configuration["delta.constraints.small"] == "id < 3"


def test_row_written_while_a_constraint_is_added_is_a_conflict(catalog: deltars.Catalog, table: deltars.Table) -> None:
    tx = catalog.begin(isolation="serializable")
    tx.alter("events").add_constraint("small", "id < 3")
    catalog.write("events", ids(99))
    with pytest.raises(VersionConflict):
        tx.commit()
    assert "delta.constraints.small" not in table.snapshot().metadata.configuration


def test_changes_of_one_transaction_are_one_version(catalog: deltars.Catalog, table: deltars.Table) -> None:
    with catalog.begin() as tx:
        tx.alter("events").add_columns("note STRING")
        tx.alter("events").set_properties({"owner": "ada"})
        tx.write("events", ids(3).append_column("note", pa.array(["x"])))
    assert tx.result.versions == {"events": 1}
    assert table.snapshot().metadata.configuration["owner"] == "ada"
    assert table.to_arrow(where="note = 'x'")["id"].to_pylist() == [3]
    [entry] = table.history(1)
    assert [step["operation"] for step in entry.operation_params["operations"]] == [
        "ADD COLUMNS",
        "SET TBLPROPERTIES",
        "WRITE",
    ]


def test_properties_are_set_and_unset(table: deltars.Table) -> None:
    table.alter.set_properties({"owner": "ada", "delta.appendOnly": "true"})
    table.alter.unset_properties(["owner", "unknown"])
    configuration = table.snapshot().metadata.configuration
    assert "owner" not in configuration
    assert configuration["delta.appendOnly"] == "true"
    version = table.version
    with pytest.raises(ValidationError, match=r"no table property delta\.apendOnly\. Did you mean"):
        table.alter.unset_properties("delta.apendOnly")
    assert table.version == version


@pytest.mark.parametrize(
    "call",
    [
        lambda alter: alter.comment("id", 5),
        lambda alter: alter.comment("id", {"unit": "m"}),
        lambda alter: alter.comment(None, "x"),
        lambda alter: alter.set_default("id", 5),
        lambda alter: alter.set_nullable(["id"]),
    ],
)
def test_value_that_is_no_text_is_refused(table: deltars.Table, call: Callable[[Any], None]) -> None:
    with pytest.raises(ValidationError, match="text, got"):
        call(table.alter)
    assert table.version == 0
