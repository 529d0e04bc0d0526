"""Spark's daemon of Python workers, with what every worker imports imported before it forks them.

A worker of the session of the tests spends half a second on pandas, pyarrow and pyspark, and most live for one test.
"""

from __future__ import annotations

from importlib import import_module

from pyspark.daemon import manager

for name in ("pandas", "pyarrow.compute", "pyarrow.dataset", "pyarrow.parquet", "pyspark.sql.pandas.serializers"):
    import_module(name)

if __name__ == "__main__":
    manager()
