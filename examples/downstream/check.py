"""Clusters 1,000 small tables with the compiled example, and with DPMeans; both must agree."""

import numpy as np
from patches import count_groups

from smallvar import DPMeans

rng = np.random.default_rng(0)
places = np.array([[0.0, 0.0], [6.0, 0.0], [0.0, 6.0]])
tables = places[rng.integers(3, size=(1000, 50))] + 0.6 * rng.normal(size=(1000, 50, 2))
labels, counts = count_groups(tables, 9.0)
for table, of_rows, k in zip(tables, labels, counts, strict=True):
    model = DPMeans(lam=9.0).fit(table)
    assert k == model.n_clusters_
    assert np.array_equal(of_rows, model.labels_)
try:
    count_groups(np.full((1, 2, 2), np.nan), 9.0)
except ValueError as error:
    message = str(error)
assert message == "table 0 cannot be clustered: outcome -2"
print(f"{len(tables)} tables, {np.bincount(counts)[1:].tolist()} of them with 1, 2, ... groups")
