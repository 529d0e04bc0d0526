"""Metrics of this test's own, attached for as long as it runs."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from deltars import observe
from tests.observe.scrape import Scrape


@pytest.fixture
def scrape() -> Iterator[Scrape]:
    scrape = Scrape()
    observe.attach(scrape.metrics)
    yield scrape
    observe.detach(scrape.metrics)
