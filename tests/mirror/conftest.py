"""A catalog on each backend, with a publisher."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from deltars.mirror import Publisher
from tests.mirror.ledger import Ledger


@pytest.fixture
def ledger(migrated_uri: str, tmp_path: Path) -> Iterator[Ledger]:
    ledger = Ledger(migrated_uri, tmp_path / "ware house ü")
    yield ledger
    ledger.database.close()


@pytest.fixture
def publisher(ledger: Ledger) -> Publisher:
    return Publisher(ledger.database)
