"""Translation of obstore's and the operating system's errors into StorageError. Only this module does it."""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager

from obstore import exceptions

from deltars import redaction
from deltars.errors import StorageError

# GenericError remains after obstore's own retries (a connection error, a time-out, a 5xx), and a later attempt may
# succeed. A failed precondition means that another writer was first; a retry sees the new state.
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

# A retry cannot fix these; a person must.
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
    """Raise errors of obstore and the operating system as StorageError. `where` is the storage's root."""
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
            cause = None  # the traceback would show the secret
        raise StorageError(
            f"{where}: {text}", path=path, retryable=is_retryable(error), hint=hint_for(error)
        ) from cause


_NO_CREDENTIALS = (
    "No credentials found: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY (or the store's own variables), or"
    " pass storage_options={…}; a public bucket needs aws_skip_signature=true."
)
_REFUSED = "Check the credentials, and that they allow listing, reading and writing there."
# obstore has no codes for these, so they are recognized by the store's text. 169.254.169.254 is the address at which a
# machine in a cloud requests the credentials of its role.
_HINTS_BY_TEXT = {
    "169.254.169.254": _NO_CREDENTIALS,
    "NoSuchBucket": "The bucket does not exist: create it, or correct the location.",
    "builder error": "An endpoint without TLS (http://) needs aws_allow_http=true.",
    "InvalidAccessKeyId": _REFUSED,
    "SignatureDoesNotMatch": _REFUSED,
    "NotImplemented": "The store does not support a required operation, for example a conditional put (If-None-Match).",
}
_HINTS_BY_ERRNO = {
    errno.ENOSPC: "The disk is full: make room and try again; nothing was changed.",
    errno.EDQUOT: "The disk quota is used up: make room and try again; nothing was changed.",
    errno.EFBIG: "The file is larger than this process may write (ulimit -f).",
    errno.EROFS: "The file system is read-only: mount it for writing, or choose another location.",
    errno.EACCES: "This user may not read or write there: change the permissions, or choose another location.",
    errno.EPERM: "This user may not do that there: change the permissions, or choose another location.",
}


def hint_for(error: Exception) -> str | None:
    """Return what the user can do about an error."""
    if isinstance(error, OSError) and error.errno is not None:
        return _HINTS_BY_ERRNO.get(error.errno)
    if isinstance(error, exceptions.PermissionDeniedError | exceptions.UnauthenticatedError):
        return _REFUSED
    return next((hint for text, hint in _HINTS_BY_TEXT.items() if text in str(error)), None)


def is_retryable(error: Exception) -> bool:
    for kind, retryable in RETRYABLE.items():
        if isinstance(error, kind):
            return retryable
    return isinstance(error, OSError) and error.errno not in _LASTING_ERRNO


def first_line(error: Exception) -> str:
    """Return obstore's message without the dump of its internal structures that follows it."""
    return str(error).partition("\n")[0]


def secret_values(options: Mapping[str, str]) -> list[str]:
    return [value for name, value in options.items() if value and _SECRET_OPTION.search(name)]


def redacted(text: str, secrets: Collection[str]) -> str:
    """Return the text without secrets and URL queries: error messages of stores quote signed URLs."""
    return redaction.redacted(_QUERY.sub("?…", text), secrets)
