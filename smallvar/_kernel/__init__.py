"""Clusters known by a kernel, and the spectral relaxation."""
