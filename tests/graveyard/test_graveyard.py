"""Bugs that other projects published: none of them is ours. `scripts/graveyard.py` runs the peers on the same cases."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import deltars
from tests.graveyard.cases import CASES, Case
from tests.graveyard.engines import Deltars
from tests.support.templates import CatalogTemplates


@pytest.fixture(scope="module")
def shared_catalog(
    tmp_path_factory: pytest.TempPathFactory, catalog_templates: CatalogTemplates
) -> Iterator[deltars.Catalog]:
    """One catalog for all cases; each has its own table."""
    directory = tmp_path_factory.mktemp("graveyard")
    uri = f"deltasql://sqlite/{directory}/catalog.db"
    catalog_templates.lay_out(uri)
    with deltars.connect(uri, warehouse=str(directory / "warehouse")) as catalog:
        yield catalog


@pytest.mark.parametrize(
    "case", CASES, ids=lambda case: f"{case.project.replace('/', '_')}_{case.number}_{case.run.__name__}"
)
def test_bug_of_a_peer_is_none_of_ours(shared_catalog: deltars.Catalog, case: Case) -> None:
    seen, expected = case.run(Deltars(shared_catalog, case.run.__name__))
    assert seen == expected, case.what


def test_the_graveyard_has_forty_graves_and_no_two_alike() -> None:
    assert len(CASES) >= 40
    assert len({case.name for case in CASES}) == len(CASES)
    assert len({case.run.__name__ for case in CASES}) == len(CASES)


@pytest.mark.parametrize("step", ["delete", "upsert"])
def test_a_case_fails_on_an_engine_with_the_bug(shared_catalog: deltars.Catalog, step: str, tmp_path: Path) -> None:
    """The control: an engine that loses rows is found."""

    class Loses(Deltars):
        def delete(self, where: str) -> None:
            super().delete(f"{where} OR id IS NULL")

        def upsert(self, rows, on, **options):  # type: ignore[no-untyped-def]
            super().upsert(rows, on, **options)
            super().delete("name = 'old'")

    name = {"delete": "delete_keeps_nulls", "upsert": "merge_keeps_unmatched"}[step]
    (found,) = (case for case in CASES if case.run.__name__ == name)
    seen, expected = found.run(Loses(shared_catalog, f"control_{step}"))
    assert seen != expected
