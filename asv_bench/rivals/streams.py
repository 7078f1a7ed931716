"""Streams and single rows beside k-means: partial_fit, predict and transform."""

from itertools import cycle

import numpy as np
from sklearn.cluster import MiniBatchKMeans

from smallvar import DPMeans, MiniBatchDPMeans

from . import Comparison

ROWS = 20_000
COLUMNS, CLUSTERS = 32, 50  # of the streams
SEEN = 4000  # rows that a stream begins with


def blobs(columns, clusters):
    """Gaussian clusters, the first rows one of each."""
    rng = np.random.default_rng(0)
    centers = rng.uniform(-10, 10, size=(clusters, columns))
    label = np.arange(ROWS) % clusters
    return centers[label] + rng.standard_normal((ROWS, columns))


def mean_error(centers, X):
    """Mean squared distance of rows to the nearest center."""
    squares = np.square(X).sum(axis=1)[:, None] - 2.0 * X @ centers.T
    return float((squares + np.square(centers).sum(axis=1)).min(axis=1).mean())


def stream_of(model, X, size):
    """A function that takes in the next batch of so many rows, and returns the centers."""
    batches = cycle([X[i : i + size] for i in range(SEEN, ROWS, size)])
    model.partial_fit(X[:SEEN])

    def step():
        model.partial_fit(next(batches))
        return model.cluster_centers_

    return step


def rows_of_river(X):
    """The same of river's KMeans, which takes rows only."""
    from river.cluster import KMeans as Stream

    model = Stream(n_clusters=CLUSTERS, seed=0)
    rows = cycle([dict(enumerate(row)) for row in X.tolist()])
    for _ in range(SEEN):
        model.learn_one(next(rows))

    def step():
        model.learn_one(next(rows))
        return model.centers

    return step


def streams():
    """Yield batches of one row and of 100."""
    X = blobs(COLUMNS, CLUSTERS)

    def ours(size):
        init = X[:CLUSTERS].copy()
        return stream_of(MiniBatchDPMeans(lam=1e9, init=init, random_state=0), X, size)

    def quality(centers):
        if isinstance(centers, dict):  # river's
            centers = np.array([[center[j] for j in range(COLUMNS)] for center in centers.values()])
        return f"(K {len(centers)}, mean squared error {mean_error(centers, X[:SEEN]):.4g})"

    shape = f"{COLUMNS} columns, K {CLUSTERS}"
    options = {"quality": quality, "calls": 100}
    yield Comparison(
        f"MiniBatchDPMeans.partial_fit of one row, {shape}", ours(1), bound=0.4e-3, **options
    )
    try:
        rivals = {"river KMeans.learn_one": rows_of_river(X)}
    except ImportError:
        rivals = {}
    yield Comparison(
        f"MiniBatchDPMeans.partial_fit of one row, {shape}, river", ours(1), rivals, **options
    )
    batches = MiniBatchKMeans(CLUSTERS, init=X[:CLUSTERS], n_init=1, random_state=0)
    yield Comparison(
        f"MiniBatchDPMeans.partial_fit of 100 rows, {shape}",
        ours(100),
        {"MiniBatchKMeans": stream_of(batches, X, 100)},
        bound=1.0,
        **options,
    )


def fitted(X, clusters):
    """DPMeans and KMeans at the same centers."""
    model = DPMeans(lam=1e30, init=X[:clusters].copy(), max_iter=2).fit(X)
    return model, model.to_sklearn_kmeans()


def comparisons():
    """Yield the streams, then predict and transform."""
    yield from streams()
    X = blobs(COLUMNS, CLUSTERS)
    model, kmeans = fitted(X, CLUSTERS)
    yield Comparison(
        f"DPMeans.predict of one row, {COLUMNS} columns, K {CLUSTERS}",
        lambda: model.predict(X[:1]),
        {"KMeans.predict": lambda: kmeans.predict(X[:1])},
        quality=lambda label: f"(label {label[0]})",
        bound=1.1,
        calls=100,
    )
    X = blobs(128, 200)
    model, kmeans = fitted(X, 200)
    differences = X[:200, None].astype(np.longdouble) - model.cluster_centers_
    exact = np.sqrt(np.square(differences).sum(axis=2))
    yield Comparison(
        f"DPMeans.transform {ROWS:,} x 128, K 200",
        lambda: model.transform(X),
        {"KMeans.transform": lambda: kmeans.transform(X)},
        quality=lambda out: f"(relative error {float((abs(out[:200] - exact) / exact).max()):.1e})",
        bound=1.5,
    )
