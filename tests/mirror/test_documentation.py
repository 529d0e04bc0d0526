"""The documentation is honest about what readers of `_delta_log` may see."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[2] / "docs"


@pytest.mark.requirement("M-13")
def test_documentation_tells_of_the_lag_and_of_the_order_across_tables() -> None:
    text = re.sub(r"\s+", " ", (DOCS / "mirror.md").read_text())
    assert "Tables may be at different versions for a while." in text
    assert "Readers of the files may see one table's new version before another's" in text
    assert "The order across tables is not guaranteed." in text
    assert "Within one table versions always appear in order" in text
    readme = re.sub(r"\s+", " ", (DOCS.parent / "README.md").read_text())
    assert "docs/mirror.md" in readme
    assert "a reader of the files may see one table's new version a moment before the other's" in readme
