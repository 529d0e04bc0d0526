"""The page of settings lists each of them, with its default."""

from __future__ import annotations

import re
from dataclasses import MISSING, fields
from pathlib import Path

from deltars.config import Settings

PAGE = Path(__file__).parents[2] / "docs/configuration.md"


def test_every_setting_is_on_the_page_with_its_default() -> None:
    rows = [line.split("|") for line in PAGE.read_text().splitlines() if line.startswith("| `")]
    listed: dict[str, str] = {}
    for _, names, defaults, *_rest in rows:
        found = re.findall(r"`(\w+)`", names)
        listed |= dict(zip(found, defaults.replace("`", "").split(", "), strict=False))
    for setting in fields(Settings):
        default = "" if setting.default is MISSING else setting.default
        if setting.name == "isolation":
            default = "strict"  # the level of a catalog that stores none
        shown = str(default).lower() if isinstance(default, bool | str) else f"{default:,g}"
        assert listed[setting.name].strip() == shown, setting.name
