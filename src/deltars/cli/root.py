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
from deltars.cli.catalogs import cut, init, tables
from deltars.cli.demo import demo
from deltars.cli.doctor import doctor
from deltars.cli.handover import adopt, import_table, rebuild, release
from deltars.cli.migrate import migrate
from deltars.cli.mirror import mirror
from deltars.cli.options import is_debugging, with_debug
from deltars.cli.restore import restore
from deltars.cli.shell_completion import completion
from deltars.cli.sql import sql
from deltars.cli.tables import diff, files, history, properties, rename, show, verify
from deltars.cli.tags import tag, tags, untag
from deltars.cli.transactions import resolve, txn

FAILED, WRONG_USAGE, CONFLICT, BROKEN_PIPE = 1, 2, 3, 128 + 13


def exit_code(error: deltars.DeltarsError) -> int:
    match error:
        case deltars.VersionConflict():
            return CONFLICT
        case deltars.ConfigError():
            return WRONG_USAGE
    return FAILED


def said(error: deltars.DeltarsError) -> str:
    """Return what happened and, on another line, what to do, so that a command in it can be copied."""
    return f"{error.what_and_where}\n{error.hint or ''}".rstrip()


class Program(click.Group):
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
      deltars tables
      deltars history features
    """


for _command in (
    init,
    migrate,
    tables,
    show,
    history,
    files,
    diff,
    cut,
    txn,
    resolve,
    sql,
    properties,
    rename,
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
