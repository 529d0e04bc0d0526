"""PostgreSQL: the backend and its fast paths."""
