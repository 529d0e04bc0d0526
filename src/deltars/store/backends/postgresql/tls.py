"""Verified TLS by default: a connection that leaves this machine is encrypted, and its server is who it says it is.

| server                                       | sslmode, unless it is given    |
|----------------------------------------------|--------------------------------|
| a socket, a loopback address, `localhost`    | libpq's default (`prefer`)     |
| any other host                               | `verify-full`                  |

It is given by the URI (`&sslmode=require`), by `$PGSSLMODE`, or by a service. Certificates of authorities come from
`sslrootcert`, `$PGSSLROOTCERT` or `~/.postgresql/root.crt`, else from the system.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from ipaddress import ip_address
from pathlib import Path

HINT = (
    "Connections to other machines verify the server's certificate. Give its authority's as &sslrootcert=<file>; or add"
    " &sslmode=require to encrypt without verifying, or &sslmode=prefer for libpq's default."
)
_SAYS_OTHERWISE = ("sslmode", "service")


def with_verified_tls(parameters: Mapping[str, str], environment: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return the parameters, with `sslmode=verify-full` for another machine's server unless the user chose a mode."""
    environment = os.environ if environment is None else environment
    if any(parameters.get(name) or environment.get(f"PG{name.upper()}") for name in _SAYS_OTHERWISE):
        return dict(parameters)
    hosts = (
        parameters.get("hostaddr")
        or parameters.get("host")
        or environment.get("PGHOSTADDR")
        or environment.get("PGHOST")
        or ""
    )
    if all(_is_local(host.strip()) for host in hosts.split(",")):
        return dict(parameters)
    verified = {**parameters, "sslmode": "verify-full"}
    if not (parameters.get("sslrootcert") or environment.get("PGSSLROOTCERT") or _has_own_authority(environment)):
        verified["sslrootcert"] = "system"
    return verified


def _is_local(host: str) -> bool:
    """Return whether a host is this machine: nothing, a directory of sockets, an abstract socket, or loopback."""
    if not host or host.startswith(("/", "@")) or host.lower() == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False


def _has_own_authority(environment: Mapping[str, str]) -> bool:
    return (Path(environment.get("HOME", "/")) / ".postgresql" / "root.crt").exists()
