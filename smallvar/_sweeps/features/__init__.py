"""Feature allocations: BP-means, its collapsed form, K-features, and whole starts of them."""
