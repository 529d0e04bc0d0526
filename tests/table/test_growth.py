"""The drawings of a table's history in notebooks, and the figures that they show."""

from __future__ import annotations

import pickle
import re
from pathlib import Path
from uuid import uuid4
from xml.etree import ElementTree

import pyarrow as pa
import pytest

import deltars
from deltars.catalog.charts import HEIGHT, MARGIN, line, line_html
from deltars.catalog.growth import table_growth
from deltars.catalog.listings import HistoryList

pytestmark = pytest.mark.backends("sqlite")


def test_lines_show_rows_that_vectors_delete_as_gone(catalog: deltars.Catalog) -> None:
    table = catalog.create_table("t", "id BIGINT", properties={"delta.enableDeletionVectors": "true"})
    table.write(pa.table({"id": list(range(8))}))
    table.delete("id < 3")
    table.write(pa.table({"id": [9]}))
    table.optimize()
    lines = {one.title: one for one in table_growth(table._session, table.id, 0, table.version)}
    assert list(lines) == ["rows", "files", "bytes"]
    assert (lines["rows"].least, lines["rows"].most, lines["files"].most) == (0, 8, 2)
    heights = [float(point.split(",")[1]) for point in lines["rows"].points.split()]
    span = HEIGHT - 2 * MARGIN
    assert [round((HEIGHT - MARGIN - height) / span * 8) for height in heights] == [0, 8, 5, 6, 6]


def test_history_is_drawn_above_its_table(catalog: deltars.Catalog) -> None:
    for number in range(3):
        catalog.write("t", pa.table({"id": [number]}))
    history = catalog.table("t").history()
    html = history._repr_html_()  # type: ignore[attr-defined]
    drawn = ElementTree.fromstring(html[: html.index("<table>")].replace("<br>", ""))
    assert [figure.findtext("figcaption") for figure in drawn] == [
        "rows: 3 at most", "files: 3 at most", drawn[2].findtext("figcaption"),
    ]  # fmt: skip
    assert "from version 1 to 2" in catalog.table("t").history(2)._repr_html_()  # type: ignore[attr-defined]
    assert "<svg" not in catalog.table("t").history(1)._repr_html_()  # type: ignore[attr-defined]
    assert pickle.loads(pickle.dumps(history)) == list(history)
    gone = HistoryList(history, catalog._session, uuid4())
    assert gone._repr_html_().startswith("<table>")


def test_titles_are_escaped() -> None:
    drawn = line("<b>", [(0, 1), (1, 2)])
    assert drawn is not None
    assert "<b>" not in line_html(drawn)


def test_notebook_draws_catalog_table_cut_and_result(catalog: deltars.Catalog) -> None:
    assert "<svg" not in catalog._repr_html_()
    with catalog.begin() as tx:
        for name in ("left", "<script>right"):
            tx.write(name, pa.table({"id": [1]}))
    earlier = catalog.snapshot(tx.id)
    catalog.write("left", pa.table({"id": [2]}))
    shown = {
        "catalog": catalog._repr_html_(),
        "table": catalog.table("left")._repr_html_(),
        "cut": earlier._repr_html_(),
        "now": catalog.snapshot()._repr_html_(),
        "result": tx.result._repr_html_(),
    }
    for name, html in shown.items():
        assert "<script" not in html, name
        assert "var(" not in html, name  # A notebook has no stylesheet.
        for drawing in re.findall("<svg.*?</svg>", html):
            ElementTree.fromstring(drawing)
    assert {name: html.count("<circle") for name, html in shown.items()} == {
        "catalog": 3, "table": 0, "cut": 2, "now": 3, "result": 0,
    }  # fmt: skip
    # A line joins the tables of a transaction; the cut has one more, at its moment.
    assert shown["cut"].count("stroke-dasharray") == 1
    assert "rows: 2 at most" in shown["table"]
    assert all(f"<td>{stage}</td>" in shown["result"] for stage in ("data", "commit", "publish"))


def test_notebook_shows_what_it_can_without_a_database(catalog: deltars.Catalog, tmp_path: Path) -> None:
    catalog.write("t", pa.table({"id": [1]}))
    catalog.close()
    [file] = tmp_path.glob("*.db")
    file.rename(tmp_path / "gone")
    html = catalog._repr_html_()
    assert "<svg" not in html
    assert "the file no longer exists" in html or "cannot be opened" in html or "no such table" in html
