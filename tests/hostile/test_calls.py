"""Every parameter of every public call with hostile values: an error of ours before anything changes, or success.

`make soak` takes all values for each parameter. `make test` takes a few texts for the round trips, always the same.
"""

from __future__ import annotations

import logging
import os
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import deltars
from tests.hostile import payloads, surface
from tests.hostile.attack import Finding, attack
from tests.hostile.surface import Target
from tests.hostile.world import World, frame
from tests.support.soak import is_soak, record, scaled, seed

_PLACES = ("location", "warehouse", "catalog")
_MORE_THAN_ALL = 1_000_000


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    """A catalog to attack. A Spark session of other tests is not for it."""

    def no_session() -> Any:
        raise deltars.ConfigError("there is no active Spark session")

    monkeypatch.setattr("deltars.spark.session.active_session", no_session)
    logging.getLogger("deltars").setLevel(logging.CRITICAL)
    before = Path.cwd()
    with World(tmp_path) as opened:
        yield opened
    os.chdir(before)


def _pool(target: Target, rng: random.Random, count: int) -> list[Any]:
    pool = [*payloads.sample(rng, payloads.texts(), count), *payloads.sample(rng, payloads.values(), count)]
    return (
        pool + list(payloads.sample(rng, payloads.frames(), count)) if target.annotation.startswith("Frame") else pool
    )


def _harmless(world: World, target: Target, payload: Any) -> Any:
    """Return the value, its place moved into the sandbox; object stores, which take minutes to refuse, are left out."""
    if not isinstance(payload, str):
        return payload
    if "s3://" in payload or "http://" in payload:
        return "memory-store"
    if target.parameter in _PLACES and payload.startswith(("/", "file:", "~")):
        return payload.replace("/", f"{world.root}/", 1)
    return payload


@pytest.mark.soak(only=True)
@pytest.mark.timeout(7_200)
@pytest.mark.parametrize("owner", ["Catalog", "Table", "Transaction", "others"])
def test_a_hostile_argument_is_refused_before_anything_changes(world: World, owner: str) -> None:
    count = int(os.environ.get("DELTARS_TEST_HOSTILE_VALUES", _MORE_THAN_ALL))
    chosen = [
        target
        for target in surface.targets()
        if target.owner == owner or (owner == "others" and target.owner not in ("Catalog", "Table", "Transaction"))
    ]
    findings: list[Finding] = []
    calls = 0
    for target in chosen:
        # Each parameter has its own lot: a new call does not change those of others.
        for payload in _pool(target, random.Random(f"{seed()} {target}"), count):
            calls += 1
            found = attack(world, target, _harmless(world, target, payload))
            if found is not None:
                findings.append(found)
    record(f"hostile arguments, {owner}", calls=calls, parameters=len(chosen), findings=len(findings))
    assert not findings, "\n".join(map(str, findings[:40]))


def test_every_public_class_is_attacked_or_says_why_not() -> None:
    named = {owner for owner, _, calls in surface.owners() if calls}
    known = {*surface.RECEIVERS, *surface.NOT_ATTACKED, *(name.partition(".")[0] for name in surface.NOT_ATTACKED)}
    assert named - known - {"MultiTableTransaction"} == set()


def test_there_are_a_thousand_hostile_texts() -> None:
    assert len(payloads.texts()) >= 1_000


def test_a_call_that_breaks_the_rule_is_found(world: World) -> None:
    """The control: errors of others, changes before an error, and damage outside are findings."""
    target = Target("Catalog", "table", "table", "TableLike")

    def wrong_error(world: World, target: Target, payload: Any) -> None:
        raise KeyError(payload)

    def changes_first(world: World, target: Target, payload: Any) -> None:
        world.catalog.write("features", frame())
        raise deltars.ValidationError("too late")

    def writes_outside(world: World, target: Target, payload: Any) -> None:
        (world.root / "outside" / "pwned").write_text("x")

    def unreadable(world: World, target: Target, payload: Any) -> None:
        error = deltars.ValidationError("x")
        error.message = "\x1b[2J"
        raise error

    for call in (wrong_error, changes_first, writes_outside, unreadable):
        assert attack(world, target, "x", call) is not None
    assert attack(world, target, "features") is None


# -- exact round trips -------------------------------------------------------------------------------------------------


@pytest.mark.soak
def test_a_text_that_is_accepted_comes_back_exactly(world: World) -> None:
    """Names, properties, comments, committers, values and partition values: as given, or refused."""
    rng = random.Random(seed() if is_soak() else 28)
    accepted = 0
    texts = [
        text for text in payloads.sample(rng, payloads.texts(), scaled(12, soak=_MORE_THAN_ALL)) if len(text) < 100_000
    ]
    for text in texts:
        for keep in (_as_name, _as_property, _as_committer, _as_tag, _as_value):
            try:
                seen = keep(world.catalog, text)
            except deltars.DeltarsError:
                continue
            accepted += 1
            assert seen == text, f"{keep.__name__}: {seen!a:.200} in place of {text!a:.200}"
        world.reset()
    record("hostile texts, exact round trips", texts=len(texts), accepted=accepted)
    assert accepted > len(texts)


def _as_name(catalog: deltars.Catalog, text: str) -> str:
    made = catalog.create_table(text, "id BIGINT")
    with deltars.connect(catalog.uri) as again:
        found = {table.id: table.name for table in again.tables()}
    return found[made.id]


def _as_property(catalog: deltars.Catalog, text: str) -> str:
    catalog.set_properties("features", {"owner": text})
    with deltars.connect(catalog.uri) as again:
        return again.table("features").properties["owner"]


def _as_committer(catalog: deltars.Catalog, text: str) -> str:
    with catalog.begin(committer=text) as tx:
        tx.write("features", frame())
    return str(catalog.table("features").history(1)[0].committer)


def _as_tag(catalog: deltars.Catalog, text: str) -> str:
    catalog.tag(text, description=text)
    (found,) = (tag for tag in catalog.tags() if tag.name != "first")
    assert found.description == text
    return found.name


def _as_value(catalog: deltars.Catalog, text: str) -> str:
    import pyarrow as pa

    if text in catalog or not payloads.is_unicode(text):
        raise deltars.ValidationError("no value of a column")
    catalog.create_table("kept", "p STRING, v STRING", partition_by="p")
    catalog.write("kept", pa.table({"p": [text], "v": [text]}))
    (row,) = catalog.table("kept").to_arrow().to_pylist()
    assert row["v"] == text
    return str(row["p"]) if text else text
