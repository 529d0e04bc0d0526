"""Measurements, as ratios against a peer in the same run. `make bench-log` writes docs/performance.md."""
