"""Options that every command has."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any, TypeVar

import click
from click.shell_completion import CompletionItem

import deltars
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


def table_names(context: click.Context, parameter: click.Parameter, typed: str) -> list[CompletionItem]:
    """Return the tables whose names begin with what was typed."""
    return _completed(context, typed, lambda opened: [table.name for table in opened.tables()])


def namespace_names(context: click.Context, parameter: click.Parameter, typed: str) -> list[CompletionItem]:
    """Return the namespaces whose names begin with what was typed."""
    return _completed(context, typed, lambda opened: opened.namespaces())


def _completed(
    context: click.Context, typed: str, names_in: Callable[[deltars.Catalog], list[str]]
) -> list[CompletionItem]:
    """Return what begins with what was typed. A shell shows nothing if the catalog cannot be read."""
    try:
        with deltars.connect(context.params.get("catalog"), migrate=False) as opened:
            names = names_in(opened)
    except deltars.DeltarsError:
        return []
    return [CompletionItem(name) for name in names if name.lower().startswith(typed.lower())]


table_argument = click.argument("table", shell_complete=table_names)
"""TABLE: a name, an id or a full deltasql:// URI."""
tables_argument = click.argument("tables", nargs=-1, metavar="[TABLE]…", shell_complete=table_names)
all_option = click.option("--all", "every", is_flag=True, help="Every table, as without a TABLE.")


def chosen(tables: Sequence[str], every: bool) -> Sequence[str] | None:
    """Return the tables of a command that means every table, None, if it is given no TABLE."""
    if every and tables:
        raise click.UsageError("Give one TABLE or more, or --all.")
    return tables or None


def pairs(option: str, settings: Iterable[str]) -> dict[str, str]:
    """Return the values of a repeated option NAME=VALUE."""
    found = {}
    for setting in settings:
        name, equals, value = setting.partition("=")
        if not equals or not name:
            raise click.BadParameter(f"{setting!r} is not NAME=VALUE", param_hint=option)
        found[name] = value
    return found


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
