"""The commands of `deltars` by name. A command's module is loaded when the command is looked up, not before."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from importlib import import_module

import click


class LateCommands(Mapping[str, click.Command]):
    """Commands that are found in their modules, each by its own name."""

    def __init__(self, modules: Mapping[str, Sequence[str]]) -> None:
        self._places = {name: module for module, names in modules.items() for name in names}

    def __getitem__(self, name: str) -> click.Command:
        found = vars(import_module(f"deltars.cli.{self._places[name]}")).values()
        return next(value for value in found if isinstance(value, click.Command) and value.name == name)

    def __contains__(self, name: object) -> bool:
        return name in self._places

    def __iter__(self) -> Iterator[str]:
        return iter(self._places)

    def __len__(self) -> int:
        return len(self._places)
