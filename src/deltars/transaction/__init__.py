"""Transactions: staged in Python, committed as one SQL transaction over any number of tables."""

from typing import TYPE_CHECKING

from deltars.late_names import late_names

if TYPE_CHECKING:
    from deltars.transaction.alter import Alter
    from deltars.transaction.change_metrics import ChangeMetrics
    from deltars.transaction.create_table import commit_new_table, location_of, refuse_foreign_files
    from deltars.transaction.definition import StageChange
    from deltars.transaction.html import html_table
    from deltars.transaction.merge_builder import GivenMerge, MergeBuilder, begin_merge
    from deltars.transaction.optimize import optimize_or_report, optimize_table
    from deltars.transaction.optimize_plan import optimize_request
    from deltars.transaction.optimize_result import FileSizes, Optimized, OptimizeStep, SkippedFiles
    from deltars.transaction.options import (
        AliasedChangeOptions,
        BeginOptions,
        ChangeOptions,
        MirrorChoice,
        WriteMode,
        WriteOptions,
    )
    from deltars.transaction.plane import Frame, SupportsArrowStream, in_session_zone, spark_plane
    from deltars.transaction.raw_log import CommitResult, SqlTxnLogReader, SqlTxnLogWriter, TxnLogReader, TxnLogWriter
    from deltars.transaction.restoration import RestoredTable
    from deltars.transaction.result import SkippedWrite, TransactionResult
    from deltars.transaction.statements.engine import Engine
    from deltars.transaction.transaction import MultiTableTransaction, Transaction
else:
    __getattr__ = late_names(
        __name__,
        {
            "alter": "Alter",
            "change_metrics": "ChangeMetrics",
            "create_table": "commit_new_table location_of refuse_foreign_files",
            "definition": "StageChange",
            "html": "html_table",
            "merge_builder": "GivenMerge MergeBuilder begin_merge",
            "optimize": "optimize_or_report optimize_table",
            "optimize_plan": "optimize_request",
            "optimize_result": "FileSizes Optimized OptimizeStep SkippedFiles",
            "options": "AliasedChangeOptions BeginOptions ChangeOptions MirrorChoice WriteMode WriteOptions",
            "plane": "Frame SupportsArrowStream in_session_zone spark_plane",
            "raw_log": "CommitResult SqlTxnLogReader SqlTxnLogWriter TxnLogReader TxnLogWriter",
            "restoration": "RestoredTable",
            "result": "SkippedWrite TransactionResult",
            "statements.engine": "Engine",
            "transaction": "MultiTableTransaction Transaction",
        },
    )
