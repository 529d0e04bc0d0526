"""`deltars sql`: runs statements on tables of the catalog.

one query ──▶ DuckDB, if it is installed and gives the same rows as Spark ──┐
          └─▶ Spark, for everything else ───────────────────────────────────┴──▶ Arrow batches ──▶ output
a script, a change ──▶ `StatementRun`, statement by statement ──▶ output of each
nothing, on a terminal ──▶ `cli/prompt.py`
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from importlib.util import find_spec
from itertools import chain, count
from typing import TYPE_CHECKING, NamedTuple, TextIO

import click

import deltars
from deltars.cli.options import with_common_options, with_format
from deltars.cli.output import Output, rows_of, rows_output
from deltars.cli.progress import working
from deltars.cli.start import keep_pandas_out

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

    from deltars.catalog import Catalog, CatalogSnapshot
    from deltars.predicate import Query
    from deltars.transaction import Engine
    from deltars.transaction.duckdb_query import DuckDBQuery

SCREEN_ROWS = 1_000
"""How many rows a terminal shows without --limit."""

_log = logging.getLogger(__name__)


class Result(NamedTuple):
    """Rows of a query, up to a limit. `count_all` counts them without it."""

    names: list[str]
    batches: Iterator[pa.RecordBatch]
    count_all: Callable[[], int]


@click.command
@click.argument("query", required=False)
@click.option(
    "-f", "--file", type=click.File(), metavar="FILE", help="Read the query from a file; - is standard input."
)
@click.option(
    "--engine",
    type=click.Choice(["auto", "duckdb", "spark"]),
    default="auto",
    show_default=True,
    help="auto: DuckDB where its rows are the same as Spark's, else Spark.",
)
@click.option(
    "--as-of", metavar="TAG|TXN|TIME", help="Read every table as it was at a tag, after a transaction, or at a time."
)
@click.option(
    "--limit",
    type=click.IntRange(min=1),
    metavar="N",
    help=f"Print at most N rows.  [default: all rows; on a terminal {SCREEN_ROWS:,}]",
)
@with_format
@with_common_options
def sql(
    query: str | None,
    file: TextIO | None,
    engine: str,
    as_of: str | None,
    limit: int | None,
    form: str | None,
    catalog: str | None,
    output: Output,
) -> None:
    """Run QUERY: a SELECT, a change, or statements separated by semicolons. - reads standard input.

    Without a QUERY, a terminal gets a prompt. Statements are in Spark's SQL. A SELECT reads all its tables as of the
    same moment. BEGIN; …; COMMIT, and BEGIN ATOMIC … END, are one transaction over all tables in between.

    DuckDB runs a query at once if it is installed and its rows are the same as Spark's. For what only Spark can do, a
    local Spark is started, which needs Java and pyspark and takes a few seconds. -v says which one runs. Times are in
    UTC. A pipe, a file, csv and json get every row. A terminal shows the first rows, and how many are left out.

    \b
    Example:
      deltars sql "SELECT day, count(*) AS n FROM features JOIN labels USING (id) GROUP BY day"
      deltars sql "SELECT * FROM features" --as-of 2026-01-31T12:00:00Z > features.csv
      deltars sql "DELETE FROM features WHERE day < '2026-01-01'"
      deltars sql -f nightly.sql
    """
    output = rows_output(output, form)
    if query is None and file is None and sys.stdin.isatty():
        with ExitStack() as opened:
            found = opened.enter_context(deltars.connect(catalog, migrate=False))
            _prompt(opened, found, engine, output)
        return
    text = _text(query, file)
    with ExitStack() as opened:
        found = opened.enter_context(deltars.connect(catalog, migrate=False))
        if not _is_query(text):
            _refuse_options(as_of, limit)
            _script(opened, found, text, engine, output)
            return
        cut = SCREEN_ROWS if limit is None and output.is_for_people else None
        # Fetch one row more than is shown, to know whether there are more.
        wanted = cut + 1 if cut is not None else limit
        result = _result(opened, found, text, engine, as_of, wanted)
        rows = rows_of(batch.rename_columns(result.names) for batch in result.batches)
        left_out = 0
        if cut is not None:
            shown = list(rows)
            if len(shown) > cut:
                with working("Counting"):
                    left_out = result.count_all() - cut
            rows = iter(shown[:cut])
        output.records(rows, columns=result.names, none="No rows.")
        if cut is not None and left_out:
            click.echo(f"{left_out:,} more rows are left out: --limit {cut + left_out} shows them all.", err=True)


def _is_query(text: str) -> bool:
    """Return whether the text is one query. A syntax error is raised here."""
    from deltars.predicate.statements.parser import parse_script
    from deltars.predicate.statements.tree import Select

    statements = parse_script(text)
    return len(statements) == 1 and isinstance(statements[0].action, Select)


def _refuse_options(as_of: str | None, limit: int | None) -> None:
    for option, value in (("--as-of", as_of), ("--limit", limit)):
        if value is not None:
            raise click.UsageError(f"{option} goes with one SELECT.")


def _script(opened: ExitStack, catalog: Catalog, text: str, engine: str, output: Output) -> None:
    """Run the statements of a script, and print the rows of each before the next one runs."""
    from deltars.catalog.statements import StatementRun
    from deltars.predicate.statements.parser import parse_script

    statements = parse_script(text)
    run = StatementRun(catalog, text, None, _engine(opened, engine))
    opened.callback(run.close)
    for statement in statements:
        with working("Running the statement"):
            rows = run.run(statement).to_arrow(SCREEN_ROWS + 1 if output.is_for_people else None)
        print_rows(output, rows)


def _prompt(opened: ExitStack, catalog: Catalog, engine: str, output: Output) -> None:
    from deltars.cli.prompt import Prompt

    Prompt(catalog, _engine(opened, engine), output).run()


def _engine(opened: ExitStack, engine: str) -> Engine:
    """Return who runs the queries in statements. Spark is started when it is needed, and stopped at the end."""
    from deltars.transaction import Engine

    if engine == "spark":
        return Engine(_started_spark(opened), prefers_spark=True)
    can_start = engine == "auto" and _has_spark()
    return Engine(start=(lambda: _started_spark(opened)) if can_start else None)


def print_rows(output: Output, rows: pa.Table) -> None:
    """Print the rows of a statement. One that returns no columns prints that it is done, on a terminal."""
    if not rows.column_names:
        if output.is_for_people:
            click.echo("Done.")
        return
    names = _distinct(rows.column_names)
    shown = rows.slice(0, SCREEN_ROWS) if output.is_for_people else rows
    output.records(rows_of(shown.rename_columns(names).to_batches()), columns=names, none="No rows.")
    if len(shown) < len(rows):
        click.echo(f"Only the first {SCREEN_ROWS:,} rows are shown.", err=True)


def _text(query: str | None, file: TextIO | None) -> str:
    if (query is None) == (file is None):
        raise click.UsageError("Give a query: as an argument, as - for standard input, or with -f FILE.")
    try:
        if file is not None:
            return file.read()
        return sys.stdin.read() if query == "-" else str(query)
    except UnicodeDecodeError as error:
        raise click.UsageError(f"The query is not UTF-8: {error}") from None


def _result(
    opened: ExitStack, catalog: Catalog, text: str, engine: str, as_of: str | None, limit: int | None
) -> Result:
    # Imported late, as DuckDB and Spark are: --help must stay fast.
    from deltars.predicate import Query

    text = text.rstrip().rstrip(";")
    parsed = Query(text)
    # Taken before an engine is chosen: a moment that does not exist must not start Spark.
    cut = catalog.snapshot(as_of)
    on_duckdb = None if engine == "spark" else _on_duckdb(cut, parsed, is_required=engine == "duckdb")
    if on_duckdb is None:
        return _spark_result(opened, cut, text, limit)
    keep_pandas_out()
    with working("Running the query"):
        reader = opened.enter_context(on_duckdb.rows(limit))
        first = next(reader, None)
    return Result(_distinct(reader.schema.names), _with_first(first, reader), lambda: _count(on_duckdb))


def _on_duckdb(cut: CatalogSnapshot, parsed: Query, *, is_required: bool) -> DuckDBQuery | None:
    """Return the query for DuckDB, or None if Spark should run it."""
    from deltars.transaction.duckdb_query import DuckDBQuery, has_duckdb

    if not is_required and not has_duckdb():
        _log.info("Spark runs the query: DuckDB is not installed (pip install 'deltars[duckdb]')")
        return None
    try:
        found = DuckDBQuery(cut, parsed)
    except deltars.PredicateError:
        raise
    except deltars.ValidationError as error:
        if is_required or not _has_spark():
            raise
        _log.info("Spark runs the query: %s", error.message)
        return None
    if found.doubt is None:
        _log.info("DuckDB runs the query")
        return found
    if is_required or not _has_spark():
        click.echo(f"Note: DuckDB runs the query. Spark may give other rows, because of {found.doubt}.", err=True)
        return found
    _log.info("Spark runs the query: DuckDB may give other rows, because of %s", found.doubt)
    return None


def _has_spark() -> bool:
    return find_spec("pyspark") is not None


def _started_spark(opened: ExitStack) -> SparkSession:
    try:
        from deltars.doctor import require_java
        from deltars.spark.local_session import local_spark, readable_errors
    except ModuleNotFoundError as error:
        raise deltars.ConfigError(
            f"the query needs {error.name}, which is not installed",
            hint="pip install 'deltars[spark]', or pip install 'deltars[duckdb]' and --engine duckdb",
        ) from error
    require_java()
    opened.enter_context(readable_errors())
    with working("Starting Spark"):
        return opened.enter_context(local_spark("deltars sql"))


def _spark_result(opened: ExitStack, cut: CatalogSnapshot, text: str, limit: int | None) -> Result:
    spark = _started_spark(opened)
    from deltars.spark.read.stream import batches_of

    with working("Running the query"):
        frame = cut.sql(text, spark=spark)
        names = _distinct(frame.columns)
        frame = frame.toDF(*names)
        batches = iter(batches_of(frame if limit is None else frame.limit(limit)))
        first = next(batches, None)
    return Result(names, _with_first(first, batches), frame.count)


def _with_first(first: pa.RecordBatch | None, rest: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    return chain([] if first is None else [first], rest)


def _count(query: DuckDBQuery) -> int:
    with query.rows() as reader:
        return sum(batch.num_rows for batch in reader)


def _distinct(names: Sequence[str]) -> list[str]:
    """Return unique column names: a query may return two columns of one name, a record may not."""
    distinct: list[str] = []
    for at, name in enumerate(names):
        taken = {*distinct, *names[at + 1 :]} if name in distinct else set()
        numbered = (f"{name}_{number}" for number in count(2))
        distinct.append(next(other for other in numbered if other not in taken) if taken else name)
    return distinct
