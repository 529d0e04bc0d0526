"""The documentation builds as a site, strictly, and its reference lists every public name."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

import pytest

import deltars
from deltars import errors
from deltars.store import schema

ROOT = Path(__file__).parents[1]

# One build serves the module.
pytestmark = [pytest.mark.xdist_group("site"), pytest.mark.slow]


def build(project: Path, site: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(site)]
    environment = os.environ | {"NO_MKDOCS_2_WARNING": "1"}
    return subprocess.run(command, cwd=project, env=environment, capture_output=True, text=True)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    site = tmp_path_factory.mktemp("site")
    built = build(ROOT, site)
    assert built.returncode == 0, built.stdout + built.stderr
    return site


def test_every_public_name_has_its_place_in_the_reference(site: Path) -> None:
    functions = (site / "reference/api/functions.html").read_text()
    raised = (site / "reference/errors.html").read_text()
    for name in deltars.__all__:
        value = getattr(deltars, name)
        if isinstance(value, type) and issubclass(value, errors.DeltarsError):
            assert f'id="{name.lower()}"' in raised, name
        elif isinstance(value, type):
            assert (site / f"reference/api/{name}.html").exists(), name
        else:
            assert f"deltars.{name}" in functions, name


def test_every_table_of_the_catalog_has_its_page(site: Path) -> None:
    for name, table in schema.metadata.tables.items():
        page = (site / f"reference/tables/{name}.html").read_text()
        assert all(f"<code>{column.name}</code>" in page for column in table.columns), name


class Loaded(HTMLParser):
    """Collect the addresses that a page loads, and the diagrams that a script from elsewhere would have to draw."""

    def __init__(self) -> None:
        super().__init__()
        self.addresses: set[str] = set()
        self.diagrams = 0

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        if tag != "a":
            self.addresses |= {given[name] or "" for name in ("src", "href", "srcset", "data") if name in given}
        self.diagrams += "mermaid" in (given.get("class") or "")


def test_pages_load_no_script_style_font_or_picture_from_another_site(site: Path) -> None:
    num_pages = num_pictures = 0
    for page in site.rglob("*.html"):
        loaded = Loaded()
        loaded.feed(page.read_text())
        assert loaded.addresses, page
        assert [address for address in loaded.addresses if re.match(r"(\w+:)?//", address)] == [], page
        assert loaded.diagrams == 0, page
        num_pages += 1
        for address in loaded.addresses:
            if address.endswith(".svg"):
                assert (page.parent / address).is_file(), (page, address)
                num_pictures += 1
    assert num_pages > 100
    assert num_pictures == 5
    for file in (*site.rglob("*.css"), *site.rglob("*.svg")):
        assert re.findall(r"(?:@import|url\(|href=)\s*[\"']?(?:https?:)?//[^)\"']*", file.read_text()) == [], file


def test_notebooks_are_pages_with_what_their_cells_returned(site: Path) -> None:
    for notebook in (ROOT / "docs/notebooks").glob("*.ipynb"):
        page = (site / "notebooks" / f"{notebook.stem}.html").read_text()
        assert page.count('class="output"') >= 3, notebook
        assert f'href="notebooks/{notebook.stem}.html"' in (site / "index.html").read_text()


@pytest.mark.soak(only=True)
def test_link_that_leads_nowhere_fails_the_build(tmp_path: Path) -> None:
    project = tmp_path / "project"
    for part in ("docs", "scripts"):
        shutil.copytree(ROOT / part, project / part)
    for file in ("mkdocs.yml", "README.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md"):
        shutil.copy(ROOT / file, project)
    (project / "docs" / "where.md").write_text("# Conditions\n\n[gone](gone.md)\n")
    built = build(project, tmp_path / "site")
    assert built.returncode != 0
    assert "gone.md" in built.stdout + built.stderr
