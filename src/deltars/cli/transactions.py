"""Commands on one transaction, by its id."""

from __future__ import annotations

from dataclasses import asdict
from uuid import UUID

import click

import deltars
from deltars.cli.options import with_common_options
from deltars.cli.output import Output
from deltars.errors import ValidationError
from deltars.log.stages import STAGES
from deltars.log.transaction_id import as_txn_id


def _as_txn_id(_context: click.Context, _parameter: click.Parameter, text: str) -> UUID:
    try:
        return as_txn_id(text)
    except ValidationError as error:
        raise click.BadParameter(error.message) from None


@click.command
@click.argument("txn_id", metavar="ID", callback=_as_txn_id)
@with_common_options
def txn(txn_id: UUID, catalog: str | None, output: Output) -> None:
    """Show what a transaction changed: its tables, and the files and rows of each; and how long its stages took.

    ID is a UUID, or the text that was given as begin(txn_id=…).

    \b
    Example:
      deltars txn 7d0f2c0e-3f0a-4c9e-9a53-6a3b1a0c9d11
      deltars txn $(deltars history features --limit 1 | cut -f5)
    """
    with deltars.connect(catalog, migrate=False) as opened:
        found = asdict(opened.transaction(txn_id))
    stages = [{"stage": name, "seconds": took, "what": STAGES.get(name)} for name, took in found.pop("stages").items()]
    output.report(found, {"tables": found.pop("tables"), "stages": stages})


@click.command
@click.argument("txn_id", metavar="ID", callback=_as_txn_id)
@with_common_options
def resolve(txn_id: UUID, catalog: str | None, output: Output) -> None:
    """Find out whether a transaction of unknown outcome committed. If it did not, it never can afterwards.

    Use it for a program that got CommitUnknown: after "aborted" the program may safely write again. ID is a UUID, or
    the text that was given as begin(txn_id=…).

    \b
    Example:
      deltars resolve 7d0f2c0e-3f0a-4c9e-9a53-6a3b1a0c9d11
    """
    with deltars.connect(catalog, migrate=False) as opened:
        found = opened.resolve(txn_id)
    versions = {} if found is None else found.versions
    output.report(
        {"txn_id": txn_id, "outcome": "aborted" if found is None else "committed"},
        {"tables": [{"table": name, "version": version} for name, version in sorted(versions.items())]},
    )
