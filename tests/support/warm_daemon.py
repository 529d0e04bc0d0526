"""Spark's daemon of Python workers, with what every worker imports imported before it forks them.

A worker of the session of the tests spends half a second on pandas, pyarrow and pyspark, and most live for one test.
"""

from __future__ import annotations

import pandas  # noqa: F401
import pyarrow.compute
import pyarrow.dataset
import pyarrow.parquet
import pyspark.sql.pandas.serializers
import pyspark.worker  # noqa: F401
from pyspark.daemon import manager

if __name__ == "__main__":
    manager()
