"""The command line: each command makes one call to the library, and an output prints the result.

deltars history features ──▶ tables.py: catalog.table("features").history() ──▶ output.py ──▶ table, lines or JSON
                                  └─ DeltarsError ──▶ root.py: a sentence on stderr and an exit code

Commands compute nothing themselves. A command's module is loaded when the command runs, rich when a terminal shows
records. `deltars --help` loads neither SQLAlchemy nor pyarrow nor pyspark: commands use the names of the package
`deltars`, which are loaded on first use.
"""

from typing import TYPE_CHECKING

from deltars.late_names import late_names

if TYPE_CHECKING:
    from deltars.cli.root import main
    from deltars.cli.screen import Screen
else:
    __getattr__ = late_names(__name__, {"root": "main", "screen": "Screen"})
