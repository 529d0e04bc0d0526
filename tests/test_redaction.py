"""No credential is shown: whoever wrote the text, and wherever it comes out."""

from __future__ import annotations

import io
import logging
import pickle
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from obstore import exceptions

import deltars
from deltars.cli import main
from deltars.errors import DamagedLog, DeltarsError, MirrorFailure, StorageError
from deltars.observe.logs import JsonFormatter, error_fields
from deltars.redaction import redacted
from deltars.storage import open_storage, parse_location
from deltars.storage.failures import storage_errors
from deltars.store.mirror.status import MirrorState, MirrorStatusStore

pytestmark = pytest.mark.backends("sqlite")

SECRET = "hunter2/+x=="

SIGNED = {
    "s3": f"https://b.s3.amazonaws.com/t?X-Amz-Credential={SECRET}&X-Amz-Signature={SECRET}",
    "s3 token": f"https://b.s3.amazonaws.com/t?a=1&X-Amz-Security-Token={SECRET}",
    "s3 v2": f"https://b.s3.amazonaws.com/t?AWSAccessKeyId={SECRET}&Signature={SECRET}&Expires=1",
    "gcs": f"https://storage.googleapis.com/b/t?X-Goog-Signature={SECRET}",
    "azure": f"https://a.blob.core.windows.net/c/t?sv=2024&sp=r&sig={SECRET}",
    "token": f"https://host/t?access_token={SECRET}",
    "xml": f"https://host/t?a=1&amp;sig={SECRET}",
    "s3 url": f"s3://bucket/t?sig={SECRET}",
    "no scheme": f"bucket/t?sig={SECRET}",
    "password": "https://me:hunter2@host/t",
    "s3 password": "s3://AKIA:hunter2@bucket/t",
    "s3 password with a slash": "s3://AKIA:hunter2/x@bucket/t",
    "https password with a slash": "https://AKIA:hunter2/x@bucket/t",
    "abfs": f"abfss://c@a.dfs.core.windows.net/t?sig={SECRET}",
    "file": f"file:///t/../x?sig={SECRET}\x00",
}


@pytest.mark.parametrize("kind", SIGNED)
def test_location_with_a_credential_is_refused_and_not_shown(catalog: deltars.Catalog, kind: str) -> None:
    text = SIGNED[kind]
    jobs: tuple[Callable[[], object], ...] = (
        lambda: parse_location(text),
        lambda: open_storage(text),
        lambda: catalog.create_table("t", "id BIGINT", location=text),
        lambda: catalog.import_table(text),
        lambda: catalog.import_table(text, "t"),
        lambda: deltars.connect("deltasql://sqlite/other.db", warehouse=text),
        lambda: deltars.rebuild(text, "deltasql://sqlite/other.db"),
        lambda: open_storage("s3://bucket/x", {f"{text}://": "{}"}),
        lambda: catalog.table(text),
        lambda: catalog.drop_table(text, delete_data=True),
    )
    for job in jobs:
        with pytest.raises(DeltarsError) as raised:
            job()
        error = raised.value
        shown = [str(error), repr(error), "".join(traceback.format_exception(error)), str(error_fields(error))]
        shown += [str(pickle.loads(pickle.dumps(error))), str(error.args), str(error.table)]
        assert "hunter2" not in "\n".join(line for text in shown for line in text.splitlines() if "SIGNED" not in line)


@pytest.mark.parametrize("kind", [kind for kind in SIGNED if kind != "file"])
def test_command_shows_no_credential(catalog: deltars.Catalog, catalog_uri: str, kind: str) -> None:
    for command in (["import", SIGNED[kind]], ["rebuild", SIGNED[kind]], ["show", SIGNED[kind]]):
        run = CliRunner().invoke(main, [*command, "--catalog", catalog_uri])
        assert run.exit_code != 0
        assert "hunter2" not in run.output


@pytest.mark.parametrize("kind", SIGNED)
@pytest.mark.parametrize(
    "error", [exceptions.GenericError, exceptions.PermissionDeniedError, ValueError, OSError, FileNotFoundError]
)
def test_what_a_store_says_is_shown_without_credentials(kind: str, error: Any) -> None:
    text = f"Generic S3 error: error sending request for url ({SIGNED[kind]}): 403\n\nDebug source:\n{SIGNED[kind]}"
    made = error(22, "refused", SIGNED[kind]) if error is OSError else error(text)
    with pytest.raises(StorageError) as raised, storage_errors("t", "s3://bucket"):
        raise made
    assert "hunter2" not in str(raised.value)
    shown = traceback.format_exception(raised.value)
    assert "hunter2" not in "".join(line for line in shown if "SIGNED" not in line)


def test_options_of_a_store_are_shown_nowhere(catalog: deltars.Catalog, tmp_path: Path) -> None:
    options = {"aws_access_key_id": "hunter2", "aws_secret_access_key": "hunter2"}
    with deltars.connect(f"deltasql://sqlite/{tmp_path}/o.db", storage_options=options) as opened:
        seen = [opened, opened._session, opened._session.settings, opened._config, opened.create_table("t", "id INT")]
        assert "hunter2" not in repr(seen) + str(opened.table("t").scan())
    assert "hunter2" not in repr(open_storage("s3://bucket/x", options))


def test_every_text_of_an_error_is_without_credentials() -> None:
    url = SIGNED["s3"]
    errors = [
        DeltarsError(url, hint=url, table=url),
        StorageError(url, path=url),
        MirrorFailure(error=url),
        DamagedLog(url, path=url),
        DeltarsError("x").located(table=url),
    ]
    for error in errors:
        assert "hunter2" not in str(error) + str(vars(error))


def test_log_lines_and_what_the_mirror_remembers_are_without_credentials(catalog: deltars.Catalog) -> None:
    table = catalog.create_table("t", "id BIGINT")
    status = MirrorStatusStore(catalog._session.database)
    assert status.claim(table.id, "me", even_if_idle=True)[0]
    status.fail(table.id, "me", MirrorState.FAILED, f"no answer from {SIGNED['azure']}")
    [found] = catalog.mirror_status()
    assert found.last_error == "no answer from https://a.blob.core.windows.net/c/t?sv=2024&sp=r&sig=…"
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    handler.setFormatter(JsonFormatter())
    error = StorageError(SIGNED["s3"], table=SIGNED["s3"])
    handler.handle(logging.makeLogRecord({"msg": "%s", "args": (error,), **error_fields(error)}))
    assert "hunter2" not in stream.getvalue()
    assert "X-Amz-Signature=…" in stream.getvalue()


@pytest.mark.parametrize(
    "text",
    [
        "the table 't' has 5 files",
        "deltasql://postgres/lake/public?host=db&user=etl&password=***",
        "abfss://container@account.dfs.core.windows.net/lake",
        "s3://bucket/a:b@c/d",
        "WHERE token = 'x' AND sig=5",
        "http://127.0.0.1:9000/bucket/a@b",
        "deltasql://sqlite//a/b.db",
    ],
)
def test_text_without_a_credential_stays_as_it_is(text: str) -> None:
    assert redacted(text) == text
