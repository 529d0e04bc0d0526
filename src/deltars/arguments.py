"""Checks of arguments that every public call shares: flags and texts."""

from __future__ import annotations

from typing import Any

from deltars.errors import ValidationError

REMOVE = "Remove the character U+0000 and halves of surrogate pairs."


def check_flags(**flags: Any) -> None:
    """Raise `ValidationError` unless each is True or False. The text "no" would count as true."""
    for name, value in flags.items():
        if not isinstance(value, bool):
            raise ValidationError(
                f"{name} must be True or False, got {value!r:.100}", field=name, hint=f"Write {name}=True, or omit it."
            )


def check_texts(**texts: Any) -> None:
    """Raise `ValidationError` unless each is a text that a database can store, or None."""
    for name, value in texts.items():
        if value is None:
            continue
        if not isinstance(value, str):
            raise ValidationError(
                f"{name} must be a text, got {value!r:.100}", field=name, hint=f"Write {name}=str(…) or json.dumps(…)."
            )
        if not is_storable(value):
            raise ValidationError(
                f"{name} has a character that a database cannot store: {value!r:.100}", field=name, hint=REMOVE
            )


def is_storable(text: str) -> bool:
    """Return whether every database can store a text: it has no NUL and is valid Unicode."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return "\0" not in text
