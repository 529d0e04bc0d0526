"""`deltars alter`: changes the columns, properties and constraints of a table. Each command is one commit."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import click

import deltars
from deltars.cli.options import pairs, table_argument, with_common_options
from deltars.cli.output import Output
from deltars.cli.tables import catalog_with
from deltars.verbs_to_come import verb_to_come


class Alter(click.Group):
    """Group that also takes the table first, as SQL does: `deltars alter features add-column note STRING`."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if not any(name in self.commands for name in args[:2]):
            for verb in filter(None, (verb_to_come(name.replace("-", "_")) for name in args[:2])):
                raise deltars.NotSupportedYet(
                    f"deltars cannot {verb.what} yet", hint=f"Today: {verb.command or f'in Python, {verb.today}'}."
                )
        if len(args) > 1 and args[0] not in self.commands and args[1] in self.commands:
            args[:2] = args[1::-1]
        return super().parse_args(ctx, args)


@click.group(cls=Alter)
def alter() -> None:
    """Change columns, properties and constraints of a table, in one commit. The table may come first, as in SQL.

    \b
    Example:
      deltars alter features add-column note STRING
      deltars alter add-constraint features positive 'id > 0'
    """


@alter.command("add-column")
@table_argument
@click.argument("name")
@click.argument("type_", metavar="TYPE")
@with_common_options
def add_column(table: str, name: str, type_: str, catalog: str | None, output: Output) -> None:
    """Add the column NAME at the end. It is null in existing rows.

    \b
    Example:
      deltars alter add-column features note STRING
      deltars alter add-column features price 'DECIMAL(10, 2)'
    """
    quoted = name.replace("`", "``")
    with _altering(table, catalog, output) as altered:
        altered.add_columns(f"`{quoted}` {type_}")


@alter.command("set-property")
@table_argument
@click.argument("settings", nargs=-1, required=True, metavar="NAME=VALUE...")
@with_common_options
def set_property(table: str, settings: tuple[str, ...], catalog: str | None, output: Output) -> None:
    """Set properties.

    \b
    Example:
      deltars alter set-property features delta.appendOnly=true owner=ada
    """
    wanted = pairs("NAME=VALUE", settings)
    with _altering(table, catalog, output) as altered:
        altered.set_properties(wanted)


@alter.command("unset-property")
@table_argument
@click.argument("names", nargs=-1, required=True, metavar="NAME...")
@with_common_options
def unset_property(table: str, names: tuple[str, ...], catalog: str | None, output: Output) -> None:
    """Remove properties. Names that are not set are ignored.

    \b
    Example:
      deltars alter unset-property features owner
    """
    with _altering(table, catalog, output) as altered:
        altered.unset_properties(names)


@alter.command
@table_argument
@click.argument("column")
@click.argument("text", required=False)
@with_common_options
def comment(table: str, column: str, text: str | None, catalog: str | None, output: Output) -> None:
    """Set the comment of COLUMN. Without TEXT, remove it.

    \b
    Example:
      deltars alter comment features score 'between 0 and 1'
    """
    with _altering(table, catalog, output) as altered:
        altered.comment(column, text)


@alter.command("set-default")
@table_argument
@click.argument("column")
@click.argument("value", required=False)
@with_common_options
def set_default(table: str, column: str, value: str | None, catalog: str | None, output: Output) -> None:
    """Set the default of COLUMN for future rows that lack it, as SQL. Without VALUE, remove it.

    \b
    Example:
      deltars alter set-default features score 0.5
      deltars alter set-default features name "'unknown'"
    """
    with _altering(table, catalog, output) as altered:
        altered.set_default(column, value)


@alter.command("drop-not-null")
@table_argument
@click.argument("column")
@with_common_options
def drop_not_null(table: str, column: str, catalog: str | None, output: Output) -> None:
    """Allow nulls in COLUMN. To forbid them, add a constraint.

    \b
    Example:
      deltars alter drop-not-null features score
    """
    with _altering(table, catalog, output) as altered:
        altered.set_nullable(column)


@alter.command("add-constraint")
@table_argument
@click.argument("name")
@click.argument("condition")
@with_common_options
def add_constraint(table: str, name: str, condition: str, catalog: str | None, output: Output) -> None:
    """Add a constraint that every row must fulfil. Existing rows are checked first.

    \b
    Example:
      deltars alter add-constraint features positive 'id > 0'
    """
    with _altering(table, catalog, output) as altered:
        altered.add_constraint(name, condition)


@alter.command("drop-constraint")
@table_argument
@click.argument("name")
@click.option("--if-exists", is_flag=True, help="Do nothing if there is no such constraint.")
@with_common_options
def drop_constraint(table: str, name: str, if_exists: bool, catalog: str | None, output: Output) -> None:
    """Drop the constraint NAME.

    \b
    Example:
      deltars alter drop-constraint features positive
    """
    with _altering(table, catalog, output) as altered:
        altered.drop_constraint(name, if_exists=if_exists)


@contextmanager
def _altering(table: str, catalog: str | None, output: Output) -> Iterator[deltars.Alter]:
    """Yield the calls that alter the table. Then print its new version."""
    with catalog_with(table, catalog) as opened:
        changed = opened.table(table)
        yield changed.alter
        output.record({"table": changed.name, "version": changed.version})
