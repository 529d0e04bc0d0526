"""`deltars doctor`: what is wrong here, and how to mend it."""

from __future__ import annotations

from dataclasses import asdict

import click

import deltars
from deltars.cli.options import with_common_options
from deltars.cli.output import Output
from deltars.cli.progress import working


@click.command
@click.option("--spark/--no-spark", default=True, show_default=True, help="Start Spark, which takes some seconds.")
@with_common_options
@click.pass_context
def doctor(context: click.Context, spark: bool, catalog: str | None, output: Output) -> None:
    """Look at Java, Spark, the catalog, its schema, the clocks, the storage and the mirror, and say how to mend them.

    Of an object store it says which way Spark reads: by itself, or through obstore inside its tasks, and why. Writes
    a small file to the warehouse and deletes it. Exits with 1 if something failed.

    \b
    Example:
      deltars doctor
      deltars doctor --no-spark --json | jq '.[] | select(.state == "failed")'
    """
    with working("Looking around"):
        findings = deltars.diagnose(catalog, spark=spark)
    output.records([asdict(finding) for finding in findings], ("check", "state", "found", "fix"), none="")
    context.exit(1 if any(finding.state == "failed" for finding in findings) else 0)
