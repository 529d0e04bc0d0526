"""Tokens of a text, and a cursor that reads them.

sqlglot's tokenizer splits the text. Here some of its tokens are split further: it joins the words of CLUSTER BY, and
the number and the suffix of 1.5BD are at one place. It reads what follows SHOW as one string, unless it is told not to.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

from sqlglot import TokenType
from sqlglot.dialects.spark import Spark
from sqlglot.errors import TokenError

from deltars.errors import PredicateError
from deltars.predicate.source import Source
from deltars.predicate.statements.tree import Fragment, Name
from deltars.predicate.strings import unquoted

_STRINGS = (TokenType.STRING, TokenType.RAW_STRING, TokenType.NATIONAL_STRING)
_OPENING, _CLOSING = "([{", ")]}"
_CLOSE = "Close the quote or the comment that begins here; write a quote inside a string as \\'."


class _Tokenizer(Spark.Tokenizer):
    COMMANDS: ClassVar[set[TokenType]] = set()


@dataclass(frozen=True, slots=True)
class Token:
    kind: Literal["word", "quoted", "string", "number", "mark", "end"]
    text: str
    """As written; of a quoted name, without its quotes."""
    start: int
    end: int
    """Position behind it."""

    def matches(self, *words: str) -> bool:
        return self.kind in ("word", "mark") and self.text.upper() in words


def tokens_of(source: Source) -> list[Token]:
    """Return the tokens of a text, and one of kind "end" behind them."""
    text = source.text
    try:
        found = _Tokenizer(dialect=Spark()).tokenize(text)
    except TokenError:
        raise source.error_at("syntax error", source.readable(), hint=_CLOSE) from None
    tokens: list[Token] = []
    behind = -1
    for token in found:
        if token.start <= behind:
            continue  # The suffix of a number, at the number's place.
        behind = token.end
        raw = text[token.start : token.end + 1]
        if token.token_type == TokenType.IDENTIFIER:
            tokens.append(Token("quoted", raw[1:-1].replace("``", "`"), token.start, token.end + 1))
        elif token.token_type in _STRINGS:
            tokens.append(Token("string", raw, token.start, token.end + 1))
        elif token.token_type == TokenType.NUMBER:
            tokens.append(Token("number", raw, token.start, token.end + 1))
        else:
            for part in re.finditer(r"\S+", raw):
                kind: Literal["word", "mark"] = "word" if re.match(r"\w", part[0]) else "mark"
                tokens.append(Token(kind, part[0], token.start + part.start(), token.start + part.end()))
    return [*tokens, Token("end", "", len(text), len(text))]


class Cursor:
    """Reads the tokens of one statement from left to right."""

    def __init__(self, source: Source, tokens: Sequence[Token]) -> None:
        """Read tokens of the source; the last one is of kind "end"."""
        self.source = source
        self._tokens = tokens
        self.place = 0
        """Which token is next."""

    # -- looking -----------------------------------------------------------------------------------------------------

    @property
    def next(self) -> Token:
        return self._tokens[self.place]

    @property
    def position(self) -> int:
        return self.next.start

    @property
    def behind(self) -> int:
        """Position behind the token that was read last."""
        return self._tokens[self.place - 1].end if self.place else 0

    def ahead(self, count: int) -> Token:
        return self._tokens[min(self.place + count, len(self._tokens) - 1)]

    def is_at(self, *words: str) -> bool:
        """Return whether the next tokens are these words, one after the other. `A|B` is one of two words."""
        return all(self.ahead(place).matches(*word.split("|")) for place, word in enumerate(words))

    @property
    def is_done(self) -> bool:
        return self.next.kind == "end"

    # -- taking ------------------------------------------------------------------------------------------------------

    def advance(self) -> Token:
        token = self.next
        self.place = min(self.place + 1, len(self._tokens) - 1)
        return token

    def take(self, *words: str) -> bool:
        """Move behind these words, if they are next."""
        if not self.is_at(*words):
            return False
        for _ in words:
            self.advance()
        return True

    def expect(self, *words: str, hint: str) -> None:
        if not self.take(*words):
            raise self.missing(" ".join(words).replace("|", " or "), hint=hint)

    def expect_end(self, hint: str) -> None:
        if not self.is_done:
            raise self.error(f"{self.shown()} is not expected here", hint=hint)

    def identifier(self, what: str, *, hint: str) -> str:
        token = self.next
        if token.kind not in ("word", "quoted") or not token.text:
            raise self.missing(what, hint=hint)
        self.advance()
        return token.text

    def parts(self, what: str, *, hint: str) -> tuple[str, ...]:
        """Read a name of one or several parts: a, a.b."""
        found = [self.identifier(what, hint=hint)]
        while self.take("."):
            found.append(self.identifier(what, hint=hint))
        return tuple(found)

    def name(self, *, hint: str) -> Name:
        position = self.position
        return Name(self.parts("the name of a table", hint=hint), position)

    def name_or_path(self, *, hint: str) -> Name:
        """Read the name of a table, or its path as a string, as Delta's own commands take it."""
        position = self.position
        if self.next.kind != "string":
            return self.name(hint=hint)
        path = self.string(hint=hint)
        if "/" not in path:
            raise self.source.error_at(f"{path!r} is no path", position, hint="Write '/lake/features', or a name.")
        return Name(("delta", path), position)

    def column(self, *, hint: str) -> str:
        """Read a column, or a field of a struct, as the path that `alter` and `update` take."""
        return path_of(self.parts("the name of a column", hint=hint))

    def string(self, *, hint: str) -> str:
        """Read a string literal; 'a' 'b' is one string, and 'it''s' has one quote."""
        whole, start, previous_end = "", self.place, -1
        while (token := self.next).kind == "string":
            whole += (token.text[0] if token.start == previous_end else "") + unquoted(token.text)
            previous_end = token.end
            self.advance()
        if self.place == start:
            raise self.missing("a string in quotes", hint=hint)
        return whole

    def names_in_parentheses(self, what: str, *, hint: str) -> tuple[str, ...]:
        """Read (a, b.c): the paths of columns."""
        self.expect("(", hint=hint)
        found = [path_of(self.parts(what, hint=hint))]
        while self.take(","):
            found.append(path_of(self.parts(what, hint=hint)))
        self.expect(")", hint=hint)
        return tuple(found)

    def alias(self, *, reserved: frozenset[str]) -> str | None:
        """Read [AS] alias, if there is one; a reserved word is none."""
        if self.take("AS"):
            return self.identifier("an alias", hint="Write a name behind AS.")
        if self.next.kind == "quoted" or (self.next.kind == "word" and self.next.text.upper() not in reserved):
            return self.advance().text
        return None

    def until(self, *ends: tuple[str, ...], what: str, hint: str) -> Fragment:
        """Read an expression up to one of these words, outside of parentheses and of CASE … END, or to the end."""
        start, first, depth, cases = self.place, self.next, 0, 0
        while not self.is_done:
            if depth == 0 and cases == 0 and any(self.is_at(*end) for end in ends):
                break
            token = self.next
            if token.kind == "mark" and token.text in _OPENING:
                depth += 1
            elif token.kind == "mark" and token.text in _CLOSING:
                if depth == 0:
                    break
                depth -= 1
            elif token.kind == "word" and not (self.place > start and self._tokens[self.place - 1].matches(".")):
                cases += token.text.upper() == "CASE"
                cases -= cases > 0 and token.text.upper() == "END"
            self.advance()
        if self.place == start:
            raise self.missing(what, hint=hint)
        return Fragment(self.source.text[first.start : self.behind], first.start)

    def parenthesized(self, *, hint: str) -> Fragment:
        """Read what is between parentheses."""
        self.expect("(", hint=hint)
        first, depth, end = self.next, 1, self.position
        while True:
            if self.is_done:
                raise self.missing(")", hint="Close the parenthesis.")
            token = self.advance()
            if token.kind == "mark" and token.text in _OPENING:
                depth += 1
            elif token.kind == "mark" and token.text in _CLOSING:
                depth -= 1
                if depth == 0:
                    break
            end = token.end
        if end <= first.start:
            raise self.source.error_at("there is nothing between the parentheses", first.start, hint=hint)
        return Fragment(self.source.text[first.start : end], first.start)

    def rest(self, what: str, *, hint: str) -> Fragment:
        """Read all that is left."""
        if self.is_done:
            raise self.missing(what, hint=hint)
        first = self.next
        self.place = len(self._tokens) - 1
        return Fragment(self.source.text[first.start : self.behind], first.start)

    # -- errors ------------------------------------------------------------------------------------------------------

    def shown(self) -> str:
        token = self.next
        return "the end" if token.kind == "end" else repr(self.source.text[token.start : token.end][:50])

    def missing(self, what: str, *, hint: str) -> PredicateError:
        return self.error(f"expected {what}, found {self.shown()}", hint=hint)

    def error(self, problem: str, *, hint: str) -> PredicateError:
        return self.source.error_at(problem, self.position, hint=hint)


def path_of(parts: Sequence[str]) -> str:
    """Return a name of several parts as one text; a part that has a dot is put in backquotes."""
    return ".".join(f"`{part.replace('`', '``')}`" if "." in part or "`" in part else part for part in parts)
