"""Who committed, where the transaction does not say so."""

from __future__ import annotations

import getpass

import pyarrow as pa
import pytest

import deltars
from deltars.store.backends import base
from tests.support import witness

ROWS = pa.table({"id": [1]})


def test_committer_is_the_user_unless_one_is_given(catalog: deltars.Catalog, migrated_uri: str, backend: str) -> None:
    user = getpass.getuser()
    if backend == "postgres":
        [[user]] = witness.rows(migrated_uri, "SELECT session_user")
    catalog.write("a", ROWS)
    with catalog.begin(committer="etl") as tx:
        tx.write("a", ROWS)
    catalog.create_table("b", "id BIGINT")
    with catalog.begin() as dropping:
        dropping.drop_table("b")
    assert [entry.committer for entry in catalog.table("a").history()] == ["etl", user]
    assert catalog.transaction(dropping.id).committer == user


@pytest.mark.backends("sqlite")
def test_process_without_a_name_commits_without_one(catalog: deltars.Catalog, monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown() -> str:
        raise KeyError("getpwuid(): uid not found: 1234")

    monkeypatch.setattr(getpass, "getuser", unknown)
    base._process_user.cache_clear()
    try:
        catalog.write("a", ROWS)
    finally:
        base._process_user.cache_clear()
    assert [entry.committer for entry in catalog.table("a").history()] == [None]
