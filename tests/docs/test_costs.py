"""The page of costs has every public call."""

from __future__ import annotations

import inspect
import re
from pathlib import Path

import deltars

PAGE = (Path(__file__).parents[2] / "docs/costs.md").read_text()
NAMES = {"Catalog": "catalog", "CatalogSnapshot": "cut", "Table": "table", "Transaction": "tx"}
FREE = {"uri", "warehouse", "id", "name", "location", "record", "result", "as_of", "versions", "versions_by_id"}
"""Properties that are there already, and cost nothing."""
INTERNAL = {"tx.altered", "tx.as_commit"}


def test_every_public_call_says_what_it_costs_and_how_it_fails() -> None:
    told = set(re.findall(r"`([\w.]+)`", PAGE))
    wanted = {
        f"{name}.{method}"
        for cls, name in NAMES.items()
        for method in vars(getattr(deltars, cls))
        if not method.startswith("_") and method not in FREE
    }
    wanted |= {
        f"deltars.{name}"
        for name in deltars.__all__
        if inspect.isfunction(getattr(deltars, name)) and name not in ("migrate", "observe")
    }
    assert wanted - told - INTERNAL == set()


def test_errors_that_are_named_are_there() -> None:
    for name in re.findall(r"`([A-Z]\w+)`", PAGE):
        assert hasattr(deltars, name), name
