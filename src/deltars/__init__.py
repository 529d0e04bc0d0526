"""Delta Lake with its transaction log in a SQL database: one commit, any number of tables."""

from deltars.catalog import Catalog, begin, connect, read, write
from deltars.errors import (
    CommitUnknown,
    ConfigError,
    DatabaseError,
    DeltarsError,
    MirrorFailure,
    SchemaMismatch,
    SchemaVersionError,
    StorageError,
    TableExists,
    TableNotFound,
    TimeoutError,
    TransactionClosed,
    TransactionTooLarge,
    UriError,
    ValidationError,
    VersionConflict,
)
from deltars.table import Table
from deltars.transaction import CommitResult, SqlTxnLogWriter, Transaction, TransactionResult, TxnLogWriter
from deltars.transaction.plane import SparkDataPlane, provide_spark

__version__ = "0.1.0"


def _spark_plane() -> SparkDataPlane:
    # The one late import: pyspark is an extra, and is not imported before a Spark frame arrives.
    from deltars.spark.plane import SparkPlane

    return SparkPlane()


provide_spark(_spark_plane)

__all__ = [
    "Catalog",
    "CommitResult",
    "CommitUnknown",
    "ConfigError",
    "DatabaseError",
    "DeltarsError",
    "MirrorFailure",
    "SchemaMismatch",
    "SchemaVersionError",
    "SqlTxnLogWriter",
    "StorageError",
    "Table",
    "TableExists",
    "TableNotFound",
    "TimeoutError",
    "Transaction",
    "TransactionClosed",
    "TransactionResult",
    "TransactionTooLarge",
    "TxnLogWriter",
    "UriError",
    "ValidationError",
    "VersionConflict",
    "begin",
    "connect",
    "read",
    "write",
]
