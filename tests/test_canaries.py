"""A unique secret in every place that takes one is seen in nothing that a person, a program or a log can read.

`tests/spark/test_secrets.py` does the same for Spark: plans, UI, event log and the options of `format("deltasql")`.
"""

from __future__ import annotations

import json
import logging
import socket
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest
from click.testing import CliRunner
from openlineage.client import OpenLineageClient
from openlineage.client.serde import Serde
from openlineage.client.transport.http import HttpConfig, HttpTransport
from openlineage.client.transport.transport import Transport
from starlette.testclient import TestClient

import deltars
from deltars import observe
from deltars.cli import main
from deltars.console.app import create_app
from deltars.observe.lineage import LineageEvents
from deltars.uri import CatalogUri, parse_catalog_uri
from tests.console.history import fill, rows
from tests.support import witness
from tests.support.canaries import Canaries, every_log, every_start
from tests.support.dump import dump

HOST = "127.0.0.1:8800"
PAGES = ("/", "/transactions", "/conflicts", "/cuts", "/mirror", "/streams", "/maintenance")
COMMANDS = (
    "doctor --no-spark", "doctor --no-spark", "show nothing", "tables", "namespaces", "show features",
    "history features", "files features", "diff labels 0 1", "cut", "tags", "conflicts", "lineage labels", "advise",
    "verify features --deep", "mirror status", "mirror once", "migrate status", "migrate up", "head features",
    "sql SELEC", "import s3://nowhere/t", "verify nothing --debug", "resolve 6f1e7a4e-9d55-4b6c-8a36-0f6f6a0c3b11",
    "expire features --older-than 30d", "vacuum features", "migrate grants --reader no_such_role --debug",
)  # fmt: skip


def secret_uri(uri: str, canaries: Canaries, place: str, **more: str) -> CatalogUri:
    """The catalog with passwords, which its server does not ask for."""
    plain = parse_catalog_uri(uri)
    secret = {"password": canaries[f"password of {place}"], "sslpassword": canaries[f"sslpassword of {place}"]}
    return CatalogUri(
        plain.backend, plain.database, plain.schema, MappingProxyType({**plain.parameters, **secret, **more})
    )


@pytest.fixture
def store() -> Iterator[str]:
    """The endpoint of an object store that refuses every request, and repeats all of it in its answer."""

    class Handler(BaseHTTPRequestHandler):
        def refuse(self) -> None:
            body = f"<Error><Code>InvalidAccessKeyId</Code>{self.path} {self.headers}</Error>".encode()
            self.send_response(403)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def __getattr__(self, name: str) -> Any:
            if name.startswith("do_"):
                return self.refuse
            raise AttributeError(name)

        def log_message(self, format: str, *args: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


def storage_options(canaries: Canaries, place: str, store: str) -> dict[str, str]:
    """Keys of an object store, and other keys below one location."""
    return {
        "aws_endpoint": store,
        "aws_allow_http": "true",
        "aws_access_key_id": canaries[f"access key of {place}"],
        "aws_secret_access_key": canaries[f"secret key of {place}"],
        "aws_session_token": canaries[f"token of {place}"],
        "s3://other": json.dumps({"aws_secret_access_key": canaries[f"key of a location of {place}"]}),
    }


@contextmanager
def lineage(canaries: Canaries, server: str) -> Iterator[None]:
    """Events for a client that keeps them, and for a server that refuses them."""

    class Kept(Transport):
        kind = "kept"

        def emit(self, event: Any) -> None:
            canaries.saw("lineage", Serde.to_json(event))

    url = server.replace("://", f"://me:{canaries['password of lineage'].partition('/')[0]}@")
    refused = HttpTransport(HttpConfig(url=url, timeout=5, retry={"total": 0}))
    exporters = [LineageEvents(OpenLineageClient(transport=one)) for one in (Kept(), refused)]
    for exporter in exporters:
        observe.attach(exporter)
    try:
        yield
    finally:
        for exporter in exporters:
            assert exporter.flush(30)
            observe.detach(exporter)


@pytest.mark.backends("postgres")
@pytest.mark.parametrize(
    "place",
    ["arguments", *(pytest.param(place, marks=pytest.mark.soak(only=True)) for place in ("environment", "file"))],
)
def test_secret_of_a_catalog_is_seen_nowhere(
    place: str, migrated_uri: str, store: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    canaries = Canaries()
    uri, options = secret_uri(migrated_uri, canaries, place).with_secrets(), storage_options(canaries, place, store)
    named: str | None = uri
    given: dict[str, Any] = {}
    monkeypatch.chdir(tmp_path)
    if place == "arguments":
        given = {"storage_options": options}
    elif place == "environment":
        named = None
        monkeypatch.setenv("DELTARS_CATALOG", uri)
        monkeypatch.setenv("DELTARS_STORAGE_OPTIONS", json.dumps(options))
        monkeypatch.setenv("PGPASSWORD", canaries["PGPASSWORD"])
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", canaries["AWS_SECRET_ACCESS_KEY"])
    else:
        named = "lake"
        entry = {"uri": uri, "storage_options": options}
        lines = [f"uri = {json.dumps(entry['uri'])}", "[catalogs.lake.storage_options]"]
        lines += [f"{json.dumps(name)} = {json.dumps(value)}" for name, value in options.items()]
        Path("deltars.toml").write_text("\n".join(["[catalogs.lake]", *lines]))
    warehouse = tmp_path / "warehouse"
    # OpenLineage logs its own configuration when a client is made; what comes after is ours.
    with lineage(canaries, store), every_log(canaries), every_start(canaries):
        with deltars.connect(named, warehouse=str(warehouse), **given) as catalog:
            fill(catalog)
            _look_at(catalog, canaries)
            _serve(catalog, canaries)
            for name, job in _failing(catalog, uri).items():
                _fail(canaries, name, job)
        _run_commands(canaries, named, COMMANDS if place == "arguments" else COMMANDS[:4])
    canaries.saw("rows of the catalog", dump(migrated_uri))
    canaries.saw("sessions of the server", witness.rows(migrated_uri, "SELECT * FROM pg_stat_activity"))
    canaries.saw_files("warehouse", warehouse)
    canaries.saw_processes()
    assert canaries.found() == []
    # And all of it was looked at.
    expected = {"logs", "lineage", "pages", "commands", "warehouse", "rows of the catalog", "process list"}
    assert expected <= canaries.places


def _look_at(catalog: deltars.Catalog, canaries: Canaries) -> None:
    table = catalog.table("features")
    with catalog.begin() as tx:
        tx.write("features", table.to_arrow())
        canaries.saw_object("an open transaction", tx, pickled=False)
    session = catalog._session
    # These open the catalog again in another process, so their pickles have what it takes.
    connected = {"catalog": catalog, "table": table, "session": session, "database": session.database}
    connected |= {"changes": table.changes(0), "cut": catalog.snapshot(), "snapshot": table.snapshot()}
    for name, thing in connected.items():
        canaries.saw_object(name, thing, pickled=False)
    # These do not.
    plain = {"result": tx.result, "history": table.history(), "detail": table.detail(), "tags": catalog.tags()}
    plain |= {"conflicts": catalog.conflicts(), "verification": table.verify(), "advice": catalog.advise()}
    plain |= {"mirror status": catalog.mirror_status(), "schema": table.schema, "files": table.files()}
    for name, thing in plain.items():
        canaries.saw_object(name, thing)
    canaries.saw("engine", repr(session.database.engine), str(session.database.engine.url))
    canaries.saw("settings", session.settings, catalog._config, catalog._config.uri)


def _failing(catalog: deltars.Catalog, uri: str) -> dict[str, Callable[[], object]]:
    """Calls that fail: with the secrets themselves, or for other reasons while they are known."""
    secret = parse_catalog_uri(uri)

    def other(**parameters: str) -> str:
        merged = MappingProxyType({**secret.parameters, **parameters})
        return CatalogUri("postgres", secret.database, secret.schema, merged).with_secrets()

    return {
        "no server": lambda: deltars.connect(other(host="/nowhere")),
        "no port": lambda: deltars.connect(other(host="127.0.0.1", port="9", connect_timeout="2")),
        "no host": lambda: deltars.connect(other(host="no-such-host.invalid", connect_timeout="2")),
        "wrong mode": lambda: deltars.connect(other(sslmode="nonsense")),
        "no certificate": lambda: _by_tls(other),
        "wrong number": lambda: deltars.connect(other(host="127.0.0.1", port="many")),
        "no such role": lambda: deltars.connect(other(user="no_such_role")),
        "no schema": lambda: deltars.connect(uri.replace(str(secret.schema), "no_such_schema")),
        "no database": lambda: deltars.connect(uri.replace(secret.database, "no_such_database")),
        "unknown parameter": lambda: deltars.connect(f"{uri}&passwrd=x"),
        "twice": lambda: deltars.connect(f"{uri}&password=x"),
        "not encoded": lambda: deltars.connect(f"{uri}%ZZ"),
        "a table": lambda: deltars.connect(uri.replace("?", "/t?")),
        "not a table": lambda: deltars.table(uri),
        "no such table": lambda: deltars.table(uri.replace("?", "/nothing?")),
        "sqlalchemy": lambda: deltars.connect(uri.replace("deltasql://postgres/", "postgresql://")),
        "of a name": lambda: deltars.connect(uri.removeprefix("deltasql://")),
        "of a table's name": lambda: catalog.table(uri),
        "name of a table": lambda: catalog.create_table(uri, "id BIGINT"),
        "another catalog": lambda: catalog.write(uri.replace("?", "/t?").replace("5432", "5433"), rows(1)),
        "warehouse": lambda: deltars.connect(uri, warehouse=uri),
        "wrong setting": lambda: deltars.connect(uri, pool_size=0),
        "storage": lambda: catalog.create_table("on_s3", "id BIGINT", location="s3://bucket/t"),
        "other storage": lambda: catalog.create_table("on_s3", "id BIGINT", location="s3://other/t"),
        "import": lambda: catalog.import_table("s3://bucket/t"),
        "rebuild": lambda: deltars.rebuild("s3://bucket/lake", uri),
        "options": lambda: deltars.connect(uri, storage_options=[uri]),  # type: ignore[arg-type]
        "rows": lambda: catalog.write("features", {"id": [uri]}),  # type: ignore[arg-type]
        "condition": lambda: catalog.table("features").to_arrow(where="id ="),
        "conflict": lambda: _conflict(catalog),
    }


def _by_tls(other: Callable[..., str]) -> None:
    """Connect to a server that takes TLS, so that the client reads its certificate and its key."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def accept() -> None:
            connection, _ = server.accept()
            with connection:
                connection.recv(8)
                connection.sendall(b"S")
                connection.recv(8)

        thread = threading.Thread(target=accept)
        thread.start()
        port = str(server.getsockname()[1])
        try:
            deltars.connect(other(host="127.0.0.1", port=port, sslmode="require", sslcert=__file__, sslkey=__file__))
        finally:
            thread.join()


def _conflict(catalog: deltars.Catalog) -> None:
    first, second = catalog.begin(), catalog.begin()
    for tx in (first, second):
        tx.delete("features", "true")
    first.commit()
    second.commit()


def _fail(canaries: Canaries, name: str, job: Callable[[], object]) -> None:
    try:
        job()
    except deltars.DeltarsError as error:
        canaries.saw_error(f"error {name}", error)
    else:
        pytest.fail(f"{name} did not fail")


def _serve(catalog: deltars.Catalog, canaries: Canaries) -> None:
    app = create_app(catalog, token="token", hosts=[HOST])
    with TestClient(app, base_url=f"http://{HOST}", raise_server_exceptions=False) as client:
        assert client.get("/?token=token").status_code == 200
        [conflict, *_] = catalog.conflicts()
        for page in (*PAGES, f"/transaction/{conflict.winning_txn_id}", "/table", "/nothing"):
            for address in (page, "/overview.json" if page == "/" else f"{page}.json"):
                answer = client.get(address, params={"name": "features"})
                canaries.saw("pages", answer.text, str(answer.headers))


def _run_commands(canaries: Canaries, named: str | None, commands: Sequence[str]) -> None:
    where = [] if named is None else ["--catalog", named]
    for number, command in enumerate(commands):
        form = ["--json"] if number % 2 else []
        run = CliRunner().invoke(main, [*command.split(" "), *form, *where], prog_name="deltars")
        assert isinstance(run.exception, SystemExit | None), command
        canaries.saw("commands", run.output)


def test_canary_that_is_seen_is_found() -> None:
    """The control: in any encoding that texts have, in a field, in a pickle and in a log."""
    canaries = Canaries()
    secret = canaries["here"]
    plain = parse_catalog_uri("deltasql://postgres/lake/public?host=db")
    uri = CatalogUri("postgres", "lake", "public", MappingProxyType({**plain.parameters, "password": secret}))
    canaries.saw("nothing", repr(uri), str(uri))
    assert canaries.found() == []
    canaries.saw("url", uri.with_secrets())
    canaries.saw("json", json.dumps(secret))
    canaries.saw_object("uri", uri)
    with every_log(canaries):
        logging.getLogger("deltars.anything").debug("opened %s", secret)
    found = "\n".join(canaries.found())
    assert all(f"here in {where}" in found for where in ("url", "json", "uri", "pickle of uri", "logs"))
