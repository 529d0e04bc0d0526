"""Interface for the demo's output: the demo acts and checks, a narrator prints."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol


class Narrator(Protocol):
    def chapter(self, title: str) -> None: ...

    def say(self, text: str) -> None: ...

    def code(self, text: str) -> None: ...

    def table(self, headings: Sequence[str], rows: Sequence[Sequence[object]]) -> None: ...
