"""Columns that are declared NOT NULL, in the schema of a frame.

Spark's file sources make every column nullable, because a file may hold anything. The rows of a table were checked when
they were written, so its frame can say what the table says. Spark then knows it too, as it does of delta-spark's.
"""

from __future__ import annotations

from typing import Any

from pyspark.sql import Column, DataFrame

from deltars.protocol import StructType


def with_nullability(frame: DataFrame, schema: StructType) -> DataFrame:
    """Return the frame with columns that are not nullable where the table's are not.

    With Spark Connect, whose protocol has no way to say it, the frame stays as it is.
    """
    required = {field.name for field in schema.fields if not field.nullable}
    session: Any = frame.sparkSession
    jvm = getattr(session, "_jvm", None)
    if jvm is None or not required & {field.name for field in frame.schema.fields if field.nullable}:
        return frame
    expressions = jvm.org.apache.spark.sql.classic.ExpressionUtils
    known = jvm.org.apache.spark.sql.catalyst.expressions.KnownNotNull
    columns = []
    for field in frame.schema.fields:
        column: Any = frame[f"`{field.name.replace('`', '``')}`"]
        if field.name in required:
            column = Column(expressions.column(known(expressions.expression(column._jc))))
            column = column.alias(field.name, metadata=field.metadata)
        columns.append(column)
    return frame.select(*columns)
