"""Delta readers of other projects, as far as they are installed: each reads a published table without deltars."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

HOW_TO_GET_ONE = "No other Delta reader is installed here. Install one (pip install deltalake), and run the demo again."


@dataclass(frozen=True, slots=True)
class Reader:
    name: str
    packages: tuple[str, ...]
    """Packages that must be installed."""
    read: Callable[[str, Mapping[str, str]], tuple[int | None, int]]
    """Return the version, if the reader says it, and the number of rows at a location."""
    is_for_disks: bool = False
    """Whether the demo uses it for local tables only."""


def installed_readers(location: str) -> Iterator[Reader]:
    """Yield the readers that can open a table at this location here."""
    for reader in READERS:
        is_local = "://" not in location or location.startswith("file://")
        if all(find_spec(package) for package in reader.packages) and (is_local or not reader.is_for_disks):
            yield reader


def _by_deltalake(location: str, options: Mapping[str, str]) -> tuple[int | None, int]:
    table = import_module("deltalake").DeltaTable(location, storage_options=dict(options))
    return table.version(), table.to_pyarrow_table().num_rows


def _by_polars(location: str, options: Mapping[str, str]) -> tuple[int | None, int]:
    # With pyarrow, because Polars' own Parquet reader cannot open a directory with a blank in its path.
    found = import_module("polars").read_delta(location, storage_options=dict(options), use_pyarrow=True)
    return None, found.height


def _by_duckdb(location: str, options: Mapping[str, str]) -> tuple[int | None, int]:
    # The extension comes from its package: DuckDB itself would download it.
    [extension] = Path(str(import_module("duckdb_extension_delta").__file__)).parent.rglob("delta.duckdb_extension")
    with import_module("duckdb").connect() as connection:
        connection.execute(f"LOAD '{extension}'")
        [(count,)] = connection.execute("SELECT count(*) FROM delta_scan(?)", [location]).fetchall()
    return None, count


# Polars opens the log through deltalake.
READERS = (
    Reader("deltalake", ("deltalake",), _by_deltalake),
    Reader("polars", ("polars", "deltalake"), _by_polars),
    Reader("duckdb", ("duckdb", "duckdb_extension_delta"), _by_duckdb, is_for_disks=True),
)
