"""Whole fits by default beside what users take instead, at sizes where that is fast."""

import warnings

import numpy as np
from benchmarks.common import blobs, penalty
from benchmarks.hdp import shared
from benchmarks.mixed import table
from scipy.cluster.hierarchy import linkage
from sklearn.cluster import HDBSCAN, KMeans
from sklearn.compose import make_column_transformer
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics import adjusted_rand_score
from sklearn.mixture import GaussianMixture
from sklearn.preprocessing import OneHotEncoder, StandardScaler, normalize

from smallvar import (
    BregmanDPMeans,
    DPMeans,
    HDPMeans,
    MahalanobisMeans,
    MixedDPMeans,
    ScaleWarning,
    ShapeMeans,
    SphericalDPMeans,
    UnclearNumberWarning,
)

from . import Comparison
from .auto import mixture
from .mahalanobis import elongated
from .spherical import directions


def own_covariances(n, d, k, rank=30):
    """Clusters in float32 that vary along directions of their own, and the cluster of each row."""
    rng = np.random.default_rng(0)
    truth = rng.integers(k, size=n)
    X = rng.standard_normal((n, d), dtype=np.float32)
    for c in range(k):
        loadings = rng.standard_normal((rank, d), dtype=np.float32)
        members = np.flatnonzero(truth == c)
        X[members] += rng.standard_normal((len(members), rank), dtype=np.float32) @ loadings
        X[members] += 2.0 * rng.standard_normal(d, dtype=np.float32)
    return X, truth


def counts(n, d, k):
    """Poisson counts, and the cluster of each row."""
    rng = np.random.default_rng(0)
    truth = rng.integers(k, size=n)
    return rng.poisson(rng.gamma(2.0, 5.0, (k, d))[truth]).astype(float), truth


def begun(X, lam):
    """Labels for a penalty, from the centers that the data choose."""
    first = DPMeans(random_state=0, n_threads=1).fit(X)
    return DPMeans(lam=lam, init=first.cluster_centers_, n_threads=1).fit_predict(X)


def quality(truth):
    """The number of clusters, and how well they agree with the true ones."""

    def told(labels):
        if labels is None:
            return ""
        k = len(set(labels.tolist()) - {-1})
        return f"K {k} ARI {adjusted_rand_score(truth, labels):.3f}"

    return told


def comparisons():
    """Yield them; the bound is of the ratio to the fastest rival."""
    for warning in (UnclearNumberWarning, ScaleWarning, ConvergenceWarning):
        warnings.simplefilter("ignore", warning)
    yield from small_tables()
    yield from a_given_penalty()
    yield from wide_tables()
    yield from other_estimators()
    yield from beside_the_fit()


def of_default(name, X, truth, rivals, bound, turns=9):
    """DPMeans() beside rivals."""
    ours = lambda: DPMeans(random_state=0, n_threads=1).fit_predict(X)  # noqa: E731
    return Comparison(name, ours, rivals, quality(truth), bound, turns=turns)


def small_tables():
    """DPMeans() where every row is a cluster at first, beside HDBSCAN and Ward's whole tree."""
    for (n, d, k), bound in (((200, 3, 4), 1.2), ((1000, 2, 5), 1.2), ((1000, 50, 10), 1.0)):
        X, truth = mixture(n, d, k)
        rivals = {"HDBSCAN": lambda X=X: HDBSCAN(copy=True).fit_predict(X)}
        yield of_default(f"DPMeans() {n} x {d}, beside HDBSCAN", X, truth, rivals, bound)
    for n, d, k in ((2000, 50, 10), (2000, 200, 10)):
        X, truth = mixture(n, d, k)
        rivals = {"Ward's tree": lambda X=X: linkage(X, "ward") is None or None}
        yield of_default(f"DPMeans() {n} x {d}, beside Ward's tree", X, truth, rivals, 1.3)


def a_given_penalty():
    """Algorithm 1 in many rows, where it opens too many, beside the centers of a path."""
    X, truth = blobs(1_000_000, 16, 20)
    lam = penalty(16)
    yield Comparison(
        "DPMeans(lam) 1000000 x 16, K 20, beside other starts",
        lambda: DPMeans(lam=lam, n_threads=1).fit_predict(X),
        {
            "DPMeans(lam, init=centers of DPMeans())": lambda: begun(X, lam),
            "DPMeans()": lambda: DPMeans(random_state=0, n_threads=1).fit_predict(X),
        },
        quality(truth),
        turns=3,
    )


def wide_tables():
    """DPMeans() and SphericalDPMeans() in many columns beside ten starts of KMeans."""
    k = 10
    X, truth = own_covariances(30_000, 784, k)
    rivals = {"KMeans(k), 10 starts": lambda: KMeans(k, n_init=10, random_state=0).fit_predict(X)}
    yield of_default(
        "DPMeans() 30000 x 784 float32, own covariances", X, truth, rivals, 0.32, turns=1
    )
    Y, known = mixture(10_000, 128, 20)
    rivals = {"KMeans(k), 10 starts": lambda: KMeans(20, n_init=10, random_state=0).fit_predict(Y)}
    yield of_default("DPMeans() 10000 x 128, ten starts", Y, known, rivals, 0.31)
    Z, truth = directions(20_000, 128, 100)
    unit = normalize(Z)
    yield Comparison(
        "SphericalDPMeans() 20000 x 128, ten starts",
        lambda: SphericalDPMeans(random_state=0, n_threads=1).fit_predict(Z),
        {"KMeans(k), 10 starts": lambda: KMeans(100, n_init=10, random_state=0).fit_predict(unit)},
        quality(truth),
        bound=0.29,
        turns=3,
    )


def other_estimators():
    """Covariances, counts, tables of several kinds, data sets."""
    for n, k, bound in ((1_000_000, 20, 0.75), (30_000, 300, None)):
        X, truth = elongated(n, 16, k)
        yield Comparison(
            f"MahalanobisMeans() {n} x 16, K {k}",
            lambda X=X: MahalanobisMeans(random_state=0).fit_predict(X),
            {
                "GaussianMixture(k)": lambda X=X, k=k: GaussianMixture(
                    k, random_state=0
                ).fit_predict(X)
            },
            quality(truth),
            bound,
            turns=1,
        )
    X, truth = counts(2000, 16, 10)
    yield Comparison(
        "BregmanDPMeans kl 2000 x 16, by default",
        lambda: BregmanDPMeans(divergence="kl", n_threads=1).fit_predict(X),
        {"DPMeans() of roots": lambda: DPMeans(n_threads=1).fit_predict(np.sqrt(X))},
        quality(truth),
        2.6,
    )
    frame, truth = table(10_000)
    words = [name for name in frame if name.startswith(("flag", "word"))]
    numbers = [name for name in frame if name not in words]
    coded = make_column_transformer((OneHotEncoder(), words), (StandardScaler(), numbers))
    coded = np.asarray(coded.set_output(transform="default").fit_transform(frame).astype(float))
    yield Comparison(
        "MixedDPMeans 10000 x 20, beside one-hot codes",
        lambda: MixedDPMeans(random_state=0, n_threads=1).fit_predict(frame),
        {"DPMeans() of codes": lambda: DPMeans(random_state=0, n_threads=1).fit_predict(coded)},
        quality(truth),
        2.1,
        turns=3,
    )
    X, groups, truth = shared(100, 500)
    yield Comparison(
        "HDPMeans() 100 sets of 500 rows",
        lambda: HDPMeans(n_threads=1).fit(X, groups=groups).labels_,
        {"DPMeans(), pooled": lambda: DPMeans(random_state=0, n_threads=1).fit_predict(X)},
        quality(truth),
        2.9,
    )


def beside_the_fit():
    """What is found beside the number, and clusters of any shape, in multiples of a fit."""
    for n, d, k in ((1000, 2, 5), (100_000, 16, 20)):
        X, truth = mixture(n, d, k)
        fit = {"the fit": lambda X=X: DPMeans(random_state=0, n_threads=1).fit_predict(X)}
        for name in ("probabilities_", "outlier_scores_", "profiles_"):

            def ours(X=X, name=name):
                model = DPMeans(random_state=0, n_threads=1).fit(X)
                getattr(model, name)
                return model.labels_

            yield Comparison(f"DPMeans(), {name}, {n} x {d}", ours, fit, quality(truth))
        yield Comparison(
            f"ShapeMeans() {n} x {d}, beside DPMeans()",
            lambda X=X: ShapeMeans(random_state=0, n_threads=1).fit_predict(X),
            {"DPMeans()": fit["the fit"]},
            quality(truth),
        )
