"""Table properties: which names and values can be set."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest

from deltars.errors import ValidationError
from deltars.protocol.features import FEATURES
from deltars.protocol.properties import (
    PROPERTIES,
    boolean_property,
    check_property,
    number_property,
    property_name,
    span_text,
)

TAKEN = [
    ("delta.appendOnly", "true"),
    ("delta.appendOnly", "FALSE"),
    ("delta.checkpointInterval", "100"),
    ("delta.logRetentionDuration", "interval 30 days"),
    ("delta.logRetentionDuration", "2 weeks"),
    ("delta.dataSkippingNumIndexedCols", "-1"),
    ("delta.dataSkippingNumIndexedCols", "0"),
    ("delta.isolationLevel", "Serializable"),
    ("delta.columnMapping.mode", "name"),
    ("delta.checkpointPolicy", "v2"),
    ("delta.targetFileSize", "128mb"),
    ("delta.universalFormat.enabledFormats", "iceberg,hudi"),
    ("delta.universalFormat.config.iceberg.anything", "x"),
    ("delta.constraints.positive", "id > 0"),
    ("delta.feature.deletionVectors", "supported"),
    ("deltars.mirror", "async"),
    ("owner", "yes"),
    ("appendOnly", "often"),
    ("spark.sql.whatever", ""),
]
REFUSED = [
    ("delta.appendOnly", "yes", "delta.appendOnly is true or false, not 'yes'"),
    ("delta.appendOnly", "", "is true or false, not ''"),
    ("delta.appendOnly", "true ", "is true or false"),
    ("delta.enableChangeDataFeed", "1", "is true or false"),
    ("delta.checkpointInterval", "often", "is a whole number from 1 on, not 'often'"),
    ("delta.checkpointInterval", "0", "is a whole number from 1 on"),
    ("delta.checkpointInterval", "9" * 5_000, "is a whole number from 1 on"),
    ("delta.checkpointInterval", "\uff11", "is a whole number from 1 on"),
    ("delta.dataSkippingNumIndexedCols", "-2", "is a whole number from -1 on"),
    ("delta.logRetentionDuration", "a month", "is a span such as 'interval 7 days'"),
    ("delta.logRetentionDuration", "interval 1 month", "without months and years"),
    ("delta.logRetentionDuration", f"{'9' * 5_000} days", "is a span such as 'interval 7 days'"),
    ("delta.isolationLevel", "WriteSerializable", "is Serializable, not"),
    ("delta.columnMapping.mode", "names", "is none, name or id, not 'names'"),
    ("delta.columnMapping.maxColumnId", "5", "cannot be set: deltars sets it itself"),
    ("delta.minReaderVersion", "3", "the protocol follows from the features"),
    ("delta.minwriterversion", "7", "delta.minWriterVersion cannot be set"),
    ("delta.targetFileSize", "0", "is a size such as 134217728 or 128mb, not '0'"),
    ("delta.targetFileSize", "0mb", "is a size such as"),
    ("delta.targetFileSize", "999999999999tb", "is a size such as"),
    ("delta.universalFormat.enabledFormats", "paper", "a list of iceberg and hudi"),
    ("delta.apendOnly", "true", "there is no table property delta.apendOnly. Did you mean delta.appendOnly"),
    ("delta.quiteUnheardOf", "true", "there is no table property"),
    ("deltars.mirror", "sometimes", "deltars.mirror is inline, async or off, not 'sometimes'"),
    ("deltars.miror", "off", "Did you mean deltars.mirror"),
    ("delta.feature.deletionVector", "supported", "Did you mean delta.feature.deletionVectors"),
    ("delta.feature.deletionVectors", "yes", "can only be 'supported'"),
]


@pytest.mark.parametrize(("name", "value"), TAKEN)
def test_value_that_a_property_has_is_taken(name: str, value: str) -> None:
    assert check_property(name, value) == (name, value)


@pytest.mark.parametrize(("name", "value", "problem"), REFUSED)
def test_other_values_and_names_are_refused(name: str, value: str, problem: str) -> None:
    with pytest.raises(ValidationError) as raised:
        check_property(name, value)
    assert problem in str(raised.value)
    assert len(str(raised.value)) < 500


def test_names_are_spelled_as_delta_does() -> None:
    assert check_property("DELTA.APPENDONLY", "true")[0] == "delta.appendOnly"
    assert check_property("delta.feature.deletionvectors", "supported")[0] == "delta.feature.deletionVectors"
    assert check_property("delta.Constraints.Positive", "id > 0")[0] == "delta.constraints.positive"
    assert property_name("delta.appendonly") == "delta.appendOnly"
    assert property_name("Owner") == "Owner"


def test_value_of_another_writer_is_never_taken_for_false() -> None:
    assert boolean_property({"delta.appendOnly": " TRUE "}, "delta.appendOnly")
    assert not boolean_property({}, "delta.appendOnly")
    with pytest.raises(ValidationError, match="'yes', which is neither true nor false"):
        boolean_property({"delta.appendOnly": "yes"}, "delta.appendOnly")
    name = "delta.dataSkippingStringPrefixLength"
    assert (number_property({}, name, 32), number_property({name: "5"}, name, 32)) == (32, 5)
    with pytest.raises(ValidationError, match="a whole number from 1 on, not 'long'"):
        number_property({name: "long"}, name, 32)


def test_every_property_that_enables_a_feature_is_known() -> None:
    names = {known.name for known in PROPERTIES}
    assert {feature.enabled_by for feature in FEATURES.values() if feature.enabled_by} <= names


def test_documentation_lists_every_property() -> None:
    text = (Path(__file__).parents[2] / "docs" / "configuration.md").read_text()
    assert [known.name for known in PROPERTIES if f"`{known.name}`" not in text and known.name != "deltars.demo"] == []


@pytest.mark.parametrize(
    ("span", "text"),
    [
        (timedelta(days=7), "7 days"),
        (timedelta(hours=36), "1 day, 12:00:00"),
        (timedelta(seconds=90), "0:01:30"),
        (timedelta(0), "0 seconds"),
    ],
)
def test_spans_in_errors_are_written_as_people_do(span: timedelta, text: str) -> None:
    assert span_text(span) == text
