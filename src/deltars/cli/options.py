"""Options that every command has."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

from deltars.cli.output import Output, output_for

_DEBUG = "deltars.debug"

F = TypeVar("F", bound=Callable[..., Any])


def with_common_options(command: F) -> F:
    """Add `--catalog`, passed as `catalog`; `--json`, passed as `output`; and `--debug`."""
    return _catalog(with_output_options(command))


def with_output_options(command: F) -> F:
    """Add `--json`, passed as `output`, and `--debug`."""
    return _json(with_debug(command))


def is_debugging(context: click.Context) -> bool:
    return bool(context.meta.get(_DEBUG))


def _choose_output(context: click.Context, parameter: click.Parameter, as_json: bool) -> Output:
    return output_for(as_json=as_json)


def _note_debugging(context: click.Context, parameter: click.Parameter, wanted: bool) -> None:
    if wanted:
        context.meta[_DEBUG] = True


with_debug = click.option(
    "--debug", is_flag=True, expose_value=False, callback=_note_debugging, help="Show the traceback of an error."
)
_json = click.option("--json", "output", is_flag=True, callback=_choose_output, help="Print JSON with every field.")
_catalog = click.option(
    "--catalog",
    metavar="URI|NAME",
    help="A deltasql:// URI, or a name in deltars.toml.  [default: $DELTARS_CATALOG, else ./.deltars/lake.db]",
)
