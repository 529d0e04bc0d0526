"""The one seam where errors of obstore and of the operating system become StorageError."""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager

from obstore import exceptions

from deltars.errors import StorageError

# GenericError is what is left after obstore's own retries: a connection, a time-out, a 5xx; it may pass. A
# failed precondition means that somebody else was quicker; trying again meets the new state.
RETRYABLE: dict[type[Exception], bool] = {
    exceptions.GenericError: True,
    exceptions.JoinError: True,
    exceptions.PreconditionError: True,
    exceptions.AlreadyExistsError: False,
    exceptions.InvalidPathError: False,
    exceptions.NotModifiedError: False,
    exceptions.NotSupportedError: False,
    exceptions.PermissionDeniedError: False,
    exceptions.UnauthenticatedError: False,
    exceptions.UnknownConfigurationKeyError: False,
    FileNotFoundError: False,
    ValueError: False,
}

# Nothing changes these but a person.
_LASTING_ERRNO = frozenset(
    (
        errno.EACCES,
        errno.EPERM,
        errno.EROFS,
        errno.ENOENT,
        errno.ENOTDIR,
        errno.EISDIR,
        errno.EEXIST,
        errno.ENAMETOOLONG,
        errno.ELOOP,
        errno.EINVAL,
        errno.EOPNOTSUPP,
    )
)

_SECRET_OPTION = re.compile("key|secret|token|sas|password|credential", re.IGNORECASE)
_QUERY = re.compile(r"\?[^\s\"')]+")


@contextmanager
def storage_errors(path: str, where: str, secrets: Collection[str] = ()) -> Iterator[None]:
    """Raise what obstore or the operating system raises as StorageError; `where` is the storage's root."""
    try:
        yield
    except (exceptions.BaseError, OSError, ValueError) as error:
        cause: Exception | None = error
        if isinstance(error, OSError) and error.errno is not None:
            name = f": {os.fsdecode(error.filename)}" if error.filename else ""
            text = f"{error.strerror}{name}"
        else:
            text = redacted(first_line(error), secrets)
            if redacted(str(error), secrets) != str(error):
                cause = None  # a traceback would show it whole
        raise StorageError(f"{where}: {text}", path=path, retryable=is_retryable(error)) from cause


def is_retryable(error: Exception) -> bool:
    for kind, retryable in RETRYABLE.items():
        if isinstance(error, kind):
            return retryable
    return isinstance(error, OSError) and error.errno not in _LASTING_ERRNO


def first_line(error: Exception) -> str:
    """What obstore says, without the dump of its own structures that it appends."""
    return str(error).partition("\n")[0]


def secret_values(options: Mapping[str, str]) -> list[str]:
    return [value for name, value in options.items() if value and _SECRET_OPTION.search(name)]


def redacted(text: str, secrets: Collection[str]) -> str:
    text = _QUERY.sub("?…", text)
    for secret in secrets:
        text = text.replace(secret, "…")
    return text
