"""Logs made elsewhere, written into the catalog."""
