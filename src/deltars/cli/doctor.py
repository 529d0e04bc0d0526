"""`deltars doctor`: finds problems of the installation, and prints how to fix them."""

from __future__ import annotations

from dataclasses import asdict

import click

import deltars
from deltars.cli.options import with_common_options
from deltars.cli.output import Output
from deltars.cli.progress import working


@click.command
@click.option("--spark/--no-spark", default=True, show_default=True, help="Start Spark, which takes a few seconds.")
@with_common_options
@click.pass_context
def doctor(context: click.Context, spark: bool, catalog: str | None, output: Output) -> None:
    """Check Java, Spark, the catalog, its schema, the clocks, the storage and the mirror. Print how to fix problems.

    For an object store, also print how Spark reads it: natively, or through obstore inside its tasks, and why. The
    command writes a small file to the warehouse and deletes it. It exits with 1 if a check failed.

    \b
    Example:
      deltars doctor
      deltars doctor --no-spark --json | jq '.[] | select(.state == "failed")'
    """
    with working("Checking"):
        findings = deltars.diagnose(catalog, spark=spark)
    output.records([asdict(finding) for finding in findings], ("check", "state", "found", "fix"), none="")
    context.exit(1 if any(finding.state == "failed" for finding in findings) else 0)
