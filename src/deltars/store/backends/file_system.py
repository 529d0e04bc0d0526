"""What an embedded catalog's file is among: a network file system, where locks do not hold, and other catalogs."""

from __future__ import annotations

import re
from difflib import get_close_matches
from pathlib import Path

from deltars.uri import FILE_SUFFIXES

MOUNTS = Path("/proc/self/mounts")

_DIRECT = ("afs", "beegfs", "ceph", "cifs", "gpfs", "lustre", "nfs", "nfs4", "smb3", "smbfs")
_THROUGH_FUSE = ("fuse.ceph-fuse", "fuse.gcsfuse", "fuse.glusterfs", "fuse.rclone", "fuse.s3fs", "fuse.sshfs")
NETWORKED = frozenset((*_DIRECT, *_THROUGH_FUSE))

_ESCAPE = re.compile(r"\\([0-7]{3})")


def networked_file_system(path: Path) -> str | None:
    """Return the type of the network file system that holds this path; None if it is local or unknown."""
    try:
        mounts = MOUNTS.read_text(errors="surrogateescape")
    except OSError:
        return None  # not Linux
    place = str(path.resolve())
    held = [(point, kind) for point, kind in map(_mount, mounts.splitlines()) if _holds(point, place)]
    # A later mount on the same directory hides the earlier one.
    kind = max(enumerate(held), key=lambda entry: (len(entry[1][0]), entry[0]))[1][1] if held else ""
    return kind if kind in NETWORKED else None


def catalogs_named_like(path: Path) -> list[Path]:
    """Return other files of catalogs in the same directory whose names are similar, the most similar first."""
    try:
        names = [file.name for file in path.parent.iterdir() if file.name.endswith(FILE_SUFFIXES) and file.is_file()]
    except OSError:
        return []
    close = get_close_matches(path.name, [name for name in names if name != path.name], cutoff=0.8)
    return [path.with_name(name) for name in close]


def _mount(line: str) -> tuple[str, str]:
    _, point, kind, *_ = line.split(" ")
    return _ESCAPE.sub(lambda match: chr(int(match[1], 8)), point), kind


def _holds(point: str, place: str) -> bool:
    return place == point or place.startswith(point.rstrip("/") + "/")
