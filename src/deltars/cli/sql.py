"""`deltars sql`: a query over tables of the catalog, run by a Spark of the command's own."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain, count

import click

import deltars
from deltars.cli.options import with_common_options
from deltars.cli.output import Output, rows_of
from deltars.cli.progress import working

SCREEN_ROWS = 1_000
"""How many rows a terminal gets unless it asks for more."""


@click.command
@click.argument("query")
@click.option("--as-of", metavar="TXN|TIME", help="Every table as it was then: after a transaction, or at a time.")
@click.option(
    "--limit",
    type=click.IntRange(min=1),
    metavar="N",
    help=f"At most N rows.  [default: all of them; on a terminal {SCREEN_ROWS:,}]",
)
@with_common_options
def sql(query: str, as_of: str | None, limit: int | None, catalog: str | None, output: Output) -> None:
    """Answer QUERY, one SELECT over tables of the catalog, all of them at one moment.

    Needs Java and pyspark: it starts a Spark for the query, which takes a few seconds. A pipe, a file and --json get
    every row; a terminal gets the first ones, and how many are left out.

    \b
    Example:
      deltars sql "SELECT day, count(*) AS n FROM features JOIN labels USING (id) GROUP BY day"
      deltars sql "SELECT * FROM features" --as-of 2026-01-31T12:00:00Z > features.tsv
    """
    try:
        # Late: help must load nothing heavy, and pyspark is an extra.
        from deltars.doctor import require_java
        from deltars.spark.local_session import local_spark
        from deltars.spark.read.stream import batches_of
    except ModuleNotFoundError as error:
        raise deltars.ConfigError(
            f"a query needs {error.name}, which is not installed", hint="pip install 'deltars[spark]'"
        ) from error
    require_java()
    with deltars.connect(catalog, migrate=False) as opened, local_spark("deltars sql") as spark:
        with working("Asking"):
            frame = opened.sql(query, as_of=as_of, spark=spark)
            names = _distinct(frame.columns)
            frame = frame.toDF(*names)
            cut = SCREEN_ROWS if limit is None and output.is_for_people else None
            # One more than is shown tells whether there are more.
            wanted = cut + 1 if cut is not None else limit
            batches = iter(batches_of(frame if wanted is None else frame.limit(wanted)))
            first = next(batches, None)
        rows = rows_of(chain([] if first is None else [first], batches))
        if cut is not None:
            found = list(rows)
            with working("Counting"):
                left_out = frame.count() - cut if len(found) > cut else 0
            rows = iter(found[:cut])
        output.records(rows, columns=names, none="No rows.")
        if cut is not None and left_out:
            click.echo(f"{left_out:,} more rows are left out: --limit {cut + left_out} shows them all.", err=True)


def _distinct(names: Sequence[str]) -> list[str]:
    """A query may call two columns alike; a record may not."""
    distinct: list[str] = []
    for at, name in enumerate(names):
        taken = {*distinct, *names[at + 1 :]} if name in distinct else set()
        numbered = (f"{name}_{number}" for number in count(2))
        distinct.append(next(other for other in numbered if other not in taken) if taken else name)
    return distinct
