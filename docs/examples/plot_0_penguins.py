"""
How many species of penguin?
============================

Here are measurements of 333 penguins, without their species. How many kinds are there, and which
penguin is of which kind? k-means answers the second question only. :class:`~smallvar.DPMeans`
answers both.

The measurements are by Gorman, Williams and Fraser (2014), taken near Palmer Station, Antarctica,
and come with the package palmerpenguins.
"""

# %%
# Fit, and look
# -------------
#
# First two of the measurements, since a picture shows two. They are scaled, as they would be for
# k-means: a millimeter of bill and one of flipper do not count the same. On the left the data, in
# the middle what `DPMeans()` makes of them, with nothing said but the data.

import matplotlib.pyplot as plt
import numpy as np
from palmerpenguins import load_penguins
from sklearn.metrics import adjusted_rand_score
from sklearn.metrics.cluster import contingency_matrix
from sklearn.preprocessing import StandardScaler

from smallvar import DPMeans

plt.rcParams["figure.constrained_layout.use"] = True

penguins = load_penguins().dropna()
pair = penguins[["flipper_length_mm", "bill_length_mm"]].to_numpy(float)
scaler = StandardScaler().fit(pair)
model = DPMeans(random_state=0).fit(scaler.transform(pair))
centers = scaler.inverse_transform(model.cluster_centers_)

fig, axes = plt.subplots(1, 3, figsize=(9, 3), sharex=True, sharey=True)
axes[0].scatter(*pair.T, s=8, color="0.5")
axes[0].set(title="penguins", xlabel="flipper (mm)", ylabel="bill (mm)")
axes[1].scatter(*pair.T, s=8, c=model.labels_, cmap="tab10", vmax=9)
axes[1].plot(*centers.T, "k+", ms=12, mew=2)
axes[1].set(title=f"{model.n_clusters_} clusters", xlabel="flipper (mm)")
for name, one in penguins.groupby("species"):
    axes[2].scatter(one["flipper_length_mm"], one["bill_length_mm"], s=8, label=name)
axes[2].set(title="species", xlabel="flipper (mm)")
axes[2].legend(frameon=False, fontsize=8)

# %%
# All four measurements
# ---------------------
#
# Bill depth and body mass help. A row of the table is a species, a column a cluster.

names = ["bill_length_mm", "bill_depth_mm", "flipper_length_mm", "body_mass_g"]
measured = penguins[names].to_numpy()
scaler = StandardScaler().fit(measured)
X = scaler.transform(measured)
model = DPMeans(random_state=0).fit(X)
print(contingency_matrix(penguins["species"], model.labels_))
print(f"ARI with the species {adjusted_rand_score(penguins['species'], model.labels_):.2f}")

# %%
# The centers are average penguins, in the units of the table once the scaling is undone.

for center in scaler.inverse_transform(model.cluster_centers_):
    print("  ".join(f"{name} {value:.0f}" for name, value in zip(names, center, strict=True)))

# %%
# How sure is three?
# ------------------
#
# `path_.confidence` says how likely the number is right, from 0 to 1; below 0.5 there would be a
# warning. Behind it are clusterings into every number of clusters, compared by the length of a
# description of the data, in nats: a difference of some tens is clear, one of a few is not. Here is
# how much more the others need.

path = model.path_
print(f"confidence in {path.best} clusters: {path.confidence:.2f}")
fig, ax = plt.subplots(figsize=(5, 2.6))
some = path.n_clusters <= 10
ax.bar(path.n_clusters[some], path.criterion[some] - path.criterion.min(), color="0.6")
ax.set(xlabel="number of clusters", ylabel="nats more than the best", xticks=range(1, 11))
ax.spines[["top", "right"]].set_visible(False)
print("numbers of clusters, best first:", path.ranking[:4].tolist())

# %%
# A new penguin
# -------------
#
# A fitted model assigns what it has not seen, as k-means does.

new = [[46.0, 17.9, 195.0, 3700.0]]
label = model.predict(scaler.transform(np.array(new)))[0]
share = penguins["species"][model.labels_ == label].value_counts(normalize=True)
print(f"cluster {label}: {share.iloc[0]:.0%} of it are {share.index[0]}")
plt.show()

# sphinx_gallery_thumbnail_path = "examples_built/panels/plot_0_penguins_1.png"
