"""The command line: each command is one call of the library, whose answer one of the outputs prints.

deltars history features ──▶ tables.py: catalog.table("features").history() ──▶ output.py ──▶ table, lines or JSON
                                  └─ DeltarsError ──▶ root.py: a sentence on stderr and an exit code

Nothing here computes, and `deltars --help` loads neither SQLAlchemy nor pyarrow nor pyspark: commands reach the library
through the names of `deltars`, which are loaded when they are used.
"""

from deltars.cli.root import main

__all__ = ["main"]
