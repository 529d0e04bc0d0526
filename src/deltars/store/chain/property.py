"""The table property that turns a hash chain on."""

from __future__ import annotations

from collections.abc import Mapping

CHAIN_PROPERTY = "deltars.hashChain"


def is_chained(properties: Mapping[str, str] | None) -> bool:
    return (properties or {}).get(CHAIN_PROPERTY, "").strip().lower() == "true"
