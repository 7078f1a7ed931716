"""
Which penguins live on which island?
====================================

Three islands have some kinds of penguin each. Which kinds of one island are those of another? The
same question comes with patients and their cells, shops and their customers, documents and their
topics: many data sets that share clusters.

:class:`~smallvar.HDPMeans` clusters all of them at once. An island pays for each kind that it has,
and all together pay for each kind there is. How much is found in the data.

The measurements are by Gorman, Williams and Fraser (2014), and come with the package
palmerpenguins.
"""

# %%
# Each island by itself, and all at once
# --------------------------------------
#
# :class:`~smallvar.DPMeans` on one island tells how many kinds there are, but not which of them are
# the same as elsewhere. Above are its clusters, numbered anew on each island; below those of
# `HDPMeans`, which have the same color everywhere. Gray is what lives on other islands.

import matplotlib.pyplot as plt
import numpy as np
from palmerpenguins import load_penguins
from sklearn.metrics import adjusted_rand_score
from sklearn.preprocessing import scale

from smallvar import DPMeans, HDPMeans

plt.rcParams["figure.constrained_layout.use"] = True

penguins = load_penguins().dropna()
names = ["bill_length_mm", "bill_depth_mm", "flipper_length_mm", "body_mass_g"]
X = scale(penguins[names].to_numpy())
island = penguins["island"].to_numpy()
model = HDPMeans(random_state=0).fit(X, groups=island)

colors = plt.get_cmap("tab10").colors
x, y = penguins["flipper_length_mm"].to_numpy(), penguins["bill_length_mm"].to_numpy()
fig, axes = plt.subplots(2, 3, figsize=(8, 4.6), sharex=True, sharey=True)
for (above, below), name in zip(axes.T, model.groups_, strict=True):
    here = island == name
    alone = DPMeans(random_state=0).fit(X[here])
    for ax, labels, first in ((above, alone.labels_, 5), (below, model.labels_[here], 0)):
        ax.scatter(x[~here], y[~here], s=4, color="0.88")
        ax.scatter(x[here], y[here], s=8, color=[colors[first + k] for k in labels])
    above.set(title=name)
    below.set(xlabel="flipper (mm)")
axes[0, 0].set(ylabel="DPMeans on each\nbill (mm)")
axes[1, 0].set(ylabel="HDPMeans\nbill (mm)")

# %%
# What was found
# --------------
#
# A row for each island and species, a column for each shared cluster.

species = penguins["species"].to_numpy()
for name in model.groups_:
    for one in np.unique(species[island == name]):
        labels = model.labels_[(island == name) & (species == one)]
        print(f"{name:10s} {one:10s}", np.bincount(labels, minlength=model.n_clusters_))

# %%
# To know the islands helps: a penguin is not taken for one of a kind of which its island has no
# others, since the island would have to pay for that kind. Without them more are misplaced.

pooled = DPMeans(random_state=0).fit(X)
for what, labels in (("with the islands", model.labels_), ("without", pooled.labels_)):
    print(f"{what:17s} ARI with the species {adjusted_rand_score(species, labels):.2f}")
plt.show()

# sphinx_gallery_thumbnail_path = "examples_built/panels/plot_1_islands_1.png"
