"""The result of one check."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

from deltars.errors import DeltarsError

State: TypeAlias = Literal["ok", "warning", "failed", "skipped"]


@dataclass(frozen=True, slots=True)
class Finding:
    check: str
    state: State
    found: str
    """What was found, or what is wrong."""
    fix: str | None = None
    """How to fix it."""

    @classmethod
    def of_error(cls, check: str, error: DeltarsError) -> Finding:
        return cls(check, "failed", error.what_and_where, error.hint)
