"""Commits as data, their validation and conflicts, and snapshots of a table. No I/O."""
