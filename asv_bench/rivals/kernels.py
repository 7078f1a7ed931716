"""KernelDPMeans and SpectralDPMeans."""

import numpy as np
from sklearn.cluster import SpectralClustering
from sklearn.metrics import adjusted_rand_score
from sklearn.metrics.pairwise import rbf_kernel

from smallvar import KernelDPMeans, SpectralDPMeans

from . import Comparison

N_CLUSTERS = 10


def blobs(n):
    """Ten clusters in four columns, and the number of the cluster each row is from."""
    rng = np.random.default_rng(0)
    centers = rng.uniform(-10, 10, (N_CLUSTERS, 4))
    truth = rng.integers(N_CLUSTERS, size=n)
    return centers[truth] + rng.standard_normal((n, 4)), truth


def kernel_kmeans(X, k, gamma, sweeps):
    """Labels of kernel k-means, from the rows of k points, by so many sweeps at most."""
    K = rbf_kernel(X, gamma=gamma)
    n = len(K)
    label = K[:, np.random.default_rng(0).choice(n, k, replace=False)].argmax(axis=1)
    for _ in range(sweeps):
        Z = np.zeros((n, k))
        Z[np.arange(n), label] = 1.0
        size = np.maximum(Z.sum(axis=0), 1.0)
        sums = K @ Z
        new = ((Z * sums).sum(axis=0) / size**2 - 2 * sums / size).argmin(axis=1)
        if np.array_equal(new, label):
            break
        label = new
    return label


def comparisons():
    """Spectral clustering at two sizes, kernel k-means of as many clusters and sweeps as ours."""
    for n in (2_000, 4_000):
        X, truth = blobs(n)
        ours = SpectralDPMeans(lam="spectrum", guess=N_CLUSTERS, random_state=0)
        gamma = ours.fit(X).gamma_
        rival = SpectralClustering(N_CLUSTERS, gamma=gamma, random_state=0)
        yield Comparison(
            f"SpectralDPMeans {n} x 4",
            lambda ours=ours, X=X: ours.fit(X).labels_,
            {"SpectralClustering": lambda rival=rival, X=X: rival.fit(X).labels_},
            quality=lambda labels, truth=truth: found(labels, truth),
            bound=1.0,
        )
    X, truth = blobs(3_000)
    ours = KernelDPMeans(guess=N_CLUSTERS).fit(X)
    k, gamma, sweeps = ours.n_clusters_, ours.gamma_, ours.n_iter_
    yield Comparison(
        "KernelDPMeans 3000 x 4",
        lambda: ours.fit(X).labels_,
        {"kernel k-means in numpy": lambda: kernel_kmeans(X, k, gamma, sweeps)},
        quality=lambda labels: found(labels, truth),
        bound=1.0,
    )


def found(labels, truth):
    """Number of clusters, and agreement with the true ones."""
    return f"K {len(set(labels))}, ARI {adjusted_rand_score(truth, labels):.3f}"
