"""`deltars alter`: changes the columns, properties and constraints of a table. Each command is one commit."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from difflib import get_close_matches
from typing import TYPE_CHECKING, TypeAlias

import click

import deltars
from deltars.cli.options import pairs, table_argument, with_common_options
from deltars.cli.output import Output
from deltars.cli.tables import catalog_with

if TYPE_CHECKING:
    Change: TypeAlias = Callable[[deltars.Alter], deltars.ProtocolUpgrade | None]


def _meant(word: str, commands: Iterable[str]) -> bool:
    """Return whether a word is a command or a misspelt one."""
    return bool(get_close_matches(word, commands, n=1, cutoff=0.75))


class Alter(click.Group):
    """Group that also takes the table first, as SQL does: `deltars alter features add-column note STRING`."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if len(args) > 1 and not _meant(args[0], self.commands) and _meant(args[1], self.commands):
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


_first = click.option("--first", is_flag=True, help="Put the column before all others.")
_after = click.option("--after", metavar="COLUMN", help="Put the column after this one.")
_enable_column_mapping = click.option(
    "--enable-column-mapping", is_flag=True, help="Turn column mapping on if the table lacks it; readers must know it."
)


@alter.command("add-column")
@table_argument
@click.argument("name")
@click.argument("type_", metavar="TYPE")
@_first
@_after
@with_common_options
def add_column(
    table: str, name: str, type_: str, first: bool, after: str | None, catalog: str | None, output: Output
) -> None:
    """Add the column NAME at the end, or elsewhere. It is null in existing rows. NAME may be nested: address.zip.

    \b
    Example:
      deltars alter add-column features note STRING
      deltars alter add-column features price 'DECIMAL(10, 2)' --after id
    """
    quoted = name if "`" in name else ".".join(f"`{part}`" for part in name.split("."))
    _change(table, catalog, output, lambda altered: altered.add_columns(f"{quoted} {type_}", first=first, after=after))


@alter.command("rename-column")
@table_argument
@click.argument("column")
@click.argument("name")
@_enable_column_mapping
@with_common_options
def rename_column(
    table: str, column: str, name: str, enable_column_mapping: bool, catalog: str | None, output: Output
) -> None:
    """Rename COLUMN to NAME. Older versions keep the old name. The table needs column mapping.

    \b
    Example:
      deltars alter rename-column features score points --enable-column-mapping
    """
    _change(
        table,
        catalog,
        output,
        lambda altered: altered.rename_column(column, name, enable_column_mapping=enable_column_mapping),
    )


@alter.command("drop-column")
@table_argument
@click.argument("columns", nargs=-1, required=True, metavar="COLUMN...")
@click.option("--if-exists", is_flag=True, help="Ignore columns that do not exist.")
@_enable_column_mapping
@with_common_options
def drop_column(
    table: str,
    columns: tuple[str, ...],
    if_exists: bool,
    enable_column_mapping: bool,
    catalog: str | None,
    output: Output,
) -> None:
    """Drop columns. Older versions keep them. The table needs column mapping.

    \b
    Example:
      deltars alter drop-column features note --enable-column-mapping
    """
    _change(
        table,
        catalog,
        output,
        lambda altered: altered.drop_column(columns, if_exists=if_exists, enable_column_mapping=enable_column_mapping),
    )


@alter.command("move-column")
@table_argument
@click.argument("column")
@_first
@_after
@with_common_options
def move_column(table: str, column: str, first: bool, after: str | None, catalog: str | None, output: Output) -> None:
    """Move COLUMN to another place.

    \b
    Example:
      deltars alter move-column features note --after id
    """
    _change(table, catalog, output, lambda altered: altered.move_column(column, first=first, after=after))


@alter.command("change-type")
@table_argument
@click.argument("column")
@click.argument("type_", metavar="TYPE")
@click.option(
    "--enable-type-widening", is_flag=True, help="Turn type widening on if the table lacks it; readers must know it."
)
@with_common_options
def change_type(
    table: str, column: str, type_: str, enable_type_widening: bool, catalog: str | None, output: Output
) -> None:
    """Change the type of COLUMN to a wider one. The table needs type widening.

    \b
    Example:
      deltars alter change-type features count BIGINT --enable-type-widening
    """
    _change(
        table,
        catalog,
        output,
        lambda altered: altered.change_type(column, type_, enable_type_widening=enable_type_widening),
    )


@alter.command("cluster-by")
@table_argument
@click.argument("columns", nargs=-1, metavar="[COLUMN]...")
@click.option("--none", is_flag=True, help="End the clustering.")
@with_common_options
def cluster_by(table: str, columns: tuple[str, ...], none: bool, catalog: str | None, output: Output) -> None:
    """Set the columns that writes and optimize sort the rows by.

    \b
    Example:
      deltars alter cluster-by features day id
      deltars alter cluster-by features --none
    """
    if none == bool(columns):
        raise click.UsageError("Give columns, or --none.")
    _change(table, catalog, output, lambda altered: altered.cluster_by(columns or None))


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
    _change(table, catalog, output, lambda altered: altered.set_properties(wanted))


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
    _change(table, catalog, output, lambda altered: altered.unset_properties(names))


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
    _change(table, catalog, output, lambda altered: altered.comment(column, text))


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
    _change(table, catalog, output, lambda altered: altered.set_default(column, value))


@alter.command("drop-not-null")
@table_argument
@click.argument("column")
@with_common_options
def drop_not_null(table: str, column: str, catalog: str | None, output: Output) -> None:
    """Allow nulls in COLUMN.

    \b
    Example:
      deltars alter drop-not-null features score
    """
    _change(table, catalog, output, lambda altered: altered.set_nullable(column))


@alter.command("set-not-null")
@table_argument
@click.argument("column")
@with_common_options
def set_not_null(table: str, column: str, catalog: str | None, output: Output) -> None:
    """Forbid nulls in COLUMN. Existing rows are checked first.

    \b
    Example:
      deltars alter set-not-null features id
    """
    _change(table, catalog, output, lambda altered: altered.set_not_null(column))


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
    _change(table, catalog, output, lambda altered: altered.add_constraint(name, condition))


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
    _change(table, catalog, output, lambda altered: altered.drop_constraint(name, if_exists=if_exists))


def _change(table: str, catalog: str | None, output: Output, change: Change) -> None:
    """Change the table. Print its new version, and what an upgrade of the protocol means for readers."""
    with catalog_with(table, catalog) as opened:
        changed = opened.table(table)
        upgrade = change(changed.alter)
        features = {} if upgrade is None else {"features": list(upgrade.features), "readers": upgrade.explanation}
        output.record({"table": changed.name, "version": changed.version, **features})
