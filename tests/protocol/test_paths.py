"""Paths of data files: in the file system, in the log, and which are legal."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deltars.errors import ValidationError
from deltars.protocol import (
    check_path,
    escape_partition_segment,
    partition_directory,
    path_to_uri,
    unescape_partition_segment,
    uri_to_path,
)
from tests.protocol import strategies

# value, directory, path in the log: as they stand in logs that delta-spark wrote
SEEN_IN_REAL_LOGS = [
    ("a:colon", "a%3Acolon", "a%253Acolon"),
    ("a space", "a space", "a%20space"),
    ("a+b", "a+b", "a+b"),
    ("😀", "😀", "😀"),
    ("/%20%f", "%2F%2520%25f", "%252F%252520%2525f"),
    ("bar+%21", "bar+%2521", "bar+%252521"),
    ("+ =%0", "+ %3D%250", "+%20%253D%25250"),
    ("2021-09-08 11:11:11", "2021-09-08 11%3A11%3A11", "2021-09-08%2011%253A11%253A11"),
    ("2013-07-05 17:01:00.123456", "2013-07-05 17%3A01%3A00.123456", "2013-07-05%2017%253A01%253A00.123456"),
    (None, "__HIVE_DEFAULT_PARTITION__", "__HIVE_DEFAULT_PARTITION__"),
    ("", "__HIVE_DEFAULT_PARTITION__", "__HIVE_DEFAULT_PARTITION__"),
]


@pytest.mark.parametrize(("value", "directory", "logged"), SEEN_IN_REAL_LOGS)
def test_partition_directory_looks_as_in_real_logs(value: str | None, directory: str, logged: str) -> None:
    path = partition_directory(["c"], {"c": value})
    assert path == f"c={directory}"
    assert path_to_uri(path) == f"c={logged}"
    assert uri_to_path(f"c={logged}") == path


@pytest.mark.parametrize(
    ("path", "logged"),
    [
        ("special p@#h", "special%20p@%23h"),
        ("part-0.c000.snappy.parquet", "part-0.c000.snappy.parquet"),
        ("a(1)~!$&',;=*@_-.", "a(1)~!$&',;=*@_-."),
        ('"<>[]^`{|}\\?#%', "%22%3C%3E%5B%5D%5E%60%7B%7C%7D%5C%3F%23%25"),
        ("größe/東京", "größe/東京"),
        ("no\u00a0break\u2003\u3000", "no%C2%A0break%E2%80%83%E3%80%80"),
        ("\x01\x7f\x85", "%01%7F%C2%85"),
        ("a:b/c:d", "a%3Ab/c%3Ad"),
    ],
)
def test_path_is_written_as_a_uri(path: str, logged: str) -> None:
    assert path_to_uri(path) == logged
    assert uri_to_path(logged) == path


def test_every_character_that_hive_escapes_is_escaped() -> None:
    escaped = "".join(chr(code) for code in range(256) if escape_partition_segment(chr(code)) != chr(code))
    control = "".join(map(chr, range(32)))
    assert escaped == control + "\"#%'*/:=?[\\]^{\x7f"
    assert escape_partition_segment("\t/\x7f") == "%09%2F%7F"


@given(strategies.texts | strategies.nasty_texts)
def test_partition_segment_is_one_safe_name_and_comes_back(text: str) -> None:
    segment = escape_partition_segment(text)
    assert unescape_partition_segment(segment) == text
    assert not re.search(r"[\x00-\x1f/=\x7f]", segment)


@given(strategies.texts | strategies.nasty_texts)
def test_log_form_is_decoded_once(path: str) -> None:
    assert uri_to_path(path_to_uri(path)) == path


@given(strategies.texts.filter(bool), strategies.texts | strategies.nasty_texts | st.none())
def test_partitioned_file_has_a_legal_path_that_says_its_value(column: str, value: str | None) -> None:
    path = f"{partition_directory([column], {column: value})}/part-0.parquet"
    logged = path_to_uri(path)
    assert check_path(logged) is None
    directory, _, _ = uri_to_path(logged).partition("/")
    name, _, segment = directory.partition("=")
    assert unescape_partition_segment(name) == column
    expected = value or "__HIVE_DEFAULT_PARTITION__"
    assert unescape_partition_segment(segment) == expected


def test_partition_directories_nest_in_the_order_of_the_columns() -> None:
    assert partition_directory(["b", "a"], {"a": "1", "b": None}) == "b=__HIVE_DEFAULT_PARTITION__/a=1"
    assert partition_directory([], {}) == ""


@pytest.mark.parametrize("uri", ["/some/unqualified/p", "file:/some/unqualified/p", "file:///some/unqualified/p"])
def test_local_file_has_one_name_however_its_uri_is_written(uri: str) -> None:
    assert uri_to_path(uri) == "/some/unqualified/p"


@pytest.mark.parametrize(
    ("uri", "path"),
    [
        ("file:///some/unqualified/with%20space/p@%23h", "/some/unqualified/with space/p@#h"),
        ("FILE://localhost/p", "/p"),
        ("s3://bucket/a%20b/c%2520d", "s3://bucket/a b/c%20d"),
        ("dir/file:/x", "dir/file:/x"),
        ("bar%2Dbar.parquet", "bar-bar.parquet"),
        ("a+b", "a+b"),
    ],
)
def test_uri_is_decoded(uri: str, path: str) -> None:
    assert uri_to_path(uri) == path


@pytest.mark.parametrize("uri", ["100%", "%zz", "a%2", "%FF", "%C3"])
def test_uri_that_cannot_be_decoded_is_refused(uri: str) -> None:
    with pytest.raises(ValidationError) as caught:
        uri_to_path(uri)
    assert caught.value.field == "path"
    assert check_path(uri) is not None


def test_half_a_character_is_no_path() -> None:
    with pytest.raises(ValidationError, match="half a surrogate pair"):
        path_to_uri("a\ud83d")
    assert check_path("a\ud83d") is not None


@pytest.mark.parametrize(
    "path",
    [
        "part-00000-90177277-75c2-48db-92a2-20dcba39fd06-c000.snappy.parquet",
        "a=1/b=x/part-0.parquet",
        "_2=bar+%252521/part-0.parquet",
        "c=%20/😀.parquet",
        "_change_data/cdc-0.parquet",
        "a..b/c.",
        "...",
        "x/_delta_log/y",
        "_delta_logs/y",
        "a%3Ab",
        "-",
    ],
)
def test_path_inside_the_table_is_legal(path: str) -> None:
    assert check_path(path) is None


@pytest.mark.parametrize(
    ("path", "problem"),
    [
        ("", "empty"),
        ("..", r"\.\."),
        ("../x", r"\.\."),
        ("a/../../x", r"\.\."),
        ("a/..", r"\.\."),
        ("%2E%2E/x", r"\.\."),
        ("a/%2e%2e/x", r"\.\."),
        ("..%2Fx", r"\.\."),
        ("..//Users/x.parquet", r"\.\."),
        ("./a", "segment"),
        ("a/./b", "segment"),
        ("a//b", "segment"),
        ("a/", "segment"),
        ("a%2F", "segment"),
        ("a\nb", "control"),
        ("a\x00", "control"),
        ("a%00b", "control"),
        ("a%0Ab", "control"),
        ("a\x7f", "control"),
        ("/etc/passwd", "absolute"),
        ("//etc", "absolute"),
        ("file:///x", "absolute"),
        ("s3://bucket/x", "absolute"),
        ("C:/x", "absolute"),
        ("a:b", "absolute"),
        ("_delta_log/x", "_delta_log"),
        ("%5Fdelta_log/x", "_delta_log"),
        ("_delta_log", "_delta_log"),
    ],
)
def test_path_that_leaves_the_table_or_hides_is_refused(path: str, problem: str) -> None:
    found = check_path(path)
    assert found is not None
    assert re.search(problem, found)


@pytest.mark.parametrize("path", ["/a/b", "file:/a/b", "file:///a/b", "s3://bucket/a%20b", "memory:///a", "C:/x"])
def test_absolute_path_is_legal_where_the_table_allows_it(path: str) -> None:
    assert check_path(path, allow_absolute=True) is None
    assert "absolute" in (check_path(path) or "")


@pytest.mark.parametrize(
    "path", ["/", "/a/../b", "s3://bucket/../x", "file:///a/%2E%2E/b", "s3://b/a//c", "s3:", "/a\n"]
)
def test_absolute_path_is_checked_too(path: str) -> None:
    assert check_path(path, allow_absolute=True) is not None


@given(st.text(st.sampled_from("a./%2EeF_:\\\x00é"), max_size=12))
def test_accepted_path_stays_inside_the_table(path: str) -> None:
    if check_path(path) is None:
        segments = uri_to_path(path).split("/")
        assert not {"", ".", ".."} & set(segments)
