"""Spark sessions whose own verbs know a catalog: programs written for delta-spark, unchanged."""
