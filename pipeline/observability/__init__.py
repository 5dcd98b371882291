"""Metric definitions, the log context and the backlog thresholds."""
