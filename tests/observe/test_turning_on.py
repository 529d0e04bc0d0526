"""Nothing is loaded until it is asked for; asking is one word; and no exporter can hurt a commit."""

from __future__ import annotations

import json
import logging
import re
import signal
import subprocess
import sys
import time
import urllib.request
from pathlib import Path
from typing import Any

import prometheus_client
import pytest
from opentelemetry.sdk.trace import TracerProvider

import deltars
from deltars import observe
from deltars.config import configure
from tests.mirror.ledger import added
from tests.observe.scrape import Scrape

pytestmark = pytest.mark.backends("sqlite")

LOADED = "print([name for name in ('prometheus_client', 'opentelemetry', 'openlineage') if name in sys.modules])"
COMMIT = "catalog = deltars.connect({options}); catalog.create_table('t', 'id BIGINT')"


def run(program: str, directory: Path) -> str:
    command = [sys.executable, "-c", f"import sys, deltars\n{program}"]
    return subprocess.run(command, cwd=directory, check=True, capture_output=True, text=True).stdout.strip()


def test_commit_loads_neither_library_unless_asked(tmp_path: Path) -> None:
    assert run(f"{COMMIT.format(options='')}; {LOADED}", tmp_path) == "[]"


def test_keywords_turn_on_the_default_registry_and_the_global_provider(tmp_path: Path) -> None:
    program = (
        "from opentelemetry import trace\n"
        "from opentelemetry.sdk.trace import TracerProvider\n"
        "from opentelemetry.sdk.trace.export import ConsoleSpanExporter, SimpleSpanProcessor\n"
        "provider = TracerProvider()\n"
        "provider.add_span_processor(SimpleSpanProcessor(ConsoleSpanExporter()))\n"
        "trace.set_tracer_provider(provider)\n"
        f"{COMMIT.format(options='metrics=True, tracing=True')}\n"
        "import prometheus_client\n"
        "print(prometheus_client.generate_latest().decode())"
    )
    said = run(program, tmp_path)
    assert re.search(r'deltars_commits_total\{.*outcome="committed"\} 1.0', said)
    assert '"name": "COMMIT ' in said


def test_environment_turns_them_on_and_off() -> None:
    environment = {"DELTARS_METRICS": "true", "DELTARS_TRACING": "0"}
    settings = configure(environment=environment).settings
    assert (settings.metrics, settings.tracing) == (True, False)
    assert configure(environment=environment, metrics=False).settings.metrics is False


@pytest.mark.parametrize(
    ("package", "module", "option"),
    [("prometheus_client", "metrics", "metrics"), ("opentelemetry", "spans", "tracing")],
)
def test_package_that_is_missing_is_named_with_what_to_install(
    package: str, module: str, option: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    monkeypatch.delitem(sys.modules, f"deltars.observe.{module}", raising=False)
    options: dict[str, Any] = {option: True}
    with pytest.raises(deltars.ConfigError, match=rf"{package}.*pip install 'deltars\[metrics\]'"):
        deltars.connect(f"deltasql://sqlite/{tmp_path}/lake.db", **options)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("wrong", ["maybe", 1, ""])
def test_switch_that_is_neither_on_nor_off_is_refused(wrong: object) -> None:
    with pytest.raises(deltars.ConfigError, match="metrics must be true or false"):
        configure(environment={}, metrics=wrong)


def test_asking_twice_attaches_once() -> None:
    registry, provider = prometheus_client.CollectorRegistry(), TracerProvider()
    metrics, spans = observe.prometheus(registry=registry), observe.opentelemetry(tracer_provider=provider)
    try:
        assert observe.prometheus(registry=registry) is metrics
        assert observe.opentelemetry(tracer_provider=provider) is spans
    finally:
        observe.detach(metrics)
        observe.detach(spans)


def test_exporter_that_fails_hurts_neither_the_commit_nor_the_next_exporter(
    catalog: deltars.Catalog, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(event: observe.Event) -> None:
        raise RuntimeError("the collector is away")

    scrape = Scrape()
    exporters: list[observe.Exporter] = [broken, scrape.metrics]
    for exporter in exporters:
        observe.attach(exporter)
    try:
        catalog.create_table("t", "id BIGINT")
        with catalog.begin() as tx:
            tx.stage("t", [added("1")])
        stale = catalog.begin()
        stale.stage("t", [added("2")], expected_version=0)
        with pytest.raises(deltars.VersionConflict):
            stale.commit()
    finally:
        for exporter in exporters:
            observe.detach(exporter)
    assert tx.result.versions == {"t": 1}
    assert tx.result.mirror["t"].publication == "published"
    assert scrape.value("deltars_commits_total", catalog, outcome="committed") == 2
    assert "an exporter failed on a CommitEnded" in caplog.text


def test_port_that_is_taken_is_said() -> None:
    registry = prometheus_client.CollectorRegistry()
    first = observe.prometheus(registry=registry, port=0)
    other = prometheus_client.CollectorRegistry()
    try:
        with pytest.raises(deltars.ConfigError, match=f"cannot be served at port {first.port}"):
            observe.prometheus(registry=other, port=first.port)
    finally:
        observe.detach(first)
        observe.detach(observe.prometheus(registry=other))


def test_reconciler_serves_its_metrics_and_logs_json(
    catalog: deltars.Catalog, catalog_uri: str, tmp_path: Path
) -> None:
    catalog.create_table("t", "id BIGINT")
    with catalog.begin(mirror="async") as tx:
        tx.stage("t", [added("1")])
    (tmp_path / "warehouse" / "t" / "_delta_log" / f"{1:020}.json").write_text("foreign")
    command = [
        sys.executable,
        "-m",
        "deltars.cli",
        "mirror",
        "run",
        "--metrics-port",
        "0",
        "--log-json",
        "--poll",
        "0.1",
    ]
    process = subprocess.Popen([*command, "--catalog", catalog_uri], stderr=subprocess.PIPE, text=True)
    try:
        assert process.stderr is not None
        url = process.stderr.readline().removeprefix("metrics: ").strip()
        page = ""
        while not re.search(r'deltars_mirror_tables\{catalog="[^"]*",state="diverged"\} 1.0', page):
            assert process.poll() is None
            time.sleep(0.1)
            page = urllib.request.urlopen(url, timeout=30).read().decode()
        process.send_signal(signal.SIGTERM)
        _, said = process.communicate(timeout=30)
    finally:
        process.kill()
    assert process.returncode == 0, said
    assert re.search(r'deltars_mirror_lag_seconds\{catalog="[^"]*",table="t"\} \d', page)
    lines = [json.loads(line) for line in said.splitlines() if line.startswith("{")]
    [diverged] = [line for line in lines if line.get("outcome") == "diverged"]
    assert (diverged["level"], diverged["table"], diverged["txn_id"]) == ("ERROR", "t", str(tx.id))


@pytest.mark.parametrize("name", ["deltars.transaction", "deltars.commit", "deltars.mirror"])
def test_logging_that_fails_does_not_hurt_the_commit_either(
    name: str, catalog: deltars.Catalog, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(record: logging.LogRecord) -> bool:
        raise RuntimeError("the log is away")

    catalog.create_table("t", "id BIGINT")
    logger = logging.getLogger(name)
    logger.addFilter(refuse)
    try:
        with caplog.at_level(logging.DEBUG, "deltars"), catalog.begin() as tx:
            tx.stage("t", [added("1")])
    finally:
        logger.removeFilter(refuse)
    assert tx.result.versions == {"t": 1}
    assert tx.result.mirror["t"].publication == "published"
