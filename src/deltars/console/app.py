"""The application: an address for each page, and beside it its JSON.

    /  /transactions  /transaction/ID  /table?name=NAME  /cuts  /conflicts  /mirror  /streams  /maintenance
    the same with .json                                                     the same values, for programs
    /transactions/lanes                                                     the drawing alone, for zooming

A page runs in a thread of its own, so a slow one does not keep the others; one that takes too long is given up.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Collection, Mapping
from dataclasses import asdict, is_dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

import anyio
import anyio.to_thread
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles

from deltars.catalog import Catalog
from deltars.catalog.charts import size_text
from deltars.console.model import OUTCOMES, ConsoleModel, LaneFilter, Swimlanes
from deltars.console.security import Guard
from deltars.errors import DatabaseError, DeltarsError, TableNotFound, TimeoutError, TransactionNotFound
from deltars.log.moments import to_microseconds
from deltars.log.stages import STAGES, before_publication

_HERE = Path(__file__).parent
MOST_PAGES = 1_000_000
PATIENCE_S = 20.0
"""Longest that a browser waits for a page."""
AROUND_US = 600_000_000
_SAFE = 2**53
"""Integers from here on lose digits in JavaScript."""

Model = Callable[[ConsoleModel, Request], Any]
Endpoint = Callable[[Request], Awaitable[Response]]


def create_app(catalog: Catalog, *, token: str, hosts: Collection[str]) -> Starlette:
    """Return the application for one catalog. `hosts` are the names and ports under which it may be opened."""
    pages = _Pages(ConsoleModel(catalog), catalog.uri)
    routes = [
        *pages.routes("/", "overview", lambda model, _: model.overview()),
        *pages.routes("/transactions", "transactions", _swimlanes),
        Route("/transactions/lanes", pages.page("lanes", _swimlanes)),
        *pages.routes("/transaction/{txn_id}", "transaction", _transaction),
        # A name may hold anything, so it is no part of the path.
        *pages.routes("/table", "table", lambda model, request: model.table(request.query_params.get("name", ""))),
        *pages.routes("/cuts", "cuts", _cuts),
        *pages.routes("/conflicts", "conflicts", _conflicts),
        *pages.routes("/mirror", "mirror", lambda model, _: model.mirror()),
        *pages.routes("/streams", "streams", lambda model, _: model.streams()),
        *pages.routes("/maintenance", "maintenance", lambda model, _: model.maintenance()),
        Mount("/static", StaticFiles(directory=_HERE / "static")),
    ]
    return Starlette(
        routes=routes,
        middleware=[Middleware(Guard, token=token, hosts=hosts)],
        exception_handlers={HTTPException: pages.not_found, Exception: pages.broken},
    )


class _Pages:
    def __init__(self, model: ConsoleModel, uri: str) -> None:
        self._model = model
        self._environment = Environment(
            loader=FileSystemLoader(_HERE / "templates"),
            autoescape=True,
            undefined=StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
        )
        self._environment.filters.update(
            when=_when,
            size=_size,
            count=_count,
            gained=_gained,
            seconds=_seconds,
            part=_part,
            before_publication=before_publication,
        )
        self._environment.globals.update(uri=uri, window=_query, around_query=_around, STAGES=STAGES)

    def routes(self, path: str, template: str, model: Model) -> list[Route]:
        as_json = "/overview.json" if path == "/" else f"{path}.json"
        # The JSON first: the id of a transaction would take its address too.
        return [Route(as_json, self.values(model)), Route(path, self.page(template, model))]

    def page(self, template: str, model: Model) -> Endpoint:
        async def respond(request: Request) -> Response:
            try:
                return self._html(template, await self._found(model, request))
            except DeltarsError as error:
                return self._html("error", {"error": error}, _status(error))

        return respond

    def values(self, model: Model) -> Endpoint:
        async def respond(request: Request) -> Response:
            try:
                return _json(await self._found(model, request))
            except DeltarsError as error:
                return _json({"error": error.message, "hint": error.hint}, _status(error))

        return respond

    async def _found(self, model: Model, request: Request) -> Any:
        """Return what a page shows. The database ends a statement that takes too long, and with it the thread."""
        with anyio.move_on_after(PATIENCE_S):
            return await anyio.to_thread.run_sync(model, self._model, request, abandon_on_cancel=True)
        raise TimeoutError(
            f"the page was not ready after {PATIENCE_S:g} s", hint="Choose fewer tables or a shorter window of time."
        )

    def not_found(self, _request: Request, error: Exception) -> Response:
        status = error.status_code if isinstance(error, HTTPException) else 500
        return self._html(
            "error", {"error": DeltarsError("there is no such page", hint="Start at the overview.")}, status
        )

    def broken(self, _request: Request, error: Exception) -> Response:
        # The text of a foreign exception may hold anything: it goes to the log, not to the page.
        shown = DatabaseError("the page could not be made", hint="The log of deltars console says why.")
        return self._html("error", {"error": shown}, 500)

    def _html(self, template: str, found: Any, status: int = 200) -> HTMLResponse:
        values = found if isinstance(found, Mapping) else {"page": found}
        return HTMLResponse(self._environment.get_template(f"{template}.html").render(values), status)


def _swimlanes(model: ConsoleModel, request: Request) -> Swimlanes:
    given = request.query_params
    return model.swimlanes(
        LaneFilter(
            _whole(given.get("from")),
            _whole(given.get("to")),
            given.get("table") or None,
            given.get("operation") or None,
            given.get("committer") or None,
            outcome if (outcome := given.get("outcome")) in OUTCOMES else None,
            _page(request),
        )
    )


def _conflicts(model: ConsoleModel, request: Request) -> dict[str, Any]:
    return model.conflicts(_page(request))


def _page(request: Request) -> int:
    return min(max(0, _whole(request.query_params.get("page")) or 0), MOST_PAGES)


def _transaction(model: ConsoleModel, request: Request) -> dict[str, Any]:
    return model.transaction(request.path_params["txn_id"])


def _cuts(model: ConsoleModel, request: Request) -> dict[str, Any]:
    return model.cuts(request.query_params.get("before"), request.query_params.get("after"))


def _whole(text: str | None) -> int | None:
    """Return the number in a query; None if there is none, or one that no database has."""
    try:
        number = int(text or "")
    except ValueError:
        return None
    return number if abs(number) < 2**62 else None


def _status(error: DeltarsError) -> int:
    if isinstance(error, TableNotFound | TransactionNotFound):
        return 404
    return 503 if isinstance(error, DatabaseError | TimeoutError) else 400


def _json(found: Any, status: int = 200) -> Response:
    text = json.dumps(_plain(found), ensure_ascii=False, indent=2, allow_nan=False)
    return Response(text, status, media_type="application/json")


def _plain(value: Any) -> Any:
    """Return a value that JSON has: ids and times as text, and integers that JavaScript would round."""
    if is_dataclass(value) and not isinstance(value, type):
        value = asdict(value)
    match value:
        case None | bool() | float():
            return value
        case int():
            return value if abs(value) < _SAFE else str(value)
        case Mapping():
            return {str(name): _plain(each) for name, each in value.items()}
        case list() | tuple() | set() | frozenset():
            return [_plain(each) for each in value]
        case datetime():
            return value.isoformat()
    return str(value)


# -- filters of the templates --------------------------------------------------------------------------------------


def _when(moment: datetime | None) -> str:
    return "–" if moment is None else moment.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def _size(size_bytes: int | None) -> str:
    return "–" if size_bytes is None else size_text(size_bytes)


def _count(number: int | None) -> str:
    return "–" if number is None else f"{number:,}"


def _gained(added: int, removed: int) -> str:
    return f"+{added:,}" + (f" −{removed:,}" if removed else "")


def _seconds(seconds: float | None) -> str:
    if seconds is None:
        return "–"
    if seconds < 0.1:
        return f"{seconds * 1000:.1f} ms"
    for limit, unit, name in ((1, 0.001, "ms"), (120, 1, "s"), (7200, 60, "min"), (172800, 3600, "h")):
        if seconds < limit:
            return f"{seconds / unit:.0f} {name}"
    return f"{seconds / 86400:.0f} days"


def _part(name: object) -> str:
    """Return a name as a part of an address."""
    return quote(str(name), safe="")


def _around(moment: datetime) -> str:
    """Return the query of the minutes around a moment."""
    us = to_microseconds(moment)
    return _query(LaneFilter(us - AROUND_US, us + AROUND_US))


def _query(wanted: LaneFilter) -> str:
    """Return the query of a window of the swimlanes."""
    given = {
        "from": wanted.from_us,
        "to": wanted.to_us,
        "table": wanted.table,
        "operation": wanted.operation,
        "committer": wanted.committer,
        "outcome": wanted.outcome,
        "page": wanted.page or None,
    }
    return urlencode({name: value for name, value in given.items() if value is not None})
