"""How a frame is written: the options of `tx.write`, checked before anything is done."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from deltars.data.write_target import COMPRESSIONS
from deltars.errors import ValidationError
from deltars.transaction.metadata import check_properties

MODES = {"append": "append", "overwrite": "overwrite", "error": "error", "errorifexists": "error", "ignore": "ignore"}
PARTITION_OVERWRITES = ("static", "dynamic")


@dataclass(frozen=True, slots=True)
class WriteOptions:
    mode: str = "append"
    replace_where: str | None = None
    partition_overwrite: str = "static"
    merge_schema: bool = False
    overwrite_schema: bool = False
    partition_by: str | Sequence[str] | None = None
    properties: Mapping[str, str] | None = None
    app_id: str | None = None
    app_version: int | None = None
    target_file_size: int | None = None
    max_records_per_file: int | None = None
    compression: str | None = None

    def __post_init__(self) -> None:
        _choose("mode", self.mode, MODES)
        _choose("partition_overwrite", self.partition_overwrite, PARTITION_OVERWRITES)
        if self.compression is not None:
            _choose("compression", self.compression, COMPRESSIONS)
        object.__setattr__(self, "mode", MODES[self.mode])
        for name in ("target_file_size", "max_records_per_file"):
            value = getattr(self, name)
            if value is not None and (type(value) is not int or value < 1):
                raise ValidationError(f"{name} is a whole number from 1 on, not {value!r}", field=name)
        self._check_combinations()
        if self.properties is not None:
            check_properties(self.properties)

    def _check_combinations(self) -> None:
        overwrites = self.overwrites
        for name, is_given in (
            ("replace_where", self.replace_where is not None),
            ("overwrite_schema", self.overwrite_schema),
            ("partition_overwrite='dynamic'", self.is_dynamic),
        ):
            if is_given and not overwrites:
                raise ValidationError(f"{name} goes with mode='overwrite' only", field=name.partition("=")[0])
        if self.replace_where is not None and (self.is_dynamic or self.overwrite_schema):
            other = "partition_overwrite='dynamic'" if self.is_dynamic else "overwrite_schema"
            raise ValidationError(f"replace_where and {other} exclude each other", field="replace_where")
        if self.is_dynamic and self.overwrite_schema:
            raise ValidationError(
                "partition_overwrite='dynamic' and overwrite_schema exclude each other", field="overwrite_schema"
            )
        if self.merge_schema and self.overwrite_schema:
            raise ValidationError("merge_schema and overwrite_schema exclude each other", field="merge_schema")
        if (self.app_id is None) != (self.app_version is None):
            raise ValidationError("app_id and app_version come together", field="app_id")
        if self.app_version is not None and type(self.app_version) is not int:
            raise ValidationError(f"app_version is a whole number, not {self.app_version!r}", field="app_version")

    @property
    def overwrites(self) -> bool:
        return self.mode == "overwrite"

    @property
    def is_dynamic(self) -> bool:
        return self.partition_overwrite == "dynamic"


def _choose(name: str, value: Any, known: Mapping[str, str] | Sequence[str]) -> None:
    if value not in known:
        raise ValidationError(f"unknown {name} {value!r}", field=name, hint=f"Known are: {', '.join(known)}.")
