"""Schemas in DDL, as users write them.

    id BIGINT NOT NULL COMMENT 'key', tags ARRAY<STRING>, at STRUCT<x: INT, y: INT>, name VARCHAR(80)
    day DATE GENERATED ALWAYS AS (CAST(at AS DATE)), kind STRING DEFAULT 'none'

The keywords are Spark's. An error shows the text and points at the position. Expressions are kept as written.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from difflib import get_close_matches
from typing import Any, NamedTuple, TypeVar

from deltars.errors import ValidationError
from deltars.protocol.char_varchar import CHAR_VARCHAR, Limit, TypePath
from deltars.protocol.schema import ArrayType, DataType, MapType, PrimitiveType, StructField, StructType
from deltars.protocol.schema_change import NewColumn, Place

Part = TypeVar("Part")

_PRIMITIVES = {
    "BOOLEAN": "boolean",
    "TINYINT": "byte",
    "BYTE": "byte",
    "SMALLINT": "short",
    "SHORT": "short",
    "INT": "integer",
    "INTEGER": "integer",
    "BIGINT": "long",
    "LONG": "long",
    "FLOAT": "float",
    "REAL": "float",
    "DOUBLE": "double",
    "DATE": "date",
    "TIMESTAMP": "timestamp",
    "TIMESTAMP_LTZ": "timestamp",
    "TIMESTAMP_NTZ": "timestamp_ntz",
    "STRING": "string",
    "BINARY": "binary",
    "VOID": "void",
    "VARIANT": "variant",
}
_OTHER_NAMES = {
    **dict.fromkeys(("TEXT", "STR", "VARCHAR2", "NVARCHAR", "CLOB", "UUID", "JSON", "TIME", "INTERVAL"), "STRING"),
    **dict.fromkeys(("BOOL", "BIT"), "BOOLEAN"),
    "INT8": "TINYINT",
    "INT16": "SMALLINT",
    "INT32": "INT",
    **dict.fromkeys(("INT64", "SERIAL", "BIGSERIAL"), "BIGINT"),
    "FLOAT32": "FLOAT",
    "FLOAT64": "DOUBLE",
    **dict.fromkeys(("NUMBER", "MONEY", "HUGEINT", "UINT64"), "DECIMAL(38, 0)"),
    **dict.fromkeys(("DATETIME", "TIMESTAMPTZ"), "TIMESTAMP"),
    **dict.fromkeys(("BYTES", "BLOB", "BYTEA", "VARBINARY"), "BINARY"),
    "LIST": "ARRAY<INT>",
    **dict.fromkeys(("OBJECT", "RECORD", "ROW"), "STRUCT<x: INT>"),
}
"""The type to write for one that other databases and libraries have."""
_NESTED = "Write ARRAY<INT>, MAP<STRING, INT> or STRUCT<x: INT>."
_GENERATED = "Write GENERATED ALWAYS AS (expression)."
_QUOTED_NAME = "Put a name with other characters than letters, digits and _ in backquotes."
_HINTS = {
    "NULL": "Write NOT NULL.",
    "ALWAYS": _GENERATED,
    "AS": _GENERATED,
    "<": _NESTED,
    ">": _NESTED,
    ",": _NESTED,
    "(": "Write the parenthesis: VARCHAR(80), GENERATED ALWAYS AS (expression).",
    ")": "Close the parenthesis.",
    "a type": f"Write a name and its type: id BIGINT. {_QUOTED_NAME}",
    "a column name": f"Write a name and its type: id BIGINT. {_QUOTED_NAME}",
    "a string in quotes": "Write COMMENT 'text'.",
    "a number": "Write digits, as in DECIMAL(10, 2) and VARCHAR(80).",
}
"""What to write where something is missing, by what was expected."""
_DECIMALS = frozenset({"DECIMAL", "DEC", "NUMERIC"})
_LIMITED_STRINGS = frozenset({"CHAR", "CHARACTER", "VARCHAR"})

_TOKEN = re.compile(
    r"""\s*(?:
        (?P<word>\w+)
      | `(?P<quoted>(?:[^`]|``)*)`
      | '(?P<single>(?:[^'\\]|\\.|'')*)'
      | "(?P<double>(?:[^"\\]|\\.|"")*)"
      | (?P<mark>[<>(),:])
      | (?P<other>[^\s'"`])
      | (?P<end>\Z)
    )""",
    re.VERBOSE | re.DOTALL,
)
_QUOTED = ("quoted", "single", "double")
_ESCAPED = {
    "single": re.compile(r"\\(.)|''", re.DOTALL),
    "double": re.compile(r'\\(.)|""', re.DOTALL),
}
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "0": "\0", "Z": "\x1a"}


def schema_from_ddl(text: str) -> StructType:
    return _Parser(text).schema()


def new_columns_from_ddl(text: str) -> list[NewColumn]:
    """Return columns to add. Unlike a schema, names may be nested, and a column may have a place: `a.b INT AFTER c`."""
    return _Parser(text).new_columns()


def type_from_ddl(text: str) -> StructField:
    """Return a column without a name, of the type that the text names."""
    return _Parser(text).type_of_column()


def limits_of_type(text: str) -> dict[TypePath, Limit]:
    """Return the char and varchar limits inside a type, by their position."""
    return _Parser(text).limits()


class _Token(NamedTuple):
    kind: str
    text: str
    at: int

    def matches(self, word: str) -> bool:
        """Return whether this is the given keyword or mark. A name in backquotes is neither."""
        return self.kind in ("word", "mark") and self.text.upper() == word


class _Parser:
    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens = self._tokenize()
        self._next = 0
        self._path: list[str] = []
        self._limits: dict[TypePath, Limit] = {}

    def limits(self) -> dict[TypePath, Limit]:
        self._type()
        if self._peek().kind != "end":
            raise self._error("expected the end", hint="Remove what follows the type.")
        return self._limits

    def schema(self) -> StructType:
        return StructType(tuple(self._list(lambda: self._column(self._name()))))

    def new_columns(self) -> list[NewColumn]:
        return self._list(self._new_column)

    def type_of_column(self) -> StructField:
        field = self._column("")
        if self._peek().kind != "end" or not field.nullable or not field.metadata.keys() <= {CHAR_VARCHAR}:
            raise self._error("expected a type alone", hint="Write a type such as BIGINT.")
        return field

    def _list(self, part: Callable[[], Part]) -> list[Part]:
        """Parse parts with commas between them, up to the end."""
        parts = [part()]
        while self._take(","):
            parts.append(part())
        if self._peek().kind != "end":
            raise self._error(
                "expected , or the end",
                hint="Separate columns by commas. A column takes NOT NULL, COMMENT, DEFAULT and GENERATED ALWAYS AS.",
            )
        return parts

    def _new_column(self) -> NewColumn:
        *parent, name = self._path_of_names()
        field = self._column(name)
        if self._take("FIRST"):
            return NewColumn(tuple(parent), field, Place())
        place = Place(self._path_of_names()[-1]) if self._take("AFTER") else None
        return NewColumn(tuple(parent), field, place)

    def _path_of_names(self) -> list[str]:
        names = [self._name()]
        while self._peek().text == "." and self._peek().kind == "other":
            self._next += 1
            names.append(self._name())
        return names

    def _column(self, name: str) -> StructField:
        """Parse a column of the table. Unlike a field of a struct, it can be generated or have a default."""
        self._take(":")
        self._limits = {}
        start = self._peek().at
        type_ = self._type()
        metadata: dict[str, Any] = {}
        if self._limits:
            text = self._text[start : self._peek().at].strip()
            metadata[CHAR_VARCHAR] = str(self._limits[()]) if () in self._limits else text
        nullable = True
        while not (self._peek().kind == "end" or self._peek().matches(",")):
            if self._take("NOT"):
                self._expect("NULL")
                nullable = False
            elif self._take("COMMENT"):
                metadata["comment"] = self._string()
            elif self._take("GENERATED"):
                self._expect("ALWAYS")
                self._expect("AS")
                metadata["delta.generationExpression"] = self._in_parentheses()
            elif self._take("DEFAULT"):
                metadata["CURRENT_DEFAULT"] = self._expression()
            else:
                break
        return StructField(name, type_, nullable, metadata)

    def _in_parentheses(self) -> str:
        opened = self._peek()
        self._expect("(")
        start, depth = self._peek().at, 1
        while depth:
            token = self._tokens[self._next]
            if token.kind == "end":
                raise self._error("this parenthesis is never closed", opened, hint=_HINTS[")"])
            self._next += 1
            depth += token.matches("(") - token.matches(")")
        return self._not_empty(self._text[start : token.at].strip(), opened)

    def _expression(self) -> str:
        """Return the text up to the first token that cannot belong to the expression."""
        first, depth = self._peek(), 0
        while self._peek().kind != "end":
            token = self._peek()
            if depth == 0 and (
                token.matches(",") or token.matches("COMMENT") or token.matches("NOT") or token.matches(")")
            ):
                break
            depth += token.matches("(") - token.matches(")")
            self._next += 1
        return self._not_empty(self._text[first.at : self._peek().at].strip(), first)

    def _not_empty(self, expression: str, at: _Token) -> str:
        if not expression:
            raise self._error("expected an expression", at, hint="Write one, such as DEFAULT 0 or AS (id + 1).")
        return expression

    def _fields(self) -> tuple[StructField, ...]:
        fields = [self._field()]
        while self._take(","):
            fields.append(self._field())
        return tuple(fields)

    def _field(self) -> StructField:
        name = self._name()
        self._take(":")
        type_ = self._inside(name.lower())
        nullable = True
        if self._take("NOT"):
            self._expect("NULL")
            nullable = False
        metadata = {"comment": self._string()} if self._take("COMMENT") else {}
        return StructField(name, type_, nullable, metadata)

    def _inside(self, part: str) -> DataType:
        self._path.append(part)
        try:
            return self._type()
        finally:
            self._path.pop()

    def _type(self) -> DataType:
        token = self._pop("a type", "word")
        word = token.text.upper()
        if word in _PRIMITIVES:
            return PrimitiveType(_PRIMITIVES[word])
        if word in _DECIMALS:
            return self._decimal(token)
        if word == "ARRAY":
            return self._array()
        if word == "MAP":
            return self._map()
        if word == "STRUCT":
            return self._struct()
        if word in _LIMITED_STRINGS:
            return self._limited_string(word)
        raise self._error(f"Delta has no type {token.text}", token, hint=_hint_for_type(word))

    def _limited_string(self, word: str) -> PrimitiveType:
        self._expect("(")
        start = self._peek()
        length = self._number()
        if length < 1:
            raise self._error("a length is 1 or more", start, hint="Write VARCHAR(80), or STRING for any length.")
        self._expect(")")
        self._limits[tuple(self._path)] = Limit(length, is_padded=word != "VARCHAR")
        return PrimitiveType("string")

    def _decimal(self, token: _Token) -> PrimitiveType:
        precision, scale = 10, 0
        if self._take("("):
            precision = self._number()
            if self._take(","):
                scale = self._number()
            self._expect(")")
        try:
            return PrimitiveType.decimal(precision, scale)
        except ValidationError as error:
            raise self._error(
                error.message, token, hint="Write DECIMAL(precision, scale), with at most 38 digits in all."
            ) from error

    def _array(self) -> ArrayType:
        self._expect("<")
        element = self._inside("element")
        self._expect(">")
        return ArrayType(element)

    def _map(self) -> MapType:
        self._expect("<")
        key = self._inside("key")
        self._expect(",")
        value = self._inside("value")
        self._expect(">")
        return MapType(key, value)

    def _struct(self) -> StructType:
        self._expect("<")
        if self._take(">"):
            return StructType()
        fields = self._fields()
        self._expect(">")
        return StructType(fields)

    def _name(self) -> str:
        token = self._pop("a column name", "word", "quoted")
        if not token.text:
            raise self._error("expected a column name", token, hint=_HINTS["a column name"])
        return token.text

    def _string(self) -> str:
        return self._pop("a string in quotes", "single", "double").text

    def _number(self) -> int:
        token = self._pop("a number", "word")
        if not (token.text.isascii() and token.text.isdigit()):
            raise self._error("expected a number", token, hint=_HINTS["a number"])
        return int(token.text)

    def _pop(self, what: str, *kinds: str) -> _Token:
        token = self._peek()
        if token.kind not in kinds:
            raise self._error(f"expected {what}", hint=_HINTS[what])
        self._next += 1
        return token

    def _expect(self, word: str) -> None:
        if not self._take(word):
            raise self._error(f"expected {word}", hint=_HINTS[word])

    def _take(self, word: str) -> bool:
        found = self._peek().matches(word)
        self._next += found
        return found

    def _peek(self) -> _Token:
        return self._tokens[self._next]

    def _tokenize(self) -> list[_Token]:
        tokens: list[_Token] = []
        at = 0
        while not tokens or tokens[-1].kind != "end":
            found = _TOKEN.match(self._text, at)
            if found is None or found.lastgroup is None:
                start = at + len(self._text[at:]) - len(self._text[at:].lstrip())
                raise self._error(
                    "this quote is never closed", _Token("", "", start), hint="Close it; write a quote inside twice."
                )
            kind = found.lastgroup
            start = found.start(kind) - (kind in _QUOTED)
            tokens.append(_Token(kind, _unquoted(kind, found[kind]), start))
            at = found.end()
        return tokens

    def _error(self, problem: str, token: _Token | None = None, *, hint: str) -> ValidationError:
        """Return the error at a token, by default the next one. `hint` says what to write instead."""
        at = (token or self._peek()).at
        line_start = self._text.rfind("\n", 0, at) + 1
        line = self._text[line_start:].partition("\n")[0]
        pointer = " " * (at - line_start) + "^"
        return ValidationError(f"{problem} at position {at + 1} of the schema:\n  {line}\n  {pointer}", hint=hint)


def _hint_for_type(word: str) -> str:
    if word in _OTHER_NAMES:
        return f"Write {_OTHER_NAMES[word]}."
    known = [*_PRIMITIVES, "DECIMAL", "VARCHAR", "CHAR", "ARRAY", "MAP", "STRUCT"]
    close = get_close_matches(word, known, n=1)
    return f"Did you mean {close[0]}?" if close else f"The types are {', '.join(known)}."


def _unquoted(kind: str, text: str) -> str:
    if kind == "quoted":
        return text.replace("``", "`")
    if kind in _ESCAPED:
        return _ESCAPED[kind].sub(lambda found: _ESCAPES.get(found[1], found[1]) if found[1] else found[0][0], text)
    return text
