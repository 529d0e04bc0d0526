"""The `deltasql://` grammar: a catalog and, optionally, one of its tables.

    deltasql://postgres/<database>/<schema>[/<table>]?host=…&port=…&user=…&password=…&sslmode=…
    deltasql://postgres/<database>/<schema>/<namespace>/<table>, or /<namespace>.<table>
    deltasql://sqlite/<path>.db[/<table>]           relative to the working directory
    deltasql://sqlite//<path>.db[/<table>]          absolute: the path starts with a second slash
    deltasql://duckdb/<path>.duckdb[/<table>]

Parameters that a PostgreSQL URI omits come from libpq's environment variables, service file and password file.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePath
from types import MappingProxyType
from typing import Literal, TypeAlias, cast
from urllib.parse import parse_qsl, quote, unquote, urlencode, urlsplit

from deltars.errors import UriError

BackendName: TypeAlias = Literal["postgres", "sqlite", "duckdb"]

SCHEME = "deltasql"
BACKENDS: tuple[BackendName, ...] = ("postgres", "sqlite", "duckdb")
FILE_SUFFIXES = (".db", ".sqlite", ".duckdb")
SECRETS = frozenset({"password", "sslpassword"})

# The libpq parameters that a URI may set. Parameters that change how the session behaves (options, search_path) are
# excluded: deltars relies on its own session settings.
LIBPQ_PARAMETERS = frozenset(
    [
        "host",
        "hostaddr",
        "port",
        "user",
        "password",
        "passfile",
        "service",
        "connect_timeout",
        "application_name",
        "sslmode",
        "sslcert",
        "sslkey",
        "sslpassword",
        "sslrootcert",
        "sslcrl",
        "channel_binding",
        "target_session_attrs",
        "keepalives",
        "keepalives_idle",
        "keepalives_interval",
        "keepalives_count",
        "tcp_user_timeout",
        "gssencmode",
        "krbsrvname",
        "load_balance_hosts",
    ]
)


@dataclass(frozen=True, slots=True)
class CatalogUri:
    """One catalog: a backend, and the database (on PostgreSQL also the schema) that holds the log."""

    backend: BackendName
    database: str
    schema: str | None = None
    parameters: MappingProxyType[str, str] = field(default_factory=lambda: MappingProxyType({}))

    def __str__(self) -> str:
        shown = {k: "***" if k in SECRETS else v for k, v in self.parameters.items()}
        return self._render(shown)

    __repr__ = __str__

    def __hash__(self) -> int:
        return hash((self.backend, self.database, self.schema, tuple(sorted(self.parameters.items()))))

    def __reduce__(self) -> tuple[object, ...]:
        return _parse_catalog_again, (self.with_secrets(),)

    def with_secrets(self) -> str:
        """Return the whole URI, including the password. Pass it to another process; never show or log it."""
        return self._render(dict(self.parameters))

    def absolute(self) -> CatalogUri:
        """Return this catalog with an absolute path, so that it means the same in every working directory."""
        if self.backend == "postgres":
            return self
        # Exactly one slash: POSIX gives a leading double slash another meaning, and Path keeps it.
        return replace(self, database="/" + str(Path(self.database).absolute()).lstrip("/"))

    def _render(self, parameters: dict[str, str]) -> str:
        if self.schema is None:
            directories, slash, file = self.database.rpartition("/")
            path = "/".join(map(_directory, directories.split("/"))) + slash + quote(file)
        else:
            path = f"{quote(self.database, safe='')}/{quote(self.schema, safe='')}"
        query = f"?{urlencode(parameters, safe='/*')}" if parameters else ""
        return f"{SCHEME}://{self.backend}/{path}{query}"


def _parse_catalog_again(text: str) -> CatalogUri:
    return parse_catalog_uri(text)


def is_uri(text: str) -> bool:
    return text.startswith(f"{SCHEME}://")


def uri_of_file(path: PurePath) -> CatalogUri:
    """Return the embedded catalog in a file: DuckDB for `.duckdb`, else SQLite."""
    if not path.name.endswith(FILE_SUFFIXES) or path.name in FILE_SUFFIXES:
        raise UriError(
            f"{str(path)!r} is not the file of a catalog", hint=f"Its name must end in {', '.join(FILE_SUFFIXES)}."
        )
    return CatalogUri("duckdb" if path.suffix == ".duckdb" else "sqlite", str(path))


def not_ours(text: str) -> UriError:
    """Return the error for a URI of another library, with the URI of the same database."""
    return UriError(f"expected a {SCHEME}:// URI, got {redacted(text)}", hint=_spelled_for_deltars(text) or _EXAMPLE)


def _spelled_for_deltars(text: str) -> str | None:
    """Return a hint with the URI of the same database, without its password; None for an unknown kind of database."""
    scheme, separator, rest = text.partition("://")
    kind = scheme.removeprefix("jdbc:").partition("+")[0].lower()
    if kind in ("postgres", "postgresql") and separator:
        return _spelled_postgres(rest)
    if kind not in ("sqlite", "duckdb") or not separator:
        return None
    # SQLAlchemy's form: a host that is empty, then a relative path, or an absolute one with a second slash.
    path = unquote(rest.partition("?")[0].removeprefix("/"))
    if path in ("", ":memory:"):
        return f"A catalog is a file, for example deltasql://{kind}/lake.db."
    suffix = "" if path.endswith(FILE_SUFFIXES) else f". The name must end in {', '.join(FILE_SUFFIXES)}."
    return f"Write {CatalogUri(cast(BackendName, kind), path)}{suffix}"


def _spelled_postgres(rest: str) -> str:
    # A password may contain / ? or @, so everything before the last @ is credentials, and only a plain user is shown.
    credentials, at, place = rest.rpartition("@")
    user = credentials.partition(":")[0]
    address, _, query = place.partition("?")
    server, _, database = address.partition("/")
    host, _, port = server.partition(":")
    if (at and not _PLAIN.fullmatch(user)) or not all(map(_PLAIN_OR_EMPTY.fullmatch, (host, port, database))):
        return "Write deltasql://postgres/<database>/<schema>?host=…&user=…"
    given = {"host": host, "port": port, "user": user} | dict(parse_qsl(query))
    shown = {name: value for name, value in given.items() if value and name in LIBPQ_PARAMETERS - SECRETS}
    uri = CatalogUri("postgres", database or "<database>", "public", MappingProxyType(shown))
    has_password = ":" in credentials or "password" in query
    # Angle brackets mark what to replace, so they are not quoted.
    spelled = str(uri).replace("%3C", "<").replace("%3E", ">")
    return f"Write {spelled}" + (", and give the password as &password=… or in $PGPASSWORD" if has_password else "")


def parse_uri(text: str) -> tuple[CatalogUri, str | None]:
    """Return the catalog and, if the URI names one, the table."""
    _refuse_invalid_characters(text, text)
    try:
        split = urlsplit(text)
    except ValueError:
        raise UriError(f"{redacted(text)} is not a URI", hint=_EXAMPLE) from None
    if split.scheme != SCHEME:
        raise not_ours(text)
    backend = split.netloc
    if backend not in BACKENDS:
        raise UriError(
            f"unknown backend {backend.rpartition('@')[2]!r} in {redacted(text)}",
            hint=f"The backends are {', '.join(BACKENDS)}. {_EXAMPLE}",
        )
    if split.fragment:
        raise UriError(f"a {SCHEME}:// URI has no fragment: {redacted(text)}", hint="Write # as %23.")
    parameters = _parameters(text, split.query)
    if backend == "postgres":
        return _postgres(text, split.path, parameters)
    if parameters:
        raise UriError(f"{backend} URIs take no parameters, got {', '.join(sorted(parameters))} in {redacted(text)}")
    return _file(text, cast(BackendName, backend), split.path)


def parse_catalog_uri(text: str) -> CatalogUri:
    catalog, table = parse_uri(text)
    if table is not None:
        raise UriError(
            f"{redacted(text)} names the table {table!r} where a catalog is expected",
            hint=f"Connect to {catalog} and open the table by its name.",
        )
    return catalog


def parse_table_uri(text: str) -> tuple[CatalogUri, str]:
    catalog, table = parse_uri(text)
    if table is None:
        raise UriError(
            f"{redacted(text)} names a catalog, not a table",
            hint="Add the table's name at the end of the path.",
        )
    return catalog, table


_EXAMPLE = "For example deltasql://postgres/lake/public/features or deltasql://sqlite/lake.db/features."
_INVALID_CHARACTER = re.compile(r"[\x00-\x1f\x7f\ud800-\udfff]")
_NOT_ENCODED = re.compile(r"%(?![0-9A-Fa-f]{2})")
_PASSWORD = re.compile(r"(\w{0,50}(?:password|passwd|pwd)\w{0,50}\s{0,9}[=:]\s{0,9})(?:'[^']*'|\S+)", re.IGNORECASE)
_PLAIN = re.compile(r"[\w.%+-]+")
_PLAIN_OR_EMPTY = re.compile(r"[\w.%+-]*")
_CREDENTIALS = re.compile(r"[^/:]*:[^/]*@")


def redacted(text: str) -> str:
    """Quote a catalog name or URI for a message, without anything that may be a secret."""
    scheme, separator, rest = text.partition("://")
    if not separator:
        return repr(_PASSWORD.sub(r"\1***", text))
    if rest.partition("?")[0].partition("/")[0] in BACKENDS:
        rest = _CREDENTIALS.sub("***@", rest.partition("?")[0])
    elif "@" in rest:
        # A password may contain / ? or @, so everything before the last @ is hidden.
        rest = "***@" + rest.rpartition("@")[2]
    return repr(scheme + separator + rest.partition("?")[0])


def _directory(name: str) -> str:
    """Return a directory name, URL-quoted. Encode the dot of a name like `x.db`, which would parse as the database."""
    stem, dot, suffix = name.rpartition(".")
    if dot + suffix in FILE_SUFFIXES and stem:
        return f"{quote(stem)}%2E{suffix}"
    return quote(name)


def _decoded(text: str, part: str) -> str:
    try:
        decoded = unquote(part, errors="strict") if not _NOT_ENCODED.search(part) else None
    except UnicodeDecodeError:
        decoded = None
    if decoded is None:
        raise UriError(
            f"{redacted(text)} is not percent-encoded UTF-8",
            hint="Write % as %25, and other special characters as the percent-encoded bytes of their UTF-8.",
        )
    _refuse_invalid_characters(text, decoded)
    return decoded


def _refuse_invalid_characters(text: str, part: str) -> None:
    if _INVALID_CHARACTER.search(part):
        raise UriError(f"{redacted(text)} has a control character or half a surrogate pair")


def _parameters(text: str, query: str) -> dict[str, str]:
    _decoded(text, query)
    try:
        pairs = parse_qsl(query, keep_blank_values=True, strict_parsing=True) if query else []
    except ValueError:
        raise UriError(f"the parameters of {redacted(text)} are not key=value pairs joined by &") from None
    parameters = dict(pairs)
    if len(parameters) != len(pairs):
        raise UriError(f"duplicate parameter in {redacted(text)}")
    unknown = sorted(parameters.keys() - LIBPQ_PARAMETERS)
    if unknown:
        raise UriError(
            f"unknown parameter {', '.join(unknown)} in {redacted(text)}",
            hint=f"A postgres URI takes {', '.join(sorted(LIBPQ_PARAMETERS))}.",
        )
    return parameters


def _postgres(text: str, path: str, parameters: dict[str, str]) -> tuple[CatalogUri, str | None]:
    segments = [_decoded(text, segment) for segment in path.removeprefix("/").split("/")]
    if not segments[0]:
        raise UriError(f"no database in {redacted(text)}", hint=_EXAMPLE)
    if _CREDENTIALS.match(segments[0]):
        raise UriError(
            f"credentials in place of the database name in {redacted(text)}",
            hint="Write deltasql://postgres/<database>/<schema>?host=…&user=…&password=….",
        )
    if len(segments) < 2 or not segments[1]:
        raise UriError(f"no schema in {redacted(text)}", hint=f"For example deltasql://postgres/{segments[0]}/public.")
    catalog = CatalogUri("postgres", segments[0], segments[1], MappingProxyType(parameters))
    return catalog, _table(text, segments[2:])


def _file(text: str, backend: BackendName, path: str) -> tuple[CatalogUri, str | None]:
    segments = path.removeprefix("/").split("/")
    ends = [i for i, segment in enumerate(segments) if segment.endswith(FILE_SUFFIXES) and segment not in FILE_SUFFIXES]
    if not ends:
        raise UriError(
            f"no database file in {redacted(text)}",
            hint=f"Its name must end in {', '.join(FILE_SUFFIXES)}, for example deltasql://{backend}/lake.db/features.",
        )
    end = ends[0]
    rest = [_decoded(text, segment) for segment in segments[end + 1 :]]
    database = _decoded(text, "/".join(segments[: end + 1]))
    return CatalogUri(backend, database), _table(text, rest)


def _table(text: str, segments: list[str]) -> str | None:
    """Return the table of the last segments of a path: its name, or its namespace and its name."""
    if not segments:
        return None
    if "" in segments:
        raise UriError(f"{redacted(text)} has an empty table name", hint=_EXAMPLE)
    if len(segments) > 2:
        raise UriError(
            f"{redacted(text)} has too many path segments after its catalog",
            hint="After the catalog come [/<namespace>]/<table>; write a / in a name as %2F.",
        )
    if len(segments) == 2 and any("." in segment for segment in segments):
        raise UriError(
            f"{redacted(text)} has a dot in its namespace or its table",
            hint="Namespaces have one level: write <namespace>/<table>, or <namespace>.<table>.",
        )
    return ".".join(segments)
