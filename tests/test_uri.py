"""The deltasql:// grammar: what is accepted, what each mistake is called, and that no secret is ever shown."""

from __future__ import annotations

import pickle
import string
from pathlib import Path
from types import MappingProxyType

import pytest
from hypothesis import given
from hypothesis import strategies as st

import deltars
from deltars.config import configure
from deltars.errors import UriError
from deltars.uri import (
    FILE_SUFFIXES,
    LIBPQ_PARAMETERS,
    CatalogUri,
    parse_catalog_uri,
    parse_table_uri,
    parse_uri,
    redacted,
)

SECRET = "s3cr3t/@ü? &#"
ENCODED_SECRET = "s3cr3t%2F%40%C3%BC%3F+%26%23"


def postgres(database: str, schema: str, **parameters: str) -> CatalogUri:
    return CatalogUri("postgres", database, schema, MappingProxyType(parameters))


@pytest.mark.parametrize(
    ("text", "catalog", "table"),
    [
        ("deltasql://postgres/lake/public", postgres("lake", "public"), None),
        ("deltasql://postgres/lake/public/features", postgres("lake", "public"), "features"),
        (
            "deltasql://postgres/lake/public/features?host=db&port=5433&user=etl&sslmode=require",
            postgres("lake", "public", host="db", port="5433", user="etl", sslmode="require"),
            "features",
        ),
        ("deltasql://postgres/lake/public?", postgres("lake", "public"), None),
        ("deltasql://postgres/lake/public?host=/var/run", postgres("lake", "public", host="/var/run"), None),
        ("deltasql://postgres/my%20lake/a%2Fb/x%2Fy%25", postgres("my lake", "a/b"), "x/y%"),
        ("deltasql://postgres/see/gr%C3%BCn/t%C3%A4t", postgres("see", "grün"), "tät"),
        ("deltasql://postgres/see/grün/tät", postgres("see", "grün"), "tät"),
        ("deltasql://sqlite/lake.db", CatalogUri("sqlite", "lake.db"), None),
        ("deltasql://sqlite/lake.db/features", CatalogUri("sqlite", "lake.db"), "features"),
        ("deltasql://sqlite/a/b/lake.sqlite/features", CatalogUri("sqlite", "a/b/lake.sqlite"), "features"),
        ("deltasql://sqlite//data/lake.db/features", CatalogUri("sqlite", "/data/lake.db"), "features"),
        ("deltasql://sqlite/../lake.db", CatalogUri("sqlite", "../lake.db"), None),
        ("deltasql://sqlite/lake.db/other.db", CatalogUri("sqlite", "lake.db"), "other.db"),
        ("deltasql://sqlite/my%2Edb/lake.db", CatalogUri("sqlite", "my.db/lake.db"), None),
        ("deltasql://sqlite/.db/lake.db", CatalogUri("sqlite", ".db/lake.db"), None),
        ("deltasql://duckdb/lake.duckdb", CatalogUri("duckdb", "lake.duckdb"), None),
        ("deltasql://duckdb//data/my%20lake.duckdb/a%3Fb", CatalogUri("duckdb", "/data/my lake.duckdb"), "a?b"),
    ],
)
def test_uri_names_a_catalog_and_perhaps_a_table(text: str, catalog: CatalogUri, table: str | None) -> None:
    assert parse_uri(text) == (catalog, table)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("postgres/lake/public", "expected a deltasql:// URI"),
        ("jdbc:postgresql://db/lake", "expected a deltasql:// URI"),
        ("deltasql://mysql/lake/public", "unknown backend 'mysql'"),
        ("deltasql:///lake/public", "unknown backend ''"),
        ("deltasql://", "unknown backend ''"),
        ("deltasql://postgres:5432/lake/public", "unknown backend 'postgres:5432'"),
        ("deltasql://[postgres/lake/public", "is not a URI"),
        ("deltasql://postgres", "no database"),
        ("deltasql://postgres/", "no database"),
        ("deltasql://postgres//public", "no database"),
        ("deltasql://postgres/lake", "no schema"),
        ("deltasql://postgres/lake/", "no schema"),
        ("deltasql://postgres/lake//features", "no schema"),
        ("deltasql://postgres/lake/public/", "an empty table name"),
        ("deltasql://postgres/lake/public/a/b/c", "too many path segments"),
        ("deltasql://postgres/etl:hunter2@db/lake/public", "credentials in place of the database name"),
        ("deltasql://sqlite", "no database file"),
        ("deltasql://sqlite/lake", "no database file"),
        ("deltasql://sqlite/lake.parquet/features", "no database file"),
        ("deltasql://sqlite/.db", "no database file"),
        ("deltasql://sqlite/lake.db/", "an empty table name"),
        ("deltasql://sqlite/lake.db/a/b/c", "too many path segments"),
        ("deltasql://duckdb/lake.duckdb/", "an empty table name"),
        ("deltasql://sqlite/lake.db?mode=ro", "unknown parameter mode"),
        ("deltasql://duckdb/lake.duckdb?host=db", "duckdb URIs take no parameters, got host"),
        ("deltasql://postgres/lake/public?hots=db", "unknown parameter hots"),
        ("deltasql://postgres/lake/public?options=-csearch_path%3Dx", "unknown parameter options"),
        ("deltasql://postgres/lake/public?host=a&host=b", "duplicate parameter in"),
        ("deltasql://postgres/lake/public?host", "not key=value pairs"),
        ("deltasql://postgres/lake/public?host=a&&port=1", "not key=value pairs"),
        ("deltasql://postgres/lake/public#top", "has no fragment"),
        ("deltasql://postgres/lake/public/%ff", "not percent-encoded UTF-8"),
        ("deltasql://sqlite/100%.db", "not percent-encoded UTF-8"),
        ("deltasql://postgres/lake/public?host=%e4", "not percent-encoded UTF-8"),
        ("deltasql://sqlite/a%00b.db", "a control character"),
        ("deltasql://postgres/lake/public/fea\ntures", "a control character"),
        ("deltasql://postgres/lake/public/\ud800", "half a surrogate pair"),
    ],
)
def test_each_mistake_is_named(text: str, message: str) -> None:
    with pytest.raises(deltars.UriError) as raised:
        parse_uri(text)
    assert message in str(raised.value)
    assert "hunter2" not in str(raised.value)


def test_table_where_a_catalog_is_expected_is_named_with_the_catalog_to_use() -> None:
    with pytest.raises(deltars.UriError) as raised:
        parse_catalog_uri("deltasql://sqlite/lake.db/features")
    assert "names the table 'features' where a catalog is expected" in str(raised.value)
    assert "Connect to deltasql://sqlite/lake.db " in str(raised.value)


def test_catalog_where_a_table_is_expected_is_refused() -> None:
    with pytest.raises(deltars.UriError, match="names a catalog, not a table"):
        parse_table_uri("deltasql://postgres/lake/public")
    assert parse_table_uri("deltasql://postgres/lake/public/t")[1] == "t"


def test_password_is_shown_nowhere_and_kept_everywhere_else() -> None:
    uri = parse_catalog_uri(f"deltasql://postgres/lake/public?host=db&password={ENCODED_SECRET}&sslpassword=hunter2")
    assert uri.parameters["password"] == SECRET
    for shown in (str(uri), repr(uri), f"{uri}", repr([uri]), repr({"uri": uri})):
        assert "s3cr3t" not in shown
        assert "hunter2" not in shown
        assert "password=***&sslpassword=***" in shown
    assert parse_catalog_uri(uri.with_secrets()) == uri
    assert pickle.loads(pickle.dumps(uri)) == uri
    assert hash(pickle.loads(pickle.dumps(uri))) == hash(uri)


@pytest.mark.parametrize(
    "text",
    [
        "postgresql://etl:hunter2@db/lake",
        "postgresql://etl:hunter2/x@db/lake",
        "postgresql://etl:hunter2?x@db/lake",
        "postgresql://etl:x@hunter2@db/lake",
        "postgresql://db/lake?user=etl&password=hunter2",
        "deltasql://etl:hunter2@postgres/lake/public",
        "deltasql://etl:hunter2@db:5432/lake/public",
        "deltasql://mysql/lake/public?password=hunter2",
        "deltasql://postgres?password=hunter2",
        "deltasql://postgres/lake?password=hunter2",
        "deltasql://postgres/lake/public/a/b?password=hunter2",
        "deltasql://postgres/lake/public?password=hunter2&password=hunter2",
        "deltasql://postgres/lake/public?password=hunter2&hots=db",
        "deltasql://postgres/lake/public?password=hunter2#x",
        "deltasql://postgres/lake/public?password=x#hunter2",
        "deltasql://postgres/lake/public?password=hunter2%",
        "deltasql://postgres/lake/public/t?password=hunter2",
        "deltasql://postgres/lake/public?password=hunter2\n",
        "deltasql://postgres/etl:hunter2@db/lake",
        "deltasql://[etl:hunter2@db/lake",
        "deltasql://sqlite/lake.db?password=hunter2",
        "host=db dbname=lake password=hunter2",
        "host=db PASSWORD = 'hunter2 too'",
    ],
)
def test_no_message_about_a_wrong_uri_shows_a_password(text: str) -> None:
    assert "hunter2" not in redacted(text)
    with pytest.raises(deltars.ConfigError) as raised:
        deltars.connect(text)
    assert "hunter2" not in str(raised.value) + repr(raised.value) + repr(raised.value.__cause__)


def test_what_is_no_secret_stays_in_the_message() -> None:
    assert redacted("deltasql://postgres/lake/public/a@b") == "'deltasql://postgres/lake/public/a@b'"
    assert redacted("my lake") == "'my lake'"


def test_relative_file_becomes_absolute_by_the_working_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert parse_catalog_uri("deltasql://sqlite/a/lake.db").absolute().database == f"{tmp_path}/a/lake.db"
    assert parse_catalog_uri("deltasql://sqlite//a/lake.db").absolute().database == "/a/lake.db"
    assert parse_catalog_uri("deltasql://sqlite///a/lake.db").absolute().database == "/a/lake.db"
    server = parse_catalog_uri("deltasql://postgres/lake/public")
    assert server.absolute() == server


def test_every_parameter_of_libpq_that_is_listed_is_one() -> None:
    psycopg = pytest.importorskip("psycopg")
    known = {option.keyword.decode() for option in psycopg.pq.Conninfo.get_defaults()}
    assert known >= LIBPQ_PARAMETERS


TEXT = st.text(st.characters(exclude_categories=["Cs", "Cc"]), min_size=1, max_size=20)
NO_SECRETS = st.dictionaries(st.sampled_from(sorted(LIBPQ_PARAMETERS - {"password", "sslpassword"})), TEXT, max_size=3)
SEGMENT = TEXT.filter(lambda name: "/" not in name)


@st.composite
def file_catalogs(draw: st.DrawFn) -> CatalogUri:
    directories = draw(st.lists(st.one_of(SEGMENT, st.just("my.db"), st.just(".db"), st.just("..")), max_size=3))
    file = draw(SEGMENT) + draw(st.sampled_from(FILE_SUFFIXES))
    root = draw(st.sampled_from(["", "/"]))
    return CatalogUri(draw(st.sampled_from(["sqlite", "duckdb"])), root + "/".join([*directories, file]))


@st.composite
def postgres_catalogs(draw: st.DrawFn) -> CatalogUri:
    database = draw(TEXT.filter(lambda name: ":" not in name))
    return CatalogUri("postgres", database, draw(TEXT), MappingProxyType(draw(NO_SECRETS)))


@given(st.one_of(file_catalogs(), postgres_catalogs()))
def test_parsing_what_is_shown_gives_the_same_catalog(uri: CatalogUri) -> None:
    assert parse_catalog_uri(str(uri)) == uri
    assert parse_catalog_uri(uri.with_secrets()) == uri
    assert pickle.loads(pickle.dumps(uri)) == uri


@given(postgres_catalogs(), st.text(string.printable + "äöü@", max_size=20).filter(lambda text: text.isprintable()))
def test_password_survives_the_round_trip_with_secrets_and_only_that(uri: CatalogUri, password: str) -> None:
    secret = CatalogUri("postgres", uri.database, uri.schema, MappingProxyType({"password": password}))
    assert parse_catalog_uri(secret.with_secrets()) == secret
    assert parse_catalog_uri(str(secret)).parameters == {"password": "***"}


@pytest.mark.parametrize(
    ("text", "spelled"),
    [
        ("sqlite:///lake.db", "Write deltasql://sqlite/lake.db"),
        ("sqlite:////data/my lake.db", "Write deltasql://sqlite//data/my%20lake.db"),
        ("sqlite+pysqlite:///lake.sqlite", "Write deltasql://sqlite/lake.sqlite"),
        ("sqlite:///lake.sqlite3", "Write deltasql://sqlite/lake.sqlite3. The name must end in .db, .sqlite, .duckdb."),
        ("sqlite://", "A catalog is a file, for example deltasql://sqlite/lake.db."),
        ("duckdb:///lake.duckdb", "Write deltasql://duckdb/lake.duckdb"),
        ("postgres://db/lake", "Write deltasql://postgres/lake/public?host=db"),
        (
            "postgresql://etl:hunter2@db:5432/lake?sslmode=require&options=x",
            "Write deltasql://postgres/lake/public?host=db&port=5432&user=etl&sslmode=require,"
            " and give the password as &password=… or in $PGPASSWORD",
        ),
        ("postgresql+psycopg://etl@/lake", "Write deltasql://postgres/lake/public?user=etl"),
        ("postgresql://db", "Write deltasql://postgres/<database>/public?host=db"),
        ("postgresql://[::1]/lake", "Write deltasql://postgres/<database>/<schema>?host=…&user=…"),
        ("mysql://db/lake", "For example deltasql://postgres/lake/public/features"),
    ],
)
def test_uri_of_another_library_is_spelled_for_deltars(text: str, spelled: str) -> None:
    with pytest.raises(UriError) as raised:
        parse_uri(text)
    assert str(raised.value.hint).startswith(spelled)
    with pytest.raises(UriError) as raised:
        configure(text)
    assert str(raised.value.hint).startswith(spelled)


def test_path_names_the_file_of_an_embedded_catalog(tmp_path: Path) -> None:
    assert configure(tmp_path / "a b.db").uri == CatalogUri("sqlite", f"{tmp_path}/a b.db")
    assert configure(tmp_path / "x.db" / "lake.duckdb").uri == CatalogUri("duckdb", f"{tmp_path}/x.db/lake.duckdb")
    assert configure(Path("lake.db")).uri == CatalogUri("sqlite", f"{Path.cwd()}/lake.db")
    assert configure(Path("lake.db"), warehouse=Path("there")).warehouse == f"{Path.cwd()}/there"
    with pytest.raises(UriError, match=r"'lake' is not the file of a catalog.*\.db, \.sqlite, \.duckdb"):
        configure(Path("lake"))
