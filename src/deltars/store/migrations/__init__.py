"""Migrations of the catalog's schema."""

import logging
from typing import TYPE_CHECKING

from deltars.late_names import late_names

if TYPE_CHECKING:
    from deltars.store.migrations import runner
else:
    # Alembic is slow to load, and most programs never migrate.
    __getattr__ = late_names(__name__, {"runner": "runner"})

# Alembic logs as INFO when it is imported and at every step, so the level is set here, before `runner` imports it. A
# program that logs at INFO did not ask for these lines; one that sets the level of "alembic" itself did, and keeps it.
_alembic = logging.getLogger("alembic")
if _alembic.level == logging.NOTSET:
    _alembic.setLevel(logging.WARNING)
