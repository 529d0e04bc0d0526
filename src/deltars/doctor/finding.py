"""One thing that was looked at."""

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
    """What is there, or what is wrong with it."""
    fix: str | None = None
    """What to do about it."""

    @classmethod
    def of_error(cls, check: str, error: DeltarsError) -> Finding:
        return cls(check, "failed", error.what_and_where, error.hint)
