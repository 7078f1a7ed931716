"""Clusters with centers in the space of the data."""
