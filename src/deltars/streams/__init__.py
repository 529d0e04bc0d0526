"""Streams into tables: micro-batches that are written to many tables exactly once."""
