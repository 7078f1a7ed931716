"""
Which measurements are of the same curve?
=========================================

Each data point is a handful of noisy measurements of some function, in some interval. Which points
are of the same function? Where intervals do not overlap nothing can be said, and a curve fitted to
the measurements says least where it goes furthest from them. A kernel can take that into account:
the probability that two sets of measurements come from the same function.
:class:`~smallvar.SpectralDynamicMeans` needs nothing but the kernel, and takes batch after batch.

This is the experiment of section 8.3 of Campbell, Kulis and How (2017), in short.
"""

# %%
# The data
# --------
#
# Four functions; each point of the data has 30 measurements of one of them, at random places of a
# random interval. They come in batches of 100. A row of the data holds the 30 places, then the 30
# values.

import matplotlib.pyplot as plt
import numpy as np
from scipy.optimize import linear_sum_assignment

from smallvar import DynamicMeans, SpectralDynamicMeans

plt.rcParams["figure.constrained_layout.use"] = True
FUNCTIONS = (
    lambda x: x,
    lambda x: np.sin(2 * x),
    lambda x: np.cos(x) + 2,
    lambda x: -x / 2 - 2,
)
NOISE, GRID = 0.3, np.linspace(-5, 5, 41)


def draw(rng, n=100):
    """Rows of places and values, and which function they are of."""
    which = rng.integers(len(FUNCTIONS), size=n)
    ends = np.sort(rng.uniform(-5, 5, (n, 2)), axis=1)
    short = 1 - np.minimum(ends[:, 1] - ends[:, 0], 1)  # intervals have a length of 1 or more
    x = rng.uniform((ends[:, 0] - short / 2)[:, None], (ends[:, 1] + short / 2)[:, None], (n, 30))
    y = np.stack([FUNCTIONS[k](row) for k, row in zip(which, x, strict=True)])
    return np.hstack([x, y + NOISE * rng.standard_normal(y.shape)]), which


rng = np.random.default_rng(0)
batches = [draw(rng) for _ in range(6)]

# %%
# The kernel
# ----------
#
# A Gaussian process says how probable measurements are if the function behind them is smooth. Two
# sets are either of one function, `p(both)`, or of two, `p(one) p(other)`; if both were equally
# probable before, the first has the probability `p(both) / (p(both) + p(one) p(other))`.
#
# The smooth functions are sums of some twenty features here, which makes `p` a matter of matrices
# of that size. The kernel gets all points of a step at once, those of the batch and those that are
# kept of the clusters so far.


def covariance(x, other):
    """Of the values of a smooth function at two sets of places."""
    return 9.0 * np.exp(-((x[..., :, None] - other[..., None, :]) ** 2) / 2)


values, vectors = np.linalg.eigh(covariance(GRID, GRID))
basis = vectors[:, values > 1e-6 * values[-1]] / np.sqrt(values[values > 1e-6 * values[-1]])


def fit_weights(X):
    """For each row, what measurements say of the weights of the features: precision, shift."""
    x, y = np.split(X, 2, axis=1)
    F = covariance(x, GRID) @ basis
    F_t = np.swapaxes(F, 1, 2) / NOISE**2
    return F_t @ F, (F_t @ y[..., None])[..., 0]


def evidence(A, b):
    """Log probability of the measurements, apart from what is the same for any function."""
    L = np.linalg.cholesky(np.eye(A.shape[-1]) + A)
    half = np.linalg.solve(L, b[..., None])[..., 0]
    log_det = np.log(np.diagonal(L, axis1=-2, axis2=-1)).sum(axis=-1)
    return 0.5 * np.square(half).sum(axis=-1) - log_det


def same_function(X, Y):
    """The probability for all pairs of rows; Y is X."""
    A, b = fit_weights(X)
    alone = evidence(A, b)
    one, other = np.triu_indices(len(X))
    log_odds = np.empty(len(one))
    for start in range(0, len(one), 4000):
        i, j = one[start : start + 4000], other[start : start + 4000]
        log_odds[start : start + 4000] = evidence(A[i] + A[j], b[i] + b[j]) - alone[i] - alone[j]
    K = np.empty((len(X), len(X)))
    K[one, other] = K[other, one] = 1 / (1 + np.exp(-np.clip(log_odds, -500, 500)))
    return K


# %%
# The probabilities for the first batch, sorted by function. Dark squares on the diagonal are the
# four functions; lines through them are points that could be anything.

X, which = batches[0]
order = np.argsort(which, kind="stable")
fig, ax = plt.subplots(figsize=(4, 3.4))
image = ax.imshow(same_function(X[order], X[order]), cmap="Greys", vmin=0, vmax=1)
fig.colorbar(image, label="probability of the same function")
ax.set(xlabel="point", ylabel="point")

# %%
# Clusters over time
# ------------------
#
# An eigenvalue of the kernel matrix is about the number of points in a cluster, so `lam=15` asks
# for clusters with 15 points a step. Of each cluster 30 points are kept.
#
# For comparison, :class:`~smallvar.DynamicMeans` gets curves: the most probable function on a grid.
# It is shown with the best of four values of `lam`.


def curves(X):
    """Most probable functions; squared distances are mean squares over the grid."""
    A, b = fit_weights(X)
    weights = np.linalg.solve(np.eye(A.shape[-1]) + A, b[..., None])[..., 0]
    return weights @ (covariance(GRID, GRID) @ basis).T / np.sqrt(len(GRID))


def share(labels, record):
    """Share of points in the cluster of their function, matched one to one; how many clusters."""
    truth = np.concatenate([which for _, which in record])
    names, row = np.unique(np.concatenate(labels), return_inverse=True)
    common = np.zeros((len(names), len(FUNCTIONS)), dtype=int)
    np.add.at(common, (row, truth), 1)
    return common[linear_sum_assignment(common, maximize=True)].sum() / len(truth), len(names)


spectral = SpectralDynamicMeans(
    lam=15.0, t_q=5, k_tau=1.05, kernel=same_function, budget=30, random_state=0
)
found = [spectral.partial_fit(X).labels_ for X, _ in batches]
print("SpectralDynamicMeans: {:.0%} right, {} clusters in all".format(*share(found, batches)))
for lam in (1.0, 2.0, 4.0, 8.0):
    plain = DynamicMeans(lam=lam, t_q=5, k_tau=1.05, random_state=0)
    other = [plain.partial_fit(curves(X)).labels_ for X, _ in batches]
    print("DynamicMeans, lam={}: {:.0%} right, {} clusters".format(lam, *share(other, batches)))
    if lam == 4.0:
        shown = other

# %%
# The measurements of every second step, colored by cluster. A cluster keeps its color from step to
# step.

fig, axes = plt.subplots(2, 3, figsize=(9, 5), sharex=True, sharey=True)
for row, labels, name in zip(
    axes, (found, shown), ("SpectralDynamicMeans", "DynamicMeans"), strict=True
):
    for ax, step in zip(row, (0, 2, 4), strict=True):
        x, y = np.split(batches[step][0], 2, axis=1)
        ax.scatter(x, y, c=[f"C{k % 10}" for k in np.repeat(labels[step], 30)], s=1.5, lw=0)
        for function in FUNCTIONS:
            ax.plot(GRID, function(GRID), color="0.4", lw=0.5)
        ax.set_title(f"{name}, step {step + 1}", fontsize=9)
axes[1, 1].set_xlabel("place")
plt.show()

# sphinx_gallery_thumbnail_path = "examples_built/panels/plot_gaussian_processes_1.png"
