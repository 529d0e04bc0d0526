"""pyarrow, loaded when it is first used: for modules that every command loads. Others import pyarrow themselves."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.compute as pc
else:

    def __getattr__(name):
        if name not in ("pa", "pc"):
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        found = globals()[name] = import_module("pyarrow" if name == "pa" else "pyarrow.compute")
        return found


__all__ = ["pa", "pc"]
