"""Generated tables whose number of clusters is known: what stands in columns beside clusters."""

import numpy as np


def centers_apart(rng, k, d, separation):
    """Random centers in a box, at least so far apart; the box grows with each that is too near."""
    side = separation * max(1.0, k ** (1 / d))
    centers = np.empty((0, d))
    while len(centers) < k:
        center = rng.uniform(-side / 2, side / 2, d)
        if np.all(((centers - center) ** 2).sum(axis=1) >= separation**2):
            centers = np.vstack([centers, center])
        else:
            side *= 1.0 + 0.1 / k
    return centers


def round_clusters(rng, k, n=1000, d=4, separation=6.0):
    """Rows of k equal, round clusters of unit spread, and their labels."""
    labels = rng.permutation(np.arange(n) % k)
    return centers_apart(rng, k, d, separation)[labels] + rng.normal(size=(n, d)), labels


def grid_clusters(rng, n, spread, side=10):
    """Rows of clusters at the points of a grid, and their labels."""
    centers = np.stack(np.meshgrid(*2 * [np.arange(float(side))]), axis=2).reshape(-1, 2)
    labels = rng.integers(len(centers), size=n)
    return 1e5 * (centers[labels] + spread * rng.normal(size=(n, 2))), labels


def flags(rng, n, number=4):
    """Independent columns of 0 and 1."""
    return (rng.random((n, number)) < rng.uniform(0.2, 0.5, number)).astype(float)


def one_hot(codes, levels):
    """Columns of 0 and 1 for each column of codes."""
    return np.hstack([np.eye(levels)[column] for column in codes.T])


def latent_classes(rng, k, n=1000, n_codes=8, levels=5, sharpness=0.25):
    """Codes whose frequencies differ by class, and the classes."""
    labels = rng.permutation(np.arange(n) % k)
    shares = rng.dirichlet(np.full(levels, sharpness), (k, n_codes))[labels]
    codes = (shares.cumsum(axis=2) > rng.random((n, n_codes, 1))).argmax(axis=2)
    return codes, labels


def questionnaire(rng, k, n=1000, items=12, spread=0.6):
    """Answers from 0 to 4 to items, whose latent means differ by cluster, and the clusters."""
    labels = rng.permutation(np.arange(n) % k)
    latent = spread * centers_apart(rng, k, items, 5.5)[labels]
    latent = latent + spread * rng.normal(size=(n, items))
    return np.digitize(latent, np.linspace(-1.5, 1.5, 4)).astype(float), labels


def zero_inflated(rng, n, scale, number=2, zeros=0.6):
    """Columns that are zero in most rows, and exponential in the others."""
    values = scale * rng.exponential(size=(n, number))
    return np.where(rng.random((n, number)) < zeros, 0.0, values)


def filled(rng, X, share=0.04):
    """The rows with that share of each column replaced by the column's mean."""
    return np.where(rng.random(X.shape) < share, X.mean(axis=0), X)


def jittered(rng, X, size):
    """The rows, moved by so much of each column's standard deviation."""
    return X + size * X.std(axis=0) * rng.normal(size=X.shape)


CLOUDS = {
    "lognormal": lambda rng, n, d: np.exp(0.7 * rng.normal(size=(n, d))),
    "exponential": lambda rng, n, d: rng.exponential(size=(n, d)),
    "counts": lambda rng, n, d: rng.poisson(rng.gamma(1.0, 3.0, (n, d))).astype(float),
}


def two_moons(rng, n, noise=0.08):
    """Two half circles, each reaching into the other."""
    angle = np.pi * rng.random(n)
    upper = rng.random(n) < 0.5
    X = np.column_stack([np.cos(angle), np.sin(angle)])
    X = np.where(upper[:, None], X, [1.0, 0.5] - X)
    return X + noise * rng.normal(size=X.shape), upper.astype(int)
