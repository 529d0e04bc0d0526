"""JARs from Maven: fetched once a run, whichever of its processes asks first."""

from __future__ import annotations

import fcntl
import shutil
import subprocess
from pathlib import Path

from tests.support.run_directory import run_directory

_POM = """<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>
<groupId>deltars</groupId><artifactId>jars</artifactId><version>1</version><dependencies><dependency>
<groupId>{group}</groupId><artifactId>{artifact}</artifactId><version>{version}</version>
<exclusions><exclusion><groupId>{without}</groupId><artifactId>*</artifactId></exclusion></exclusions>
</dependency></dependencies></project>"""


class NoJars(Exception):
    """The JARs cannot be had here."""


def fetch_jars(group: str, artifact: str, version: str, *, without: str, timeout_s: float) -> Path:
    """A directory with an artifact and what it depends on, but for what is of the group `without`."""
    maven = shutil.which("mvn")
    if maven is None:
        raise NoJars(f"there is no mvn to fetch {artifact} with")
    place = run_directory() / artifact
    place.mkdir(exist_ok=True)
    with (place / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        said = place / "said"
        if not said.exists():
            (place / "pom.xml").write_text(
                _POM.format(group=group, artifact=artifact, version=version, without=without)
            )
            said.write_text(_fetch(maven, place, timeout_s))
    if said.read_text():
        raise NoJars(f"Maven could not fetch {artifact}: {said.read_text()}")
    return place / "jars"


def _fetch(maven: str, place: Path, timeout_s: float) -> str:
    """What went wrong, or nothing."""
    command = [maven, "-q", "-B", "dependency:copy-dependencies", f"-DoutputDirectory={place / 'jars'}"]
    try:
        ended = subprocess.run(command, cwd=place, capture_output=True, text=True, check=False, timeout=timeout_s)
    except subprocess.TimeoutExpired:
        return f"no answer within {timeout_s:.0f} s"
    return ended.stdout.strip()[:300] or f"exit {ended.returncode}" if ended.returncode else ""
