"""The drawings of a table's history in notebooks, and the figures that they show."""

from __future__ import annotations

import pickle
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
