"""Who tells the story: the demo does and looks, and hands over what to say."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol


class Narrator(Protocol):
    def chapter(self, title: str) -> None: ...

    def say(self, text: str) -> None: ...

    def code(self, text: str) -> None: ...

    def table(self, headings: Sequence[str], rows: Sequence[Sequence[object]]) -> None: ...
