"""A table's definition, which changes of the schema and the properties start from and result in."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Protocol, TypeAlias

from deltars.data.conditions import Condition
from deltars.protocol import Action, DomainMetadata, Metadata, StructType, column_mapping, needed_features
from deltars.protocol import Protocol as TableProtocol
from deltars.protocol.clustering import CLUSTERING, CLUSTERING_FEATURE, clustering_columns
from deltars.protocol.column_path import ColumnPath
from deltars.protocol.upgrade import ProtocolUpgrade
from deltars.transaction.metadata import changed, raised


@dataclass(frozen=True, slots=True)
class Definition:
    metadata: Metadata
    domains: Mapping[str, DomainMetadata]
    """Domain metadata in force, by domain."""

    @property
    def schema(self) -> StructType:
        return self.metadata.schema

    @property
    def cluster_by(self) -> tuple[ColumnPath, ...]:
        """The clustering columns; none if the table is not clustered."""
        is_mapped = column_mapping(self.metadata.configuration) != "none"
        return clustering_columns(self.domains, self.schema, is_mapped=is_mapped)

    def with_metadata(self, **fields: Any) -> Definition:
        """Return the definition with other metadata. A new schema is checked, and its columns mapped."""
        return replace(self, metadata=changed(self.metadata, **fields))

    def with_schema(self, schema: StructType) -> Definition:
        return self.with_metadata(schema_string=schema.to_json())


Change: TypeAlias = Callable[[Definition], tuple[Definition, Mapping[str, Any]]]
"""Function that returns the changed definition, and what the history says of the change."""

RowCheck: TypeAlias = Callable[[Definition], Condition]
"""Function that returns the condition that every existing row must fulfil."""


class StageChange(Protocol):
    """Function that stages one change of a table's definition in an open transaction."""

    def __call__(self, change: Change, operation: str, check: RowCheck | None = None) -> ProtocolUpgrade | None:
        """Stage a change. Raise if an existing row violates the condition. Return the upgrade of the protocol."""


def definition_actions(protocol: TableProtocol, before: Definition, after: Definition) -> list[Action]:
    """Return the actions of a change: the protocol if it must be raised, the metadata, and changed domains."""
    domains = [domain for name, domain in after.domains.items() if domain != before.domains.get(name)]
    needed = needed_features(after.schema, after.metadata.configuration)
    if any(domain.domain == CLUSTERING for domain in domains):
        needed |= {CLUSTERING_FEATURE, "domainMetadata"}
    # New metadata conflicts with every concurrent commit, so it is left out where only a domain changes.
    metadata = [after.metadata] if not domains or after.metadata != before.metadata else []
    return [*raised(protocol, needed), *metadata, *domains]
