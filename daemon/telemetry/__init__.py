"""Readings of the stream for other systems: `metrics.py` for Prometheus."""
