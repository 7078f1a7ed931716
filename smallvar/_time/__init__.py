"""Clusters over time, and segments of sequences."""
