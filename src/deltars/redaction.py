"""Take credentials out of text before anybody sees it: errors, log lines, events, command output.

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
_SECRET_NAME = (
    r"[\w.%-]*(?:sig|signature|token|credential|secret|passw(?:or)?d|pwd|access_?key|account_?key|api_?key|sas)[\w.%-]*"
)
# A parameter follows ?, & or, in XML, &amp; — and *** is what our own URIs show for a password.
_PARAMETER = re.compile(rf"([?&;]{_SECRET_NAME}=)(?!\*\*\*)[^&\s\"'<>)\]}}]+", re.IGNORECASE)
# A password may hold a slash or an @ itself. A number and a slash after the colon are a port, and no password.
_USER_AND_PASSWORD = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*://)[^\s/?#@:\"']*:(?!\d+/)[^\s\"']*@")


def redacted(text: str, secrets: Collection[str] = ()) -> str:
    """Return the text without the credentials in its URLs, and without these secrets."""
    # Every error passes here, and most of them name no URL.
    if "=" in text:
        text = _PARAMETER.sub(rf"\1{_HIDDEN}", text)
    if "://" in text:
        text = _USER_AND_PASSWORD.sub(rf"\1{_HIDDEN}@", text)
    for secret in secrets:
        text = text.replace(secret, _HIDDEN)
    return text
