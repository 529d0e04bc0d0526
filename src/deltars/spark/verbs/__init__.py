"""Verbs of Spark's own classes, which a session that is enabled for a catalog gives to deltars first."""
