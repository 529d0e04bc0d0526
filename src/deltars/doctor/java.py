"""The Java that Spark would start: the one of JAVA_HOME or, where that is not set, the one on the PATH."""

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
    " openjdk@17), or point JAVA_HOME at one that is there."
)
_VERSION = re.compile(r'version "(?:1\.)?(\d+)')


def find_java(environment: Mapping[str, str] | None = None) -> Finding:
    """Run it, and look at its version: a file of that name need not be one that works."""
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
        return Finding("java", "failed", f"Spark needs Java, and there is none that runs at {where}", _FIX)
    if major < OLDEST:
        return Finding("java", "failed", f"Spark needs Java {OLDEST} or newer, and {where} is Java {major}", _FIX)
    return Finding("java", "ok", f"Java {major}, from {where}")


def require_java() -> None:
    """Before Spark is started, which would say no more than that its gateway has exited."""
    java = find_java()
    if java.state != "ok":
        raise ConfigError(java.found, hint=java.fix)


def _major(program: str, environment: Mapping[str, str]) -> int | None:
    try:
        told = subprocess.run([program, "-version"], capture_output=True, text=True, timeout=30, env=dict(environment))
    except (OSError, subprocess.TimeoutExpired):
        return None
    found = _VERSION.search(told.stderr + told.stdout)
    return int(found[1]) if told.returncode == 0 and found else None
