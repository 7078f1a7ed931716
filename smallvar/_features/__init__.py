"""Feature allocations: a row has several features."""
