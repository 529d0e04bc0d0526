"""Options that every command has."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

import click

from deltars.cli.output import Output, output_for

_DEBUG = "deltars.debug"

F = TypeVar("F", bound=Callable[..., Any])


def with_common_options(command: F) -> F:
    """Add `--catalog`, passed as `catalog`; `--json`, passed as `output`; `--verbose` and `--debug`."""
    return _catalog(with_output_options(command))


def with_output_options(command: F) -> F:
    """Add `--json`, passed as `output`, `--verbose` and `--debug`."""
    return _json(_verbose(with_debug(command)))


def is_debugging(context: click.Context) -> bool:
    return bool(context.meta.get(_DEBUG))


def _choose_output(context: click.Context, parameter: click.Parameter, as_json: bool) -> Output:
    return output_for(as_json=as_json)


def _note_debugging(context: click.Context, parameter: click.Parameter, wanted: bool) -> None:
    if wanted:
        context.meta[_DEBUG] = True


def _log_to_stderr(context: click.Context, parameter: click.Parameter, wanted: bool) -> None:
    """Show the log of this command, also Alembic's: without this option, only warnings are shown."""
    if not wanted:
        return
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(logging.Formatter("%(message)s"))
    handler.addFilter(lambda record: not record.name.startswith("deltars.store.backends.pool"))
    for name in ("deltars", "alembic"):
        logger = logging.getLogger(name)
        level = logger.level
        logger.addHandler(handler)
        logger.setLevel(logging.INFO)
        # Another command of this process may want none.
        context.call_on_close(partial(logger.setLevel, level))
        context.call_on_close(partial(logger.removeHandler, handler))


with_debug = click.option(
    "--debug", is_flag=True, expose_value=False, callback=_note_debugging, help="Show the traceback of an error."
)
_json = click.option("--json", "output", is_flag=True, callback=_choose_output, help="Print JSON with every field.")
_verbose = click.option(
    "-v", "--verbose", is_flag=True, expose_value=False, callback=_log_to_stderr, help="Say on stderr what is done."
)
with_format = click.option(
    "--format",
    "form",
    type=click.Choice(["table", "csv", "json"]),
    help="Form of the rows.  [default: table on a terminal, else csv with a header]",
)
_catalog = click.option(
    "--catalog",
    metavar="URI|NAME",
    help="A deltasql:// URI, or a name in deltars.toml.  [default: $DELTARS_CATALOG, else ./.deltars/lake.db]",
)
