"""Detection of network file systems: SQLite's shared memory and locks work within one machine only."""

from __future__ import annotations

import re
from pathlib import Path

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


def _mount(line: str) -> tuple[str, str]:
    _, point, kind, *_ = line.split(" ")
    return _ESCAPE.sub(lambda match: chr(int(match[1], 8)), point), kind


def _holds(point: str, place: str) -> bool:
    return place == point or place.startswith(point.rstrip("/") + "/")
