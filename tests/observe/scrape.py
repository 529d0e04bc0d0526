"""What Prometheus would find, and what the alert rules would say of it."""

from __future__ import annotations

import re
from pathlib import Path

import yaml
from prometheus_client import CollectorRegistry

import deltars
from deltars.observe.metrics import Metrics

DEPLOY = Path(__file__).parents[2] / "deploy"
RULES = DEPLOY / "prometheus" / "deltars.rules.yml"


class Scrape:
    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.metrics = Metrics(self.registry)

    def value(self, name: str, catalog: deltars.Catalog, **labels: str) -> float | None:
        """One sample of a catalog; None where there is none."""
        source = catalog._session.database.source
        return self.registry.get_sample_value(name, {"catalog": source.catalog, **labels})

    def share_within(self, seconds: float, name: str, catalog: deltars.Catalog, **labels: str) -> float:
        """Which part of a histogram's observations is at most so long."""
        within = self.value(f"{name}_bucket", catalog, le=str(float(seconds)), **labels)
        count = self.value(f"{name}_count", catalog, **labels)
        assert within is not None
        assert count
        return within / count

    def labels(self, name: str) -> list[dict[str, str]]:
        """The labels of every sample of this name."""
        return [
            dict(sample.labels)
            for family in self.registry.collect()
            for sample in family.samples
            if sample.name == name
        ]


def rules() -> dict[str, str]:
    """The expression of each alert."""
    document = yaml.safe_load(RULES.read_text())
    return {rule["alert"]: rule["expr"] for group in document["groups"] for rule in group["rules"]}


def slow_alert(name: str) -> tuple[str, float, float]:
    """Of an alert over a histogram: which one, which quantile, and from how many seconds on."""
    found = re.fullmatch(
        r"histogram_quantile\(([\d.]+), sum by \(catalog, le\)\s\(rate\((\w+)_bucket\{.*\}\[5m\]\)\)\) > (\d+)",
        rules()[name],
    )
    assert found, rules()[name]
    return found[2], float(found[1]), float(found[3])
