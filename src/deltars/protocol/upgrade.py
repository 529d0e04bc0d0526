"""Upgrade of a table's protocol: which features it adds, and what that means for programs that read the table."""

from __future__ import annotations

from dataclasses import dataclass

from deltars.protocol.actions import Protocol
from deltars.protocol.features import FEATURES, supported_features

_FOR_READERS = {
    "columnMapping": (
        "data files name columns by physical names, so that columns can be renamed and dropped. delta-spark, DuckDB and"
        " deltalake's QueryBuilder read such tables; deltalake's to_pyarrow_* and Polars refuse them."
    ),
    "deletionVectors": (
        "deleted rows stay in the data files, and a vector marks them. delta-spark, DuckDB, Polars and deltalake's"
        " QueryBuilder read such tables; deltalake's to_pyarrow_* refuses them."
    ),
    "typeWidening": (
        "older data files hold narrower types than the schema. delta-spark and DuckDB read such tables; deltalake and"
        " Polars refuse them."
    ),
    "timestampNtz": "a column has times without a zone. Every current reader knows them.",
    "v2Checkpoint": "checkpoints have another form. deltalake's to_pyarrow_* and Polars refuse the table.",
    "vacuumProtocolCheck": "a vacuum must check the protocol first. deltalake and Polars refuse the table.",
}
"""What readers must know, by the feature. Features that are not listed here concern writers only."""


@dataclass(frozen=True, slots=True)
class ProtocolUpgrade:
    """An upgrade of a table's protocol by a change of its definition. `Table.drop_feature` is the way back."""

    before: Protocol
    after: Protocol

    @property
    def features(self) -> tuple[str, ...]:
        """The features that the table did not have before."""
        new = supported_features(self.after) - supported_features(self.before)
        return tuple(name for name in self.after.writer_features or () if name in new)

    @property
    def explanation(self) -> str:
        """What changes for readers, feature by feature."""
        return "\n".join(map(explain_feature, self.features))

    def __str__(self) -> str:
        return self.explanation


def explain_feature(name: str) -> str:
    """Return what a new feature of a table means for programs that read it."""
    if name in FEATURES and not FEATURES[name].is_reader:
        return f"{name}: nothing changes for readers."
    return f"{name}: {_FOR_READERS.get(name, 'readers must know this feature.')}"
