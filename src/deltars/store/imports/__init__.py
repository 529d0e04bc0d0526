"""Imports of logs from elsewhere into the catalog, and the hold on tables meanwhile."""
