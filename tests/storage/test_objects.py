"""What is special about object stores, as far as it can be seen without one."""

from __future__ import annotations

import pickle
import uuid
from pathlib import Path

import pytest
from obstore import exceptions

from deltars.errors import ConfigError, StorageError
from deltars.storage import open_storage
from deltars.storage.failures import RETRYABLE, is_retryable, storage_errors
from tests.storage.forking import is_true_in_forked_child

# Nothing listens on this port: every request is refused at once.
NOWHERE = {
    "aws_endpoint": "http://127.0.0.1:9",
    "aws_allow_http": "true",
    "aws_access_key_id": "AKIAHUNTER",
    "aws_secret_access_key": "hunter2secret",
    "aws_region": "us-east-1",
}


def test_memory_is_shared_by_all_who_name_the_same_store() -> None:
    name = uuid.uuid4()
    open_storage(f"memory://{name}/lake").put("t/x", b"1")
    assert open_storage(f"memory://{name}/lake/t").get("x") == b"1"
    assert open_storage(f"memory://{uuid.uuid4()}/lake").get_or_none("t/x") is None


def test_every_error_of_obstore_is_classified() -> None:
    known = {
        value
        for value in vars(exceptions).values()
        if isinstance(value, type) and issubclass(value, exceptions.BaseError)
    }
    # obstore raises the builtin FileNotFoundError instead of its own deprecated class.
    assert known - {exceptions.BaseError, exceptions.NotFoundError} <= set(RETRYABLE)


@pytest.mark.parametrize(
    ("error", "retryable"),
    [
        (exceptions.GenericError("503"), True),
        (exceptions.PreconditionError("412"), True),
        (exceptions.PermissionDeniedError("403"), False),
        (exceptions.UnauthenticatedError("401"), False),
        (FileNotFoundError("404"), False),
        (OSError(5, "Input/output error"), True),
        (OSError(13, "Permission denied"), False),
        (OSError(30, "Read-only file system"), False),
    ],
)
def test_error_knows_whether_to_try_again(error: Exception, retryable: bool) -> None:
    assert is_retryable(error) is retryable


def test_unreachable_store_is_a_retryable_error_without_credentials() -> None:
    storage = open_storage("s3://bucket/lake", NOWHERE | {"timeout": "1s"})
    with pytest.raises(StorageError, match="s3://bucket/lake") as caught:
        storage.put_if_absent("_delta_log/0.json", b"1")
    assert caught.value.retryable
    assert caught.value.path == "_delta_log/0.json"
    assert "hunter" not in str(caught.value).lower()
    assert "\n" not in str(caught.value)


def test_what_a_url_was_signed_with_is_struck_out_with_the_cause() -> None:
    with pytest.raises(StorageError) as caught, storage_errors("x", "az://c", secrets=["hunter2"]):
        raise exceptions.GenericError("GET https://a/c/x?sv=1&sig=abc%2B failed (hunter2)\nDebug source: sig=abc")
    assert str(caught.value) == "az://c: GET https://a/c/x?… failed (…)"
    assert caught.value.__cause__ is None
    with pytest.raises(StorageError) as caught, storage_errors("x", "az://c"):
        raise exceptions.GenericError("GET failed\nDebug source: https://a/c/x?sig=abc")
    assert caught.value.__cause__ is None


def test_credentials_are_not_in_the_repr() -> None:
    assert repr(open_storage("s3://bucket/lake", NOWHERE)) == "ObjectStorage('s3://bucket/lake')"


@pytest.mark.parametrize("options", [{"aws_bogus": "1"}, {"aws_access_key_id": "only half of it"}])
def test_options_that_do_not_work_are_a_configuration_error(options: dict[str, str]) -> None:
    with pytest.raises(ConfigError, match="s3://bucket"):
        open_storage("s3://bucket/lake", options)


def test_url_is_percent_encoded_as_in_a_log() -> None:
    storage = open_storage("s3://bucket/my lake", NOWHERE)
    assert storage.url_of("a=%3A/x y.parquet") == "s3://bucket/my%20lake/a=%253A/x%20y.parquet"


def test_storage_can_be_sent_to_another_process() -> None:
    storage = pickle.loads(pickle.dumps(open_storage("s3://bucket/lake", NOWHERE)))
    assert storage.root == "s3://bucket/lake"


def test_forked_child_is_told_that_it_cannot_use_object_storage() -> None:
    storage = open_storage(f"memory://{uuid.uuid4()}")
    storage.put("x", b"1")

    def is_refused() -> bool:
        with pytest.raises(StorageError, match="spawn"):
            storage.get("x")
        return True

    assert is_true_in_forked_child(is_refused)


def test_upload_that_fails_leaves_nothing_and_nothing_open(monkeypatch: pytest.MonkeyPatch) -> None:
    storage = open_storage("memory://left-open")

    def fail(*_: object, **__: object) -> None:
        raise OSError("the connection was reset")

    def upload(name: str) -> int:
        with storage.open_writer(name, if_absent=True) as file:
            file.write(b"content")
        return _open_files()

    # After the first one obstore has its own threads and files, and the store in memory keeps what it was given.
    open_files = upload("first")
    with monkeypatch.context() as patch:
        patch.setattr("deltars.storage.objects.obstore.put", fail)
        with pytest.raises(StorageError) as failed:
            upload("second")
        # Looked at while the exception, and all that it knows of, is still there.
        assert _open_files() == open_files, failed
    assert storage.get_or_none("second") is None


def _open_files() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))
