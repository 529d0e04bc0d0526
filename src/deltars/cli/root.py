"""The command `deltars`: its subcommands, and its exit codes for errors.

| exit code | means                                                        |
|-----------|--------------------------------------------------------------|
| 0         | success                                                      |
| 1         | failed                                                       |
| 2         | the command line, a URI or a setting is wrong                |
| 3         | another transaction came first (`VersionConflict`); retry    |
| 141       | the reader of a pipe closed it, as `head` does               |
"""

from __future__ import annotations

import os
import sys
import traceback
from typing import Any

import click

import deltars
from deltars.cli.hints import said
from deltars.cli.late_commands import LateCommands
from deltars.cli.options import is_debugging, with_debug
from deltars.cli.start import own_process
from deltars.verbs_to_come import verb_to_come

FAILED, WRONG_USAGE, CONFLICT, BROKEN_PIPE = 1, 2, 3, 128 + 13


def exit_code(error: deltars.DeltarsError) -> int:
    match error:
        case deltars.VersionConflict():
            return CONFLICT
        case deltars.ConfigError() | deltars.NotSupportedYet():
            return WRONG_USAGE
    return FAILED


SYNONYMS = {
    "query": "sql",
    "select": "sql",
    "describe": "show",
    "desc": "show",
    "detail": "show",
    "schema": "show",
    "info": "show",
    "list": "tables",
    "schemas": "namespaces",
    "databases": "namespaces",
    "ls": "tables",
    "log": "history",
    "cat": "head",
    "preview": "head",
    "sample": "head",
    "insert": "load",
    "append": "load",
    "write": "load",
    "copy-into": "load",
    "ingest": "load",
    "remove": "drop",
    "rm": "drop",
    "mv": "rename",
    "register": "import",
    "set": "properties",
    "check": "verify",
    "fsck": "verify",
    "upgrade": "migrate up",
    "snapshot": "cut",
    "advice": "advise",
    "maintenance": "maintain",
    "optimise": "optimize",
    "compact": "optimize",
    "count": "sql",
    "zorder": "optimize",
    "cdf": "changes",
    "feed": "changes",
    "follow": "tail",
    "stream": "tail",
    "watch": "tail",
}
"""What people type for commands that are named otherwise."""


_MERGE = (
    'tx.merge(table, rows, on="t.id = s.id").when_matched_update_all().when_not_matched_insert_all().execute()'
    " (docs/changing-rows.md#merge)"
)
ONLY_IN_PYTHON = {
    "merge": _MERGE,
    "upsert": _MERGE,
    "purge": "table.purge()",
    "apply-changes": "tx.apply_changes(table, events, keys=…, sequence_by=…)",
}
"""What changes rows and has no command."""


_OTHER_OPTIONS = {
    ("expire", "--retention"): "Write --older-than '30 days'.",
    ("purge-dropped", "--retention"): "Write --older-than '30 days'.",
    ("vacuum", "--older-than"): "Write --retention '7 days'.",
    ("cut", "--as-of"): "Write the moment by itself: deltars cut MOMENT.",
}
"""What to write for an option that people know from another command."""

_EXTRA_ARGUMENTS = {
    "create": "Write --schema DDL.",
    "delete": "Write --where CONDITION.",
    "head": "Write --where CONDITION, or -n N.",
    "restore": "Write --version N, --timestamp TIME or --as-of TAG.",
    "sql": "Put the query in quotes.",
    "update": "Write --set COLUMN=EXPRESSION --where CONDITION.",
}
"""What to write in place of an argument that a command does not take."""


class Program(click.Group):
    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        own_process()
        return super().__call__(*args, **kwargs)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        try:
            return super().parse_args(ctx, args)
        except click.NoSuchOption as error:
            if error.option_name not in ("--catalog", "--json", "--verbose", "--debug"):
                raise
            raise click.UsageError(
                f"{error.option_name} comes after the command: deltars COMMAND {error.option_name} …", error.ctx
            ) from None

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = args[0].lower()
        if args[0] not in self.commands and not ctx.resilient_parsing:
            verb = verb_to_come(name.replace("-", "_"))
            if verb is not None:
                today = verb.command or f"in Python, {verb.today}"
                raise deltars.NotSupportedYet(f"deltars cannot {verb.what} yet", hint=f"Today: {today}.")
            if name in ONLY_IN_PYTHON:
                raise deltars.NotSupportedYet(f"there is no command {name}", hint=f"In Python: {ONLY_IN_PYTHON[name]}.")
            if name in SYNONYMS:
                raise click.UsageError(f"No such command '{args[0]}'. Did you mean 'deltars {SYNONYMS[name]}'?", ctx)
        return super().resolve_command(ctx, args)

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except click.NoSuchOption as error:
            if error.option_name in ("--format", "--output"):
                raise click.UsageError(f"{error.message} Did you mean '--json'?", error.ctx) from None
            instead = _OTHER_OPTIONS.get((str(error.ctx and error.ctx.info_name), error.option_name))
            if instead is not None:
                raise click.UsageError(f"No such option: {error.option_name}. {instead}", error.ctx) from None
            raise
        except click.UsageError as error:
            instead = _EXTRA_ARGUMENTS.get(str(error.ctx and error.ctx.info_name))
            if instead is not None and error.message.startswith("Got unexpected extra argument"):
                raise click.UsageError(f"{error.message}. {instead}", error.ctx) from None
            raise
        except deltars.DeltarsError as error:
            if is_debugging(ctx):
                click.echo(traceback.format_exc(), err=True)
            click.echo(f"Error: {said(error)}", err=True)
            ctx.exit(exit_code(error))
        except BrokenPipeError:
            # Discard the buffer: Python would report an error when it flushes the buffer at exit.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            ctx.exit(BROKEN_PIPE)


COMMANDS = LateCommands(
    {
        "alter": ("alter",),
        "catalogs": ("cut", "init", "namespaces", "tables"),
        "changes": ("delete", "update"),
        "console": ("conflicts", "console", "lineage"),
        "demo": ("demo",),
        "doctor": ("doctor",),
        "expire": ("expire", "purge-dropped"),
        "feed": ("changes",),
        "handover": ("adopt", "import", "rebuild", "release"),
        "maintain": ("advise", "maintain"),
        "migrate": ("migrate",),
        "mirror": ("mirror",),
        "optimize": ("optimize",),
        "restore": ("restore",),
        "shell_completion": ("completion",),
        "sql": ("sql",),
        "tables": ("diff", "files", "head", "history", "properties", "rename", "show", "verify"),
        "tags": ("tag", "tags", "untag"),
        "tail": ("tail",),
        "transactions": ("resolve", "txn"),
        "vacuum": ("vacuum",),
        "writing": ("create", "drop", "load"),
    }
)
"""Every command, by the module that has it."""


@click.group(
    cls=Program, commands=COMMANDS, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 120}
)
@click.version_option(deltars.__version__, prog_name="deltars")
@with_debug
def main() -> None:
    """Delta Lake with its transaction log in a SQL database: one commit for any number of tables.

    \b
    Example:
      deltars init --warehouse /data/lake
      deltars load features features.parquet --create
      deltars sql "SELECT count(*) FROM features"
    """
