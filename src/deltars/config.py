"""Settings and their sources, in this order: keyword arguments, the environment, `deltars.toml`, defaults.

DELTARS_CATALOG=deltasql://postgres/lake/public      the catalog that `connect()` opens
DELTARS_POOL_SIZE=20                                 any setting, in capitals

# deltars.toml, in the working directory or at $DELTARS_CONFIG
[catalogs.lake]
uri = "deltasql://postgres/lake/public?host=db"
warehouse = "s3://bucket/lake"
pool_size = 20
"""

from __future__ import annotations

import json
import os
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from os import PathLike
from pathlib import Path
from typing import Any, Literal, TypeAlias, get_args

from deltars.errors import ConfigError
from deltars.uri import FILE_SUFFIXES, CatalogUri, is_uri, not_ours, parse_catalog_uri, redacted, uri_of_file

Isolation: TypeAlias = Literal["strict", "serializable", "write_serializable", "snapshot"]
ISOLATION_LEVELS: tuple[Isolation, ...] = get_args(Isolation)

DEFAULT_CATALOG = "deltasql://sqlite/.deltars/lake.db"
CONFIG_FILE = "deltars.toml"
PREFIX = "DELTARS_"
MIRROR_MODES = ("inline", "async", "off")
MAX_TIMEOUT_S = 2_000_000
"""Just below PostgreSQL's limit for time-outs of 2³¹ milliseconds."""


@dataclass(frozen=True, slots=True)
class Settings:
    """Settings of a catalog. Times are in seconds."""

    timeout: float = 60.0
    """Longest duration of a commit, including waits for locks."""
    pool_size: int = 10
    pool_timeout: float = 30.0
    """Longest wait for a connection when all are in use."""
    copy_threshold: int = 1_000
    """Number of rows from which a commit uses the database's bulk load."""
    isolation: Isolation | None = None
    """Which concurrent changes to the tables that it read or writes make a transaction fail. None: what the catalog
    stores, else `strict`."""
    max_tables: int = 10
    """Most tables that one transaction may write."""
    max_files_per_table: int = 1_000
    """Most files that a transaction over several tables may add to each table."""
    mirror: str = "inline"
    """Who publishes to `_delta_log`: the committer ("inline") or the reconciler ("async"); "off": not the committer."""
    mirror_wait: float = 5.0
    """Longest wait of a commit for its publication."""
    mirror_concurrency: int = 5
    """Number of tables of one commit that are published in parallel."""
    mirror_checkpoint_interval: int = 10
    """Number of versions between checkpoints, unless a table property sets another."""
    allow_diverged: bool = False
    """Whether commits are allowed to a table whose `_delta_log` contradicts the catalog."""
    record_activity: bool = True
    """Whether the catalog records what transactions read and which races they lose, for the console and lineage."""
    metrics: bool = False
    """Whether this process collects Prometheus metrics."""
    tracing: bool = False
    """Whether this process emits OpenTelemetry spans."""
    openlineage: bool = False
    """Whether this process delivers OpenLineage events of what transactions read and wrote."""
    storage_options: Mapping[str, str] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        for name in ("timeout", "pool_timeout", "mirror_wait"):
            check_timeout(name, getattr(self, name))
        if self.isolation is not None:
            check_isolation(self.isolation)
        if self.mirror not in MIRROR_MODES:
            raise ConfigError(f"mirror must be one of {', '.join(MIRROR_MODES)}, not {self.mirror!r}")
        counts = ("pool_size", "copy_threshold", "max_tables", "max_files_per_table")
        for name in (*counts, "mirror_concurrency", "mirror_checkpoint_interval"):
            if getattr(self, name) < 1:
                raise ConfigError(f"{name} must be at least 1, not {getattr(self, name)}")


def check_isolation(level: Any) -> Isolation:
    """Return the level. Raise `ConfigError` if there is none of this name."""
    if level not in ISOLATION_LEVELS:
        raise ConfigError(f"there is no isolation level {level!r}", hint=f"Levels are {', '.join(ISOLATION_LEVELS)}.")
    found: Isolation = level
    return found


def check_timeout(name: str, seconds: Any) -> None:
    # The chained comparison also rejects NaN.
    if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not 0 < seconds <= MAX_TIMEOUT_S:
        raise ConfigError(f"{name} must be more than 0 and at most {MAX_TIMEOUT_S} seconds, not {seconds!r}")


@dataclass(frozen=True, slots=True)
class CatalogConfig:
    uri: CatalogUri
    warehouse: str | None
    settings: Settings


def configure(
    catalog: str | PathLike[str] | None = None,
    *,
    warehouse: str | PathLike[str] | None = None,
    environment: Mapping[str, str] | None = None,
    **given: Any,
) -> CatalogConfig:
    """Return the catalog's URI, its warehouse and its settings, merged from all sources."""
    environment = os.environ if environment is None else environment
    if isinstance(warehouse, PathLike):
        warehouse = os.path.abspath(warehouse)
    if isinstance(catalog, PathLike):
        catalog = uri_of_file(Path(catalog)).with_secrets()
    if catalog is not None and not isinstance(catalog, str):
        raise ConfigError(
            f"a catalog is a deltasql:// URI, a path or a name, got {catalog!r:.100}",
            hint=f"Write {DEFAULT_CATALOG!r}.",
        )
    if catalog is not None and not catalog.strip():
        raise ConfigError("the catalog's name is empty", hint="Omit it for $DELTARS_CATALOG or the embedded catalog.")
    named = catalog or environment.get(f"{PREFIX}CATALOG") or DEFAULT_CATALOG
    entry: dict[str, Any] = {}
    if not is_uri(named):
        if "://" in named:
            raise not_ours(named)
        entry = _entry_of_file(named, environment)
        named = entry.pop("uri")
    known = {setting.name: setting for setting in fields(Settings)}
    unknown = sorted(given.keys() - known.keys())
    if unknown:
        raise ConfigError(f"unknown setting {', '.join(unknown)}", hint=f"Settings are {', '.join(known)}.")
    values = dict(entry)
    values |= {name: environment[key] for name in known if (key := PREFIX + name.upper()) in environment}
    values |= {name: value for name, value in given.items() if value is not None}
    file_warehouse = values.pop("warehouse", None)
    settings = Settings(**{name: _convert(name, value) for name, value in values.items()})
    place = warehouse or environment.get(f"{PREFIX}WAREHOUSE") or file_warehouse
    return CatalogConfig(parse_catalog_uri(named).absolute(), place, settings)


def default_catalog() -> CatalogUri | None:
    """Return the catalog named by `$DELTARS_CATALOG`, or None if that is not set."""
    named = os.environ.get(f"{PREFIX}CATALOG")
    return configure(named).uri if named else None


def _convert(name: str, value: Any) -> Any:
    default = getattr(Settings(), name)
    if name == "isolation":
        return check_isolation(value)
    try:
        if isinstance(default, Mapping):
            # In an environment variable the options are a JSON object.
            options = json.loads(value) if isinstance(value, str) else value
            return {str(k): _option(v) for k, v in dict(options).items()}
        if isinstance(default, bool):
            return value if isinstance(value, bool) else _SWITCH[value.strip().lower()]
        if isinstance(value, bool) or (isinstance(default, int) and isinstance(value, float)):
            raise TypeError
        if isinstance(default, str) and not isinstance(value, str):
            raise TypeError
        return type(default)(value)
    except (TypeError, ValueError, KeyError, AttributeError):
        kind = "an object of strings" if isinstance(default, Mapping) else _KINDS[type(default)]
        # Storage options may hold keys of object stores, so they are not shown.
        shown = "" if isinstance(default, Mapping) else f", not {value!r}"
        raise ConfigError(f"{name} must be {kind}{shown}") from None


def _option(value: Any) -> str:
    """Return the option's text. Options of a single location are a nested object, passed on as JSON."""
    return json.dumps(dict(value)) if isinstance(value, Mapping) else str(value)


_KINDS = {str: "a string", int: "a whole number", float: "a number of seconds", bool: "true or false"}
_SWITCH = {"true": True, "1": True, "yes": True, "on": True, "false": False, "0": False, "no": False, "off": False}


def _entry_of_file(name: str, environment: Mapping[str, str]) -> dict[str, Any]:
    path = Path(environment.get(f"{PREFIX}CONFIG", CONFIG_FILE))
    try:
        document = tomllib.loads(path.read_text())
    except FileNotFoundError:
        raise ConfigError(
            f"{redacted(name)} is not a deltasql:// URI, and there is no {path} that defines a catalog of this name",
            hint=_suggestion(name),
        ) from None
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} is not valid TOML: {error}") from error
    catalogs = document.get("catalogs", {})
    if not isinstance(catalogs, dict):
        raise ConfigError(f"catalogs in {path} is not a table", hint="Write [catalogs.<name>] and its settings below.")
    entry = catalogs.get(name)
    if not isinstance(entry, dict):
        raise ConfigError(
            f"{path} defines no catalog {redacted(name)}", hint=f"It defines: {', '.join(catalogs) or 'none'}."
        )
    allowed = {setting.name for setting in fields(Settings)} | {"uri", "warehouse"}
    unknown = sorted(entry.keys() - allowed)
    if unknown:
        raise ConfigError(f"the catalog {name!r} of {path} has the unknown setting {', '.join(unknown)}")
    for key in ("uri", "warehouse"):
        if not isinstance(entry.get(key, ""), str):
            raise ConfigError(f"the {key} of the catalog {name!r} of {path} is not a string")
    if not entry.get("uri"):
        raise ConfigError(f"the catalog {name!r} of {path} has no uri")
    return dict(entry)


def _suggestion(name: str) -> str:
    """Return a hint with the URI that the user probably meant."""
    if name.endswith(FILE_SUFFIXES):
        return f"Write {uri_of_file(Path(name))}"
    return f"For example {DEFAULT_CATALOG}."
