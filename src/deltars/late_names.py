"""Names of a package that are loaded when they are first used, so that a command loads only what it needs.

    from deltars import transaction             loads nothing
    transaction.Transaction(session)            loads deltars.transaction.transaction

A module that every command loads imports a package so, and names its types under TYPE_CHECKING. Everything else imports
from the modules themselves.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any


def late_names(package: str, modules: Mapping[str, str]) -> Callable[[str], Any]:
    """Return the `__getattr__` of a package, for the names of each of its modules, separated by spaces.

    A module may name itself. A package lists the same names under TYPE_CHECKING, for type checkers.
    """
    places = {name: module for module, names in modules.items() for name in names.split()}

    def load(name: str) -> Any:
        if name not in places:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        module = import_module(f"{package}.{places[name]}")
        value = module if places[name] == name else getattr(module, name)
        # The next use finds it without this function.
        setattr(sys.modules[package], name, value)
        return value

    return load
