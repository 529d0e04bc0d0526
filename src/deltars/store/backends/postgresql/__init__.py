"""PostgreSQL backend and its fast paths."""
