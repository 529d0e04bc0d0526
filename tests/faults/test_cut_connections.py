"""The connection breaks at any message, once or twice in a row: the client learns what really happened."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple
from unittest import mock

import pytest

import deltars
from deltars.store.commit import settlement
from tests.faults.audit import Auditor, promises
from tests.faults.clients import Client, create_tables
from tests.support.campaign import Rounds
from tests.support.soak import record
from tests.support.wire import Wire, tapped_wire

pytestmark = pytest.mark.backends("postgres")

KINDS = ("pay", "amend", "cancel")
AUDIT_EVERY = 100
AROUND_COMMIT = 14
"""Messages at the end of a transaction, which half of the cuts are drawn from."""


class Line(NamedTuple):
    """A catalog behind a line that can be cut, its auditor, and how many messages a transaction of each kind takes."""

    catalog: deltars.Catalog
    wire: Wire
    auditor: Auditor


@pytest.fixture
def line(migrated_uri: str, tmp_path: Path) -> Iterator[Line]:
    (tmp_path / "journals").mkdir()
    with (
        tapped_wire(migrated_uri) as (uri, wire),
        deltars.connect(uri, warehouse=str(tmp_path / "warehouse"), mirror="off", timeout=20) as catalog,
    ):
        create_tables(catalog)
        yield Line(catalog, wire, Auditor(tmp_path / "journals"))


def _messages(line: Line, client: Client) -> dict[str, int]:
    counted = {}
    for kind in KINDS:
        assert client.step("pay")
        before = line.wire.messages
        assert client.step(kind)
        counted[kind] = line.wire.messages - before
    return counted


def _cut(wire: Wire, *distances: int) -> None:
    """Cut the line before the message at the first distance from here, and so on from there."""
    places: list[int] = []
    for distance in distances:
        places.append((places[-1] if places else wire.messages) + distance)
    wire.cuts_at = set(places).__contains__


@pytest.mark.promise("N1", "N2", "N3", "N7")
@pytest.mark.campaign(rounds=20, weight=5, soak=10_000)
def test_connection_cut_at_any_message_leaves_all_or_nothing_and_the_client_knows_which(
    line: Line, rounds: Rounds
) -> None:
    client = Client(line.catalog, line.auditor.directory, 1, rounds.lot)
    counted = _messages(line, client)
    cuts = twice = committed = 0
    for number in rounds:
        # A connection that was just opened sends more messages: one transaction goes first.
        assert client.step("pay")
        kind = rounds.lot.choice(KINDS)
        earliest = rounds.lot.choice([1, counted[kind] - AROUND_COMMIT])
        second = rounds.lot.choice([0, rounds.lot.randint(1, 40)])
        _cut(line.wire, rounds.lot.randint(earliest, counted[kind]), *([second] if second else []))
        committed += client.step(kind)
        cuts, twice = cuts + 1, twice + bool(second)
        line.wire.cuts_at = lambda number: False
        if number % AUDIT_EVERY == AUDIT_EVERY - 1:
            assert line.auditor.audit(line.catalog) == []
            line.catalog.table("left").optimize()
            line.catalog.table("right").optimize()
    client.close()
    assert line.auditor.audit(line.catalog) == []
    # Cut before COMMIT it is refused, and after that it is a commit: both were there.
    assert 0 < committed < cuts
    assert set(client.errors) <= {"DatabaseError", "TimeoutError", "CommitUnknown", "resolve: DatabaseError"}
    record("connections cut", cuts=cuts, twice=twice, committed=committed, refused=cuts - committed, untrue=0)


@pytest.mark.control("N7")
def test_client_that_takes_every_lost_answer_for_a_refusal_is_found_out(line: Line) -> None:
    client = Client(line.catalog, line.auditor.directory, 1, random.Random(1))
    counted = _messages(line, client)["pay"]
    with mock.patch.object(settlement, "resolve", return_value=None):
        for distance in range(counted - AROUND_COMMIT, counted + 1):
            _cut(line.wire, distance)
            client.step("pay")
    client.close()
    line.wire.cuts_at = lambda number: False
    assert promises(line.auditor.audit(line.catalog)) == {"N7"}


@pytest.mark.control("N2")
def test_client_that_retries_blindly_is_found_out(line: Line) -> None:
    client = Client(line.catalog, line.auditor.directory, 1, random.Random(1))
    counted = _messages(line, client)["pay"]
    row = client.next_row
    with mock.patch.object(settlement, "resolve", return_value=None):
        for distance in range(counted - AROUND_COMMIT, counted + 1):
            _cut(line.wire, distance)
            if not client.step("pay"):
                # The same row again, as if nothing had been committed.
                client.next_row = row
                line.wire.cuts_at = lambda number: False
                assert client.step("pay")
            row = client.next_row
    client.close()
    assert "N2" in promises(line.auditor.audit(line.catalog))
