"""Data whose groups are known, for all benchmarks and comparisons."""

import numpy as np
import pandas as pd
from scipy.sparse import coo_array, csr_array
from sklearn.preprocessing import normalize


def blobs(n, d, k, dtype="float64", noise=1.0):
    """Gaussian clusters, and the number of the cluster each row is from."""
    rng = np.random.default_rng(0)
    # In few dimensions there is room for many clusters only if they are farther apart.
    centers = rng.uniform(-1, 1, size=(k, d)) * 6 * k ** (1 / d)
    truth = rng.integers(k, size=n)
    X = rng.standard_normal((n, d), dtype=dtype)
    X *= noise
    X += centers.astype(dtype)[truth]
    return X, truth


def penalty(d):
    """A lam that the distance between two points of one cluster hardly ever exceeds."""
    return 2 * (d + 6 * np.sqrt(2 * d))


def mixture(n, d, k, deviation, dtype="float64", seed=0):
    """Gaussian clusters about normal centers: with a large deviation they overlap."""
    rng = np.random.default_rng(seed)
    centers = rng.normal(size=(k, d)) * (3 if d > 4 else 1)
    truth = rng.integers(k, size=n)
    return (centers[truth] + deviation * rng.normal(size=(n, d))).astype(dtype), truth


def with_noise(n, d, k, share=0.005):
    """Blobs, and rows drawn evenly over a box around them, of label -1."""
    X, truth = blobs(n, d, k)
    rng = np.random.default_rng(1)
    lost = rng.random(n) < share
    X[lost] = rng.uniform(X.min() - 10, X.max() + 10, size=(lost.sum(), d))
    truth[lost] = -1
    return X, truth


def elongated(n, d, k):
    """Gaussian clusters, each stretched in a direction of its own."""
    rng = np.random.default_rng(0)
    truth = rng.integers(k, size=n)
    turns = np.array([np.linalg.qr(rng.normal(size=(d, d)))[0] for _ in range(k)])
    rows = np.einsum(
        "nij,nj->ni", (turns * np.r_[3.0, np.ones(d - 1)])[truth], rng.normal(size=(n, d))
    )
    return rows + 6.0 * np.sqrt(k / 4 if d == 2 else 1) * rng.normal(size=(k, d))[truth], truth


def directions(n, d, k, dtype="float64"):
    """Rows of any length about k directions, and the direction of each."""
    rng = np.random.default_rng(0)
    truth = rng.integers(k, size=n)
    X = rng.standard_normal((n, d), dtype=np.float32)
    X *= 0.5 / np.sqrt(d)
    X += normalize(rng.standard_normal((k, d)))[truth]
    X *= rng.uniform(0.5, 2.0, (n, 1)).astype(np.float32)
    return X.astype(dtype), truth


def positive(n, d, k, divergence):
    """Counts ("kl"), positive numbers ("itakura_saito") or bits ("logistic")."""
    rng = np.random.default_rng(0)
    truth = rng.integers(k, size=n)
    if divergence == "logistic":
        return (rng.random((n, d)) < 0.97 * rng.beta(0.5, 0.5, (k, d))[truth]).astype(float), truth
    means = (rng.gamma(2.0, 5.0, (k, d)) + 0.5)[truth]
    return (
        rng.poisson(means).astype(float) if divergence == "kl" else rng.gamma(3.0, means)
    ), truth


def sums_of_features(n, d, k, dtype="float64"):
    """Sums of a random subset of k features, and noise; the subsets, and the truth's error."""
    rng = np.random.default_rng(0)
    A = rng.standard_normal((k, d))
    Z = (rng.random((n, k)) < 0.3).astype(np.float64)
    noise = 0.3 * rng.standard_normal((n, d))
    return (Z @ A + noise).astype(dtype), Z, float((noise**2).sum())


def data_sets(sets, rows, clusters=30, own=5):
    """Data sets of some of the clusters each; the data set and the cluster of each row."""
    rng = np.random.default_rng(0)
    centers = rng.random((clusters, 2)) * 10
    pick = rng.random((sets, clusters)).argsort(axis=1)[:, :own]
    group = np.repeat(np.arange(sets), rows)
    truth = pick[group, rng.integers(own, size=len(group))]
    return centers[truth] + 0.2 * rng.standard_normal((len(group), 2)), group, truth


def moving(steps, clusters):
    """Clusters that move, 15 points of each in every step; the step of each point."""
    rng = np.random.default_rng(0)
    motion = np.cumsum(0.05 * rng.standard_normal((steps, clusters, 2)), axis=0)
    X = np.repeat(rng.random((clusters, 2)) + motion, 15, axis=1).reshape(-1, 2)
    return X + 0.05 * rng.standard_normal(X.shape), np.repeat(np.arange(steps), 15 * clusters)


def record(rows, columns, states, stay):
    """Rows that stay in a state for a while, and the state of each."""
    rng = np.random.default_rng(0)
    centers = rng.normal(size=(states, columns)) * 6 * max(1.0, states ** (1 / columns) / 2)
    lengths = 2 + rng.poisson(stay, size=rows // max(1, stay) + 1)
    order = rng.integers(states, size=len(lengths))
    truth = np.repeat(order, lengths)[:rows]
    truth = np.append(truth, np.full(rows - len(truth), truth[-1]))
    return centers[truth] + rng.standard_normal((rows, columns)), truth


def table(n, gaps=0.0):
    """Numbers, counts, flags and categories of ten clusters, and the cluster of each row."""
    rng = np.random.default_rng(0)
    truth = rng.integers(10, size=n)
    columns = {}
    for j in range(8):
        columns[f"number{j}"] = rng.uniform(-5.0, 5.0, 10)[truth] + rng.standard_normal(n)
    for j in range(4):
        columns[f"count{j}"] = rng.poisson(rng.uniform(1.0, 30.0, 10)[truth]).astype(float)
        columns[f"flag{j}"] = rng.random(n) < rng.uniform(0.05, 0.95, 10)[truth]
        shares = rng.dirichlet(np.full(6, 0.4), 10).cumsum(axis=1)[truth]
        code = np.minimum((shares < rng.random(n)[:, None]).sum(axis=1), 5)
        columns[f"word{j}"] = pd.Categorical.from_codes(code, list("abcdef"))
    frame = pd.DataFrame(columns)
    for name in frame.columns[:8]:
        frame.loc[rng.random(n) < gaps, name] = np.nan
    return frame, truth


def links(n, a, b):
    """The adjacency matrix of so many nodes, from the two ends of each link."""
    return coo_array((np.ones(2 * len(a)), (np.append(a, b), np.append(b, a))), (n, n)).tocsr()


def communities(edges, communities=100, degree=20, mixing=0.2):
    """A graph of equal communities, and the community of each node."""
    rng = np.random.default_rng(0)
    n = 2 * edges // degree
    truth = np.arange(n) % communities
    a = rng.integers(n, size=edges)
    inside = rng.random(edges) > mixing
    own = truth[a] + communities * rng.integers(n // communities, size=edges)
    return links(n, a, np.where(inside, own, rng.integers(n, size=edges))), truth


def power_law(edges):
    """A graph of nodes whose degrees follow a power law."""
    rng = np.random.default_rng(0)
    n = edges // 4
    cumulative = np.cumsum(np.minimum(rng.pareto(1.2, n) + 1, 5 * np.sqrt(n)))
    return links(n, *np.searchsorted(cumulative, rng.random((2, edges)) * cumulative[-1]))


def texts(n, d, k, length=90):
    """Rows of so many words, a third from one of k topics: float32, unit length, like TF-IDF."""
    rng = np.random.default_rng(0)
    rank = np.arange(d) + 10.0
    own = (np.power(d / 10.0, rng.random((n, length // 3))) - 1).astype(int)
    own = (own * 7919 + rng.integers(0, k, n)[:, None] * 104_729) % d
    common = rng.choice(d, (n, length - length // 3), p=1 / rank / np.sum(1 / rank))
    columns = np.concatenate([own, common], axis=1).astype(np.int32)  # KMeans takes no int64
    rows = np.repeat(np.arange(n, dtype=np.int32), length)
    X = csr_array((np.ones(columns.size, np.float32), (rows, columns.ravel())), (n, d))
    X.data /= np.sqrt(1.0 + np.bincount(X.indices, minlength=d)[X.indices]).astype(np.float32)
    return normalize(X)


class Bound:
    """An estimator whose fit knows the groups or times of the rows."""

    def __init__(self, model, **given):
        self.model, self.given = model, given

    def fit(self, X):
        """Fit and return the model."""
        return self.model.fit(X, **self.given)
