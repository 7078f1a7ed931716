"""
How many ways to write a digit?
===============================

Ten, of course. Or more: some people put a bar through a seven, and a one may be a mere stroke or
stand on a foot. Or fewer: some digits look so much alike that no gap is between them.
:class:`~smallvar.DPMeans` is not given the number ten. It finds five; this page looks at how.
"""

# %%
# Nothing to choose
# -----------------
#
# The data are 1,797 pictures of 8 x 8 pixels. All pixels are in the same units, so there is nothing
# to scale.

import matplotlib.pyplot as plt
import numpy as np
from scipy.cluster.hierarchy import dendrogram
from sklearn.datasets import load_digits
from sklearn.metrics import normalized_mutual_info_score as nmi

from smallvar import DPMeans

plt.rcParams["figure.constrained_layout.use"] = True

X, digit = load_digits(return_X_y=True)
model = DPMeans(random_state=0).fit(X)
print(f"{model.n_clusters_} clusters, NMI with the digits {nmi(digit, model.labels_):.2f}")

# %%
# What are they?
# --------------
#
# The centers are pictures too. Each is named by the digit that most of its rows are, and how many
# percent of them that is.

counts = np.array(
    [np.bincount(digit[model.labels_ == k], minlength=10) for k in range(model.n_clusters_)]
)
named, share = counts.argmax(axis=1), counts.max(axis=1) / counts.sum(axis=1)
order = np.lexsort((-share, named))
fig, axes = plt.subplots(-(-model.n_clusters_ // 9), 9, figsize=(7, 2.4))
for ax in axes.flat:
    ax.axis("off")
for ax, k in zip(axes.flat, order, strict=False):
    ax.imshow(model.cluster_centers_[k].reshape(8, 8), cmap="gray_r")
    ax.set_title(f"{named[k]}: {share[k]:.0%}", fontsize=9)
ways = np.bincount(named, minlength=10)
print("ways to write each digit:", dict(enumerate(ways.tolist())))

# %%
# How it comes to this number
# ---------------------------
#
# The fit has made clusterings into every number of clusters up to some, its path. For each there is
# a criterion: how long a description of the pictures would be that tells of the clusters first. The
# squared error alone, on the right, does not say where to stop. The criterion is lowest for 17
# clusters, but not clearly, and not all of them have a boundary to the others. Then the largest
# number is taken for which all clusters have one, here five (the circle).

path = model.path_
fig, (left, right) = plt.subplots(1, 2, figsize=(7, 3))
left.plot(path.n_clusters, path.criterion, "o-", ms=4)
left.plot(path.best, path.criterion[path.n_clusters == path.best], "o", ms=12, mfc="none")
left.set(xlabel="number of clusters K", ylabel="criterion")
right.plot(path.n_clusters, path.inertia, "o-", ms=4)
right.set(xlabel="number of clusters K", ylabel="squared error", ylim=(0, None))
for ax in (left, right):
    ax.spines[["top", "right"]].set_visible(False)

# %%
# There are other choices, by the criterion alone. The clusterings for them are on the path, no
# other fit is needed. All agree better with the digits than the five clusters do, so look at what
# is split before you take the number of a fit.

for K in path.ranking[:5]:
    agree = nmi(digit, path.labels(K))
    at = path.n_clusters == K
    above = path.criterion[at].item() - path.criterion.min()
    sure = path.confidences[at].item()
    print(f"K={K}: criterion {above:.0f} above the lowest, confidence {sure:.2f}, NMI {agree:.2f}")

# %%
# Ten, please
# -----------
#
# If you know the number, take the clustering with that number.

print(f"K=10: NMI {nmi(digit, path.labels(10)):.2f}")

# %%
# Which are alike?
# ----------------
#
# The mergers of the path are a tree. Here it is from the clusters at the end of the path up: a leaf
# is one of those. Branches that meet below the dotted line are one cluster when K is the number
# chosen.

heights = path.linkage[:, 2]
cut = heights[-path.best : len(heights) - path.best + 2].mean()
fig, ax = plt.subplots(figsize=(7, 3))
dendrogram(path.linkage, ax=ax, color_threshold=cut, above_threshold_color="0.6", no_labels=True)
ax.axhline(cut, color="0.3", ls=":")
ax.spines[["top", "right", "bottom"]].set_visible(False)

# %%
# The penalty
# -----------
#
# `lam_` is a price for a whole cluster: much more than any squared distance between a picture and
# the mean of all. Algorithm 1, which starts at that mean, would read it as a distance and open no
# cluster. From the centers it leads back to the clusters.

farthest = ((X - X.mean(axis=0)) ** 2).sum(axis=1).max()
print(f"lam_ {model.lam_:.0f}, the largest squared distance from the mean {farthest:.0f}")
again = DPMeans(lam=model.lam_, init=model.cluster_centers_).fit(X)
print(f"{again.n_clusters_} clusters, {(again.labels_ != model.labels_).sum()} labels differ")
plt.show()

# sphinx_gallery_thumbnail_path = "examples_built/panels/plot_how_many_1.png"
