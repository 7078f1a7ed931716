"""
Which ring is which, when they move?
====================================

Two rings and a spot inside each other, seen again and again while they move about. Around a ring is
nothing that a cluster center could stand for, but points on a ring have a way along it from one to
the next. A kernel made of these ways tells rings apart, and
:class:`~smallvar.SpectralDynamicMeans` gives each of them a number that it keeps.

This is the experiment of section 8.2 of Campbell, Kulis and How (2017), with half its noise.
"""

# %%
# The data
# --------
#
# 400 points a step on rings of radius 0.4, 0.2 and 0, with noise of standard deviation 0.015. From
# step to step the rings move together, by about 0.05.

import matplotlib.pyplot as plt
import numpy as np
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components, dijkstra, minimum_spanning_tree
from scipy.spatial.distance import cdist

from smallvar import DynamicMeans, SpectralDynamicMeans

plt.rcParams["figure.constrained_layout.use"] = True
STEPS, POINTS, RADII = 30, 400, np.array([0.4, 0.2, 0.0])


def directions(rng, n):
    """Unit vectors."""
    angle = 2 * np.pi * rng.random(n)
    return np.column_stack([np.cos(angle), np.sin(angle)])


rng = np.random.default_rng(1)
center, batches, truth = np.zeros(2), [], []
for _ in range(STEPS):
    ring = rng.integers(3, size=POINTS)
    noise = 0.015 * rng.standard_normal((POINTS, 2))
    batches.append(center + RADII[ring][:, None] * directions(rng, POINTS) + noise)
    truth.append(ring)
    center = center + 0.05 * rng.standard_normal() * directions(rng, 1)

# %%
# The kernel
# ----------
#
# The minimum spanning tree of the points has short edges along the rings and a few long ones, from
# ring to ring or over a gap. The distance of two points is the length of the path between them in
# the tree, of which only edges longer than 0.1 count; the kernel is `exp(-distance / 0.15)`.
#
# The estimator calls the kernel once a step, with the points of the batch and, after them, those
# that are kept of the clusters so far. `n_batch` says how many are of the batch. The tree is that
# of the batch. Its edges up to 0.1 join points to parts, and a kept point is the more alike to all
# of a part the nearer it is to the nearest point there. The square in that matters: where all rings
# make the same jump, the sum of squared distances is least if each ring continues itself.


def tree_kernel(X, Y, n_batch, threshold=0.1, width=0.15):
    """The kernel of all points of a step; Y is X."""
    batch, kept = X[:n_batch], X[n_batch:]
    tree = coo_array(minimum_spanning_tree(cdist(batch, batch)))
    short = tree.data <= threshold
    row, column = tree.coords
    links = coo_array((np.ones(short.sum()), (row[short], column[short])), tree.shape)
    part = connected_components(links, directed=False)[1]
    tree.data[short] = 1e-12  # 0 would be no edge
    path = dijkstra(tree.tocsr(), directed=False)
    K = np.exp(-np.maximum(path, path.T) / width)  # equal up to rounding
    direct = cdist(kept, batch)
    order = np.argsort(part, kind="stable")
    first = np.searchsorted(part[order], np.arange(part.max() + 1))
    to_part = np.minimum.reduceat(direct[:, order], first, axis=1)
    to_batch = np.exp(-(to_part[:, part] ** 2) / (2 * width**2))
    nearest = direct.argmin(axis=1)
    return np.block([[K, to_batch.T], [to_batch, K[np.ix_(nearest, nearest)]]])


X = batches[0]
tree = coo_array(minimum_spanning_tree(cdist(X, X)))
fig, axes = plt.subplots(1, 2, figsize=(8, 3.6))
for i, j, length in zip(*tree.coords, tree.data, strict=True):
    long = length > 0.1
    axes[0].plot(*X[[i, j]].T, color="C3" if long else "0.5", lw=2 if long else 1)
axes[0].set(title="spanning tree; red edges count", aspect="equal")
order = np.argsort(truth[0], kind="stable")
K = tree_kernel(X[order], X[order], POINTS)
image = axes[1].imshow(K, cmap="Greys", vmin=0, vmax=1)
axes[1].set(title="kernel, points sorted by ring", xlabel="point", ylabel="point")
fig.colorbar(image)

# %%
# Clusters over time
# ------------------
#
# A ring that is one cluster adds about the number of its points to the largest eigenvalues of the
# kernel matrix, so `lam=50` is less than half a ring. Of each ring 100 points are kept.
#
# For comparison, :class:`~smallvar.DynamicMeans` on the points as they are.

spectral = SpectralDynamicMeans(lam=50.0, t_q=5, k_tau=1.01, kernel=tree_kernel, random_state=0)
plain = DynamicMeans(lam=0.12, t_q=5, k_tau=1.01, random_state=0)
found = [spectral.partial_fit(X).labels_ for X in batches]
other = [plain.partial_fit(X).labels_ for X in batches]


def share(labels):
    """Share of points with the number that most points of their ring had in the first step."""
    names = np.array([np.bincount(labels[0][truth[0] == k]).argmax() for k in range(3)])
    return np.mean([names[ring] == one for one, ring in zip(labels, truth, strict=True)])


for name, labels in (("SpectralDynamicMeans", found), ("DynamicMeans", other)):
    print(f"{name}: {share(labels):.0%} right, {len(np.unique(labels))} clusters in all")

# %%
# Some of the steps. A cluster keeps its color.

fig, axes = plt.subplots(2, 5, figsize=(10, 4.4), sharex=True, sharey=True)
for row, labels in zip(axes, (found, other), strict=True):
    for ax, step in zip(row, range(0, STEPS, 6), strict=True):
        colors = [f"C{number % 10}" for number in labels[step]]
        ax.scatter(*batches[step].T, c=colors, s=3, lw=0)
        ax.set(aspect="equal", title=f"step {step + 1}")
axes[0, 0].set_ylabel("SpectralDynamicMeans")
axes[1, 0].set_ylabel("DynamicMeans")

# %%
# The first coordinate over time. Each cluster has a color of its own; a change of color is a ring
# that has lost its number.

fig, axes = plt.subplots(2, 1, figsize=(8, 5), sharex=True, sharey=True)
for ax, labels, name in zip(
    axes, (found, other), ("SpectralDynamicMeans", "DynamicMeans"), strict=True
):
    for step, (X, one) in enumerate(zip(batches, labels, strict=True)):
        near = np.abs(X[:, 1] - np.median(X[:, 1])) < 0.05  # a slice through the middle
        colors = [f"C{number % 10}" for number in one[near]]
        ax.scatter(np.full(near.sum(), step + 1), X[near, 0], c=colors, s=5, lw=0)
    ax.set(title=name, ylabel="first coordinate")
axes[1].set_xlabel("step")
plt.show()

# sphinx_gallery_thumbnail_path = "examples_built/panels/plot_rings_1.png"
