"""The Python API of delta-spark, `delta.tables`, on the tables of a catalog: change the import, and keep the program.

    from deltars.tables import DeltaTable        names, arguments, results and errors of delta-spark 4.4

Each call is a call of `Table`, `Catalog` or `Transaction`. `DeltaTable.forName(spark, "features", tx=tx)` makes it part
of a transaction over any number of tables.
"""

from deltars.tables.delta_table import DeltaTable
from deltars.tables.exceptions import (
    ConcurrentAppendException,
    ConcurrentDeleteDeleteException,
    ConcurrentDeleteReadException,
    ConcurrentTransactionException,
    ConcurrentWriteException,
    DeltaAnalysisException,
    DeltaConcurrentModificationException,
    DeltaIllegalArgumentException,
    DeltaTableFeatureException,
    DeltaUnsupportedOperationException,
    MetadataChangedException,
    ProtocolChangedException,
)
from deltars.tables.merge_builder import DeltaMergeBuilder
from deltars.tables.optimize_builder import DeltaOptimizeBuilder
from deltars.tables.table_builder import DeltaTableBuilder, IdentityGenerator

__all__ = [
    "ConcurrentAppendException",
    "ConcurrentDeleteDeleteException",
    "ConcurrentDeleteReadException",
    "ConcurrentTransactionException",
    "ConcurrentWriteException",
    "DeltaAnalysisException",
    "DeltaConcurrentModificationException",
    "DeltaIllegalArgumentException",
    "DeltaMergeBuilder",
    "DeltaOptimizeBuilder",
    "DeltaTable",
    "DeltaTableBuilder",
    "DeltaTableFeatureException",
    "DeltaUnsupportedOperationException",
    "IdentityGenerator",
    "MetadataChangedException",
    "ProtocolChangedException",
]
