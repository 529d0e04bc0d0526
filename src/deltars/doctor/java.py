"""The Java that Spark would start: from JAVA_HOME or, if that is not set, from the PATH."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Mapping

from deltars.doctor.finding import Finding
from deltars.errors import ConfigError

OLDEST = 17

_FIX = (
    f"Install Java {OLDEST} or newer (Debian and Ubuntu: apt install openjdk-17-jre-headless; macOS: brew install"
    " openjdk@17), or set JAVA_HOME to an installed one."
)
_VERSION = re.compile(r'version "(?:1\.)?(\d+)')


def find_java(environment: Mapping[str, str] | None = None) -> Finding:
    """Check Java by running it: a file named java need not work."""
    environment = os.environ if environment is None else environment
    home = environment.get("JAVA_HOME")
    if home:
        program: str | None = os.path.join(home, "bin", "java")
        where = f"JAVA_HOME={home}"
    else:
        program = shutil.which("java", path=environment.get("PATH", os.defpath))
        where = program or "the PATH"
    major = None if program is None else _major(program, environment)
    if major is None:
        return Finding("java", "failed", f"Spark needs Java, and no working Java was found ({where})", _FIX)
    if major < OLDEST:
        return Finding("java", "failed", f"Spark needs Java {OLDEST} or newer, but {where} is Java {major}", _FIX)
    return Finding("java", "ok", f"Java {major}, from {where}")


def require_java() -> None:
    """Raise ConfigError without a suitable Java. Spark itself would only report that its gateway has exited."""
    java = find_java()
    if java.state != "ok":
        raise ConfigError(java.found, hint=java.fix)


def _major(program: str, environment: Mapping[str, str]) -> int | None:
    try:
        run = subprocess.run([program, "-version"], capture_output=True, text=True, timeout=30, env=dict(environment))
    except (OSError, subprocess.TimeoutExpired):
        return None
    found = _VERSION.search(run.stderr + run.stdout)
    return int(found[1]) if run.returncode == 0 and found else None
