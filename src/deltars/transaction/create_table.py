"""How a table begins: where it lies, and the actions of its version 0."""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Collection, Mapping, Sequence
from uuid import UUID

from deltars.errors import ConfigError, StorageError, TableExists, ValidationError
from deltars.log.bounds import Bounds
from deltars.predicate import parse
from deltars.protocol import Action, Metadata, StructType, as_names, protocol_for_new_table
from deltars.protocol.properties import CONSTRAINT, check_property
from deltars.session import CatalogSession
from deltars.storage import Places, Relation, open_storage, parse_location, refuse_overwriting
from deltars.store.mirror.status import MirrorMode
from deltars.store.names import check_name
from deltars.transaction.metadata import begun

_log = logging.getLogger(__name__)

IN_COMMIT_TIMESTAMPS = "delta.enableInCommitTimestamps"
# What begins with _ is not for tables: `_deltars` of the warehouse is ours. 100: file systems end at 255 bytes.
_PLAIN_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,99}")


def location_of(session: CatalogSession, name: str, table_id: UUID, location: str | None) -> str:
    """The given location, checked, or a directory of the warehouse that nobody uses."""
    warehouse = session.registry.warehouse()
    place = _chosen(session, name, table_id, location, warehouse)
    claim_place(session, place, warehouse)
    if session.settings.mirror != MirrorMode.OFF:
        refuse_overwriting(open_storage(place, session.settings.storage_options))
    return place


def claim_place(session: CatalogSession, place: str, warehouse: str | None) -> None:
    """Refuse a place that is not for tables; one in the warehouse, if the warehouse is another catalog's."""
    if warehouse is None:
        return
    places = Places()
    own = f"{warehouse.rstrip('/')}/_deltars"
    relation = places.relation(place, warehouse)
    if relation in (Relation.SAME, Relation.AROUND) or places.relation(place, own) is not None:
        raise ValidationError(
            f"the location {place} {places.relation(place, own)} the directory {own}, which is the catalog's own",
            field="location",
            hint="Give the table a directory of its own, in the warehouse or elsewhere.",
        )
    if relation is Relation.INSIDE:
        try:
            session.publisher.warehouse.claim()
        except StorageError as error:
            if session.settings.mirror != MirrorMode.OFF:
                raise
            # Without publishing, a store that lacks conditional puts is good enough.
            _log.warning("the warehouse %s could not be marked as this catalog's: %s", warehouse, error)


def _chosen(session: CatalogSession, name: str, table_id: UUID, location: str | None, warehouse: str | None) -> str:
    check_name(name)
    if location is not None:
        place = str(parse_location(location))
        if _has_log(session, place):
            raise TableExists(
                f"there is a Delta table at {place} already",
                table=name,
                field="location",
                hint="Import it with catalog.import_table(location), or give another location.",
            )
        return place
    if warehouse is None:
        raise ConfigError(
            f"{session.uri} has no warehouse, so a table needs a location of its own",
            hint="Set the warehouse once, connect(…, warehouse=…), or pass location=….",
        )
    if _PLAIN_NAME.fullmatch(name):
        place = f"{warehouse.rstrip('/')}/{name}"
        if not session.registry.neighbours(place) and not _has_log(session, place):
            return place
    # A name that is no directory's, or whose directory somebody has or left behind.
    readable = re.sub(r"[^A-Za-z0-9_-]+", "_", name)[:100].strip("_") or "table"
    return f"{warehouse.rstrip('/')}/{readable}-{table_id.hex[:8]}"


def initial_actions(
    table_id: UUID,
    schema: StructType,
    *,
    partition_by: str | Sequence[str] = (),
    properties: Mapping[str, str] | None = None,
    description: str | None = None,
) -> list[Action]:
    """Protocol and metadata of version 0."""
    if not schema.fields:
        raise ValidationError("a table needs at least one column", field="schema")
    configuration = {IN_COMMIT_TIMESTAMPS: "true", **check_properties(properties or {})}
    metadata = begun(
        Metadata(
            id=str(table_id),
            description=description,
            schema_string=schema.to_json(),
            partition_columns=[_column(schema, name) for name in as_names(partition_by)],
            configuration=configuration,
            created_time=int(time.time() * 1000),
        )
    )
    Bounds(metadata.schema, metadata.partition_columns, metadata.configuration)  # refuses a range column that is none
    for key, condition in configuration.items():
        if key.startswith(CONSTRAINT):
            parse(condition, metadata.schema)  # refuses what no row could be checked against
    return [protocol_for_new_table(metadata.schema, metadata.configuration), metadata]


def check_properties(properties: Mapping[str, str]) -> dict[str, str]:
    """The properties, with their names as Delta spells them; `ValidationError` where one cannot be set so."""
    checked: dict[str, str] = {}
    for key, value in properties.items():
        if not all(isinstance(text, str) for text in (key, value)):
            raise ValidationError(
                f"the property {key!r} has the value {value!r}: keys and values are strings",
                field="properties",
            )
        if "\0" in key + value:
            raise ValidationError(f"the property {key!r} has the character U+0000", field="properties")
        name, text = check_property(key, value)
        if name in checked:
            raise ValidationError(f"the property {name} is given twice", field=name)
        checked[name] = text
    if checked.get(IN_COMMIT_TIMESTAMPS, "true").lower() != "true":
        refuse_to_turn_off([IN_COMMIT_TIMESTAMPS])
    return checked


def refuse_to_turn_off(names: Collection[str]) -> None:
    if IN_COMMIT_TIMESTAMPS in names:
        raise ValidationError(
            f"{IN_COMMIT_TIMESTAMPS} cannot be turned off: readers of the mirror need it for time travel",
            field=IN_COMMIT_TIMESTAMPS,
        )


def _column(schema: StructType, name: str) -> str:
    """A column's name as the schema spells it: case does not count."""
    for field in schema.fields:
        if field.name.lower() == name.lower():
            return field.name
    raise ValidationError(
        f"there is no column {name!r} to partition by; the columns are {', '.join(schema.names)}",
        field="partition_by",
    )


def _has_log(session: CatalogSession, location: str) -> bool:
    storage = open_storage(location, session.settings.storage_options)
    return next(iter(storage.list("_delta_log")), None) is not None
