"""Commands on tags: named moments of a whole catalog."""

from __future__ import annotations

from dataclasses import asdict

import click

import deltars
from deltars.cli.options import with_common_options
from deltars.cli.output import Output, Record


@click.command
@click.argument("name")
@click.option("--as-of", metavar="TAG|TRANSACTION|TIME", help="The moment to name.  [default: now]")
@click.option("--description", metavar="TEXT", help="What the tag is for.")
@with_common_options
def tag(name: str, as_of: str | None, description: str | None, catalog: str | None, output: Output) -> None:
    """Name a moment of the whole catalog. NAME then works wherever a moment does: cut, restore, read(as_of=…).

    \b
    Example:
      deltars tag q3-training --description "what model 17 was trained on"
      deltars tag before-the-load --as-of 2026-01-31T12:00:00Z
    """
    with deltars.connect(catalog, migrate=False) as opened:
        output.record(_shown(opened.tag(name, as_of, description=description)))


@click.command
@with_common_options
def tags(catalog: str | None, output: Output) -> None:
    """List the tags of a catalog by name.

    \b
    Example:
      deltars tags
      deltars tags --json | jq -r '.[].name'
    """
    with deltars.connect(catalog, migrate=False) as opened:
        output.records(
            [_shown(one) for one in opened.tags()],
            columns=("name", "as_of", "created_at", "description"),
            none=f"{opened.uri} has no tags yet.",
        )


@click.command
@click.argument("name")
@with_common_options
def untag(name: str, catalog: str | None, output: Output) -> None:
    """Remove a tag. The tables stay as they are; what only the tag kept may be deleted later.

    \b
    Example:
      deltars untag q3-training
    """
    with deltars.connect(catalog, migrate=False) as opened:
        output.record(_shown(opened.untag(name)))


def _shown(tag: deltars.Tag) -> Record:
    return {**asdict(tag), "as_of": tag.as_of}
