"""Transactions: staged in Python, committed as one SQL transaction over any number of tables."""

from deltars.transaction.alter import Alter
from deltars.transaction.options import BeginOptions, MirrorChoice, WriteMode, WriteOptions
from deltars.transaction.plane import Frame, SupportsArrowStream
from deltars.transaction.raw_log import CommitResult, SqlTxnLogReader, SqlTxnLogWriter, TxnLogReader, TxnLogWriter
from deltars.transaction.restoration import RestoredTable
from deltars.transaction.result import SkippedWrite, TransactionResult
from deltars.transaction.transaction import MultiTableTransaction, Transaction

__all__ = [
    "Alter",
    "BeginOptions",
    "CommitResult",
    "Frame",
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
