"""Google's and Azure's stores are asked for files that only appear where there are none.

There is no such store here: a server of a few lines notes the requests and answers as the stores' documentation says.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import unquote

import pytest

from deltars.errors import ConfigError, StorageError
from deltars.storage import Storage, open_storage

KEY = "aHVudGVyMg=="


@dataclass
class Cloud:
    """Answers every PUT with `status`, and keeps what it was asked."""

    status: int = 200
    requests: list[tuple[str, dict[str, str]]] = field(default_factory=list)
    url: str = ""


@pytest.fixture
def cloud() -> Iterator[Cloud]:
    cloud = Cloud()

    class Answer(BaseHTTPRequestHandler):
        def do_PUT(self) -> None:
            self.rfile.read(int(self.headers.get("Content-Length", 0)))
            cloud.requests.append((self.path, {name.lower(): value for name, value in self.headers.items()}))
            self.send_response(cloud.status)
            self.send_header("Content-Length", "0")
            self.send_header("ETag", '"1"')
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:
            """Not on the terminal."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Answer)
    cloud.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield cloud
    server.shutdown()
    server.server_close()
    thread.join()


def _google(cloud: Cloud) -> Storage:
    account = {"gcs_base_url": cloud.url, "disable_oauth": True, "client_email": "", "private_key": KEY}
    options = {"google_service_account_key": json.dumps(account | {"private_key_id": ""}), "allow_http": "true"}
    return open_storage("gs://bucket/my lake", options)


def _azure(cloud: Cloud) -> Storage:
    options = {"azure_storage_account_name": "account", "azure_storage_account_key": KEY}
    return open_storage("az://container/my lake", options | {"azure_endpoint": cloud.url, "allow_http": "true"})


STORES = {"gs": _google, "az": _azure}
CONDITION = {"gs": ("x-goog-if-generation-match", "0"), "az": ("if-none-match", "*")}
PLACE = {"gs": "/bucket/my lake/_delta_log/0.json", "az": "/container/my lake/_delta_log/0.json"}
TAKEN = {"gs": 412, "az": 409}

each_store = pytest.mark.parametrize("scheme", STORES)


@each_store
def test_commit_is_put_on_the_condition_that_there_is_none(cloud: Cloud, scheme: str) -> None:
    storage = STORES[scheme](cloud)
    assert storage.put_if_absent("_delta_log/0.json", b"1")
    [(path, headers)] = cloud.requests
    name, value = CONDITION[scheme]
    assert unquote(path.partition("?")[0]) == PLACE[scheme]
    assert headers.get(name) == value


@each_store
def test_checkpoint_is_put_on_the_same_condition_and_hints_are_not(cloud: Cloud, scheme: str) -> None:
    storage = STORES[scheme](cloud)
    with storage.open_writer("_delta_log/0.checkpoint.parquet", if_absent=True) as writer:
        writer.write(b"1")
    storage.put("_delta_log/_last_checkpoint", b"{}")
    name, value = CONDITION[scheme]
    assert [headers.get(name) for _, headers in cloud.requests] == [value, None]


@each_store
def test_store_that_has_one_already_is_no_error(cloud: Cloud, scheme: str) -> None:
    cloud.status = TAKEN[scheme]
    storage = STORES[scheme](cloud)
    assert not storage.put_if_absent("_delta_log/0.json", b"1")
    with storage.open_writer("_delta_log/0.checkpoint.parquet", if_absent=True) as writer:
        writer.write(b"1")
    assert not writer.created


@each_store
@pytest.mark.parametrize(("status", "retryable"), [(403, False), (401, False), (429, True), (503, True)])
def test_refusal_is_a_storage_error_that_knows_whether_to_try_again(
    cloud: Cloud, scheme: str, status: int, retryable: bool
) -> None:
    cloud.status = status
    with pytest.raises(StorageError, match=f"{scheme}://") as caught:
        STORES[scheme](cloud).put_if_absent("_delta_log/0.json", b"1")
    assert caught.value.retryable is retryable
    assert KEY not in str(caught.value)


@pytest.mark.parametrize("uri", ["gs://bucket/lake", "az://container/lake", "abfss://c@account.dfs.core.windows.net/l"])
def test_options_of_another_store_are_a_configuration_error(uri: str) -> None:
    with pytest.raises(ConfigError, match="are invalid"):
        open_storage(uri, {"aws_region": "eu"})
