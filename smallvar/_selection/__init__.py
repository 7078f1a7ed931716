"""How many clusters: the merge path, its criterion, penalties."""
