"""
Algorithms side by side
=======================

Six toy data sets that scikit-learn's and HDBSCAN's documentation show too, each clustered by four
estimators of smallvar and four others. **Each has one setting for all six sets.**

A row of pictures is a data set, a column an algorithm. The number in a corner is the number of
clusters found, and the seconds that took; it is green where every cluster is right (an adjusted
Rand index of at least 0.85). Gray points were left out as noise. `KMeans`, `GaussianMixture` and
`SpectralClustering` are given the true number of clusters; the others find it.

What to take
------------

- Outlines of any kind, with gaps between them: :class:`~smallvar.ShapeMeans`. It is right for
  five of the six. Of different spread it finds the three clusters that `DPMeans` finds.
- Compact clusters, their number unknown: :class:`~smallvar.DPMeans`, which takes a tenth of the
  time. It says 1 where there are none. Rings and moons it cuts into pieces or leaves in one.
- Long clusters, or different spreads: :class:`~smallvar.MahalanobisMeans`, which fits a
  covariance to each. It needs clusters that are about Gaussian: it splits the square of the last
  row.
- A graph, of neighbors or of anything else: :class:`~smallvar.PenalizedCut`.
- Thin lines, and noise between clusters: `HDBSCAN`. It never says 1 by default.
- The number is known and the clusters are compact: `KMeans`, or `DPMeans(n_clusters=k)`.
"""

# %%
# The data
# --------
#
# 500 points each: two rings, two moons, three round clusters of different spread, three long ones,
# three alike, and points that are not in clusters at all. All columns are standardized.

import time
import warnings

import matplotlib.pyplot as plt
import numpy as np
from sklearn import datasets
from sklearn.cluster import HDBSCAN, KMeans, SpectralClustering
from sklearn.metrics import adjusted_rand_score
from sklearn.mixture import GaussianMixture
from sklearn.neighbors import kneighbors_graph
from sklearn.preprocessing import scale

from smallvar import DPMeans, MahalanobisMeans, PenalizedCut, ShapeMeans, UnclearNumberWarning

N = 500
round_ones, of_round = datasets.make_blobs(N, random_state=170)
SETS = {
    "rings": datasets.make_circles(N, factor=0.5, noise=0.05, random_state=30),
    "moons": datasets.make_moons(N, noise=0.05, random_state=30),
    "different spread": datasets.make_blobs(N, cluster_std=[1.0, 2.5, 0.5], random_state=170),
    "long": (round_ones @ [[0.6, -0.6], [-0.4, 0.8]], of_round),
    "alike": datasets.make_blobs(N, random_state=30),
    "none": (np.random.RandomState(30).rand(N, 2), np.zeros(N, int)),
}

# %%
# The algorithms
# --------------
#
# No setting changes from set to set. `ShapeMeans`, `DPMeans` and `MahalanobisMeans` have their
# defaults. `PenalizedCut` clusters the graph that links each point to its ten nearest ones. Its
# penalty is for groups that hardly touch: a cluster is kept if less than half a percent of its
# links lead out. It is right for three of the six, and with its default, for communities that
# touch, for one ("alike"). `HDBSCAN` leaves out groups of fewer than 15 points. With its default
# of 5 it is right for the same two sets.


def neighbors(X):
    """The graph that links each point to its ten nearest ones."""
    links = kneighbors_graph(X, 10)
    return links + links.T


def cut(X, k):
    """Communities of the graph of neighbors; k is not used."""
    return PenalizedCut(lam=-0.005, random_state=0).fit_predict(neighbors(X))


ALGORITHMS = {
    "ShapeMeans": lambda X, k: ShapeMeans(random_state=0).fit_predict(X),
    "DPMeans": lambda X, k: DPMeans(random_state=0).fit_predict(X),
    "MahalanobisMeans": lambda X, k: MahalanobisMeans(random_state=0).fit_predict(X),
    "PenalizedCut": cut,
    "HDBSCAN": lambda X, k: HDBSCAN(min_cluster_size=15, copy=True).fit_predict(X),
    "KMeans(k)": lambda X, k: KMeans(k, random_state=0).fit_predict(X),
    "GaussianMixture(k)": lambda X, k: GaussianMixture(k, random_state=0).fit_predict(X),
    "SpectralClustering(k)": lambda X, k: SpectralClustering(
        k, affinity="nearest_neighbors", assign_labels="cluster_qr", random_state=0
    ).fit_predict(X),
}

# %%
# The picture
# -----------

COLORS = np.array(plt.get_cmap("tab10").colors)
plt.rcParams["figure.constrained_layout.use"] = True
warnings.simplefilter("ignore", UnclearNumberWarning)  # the picture shows which are wrong
warnings.filterwarnings("ignore", "Graph is not fully connected")  # of SpectralClustering

fig, axes = plt.subplots(len(SETS), len(ALGORITHMS), figsize=(12.8, 9.6))
for row, (data, (X, truth)) in zip(axes, SETS.items(), strict=True):
    X = scale(X)
    for ax, cluster in zip(row, ALGORITHMS.values(), strict=True):
        begin = time.perf_counter()
        labels = cluster(X, len(np.unique(truth)))
        seconds = time.perf_counter() - begin
        found = len(np.unique(labels[labels >= 0]))
        right = adjusted_rand_score(truth, labels) >= 0.85
        ax.scatter(*X.T, s=3, c=np.where(labels[:, None] < 0, 0.75, COLORS[labels % 10]))
        ax.set(xticks=[], yticks=[], xlim=(-2.9, 2.9), ylim=(-3.6, 2.9))
        note = f"{found}, {seconds:.2f} s"
        ax.text(0.98, 0.02, note, ha="right", transform=ax.transAxes, color="g" if right else "k")
    row[0].set_ylabel(data)
for ax, name in zip(axes[0], ALGORITHMS, strict=True):
    ax.set_title(name, fontsize=9)
plt.show()

# sphinx_gallery_thumbnail_path = "examples_built/panels/plot_2_side_by_side_1.png"
