"""
A few rows that stand for many
==============================

Of a hundred thousand rows :func:`~smallvar.coreset` draws a thousand, and weights for them, so
that a fit to these is nearly as good for all rows. Rows of small clusters are drawn more often than
others, and weigh less. Here most rows are in three clusters, and one in five hundred in two others.
"""

# %%
# Of the small clusters, a draw with equal chances for all rows takes a row or two, or none.

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import make_blobs

from smallvar import DPMeans, coreset

sizes = [50_000, 35_000, 14_800, 150, 50]
places = [(0, 0), (7, 2), (1, 8), (40, 40), (-45, 30)]
X, truth = make_blobs(sizes, centers=places, random_state=0)
lam, m = 50_000.0, 1_000

index, weight = coreset(X, m, lam, random_state=0)
rng = np.random.default_rng(0)
equal = rng.choice(len(X), m, replace=False)
drawn = {
    "coreset": (index, weight),
    "equal chances": (equal, np.full(m, len(X) / m)),
}
for name, (rows, _) in drawn.items():
    print(f"{name:14s} rows of each cluster: {np.bincount(truth[rows], minlength=len(sizes))}")

# %%
# `lam` is a price for a cluster of all its rows. The weights sum to about their number, so it is
# the same for the few. All rows tell how good the centers are: `score` is minus the objective.

full = DPMeans(lam=lam, algorithm="merge", random_state=0).fit(X)
fits = {}
for name, (rows, weights) in drawn.items():
    fits[name] = DPMeans(lam=lam, algorithm="merge", random_state=0).fit(
        X[rows], sample_weight=weights
    )
    worse = 100 * (-fits[name].score(X) / full.objective_ - 1)
    print(f"{name:14s} {fits[name].n_clusters_} clusters, objective {worse:+.2f}%")

# %%
# The larger a point, the larger its weight. Crosses are the centers found.

fig, axes = plt.subplots(1, 2, figsize=(10, 4), sharex=True, sharey=True, layout="constrained")
for ax, (name, (rows, weights)) in zip(axes, drawn.items(), strict=True):
    style = {"s": 4 + weights / 5, "cmap": "tab10", "vmin": 0, "vmax": 9, "alpha": 0.4}
    ax.scatter(*X[rows].T, c=truth[rows], linewidths=0, **style)
    ax.scatter(*fits[name].cluster_centers_.T, c="black", marker="x", linewidths=1)
    ax.set(title=f"{name}: {fits[name].n_clusters_} clusters", aspect="equal")
plt.show()

# sphinx_gallery_thumbnail_path = "examples_built/panels/plot_coreset_1.png"
