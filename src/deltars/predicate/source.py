"""A text in Spark SQL: its syntax tree from sqlglot, and errors that point at a position in it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from functools import cached_property

import sqlglot
from sqlglot import Token, TokenType, exp
from sqlglot.errors import ParseError, TokenError

from deltars.arguments import is_storable
from deltars.errors import PredicateError, brief
from deltars.predicate.strings import unquoted

_SHOWN = 100
"""Most characters that an error shows before and after its position."""
_NAMES = {
    "where": "condition",
    "on": "condition",
    "condition": "condition",
    "constraint": "condition",
    "replace_where": "condition",
    "apply_as_deletes": "condition",
    "query": "query",
    "statement": "statement",
    "expression": "expression",
}
_EXAMPLES = {
    "condition": "day = '2026-01-01' AND id > 5",
    "query": "SELECT id FROM features WHERE day = '2026-01-01'",
    "statement": "DELETE FROM features WHERE day = '2026-01-01'",
    "expression": "price * 2",
}
_INSTEAD = {
    "&&": "Write AND in place of &&.",
    ";": "Remove what follows the semicolon.",
}
"""Advice for a token that other languages have, at the place of a syntax error."""
FLATTEN = "Write fewer parentheses, or a list: x IN (1, 2, 3) in place of x = 1 OR (x = 2 OR (x = 3))."


class Source:
    """A text to parse. `field` is what its errors call it: a kind of condition, a `query` or an `expression`.

    `shown` is the text that errors show, with the same positions, if not all of it is to be parsed.
    """

    def __init__(self, text: str, field: str, shown: str | None = None) -> None:
        if not isinstance(text, str):
            raise PredicateError(
                f"{_a(_NAMES[field])} must be a string of SQL, got {brief(text)}",
                field=field,
                hint=_example(field),
            )
        if not is_storable(text.replace("\0", "")):
            raise PredicateError(
                f"{_a(_NAMES[field])} has half a surrogate pair, which is no text: {brief(text)}",
                field=field,
                hint="Clean the text: text.encode('utf-8', 'replace').decode().",
            )
        self.text = text
        self._shown = text if shown is None else shown
        self._field = field

    @property
    def what(self) -> str:
        return _a(self._field)

    def condition(self) -> exp.Expr:
        return self._tree(exp.Condition)[0]

    def statements(self) -> list[exp.Expr]:
        return self._tree(None)

    def string(self, first: exp.Expr) -> str:
        """Return the value of a string literal, read from the text, because sqlglot's escapes differ from Spark's.

        'a' 'b' is one string. So is 'it''s', where the doubled quote means one.
        """
        place = self._places.get(first.meta.get("start", -1))
        if place is None:
            # The digits of 1.5BD, which sqlglot parses as a cast.
            return str(first.this)
        whole, previous_end = "", -2
        while place < len(self._tokens) and (token := self._tokens[place]).token_type == TokenType.STRING:
            raw = self.text[token.start : token.end + 1]
            whole += (raw[0] if token.start == previous_end + 1 else "") + unquoted(raw)
            previous_end = token.end
            place += 1
        return whole

    def error(self, problem: str, node: exp.Expr, *, hint: str) -> PredicateError:
        """Return the error for a part of the text. `hint` says what to write instead."""
        starts = [inner.meta["start"] for inner in node.walk() if "start" in inner.meta]
        place = min(starts) if starts else max(0, self.text.find(node.sql("spark")))
        return self.error_at(problem, place, hint=hint)

    def error_at(self, problem: str, position: int, *, hint: str) -> PredicateError:
        line_start = self._shown.rfind("\n", 0, position) + 1
        line = self._shown[line_start:].partition("\n")[0]
        place = position - line_start
        if len(line) > 2 * _SHOWN:
            first = max(0, place - _SHOWN)
            before, after = "…" * (first > 0), "…" * (place + _SHOWN < len(line))
            line, place = before + line[first : place + _SHOWN] + after, place - first + len(before)
        pointer = " " * place + "^"
        where = f"position {position + 1}"
        if line_start:
            where = f"line {self._shown.count(chr(10), 0, position) + 1}, column {position - line_start + 1}"
        message = f"{problem}, at {where} of the {self._field}:\n  {line}\n  {pointer}"
        return PredicateError(
            message, position=position, problem=problem, text=self._shown, field=self._field, hint=hint
        )

    def without(self, spans: Iterable[tuple[int, int]]) -> Source:
        """Return the source with blanks in place of these parts. Errors show the whole text."""
        text = self.text
        for start, end in spans:
            text = text[:start] + re.sub(r"[^\n]", " ", text[start:end]) + text[end:]
        return Source(text, self._field, self._shown)

    def with_names(self, names: Mapping[tuple[int, int], str]) -> Source:
        """Return the source with a name in place of each of these parts, which are longer. Positions stay."""
        text = self.text
        for (start, end), name in names.items():
            rest = re.sub(r"[^\n]", " ", text[start + len(name) : end])
            text = text[:start] + name + rest + text[end:]
        return Source(text, self._field, self._shown)

    def has(self, kind: TokenType) -> bool:
        return any(token.token_type == kind for token in self._tokens)

    def positions_of(self, kind: TokenType) -> list[int]:
        """Return the positions of the tokens of a kind; none for a text that cannot be parsed."""
        try:
            return [token.start for token in self._tokens if token.token_type == kind]
        except TokenError:
            return []

    def behind_parentheses(self, position: int) -> int:
        """Return the end of the next group in parentheses."""
        depth = 0
        for token in self._tokens:
            if token.start < position:
                continue
            depth += (token.token_type == TokenType.L_PAREN) - (token.token_type == TokenType.R_PAREN)
            if depth == 0 and token.token_type == TokenType.R_PAREN:
                return token.end + 1
        return position

    # -- syntax ------------------------------------------------------------------------------------------------------

    @cached_property
    def _tokens(self) -> list[Token]:
        return sqlglot.tokenize(self.text, read="spark")

    @cached_property
    def _places(self) -> dict[int, int]:
        return {token.start: place for place, token in enumerate(self._tokens)}

    def _tree(self, into: type[exp.Expr] | None) -> list[exp.Expr]:
        if not self.text.strip():
            raise self.error_at(f"the {_NAMES[self._field]} is empty", 0, hint=_example(self._field))
        try:
            _ = self._tokens
            if into is not None:
                return [sqlglot.parse_one(self.text, dialect="spark", into=into)]
            return [statement for statement in sqlglot.parse(self.text, dialect="spark") if statement is not None]
        except ParseError as error:
            raise self._syntax_error(error) from None
        except TokenError:
            hint = "Close the quote or the comment that begins here; write a quote inside a string as \\'."
            raise self.error_at("syntax error", self.readable(), hint=hint) from None
        except RecursionError:
            raise self.error_at("nested too deeply", 0, hint=FLATTEN) from None
        except (AttributeError, IndexError, KeyError, TypeError, ValueError) as error:
            # sqlglot does not expect every malformed text: `a{:}` raises AttributeError in its parser.
            raise self.error_at("syntax error", 0, hint=_example(self._field)) from error

    def _syntax_error(self, error: ParseError) -> PredicateError:
        hint = _example(self._field)
        if not error.errors:
            return self.error_at("syntax error", 0, hint=hint)
        first = error.errors[0]
        line, column, token = first.get("line"), first.get("col"), first.get("highlight") or ""
        if not isinstance(line, int) or not isinstance(column, int):
            return self.error_at("syntax error", 0, hint=hint)
        starts = [0, *(found.end() for found in re.finditer("\n", self.text))]
        end = starts[min(line, len(starts)) - 1] + column
        too_early = str(first.get("description")).startswith(("Required keyword", "Expecting"))
        if too_early and not self.text[end:].strip():
            return self.error_at(
                f"the {_NAMES[self._field]} ends too early",
                len(self.text.rstrip()),
                hint="Add what is missing: a value, a name, a keyword or a closing parenthesis.",
            )
        place = max(0, end - len(token))
        return self.error_at("syntax error", place, hint=self._instead_of(token, place) or hint)

    def _instead_of(self, token: str, place: int) -> str | None:
        before = self.text[:place].rstrip()
        return _INSTEAD.get(token) or next((_INSTEAD[mark] for mark in _INSTEAD if before.endswith(mark)), None)

    def readable(self) -> int:
        """Return the position up to which the text can be tokenized: that of a quote or comment left open."""
        try:
            sqlglot.tokenize(self.text, read="spark")
        except TokenError as error:
            # sqlglot tells the line and the position of a quote, and nothing of a comment.
            found = re.search(r"from \d+:(\d+)$", str(error.__cause__))
            return int(found[1]) if found else max(self.text.rfind("/*"), 0)
        return len(self.text)


def unqualified(text: str, alias: str, names: Iterable[str]) -> str:
    """Return the text with `alias.` removed before these columns. Text that has no tokens stays as it is."""
    known = {name.lower() for name in names}
    try:
        tokens = Source(text, "expression")._tokens
    except TokenError:
        return text  # the parser says what is wrong with it
    kept, done = "", 0
    for place, (first, dot, column) in enumerate(zip(tokens, tokens[1:], tokens[2:], strict=False)):
        is_start = place == 0 or tokens[place - 1].token_type != TokenType.DOT
        is_name = first.token_type != TokenType.STRING and first.text.lower() == alias.lower()
        if is_start and is_name and dot.token_type == TokenType.DOT and column.text.lower() in known:
            kept += text[done : first.start]
            done = dot.end + 1
    return kept + text[done:]


def named_in(text: str, names: Iterable[str]) -> list[str]:
    """Return the columns whose name occurs as a word in the text. It cannot refer to any other."""
    text = text.lower()
    return [name for name in names if _is_word_of(name.lower().replace("`", "``"), text)]


def _is_word_of(name: str, text: str) -> bool:
    return re.search(rf"(?<!\w){re.escape(name)}(?!\w)", text) is not None


def _example(field: str) -> str:
    return f'Write it as Spark SQL, such as "{_EXAMPLES[_NAMES[field]]}".'


def _a(noun: str) -> str:
    return f"an {noun}" if noun[0] in "aeiou" else f"a {noun}"
