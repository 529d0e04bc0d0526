"""A large table is imported in bounded memory, from a checkpoint and from one large commit."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest

import deltars
from tests.support.large_log import LARGE_LOGS
from tests.support.memory import peak_mib
from tests.support.soak import record, scaled

MEMORY_LIMIT_MIB = 2048


@pytest.mark.every_case_on("sqlite")
@pytest.mark.soak
@pytest.mark.parametrize("form", list(LARGE_LOGS))
def test_a_large_table_is_imported_in_bounded_memory(
    catalog: deltars.Catalog, catalog_uri: str, tmp_path: Path, form: str
) -> None:
    count = scaled(700, soak=1_000_000)
    place = tmp_path / "large"
    LARGE_LOGS[form](place, count)
    catalog.close()
    # In a process of its own, whose memory is the import's alone.
    program = "import sys; from tests.importer.test_size import import_and_measure; import_and_measure(*sys.argv[1:])"
    small = "" if count > 100_000 else "100"
    done = subprocess.run(
        [sys.executable, "-c", program, catalog_uri, str(place), small], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    seconds, memory_mib = map(float, done.stdout.split())
    assert memory_mib < MEMORY_LIMIT_MIB
    detail = catalog.table("large").detail()
    assert (detail.num_files, detail.num_records) == (count, count * 1000)
    found = catalog.table("large").snapshot().select_files(where=f"id = {count * 1000 - 1}")
    assert found.num_rows == 1
    record(f"import of one table from a {form}", files=count, seconds=round(seconds, 1), memory_mib=round(memory_mib))


def import_and_measure(uri: str, place: str, small: str) -> None:
    if small:
        # The same way with few files: many batches, many transactions, a commit that is read twice.
        for module, name in (
            ("importer.commits", "BATCH_ACTIONS"),
            ("importer.commits", "SMALL_BYTES"),
            ("importer.checkpoints", "BATCH_ROWS"),
            ("store.imports.appender", "FLUSH_ROWS"),
        ):
            __import__(f"deltars.{module}")
            setattr(sys.modules[f"deltars.{module}"], name, int(small))
    with deltars.connect(uri) as catalog:
        begun = time.monotonic()
        catalog.import_table(place)
        print(time.monotonic() - begun, peak_mib())
