"""Data for the tests: worked examples, random problems and the checks every fit must pass."""

import zlib
from dataclasses import dataclass, field

import numpy as np
import twins.exact
import twins.features
import twins.penalty
from helpers import never_rises
from scipy.optimize import linear_sum_assignment


@dataclass
class Example:
    """A worked example: what each algorithm returns on a few points of the line."""

    name: str
    x: list
    lam: float
    labels: list
    centers: list
    path: list
    n_iter: int
    algorithms: tuple = ("serial",)
    options: dict = field(default_factory=dict)

    @property
    def X(self):
        """The points as a column."""
        return np.array(self.x, dtype=float)[:, None]


# Worked out by hand. `options` are the arguments of the twin.
# fmt: off
EXAMPLES = [
    # Mean 5.5. 0 is 30.25 away and opens a cluster that takes 1; 10 opens one that takes 11;
    # nobody is left at the mean.
    Example(
        "two pairs", [0, 1, 10, 11], 9, [0, 0, 1, 1], [0.5, 10.5], [19, 19], 2, ("serial",),
    ),
    # 0 and 11 are equally far: the lower index leaves. Then the rest has its mean at 22/3;
    # 1 joins 0, and 11 (13.44 away) leaves. Then 10 is alone at 10, and nothing pays.
    Example(
        "two pairs", [0, 1, 10, 11], 9, [1, 1, 0, 2], [10, 0.5, 11],
        [182 / 3 + 18, 27.5, 27.5], 3, ("delayed",),
    ),
    # 0 costs 3/4 (22/3)^2 beside the others, so it leaves; 1 follows; 10 and 11 stay.
    Example(
        "two pairs", [0, 1, 10, 11], 9, [1, 1, 0, 0], [10.5, 0.5], [19, 19], 2, ("collapsed",),
    ),
    # A point exactly at lam stays.
    Example("at lam", [0, 2], 1, [0, 0], [1], [3], 1, ("serial", "delayed")),
    # Just beyond: in one sweep both leave, or only the first.
    Example("beyond lam", [0, 2], 0.99, [0, 1], [0, 2], [1.98, 1.98], 2, ("serial",)),
    Example("beyond lam", [0, 2], 0.99, [1, 0], [2, 0], [1.98, 1.98], 2, ("delayed",)),
    # Joining the other point costs 1/2 * 4, a cluster of its own 2: a tie, so it joins.
    Example("at lam", [0, 2], 2, [0, 0], [1], [4], 1, ("collapsed",)),
    # Mean 1.5: w d is 2.25 for the light point, which leaves, and 0.75 for the heavy one.
    Example(
        "weights", [0, 2], 1, [1, 0], [2, 0], [2, 2], 2, ("serial", "delayed"),
        {"weights": [1, 3]},
    ),
    # Joining costs 1 * 3 / 4 * 4 = 3.
    Example(
        "weights", [0, 2], 2.9, [1, 0], [2, 0], [5.8, 5.8], 2, ("collapsed",),
        {"weights": [1, 3]},
    ),
    # Without 100, which has no weight, this is "two pairs"; 100 is nearest to 10.5.
    Example(
        "zero weight", [100, 0, 1, 10, 11], 9, [1, 0, 0, 1, 1], [0.5, 10.5], [19, 19], 2,
        ("serial",), {"weights": [0, 1, 1, 1, 1]},
    ),
    Example(
        "zero weight", [100, 0, 1, 10, 11], 9, [0, 1, 1, 0, 0], [10.5, 0.5], [19, 19], 2,
        ("collapsed",), {"weights": [0, 1, 1, 1, 1]},
    ),
    # 3 is nearer to 1.5 than to 5, so Algorithm 1 stays (the first sweep from given centers
    # does not stop) ...
    Example(
        "given centers", [0, 3, 5], 10, [0, 0, 1], [1.5, 5], [24.5, 24.5], 2,
        ("serial", "delayed"), {"init": [[1.5], [5.0]]},
    ),
    # ... but 3 costs 1/2 * 9 beside 0, and 1/2 * 4 beside 5.
    Example(
        "given centers", [0, 3, 5], 10, [0, 1, 1], [0, 4], [22, 22], 2,
        ("collapsed",), {"init": [[1.5], [5.0]]},
    ),
    # 50 gets no point and disappears; -1 and 6 keep their order.
    Example(
        "useless center", [5, 0], 10, [1, 0], [0, 5], [20, 20], 2,
        ("serial", "delayed", "collapsed"), {"init": [[-1.0], [50.0], [6.0]]},
    ),
    # The mean, 10, takes one of the two slots: only 0 gets a cluster of its own.
    Example(
        "cap", [0, 10, 20], 4, [1, 0, 0], [15, 0], [58, 58], 2,
        ("serial", "delayed"), {"max_clusters": 2},
    ),
    # Emptied centers hold their slots to the end of the sweep: 10 takes the third, so 20
    # has to join it. In the second sweep both leave their mean, 15, which disappears.
    Example(
        "cap, emptied slots", [10, 20], 4, [0, 1], [10, 20], [54, 8, 8], 3,
        ("serial",), {"max_clusters": 3, "init": [[100.0], [0.0]]},
    ),
    # In the second sweep 0, a singleton, may stay alone: its own slot is free again.
    Example(
        "cap", [0, 10, 20], 4, [1, 0, 0], [15, 0], [58, 58], 2,
        ("collapsed",), {"max_clusters": 2},
    ),
    # The order of visit: 11 first, then 10, 1, 0.
    Example(
        "order", [0, 1, 10, 11], 9, [1, 1, 0, 0], [10.5, 0.5], [19, 19], 2,
        ("serial",), {"order": [3, 2, 1, 0]},
    ),
    Example(
        "order", [0, 1, 10, 11], 9, [0, 0, 1, 1], [0.5, 10.5], [19, 19], 2,
        ("collapsed",), {"order": [3, 2, 1, 0]},
    ),
    # Mean 1.6: 5 leaves (11.56), 3 does not (1.96). Then the means are 0.75 and 5, and 3 goes
    # to 5. The third sweep changes nothing.
    Example(
        "three sweeps", [0, 0, 0, 3, 5], 4.5, [0, 0, 0, 1, 1], [0, 4], [15.75, 11, 11], 3,
        ("serial", "delayed"),
    ),
    # Sweeps that create are free, so max_iter=1 allows the first two of them. That is no fixed
    # point, as far as one knows: a nearest-center pass follows.
    Example(
        "few sweeps", [0, 0, 0, 3, 5], 4.5, [0, 0, 0, 1, 1], [0, 4], [15.75, 11, 11], 2,
        ("serial", "delayed"), {"max_iter": 1},
    ),
    # The sweep leaves 3 at 0 (means 5/3 and 4); the nearest-center pass moves it to 4, but no
    # center.
    Example(
        "closing pass", [0, 2, 3, 4], 20, [0, 0, 1, 1], [5 / 3, 4], [14 / 3 + 40, 35 / 9 + 40],
        1, ("serial", "delayed"), {"max_iter": 1, "init": [[0.0], [7.0]]},
    ),
    # lam = 0 and a cap: k-means.
    Example(
        "k-means", [0, 1, 4, 9, 10], 0, [0, 0, 0, 1, 1], [5 / 3, 9.5], [26 / 3 + 0.5] * 2, 2,
        ("serial", "delayed"), {"init": [[1.0], [9.0]], "max_clusters": 2},
    ),
    # Equal points never travel between clusters that are equally good.
    Example(
        "duplicates", [2, 2, 2, 2], 1, [0, 0, 0, 0], [2], [1, 1], 2,
        ("serial", "delayed", "collapsed"), {"init": [[2.0], [2.0]]},
    ),
    Example("one point", [7], 3, [0], [7], [3], 1, ("serial", "delayed", "collapsed")),
]
# fmt: on
EXAMPLE_CASES = [(algorithm, e) for e in EXAMPLES for algorithm in e.algorithms]
EXAMPLE_IDS = [f"{e.name}-{algorithm}" for algorithm, e in EXAMPLE_CASES]


@dataclass
class Problem:
    """Random data and the arguments of one fit."""

    X: np.ndarray
    lam: float
    weights: np.ndarray | None = None
    init: np.ndarray | None = None
    max_clusters: int | None = None
    max_iter: int = 300


def blobs(rng, n, d, k, spread=0.15):
    """`n` points around `k` centers in the unit cube."""
    centers = rng.random((k, d))
    return centers[rng.integers(k, size=n)] + spread * rng.normal(size=(n, d)) / np.sqrt(d)


def _log_uniform(rng, low, high):
    return int(np.exp(rng.uniform(np.log(low), np.log(high + 1))))


def _draw(rng, n, d):
    """Clustered or uniform data on a random scale."""
    if rng.random() < 0.5:
        X = rng.random((n, d))
    else:
        X = blobs(rng, n, d, _log_uniform(rng, 2, 30))
    return X * 10.0 ** rng.integers(-3, 4)


def _penalty(rng, X, k):
    """A penalty that opens something like k clusters."""
    return twins.penalty.farthest_first(X, min(k, len(X))) * rng.uniform(0.7, 1.3)


# fmt: off
FAMILIES = (
    "plain", "tiny", "large", "many", "wide", "singletons", "weights", "zero weights", "float32",
    "far", "given centers", "cap", "few sweeps", "everything",
)
# fmt: on


def random_problem(family, seed, n_max=20_000):
    """A problem in general position; `n_max` scales it down for slow twins."""
    rng = np.random.default_rng([seed, zlib.crc32(family.encode())])
    n = _log_uniform(rng, 30, min(n_max, 8000))
    d = _log_uniform(rng, 1, 24)
    k = _log_uniform(rng, 1, 60)
    if family == "tiny":
        n, d, k = int(rng.integers(1, 9)), int(rng.integers(1, 5)), int(rng.integers(1, 4))
    elif family == "large":
        n, d = int(rng.integers(n_max // 2, n_max + 1)), int(rng.integers(1, 9))
        k = _log_uniform(rng, 20, 200)
    elif family == "many":
        n, d = min(n_max, 5000), int(rng.integers(2, 4))
        k = _log_uniform(rng, n // 20, n // 3)
    elif family == "wide":
        n, d = _log_uniform(rng, 100, min(n_max, 2500)), int(rng.integers(25, 45))
    elif family == "singletons":
        n, d = _log_uniform(rng, 10, min(n_max, 3000)), int(rng.integers(2, 8))
    X = _draw(rng, n, d)
    if family in ("float32", "everything"):
        X = X.astype(np.float32)
    problem = Problem(X, _penalty(rng, X, k))
    if family == "singletons":
        problem.lam = 1e-12 * max(np.square(X).sum(), 1e-6)
    if family == "large":
        problem.max_iter = 12
    if family in ("weights", "everything"):
        problem.weights = rng.gamma(1.0, size=n) + 1e-3
    if family == "everything":
        problem.weights[rng.random(n) < 0.1] = 0.0
        problem.weights[rng.integers(n)] = 1.0
    if family == "zero weights":
        problem.weights = rng.gamma(1.0, size=n) * (rng.random(n) < 0.7)
        problem.weights[rng.integers(n)] = 1.0
    if family == "far":
        problem.X = X / X.std() + 1e6 if n > 1 else X + 1e6
        problem.lam = _penalty(rng, problem.X, k)
    if family in ("given centers", "everything"):
        m = _log_uniform(rng, 1, 40)
        scatter = X.std() + 1e-3
        problem.init = X[rng.integers(n, size=m)] + scatter * rng.normal(size=(m, d))
        problem.init = problem.init.astype(float)
        if seed % 2:  # nearly all rows are nearest to the first center
            far = np.argsort(np.square(X - X.mean(axis=0)).sum(axis=1))[-3:]
            problem.init = np.vstack([X.mean(axis=0), X[far]]).astype(float)
            problem.lam *= 4
    if family in ("cap", "everything"):
        least = 1 if problem.init is None else len(problem.init)
        problem.max_clusters = least + _log_uniform(rng, 1, 20) - 1
        if seed % 4 == 0:
            problem.lam = 0.0
    if family == "few sweeps":
        problem.max_iter = 1 + seed % 3
        problem.init = X[rng.permutation(n)[: min(n, k)]].astype(float) if seed % 2 else None
    return problem


def tied_problem(seed, n=400):
    """Duplicated rows or a grid of integers, with weights that sum exactly."""
    rng = np.random.default_rng([seed, 77])
    d = 1 + seed % 4
    if seed % 2:
        X = rng.integers(-2, 3, size=(n, d)).astype(float)
    else:
        X = rng.normal(size=(max(n // 8, 1), d))[rng.integers(max(n // 8, 1), size=n)]
    problem = Problem(X, _penalty(rng, np.unique(X, axis=0), 1 + seed % 9))
    if seed % 3 == 0:
        problem.weights = 2.0 ** rng.integers(-2, 3, size=n)
    if seed % 5 == 0:
        problem.init = X[rng.integers(n, size=5)]
    return problem


def check_state(model, X, sample_weight=None):
    """Assert what holds after every fit of DPMeans, whatever the data."""
    X = np.asarray(X, dtype=float)
    weights = np.ones(len(X)) if sample_weight is None else np.asarray(sample_weight, float)
    labels, centers = model.labels_, model.cluster_centers_
    assert labels.dtype == np.int32 and labels.shape == (len(X),)
    assert centers.dtype == np.float64 and centers.shape == (model.n_clusters_, X.shape[1])
    assert model.n_features_in_ == X.shape[1]
    assert np.array_equal(np.unique(labels[weights > 0]), np.arange(model.n_clusters_))
    inertia = twins.exact.sum_of_squares(X, weights, labels, centers)
    rounding = 1e-15 * np.square(X).sum() * weights.max()
    np.testing.assert_allclose(model.inertia_, inertia, rtol=1e-9, atol=rounding)
    np.testing.assert_allclose(
        model.objective_, model.inertia_ + model.lam_ * model.n_clusters_, rtol=1e-12
    )
    path = model.objective_path_
    assert path.dtype == np.float64 and path.ndim == 1
    assert path[-1] == model.objective_
    assert never_rises(path)


# Features -----------------------------------------------------------------------------------


@dataclass
class FeatureProblem:
    """Random data for features, and the arguments of one start."""

    X: np.ndarray
    lam: float
    n_components: int
    Z: np.ndarray  # a start of its own
    state: int  # of the generator of the seeds
    mean: bool  # how the seeding begins
    weights: np.ndarray | None = None
    max_features: int | None = None

    @property
    def doubles(self):
        """The data as float64, as the twins need them."""
        return np.asarray(self.X, dtype=float)

    @property
    def w(self):
        """The weights, 1 each if there are none."""
        return np.ones(len(self.X)) if self.weights is None else self.weights


def feature_problem(seed, n_max=60):
    """Noisy sums of random features, in general position; seeds vary weights, type and cap."""
    rng = np.random.default_rng([seed, 99])
    n, d, k = int(rng.integers(4, n_max + 1)), int(rng.integers(1, 12)), int(rng.integers(1, 6))
    A, Z = rng.normal(size=(k, d)), rng.integers(0, 2, size=(n, k))
    X = (Z @ A + rng.choice([0.05, 0.3, 1.0]) * rng.normal(size=(n, d))) * 10.0 ** (seed % 5 - 2)
    if seed % 4 == 0:
        X = X.astype(np.float32)
    width = int(rng.integers(1, min(n, 7)))
    start = rng.integers(0, 2, size=(n, width))
    while np.linalg.matrix_rank(start) < width:
        start = rng.integers(0, 2, size=(n, width))
    return FeatureProblem(
        X,
        float(rng.choice([0.2, 1.0, 4.0, 20.0]) * X.var() * d),
        width,
        start,
        int(rng.integers(2**62)),
        bool(seed % 2),
        rng.gamma(1.0, size=n) + 0.05 if seed % 3 == 0 else None,
        width if seed % 5 == 0 else None,
    )


def tied_feature_problem(seed, n_max=30):
    """Small integers (or tenths and thirds of them), repeated rows and columns, or no noise."""
    rng = np.random.default_rng([seed, 101])
    n, d = int(rng.integers(2, n_max + 1)), int(rng.integers(1, 5))
    unit = (1.0, 0.5, 0.1, 1 / 3)[seed % 4]
    if seed % 3:
        X = rng.integers(-3, 4, size=(n, d)) * unit
    else:
        k = int(rng.integers(1, 4))
        X = rng.integers(0, 2, size=(n, k)) @ rng.integers(-4, 5, size=(k, d)) * unit
    if seed % 5 == 0:
        X = np.hstack([X, X])
    if seed % 7 == 0:
        X = X[rng.integers(n, size=n)]
    width = int(rng.integers(1, min(n, 5)))
    return FeatureProblem(
        X,
        float(rng.choice([0.25, 1.0, 2.0, 4.0, 20.0])) * unit**2,
        width,
        rng.integers(0, 2, size=(n, width)),
        int(rng.integers(2**62)),
        bool(seed % 2),
        2.0 ** rng.integers(-2, 3, size=n) if seed % 3 == 1 else None,
        width if seed % 5 == 0 else None,
    )


PLANTED = ("non-negative", "signed", "overlapping", "shared")


def planted_features(kind, seed, n=300, d=30, k=5, noise=0.05):
    """Noisy rows with known features: X, Z, A."""
    rng = np.random.default_rng([seed, zlib.crc32(kind.encode())])
    Z = (rng.random((n, k)) < 0.4).astype(int)
    A = rng.normal(size=(k, d))
    if kind == "non-negative":
        A = rng.gamma(0.5, size=(k, d))
    elif kind == "overlapping":  # each covers two thirds of the columns
        A = np.where(rng.random((k, d)) < 2 / 3, rng.uniform(0.5, 1.5, size=(k, d)), 0.0)
    elif kind == "shared":  # one that every row has
        Z[:, 0] = 1
        A[0] *= 2
    return Z @ A + noise * rng.normal(size=(n, d)), Z, A


def dice(n=100, seed=0):
    """Pictures of 14 x 14 pixels, each a subset of four objects: X and Z."""
    objects = np.zeros((4, 14, 14))
    objects[0, 1:6, 1:6] = 1  # a square,
    objects[1, 2:6, 8:13] = np.eye(4, 5)  # a stroke,
    objects[1, 5, 8:13] = 1
    objects[2, 8:13, 3] = objects[2, 10, 1:6] = 1  # a cross,
    objects[3, 8:13, 8:13] = 1  # and a ring
    objects[3, 9:12, 9:12] = 0
    Z = np.random.default_rng(seed).integers(0, 2, size=(n, 4))
    return Z @ objects.reshape(4, -1), Z


def same_columns(Z, other, *, complement=False):
    """Share of equal entries once the columns are matched as well as can be.

    `complement`: a column counts as equal to its complement. (With a feature that all rows
    share, z a + b = (1 - z)(-a) + (a + b).)
    """
    unequal = np.abs(Z[:, :, None] - other[:, None, :]).sum(axis=0)
    if complement:
        unequal = np.minimum(unequal, len(Z) - unequal)
    rows, columns = linear_sum_assignment(unequal)
    return 1 - unequal[rows, columns].sum() / Z.size


def check_features(model, X, sample_weight=None):
    """Assert what holds after every fit of features, whatever the data."""
    X = np.asarray(X, dtype=float)
    w = np.ones(len(X)) if sample_weight is None else np.asarray(sample_weight, float)
    Z, A, path = model.assignments_, model.components_, model.objective_path_
    assert Z.dtype == np.int32 and Z.shape == (len(X), model.n_components_)
    assert A.dtype == np.float64 and A.shape == (model.n_components_, X.shape[1])
    assert model.n_features_in_ == X.shape[1]
    assert np.isin(Z, (0, 1)).all()
    penalty = getattr(model, "lam_", 0.0) * len(A)
    rounding = 1e-14 * (w @ np.square(X).sum(axis=1))
    error = twins.features.feature_error(X, Z, A, w)
    np.testing.assert_allclose(model.objective_, error + penalty, rtol=1e-9, atol=rounding)
    np.testing.assert_allclose(model.reconstruction_err_**2, error, rtol=1e-9, atol=rounding)
    assert path.dtype == np.float64 and path.ndim == 1
    assert path[-1] == model.objective_
    assert np.all(np.diff(path) <= 1e-9 * path[0] + rounding)
    if w.all():  # the features are the least squares solution for the assignments
        best = twins.features.feature_error(X, Z, twins.features.least_squares(X, Z, w), w)
        np.testing.assert_allclose(error, best, rtol=1e-9, atol=rounding)
    if (
        getattr(model, "algorithm", "stepwise") != "stepwise"
    ):  # each one has a user, and none depends on the others
        assert len(A) == 0 or np.linalg.matrix_rank(Z[w > 0]) == len(A)


# Paths -------------------------------------------------------------------------------------


@dataclass
class PathProblem:
    """Random data and the arguments of one merge path."""

    X: np.ndarray
    lam: float | None = None
    weights: np.ndarray | None = None
    init: np.ndarray | None = None
    max_clusters: int | None = None
    sizes: dict = field(default_factory=dict)  # constants of _selection/search.py in its search


# fmt: off
PATH_FAMILIES = (
    "plain", "uniform", "long", "own shapes", "heavy tails", "tiny", "weights", "zero weights",
    "float32", "constant columns", "repeated rows", "far", "max_clusters", "lam", "init",
    "subsample", "many", "steps", "everything", "flags", "years", "zeros", "one-hot", "skewed",
    "filled", "table", "rounded", "small clusters",
)
# fmt: on


def path_problem(family, seed, n_max=400):
    """A problem in general position, with anything from 1 to many clusters."""
    rng = np.random.default_rng([seed, zlib.crc32(family.encode())])
    n, d, k = _log_uniform(rng, 20, n_max), _log_uniform(rng, 1, 12), _log_uniform(rng, 1, 12)
    if family == "tiny":
        n, k = int(rng.integers(1, 12)), int(rng.integers(1, 4))
    if family == "subsample":
        n, k = max(n, n_max // 2), min(k, 5)
        if seed % 4 == 3:  # a sample that is large enough for its clusters
            n = 8 * n_max
    if family in ("long", "everything"):
        n, d = max(n, 150), max(d, 2)
    if family == "own shapes":
        n, d = max(n, 100), 2
    if family in ("many", "steps"):
        n, k = max(n, 200), n_max // 5
    z = rng.integers(k, size=n)
    X = rng.normal(size=(k, d))[z] + rng.choice([0.02, 0.1, 0.4]) * rng.normal(size=(n, d))
    if family in ("many", "steps"):  # more than the first coarse pass expects
        X = rng.normal(size=(k, d))[z] + 0.02 / k * rng.normal(size=(n, d))
    if family == "uniform":
        X = rng.random((n, d)) * rng.choice([1, 10], size=d)
    if family in ("long", "everything"):
        shape = rng.normal(size=(d, d)) @ np.diag(10.0 ** -rng.uniform(0, 1.5, size=d))
        X = 2 * rng.normal(size=(k, d))[z] + rng.normal(size=(n, d)) @ shape
    if family == "own shapes":
        shape = rng.normal(size=(k, 2, 2)) * 10.0 ** -rng.uniform(0.3, 1, size=(k, 2, 1))
        X = 2 * rng.normal(size=(k, 2))[z] + np.einsum(
            "nj,njl->nl", rng.normal(size=(n, 2)), shape[z]
        )
    if family == "heavy tails":
        X = rng.normal(size=(k, d))[z] + 0.05 * rng.standard_t(2, size=(n, d))
    X = X * 10.0 ** rng.integers(-3, 4)
    problem = PathProblem(X)
    if family in ("weights", "everything"):
        problem.weights = rng.gamma(1.0, size=n) + 1e-3
    if family == "zero weights":
        problem.weights = rng.gamma(1.0, size=n) * (rng.random(n) < 0.7)
        problem.weights[rng.integers(n)] = 1.0
    if family in ("constant columns", "everything"):
        problem.X = np.insert(X, sorted(rng.integers(0, d + 1, size=2)), [0.1, -7e3], axis=1)
    if family == "repeated rows":
        problem.X = X[rng.integers(n, size=n)]
        if seed % 3 == 0:
            problem.X = X[rng.integers(1 + n // 8, size=n)]
    if family in ("float32", "everything"):
        problem.X = problem.X.astype(np.float32)
    if family == "far":
        problem.X = X / max(X.std(), 1e-3) + 1e6 * rng.normal(size=d)
    if family == "max_clusters" or (family == "everything" and seed % 3 == 0):
        problem.max_clusters = _log_uniform(rng, 1, 2 * k)
    if family == "lam":
        scatter = np.square(X - X.mean(axis=0)).sum()
        problem.lam = float(scatter * 10.0 ** -rng.uniform(0, 8))
        if seed % 4 == 0:
            problem.lam, problem.max_clusters = 0.0, _log_uniform(rng, 1, 20)
    if family == "init":
        m = _log_uniform(rng, 1, 40)
        problem.init = (X[rng.integers(n, size=m)] + X.std() * rng.normal(size=(m, d))).astype(
            float
        )
        problem.max_clusters = m + 1 if seed % 3 == 0 else None
    if family == "subsample" or (family == "everything" and seed % 2):
        coarse = max(10, n // int(rng.integers(3, 9)))
        sizes = {
            "COARSE_PATH_ROWS": coarse,
            "FINE_PATH_ROWS": 2 * coarse,
            "PATH_ROWS_A_CLUSTER": int(rng.integers(2, 6)),
        }
        if seed % 4 == 3 and family == "subsample":
            sizes = {
                "COARSE_PATH_ROWS": 1100,
                "FINE_PATH_ROWS": 1300,
                "PATH_ROWS_A_CLUSTER": int(rng.integers(5, 40)),
            }
        if seed % 3 == 0:
            sizes["COARSE_NUMBERS"] = sizes["COARSE_PATH_ROWS"] * d * 2 // 3
        problem.sizes |= sizes
    if family == "steps" or (family == "everything" and seed % 4 == 1):
        problem.sizes |= {
            "CLUSTERS_A_MERGER": int(rng.integers(6, 20)),
            "FEW_CLUSTERS": int(rng.integers(1, 9)),
        }
    if family in ("flags", "years", "zeros", "one-hot", "skewed", "filled", "table"):
        problem.X, problem.weights = _table(rng, family, seed, problem.X, z)
    if family == "rounded":  # long clusters, recorded in steps, most beside a column of numbers
        n, k, step = 240, int(rng.integers(3, 8)), rng.choice([0.05, 0.3])
        X = rng.normal(size=(n, 4)) * [10.0, 0.4, 0.4, 0.4]
        X += 3.0 * rng.normal(size=(k, 4))[rng.integers(k, size=n)] * [0.0, 1.0, 1.0, 1.0]
        columns = 4 - seed % 2
        X[:, :columns] = step * np.rint(X[:, :columns] / step)
        problem.X = X + 1e-8 * step * rng.random(X.shape)
    if family == "small clusters":  # of which too few rows are in the first sample
        z = np.where(rng.random(n_max) < 0.95, 0, rng.integers(1, 5, size=n_max))
        centers = 20.0 * rng.normal(size=(5, 3))
        problem.X = centers[z] + rng.normal(size=(n_max, 3))
        problem.sizes |= {"COARSE_PATH_ROWS": 16 + seed, "FINE_PATH_ROWS": n_max - seed}
    if seed % 2:  # clusters to begin with are drawn
        problem.sizes["SINGLE_ROWS"] = int(rng.integers(0, n_max))
    return problem


def _table(rng, family, seed, X, z):
    """Columns as tables have them, most beside columns of numbers, and weights for some.

    Values in steps differ a little, or else a tie of distances would be up to rounding.
    """
    n, columns = len(X), [X / X.std()]
    if family in ("flags", "table"):
        rate = rng.random((z.max() + 1, 3))[z]
        columns.append(np.where(rng.random((n, 3)) < rate, rng.choice([1.0, 3.0]), 0.0))
    if family in ("years", "table"):
        year = rng.integers(1960, 2020, size=(z.max() + 1, 2))[z]
        columns.append(0.1 * (year + np.rint(3 * rng.normal(size=(n, 2)))))
    if family in ("zeros", "table"):
        columns.append(np.where(rng.random((n, 2)) < 0.5, 0.0, rng.gamma(2.0, size=(n, 2))))
    if family in ("one-hot", "table"):
        m = int(rng.integers(3, 8))
        columns.append(np.eye(m)[np.where(rng.random(n) < 0.7, z % m, rng.integers(m, size=n))])
        if seed % 3 == 0:  # one level has no column
            columns[-1] = columns[-1][:, 1:]
    if family in ("skewed", "table"):
        columns[0] = np.column_stack([np.exp(columns[0][:, :2]), columns[0][:, 2:]])
    if family in ("flags", "years", "one-hot") and seed % 4 == 3:
        del columns[0]  # all columns in steps
    Y = np.column_stack(columns) + 1e-8 * rng.random((n, 1))
    Y += 1e-9 * rng.random(Y.shape)
    if family in ("filled", "table"):
        gaps = rng.random(n) < rng.choice([0.03, 0.1])
        Y[gaps, 0] = rng.choice([Y[:, 0].mean(), np.median(Y[:, 0])])
    return Y, rng.gamma(2.0, size=n) + 0.1 if seed % 3 == 2 else None
