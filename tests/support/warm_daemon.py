"""Spark's daemon of Python workers. It imports what every worker needs before it forks them.

Otherwise each worker would spend half a second on importing pandas, pyarrow and pyspark, and most live for one test.
"""

from __future__ import annotations

from importlib import import_module

from pyspark.daemon import manager

for name in ("pandas", "pyarrow.compute", "pyarrow.dataset", "pyarrow.parquet", "pyspark.sql.pandas.serializers"):
    import_module(name)

if __name__ == "__main__":
    manager()
