"""Clusters of graphs: penalized cuts."""
