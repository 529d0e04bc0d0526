"""Checks of arguments that every public call shares: flags, texts, and keywords.

table.read(versionAsOf=0) ──▶ checks_calls ───┐
tx.write(…, partitionBy=…) ─▶ check_keywords ─┴─▶ TypeError: the options, and which of them is meant
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from difflib import get_close_matches
from functools import wraps
from inspect import CO_VARARGS, CO_VARKEYWORDS
from types import FunctionType
from typing import Any, TypeVar

from deltars.errors import ValidationError, brief

REMOVE = "Remove the character U+0000 and halves of surrogate pairs."


def check_flags(**flags: Any) -> None:
    """Raise `ValidationError` unless each is True or False. The text "no" would count as true."""
    for name, value in flags.items():
        if not isinstance(value, bool):
            raise ValidationError(
                f"{name} must be True or False, got {brief(value)}", field=name, hint=f"Write {name}=True, or omit it."
            )


def check_reports(**reports: Any) -> None:
    """Raise `ValidationError` unless each is a function, or None. It would fail in the middle of the work."""
    for name, value in reports.items():
        if value is not None and not callable(value):
            raise ValidationError(f"{name} must be a function, got {brief(value)}", field=name)


def check_mappings(**mappings: Any) -> None:
    """Raise `ValidationError` unless each maps texts to values, or is None."""
    for name, value in mappings.items():
        if value is not None and not (isinstance(value, Mapping) and all(isinstance(key, str) for key in value)):
            raise ValidationError(
                f"{name} must map names to values, got {brief(value)}", field=name, hint=f'Write {name}={{"name": …}}.'
            )


def check_texts(**texts: Any) -> None:
    """Raise `ValidationError` unless each is a text that a database can store, or None."""
    for name, value in texts.items():
        if value is None:
            continue
        if not isinstance(value, str):
            raise ValidationError(
                f"{name} must be a text, got {brief(value)}", field=name, hint=f"Write {name}=str(…) or json.dumps(…)."
            )
        if not is_storable(value):
            raise ValidationError(
                f"{name} has a character that a database cannot store: {brief(value)}", field=name, hint=REMOVE
            )


def is_storable(text: str) -> bool:
    """Return whether every database can store a text: it has no NUL and is valid Unicode."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return "\0" not in text


_PARAMETERS = {
    "connect": ("warehouse", "migrate"),
    "run": ("retries", "retry_timeout"),
    "write": ("mode",),
    "delete": ("where",),
    "update": ("set", "where"),
    "merge": ("on", "target_alias", "source_alias", "merge_schema"),
    "purge": ("where",),
    "apply_changes": (
        "keys",
        "sequence_by",
        "apply_as_deletes",
        "column_list",
        "except_column_list",
        "stored_as_scd_type",
        "ignore_null_updates",
        "track_history_column_list",
        "track_history_except_column_list",
    ),
}
"""Parameters of each function that are no keyword options: users do not know the difference."""

_KEYWORDS = {"vacuum": ("retention", "dry_run", "full", "force")}
"""Keyword options of functions that take them as `**options`, for an error about a call."""


_MEANT: Mapping[str, tuple[str, ...]] = {
    "versionAsOf": ("version",),
    "version_as_of": ("version",),
    "snapshot_id": ("version",),
    "timestampAsOf": ("timestamp",),
    "timestamp_as_of": ("timestamp",),
    "tag": ("as_of",),
    "filter": ("where",),
    "filters": ("where",),
    "row_filter": ("where",),
    "predicate": ("where", "on", "replace_where"),
    "partition_filters": ("where", "replace_where"),
    "partitions": ("where",),
    "updates": ("set",),
    "enforce_retention_duration": ("force",),
    "days": ("older_than",),
    "condition": ("where", "on"),
    "selected_fields": ("columns",),
    "select": ("columns",),
    "max_retries": ("retries",),
    "partitionBy": ("partition_by",),
    "mergeSchema": ("merge_schema",),
    "overwriteSchema": ("overwrite_schema",),
    "replaceWhere": ("replace_where",),
    "isolation_level": ("isolation",),
    "exist_ok": ("if_not_exists",),
}
"""Options of deltars by the keywords of delta-spark, deltalake, PyIceberg and pyarrow."""

_INSTEAD = {
    "txn_id": "catalog.begin(txn_id=…) takes it, for a whole transaction",
    "isolation": "catalog.begin(isolation=…) takes it, for a whole transaction",
    "schema_mode": "merge_schema=True adds columns, overwrite_schema=True replaces them",
    "storage_options": "deltars.connect(…, storage_options=…) takes them",
    "limit": "table.head(10) returns a few rows",
    "if_exists": 'look first: if "features" in catalog',
    "ignore_if_not_exists": 'look first: if "features" in catalog',
}
"""What to do about keywords of others that no option replaces."""


def check_keywords(function: str, given: Mapping[str, object], known: type) -> None:
    """Raise `TypeError` for a keyword that the TypedDict `known` does not have, as Python does for a parameter."""
    for name in given:
        if name not in known.__annotations__:
            raise _unexpected(function, name, (*_PARAMETERS.get(function, ()), *known.__annotations__))


def _unexpected(function: str, name: str, options: Collection[str]) -> TypeError:
    known = f"options are {', '.join(options)}" if options else "it has no options"
    said = f"{function}() got an unexpected keyword argument {name!r}; {known}"
    meant = _meant(name, options)
    if meant is not None:
        return TypeError(f"{said}. Write {meant}=… in place of {name}=…")
    return TypeError(f"{said}; {_INSTEAD[name]}" if name in _INSTEAD else said)


def _meant(name: str, options: Collection[str]) -> str | None:
    named = (option for option in _MEANT.get(name, ()) if option in options)
    return next(named, None) or next(iter(get_close_matches(name, options, n=1, cutoff=0.75)), None)


# -- calls with plain parameters ---------------------------------------------------------------------------------------

Class = TypeVar("Class", bound=type)
Function = TypeVar("Function", bound=Callable[..., Any])


def checks_calls(cls: Class) -> Class:
    """Make every public method of a class explain wrong arguments. Python's own error would name an internal class."""
    for name, method in list(vars(cls).items()):
        if isinstance(method, FunctionType) and not name.startswith("_"):
            setattr(cls, name, checks_call(method, skipped=1))
    return cls


def checks_call(function: Function, *, skipped: int = 0) -> Function:
    """Make a function explain wrong arguments, with its options. `skipped` counts parameters such as self.

    The code object is read, not `inspect.signature`, which would delay the start of every command.
    """
    code, name = function.__code__, function.__name__
    if code.co_flags & CO_VARARGS:
        return function
    most, takes_any = code.co_argcount, bool(code.co_flags & CO_VARKEYWORDS)
    parameters = code.co_varnames[: most + code.co_kwonlyargcount]
    least = most - len(function.__defaults__ or ())
    needed_by_name = tuple(one for one in parameters[most:] if one not in (function.__kwdefaults__ or {}))
    required = (*parameters[skipped:least], *needed_by_name)
    options = (*parameters[least:most], *parameters[most:])
    known = frozenset(parameters[skipped:])

    @wraps(function)
    def checked(*args: Any, **keywords: Any) -> Any:
        if not takes_any and not known.issuperset(keywords):
            raise _unexpected(name, next(given for given in keywords if given not in known), options)
        if len(args) > most:
            by_name = (*_KEYWORDS.get(name, ()), *parameters[most:])
            named = f"; options are {', '.join(by_name)}" if by_name else ""
            raise TypeError(f"{name}() takes its options by name, name=value, got {brief(args[most])}{named}")
        if len(args) < least or needed_by_name:
            given = {*parameters[: len(args)], *keywords}
            missing = next((one for one in required if one not in given), None)
            if missing is not None:
                wrong = next((one for one in keywords if _meant(one, (missing,)) is not None), None)
                hint = f". Write {missing}=… in place of {wrong}=…" if wrong else ""
                raise TypeError(f"{name}() needs the argument {missing!r}{hint}")
        return function(*args, **keywords)

    return checked  # type: ignore[return-value]
