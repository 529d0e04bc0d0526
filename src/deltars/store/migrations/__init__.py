"""Migrations of the catalog's schema."""

import logging

# Alembic logs as INFO when it is imported and at every step, so the level is set here, before `runner` imports it. A
# program that logs at INFO did not ask for these lines; one that sets the level of "alembic" itself did, and keeps it.
_alembic = logging.getLogger("alembic")
if _alembic.level == logging.NOTSET:
    _alembic.setLevel(logging.WARNING)
