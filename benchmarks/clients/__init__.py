"""Clients of races: each drives one system, and runs in that system's environment."""
