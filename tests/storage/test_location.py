"""What a location means, and what is refused."""

from __future__ import annotations

import pytest

from deltars.errors import ConfigError, ValidationError
from deltars.storage import Location, parse_location
from deltars.storage.opening import options_for


@pytest.mark.parametrize(
    ("text", "location"),
    [
        ("/data/lake", Location("file", "", "/data/lake")),
        ("/data//lake/", Location("file", "", "/data/lake")),
        ("//data", Location("file", "", "/data")),
        ("/data/a b%20ü#?", Location("file", "", "/data/a b%20ü#?")),
        ("file:///data/a%20b%2520c", Location("file", "", "/data/a b%20c")),
        ("file:/data/lake", Location("file", "", "/data/lake")),
        ("file://localhost/data", Location("file", "", "/data")),
        ("s3://bucket", Location("s3", "bucket", "")),
        ("s3://bucket/a b/c%20d/", Location("s3", "bucket", "a b/c%20d")),
        ("gs://bucket/lake", Location("gs", "bucket", "lake")),
        ("az://container/lake", Location("az", "container", "lake")),
        (
            "abfss://c@account.dfs.core.windows.net/l",
            Location("abfss", "c@account.dfs.core.windows.net", "l"),
        ),
        ("memory://test/lake", Location("memory", "test", "lake")),
    ],
)
def test_location_is_taken_apart(text: str, location: Location) -> None:
    assert parse_location(text) == location


@pytest.mark.parametrize("text", ["/data/a b%20ü#?", "s3://bucket/a b/c%20d", "s3://bucket", "memory://test/lake"])
def test_normal_form_names_the_same_location(text: str) -> None:
    assert str(parse_location(text)) == text


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "neither an absolute path nor a URL"),
        ("lake", "neither an absolute path nor a URL"),
        ("./lake", "neither an absolute path nor a URL"),
        ("~/lake", "neither an absolute path nor a URL"),
        ("file://other/data", "this machine"),
        ("file:", "this machine"),
        ("ftp://host/x", "the unknown scheme 'ftp'"),
        ("s3:///key", "no container"),
        ("s3://bucket/a//b", "empty segment"),
        ("s3://bucket/../b", "'..'"),
        ("/data/a\nb", "control character"),
    ],
)
def test_location_that_means_nothing_is_refused_with_the_reason(text: str, reason: str) -> None:
    with pytest.raises(ValidationError, match=reason):
        parse_location(text)


@pytest.mark.parametrize("text", ["s3://AKIA:hunter2@bucket/lake", "az://container/lake?sv=1&sig=hunter2"])
def test_credentials_in_a_location_are_refused_and_not_repeated(text: str) -> None:
    with pytest.raises(ValidationError, match="storage_options") as caught:
        parse_location(text)
    assert "hunter2" not in str(caught.value)


def test_options_of_a_location_are_for_what_lies_below_it() -> None:
    options = {
        "aws_region": "eu",
        "aws_endpoint": "http://general",
        "s3://b": '{"aws_region": "us"}',
        "s3://b/t": '{"aws_endpoint": "http://own"}',
        "s3://bb": '{"aws_region": "no"}',
    }
    chosen = {
        text: options_for(parse_location(text), options) for text in ("s3://a/t", "s3://b/x", "s3://b/t/u", "s3://b/tt")
    }
    assert chosen == {
        "s3://a/t": {"aws_region": "eu", "aws_endpoint": "http://general"},
        "s3://b/x": {"aws_region": "us", "aws_endpoint": "http://general"},
        "s3://b/t/u": {"aws_region": "us", "aws_endpoint": "http://own"},
        "s3://b/tt": {"aws_region": "us", "aws_endpoint": "http://general"},
    }
    with pytest.raises(ConfigError, match="the storage options of s3://b must be a JSON object of strings"):
        options_for(parse_location("s3://b/t"), {"s3://b": "secret"})
