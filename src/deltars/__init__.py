"""Delta Lake with its transaction log in a SQL database: one commit, any number of tables.

All public names are here: functions, classes, the types that calls take and return, and the errors. Names that need
SQLAlchemy, pyarrow or pyspark are loaded on first use. The errors that programs catch most are `VersionConflict`,
`CommitUnknown`, `TableNotFound`, `TableExists` and `DatabaseError`; all of them live in `deltars.errors`, and
`DeltarsError` is the base of each.
"""

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
    FeatureNotDropped,
    FilesMissing,
    HistoryExpired,
    ImportRefused,
    LogDiverged,
    MetadataChanged,
    MirrorFailure,
    NotADeltaTable,
    NotImportable,
    NotSupportedYet,
    PredicateError,
    ProtocolChanged,
    SchemaMismatch,
    SchemaVersionError,
    SourceConsumed,
    StorageError,
    TableExists,
    TableHeld,
    TableNotFound,
    TagExists,
    TagNotFound,
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
from deltars.late_names import late_names

if TYPE_CHECKING:
    from deltars.catalog import (
        Catalog,
        CatalogSnapshot,
        Changes,
        ColumnDetail,
        Expired,
        FileChange,
        PartitionDetail,
        Restored,
        Table,
        TableChange,
        TableCommitDetail,
        TableDetail,
        TableDiff,
        TransactionChanges,
        TransactionDetail,
        VersionOrMoment,
        migrate,
    )
    from deltars.catalog.activity import ConflictDetail, LineageEdge, RecordedRead, TransactionSummary
    from deltars.catalog.connection import CatalogSettings, begin, connect, read, sql, table, write
    from deltars.catalog.log_acceptance import LogComparison
    from deltars.catalog.maintenance import Maintainer, MaintenanceOutcome, MaintenanceReport, MaintenanceResult
    from deltars.catalog.recovery import Rebuilt, rebuild
    from deltars.catalog.vacuum import CatalogVacuumed, SkippedVacuum, VacuumOptions
    from deltars.config import Isolation
    from deltars.data.scan import Scan
    from deltars.doctor import Finding, diagnose
    from deltars.enabled.enable import disable, enable
    from deltars.importer import Progress
    from deltars.log.maintenance import Advice, MaintenanceRules, MaintenanceVerb, TableStatistics
    from deltars.log.moments import Moment
    from deltars.log.read_description import ReadKind
    from deltars.log.snapshot import HistoryEntry, Snapshot, Totals
    from deltars.log.transaction_id import TxnId
    from deltars.mirror import MirrorOutcome, Publication, Reconciler, Reconciliation, Repair
    from deltars.mirror.expiry import ExpiredTable
    from deltars.mirror.purge import PurgedTable
    from deltars.mirror.vacuum import Vacuumed
    from deltars.mirror.vacuum_plan import KeptReason, VacuumFile, VacuumReason
    from deltars.mirror.verify import Verification
    from deltars.protocol import (
        Action,
        AddFile,
        ArrayType,
        CdcFile,
        CommitInfo,
        DeletionVector,
        DomainMetadata,
        MapType,
        Metadata,
        PrimitiveType,
        Protocol,
        RemoveFile,
        SchemaLike,
        StructField,
        StructType,
        Txn,
    )
    from deltars.protocol.schema_like import TypeLike
    from deltars.protocol.upgrade import ProtocolUpgrade
    from deltars.session import TableLike
    from deltars.store.grants import MissingGrants
    from deltars.store.imports.reversal import Contradiction
    from deltars.store.migrations.revisions import SchemaStatus
    from deltars.store.mirror.status import MirrorMode, MirrorState, MirrorStatus
    from deltars.store.read.as_of import AsOf
    from deltars.store.read.committed_versions import CommittedTransaction, CommittedVersion
    from deltars.store.read.cuts import CutTable
    from deltars.store.tags import Tag
    from deltars.store.vacuum_rows import VacuumAmount
    from deltars.streams.each_batch import BatchFunction, EachBatch, each_batch
    from deltars.streams.transactions_stream import transactions_stream
    from deltars.transaction import (
        AliasedChangeOptions,
        Alter,
        BeginOptions,
        ChangeMetrics,
        ChangeOptions,
        CommitResult,
        FileSizes,
        Frame,
        MergeBuilder,
        MirrorChoice,
        MultiTableTransaction,
        Optimized,
        OptimizeStep,
        RestoredTable,
        SkippedFiles,
        SkippedWrite,
        SqlTxnLogReader,
        SqlTxnLogWriter,
        SupportsArrowStream,
        Transaction,
        TransactionResult,
        TxnLogReader,
        TxnLogWriter,
        WriteMode,
        WriteOptions,
    )

__version__ = "0.1.0"

if not TYPE_CHECKING:  # A module-level __getattr__ would make a type checker accept every name.
    _load = late_names(
        __name__,
        {
            "catalog": (
                "Catalog CatalogSnapshot Changes ColumnDetail Expired FileChange PartitionDetail Restored Table "
                "TableChange TableCommitDetail TableDetail TableDiff TransactionChanges TransactionDetail "
                "VersionOrMoment migrate"
            ),
            "catalog.activity": "ConflictDetail LineageEdge RecordedRead TransactionSummary",
            "catalog.connection": "CatalogSettings begin connect read sql table write",
            "catalog.log_acceptance": "LogComparison",
            "catalog.maintenance": "Maintainer MaintenanceOutcome MaintenanceReport MaintenanceResult",
            "catalog.recovery": "Rebuilt rebuild",
            "catalog.vacuum": "CatalogVacuumed SkippedVacuum VacuumOptions",
            "config": "Isolation",
            "data.scan": "Scan",
            "doctor": "Finding diagnose",
            "enabled.enable": "disable enable",
            "importer": "Progress",
            "log.maintenance": "Advice MaintenanceRules MaintenanceVerb TableStatistics",
            "log.moments": "Moment",
            "log.read_description": "ReadKind",
            "log.snapshot": "HistoryEntry Snapshot Totals",
            "log.transaction_id": "TxnId",
            "mirror": "MirrorOutcome Publication Reconciler Reconciliation Repair",
            "mirror.expiry": "ExpiredTable",
            "mirror.purge": "PurgedTable",
            "mirror.vacuum": "Vacuumed",
            "mirror.vacuum_plan": "KeptReason VacuumFile VacuumReason",
            "mirror.verify": "Verification",
            "protocol": (
                "Action AddFile ArrayType CdcFile CommitInfo DeletionVector DomainMetadata MapType Metadata "
                "PrimitiveType Protocol RemoveFile SchemaLike StructField StructType Txn"
            ),
            "protocol.schema_like": "TypeLike",
            "protocol.upgrade": "ProtocolUpgrade",
            "session": "TableLike",
            "streams.each_batch": "BatchFunction EachBatch each_batch",
            "streams.transactions_stream": "transactions_stream",
            "store.grants": "MissingGrants",
            "store.imports.reversal": "Contradiction",
            "store.migrations.revisions": "SchemaStatus",
            "store.mirror.status": "MirrorMode MirrorState MirrorStatus",
            "store.read.as_of": "AsOf",
            "store.read.committed_versions": "CommittedTransaction CommittedVersion",
            "store.read.cuts": "CutTable",
            "store.tags": "Tag",
            "store.vacuum_rows": "VacuumAmount",
            "transaction": (
                "AliasedChangeOptions Alter BeginOptions ChangeMetrics ChangeOptions CommitResult FileSizes Frame "
                "MergeBuilder "
                "MirrorChoice MultiTableTransaction OptimizeStep Optimized RestoredTable SkippedFiles "
                "SkippedWrite SqlTxnLogReader SqlTxnLogWriter SupportsArrowStream Transaction TransactionResult "
                "TxnLogReader TxnLogWriter WriteMode WriteOptions"
            ),
        },
    )

    def __getattr__(name):
        if name not in __all__:
            # Imported late: an import of the package loads nothing else.
            from deltars.verbs_to_come import refuse_import

            refuse_import(name)
        return _load(name)

    def __dir__():
        return sorted({*globals(), *__all__})


__all__ = [
    "Action",
    "AddFile",
    "Advice",
    "AliasedChangeOptions",
    "Alter",
    "ArrayType",
    "AsOf",
    "BatchFunction",
    "BeginOptions",
    "Catalog",
    "CatalogSettings",
    "CatalogSnapshot",
    "CatalogVacuumed",
    "CdcFile",
    "ChangeMetrics",
    "ChangeOptions",
    "Changes",
    "ColumnDetail",
    "CommitInfo",
    "CommitResult",
    "CommitUnknown",
    "CommittedTransaction",
    "CommittedVersion",
    "ConcurrentAppend",
    "ConcurrentDeleteDelete",
    "ConcurrentDeleteRead",
    "ConcurrentTransaction",
    "ConfigError",
    "ConflictDetail",
    "Contradiction",
    "CutTable",
    "DamagedLog",
    "DatabaseError",
    "DeletionVector",
    "DeltarsError",
    "DomainMetadata",
    "EachBatch",
    "Expired",
    "ExpiredTable",
    "FeatureNotDropped",
    "FileChange",
    "FileSizes",
    "FilesMissing",
    "Finding",
    "Frame",
    "HistoryEntry",
    "HistoryExpired",
    "ImportRefused",
    "Isolation",
    "KeptReason",
    "LineageEdge",
    "LogComparison",
    "LogDiverged",
    "Maintainer",
    "MaintenanceOutcome",
    "MaintenanceReport",
    "MaintenanceResult",
    "MaintenanceRules",
    "MaintenanceVerb",
    "MapType",
    "MergeBuilder",
    "Metadata",
    "MetadataChanged",
    "MirrorChoice",
    "MirrorFailure",
    "MirrorMode",
    "MirrorOutcome",
    "MirrorState",
    "MirrorStatus",
    "MissingGrants",
    "Moment",
    "MultiTableTransaction",
    "NotADeltaTable",
    "NotImportable",
    "NotSupportedYet",
    "OptimizeStep",
    "Optimized",
    "PartitionDetail",
    "PredicateError",
    "PrimitiveType",
    "Progress",
    "Protocol",
    "ProtocolChanged",
    "ProtocolUpgrade",
    "Publication",
    "PurgedTable",
    "ReadKind",
    "Rebuilt",
    "Reconciler",
    "Reconciliation",
    "RecordedRead",
    "RemoveFile",
    "Repair",
    "Restored",
    "RestoredTable",
    "Scan",
    "SchemaLike",
    "SchemaMismatch",
    "SchemaStatus",
    "SchemaVersionError",
    "SkippedFiles",
    "SkippedVacuum",
    "SkippedWrite",
    "Snapshot",
    "SourceConsumed",
    "SqlTxnLogReader",
    "SqlTxnLogWriter",
    "StorageError",
    "StructField",
    "StructType",
    "SupportsArrowStream",
    "Table",
    "TableChange",
    "TableCommitDetail",
    "TableDetail",
    "TableDiff",
    "TableExists",
    "TableHeld",
    "TableLike",
    "TableNotFound",
    "TableStatistics",
    "Tag",
    "TagExists",
    "TagNotFound",
    "TimeoutError",
    "TimestampTooEarly",
    "Totals",
    "Transaction",
    "TransactionChanges",
    "TransactionClosed",
    "TransactionDetail",
    "TransactionNotFound",
    "TransactionResult",
    "TransactionSummary",
    "TransactionTooLarge",
    "Txn",
    "TxnId",
    "TxnLogReader",
    "TxnLogWriter",
    "TypeLike",
    "UnsupportedFeature",
    "UriError",
    "VacuumAmount",
    "VacuumFile",
    "VacuumOptions",
    "VacuumReason",
    "Vacuumed",
    "ValidationError",
    "Verification",
    "VersionConflict",
    "VersionNotFound",
    "VersionOrMoment",
    "WarehouseTaken",
    "WriteMode",
    "WriteOptions",
    "begin",
    "connect",
    "diagnose",
    "disable",
    "each_batch",
    "enable",
    "migrate",
    "observe",
    "read",
    "rebuild",
    "sql",
    "table",
    "transactions_stream",
    "write",
]
