"""
Which teams play in the same conference?
========================================

Teams that play one another are linked. Which of them form a conference, and how many conferences
are there? :class:`~smallvar.PenalizedCut` divides the graph of games into clusters, with a
penalty for each in place of their number. :func:`~smallvar.cut_path` finds a penalty.

The games of a season of American college football (Girvan and Newman, 2002) are not part of
smallvar. If the environment variable `SMALLVAR_DATA` names a folder with graph_football_edges.csv
(columns u, v) and graph_football_labels.csv (node, class), they are used. Otherwise the script
makes up a season.
"""

# %%
# The games
# ---------

import os
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from sklearn.metrics import normalized_mutual_info_score

from smallvar import PathDisplay, PenalizedCut, cut_path

plt.rcParams["figure.constrained_layout.use"] = True


def read_season(folder):
    """Which teams played one another, and their conferences."""
    table = {"delimiter": ",", "skiprows": 1, "dtype": int}
    u, v = np.loadtxt(folder / "graph_football_edges.csv", **table)[:, :2].T
    conference = np.loadtxt(folder / "graph_football_labels.csv", **table)[:, 1]
    A = np.zeros((len(conference), len(conference)))
    A[u, v] = A[v, u] = 1
    return A, conference


def play_season():
    """Twelve conferences: most games within, about four of a team outside."""
    rng = np.random.default_rng(0)
    conference = np.sort(np.arange(115) % 12)
    same = conference[:, None] == conference
    A = np.triu(rng.random((115, 115)) < np.where(same, 0.8, 0.035), 1).astype(float)
    order = rng.permutation(115)
    return (A + A.T)[order][:, order], conference[order]


folder = Path(os.environ.get("SMALLVAR_DATA", "."))
if Path(folder, "graph_football_edges.csv").exists():
    print("American college football")
    A, conference = read_season(folder)
else:
    print("A season made up, as SMALLVAR_DATA names no folder with one")
    A, conference = play_season()
print(f"{len(A)} teams, {int(A.sum()) // 2} games, {conference.max() + 1} conferences")

# %%
# What a cluster costs
# --------------------
#
# The normalized cut of a cluster is the share of its teams' games that are played against others;
# the sum of these shares is to be small. One cluster has none, so a cluster must be paid for
# existing: `lam` is negative, and with `lam=-0.7` a cluster is worth having if more than 30% of its
# games are within it. The useful range ends at 0, where one cluster is best, and begins a bit below
# -1, where every team is on its own.
#
# A number of clusters that lasts over a wide range of penalties is one that the graph suggests.

path = cut_path(A, random_state=0)
best = path.counts.tolist().index(path.best)
print(f"{path.best} clusters from {path.lam_low[best]:.2f} to {path.lam_high[best]:.2f}")

fig, ax = plt.subplots(figsize=(7, 3))
PathDisplay.from_path(path, panels=["ranges"], ax=ax)
ax.axvline(conference.max() + 1, color="C3", lw=0.8, ls=":")
ax.text(conference.max() + 0.7, -1.0, "conferences", color="C3", ha="right")
ax.set(xlim=(0.4, 40))

# %%
# The clusters
# ------------
#
# The penalty in the middle of that range. The labels of the conferences were not used; they tell
# how well this works.

model = PenalizedCut(lam=path.lam, n_init=10, random_state=0).fit(A)
score = normalized_mutual_info_score(conference, model.labels_)
within = 1 - A[model.labels_[:, None] != model.labels_].sum() / A.sum()
print(f"lam={model.lam_:.2f}: {model.n_clusters_} clusters, cut {model.cut_:.2f}")
print(f"NMI with the conferences {score:.3f}; {within:.0%} of the games are within a cluster")

# %%
# Games as dots, teams in the order in which they came and in that of the clusters.

order = np.argsort(model.labels_, kind="stable")
fig, axes = plt.subplots(1, 2, figsize=(7, 3.6), sharex=True, sharey=True)
for ax, rows, title in zip(
    axes, (np.arange(len(A)), order), ("as given", "by cluster"), strict=True
):
    ax.plot(*np.nonzero(A[rows][:, rows]), "s", ms=1.2, color="C0", mew=0)
    ax.set(title=title, aspect="equal", xticks=[], yticks=[])
for edge in np.flatnonzero(np.diff(model.labels_[order])) + 0.5:
    axes[1].axhline(edge, color="0.7", lw=0.5)
    axes[1].axvline(edge, color="0.7", lw=0.5)
axes[1].invert_yaxis()

# %%
# The graph
# ---------
#
# Teams pulled together by their games and pushed apart otherwise. Colors are clusters, and a ring
# marks a team whose cluster has its most teams from another conference.


def spread(A, n_steps=300):
    """Places in the plane by springs (Fruchterman and Reingold)."""
    place = np.random.default_rng(0).standard_normal((len(A), 2))
    ideal = 1 / np.sqrt(len(A))
    for heat in np.linspace(0.1, 0.001, n_steps):
        apart = place[:, None] - place
        distance = np.linalg.norm(apart, axis=2) + 1e-9
        force = ideal**2 / distance**2 - A * distance / ideal
        move = np.einsum("ij,ijk->ik", force, apart)
        place += heat * move / np.linalg.norm(move, axis=1, keepdims=True).clip(1e-9)
    return place


place = spread(A)
common = np.array(
    [np.bincount(conference[model.labels_ == c]).argmax() for c in range(model.n_clusters_)]
)
elsewhere = common[model.labels_] != conference
fig, ax = plt.subplots(figsize=(6, 6))
u, v = np.nonzero(np.triu(A))
alike = model.labels_[u] == model.labels_[v]
for games, color, width in ((~alike, "0.85", 0.4), (alike, "0.55", 0.6)):
    ends = np.stack([place[u[games]], place[v[games]]], axis=1)
    ax.plot(*ends.transpose(2, 1, 0), color=color, lw=width, zorder=1)
ax.scatter(*place.T, c=model.labels_, cmap="tab20", s=45, zorder=2)
ax.scatter(*place[elsewhere].T, s=110, facecolors="none", edgecolors="k", zorder=3)
ax.set(aspect="equal", title=f"{elsewhere.sum()} of {len(A)} teams are not where most are")
ax.axis("off")
plt.show()

# sphinx_gallery_thumbnail_path = "examples_built/panels/plot_communities_3.png"
