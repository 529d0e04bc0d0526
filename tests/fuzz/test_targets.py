"""Parsers of foreign input raise only errors of deltars: on seeds, on inputs found before, and on changes of both."""

from __future__ import annotations

import random

import pytest

from tests.fuzz.targets import TARGETS, Target, corpus, survives
from tests.support.soak import record, scaled, seed

MOST_CHANGES = 6
"""Most changes of one input."""


def changed(data: bytes, chance: random.Random) -> bytes:
    """Return the input with some bytes replaced, repeated, inserted or taken away."""
    made = bytearray(data)
    for _ in range(chance.randint(1, MOST_CHANGES)):
        at = chance.randrange(len(made) + 1)
        match chance.randrange(5):
            case 0:
                made[at : at + 1] = bytes([chance.randrange(256)])
            case 1:
                made[at:at] = bytes(chance.choices(b"0-\\\"'`(){}[],:\x00\xff", k=chance.randint(1, 4)))
            case 2:
                del made[at : at + chance.randint(1, 20)]
            case 3:
                made[at:at] = made[at : at + chance.randint(1, 40)]
            case _:
                other = chance.randrange(len(made) + 1)
                made[at : at + 8] = made[other : other + 8]
    return bytes(made)


@pytest.mark.soak
@pytest.mark.promise("N7")
@pytest.mark.parametrize("name", TARGETS)
def test_parser_refuses_by_an_error_of_ours_or_accepts(name: str) -> None:
    chance, target = random.Random(seed()), TARGETS[name]
    inputs = corpus(name)
    assert survives(target, inputs[0]), "the first seed must be read, or its changes reach nothing"
    for _ in range(count := scaled(120, soak=200_000)):
        data = changed(chance.choice(inputs), chance)
        try:
            survives(target, data)
        except Exception as error:
            pytest.fail(f"{name} raised {error!r} on {data!r}")
    record("parsers of foreign input", inputs=count)


@pytest.mark.control("N7")
def test_foreign_exception_of_a_parser_is_noticed() -> None:
    with pytest.raises(KeyError):
        survives(Target({b"": 1}.__getitem__, lambda: []), b"x")
