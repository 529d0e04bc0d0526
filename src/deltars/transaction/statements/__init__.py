"""SQL statements, carried out by the calls of a transaction.

text ──predicate.statements──▶ Statement ──Execution──▶ tx.write, tx.delete, tx.merge, tx.alter …  ──▶ Rows
                                 └ queries inside ──Engine──▶ Spark, or DuckDB in this process
"""
