"""Redaction of credentials in errors, log lines, events and command output.

| kind                          | example                            | shown                     |
|-------------------------------|------------------------------------|---------------------------|
| parameter of a URL's query    | `https://b/x?X-Amz-Signature=3f0c` | `…?X-Amz-Signature=…`     |
| user and password of a URL    | `https://me:pw@host/x`             | `https://…@host/x`        |
| a value known to be a secret  | `aws_secret_access_key`'s          | `…`                       |
"""

from __future__ import annotations

import re
from collections.abc import Collection

_HIDDEN = "…"
# Repetitions have limits, because without them a hostile text of a megabyte takes hours.
_SECRET_NAME = (
    r"[\w.%-]{0,200}"
    r"(?:sig|signature|token|credential|secret|passw(?:or)?d|pwd|access_?key|account_?key|api_?key|sas)[\w.%-]{0,200}"
)
# A parameter follows ?, & or, in XML, &amp;. `CatalogUri` already shows a password as ***.
_PARAMETER = re.compile(rf"([?&;]{_SECRET_NAME}=)(?!\*\*\*)[^&\s\"'<>)\]}}]+", re.IGNORECASE)
# A password may contain a slash or an @. A number and a slash after the colon are a port, not a password.
_USER_AND_PASSWORD = re.compile(r"([A-Za-z][A-Za-z0-9+.-]{0,30}://)[^\s/?#@:\"']{0,200}:(?!\d+/)[^\s\"']{0,2000}@")


def redacted(text: str, secrets: Collection[str] = ()) -> str:
    """Return the text without credentials in URLs and without the given secrets."""
    # Every error calls this, and most messages contain no URL: test cheaply first.
    if "=" in text:
        text = _PARAMETER.sub(rf"\1{_HIDDEN}", text)
    if "://" in text:
        text = _USER_AND_PASSWORD.sub(rf"\1{_HIDDEN}@", text)
    for secret in secrets:
        text = text.replace(secret, _HIDDEN)
    return text
