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
from deltars.cli.alter import alter
from deltars.cli.catalogs import cut, init, tables
from deltars.cli.changes import delete, update
from deltars.cli.demo import demo
from deltars.cli.doctor import doctor
from deltars.cli.handover import adopt, import_table, rebuild, release
from deltars.cli.hints import in_commands
from deltars.cli.migrate import migrate
from deltars.cli.mirror import mirror
from deltars.cli.options import is_debugging, with_debug
from deltars.cli.restore import restore
from deltars.cli.shell_completion import completion
from deltars.cli.sql import sql
from deltars.cli.tables import diff, files, head, history, properties, rename, show, verify
from deltars.cli.tags import tag, tags, untag
from deltars.cli.transactions import resolve, txn
from deltars.cli.writing import create, drop, load
from deltars.verbs_to_come import verb_to_come

FAILED, WRONG_USAGE, CONFLICT, BROKEN_PIPE = 1, 2, 3, 128 + 13


def exit_code(error: deltars.DeltarsError) -> int:
    match error:
        case deltars.VersionConflict():
            return CONFLICT
        case deltars.ConfigError() | deltars.NotSupportedYet():
            return WRONG_USAGE
    return FAILED


def said(error: deltars.DeltarsError) -> str:
    """Return what happened and, on another line, what to do, so that a command in it can be copied."""
    # A message that ends with a pointer into a text says where by itself.
    what = error.message if "\n" in error.message else error.what_and_where
    hint = error.hint or ""
    # A verb to come names commands where there are any, and else Python on purpose.
    return f"{what}\n{hint if isinstance(error, deltars.NotSupportedYet) else in_commands(hint)}".rstrip()


SYNONYMS = {
    "query": "sql",
    "select": "sql",
    "describe": "show",
    "desc": "show",
    "detail": "show",
    "schema": "show",
    "info": "show",
    "list": "tables",
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


class Program(click.Group):
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
        except deltars.DeltarsError as error:
            if is_debugging(ctx):
                click.echo(traceback.format_exc(), err=True)
            click.echo(f"Error: {said(error)}", err=True)
            ctx.exit(exit_code(error))
        except BrokenPipeError:
            # Discard the buffer: Python would report an error when it flushes the buffer at exit.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            ctx.exit(BROKEN_PIPE)


@click.group(cls=Program, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 120})
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


for _command in (
    init,
    migrate,
    tables,
    create,
    load,
    head,
    sql,
    show,
    history,
    files,
    diff,
    cut,
    txn,
    resolve,
    delete,
    update,
    alter,
    properties,
    rename,
    drop,
    restore,
    tag,
    tags,
    untag,
    verify,
    mirror,
    import_table,
    release,
    adopt,
    rebuild,
    doctor,
    demo,
    completion,
):
    main.add_command(_command)
