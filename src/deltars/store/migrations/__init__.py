"""The catalog's schema, version by version."""
