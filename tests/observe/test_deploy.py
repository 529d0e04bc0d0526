"""What deploy/ asks Prometheus for is what deltars exports: every name, every label, every value of one."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

import deltars
from deltars import observe
from tests.mirror.ledger import added
from tests.observe.scrape import DEPLOY, RULES, Scrape, rules

pytestmark = pytest.mark.backends("sqlite")

DASHBOARD = DEPLOY / "grafana" / "deltars.json"
ADDED_BY_PROMETHEUS = {"instance", "job"}
_SELECTOR = re.compile(r"\b(deltars_\w+)(?:\{([^}]*)\})?")
_BY = re.compile(r"\bby \(([^)]*)\)")


def dashboard() -> dict[str, str]:
    """The expressions, by panel."""
    document = json.loads(DASHBOARD.read_text())
    return {
        f"{panel['title']} {target['refId']}": target["expr"]
        for panel in document["panels"]
        for target in panel.get("targets", ())
    }


def asked_of(expression: str) -> Iterator[tuple[str, dict[str, str]]]:
    """The metrics that an expression names, with the labels that it asks for; "" where any value will do."""
    grouped = {label.strip() for labels in _BY.findall(expression) for label in labels.split(",")}
    for name, selector in _SELECTOR.findall(expression):
        said = dict(re.findall(r'(\w+)=~?"([^"]*)"', selector))
        yield name, dict.fromkeys(grouped - ADDED_BY_PROMETHEUS, "") | said


@pytest.fixture
def exported(catalog: deltars.Catalog, scrape: Scrape, tmp_path: Path) -> Scrape:
    """Every metric has a sample: commits, conflicts, failures, publications and a table that diverged."""
    for name in "ab":
        catalog.create_table(name, "id BIGINT")
    with catalog.begin() as tx:
        tx.stage("a", [added("1")])
        tx.stage("b", [added("1")])
    for _ in range(2):
        catalog.write("b", pa.table({"id": [1]}), app_id="job", app_version=1)
    catalog.create_table("c", "id BIGINT")
    with catalog.begin() as tx:
        tx.stage("c", [added(str(number)) for number in range(12)])
    # Its files do not exist.
    assert [one.outcome for one in catalog.maintain(["c"])] == ["failed"]
    stale = catalog.begin()
    stale.stage("a", [added("2")], expected_version=0)
    with pytest.raises(deltars.VersionConflict):
        stale.commit()
    with pytest.raises(deltars.ValidationError):
        deltars.SqlTxnLogWriter(catalog).commit(catalog.table("a").id, 2, [added("../x")], operation="WRITE")
    (tmp_path / "warehouse" / "a" / "_delta_log" / f"{2:020}.json").write_text("foreign")
    with catalog.begin() as tx:
        tx.stage("a", [added("2")])
    catalog.reconciler().once()
    # A batch itself needs Spark; `tests/streams` has one.
    source = catalog._session.database.source
    observe.emit(observe.BatchEnded(source, stale.id, "job", 1, observe.Outcome.COMMITTED, 0.1))
    return scrape


def test_every_metric_and_label_that_is_asked_for_is_exported(exported: Scrape) -> None:
    expressions = rules() | dashboard()
    expressions |= {"variable": 'deltars_pool_size{catalog=""}'}
    problems = []
    for place, expression in expressions.items():
        asked = list(asked_of(expression))
        assert asked, f"{place} asks for nothing of ours"
        for name, labels in asked:
            samples = exported.labels(name)
            known = {label for sample in samples for label in sample}
            problems += [] if samples else [f"{place}: there is no {name}"]
            problems += [f"{place}: {name} has no label {label}" for label in labels.keys() - known if samples]
            for label, value in labels.items():
                # `a|b` names several, `$catalog` is the viewer's choice.
                values = set() if "$" in value else set(value.split("|")) - {""}
                seen = {sample.get(label) for sample in samples}
                if values and not values & seen:
                    problems.append(f"{place}: {name} has no {label}={value!r}")
    assert not problems, "\n".join(problems)


def test_every_metric_is_on_the_dashboard(exported: Scrape) -> None:
    shown = {name for expression in dashboard().values() for name, _ in asked_of(expression)}
    families = {family.name for family in exported.registry.collect()}
    assert families
    assert [family for family in sorted(families) if not any(name.startswith(family) for name in shown)] == []


def test_every_metric_is_documented(exported: Scrape) -> None:
    page = (DEPLOY.parent / "docs" / "observability.md").read_text()
    names = {
        f"{family.name}_total" if family.type == "counter" else family.name for family in exported.registry.collect()
    }
    assert [name for name in sorted(names) if f"`{name}`" not in page] == []
    for alert in rules():
        assert f"`{alert}`" in page


def test_dashboard_is_one_that_grafana_takes() -> None:
    document = json.loads(DASHBOARD.read_text())
    panels = document["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    places = [(panel["gridPos"]["x"], panel["gridPos"]["y"]) for panel in panels]
    assert len(set(places)) == len(places)
    assert all(panel["gridPos"]["x"] + panel["gridPos"]["w"] <= 24 for panel in panels)


@pytest.mark.skipif(shutil.which("promtool") is None, reason="promtool is not installed (apt-get install prometheus)")
@pytest.mark.parametrize("command", [("check", "rules", RULES.name), ("test", "rules", "deltars.rules.test.yml")])
def test_promtool_takes_the_rules_and_their_tests_pass(command: tuple[str, ...]) -> None:
    answer = subprocess.run(["promtool", *command], cwd=RULES.parent, capture_output=True, text=True)
    assert answer.returncode == 0, answer.stdout + answer.stderr
