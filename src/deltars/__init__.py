"""Delta Lake with its transaction log in a SQL database: one commit, any number of tables.

The public names are here; what needs SQLAlchemy, pyarrow or pyspark is loaded when it is first used.
"""

from importlib import import_module
from typing import TYPE_CHECKING

from deltars import observe
from deltars.errors import (
    CommitUnknown,
    ConcurrentAppend,
    ConcurrentDeleteDelete,
    ConcurrentDeleteRead,
    ConcurrentTransaction,
    ConfigError,
    DamagedLog,
    DatabaseError,
    DeltarsError,
    ImportRefused,
    LogDiverged,
    MetadataChanged,
    MirrorFailure,
    NotADeltaTable,
    PredicateError,
    ProtocolChanged,
    SchemaMismatch,
    SchemaVersionError,
    SourceConsumed,
    StorageError,
    TableExists,
    TableHeld,
    TableNotFound,
    TimeoutError,
    TimestampTooEarly,
    TransactionClosed,
    TransactionNotFound,
    TransactionTooLarge,
    UnsupportedFeature,
    UriError,
    ValidationError,
    VersionConflict,
    VersionNotFound,
    WarehouseTaken,
)

if TYPE_CHECKING:
    from deltars.catalog import (
        Catalog,
        CatalogSnapshot,
        Rebuilt,
        Table,
        begin,
        connect,
        migrate,
        read,
        rebuild,
        sql,
        write,
    )
    from deltars.doctor import Finding, diagnose
    from deltars.transaction import (
        CommitResult,
        MultiTableTransaction,
        SkippedWrite,
        SqlTxnLogReader,
        SqlTxnLogWriter,
        Transaction,
        TransactionResult,
        TxnLogReader,
        TxnLogWriter,
    )

__version__ = "0.1.0"

_LOADED_WHEN_USED = {
    "deltars.catalog": (
        "Catalog",
        "CatalogSnapshot",
        "Rebuilt",
        "Table",
        "begin",
        "connect",
        "migrate",
        "read",
        "rebuild",
        "sql",
        "write",
    ),
    "deltars.doctor": ("Finding", "diagnose"),
    "deltars.transaction": (
        "CommitResult",
        "MultiTableTransaction",
        "SkippedWrite",
        "SqlTxnLogReader",
        "SqlTxnLogWriter",
        "Transaction",
        "TransactionResult",
        "TxnLogReader",
        "TxnLogWriter",
    ),
}
_MODULES = {name: module for module, names in _LOADED_WHEN_USED.items() for name in names}

if not TYPE_CHECKING:  # or a type checker would take every name for one of ours

    def __getattr__(name):
        if name not in _MODULES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        value = globals()[name] = getattr(import_module(_MODULES[name]), name)
        return value

    def __dir__():
        return sorted({*globals(), *__all__})


__all__ = [
    "Catalog",
    "CatalogSnapshot",
    "CommitResult",
    "CommitUnknown",
    "ConcurrentAppend",
    "ConcurrentDeleteDelete",
    "ConcurrentDeleteRead",
    "ConcurrentTransaction",
    "ConfigError",
    "DamagedLog",
    "DatabaseError",
    "DeltarsError",
    "Finding",
    "ImportRefused",
    "LogDiverged",
    "MetadataChanged",
    "MirrorFailure",
    "MultiTableTransaction",
    "NotADeltaTable",
    "PredicateError",
    "ProtocolChanged",
    "Rebuilt",
    "SchemaMismatch",
    "SchemaVersionError",
    "SkippedWrite",
    "SourceConsumed",
    "SqlTxnLogReader",
    "SqlTxnLogWriter",
    "StorageError",
    "Table",
    "TableExists",
    "TableHeld",
    "TableNotFound",
    "TimeoutError",
    "TimestampTooEarly",
    "Transaction",
    "TransactionClosed",
    "TransactionNotFound",
    "TransactionResult",
    "TransactionTooLarge",
    "TxnLogReader",
    "TxnLogWriter",
    "UnsupportedFeature",
    "UriError",
    "ValidationError",
    "VersionConflict",
    "VersionNotFound",
    "WarehouseTaken",
    "begin",
    "connect",
    "diagnose",
    "migrate",
    "observe",
    "read",
    "rebuild",
    "sql",
    "write",
]
