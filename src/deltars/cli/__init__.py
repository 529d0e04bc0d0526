"""The command line: each command makes one call to the library, and an output prints the result.

deltars history features ──▶ tables.py: catalog.table("features").history() ──▶ output.py ──▶ table, lines or JSON
                                  └─ DeltarsError ──▶ root.py: a sentence on stderr and an exit code

Commands compute nothing themselves. `deltars --help` loads neither SQLAlchemy nor pyarrow nor pyspark: commands use the
names of the package `deltars`, which are imported on first use.
"""

from deltars.cli.root import main

__all__ = ["main"]
