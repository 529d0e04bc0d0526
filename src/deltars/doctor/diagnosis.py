"""The checks, one after the other. A check is skipped if one that it depends on failed.

java ──▶ spark: a session in another process, and a job that writes a file as tables are written
settings ──▶ catalog ──▶ schema ──▶ clock
                                ├─▶ grants: roles that lack rights on a table that a migration added
                                ├─▶ warehouse ──▶ storage: put-if-absent must not replace a file
                                │                    └─▶ reading: how Spark reads a file in an object store
                                └─▶ mirror
"""

from __future__ import annotations

import platform
import subprocess
import sys
import time
from collections.abc import Iterator
from importlib import metadata
from importlib.util import find_spec
from typing import Any

from deltars.catalog import Catalog, connect, migrate
from deltars.config import CatalogConfig, configure
from deltars.doctor.finding import Finding
from deltars.doctor.java import find_java
from deltars.doctor.object_store import reading
from deltars.errors import DeltarsError, ValidationError, brief
from deltars.storage import open_storage, try_storage
from deltars.store.mirror.status import MirrorMode, MirrorState

CLOCKS_APART_S = 2.0
SPARK_STARTS_WITHIN_S = 180
EMBEDDED = ("sqlite", "duckdb")


def diagnose(catalog: str | None = None, *, spark: Any = True) -> list[Finding]:
    """Check the installation and return the findings.

    This writes a small file to the warehouse and deletes it; nothing else is changed. It starts a local Spark, which
    takes a few seconds, unless `spark` is False or the session to check.
    """
    if not isinstance(spark, bool) and not hasattr(spark, "createDataFrame"):
        raise ValidationError(f"spark must be True, False or a SparkSession, got {brief(spark)}", field="spark")
    findings = [*_python(), *_spark(spark)]
    has_spark = any(finding.check == "spark" and finding.state == "ok" for finding in findings)
    return [*findings, *_catalog(catalog, spark if has_spark else False)]


def _python() -> Iterator[Finding]:
    found = f"Python {platform.python_version()} at {sys.executable}, deltars {metadata.version('deltars')}"
    yield Finding("python", "ok", found)


# -- Spark -----------------------------------------------------------------------------------------------------------


def _spark(spark: Any) -> Iterator[Finding]:
    if not isinstance(spark, bool):
        yield Finding("java", "skipped", "the Spark session runs already")
        yield Finding("spark", "ok", f"the given session of Spark {spark.version}")
        return
    if find_spec("pyspark") is None:
        yield Finding("java", "skipped", "only Spark needs Java, and pyspark is not installed")
        yield Finding(
            "spark",
            "warning",
            "pyspark is not installed: only Arrow, pandas and Polars data can be written and read",
            "pip install 'deltars[spark]'",
        )
        return
    java = find_java()
    yield java
    version = metadata.version("pyspark")
    if java.state != "ok":
        yield Finding("spark", "skipped", f"pyspark {version} cannot start without Java")
    elif not spark:
        yield Finding("spark", "skipped", f"pyspark {version} is installed; it was not started")
    else:
        yield _started(version)


def _started(version: str) -> Finding:
    try:
        trial = subprocess.run(
            [sys.executable, "-m", "deltars.spark.probe"],
            capture_output=True,
            text=True,
            timeout=SPARK_STARTS_WITHIN_S,
        )
    except subprocess.TimeoutExpired:
        return Finding(
            "spark",
            "failed",
            f"pyspark {version} did not finish a job of three rows within {SPARK_STARTS_WITHIN_S} s",
            "Check the free memory, the firewall of the loopback device, and whether the host name can be resolved.",
        )
    if trial.returncode == 0:
        return Finding("spark", "ok", f"pyspark {version} started and ran a task with {trial.stdout.strip()}")
    said = trial.stdout + trial.stderr
    if "No module named" in said or "PYTHON_VERSION_MISMATCH" in said:
        fix = f"Spark's tasks use another Python: export PYSPARK_PYTHON={sys.executable}"
    else:
        fix = f"To see the full error: {sys.executable} -m deltars.spark.probe"
    lines = [line for line in said.splitlines() if line.strip()]
    return Finding(
        "spark", "failed", f"pyspark {version} cannot run a job: {lines[-1] if lines else 'no error message'}", fix
    )


# -- the catalog -----------------------------------------------------------------------------------------------------


def _catalog(catalog: str | None, spark: Any) -> Iterator[Finding]:
    try:
        config = configure(catalog)
    except DeltarsError as error:
        yield Finding.of_error("settings", error)
        return
    yield Finding("settings", "ok", f"the catalog is {config.uri}")
    try:
        status = migrate.status(catalog)
    except DeltarsError as error:
        yield Finding.of_error("catalog", error)
        return
    yield Finding("catalog", "ok", f"{config.uri} is reachable")
    schema = _schema(config, status)
    yield schema
    if status.is_current:
        with connect(catalog, migrate=False) as opened:
            yield from _opened(opened, config)
            if not isinstance(spark, bool) or spark:
                yield from reading(opened.warehouse, config.settings.storage_options, spark)


def _schema(config: CatalogConfig, status: migrate.SchemaStatus) -> Finding:
    upgrade = f"deltars migrate up --catalog '{config.uri}'"
    by_itself = config.uri.backend in EMBEDDED
    match status.state:
        case "current":
            return Finding("schema", "ok", f"the schema is version {status.current}, which this release needs")
        case "newer":
            found = f"the schema is version {status.current}; this release supports versions up to {status.head}"
            return Finding("schema", "failed", found, "pip install --upgrade deltars")
        case "missing" if by_itself:
            return Finding("schema", "ok", "there is no catalog yet; the first use creates it")
        case "missing":
            found = f"there is no catalog yet; this release needs schema version {status.head}"
            return Finding("schema", "failed", found, f"deltars init --catalog '{config.uri}' --warehouse …")
        case _ if by_itself:
            return Finding(
                "schema", "ok", f"the schema is version {status.current}; the next use upgrades it to {status.head}"
            )
        case _:
            found = f"the schema is version {status.current}; this release needs {status.head}"
            return Finding("schema", "failed", found, upgrade)


def _opened(opened: Catalog, config: CatalogConfig) -> Iterator[Finding]:
    grants = [] if config.uri.backend in EMBEDDED else [("grants", _grants)]
    for check, look in (("clock", _clock), *grants, ("storage", _storage), ("mirror", _mirror)):
        try:
            yield look(opened, config)
        except DeltarsError as error:
            yield Finding.of_error(check, error)


def _clock(opened: Catalog, config: CatalogConfig) -> Finding:
    before = time.time()
    database = opened._session.cuts.clock_us() / 1_000_000
    after = time.time()
    apart = max(before - database, database - after, 0.0)
    newest = max((opened._session.cuts.newest_us() or 0) / 1_000_000 - database, 0.0)
    fix = "Synchronise the clocks of both machines with a time server (NTP)."
    if newest > CLOCKS_APART_S:
        found = f"the newest commit is {newest:.0f} s ahead of the database's clock: the clock was set back"
        return Finding("clock", "warning", found, fix)
    if apart > CLOCKS_APART_S:
        return Finding("clock", "warning", f"the database's clock and this machine's are {apart:.0f} s apart", fix)
    return Finding("clock", "ok", "the clocks of this machine and of the database agree")


def _grants(opened: Catalog, config: CatalogConfig) -> Finding:
    missing = migrate.missing_grants(config.uri.with_secrets())
    if not missing:
        return Finding("grants", "ok", "no role lacks rights that its other rights need")
    shown = "; ".join(f"{role.role} lacks rights on {', '.join(role.tables)}" for role in missing)
    return Finding("grants", "warning", shown, f"{missing[0].command} --catalog '{config.uri}'")


def _storage(opened: Catalog, config: CatalogConfig) -> Finding:
    warehouse = opened.warehouse
    if warehouse is None:
        return Finding(
            "storage",
            "warning",
            "the catalog has no warehouse: you must give the location of each new table",
            f"deltars init --catalog '{config.uri}' --warehouse /data/lake",
        )
    try_storage(open_storage(warehouse, config.settings.storage_options))
    return Finding("storage", "ok", f"{warehouse} is writable, and put-if-absent does not replace existing files")


def _mirror(opened: Catalog, config: CatalogConfig) -> Finding:
    tables = opened.mirror_status()
    for table in tables:
        if table.state is MirrorState.DIVERGED:
            fix = f"deltars verify '{table.name}' --catalog '{config.uri}'"
            return Finding("mirror", "failed", f"{table.name}: {table.last_error}", fix)
    behind = [table for table in tables if table.is_ours and table.is_pending]
    late = [table.name for table in behind if (table.mode or config.settings.mirror) != MirrorMode.OFF]
    if late:
        found = f"{late[0]} has unpublished commits" + (f", and {len(late) - 1} more tables" if len(late) > 1 else "")
        return Finding("mirror", "warning", found, f"deltars mirror once --catalog '{config.uri}'")
    if behind:
        found = f"{len(tables)} tables, {len(behind)} of them with unpublished commits, because their mirror is off"
        return Finding("mirror", "ok", found)
    return Finding("mirror", "ok", f"{len(tables)} tables; every commit is published")
