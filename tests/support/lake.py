"""Several tables of one catalog: what a test of transactions starts from."""

from __future__ import annotations

from typing import Any, Protocol
from uuid import UUID

import deltars
from tests.support import witness
from tests.support.dump import Dump, dump
from tests.support.log import SCHEMA, Log
from tests.support.tap import Tap


class Lake:
    """Tables at version 0, each with nothing in it; `lake["a"]` is the log of one."""

    def __init__(
        self, catalog: deltars.Catalog, direct_uri: str, *names: str, ddl: str = SCHEMA, **fields: Any
    ) -> None:
        self.catalog = catalog
        self.uri = direct_uri
        self.logs = {name: Log(catalog, direct_uri, name).create(ddl, **fields) for name in names}

    def __getitem__(self, name: str) -> Log:
        return self.logs[name]

    @property
    def ids(self) -> dict[str, UUID]:
        return {name: log.table_id for name, log in self.logs.items()}

    @property
    def by_id(self) -> list[str]:
        """The names in the order in which commits lock the tables."""
        return sorted(self.logs, key=lambda name: self.logs[name].table_id)

    @property
    def versions(self) -> dict[str, int]:
        """As another connection sees them, in one statement."""
        return dict(witness.rows(self.uri, "SELECT name, current_version FROM dl_tables WHERE dropped_at IS NULL"))

    def live(self) -> dict[str, list[str]]:
        return {name: log.live() for name, log in self.logs.items()}

    def begin(self, **options: Any) -> deltars.Transaction:
        return self.catalog.begin(**options)

    def dump(self) -> Dump:
        """The whole database; the mirror's own notes of what is published are left out."""
        return {name: rows for name, rows in dump(self.uri).items() if not name.startswith("dl_mirror")}


class OpenLake(Protocol):
    def __call__(self, *names: str, tap: Tap | None = None, ddl: str = SCHEMA, **settings: Any) -> Lake:
        """These tables, made in the test's catalog, which is opened anew with these settings.

        Nothing is published unless `mirror` says so.
        """
