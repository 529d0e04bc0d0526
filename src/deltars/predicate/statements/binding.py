"""Fragments with the values of their parameters, and without the qualifiers of their table.

    t.score + :bonus   ──▶   score + 5          for `tx.update`, which knows one table and no parameters

A value becomes exactly one literal, at the place of its parameter. It is never part of the text before it is parsed, so
nothing in a value can end the literal. Errors point at the place in the user's text.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from typing import Any, TypeAlias

from deltars.errors import PredicateError, ValidationError, brief
from deltars.predicate.source import Source
from deltars.predicate.statements.tokens import Token, tokens_of
from deltars.predicate.statements.tree import Fragment
from deltars.predicate.tree import literal_sql

Arguments: TypeAlias = Mapping[str, Any] | Sequence[Any] | None

_PARAMETER = "Give the values as args={'name': value}, or as a list for ?."


@dataclass(frozen=True, slots=True)
class Bound:
    """A fragment's text with values in place of parameters."""

    text: str
    places: tuple[tuple[int, int], ...]
    """Positions in `text`, and the positions of the same characters in the user's text; in order."""

    def position(self, place: int) -> int:
        """Return the position in the user's text."""
        inside, outside = max((pair for pair in self.places if pair[0] <= place), default=(0, 0))
        return outside + place - inside


class Binder:
    """Binds the fragments of one text to the values of its parameters."""

    def __init__(self, source: Source, args: Arguments) -> None:
        self.source = source
        if args is not None and (isinstance(args, str) or not isinstance(args, Mapping | Sequence)):
            raise ValidationError(f"args must be a dict or a list, got {brief(args)}", field="args", hint=_PARAMETER)
        self._args = args
        self._order: dict[int, int] = {}
        if not isinstance(args, Mapping):
            marks = [token.start for token in tokens_of(source) if token.matches("?")]
            self._order = {start: place for place, start in enumerate(marks)}
            if args is not None and len(marks) != len(args):
                raise ValidationError(
                    f"the statement has {len(marks)} parameters, and args has {len(args)} values", field="args"
                )

    def native(self, marks: Sequence[int]) -> dict[str, Any] | list[Any] | None:
        """Return the values for Spark, of a query with parameters without a name at these positions."""
        args = self._args
        if args is None or isinstance(args, Mapping):
            return None if args is None else dict(args)
        return [args[self._order[mark]] for mark in marks] or None

    def bound(self, fragment: Fragment, qualifiers: Collection[str] = (), columns: Collection[str] = ()) -> Bound:
        """Return the text of a fragment: values for parameters, and `column` for `qualifier.column`.

        A qualifier is one only before a name of these columns, as in Spark: else it is a column, and the name a field.
        """
        if not qualifiers and not any(mark in fragment.text for mark in ":?"):
            return Bound(fragment.text, ((0, fragment.start),))
        known, outer = {name.lower() for name in columns}, {name.lower() for name in qualifiers}
        text, places, end = "", [(0, fragment.start)], 0
        for start, stop, replacement in self._replaced(fragment, outer, known):
            text += fragment.text[end:start] + replacement
            end = stop
            places.append((len(text), fragment.start + end))
        return Bound(text + fragment.text[end:], tuple(places))

    def _replaced(self, fragment: Fragment, outer: set[str], known: set[str]) -> Iterator[tuple[int, int, str]]:
        tokens = tokens_of(Source(fragment.text, "statement"))
        for place, token in enumerate(tokens[:-1]):
            before = tokens[place - 1] if place else None
            after = tokens[place + 1]
            if token.matches(":") and after.kind == "word" and _is_parameter(before, token, after):
                yield token.start, after.end, self._literal(after.text, fragment.start + token.start)
            elif token.matches("?"):
                yield token.start, token.end, self._literal(None, fragment.start + token.start)
            elif (
                token.kind in ("word", "quoted")
                and token.text.lower() in outer
                and after.matches(".")
                and not (before is not None and before.matches("."))
                and tokens[place + 2].text.lower() in known
            ):
                yield token.start, after.end, ""

    def _literal(self, name: str | None, position: int) -> str:
        args = self._args
        if name is None:
            if args is None or isinstance(args, Mapping):
                raise self.source.error_at("there is no value for ?", position, hint=_PARAMETER)
            value = args[self._order[position]]
        else:
            if not isinstance(args, Mapping) or name not in args:
                raise self.source.error_at(f"there is no value for the parameter :{name}", position, hint=_PARAMETER)
            value = args[name]
        shown = "?" if name is None else f":{name}"
        if type(value).__module__ == "numpy" and hasattr(value, "item"):
            value = value.item()
        if value is None:
            return "NULL"
        if not isinstance(value, bool | int | float | Decimal | str | bytes | date):
            raise self.source.error_at(
                f"the value of {shown} cannot be used here: {brief(value)}",
                position,
                hint="Give a number, text, bytes, bool, date, time or None.",
            )
        # In parentheses, so that a negative number stays one operand.
        return f"({literal_sql(value)})"

    @contextmanager
    def located(self, bound: Bound) -> Iterator[None]:
        """Let an error in the text of a fragment point at the user's text."""
        try:
            yield
        except PredicateError as error:
            if error.position is None or error.problem is None:
                raise
            raise self.source.error_at(error.problem, bound.position(error.position), hint=error.hint or "") from None


def _is_parameter(before: Token | None, colon: Token, name: Token) -> bool:
    """Return whether `:name` is a parameter, not the field of a variant as in `column:name`."""
    return colon.end == name.start and not (
        before is not None and before.end == colon.start and before.kind in ("word", "quoted", "string")
    )


__all__ = ["Arguments", "Binder", "Bound"]
