"""S3 as a newcomer meets it, played by moto's server; and one that overwrites what it was asked not to."""

from __future__ import annotations

import http.client
import http.server
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

import deltars
from tests.first_mistakes.conftest import ROWS
from tests.support.s3 import SECRET, new_bucket, s3_server


@pytest.fixture(scope="module")
def endpoint() -> Iterator[str]:
    with s3_server() as server:
        yield server


@pytest.fixture
def bucket(endpoint: str) -> str:
    return new_bucket(endpoint)


@pytest.fixture
def heedless(endpoint: str) -> Iterator[str]:
    """The same store without conditional puts: what asks for one never arrives."""
    behind = endpoint.removeprefix("http://")

    class Forgetful(http.server.BaseHTTPRequestHandler):
        def forward(self) -> None:
            size = int(self.headers.get("Content-Length") or 0)
            headers = {name: value for name, value in self.headers.items() if name.lower() != "if-none-match"}
            connection = http.client.HTTPConnection(behind)
            connection.request(self.command, self.path, self.rfile.read(size), headers)
            answer = connection.getresponse()
            content = answer.read()
            self.send_response(answer.status)
            for name, value in answer.getheaders():
                if name.lower() not in ("content-length", "transfer-encoding", "connection"):
                    self.send_header(name, value)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)
            connection.close()

        do_GET = do_PUT = do_POST = do_DELETE = do_HEAD = forward  # noqa: N815

        def log_message(self, format: str, *arguments: object) -> None: ...

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Forgetful)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


def _options(endpoint: str, **more: str) -> dict[str, str]:
    known = {"aws_endpoint": endpoint, "aws_allow_http": "true", "aws_region": "us-east-1"}
    return known | {"aws_access_key_id": "nobody", "aws_secret_access_key": SECRET} | more


def _refused(tmp_path: Path, warehouse: str, options: dict[str, str]) -> str:
    """What is said to somebody who writes a first table there. Nothing has changed."""
    uri = f"deltasql://sqlite/{tmp_path}/lake.db"
    with deltars.connect(uri, warehouse=warehouse, storage_options=options) as catalog:
        with pytest.raises(deltars.DeltarsError) as raised:
            catalog.write("features", ROWS)
        assert catalog.tables() == []
    assert SECRET not in str(raised.value)
    return str(raised.value)


def test_no_credentials_are_called_that(
    tmp_path: Path, endpoint: str, bucket: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_PROFILE", "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI"):
        monkeypatch.delenv(name, raising=False)
    options = {name: value for name, value in _options(endpoint).items() if "key" not in name}
    said = _refused(tmp_path, f"s3://{bucket}/lake", options)
    assert "No credentials found: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY" in said


def test_a_bucket_that_is_not_there_is_named(tmp_path: Path, endpoint: str) -> None:
    said = _refused(tmp_path, "s3://nowhere/lake", _options(endpoint))
    assert "s3://nowhere/lake" in said
    assert "The bucket does not exist: create it" in said


def test_an_endpoint_without_tls_says_which_option_it_needs(tmp_path: Path, endpoint: str, bucket: str) -> None:
    said = _refused(tmp_path, f"s3://{bucket}/lake", _options(endpoint, aws_allow_http="false"))
    assert "needs aws_allow_http=true" in said


def test_a_misspelt_option_is_named(tmp_path: Path, endpoint: str, bucket: str) -> None:
    assert "'aws_endpont' is not valid" in _refused(tmp_path, f"s3://{bucket}/lake", _options("", aws_endpont="x"))


def test_a_bucket_without_conditional_put_is_refused_before_anything_is_published_there(
    tmp_path: Path, endpoint: str, heedless: str, bucket: str
) -> None:
    said = _refused(tmp_path, f"s3://{bucket}/lake", _options(heedless))
    assert "overwrites existing files in spite of a conditional put" in said
    assert "Use a store with conditional puts" in said
    storage = deltars.connect(
        f"deltasql://sqlite/{tmp_path}/good.db", warehouse=f"s3://{bucket}/lake", storage_options=_options(endpoint)
    )
    with storage as catalog:
        assert catalog.write("features", ROWS).versions == {"features": 0}


def test_the_doctor_finds_the_same(tmp_path: Path, heedless: str, bucket: str, monkeypatch: pytest.MonkeyPatch) -> None:
    uri = f"deltasql://sqlite/{tmp_path}/lake.db"
    deltars.connect(uri, warehouse=f"s3://{bucket}/lake").close()
    (tmp_path / "deltars.toml").write_text(
        f'[catalogs.lake]\nuri = "{uri}"\n[catalogs.lake.storage_options]\n'
        + "".join(f'{name} = "{value}"\n' for name, value in _options(heedless).items())
    )
    monkeypatch.chdir(tmp_path)
    [storage] = [finding for finding in deltars.diagnose("lake", spark=False) if finding.check == "storage"]
    assert storage.state == "failed"
    assert "overwrites existing files in spite of a conditional put" in storage.found
    assert storage.fix is not None
