"""Partition values of every type, written and read."""

from __future__ import annotations

import math
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deltars.errors import ValidationError
from deltars.protocol import (
    ArrayType,
    PrimitiveType,
    StructType,
    can_partition_by,
    parse_partition_value,
    serialize_partition_value,
)
from tests.protocol import strategies

PARTITIONABLE = strategies.ORDINARY_TYPES

# type, value, text: written so, and read back so
EXACT: list[tuple[str, Any, str]] = [
    ("string", "a/b=c %😀'\"", "a/b=c %😀'\""),
    ("string", "null", "null"),
    ("string", " ", " "),
    ("long", -(2**63), "-9223372036854775808"),
    ("integer", 0, "0"),
    ("short", 32767, "32767"),
    ("byte", -128, "-128"),
    ("boolean", True, "true"),
    ("boolean", False, "false"),
    ("double", 1.0, "1.0"),
    ("double", 0.1, "0.1"),
    ("double", -0.0, "-0.0"),
    ("double", math.inf, "Infinity"),
    ("double", -math.inf, "-Infinity"),
    ("double", math.nan, "NaN"),
    ("double", 5e-324, "5e-324"),
    ("float", strategies.to_single(0.1), "0.1"),
    ("float", strategies.to_single(3.4028235e38), "3.4028235e+38"),
    ("float", 16777216.0, "16777216.0"),
    ("float", math.nan, "NaN"),
    ("decimal(5,2)", Decimal("1.50"), "1.50"),
    ("decimal(38,10)", Decimal("1234567890123456789012345678.0123456789"),
     "1234567890123456789012345678.0123456789"),
    ("decimal(38,38)", Decimal("1e-38"), "0." + "0" * 37 + "1"),
    ("decimal(1,0)", Decimal(0), "0"),
    ("date", date(1, 1, 1), "0001-01-01"),
    ("date", date(9999, 12, 31), "9999-12-31"),
    ("timestamp", datetime(1970, 1, 1, tzinfo=UTC), "1970-01-01T00:00:00.000000Z"),
    ("timestamp", datetime(1, 1, 1, 0, 0, 0, 1, tzinfo=UTC), "0001-01-01T00:00:00.000001Z"),
    ("timestamp", datetime(9999, 12, 31, 23, 59, 59, 999999, tzinfo=UTC), "9999-12-31T23:59:59.999999Z"),
    ("timestamp_ntz", datetime(2013, 7, 5, 17, 1, 0, 123456), "2013-07-05 17:01:00.123456"),
    ("timestamp_ntz", datetime(2021, 9, 8, 11, 11, 11), "2021-09-08 11:11:11"),
    ("binary", b"\x01\x02\x03", "\x01\x02\x03"),
    ("binary", "é".encode(), "é"),
]  # fmt: skip


@pytest.mark.parametrize(("type_name", "value", "text"), EXACT)
def test_value_is_written_as_the_protocol_says(type_name: str, value: Any, text: str) -> None:
    type_ = PrimitiveType(type_name)
    assert serialize_partition_value(value, type_) == text
    assert strategies.same(parse_partition_value(text, type_), value)


@pytest.mark.parametrize("name", [*PARTITIONABLE, "decimal(10,2)"])
def test_null_and_the_empty_string_are_null_for_every_type(name: str) -> None:
    type_ = PrimitiveType(name)
    assert serialize_partition_value(None, type_) is None
    assert parse_partition_value(None, type_) is None
    assert parse_partition_value("", type_) is None


def test_empty_string_and_empty_bytes_are_written_as_null() -> None:
    assert serialize_partition_value("", PrimitiveType("string")) is None
    assert serialize_partition_value(b"", PrimitiveType("binary")) is None


@given(st.data())
def test_every_value_survives_the_round_trip(data: st.DataObject) -> None:
    type_ = data.draw(strategies.primitive_types(tuple(name for name in PARTITIONABLE if name != "binary")))
    value = data.draw(strategies.values_of(type_))
    text = serialize_partition_value(value, type_)
    assert strategies.same(parse_partition_value(text, type_), None if value == "" else value)


@given(st.binary(max_size=20))
def test_bytes_survive_or_are_refused(value: bytes) -> None:
    type_ = PrimitiveType("binary")
    try:
        text = serialize_partition_value(value, type_)
    except ValidationError:
        with pytest.raises(UnicodeDecodeError):
            value.decode()
    else:
        assert (parse_partition_value(text, type_) or b"") == value


@pytest.mark.parametrize(
    ("text", "moment"),
    [
        ("2021-09-08 11:11:11", datetime(2021, 9, 8, 11, 11, 11, tzinfo=UTC)),
        ("2020-01-01 08:09:10.001", datetime(2020, 1, 1, 8, 9, 10, 1000, tzinfo=UTC)),
        ("1970-01-01T00:00:00.123456Z", datetime(1970, 1, 1, 0, 0, 0, 123456, tzinfo=UTC)),
        ("2000-01-01T00:00:00.000-08:00", datetime(2000, 1, 1, 8, tzinfo=UTC)),
        ("2000-01-01T05:30:00+05:30", datetime(2000, 1, 1, tzinfo=UTC)),
        ("2000-01-01", datetime(2000, 1, 1, tzinfo=UTC)),
    ],
)
def test_timestamp_is_read_in_all_the_forms_of_real_logs(text: str, moment: datetime) -> None:
    assert parse_partition_value(text, PrimitiveType("timestamp")) == moment


def test_timestamp_without_a_zone_is_in_the_writers() -> None:
    moment = parse_partition_value(
        "2021-09-08 11:11:11", PrimitiveType("timestamp"), zone=ZoneInfo("America/Los_Angeles")
    )
    assert moment == datetime(2021, 9, 8, 18, 11, 11, tzinfo=UTC)
    assert moment.tzinfo == UTC


def test_timestamp_of_another_zone_is_written_in_utc() -> None:
    moment = datetime(2000, 1, 1, tzinfo=timezone(timedelta(hours=-8)))
    assert serialize_partition_value(moment, PrimitiveType("timestamp")) == "2000-01-01T08:00:00.000000Z"


@pytest.mark.parametrize(
    ("type_name", "text", "value"),
    [
        ("boolean", "TRUE", True),
        ("double", "inf", math.inf),
        ("double", "1.0E10", 1e10),
        ("double", "5", 5.0),
        ("decimal(5,2)", "1", Decimal("1.00")),
        ("decimal(5,2)", "1E+1", Decimal("10.00")),
        ("long", "+5", 5),
        ("float", "0.10000000149011612", strategies.to_single(0.1)),
    ],
)
def test_value_is_read_as_other_writers_write_it(type_name: str, text: str, value: Any) -> None:
    assert strategies.same(parse_partition_value(text, PrimitiveType(type_name)), value)


@pytest.mark.parametrize(
    ("type_name", "value"),
    [
        ("byte", 128),
        ("long", 2**63),
        ("integer", 1.0),
        ("integer", True),
        ("integer", "1"),
        ("float", 1e39),
        ("double", True),
        ("double", "1.5"),
        ("decimal(5,2)", Decimal("1.005")),
        ("decimal(5,2)", Decimal("1000")),
        ("decimal(38,0)", Decimal(10**38)),
        ("decimal(5,2)", 1.5),
        ("decimal(5,2)", "1.5"),
        ("decimal(5,2)", Decimal("NaN")),
        ("decimal(5,2)", Decimal("Infinity")),
        ("string", 1),
        ("boolean", 1),
        ("date", datetime(2020, 1, 1)),
        ("date", "2020-01-01"),
        ("timestamp", datetime(2020, 1, 1)),
        ("timestamp", datetime(1, 1, 1, tzinfo=timezone(timedelta(hours=1)))),
        ("timestamp", date(2020, 1, 1)),
        ("timestamp_ntz", datetime(2020, 1, 1, tzinfo=UTC)),
        ("binary", b"\xff"),
        ("binary", "text"),
        ("void", 1),
        ("variant", 1),
    ],
)
def test_value_that_does_not_fit_its_type_is_refused(type_name: str, value: Any) -> None:
    with pytest.raises(ValidationError, match="is not a partition value of type"):
        serialize_partition_value(value, PrimitiveType(type_name))


@pytest.mark.parametrize(
    ("type_name", "text"),
    [
        ("byte", "128"),
        ("long", "1_000"),
        ("long", "1.0"),
        ("long", "x"),
        ("long", "\uff11"),
        ("double", "1_0.5"),
        ("double", "1.5d"),
        ("double", "0x10"),
        ("float", "1e39"),
        ("boolean", "1"),
        ("decimal(5,2)", "1.005"),
        ("decimal(5,2)", "1_0"),
        ("decimal(5,2)", "1.2.3"),
        ("decimal(5,2)", "NaN"),
        ("date", "20200101"),
        ("date", "2020-W01"),
        ("date", "2020-13-01"),
        ("date", "10000-01-01"),
        ("date", "2020-01-01 00:00:00"),
        ("timestamp", "yesterday"),
        ("timestamp", "+10000-01-01 00:00:00"),
        ("timestamp", "0001-01-01T00:00:00+01:00"),
        ("timestamp_ntz", "2020-01-01T00:00:00Z"),
        ("variant", "1"),
    ],
)
def test_text_that_does_not_fit_its_type_is_refused(type_name: str, text: str) -> None:
    with pytest.raises(ValidationError, match="is not a partition value of type"):
        parse_partition_value(text, PrimitiveType(type_name))


def test_nested_types_cannot_be_partitioned_by() -> None:
    for type_ in (
        ArrayType(PrimitiveType("long")),
        StructType(),
        PrimitiveType("variant"),
        PrimitiveType("void"),
    ):
        assert not can_partition_by(type_)
        with pytest.raises(ValidationError, match="cannot be partitioned by"):
            serialize_partition_value("x", type_)
    assert all(can_partition_by(PrimitiveType(name)) for name in PARTITIONABLE)


def test_a_decimal_has_one_zero() -> None:
    assert serialize_partition_value(Decimal("-0"), PrimitiveType("decimal(5,2)")) == "0.00"


def test_a_single_is_rounded_when_read() -> None:
    assert parse_partition_value("0.1", PrimitiveType("float")) == 0.10000000149011612
