"""What lets a command start faster, in a process that runs nothing else."""

from __future__ import annotations

import gc
import sys
from importlib.abc import MetaPathFinder

from deltars import late_arrow

COLLECT_AFTER = 100_000
"""Objects that are made before garbage is collected. Python's own 700 slow down the loading of modules by a tenth."""

_is_own_process = False


def own_process() -> None:
    """Note that this process runs one command, so that commands may change how the whole process works."""
    global _is_own_process
    _is_own_process = True
    gc.set_threshold(COLLECT_AFTER)


def keep_pandas_out() -> None:
    """Keep pyarrow from loading pandas, which takes longer than a small query.

    pyarrow looks for pandas when it first converts a value, and after that only for a pandas frame.
    """
    if not _is_own_process or "pandas" in sys.modules:
        return
    hidden = _HiddenPandas()
    sys.meta_path.insert(0, hidden)
    try:
        late_arrow.pa.scalar(0)
    finally:
        sys.meta_path.remove(hidden)


class _HiddenPandas(MetaPathFinder):
    def find_spec(self, fullname: str, path: object, target: object = None) -> None:
        if fullname == "pandas":
            raise ModuleNotFoundError("No module named 'pandas'", name=fullname)
