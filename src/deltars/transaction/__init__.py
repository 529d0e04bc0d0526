"""Transactions: staged in Python, committed as one SQL transaction over any number of tables."""

from deltars.transaction.alter import Alter
from deltars.transaction.change_metrics import ChangeMetrics
from deltars.transaction.merge_builder import MergeBuilder
from deltars.transaction.options import BeginOptions, ChangeOptions, MirrorChoice, WriteMode, WriteOptions
from deltars.transaction.plane import Frame, SupportsArrowStream
from deltars.transaction.raw_log import CommitResult, SqlTxnLogReader, SqlTxnLogWriter, TxnLogReader, TxnLogWriter
from deltars.transaction.restoration import RestoredTable
from deltars.transaction.result import SkippedWrite, TransactionResult
from deltars.transaction.transaction import MultiTableTransaction, Transaction

__all__ = [
    "Alter",
    "BeginOptions",
    "ChangeMetrics",
    "ChangeOptions",
    "CommitResult",
    "Frame",
    "MergeBuilder",
    "MirrorChoice",
    "MultiTableTransaction",
    "RestoredTable",
    "SkippedWrite",
    "SqlTxnLogReader",
    "SqlTxnLogWriter",
    "SupportsArrowStream",
    "Transaction",
    "TransactionResult",
    "TxnLogReader",
    "TxnLogWriter",
    "WriteMode",
    "WriteOptions",
]
