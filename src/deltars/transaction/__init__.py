"""Transactions: staged in Python, committed as one SQL transaction over any number of tables."""

from deltars.transaction.raw_log import CommitResult, SqlTxnLogReader, SqlTxnLogWriter, TxnLogReader, TxnLogWriter
from deltars.transaction.result import SkippedWrite, TransactionResult
from deltars.transaction.transaction import MultiTableTransaction, Transaction

__all__ = [
    "CommitResult",
    "MultiTableTransaction",
    "SkippedWrite",
    "SqlTxnLogReader",
    "SqlTxnLogWriter",
    "Transaction",
    "TransactionResult",
    "TxnLogReader",
    "TxnLogWriter",
]
