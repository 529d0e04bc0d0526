"""Fixtures for the whole suite: three catalog backends, PostgreSQL servers, a Spark session.

A test that takes `catalog_uri` runs on PostgreSQL, SQLite and DuckDB; `@pytest.mark.backends("sqlite")`
narrows that at collection, so nothing is skipped. `@pytest.mark.every_case_on("sqlite")` narrows the cases of a
parametrised test: the other backends take its first case, and their other cases run in `make soak-all`. DuckDB takes
the first case of any test, unless the test names it.
"""

from __future__ import annotations

import gc
import logging
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from threading import current_thread, main_thread

import hypothesis
import pytest
from pyspark.sql import SparkSession

import deltars
from deltars.uri import BACKENDS, CatalogUri, parse_catalog_uri
from tests.support import campaign, soak, soak_report
from tests.support.delta_spark import DeltaSpark, delta_jars
from tests.support.durations import Durations
from tests.support.jvm import SHORT_LIVED, with_class_archive
from tests.support.maven import NoJars
from tests.support.postgres import URL_VARIABLE, PostgresServer, server_elsewhere, server_of_this_run
from tests.support.run_directory import RunDirectory, use_memory
from tests.support.spark import connect_server, local_session
from tests.support.templates import CatalogTemplates

_HERE = Path(__file__).parent
_STARTS_JAVA = (
    "spark/",
    "demo/",
    "docs/",
    "cli/test_sql.py",
    "doctor/",
    "first_mistakes/test_spark.py",
    "test_example.py",
)
"""Tests here start a Spark of their own, in a process or by a program."""

_JVM_GROUPS = {"delta_spark": "delta-spark", "spark": "spark", "connect_url": "connect"}
"""Group of the tests that take a fixture, the first one that they take: each JVM is started by one worker only."""

_RUN = pytest.StashKey[RunDirectory]()
_OURS = ("DELTARS_TEST_", "DELTARS_GOLDEN", "DELTARS_SOAK", "DELTARS_SEED", "DELTARS_MINUTES")

hypothesis.settings.register_profile(
    "test",
    deadline=None,
    print_blob=True,
    max_examples=50,
    suppress_health_check=[hypothesis.HealthCheck.too_slow],
)
hypothesis.settings.register_profile(
    "soak", hypothesis.settings.get_profile("test"), max_examples=soak.scaled(50, soak=5_000)
)


def pytest_configure(config: pytest.Config) -> None:
    use_memory()
    _hear_ctrl_c()
    hypothesis.settings.load_profile("soak" if soak.is_soak() else "test")
    for name in list(os.environ):
        # What the developer set for their own catalogs is not for the tests.
        if name.startswith("DELTARS_") and not name.startswith(_OURS):
            del os.environ[name]
    soak.seed()
    # Of every JVM that a test starts, in a notebook and an example too; these variables are Spark's own.
    os.environ.setdefault("SPARK_SUBMIT_OPTS", with_class_archive(SHORT_LIVED))
    os.environ.setdefault("SPARK_LAUNCHER_OPTS", SHORT_LIVED)
    if not _is_worker(config):
        config.pluginmanager.register(Durations())
    if not _is_worker(config) and not config.option.collectonly:
        config.stash[_RUN] = RunDirectory()
        if soak.is_soak():
            config.pluginmanager.register(soak_report.Reporter())


def _hear_ctrl_c() -> None:
    """Let SIGINT raise KeyboardInterrupt: tests send it to themselves, and a shell's background jobs ignore it."""
    if current_thread() is main_thread() and signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_unconfigure(config: pytest.Config) -> None:
    if _RUN in config.stash:
        config.stash[_RUN].close()


def pytest_report_header() -> str:
    return f"seed: DELTARS_SEED={soak.seed()}" + (" (soak)" if soak.is_soak() else "")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "backend" not in metafunc.fixturenames:
        return
    chosen = BACKENDS
    # The closest one counts: a test may need more than its module does.
    marker = metafunc.definition.get_closest_marker("backends")
    if marker is not None:
        unknown = set(marker.args) - set(BACKENDS)
        if unknown or not marker.args:
            raise pytest.UsageError(f"{metafunc.definition.nodeid}: backends() takes some of {', '.join(BACKENDS)}")
        chosen = tuple(name for name in chosen if name in marker.args)
    marks = {"postgres": [pytest.mark.postgres], "duckdb": [pytest.mark.duckdb]}
    metafunc.parametrize("backend", [pytest.param(name, marks=marks.get(name, [])) for name in chosen], indirect=True)


@pytest.hookimpl(tryfirst=True)  # before pytest-xdist reads the groups
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    _leave_cases_to_soak(config, items)
    for item in items:
        fixtures = getattr(item, "fixturenames", ())
        group = next((group for fixture, group in _JVM_GROUPS.items() if fixture in fixtures), None)
        if group is not None:
            item.add_marker(pytest.mark.spark)
            item.add_marker(pytest.mark.xdist_group(group))
        if "postgres_server" in fixtures or "postgres16_server" in fixtures:
            item.add_marker(pytest.mark.postgres)
        if item.path.relative_to(_HERE).as_posix().startswith(_STARTS_JAVA):
            item.add_marker(pytest.mark.spark)
    if soak.is_soak():
        for item in items:
            if item.get_closest_marker("campaign") is not None:
                # Its time is the campaign's, however long that was asked to be.
                item.add_marker(pytest.mark.timeout(0))
    if _is_worker(config):
        # What starts a JVM takes longest: begun last, it would keep one worker busy while the other has nothing to do.
        items.sort(key=lambda item: item.get_closest_marker("spark") is None)


def pytest_collection_finish(session: pytest.Session) -> None:
    campaign.weigh(session.config, session.items)
    _freeze()


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> None:
    if nextitem is not None and nextitem.path != item.path:
        _freeze()


def _freeze() -> None:
    """Hide what is there from the garbage collector, which else looks at all of it each time, for seconds in the end.

    Thousands of tests, their modules, and what these remember stay until the end of the run.
    """
    gc.collect()
    gc.freeze()


def _leave_cases_to_soak(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave to `make soak-all` tests marked `soak(only=True)`, and cases that repeat what another database shows."""
    kept: list[pytest.Item] = []
    left: list[pytest.Item] = []
    taken: set[tuple[str, str]] = set()
    for item in items:
        if _is_for_soak(item):
            (kept if soak.is_soak() else left).append(item)
            continue
        callspec = getattr(item, "callspec", None)
        backend = callspec.params.get("backend") if callspec is not None else None
        if backend is None or backend in _databases_of_every_case(item):
            kept.append(item)
            continue
        test = item.nodeid.partition("[")[0], backend
        if test not in taken:
            taken.add(test)
            kept.append(item)
        elif soak.is_soak():
            item.add_marker(pytest.mark.soak)
            kept.append(item)
        else:
            left.append(item)
    if left:
        config.hook.pytest_deselected(items=left)
        items[:] = kept


def _databases_of_every_case(item: pytest.Item) -> tuple[str, ...]:
    """Return the databases on which all cases of a test run: those that it names, or else all but DuckDB."""
    marker, named = item.get_closest_marker("every_case_on"), item.get_closest_marker("backends")
    if marker is not None:
        return marker.args
    return named.args if named is not None else tuple(name for name in BACKENDS if name != "duckdb")


def _is_for_soak(item: pytest.Item) -> bool:
    """Return whether only `make soak-all` runs a test: it says so, or repeats on DuckDB what the other databases show.

    On DuckDB run the tests of the store, those that name it, and those that prove a requirement.
    """
    callspec = getattr(item, "callspec", None)
    backend = callspec.params.get("backend") if callspec is not None else None
    for one in item.iter_markers("soak"):
        if one.kwargs.get("only") or backend in one.kwargs.get("on", ()):
            return True
    if item.get_closest_marker("duckdb") is None or item.get_closest_marker("requirement") is not None:
        return False
    named = item.get_closest_marker("backends")
    if item.path.is_relative_to(_HERE / "store") or (named is not None and "duckdb" in named.args):
        return False
    item.add_marker(pytest.mark.soak)
    return True


def _is_worker(config: pytest.Config) -> bool:
    return hasattr(config, "workerinput")


@pytest.fixture(autouse=True)
def _logging_as_it_was() -> Iterator[None]:
    """What a test, or a command that it runs, makes of our logger is not for the next one."""
    logger = logging.getLogger("deltars")
    level, handlers = logger.level, list(logger.handlers)
    yield
    logger.setLevel(level)
    logger.handlers[:] = handlers


@pytest.fixture
def rounds(request: pytest.FixtureRequest) -> campaign.Rounds:
    """The rounds of a test that is part of the campaign."""
    return campaign.rounds_of(request.node)


@pytest.fixture(scope="session")
def postgres_server() -> PostgresServer:
    """PostgreSQL 18, or the server that DELTARS_TEST_POSTGRES_URL names."""
    url = os.environ.get(URL_VARIABLE)
    return server_elsewhere(url) if url else server_of_this_run()


@pytest.fixture(scope="session")
def postgres16_server() -> PostgresServer:
    """PostgreSQL 16: a server that has no transaction_timeout yet."""
    return server_of_this_run(16)


@pytest.fixture(scope="module")
def postgres_database(postgres_server: PostgresServer, request: pytest.FixtureRequest) -> Iterator[str]:
    """The name of this module's own database."""
    name = postgres_server.create_database(request.module.__name__.rpartition(".")[2])
    yield name
    postgres_server.drop_database(name)


@pytest.fixture
def backend(request: pytest.FixtureRequest) -> str:
    """postgres, sqlite or duckdb: each in turn, or those that `@pytest.mark.backends` names."""
    name: str = request.param
    return name


@pytest.fixture
def catalog_uri(backend: str, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[str]:
    """An empty catalog of this test's own: a new schema in the module's database, or a file to be made.

    For `migrated_uri`, PostgreSQL has a migrated database instead: running the DDL takes many times as long.
    """
    if backend == "sqlite":
        yield str(CatalogUri("sqlite", str(tmp_path / "catalog.db")))
        return
    if backend == "duckdb":
        yield str(CatalogUri("duckdb", str(tmp_path / "catalog.duckdb")))
        return
    server: PostgresServer = request.getfixturevalue("postgres_server")
    if "migrated_uri" not in request.fixturenames:
        # The schema goes when the module's database does.
        yield server.create_catalog_uri(request.getfixturevalue("postgres_database"))
        return
    templates: CatalogTemplates = request.getfixturevalue("catalog_templates")
    database = templates.take_database(server)
    yield server.catalog_uri(database, templates.SCHEMA)
    templates.give_back(database)


@pytest.fixture
def postgres16_catalog_uri(postgres16_server: PostgresServer) -> Iterator[str]:
    """An empty catalog on PostgreSQL 16, in a database of this test's own."""
    database = postgres16_server.create_database("catalog")
    yield postgres16_server.create_catalog_uri(database)
    postgres16_server.drop_database(database)


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    with local_session(tmp_path_factory.mktemp("spark")) as session:
        yield session


@pytest.fixture(scope="session")
def connect_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A server of Spark Connect in a process of its own."""
    with connect_server(tmp_path_factory.mktemp("connect")) as url:
        yield url


@pytest.fixture(scope="session")
def delta_spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DeltaSpark]:
    """delta-spark in a process of its own, which all tests that take it share."""
    try:
        jars = delta_jars()
    except NoJars as reason:
        pytest.skip(str(reason))
    with DeltaSpark(jars, tmp_path_factory.mktemp("delta-spark")) as process:
        yield process


@pytest.fixture(scope="session")
def catalog_templates(tmp_path_factory: pytest.TempPathFactory) -> CatalogTemplates:
    return CatalogTemplates(tmp_path_factory.mktemp("templates"))


@pytest.fixture
def migrated_uri(catalog_uri: str, catalog_templates: CatalogTemplates) -> str:
    """A migrated catalog of this test's own: `catalog_uri`, with its schema in it."""
    if parse_catalog_uri(catalog_uri).backend != "postgres":
        catalog_templates.lay_out(catalog_uri)
    return catalog_uri


@pytest.fixture
def catalog(migrated_uri: str, tmp_path: Path) -> Iterator[deltars.Catalog]:
    """A migrated catalog of this test's own, its warehouse in `tmp_path`."""
    with deltars.connect(migrated_uri, warehouse=str(tmp_path / "warehouse")) as opened:
        yield opened
