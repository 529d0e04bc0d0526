"""Delta's options of a write, as those of `tx.write`.

Options come first, then the session's settings, as in delta-spark. Options that Delta does not know are ignored, as
Delta does. Those that it knows and deltars does not have are refused.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from deltars.errors import ValidationError
from deltars.transaction.options import WriteOptions

_DELTA = "spark.databricks.delta."
_DEFAULTS = f"{_DELTA}properties.defaults."
_SETTINGS = {
    "mergeSchema": f"{_DELTA}schema.autoMerge.enabled",
    "partitionOverwriteMode": "spark.sql.sources.partitionOverwriteMode",
    "userMetadata": f"{_DELTA}commitInfo.userMetadata",
    "maxRecordsPerFile": "spark.sql.files.maxRecordsPerFile",
    "txnAppId": f"{_DELTA}write.txnAppId",
    "txnVersion": f"{_DELTA}write.txnVersion",
}
"""The session's setting that counts if an option is not given."""

_REFUSED = {
    "replaceOn": "use replaceWhere, or tx.merge(table, rows, on)",
    "replaceUsing": "use replaceWhere, or tx.merge(table, rows, on)",
    "targetAlias": "use replaceWhere, or tx.merge(table, rows, on)",
    "writePartitionColumns": "leave it out: partition values are in the log",
}
_VERSIONS = ("delta.minreaderversion", "delta.minwriterversion")
"""Properties that choose a protocol for a new table. The protocol of a catalog's table follows from its features."""
_RESERVED = ("comment", "location", "provider", "owner", "external", "is_managed_location", "collation")
_COMPRESSIONS = {"uncompressed": "none", "lz4_raw": "lz4", "lz4raw": "lz4"}


def write_options(options: Mapping[str, str], settings: Mapping[str, str], *, overwrites: bool) -> WriteOptions:
    """Return the options of a write. `options` finds names in any case; `settings` are the session's."""
    for name, instead in _REFUSED.items():
        if name in options:
            raise ValidationError(f"the option {name} is not supported", field=name, hint=f"{instead}.".capitalize())
    if not _flag("dataChange", options.get("dataChange", "true")):
        raise ValidationError(
            "the option dataChange=false is not supported",
            field="dataChange",
            hint="Leave it out; table.optimize() writes the same rows to other files.",
        )

    def given(name: str) -> str | None:
        return options[name] if name in options else settings.get(_SETTINGS[name])

    found: dict[str, Any] = {"merge_schema": _flag("mergeSchema", given("mergeSchema") or "false")}
    if overwrites:
        found |= _overwrite_options(options, given("partitionOverwriteMode"))
    if found.get("overwrite_schema"):
        found["merge_schema"] = False
    app_id, app_version = given("txnAppId"), given("txnVersion")
    if (app_id is None) != (app_version is None):
        raise ValidationError(
            "txnAppId and txnVersion must be given together", field="txnAppId" if app_id is None else "txnVersion"
        )
    if app_id is not None:
        found |= {"app_id": app_id, "app_version": _whole("txnVersion", app_version or "")}
    if (most := _whole("maxRecordsPerFile", given("maxRecordsPerFile") or "0")) > 0:
        found["max_records_per_file"] = most
    if "compression" in options:
        found["compression"] = _COMPRESSIONS.get(options["compression"].lower(), options["compression"].lower())
    if (text := given("userMetadata")) is not None:
        found["user_metadata"] = text
    return cast(WriteOptions, found)


def _overwrite_options(options: Mapping[str, str], partition_overwrite: str | None) -> dict[str, Any]:
    found: dict[str, Any] = {}
    if _flag("overwriteSchema", options.get("overwriteSchema", "false")):
        found["overwrite_schema"] = True
    if "replaceWhere" in options:
        found["replace_where"] = options["replaceWhere"]
    mode = (partition_overwrite or "static").lower()
    if mode not in ("static", "dynamic"):
        raise ValidationError(
            f"the option partitionOverwriteMode is static or dynamic, got {mode!r}", field="partitionOverwriteMode"
        )
    # A setting of the session does not exclude the other options; an option of the write does.
    if mode == "dynamic" and ("partitionOverwriteMode" in options or not found):
        found["partition_overwrite"] = "dynamic"
    return found


def new_table_properties(given: Mapping[str, str], settings: Mapping[str, str]) -> dict[str, str]:
    """Return the properties of a new table: those among the options, and the session's defaults for others."""
    defaults = {
        f"delta.{name.removeprefix(_DEFAULTS)}": value for name, value in settings.items() if name.startswith(_DEFAULTS)
    }
    named = defaults | {name: value for name, value in given.items() if name.lower().startswith("delta.")}
    return {name: value for name, value in named.items() if name.lower() not in _VERSIONS}


def plain_properties(properties: Mapping[str, str]) -> dict[str, str]:
    """Return the properties that are the user's own. Spark reserves some names for what is no property."""
    return {name: value for name, value in properties.items() if name.lower() not in (*_RESERVED, *_VERSIONS)}


def _flag(name: str, value: str) -> bool:
    if value.lower() not in ("true", "false"):
        raise ValidationError(f"the option {name} is true or false, got {value!r}", field=name)
    return value.lower() == "true"


def _whole(name: str, value: str) -> int:
    try:
        return int(value)
    except ValueError:
        raise ValidationError(f"the option {name} is a whole number, got {value!r}", field=name) from None
