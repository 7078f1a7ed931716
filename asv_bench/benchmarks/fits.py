"""Fits of all estimators: time, memory, and what was found, so that speed cannot hide losses.

``FAMILIES`` are twelve short ones on one thread, which tools/regressions.py compares between two
builds; ``FITS`` are larger, or of other options. ``CALLS`` are what is done with a fitted model.
"""

import warnings
from functools import partial
from itertools import cycle
from types import SimpleNamespace

import numpy as np
from sklearn.cluster import KMeans
from sklearn.datasets import make_moons
from sklearn.metrics import normalized_mutual_info_score

import smallvar as sv

from . import data
from .data import Bound, blobs, penalty

# name: rows, columns, clusters
SIZES = {
    "1k x 2": (1_000, 2, 5),
    "10k x 128": (10_000, 128, 100),
    "50k x 16": (50_000, 16, 50),
    "100k x 3": (100_000, 3, 300),
    "1M x 16": (1_000_000, 16, 20),
}
# the same in float32, as embeddings come
WIDE = {
    "20k x 768 float32": (20_000, 768, 500),
    "80k x 200 float32": (80_000, 200, 200),
    "500k x 5 float32": (500_000, 5, 50),
}
ONE = {"n_threads": 1, "random_state": 0}


class Stream:
    """A model made anew for each fit, which takes in batches of so many rows."""

    def __init__(self, make, rows):
        self.make, self.rows = make, rows

    def fit(self, X):
        """Take in all batches, and return the model."""
        model = self.make()
        for start in range(0, len(X), self.rows):
            model.partial_fit(X[start : start + self.rows])
        return model


def data_sets(model, sets, rows):
    """Data sets, and the model that knows which row is of which."""
    X, groups, truth = data.data_sets(sets, rows)
    return X, truth, Bound(model, groups=groups)


def moving(model, steps, clusters):
    """Moving clusters, and the model that knows the times."""
    X, times = data.moving(steps, clusters)
    return X, None, Bound(model, times=times)


def features(model, n, d, k, dtype="float64"):
    """Sums of features, and the model."""
    return data.sums_of_features(n, d, k, dtype)[0], None, model


def from_given_centers(estimator, n, d, k, dtype):
    """Same starting centers, nothing new opened, to strict convergence: the work of k-means."""
    # Clusters that touch: where they do not, some centers lose all their points, which KMeans
    # places anew and DPMeans drops.
    X, truth = blobs(n, d, k, dtype, d**0.5)
    init = X[np.random.default_rng(9).choice(n, k, replace=False)]
    if estimator == "KMeans":
        return X, truth, KMeans(k, init=init, n_init=1, tol=0)
    return X, truth, sv.DPMeans(lam=1e30, init=init)


def texts(estimator):
    """The same for sparse rows."""
    X = data.texts(20_000, 20_000, 100)
    init = X[np.random.default_rng(0).choice(20_000, 100, replace=False)].toarray()
    if estimator == "KMeans":
        return X, None, KMeans(100, init=init, n_init=1, tol=0, algorithm="lloyd")
    return X, None, sv.DPMeans(lam=1e9, init=init.astype(float))


def in_partitions(n, partitions):
    """DPMeans on a dask array."""
    try:
        import dask.array

        from smallvar.dask import fit
    except ImportError as error:
        raise NotImplementedError(f"needs {error.name}") from error

    X, truth = blobs(n, 16, 20)
    estimator = SimpleNamespace(fit=partial(fit, sv.DPMeans(lam=penalty(16))))
    return dask.array.from_array(X, chunks=(-(-n // partitions), 16)), truth, estimator


def from_rows_of_each(n, d, k, n_threads):
    """Clusters in noise, from a row of each cluster, to a fixed point of the sweeps."""
    X, truth = data.with_noise(n, d, k)
    init = X[np.unique(truth, return_index=True)[1][1:]]
    lam = d * n / k  # more than a cluster's half saves, less than a cluster
    return X, truth, sv.RobustDPMeans(lam=lam, price=100.0, init=init, n_threads=n_threads)


def unordered(model, n):
    """Rows in no order, so that each is a piece at low prices."""
    X, truth = data.record(n, 16, 10, 0)
    order = np.random.default_rng(1).permutation(n)
    return X[order], truth[order], model


# Each makes rows, the group of each (or None) and an estimator.
FAMILIES = {
    "given penalty": lambda: (*blobs(20_000, 16, 50), sv.DPMeans(lam=100.0, n_threads=1)),
    "automatic": lambda: (*blobs(1_000, 2, 5), sv.DPMeans(**ONE)),
    "batches": lambda: (
        *blobs(20_000, 8, 20),
        Stream(lambda: sv.MiniBatchDPMeans(lam=80.0, **ONE), 100),
    ),
    "directions": lambda: (
        *data.directions(10_000, 32, 20),
        sv.SphericalDPMeans(min_cosine=0.7, **ONE),
    ),
    "counts": lambda: (
        *data.positive(5_000, 8, 10, "kl"),
        sv.BregmanDPMeans(divergence="kl", lam=40.0, **ONE),
    ),
    "shapes": lambda: (*data.elongated(5_000, 4, 8), sv.MahalanobisMeans(8, random_state=0)),
    "features": lambda: features(sv.KFeatures(6, n_init=2, **ONE), 500, 16, 6),
    "data sets": lambda: data_sets(sv.HDPMeans(lam_local=10.0, lam_global=500.0, **ONE), 100, 100),
    "moving": lambda: (
        *data.moving(40, 8),
        Stream(lambda: sv.DynamicMeans(lam=0.05, **ONE), 120),
    ),
    "segments": lambda: (*data.record(2_400, 4, 6, 40), sv.SegmentMeans(n_threads=1)),
    "kernels": lambda: (*blobs(800, 4, 8), sv.KernelDPMeans(lam=0.5, gamma=0.05)),
    "graph": lambda: (*data.communities(10_000, 20), sv.PenalizedCut(random_state=0)),
}
FITS = {
    **{
        f"DPMeans(lam), {algorithm}, {size}": lambda size=size, algorithm=algorithm: (
            *blobs(*SIZES[size]),
            sv.DPMeans(lam=penalty(SIZES[size][1]), algorithm=algorithm),
        )
        for size in SIZES
        for algorithm in ("serial", "delayed", "collapsed")
        if size != "1M x 16" or algorithm == "serial"
    },
    **{
        f"DPMeans(lam), small lam, {algorithm}, 10k x 16": lambda algorithm=algorithm: (
            *blobs(10_000, 16, 50),
            sv.DPMeans(lam=40.0, algorithm=algorithm),
        )
        for algorithm in ("serial", "delayed")
    },
    **{
        f"DPMeans(lam), {threads} threads, 1M x 16 {dtype}": lambda threads=threads, dtype=dtype: (
            *blobs(*SIZES["1M x 16"], dtype),
            sv.DPMeans(lam=penalty(16), n_threads=threads),
        )
        for threads in (1, 2)
        for dtype in ("float32", "float64")
    },
    **{
        f"{estimator} from given centers, {size}": partial(
            from_given_centers, estimator, *shape, "float32" if size in WIDE else "float64"
        )
        for size, shape in (SIZES | WIDE).items()
        for estimator in ("DPMeans", "KMeans")
        if size != "1M x 16"
    },
    **{
        f"{estimator} from given centers, sparse 20k x 20k": partial(texts, estimator)
        for estimator in ("DPMeans", "KMeans")
    },
    **{
        f"DPMeans(), {n} x {d}": lambda n=n, d=d, k=k: (*blobs(n, d, k), sv.DPMeans(random_state=0))
        for n, d, k in ((50, 2, 4), (178, 13, 4), (60, 1600, 3), *SIZES.values(), (20_000, 2, 400))
    },
    **{
        f"DPMeans(lam), merge, {size}": lambda n=n, d=d, k=k: (
            *blobs(n, d, k),
            sv.DPMeans(lam=n * d / k / 10, algorithm="merge", random_state=0),
        )
        for size, (n, d, k) in SIZES.items()
        if size in ("1k x 2", "50k x 16")
    },
    **{
        f"MiniBatchDPMeans(lam), {size}": lambda size=size: (
            *blobs(*SIZES[size]),
            sv.MiniBatchDPMeans(lam=penalty(SIZES[size][1]), random_state=0),
        )
        for size in ("1k x 2", "50k x 16")
    },
    **{
        f"RobustDPMeans(), {size}": lambda size=size: (
            *data.with_noise(*SIZES[size]),
            sv.RobustDPMeans(random_state=0),
        )
        for size in ("1k x 2", "1M x 16")
    },
    "RobustDPMeans(lam), 1 thread, 1M x 16": partial(from_rows_of_each, *SIZES["1M x 16"], 1),
    "RobustDPMeans(lam), 2 threads, 1M x 16": partial(from_rows_of_each, *SIZES["1M x 16"], 2),
    **{
        f"MahalanobisMeans({k or ''}), {n} x {d}": lambda k=k, n=n, d=d: (
            *blobs(n, d, 10),
            sv.MahalanobisMeans(k, random_state=0),
        )
        for k, n, d in ((10, 1000, 8), (10, 50_000, 8), (None, 2000, 2), (None, 2000, 30))
    },
    **{
        f"SphericalDPMeans(), 20k x 64 {dtype}": lambda dtype=dtype: (
            *data.directions(20_000, 64, 100, dtype),
            sv.SphericalDPMeans(random_state=0),
        )
        for dtype in ("float32", "float64")
    },
    "SphericalDPMeans(min_cosine), 1M x 16": lambda: (
        *data.directions(1_000_000, 16, 20),
        sv.SphericalDPMeans(min_cosine=0.3, random_state=0),
    ),
    **{
        f"BregmanDPMeans, {divergence}, lam {lam:g}, {n} x 16": lambda f=divergence, lam=lam, n=n: (
            *data.positive(n, 16, 20, f),
            sv.BregmanDPMeans(lam=lam, divergence=f),
        )
        for divergence, lam in (("kl", 40.0), ("itakura_saito", 20.0), ("logistic", 10.0))
        for n in (5_000, 50_000)
    },
    **{
        f"MixedDPMeans({k or ''}), {n} x 20, {gaps:.0%} missing": lambda k=k, n=n, gaps=gaps: (
            *data.table(n, gaps),
            sv.MixedDPMeans(n_clusters=k, random_state=0),
        )
        for k, n, gaps in (
            *((None, 2_000, 0.2), (10, 2_000, 0.2), (None, 20_000, 0.2)),
            *((None, 1_000_000, 0.0), (None, 1_000_000, 0.2)),
        )
    },
    **{
        f"HDPMeans(lam), {sets} sets of {rows}": lambda sets=sets, rows=rows: data_sets(
            sv.HDPMeans(lam_local=10.0, lam_global=500.0), sets, rows
        )
        for sets, rows in ((10, 100), (1000, 100), (100, 1000))
    },
    **{
        f"{name}, 100 starts, {n} x {d}": lambda name=name, n=n, d=d, k=k: features(
            sv.KFeatures(k, assign=name, n_init=100, n_swaps=0, random_state=0)
            if name in ("coordinate", "exact")
            else sv.BPMeans(lam=0.1 * n * d, algorithm=name, n_init=100, n_swaps=0, random_state=0),
            *(n, d, k),
        )
        for name in ("coordinate", "exact", "sweep", "collapsed")
        for n, d, k in ((100, 100, 5), (1000, 64, 10))
    },
    "KFeatures(8), 500 x 64": lambda: features(sv.KFeatures(8, **ONE), 500, 64, 8),
    "BPMeans(), 500 x 64": lambda: features(sv.BPMeans(**ONE), 500, 64, 8),
    **{
        f"KFeatures(20), {threads} threads, {n} x 64 {dtype}": lambda t=threads, n=n, dtype=dtype: (
            features(
                sv.KFeatures(20, n_init=1, n_swaps=0, max_iter=50, n_threads=t, random_state=0),
                *(n, 64, 20, dtype),
            )
        )
        for threads, n, dtype in (
            (1, 20_000, "float32"),
            (1, 200_000, "float64"),
            (2, 200_000, "float64"),
        )
    },
    **{
        f"KernelDPMeans(lam), {algorithm}, 1k x 10 {dtype}": lambda a=algorithm, dtype=dtype: (
            *blobs(1_000, 10, 10, dtype),
            sv.KernelDPMeans(lam=0.6, gamma=0.01, algorithm=a),
        )
        for algorithm in ("serial", "collapsed")
        for dtype in ("float32", "float64")
    },
    "KernelDPMeans(lam), matrix not held, 1k x 10": lambda: (
        *blobs(1_000, 10, 10),
        sv.KernelDPMeans(lam=0.6, gamma=0.01, max_memory=0.8e6),
    ),
    "KernelDPMeans, number given, 1k x 4": lambda: (
        *blobs(1_000, 4, 10),
        sv.KernelDPMeans(guess=10),
    ),
    "KernelHDPMeans(lam), 10 sets of 20": lambda: data_sets(
        sv.KernelHDPMeans(lam_local=0.5, lam_global=1.0, gamma=0.5), 10, 20
    ),
    **{
        f"SpectralDPMeans(lam), {rounding}, 500 x 10": lambda rounding=rounding: (
            *blobs(500, 10, 10),
            sv.SpectralDPMeans(lam=15.0, gamma=0.02, rounding=rounding, random_state=0),
        )
        for rounding in ("yu-shi", "kmeans")
    },
    **{
        f"SpectralDPMeans, number given, {kernel}, 1k x 4": lambda kernel=kernel: (
            *blobs(1_000, 4, 10),
            sv.SpectralDPMeans(lam="spectrum", guess=10, kernel=kernel, random_state=0),
        )
        for kernel in ("rbf", "laplacian")
    },
    **{
        f"DynamicMeans(lam), 100 steps of {clusters} clusters": lambda k=clusters: moving(
            sv.DynamicMeans(lam=0.05, t_q=6.8, k_tau=1.01, random_state=0), 100, k
        )
        for clusters in (5, 25)
    },
    **{
        f"SegmentMeans(), {n} rows, stays of {stay}": lambda n=n, stay=stay: (
            *data.record(n, 8, 10, stay),
            sv.SegmentMeans(),
        )
        for n in (1_000, 100_000)
        for stay in (10, 1000)
    },
    "SegmentMeans(lam), 1k rows": lambda: (
        *data.record(1_000, 4, 3, 50),
        sv.SegmentMeans(lam=100.0, lam_switch=20.0),
    ),
    "SegmentMeans(), unordered, 100k rows": partial(
        unordered, sv.SegmentMeans(max_iter=20), 100_000
    ),
    **{
        f"ShapeMeans(), moons, {n} rows": lambda n=n: (
            *make_moons(n, noise=0.08, random_state=0),
            sv.ShapeMeans(random_state=0),
        )
        for n in (1_000, 20_000, 100_000)
    },
    "ShapeMeans(), 1k x 2": lambda: (*blobs(1_000, 2, 5), sv.ShapeMeans(random_state=0)),
    **{
        f"PenalizedCut, {cut}, {kind}, {links} links": lambda c=cut, kind=kind, links=links: (
            *(data.communities(links) if kind == "planted" else (data.power_law(links), None)),
            sv.PenalizedCut(lam=None, cut=c, n_init=1, random_state=0),
        )
        for cut in ("normalized", "ratio")
        for kind in ("planted", "power law")
        for links in (10_000, 1_000_000)
    },
    "PenalizedCut(), 3k nodes": lambda: (
        *data.communities(30_000, 30),
        sv.PenalizedCut(random_state=0),
    ),
    "Dask, 10k x 16 in 4 partitions": partial(in_partitions, 10_000, 4),
    "Dask, 1M x 16 in 16 partitions": partial(in_partitions, 1_000_000, 16),
}


def quality(model):
    """The number of clusters or features, and the objective: None where the model has none."""
    names = ("n_clusters_", "n_components_", "n_states_")
    number = next((getattr(model, name) for name in names if hasattr(model, name)), None)
    objective = getattr(model, "objective_", getattr(model, "inertia_", None))
    return None if number is None else int(number), None if objective is None else float(objective)


class Families:
    """The twelve."""

    fits = FAMILIES
    param_names = ["fit"]
    params = [list(FAMILIES)]

    def setup(self, name):
        """Make the data, and fit once: what is made at a first call is not measured."""
        warnings.simplefilter("ignore")
        self.X, self.truth, self.estimator = self.fits[name]()
        self.model = self.estimator.fit(self.X)

    def time_fit(self, name):
        """Seconds."""
        self.estimator.fit(self.X)

    def peakmem_fit(self, name):
        """Peak memory of the process, data included."""
        self.estimator.fit(self.X)

    def track_n_clusters(self, name):
        """Number of clusters or features; 0 where the model has none."""
        return quality(self.model)[0] or 0

    def track_objective(self, name):
        """The objective that the fit has reached; 0 where the model has none."""
        return quality(self.model)[1] or 0.0

    def track_nmi(self, name):
        """Agreement with the groups that the data were drawn from; 0 where they have none."""
        labels = np.asarray(getattr(self.model, "labels_", ()))
        known = self.truth is not None and self.truth.shape == labels.shape
        return normalized_mutual_info_score(self.truth, labels) if known else 0.0

    track_n_clusters.unit = "clusters"
    track_objective.unit = "objective"
    track_nmi.unit = "NMI"


class Fits(Families):
    """Larger ones, and other options."""

    fits = FITS
    params = [list(FITS)]


def at_centers(n, d, k, method, noise=1.0):
    """A method of a model whose centers are rows, with n rows."""
    X, _ = blobs(max(n, k), d, k, noise=noise)
    model = sv.DPMeans(lam=1e30, init=X[:k]).fit(X[:k])
    return partial(getattr(model, method), X[:n])


def with_spreads(n, method):
    """The same of a model that has measured the spread of its rows."""
    X, _ = blobs(max(n, 10_000), 16, 20, noise=2.0)
    model = sv.DPMeans(lam=1e30, init=X[:20]).fit(X[:10_000])
    model.predict_proba(X[:1])
    return partial(getattr(model, method), X[:n])


def first_probabilities(n):
    """A fit, and the first probabilities, which the spread of the rows is measured for."""
    X, _ = blobs(n, 16, 20)
    model = sv.DPMeans(lam=penalty(16))
    return lambda: model.fit(X).predict_proba(X[:1])


def next_batch(model, X, size):
    """One batch into a model that has seen all rows."""
    model.partial_fit(X)
    batches = cycle([X[i : i + size] for i in range(0, len(X) - size + 1, size)])
    return lambda: model.partial_fit(next(batches))


def coreset_and_fit(n, d, k):
    """One row in a hundred, and a fit to these."""
    X, lam = blobs(n, d, k)[0], penalty(d) * n / k / 10
    model = sv.DPMeans(lam=lam, algorithm="merge", random_state=0)

    def call():
        index, weight = sv.coreset(X, n // 100, lam, random_state=0)
        model.fit(X[index], sample_weight=weight)

    return call


def all_boundaries(n, d, k):
    """The evidence of all boundaries of clusters that are cut in two."""
    X, _ = blobs(n, d, k)
    labels = KMeans(2 * k, n_init=1, max_iter=10, random_state=0).fit_predict(X)
    return partial(sv.boundary_evidence, X, labels)


def of_sparse_rows(method):
    """A method of a model of sparse rows."""
    X = data.texts(20_000, 20_000, 100)
    return partial(getattr(sv.DPMeans(lam=1e9, init=X[:100].toarray()).fit(X), method), X)


def new_features(n, assign):
    """Features of new rows."""
    X, Z, _ = data.sums_of_features(max(n, 1000), 64, 10)
    model = sv.KFeatures(10, assign=assign, init=Z[:1000]).fit(X[:1000])
    return partial(model.transform, X[:n])


# Each makes what is called.
CALLS = {
    **{
        f"DPMeans.{method}, {n} rows, {k} clusters": partial(at_centers, n, 16, k, method)
        for method in ("predict", "transform")
        for n, k in ((1, 10), (1, 1000), (1000, 200), (100_000, 200))
    },
    **{
        f"DPMeans.{method}, {n} rows": partial(with_spreads, n, method)
        for method in ("predict_proba", "outlier_scores")
        for n in (1, 1000, 1_000_000)
    },
    "DPMeans, fit and first probabilities, 50k rows": partial(first_probabilities, 50_000),
    **{
        f"MiniBatchDPMeans.partial_fit, {n} rows, {k} clusters": lambda n=n, k=k: next_batch(
            sv.MiniBatchDPMeans(lam=penalty(16), random_state=0), blobs(20_000, 16, k)[0], n
        )
        for n, k in ((1, 10), (100, 10), (4096, 500))
    },
    **{
        f"DynamicMeans.partial_fit, {n} points": lambda n=n: next_batch(
            sv.DynamicMeans(lam=2.0, t_q=6.8, k_tau=1.01, n_init=1), blobs(n, 2, 5)[0], n
        )
        for n in (75, 200, 100_000)
    },
    "KernelDynamicMeans.partial_fit, 200 points": lambda: next_batch(
        sv.KernelDynamicMeans(lam=1.0, gamma=0.1, random_state=0), blobs(1200, 2, 10)[0], 200
    ),
    "SpectralDynamicMeans.partial_fit, 200 points": lambda: next_batch(
        sv.SpectralDynamicMeans(lam=20.0, t_q=5.0, k_tau=1.1, gamma=0.05, random_state=0),
        *(blobs(200, 2, 5)[0], 200),
    ),
    **{
        f"KFeatures.transform, {assign}, {n} rows": partial(new_features, n, assign)
        for n in (1, 100_000)
        for assign in ("coordinate", "exact")
    },
    "coreset of 50k rows, and a fit": partial(coreset_and_fit, *SIZES["50k x 16"]),
    "coreset of 1M rows, and a fit": partial(coreset_and_fit, *SIZES["1M x 16"]),
    "farthest_first_lambda, 1k x 2": lambda: partial(
        sv.farthest_first_lambda, blobs(*SIZES["1k x 2"])[0], 8
    ),
    "farthest_first_lambda, 1M x 16": lambda: partial(
        sv.farthest_first_lambda, blobs(*SIZES["1M x 16"])[0], 100
    ),
    "boundary_evidence, 1k x 2": partial(all_boundaries, *SIZES["1k x 2"]),
    "boundary_evidence, 50k x 16": partial(all_boundaries, *SIZES["50k x 16"]),
    **{
        f"DPMeans.{method}, sparse 20k x 20k": partial(of_sparse_rows, method)
        for method in ("predict", "transform")
    },
}


class Calls:
    """What is done with a model, and functions beside the estimators."""

    param_names = ["call"]
    params = [list(CALLS)]

    def setup(self, name):
        """Make the data; call once."""
        warnings.simplefilter("ignore")
        self.call = CALLS[name]()
        self.call()

    def time_call(self, name):
        """Seconds."""
        self.call()
