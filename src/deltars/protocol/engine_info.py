"""The name and release of this engine, as `commitInfo.engineInfo` of the commits that it writes."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version

try:
    ENGINE_INFO = f"deltars/{version('deltars')}"
except PackageNotFoundError:  # run from a source tree that was not installed
    ENGINE_INFO = "deltars"
