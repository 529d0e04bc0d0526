"""What is refused by the actions alone, without a database: each refusal says which action, which field and why."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any
from uuid import UUID, uuid4

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from deltars.errors import ValidationError
from deltars.log.commit import Commit, TableCommit
from deltars.log.validation import check_actions, check_commit
from deltars.protocol import (
    Action,
    CdcFile,
    CommitInfo,
    DomainMetadata,
    Format,
    Protocol,
    Txn,
)
from tests.support.log import added, creation, every_kind, metadata, removed, row_groups, stats, vector

TABLE_ID = UUID(int=7)
TOO_LARGE = 2**63


def changed(path: str) -> CdcFile:
    return CdcFile(path=path, partition_values={}, size=1)


def commit_of(*actions: Any, **fields: Any) -> TableCommit:
    return TableCommit(TABLE_ID, 3, actions, **({"operation": "WRITE"} | fields))


def refusal(*actions: Any, **fields: Any) -> ValidationError:
    with pytest.raises(ValidationError) as caught:
        check_actions(commit_of(*actions, **fields))
    assert caught.value.table_id == str(TABLE_ID)
    return caught.value


def test_every_kind_of_action_is_accepted_together() -> None:
    check_actions(commit_of(*every_kind(1, gone=["old"])))
    check_actions(commit_of(*creation()))


@pytest.mark.parametrize(
    ("action", "field"),
    [
        (added(7), "path"),  # type: ignore[arg-type]
        (added(None), "path"),  # type: ignore[arg-type]
        (added("a", size="10"), "size"),
        (added("a", size=None), "size"),
        (added("a", size=1.5), "size"),
        (added("a", size=True), "size"),
        (added("a", modification_time="now"), "modification_time"),
        (added("a", data_change="yes"), "data_change"),
        (added("a", data_change=None), "data_change"),
        (added("a", partition_values=None), "partition_values"),
        (added("a", partition_values={"day": 1}), "partition_values"),
        (added("a", partition_values=[("day", "1")]), "partition_values"),
        (added("a", stats={"numRecords": 1}), "stats"),
        (added("a", tags={"k": 1}), "tags"),
        (added("a", base_row_id="0"), "base_row_id"),
        (added("a", deletion_vector="x"), "deletion_vector"),
        (added("a", deletion_vector=vector(size_in_bytes="x")), "deletion_vector"),
        (added("a", size=object()), "size"),
        (added("a\ud800"), "path"),
        (added("a", clustering_provider="\udfff"), "clustering_provider"),
        (removed("a", deletion_timestamp="now"), "deletion_timestamp"),
        (removed("a", data_change=1), "data_change"),
        (CdcFile(path="a", partition_values={}, size="1"), "size"),  # type: ignore[arg-type]
        (metadata(partition_columns="id"), "partition_columns"),
        (metadata(configuration={"a": 1}), "configuration"),
        (metadata(id=None), "id"),
        (metadata(format="parquet"), "format"),
        (Protocol(min_reader_version="1", min_writer_version=2), "min_reader_version"),  # type: ignore[arg-type]
        (Protocol(min_reader_version=1, min_writer_version=7, writer_features="x"), "writer_features"),  # type: ignore[arg-type]
        (Txn(app_id=7, version=1), "app_id"),  # type: ignore[arg-type]
        (Txn(app_id="a", version=None), "version"),  # type: ignore[arg-type]
        (DomainMetadata(domain="d", configuration={}, removed=False), "configuration"),  # type: ignore[arg-type]
        (DomainMetadata(domain="d", configuration="", removed=None), "removed"),  # type: ignore[arg-type]
    ],
    ids=lambda value: value if isinstance(value, str) else type(value).__name__,
)
def test_field_of_the_wrong_type_is_refused_by_its_name(action: Action, field: str) -> None:
    error = refusal(added("fine"), action)
    assert (error.action, error.field) == (1, field)
    assert f"action 1 ({type(action).__name__}): {field}: " in error.message


@pytest.mark.parametrize(
    ("action", "field", "why"),
    [
        (added("a", size=-1), "size", "negative"),
        (added("a", size=TOO_LARGE), "size", "too large for 64 bits"),
        (added("a", modification_time=-1), "modification_time", "negative"),
        (added("a", modification_time=TOO_LARGE), "modification_time", "too large"),
        (added("a", base_row_id=-1), "base_row_id", "negative"),
        (added("a", default_row_commit_version=TOO_LARGE), "default_row_commit_version", "too large"),
        (added("a", stats="{"), "stats", "not a JSON object"),
        (added("a", stats=""), "stats", "not a JSON object"),
        (added("a", stats="[]"), "stats", "not a JSON object"),
        (added("a", stats='{"numRecords":"1"}'), "stats", "not a JSON object"),
        (added("a", stats='{"numRecords":1.0}'), "stats", "not a JSON object"),
        (added("a", stats='{"numRecords":-1}'), "stats", "numRecords must not be negative"),
        (added("a", stats=f'{{"numRecords":{TOO_LARGE}}}'), "stats", "numRecords is too large"),
        (added("a", stats=r'{"numRecords":"\ud800"}'), "stats", "not a JSON object"),
        (added("a", stats='{"numRecords":NaN}'), "stats", "not a JSON object"),
        (added("a", deletion_vector=vector()), "stats", "deletion vector needs numRecords"),
        (added("a", deletion_vector=vector(), stats="{}"), "stats", "deletion vector needs numRecords"),
        (added("a", deletion_vector=vector(storage_type="x"), stats=stats()), "deletion_vector", "storage type is 'x'"),
        (added("a", deletion_vector=vector(cardinality=-1), stats=stats()), "deletion_vector", "cardinality must not"),
        (added("a", deletion_vector=vector(-1), stats=stats()), "deletion_vector", "offset must not be negative"),
        (added("a", partition_values={"day": "a\0b"}), "partition_values", "U+0000"),
        (added("a", partition_values={"d\0": "a"}), "partition_values", "U+0000"),
        (added("a", tags={"k": "\0"}), "tags", "U+0000"),
        (added("a", clustering_provider="\0"), "clustering_provider", "U+0000"),
        (removed("a", size=-1), "size", "negative"),
        (removed("a", deletion_timestamp=-1), "deletion_timestamp", "negative"),
        (removed("a", extended_file_metadata=True), "extended_file_metadata", "needs partition_values and size"),
        (removed("a", partition_values={"day": "\0"}), "partition_values", "U+0000"),
        (removed("a", stats="\0"), "stats", "U+0000"),
        (CdcFile(path="a", partition_values={}, size=-1), "size", "negative"),
        (CdcFile(path="a", partition_values={}, size=1, data_change=True), "data_change", "always false"),
        (metadata(id=""), "id", "empty"),
        (metadata(schema_string=""), "schema_string", "empty"),
        (metadata(schema_string="{}"), "schema_string", ""),
        (metadata(format=Format(provider="orc")), "format", "must be parquet, not 'orc'"),
        (metadata("id BIGINT, b STRING", partition_columns=["c"]), "partition_columns", "no column 'c'; it has id, b"),
        (metadata("id BIGINT, b STRING", partition_columns=["b", "b"]), "partition_columns", "duplicate column"),
        (metadata("id BIGINT", partition_columns=["id"]), "partition_columns", "at least one column must stay"),
        (metadata("id BIGINT, s STRUCT<x: INT>", partition_columns=["s"]), "partition_columns", "not a primitive type"),
        (metadata(description="\0"), "description", "U+0000"),
        (metadata(configuration={"k": "\0"}), "configuration", "U+0000"),
        (metadata(created_time=TOO_LARGE), "created_time", "too large"),
        (metadata(configuration={"deltars.rangeColumn": "nope"}), "configuration", "'nope'"),
        (metadata(configuration={"delta.dataSkippingNumIndexedCols": "x"}), "configuration", "number of columns"),
        (metadata(configuration={"delta.feature.x": "maybe"}), "configuration", "'supported'"),
        (Txn(app_id="", version=1), "app_id", "empty"),
        (Txn(app_id="\0", version=1), "app_id", "U+0000"),
        (Txn(app_id="a", version=TOO_LARGE), "version", "too large"),
        (Txn(app_id="a", version=1, last_updated=-1), "last_updated", "negative"),
        (DomainMetadata(domain="", configuration="", removed=False), "domain", "empty"),
        (DomainMetadata(domain="d", configuration="\0", removed=False), "configuration", "U+0000"),
        (CommitInfo(operation="WRITE"), "commitInfo", "written by the commit itself"),
        (Protocol(min_reader_version=4, min_writer_version=7), "protocol", "reader version 4"),
        (Protocol(min_reader_version=3, min_writer_version=2), "protocol", "needs writer version 7"),
        (Protocol(min_reader_version=1, min_writer_version=7), "protocol", "must have writerFeatures"),
    ],
    ids=lambda value: value if isinstance(value, str) else type(value).__name__,
)
def test_value_that_no_log_can_hold_is_refused_by_its_field(action: Action, field: str, why: str) -> None:
    error = refusal(added("fine"), action)
    assert (error.action, error.field) == (1, field)
    assert why in error.message


def test_two_columns_that_differ_only_by_case_are_refused() -> None:
    fields: list[Any] = [{"name": name, "type": "long", "nullable": True, "metadata": {}} for name in ("id", "ID")]
    schema = msgspec.json.encode({"type": "struct", "fields": fields}).decode()
    assert "duplicate column 'id'" in refusal(metadata(schema_string=schema)).message


@pytest.mark.parametrize(
    ("path", "why"),
    [
        ("", "empty"),
        ("/etc/passwd", "absolute"),
        ("s3://bucket/a.parquet", "absolute"),
        ("file:/a.parquet", "absolute"),
        ("../a.parquet", ".."),
        ("a/../../b.parquet", ".."),
        ("%2E%2E/a.parquet", ".."),
        ("a/..%2Fb.parquet", ".."),
        ("a\nb.parquet", "control character"),
        ("a%00b.parquet", "control character"),
        ("a%0Ab.parquet", "control character"),
        ("a\x7fb", "control character"),
        ("a\0b", "control character"),
        ("a//b", "empty or a . segment"),
        ("a/", "empty or a . segment"),
        ("./a", "empty or a . segment"),
        ("_delta_log/a.json", "inside _delta_log"),
        ("%5Fdelta_log/a.json", "inside _delta_log"),
        ("100%", "not followed by two hex digits"),
        ("a%FFb", "not UTF-8"),
    ],
)
@pytest.mark.parametrize("make", [added, removed, changed])
def test_illegal_path_is_refused(make: Callable[[str], Action], path: str, why: str) -> None:
    error = refusal(make(path))
    assert (error.action, error.field) == (0, "path")
    assert why in error.message


@pytest.mark.parametrize(
    "path",
    ["part-0.parquet", "day=2024-01-01/a.parquet", "a%20b", "naïve/😀.parquet", "a..b", ".hidden", "a+b(1).parquet"],
)
def test_legal_path_is_accepted(path: str) -> None:
    check_actions(commit_of(added(path), removed("x" + path)))


@pytest.mark.parametrize(
    ("first", "second", "field", "what"),
    [
        (added("a"), added("a"), "path", "add of a"),
        (added("a"), added("a", deletion_vector=vector(), stats=stats()), "path", "add of a"),
        (removed("a"), removed("a"), "path", "remove of a"),
        (removed("a"), removed("a", deletion_vector=vector()), "path", "remove of a"),
        (added("a"), removed("a"), "path", "file a"),
        (removed("a"), added("a"), "path", "file a"),
        (
            added("a", deletion_vector=vector(), stats=stats()),
            removed("a", deletion_vector=vector()),
            "path",
            f"file a {vector().unique_id}",
        ),
        (metadata(), metadata(name="other"), "metaData", "metaData"),
        (creation()[0], creation()[0], "protocol", "protocol"),
        (Txn(app_id="a", version=1), Txn(app_id="a", version=2), "app_id", "txn of application a"),
        (
            DomainMetadata(domain="d", configuration="", removed=False),
            DomainMetadata(domain="d", configuration="", removed=True),
            "domain",
            "domain d",
        ),
        (
            CdcFile(path="c", partition_values={}, size=1),
            CdcFile(path="c", partition_values={}, size=1),
            "path",
            "change data file c",
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else type(value).__name__,
)
def test_what_may_stand_once_in_a_commit_is_refused_the_second_time(
    first: Action, second: Action, field: str, what: str
) -> None:
    error = refusal(first, added("between"), second)
    assert (error.action, error.field) == (2, field)
    assert f"duplicate {what}, also in action 0" in error.message


def test_one_path_may_be_removed_and_added_with_another_deletion_vector() -> None:
    check_actions(
        commit_of(removed("a"), added("a", deletion_vector=vector(), stats=stats())),
    )
    check_actions(
        commit_of(removed("a", deletion_vector=vector(1)), added("a", deletion_vector=vector(2), stats=stats())),
    )


@pytest.mark.parametrize("thing", [None, "add", {"add": {}}, object(), 7])
def test_what_is_no_action_is_refused_by_its_place(thing: object) -> None:
    error = refusal(added("a"), thing)
    assert error.action == 1
    assert f"{type(thing).__name__} is not an action" in error.message


@pytest.mark.parametrize(
    ("fields", "field", "why"),
    [
        ({"operation": ""}, "operation", "needs the name"),
        ({"operation": None}, "operation", "needs the name"),
        ({"operation": 7}, "operation", "is a int, not a string"),
        ({"operation": "a\0"}, "operation", "U+0000"),
        ({"operation": "\ud800"}, "operation", "cannot be written as JSON"),
        ({"operation_params": {"a": object()}}, "operation_params", "cannot be written as JSON"),
        ({"operation_params": {"a": ["b", {"c": "\0"}]}}, "operation_params", "U+0000"),
        ({"operation_params": {"a\0": 1}}, "operation_params", "U+0000"),
        ({"operation_params": {"a": "\udfff"}}, "operation_params", "cannot be written as JSON"),
        ({"metrics": {"a": "\0"}}, "metrics", "U+0000"),
    ],
)
def test_what_is_said_of_a_commit_must_fit_into_json_and_the_databases(
    fields: dict[str, Any], field: str, why: str
) -> None:
    error = refusal(**fields)
    assert error.field == field
    assert why in error.message


@pytest.mark.parametrize("field", ["committer", "user_metadata"])
@pytest.mark.parametrize("value", ["a\0b", "\ud800", 7])
def test_what_is_said_of_a_transaction_must_fit_too(field: str, value: Any) -> None:
    commit = dataclasses.replace(Commit(uuid4(), [commit_of()]), **{field: value})
    with pytest.raises(ValidationError, match=f"^{field}: ") as caught:
        check_commit(commit)
    assert caught.value.field == field


def test_table_that_stands_twice_in_a_transaction_is_refused() -> None:
    with pytest.raises(ValidationError, match="duplicate table"):
        check_commit(Commit(uuid4(), [commit_of(added("a")), commit_of(added("b"))]))


def test_text_that_only_looks_like_an_escaped_null_character_is_accepted() -> None:
    check_actions(commit_of(added("a", stats=r'{"minValues":{"name":"\u0000"}}', tags={"k": r"\u0000"})))


def _field_of_refusal(action: Action) -> str | None:
    try:
        check_actions(commit_of(action))
    except ValidationError as error:
        return error.field
    return None


@given(st.text())
def test_any_text_is_accepted_or_refused_as_statistics_and_nothing_else(text: str) -> None:
    assert _field_of_refusal(added("a", stats=text)) in (None, "stats")


@given(st.text())
def test_any_text_is_accepted_or_refused_as_a_path_and_nothing_else(text: str) -> None:
    assert _field_of_refusal(added(text)) in (None, "path")


def test_deletion_vector_of_another_class_is_refused() -> None:
    assert refusal(added("a", deletion_vector={"storageType": "u"}, stats=stats())).field == "deletion_vector"


def test_row_group_of_a_file_that_is_not_added_is_refused() -> None:
    check_actions(commit_of(added("a"), row_groups=row_groups("a")))
    error = refusal(added("a"), removed("b"), row_groups=[*row_groups("a"), *row_groups("b")])
    assert error.field == "row_groups"
    assert "row group of b" in error.message
