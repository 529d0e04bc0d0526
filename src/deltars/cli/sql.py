"""`deltars sql`: a query over tables of the catalog, run by a Spark of the command's own."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import click

import deltars
from deltars.cli.options import with_common_options
from deltars.cli.output import Output
from deltars.cli.progress import working


@click.command
@click.argument("query")
@click.option("--as-of", metavar="TXN|TIME", help="Every table as it was then: after a transaction, or at a time.")
@click.option(
    "--limit", type=click.IntRange(min=1), default=1_000, metavar="N", help="At most N rows.  [default: 1000]"
)
@with_common_options
def sql(query: str, as_of: str | None, limit: int, catalog: str | None, output: Output) -> None:
    """Answer QUERY, one SELECT over tables of the catalog, all of them at one moment.

    Needs Java and pyspark: it starts a Spark for the query, which takes a few seconds.

    \b
    Example:
      deltars sql "SELECT day, count(*) AS n FROM features JOIN labels USING (id) GROUP BY day"
      deltars sql "SELECT * FROM features" --as-of 2026-01-31T12:00:00Z --json
    """
    try:
        # Late: help must load nothing heavy, and pyspark is an extra.
        from deltars.doctor import require_java
        from deltars.spark.local import local_spark
    except ModuleNotFoundError as error:
        raise deltars.ConfigError(
            f"a query needs {error.name}, which is not installed", hint="pip install 'deltars[spark]'"
        ) from error
    require_java()
    with deltars.connect(catalog, migrate=False) as opened, local_spark("deltars sql") as spark, working("Asking"):
        rows = opened.sql(query, as_of=as_of, spark=spark).limit(limit).toArrow()
    names = _distinct(rows.column_names)
    output.records(rows.rename_columns(names).to_pylist(), columns=names, none="No rows.")


def _distinct(names: Sequence[str]) -> list[str]:
    """A query may call two columns alike; a record may not."""
    times: Counter[str] = Counter()
    distinct = []
    for name in names:
        times[name] += 1
        distinct.append(name if times[name] == 1 else f"{name}_{times[name]}")
    return distinct
