"""Who may see the pages: programs of this machine that have the token, and no page of another site.

    request ── Host is this server? ── Origin is none or this server? ── token? ──▶ page, with a strict CSP
                     └ 403                    └ 403                        └ 401

The token is in the address that `deltars console` prints. The first request with it gets a cookie, and is sent on to
the address without the token, so that it does not stay in the browser's history.
"""

from __future__ import annotations

import secrets
from collections.abc import Collection
from hashlib import sha256
from urllib.parse import urlsplit

from starlette.datastructures import URL
from starlette.middleware.base import BaseHTTPMiddleware, RequestResponseEndpoint
from starlette.requests import Request
from starlette.responses import PlainTextResponse, RedirectResponse, Response
from starlette.types import ASGIApp

TOKEN = "token"

HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self';"
        " form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}


class Guard(BaseHTTPMiddleware):
    """Refuse requests that may not see the pages."""

    def __init__(self, app: ASGIApp, token: str, hosts: Collection[str]) -> None:
        super().__init__(app)
        self._token = token
        # Cookies know no ports: two consoles on this machine must not take each other's.
        self._cookie = f"deltars_console_{sha256(token.encode()).hexdigest()[:8]}"
        self._hosts = frozenset(host.lower() for host in hosts)

    async def dispatch(self, request: Request, call_next: RequestResponseEndpoint) -> Response:
        response = self._refusal(request) or await call_next(request)
        for name, value in HEADERS.items():
            response.headers[name] = value
        return response

    def _refusal(self, request: Request) -> Response | None:
        if request.headers.get("host", "").lower() not in self._hosts:
            return PlainTextResponse("Open the address that deltars console printed.", 403)
        origin = request.headers.get("origin")
        if origin is not None and urlsplit(origin).netloc.lower() not in self._hosts:
            return PlainTextResponse("Requests of other sites are refused.", 403)
        if request.method not in ("GET", "HEAD"):
            return PlainTextResponse("The pages only read.", 405)
        given = request.query_params.get(TOKEN)
        if given is not None and self._is_token(given):
            response = RedirectResponse(without_token(request.url), 303)
            response.set_cookie(self._cookie, self._token, httponly=True, samesite="strict", path="/")
            return response
        cookie = request.cookies.get(self._cookie)
        if cookie is None or not self._is_token(cookie):
            return PlainTextResponse("Open the address that deltars console printed: it has the token.", 401)
        return None

    def _is_token(self, text: str) -> bool:
        return secrets.compare_digest(text.encode(), self._token.encode())


def without_token(url: URL) -> str:
    """Return the path and query of an address, without the token."""
    bare = url.remove_query_params(TOKEN)
    # Two slashes at the beginning would be the name of another host.
    return "/" + bare.path.lstrip("/") + (f"?{bare.query}" if bare.query else "")
