"""Plan of OPTIMIZE: which live files are written again together. Pure: sizes and counts in, bins out.

    live files ──by partition──▶ candidates ──in the order of their age───────▶ bins of about the target size
                                    │  smaller than a share of the target, or with too many deleted rows
                                    └─ sorted by columns: all files that are not yet part of a sorted cube

A bin of compaction becomes one file. A bin of one file is left out, unless that file has too many deleted rows. So each
run makes fewer files, or fewer deleted rows, and a plan for the result of a run is empty in the end.

A **cube** is a set of files whose rows were sorted together. Their tags name it, as Delta's do. A plan is empty if all
files of each partition are in cubes that are large enough, or in one cube.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias, TypeVar

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from deltars.log.arrow_adds import deletion_vectors
from deltars.protocol.actions import decode_partition_values

MIN_SHARE = 0.75
"""Share of the target size below which a file is a candidate."""

MAX_DELETED_SHARE = 0.05
"""Share of deleted rows above which a file is written again, whatever its size. It is Delta's default."""

CUBE_FILES = 16
"""Most files of the target size whose rows are sorted together."""

CUBE_ID, CUBE_COLUMNS, CUBE_CURVE = "ZCUBE_ID", "ZCUBE_ZORDER_BY", "ZCUBE_ZORDER_CURVE"
"""Tags of a file whose rows were sorted with those of other files."""

PLAN_COLUMNS = (
    "path",
    "size",
    "modification_time",
    "partition_values",
    "deletion_vector",
    "tags",
    "base_row_id",
    "default_row_commit_version",
    "num_records",
)
"""Columns of live files that a plan, and what carries it out, needs."""

_SMALL_TABLE, _LARGE_TABLE = 2560 << 30, 10 << 40
_SMALL_TARGET, _LARGE_TARGET = 256 << 20, 1 << 30

PartitionKey: TypeAlias = tuple[tuple[str, str | None], ...]


@dataclass(frozen=True, slots=True)
class Sizing:
    """What is small, and what has too many deleted rows."""

    target_bytes: int
    min_share: float = MIN_SHARE
    max_deleted_share: float = MAX_DELETED_SHARE
    min_files: int = 2
    """Fewest candidates of a partition that are worth a run. Files with too many deleted rows count."""

    @property
    def min_bytes(self) -> int:
        return int(self.target_bytes * self.min_share)


@dataclass(frozen=True, slots=True)
class Bin:
    """Files of one partition that are written again together."""

    partition: PartitionKey
    places: tuple[int, ...]
    """Rows of the table of files, in the order in which their rows are written."""
    size_bytes: int


@dataclass(frozen=True, slots=True)
class _File:
    place: int
    order: tuple[int, str]
    """When it was written, and its path. The version would not do: a new deletion vector changes it."""
    size_bytes: int
    """Size of the rows that are left, estimated."""
    needs_rewrite: bool
    """Whether it has too many deleted rows."""
    cube: str | None
    """Id of its cube, if that is sorted by the columns in question."""


_Part = TypeVar("_Part", _File, Bin)


def automatic_target(table_bytes: int) -> int:
    """Return the target size for a table without one: 256 MiB, growing to 1 GiB between 2.5 and 10 TiB."""
    if table_bytes <= _SMALL_TABLE:
        return _SMALL_TARGET
    share = min(1.0, (table_bytes - _SMALL_TABLE) / (_LARGE_TABLE - _SMALL_TABLE))
    return _SMALL_TARGET + int(share * (_LARGE_TARGET - _SMALL_TARGET))


def plan_compaction(files: pa.Table, sizing: Sizing) -> list[Bin]:
    """Return the bins of small files. `files` has the columns PLAN_COLUMNS."""
    may_be = pc.or_(pc.less(files["size"], sizing.min_bytes), pc.is_valid(files["deletion_vector"]))
    bins: list[Bin] = []
    for partition, found in _by_partition(files, may_be, sizing):
        candidates = [file for file in found if file.needs_rewrite or file.size_bytes < sizing.min_bytes]
        if len(candidates) < sizing.min_files and not any(file.needs_rewrite for file in candidates):
            continue
        for group in _packed(candidates, sizing.target_bytes):
            if len(group) > 1 or group[0].needs_rewrite:
                bins.append(_bin(partition, group))
    return bins


def plan_sorting(files: pa.Table, sizing: Sizing, columns: Sequence[str], curve: str) -> list[Bin]:
    """Return the bins of files to sort together by these columns. `files` has the columns PLAN_COLUMNS."""
    every = pa.repeat(True, files.num_rows)
    cube_bytes = CUBE_FILES * sizing.target_bytes
    bins: list[Bin] = []
    for partition, found in _by_partition(files, every, sizing, cube_columns(columns), curve):
        cubes: dict[str, list[_File]] = defaultdict(list)
        loose: list[_File] = []
        for file in found:
            if file.cube is None:
                loose.append(file)
            else:
                cubes[file.cube].append(file)
        # A cube with too many deleted rows is sorted again: a file that loses its neighbours is no cube.
        partial = [
            cube
            for cube in cubes.values()
            if sum(file.size_bytes for file in cube) < cube_bytes // 2 or any(file.needs_rewrite for file in cube)
        ]
        if not loose and len(partial) < 2 and not any(file.needs_rewrite for cube in partial for file in cube):
            continue
        rest = sorted([*loose, *(file for cube in partial for file in cube)], key=lambda file: file.order)
        bins += [_bin(partition, group) for group in _packed(rest, cube_bytes)]
    return bins


def cube_columns(columns: Sequence[str]) -> str:
    """Return the columns as the tag of a file has them."""
    return msgspec.json.encode(list(columns)).decode()


def in_steps(bins: Sequence[Bin], step_bytes: int) -> Iterator[list[Bin]]:
    """Return the bins that each commit contains: about `step_bytes` of files, and at least one bin."""
    return _packed(bins, step_bytes)


def _bin(partition: PartitionKey, group: Sequence[_File]) -> Bin:
    return Bin(partition, tuple(file.place for file in group), sum(file.size_bytes for file in group))


def _packed(parts: Iterable[_Part], size_bytes: int) -> Iterator[list[_Part]]:
    """Yield neighbours that together have at most the size. A larger one is alone."""
    group: list[_Part] = []
    size = 0
    for part in parts:
        if group and size + part.size_bytes > size_bytes:
            yield group
            group, size = [], 0
        group.append(part)
        size += part.size_bytes
    if group:
        yield group


def _by_partition(
    files: pa.Table, chosen: pa.Array, sizing: Sizing, columns: str | None = None, curve: str = ""
) -> Iterator[tuple[PartitionKey, list[_File]]]:
    """Yield the chosen files of each partition in the order in which they were written, the partitions in order too."""
    places = pc.indices_nonzero(chosen)
    taken = files.select(PLAN_COLUMNS).take(places)
    names = ("path", "size", "partition_values", "tags", "num_records", "modification_time")
    columns_of = zip(*(taken[name].to_pylist() for name in names), strict=True)
    vectors = deletion_vectors(taken["deletion_vector"])
    keys: dict[str, PartitionKey] = {}
    groups: dict[PartitionKey, list[_File]] = defaultdict(list)
    for place, row, vector in zip(places.to_pylist(), columns_of, vectors, strict=True):
        path, size, text, tags, records, modified = row
        if text not in keys:
            keys[text] = tuple(sorted(decode_partition_values(text).items(), key=lambda item: item[0]))
        deleted = 0 if vector is None else vector.cardinality
        # A file that does not say how many rows it has says nothing about the share either.
        share = 0.0 if not deleted else 1.0 if not records else deleted / records
        left = size if not records else size * max(0, records - deleted) // records
        cube = None if columns is None or tags is None else _cube(decode_partition_values(tags), columns, curve)
        groups[keys[text]].append(_File(place, (modified, path), left, share > sizing.max_deleted_share, cube))
    for key in sorted(groups, key=lambda key: [(name, value is not None, value or "") for name, value in key]):
        yield key, sorted(groups[key], key=lambda file: file.order)


def _cube(tags: dict[str, str | None], columns: str, curve: str) -> str | None:
    is_sorted = tags.get(CUBE_COLUMNS) == columns and tags.get(CUBE_CURVE) == curve
    return tags.get(CUBE_ID) if is_sorted else None
