"""
Outliers, and rows that belong nowhere
======================================

A thousand rows in five clusters, five rows far away, and fifty anywhere. Every row of
:class:`~smallvar.DPMeans` is in some cluster: here the others join the nearest one and move its
center. :class:`~smallvar.RobustDPMeans` has a price for being in none.
"""

# %%
# The rows anywhere are drawn evenly over a square. With them the number of clusters is less clear,
# and the fit of all rows warns of that.

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import make_blobs

from smallvar import DPMeans, RobustDPMeans

rng = np.random.default_rng(0)
places = [(0, 0), (9, 2), (3, 9), (-8, 6), (8, -8)]
X, truth = make_blobs([300, 250, 200, 150, 100], centers=places, random_state=0)
far = np.array([[30, 25], [-35, -5], [28, -26], [-20, 30], [2, -33]])
anywhere = rng.uniform(-16, 18, size=(50, 2))
rows = np.vstack([X, far, anywhere])

plain = DPMeans(random_state=0).fit(rows)
robust = RobustDPMeans(random_state=0).fit(rows)
print(f"DPMeans: {plain.n_clusters_} clusters, sizes {np.sort(np.bincount(plain.labels_))}")
print(f"RobustDPMeans: {robust.n_clusters_} clusters, {robust.noise_weight_:.0f} rows of noise")

# %%
# What is noise is a matter of the price: the square of the distance from a center at which it
# begins. By default no row of a Gaussian cluster is expected there; circles show that distance. A
# lower price finds more of the rows that lie between the clusters, and takes some from the clusters
# themselves.

fig, axes = plt.subplots(1, 3, figsize=(12, 4.3), sharex=True, sharey=True, layout="constrained")
low = RobustDPMeans(random_state=0, price=robust.price_ / 2).fit(rows)
models = {"DPMeans()": plain, "RobustDPMeans()": robust, "half the price": low}
for ax, (title, model) in zip(axes, models.items(), strict=True):
    noise = model.labels_ < 0
    ax.scatter(*rows[~noise].T, c=model.labels_[~noise], s=6, cmap="tab20")
    ax.scatter(*rows[noise].T, c="black", s=14, marker="x", linewidths=0.8)
    for center in model.cluster_centers_:
        if hasattr(model, "price_"):
            ax.add_patch(plt.Circle(center, np.sqrt(model.price_), fill=False, color="gray"))
    ax.set(title=f"{title}\n{model.n_clusters_} clusters, {noise.sum()} noise", aspect="equal")
plt.show()

# %%
# The labels of the thousand rows are those that they have without the others.

alone = RobustDPMeans(random_state=0).fit(X)
pairs = set(zip(alone.labels_.tolist(), robust.labels_[: len(X)].tolist(), strict=True))
print(f"pairs of labels, without and with the 55 rows: {sorted(pairs)}")

# sphinx_gallery_thumbnail_path = "examples_built/panels/plot_outliers_1.png"
