"""SphericalDPMeans: equal to its twin; directions, cosines, what is refused."""

import tracemalloc
import warnings

import numpy as np
import pytest
import scipy.sparse as sp
import twins.exact
import twins.spherical
from helpers import assert_refuses, fit, never_rises, seeds
from numpy.testing import assert_allclose
from sklearn.metrics import adjusted_rand_score
from sklearn.utils import check_random_state
from smallvar._sweeps.residual_density import tangent_vectors

from smallvar import DPMeans, SphericalDPMeans, UnclearNumberWarning
from smallvar._centers import unit_rows
from smallvar._selection.sample import PathClustering
from smallvar._selection.sphere import _Cluster, directions, sharpest

FAMILIES = (
    "plain",
    "grid",
    "antipodes",
    "float32",
    "weights",
    "zero weights",
    "unit",
    "given centers",
    "cap",
    "few sweeps",
    "columns",
)


def problem(family, seed):
    """Rows, lam and the arguments of one fit."""
    rng = np.random.default_rng([seed, FAMILIES.index(family)])
    n, d = int(np.exp(rng.uniform(0, 6))), int(np.exp(rng.uniform(0, 3.3)))
    C = rng.normal(size=(int(rng.integers(1, 20)), d))
    X = C[rng.integers(len(C), size=n)] + rng.choice([0.1, 0.5, 2]) * rng.normal(size=(n, d))
    X *= 10.0 ** rng.integers(-3, 4, size=(n, 1))
    options = {"algorithm": ("serial", "delayed")[seed % 2]}
    if family == "grid":  # few directions, equal rows, ties
        X = rng.integers(-1, 2, size=(n, d)).astype(float)
        X[~X.any(axis=1)] = 1.0
    if family == "antipodes":  # clusters whose sum vanishes
        X = np.concatenate([X, -X, X])[rng.permutation(3 * n)]
        options["max_clusters"] = int(rng.integers(1, 4))
    if family == "float32":
        X = X.astype(np.float32)
    if family == "weights":
        options["weights"] = rng.gamma(1.0, size=n) + 1e-3
    if family == "zero weights":
        options["weights"] = rng.choice([0, 0.5, 1, 3.3], size=n)
        options["weights"][rng.integers(n)] = 1.0
    if family == "unit":
        X = twins.spherical.unit_rows(X.astype((np.float32, float)[seed // 2 % 2]))
    if family in ("cap", "few sweeps"):
        options["max_clusters"] = int(rng.integers(2, 9))
    if family in ("given centers", "few sweeps"):
        options["init"] = rng.normal(size=(int(rng.integers(1, 3)), d))
    if family == "few sweeps":
        options["max_iter"] = 1 + seed % 3
    if family == "columns":
        X = np.asfortranarray(X)
    lam = float(rng.choice([0.02, 0.05, 0.3, 0.6, 1, 1.5]))
    if "max_clusters" in options and seed % 5 == 0:
        lam = 0.0
    return X, lam, options


@pytest.mark.parametrize("family", FAMILIES)
@seeds(18)
def test_equals_twin(family, seed):
    """The same labels, centers and objective, bit for bit."""
    X, lam, options = problem(family, seed)
    twin = twins.spherical.fit(X, lam, **options)
    weights = options.pop("weights", None)
    model = SphericalDPMeans(
        lam=lam,
        random_state=seed,
        n_threads=1 + seed % 3,
        **options,
    )
    before = X.copy()
    assert fit(model, X, weights) == (not twin.converged)
    assert np.array_equal(X, before)
    assert np.array_equal(model.labels_, twin.labels)
    assert np.array_equal(model.cluster_centers_, twin.centers)
    assert model.objective_ == twin.objective
    assert model.n_iter_ == twin.n_iter
    path = model.objective_path_
    np.testing.assert_allclose(path, twin.objective_path, rtol=1e-9, atol=1e-9 * path[0])
    assert never_rises(path)
    check(model, X, weights)


def check(model, X, weights=None):
    """What holds after every fit."""
    w = np.ones(len(X)) if weights is None else weights
    cosines = twins.spherical.unit_rows(np.asarray(X, float)) @ model.cluster_centers_.T
    own = cosines[np.arange(len(X)), model.labels_]
    rounding = 1e-6 if X.dtype == np.float32 else 1e-12
    np.testing.assert_allclose(np.linalg.norm(model.cluster_centers_, axis=1), 1, atol=rounding)
    np.testing.assert_allclose(
        model.inertia_, w @ (1 - own), rtol=rounding, atol=rounding * w.sum()
    )
    assert model.objective_ == model.inertia_ + model.lam_ * model.n_clusters_
    assert np.array_equal(np.unique(model.labels_[w > 0]), np.arange(model.n_clusters_))
    assert np.array_equal(model.predict(X), model.labels_)
    labels, found = model.predict(X, return_cosines=True)
    assert np.array_equal(labels, model.labels_) and found.dtype == np.float64
    np.testing.assert_allclose(found, own, atol=rounding)
    distances = model.transform(X)
    assert distances.dtype == X.dtype
    np.testing.assert_allclose(distances, 1 - cosines, atol=10 * rounding)
    np.testing.assert_allclose(model.score(X, sample_weight=weights), -model.objective_)


def planted(n=600, d=20, k=6, cosine=0.8, seed=0):
    """Rows about k directions, at this cosine, and the numbers of these."""
    rng = np.random.default_rng(seed)
    C, E = twins.spherical.unit_rows(rng.normal(size=(k, d))), rng.normal(size=(n, d))
    z = rng.integers(k, size=n)
    E -= (E * C[z]).sum(axis=1)[:, None] * C[z]
    return cosine * C[z] + np.sqrt(1 - cosine**2) * twins.spherical.unit_rows(E), z


def test_min_cosine_is_one_minus_lam():
    X, z = planted()
    model = SphericalDPMeans(min_cosine=0.4).fit(X)
    other_model = SphericalDPMeans(lam=1 - 0.4).fit(X)
    assert model.lam_ == other_model.lam_ == 1 - 0.4
    assert np.array_equal(model.labels_, other_model.labels_)
    assert adjusted_rand_score(z, model.labels_) == 1


@pytest.mark.long
@pytest.mark.parametrize("cosine", [0.6, 0.75, 0.9])
def test_directions_are_found(cosine):
    """Those planted, in rows of any length, and of any type."""
    X, z = planted(3000, 60, 12, cosine)
    X *= np.random.default_rng(1).gamma(1.0, size=(len(X), 1))
    model = SphericalDPMeans(random_state=0).fit(X)
    assert model.path_.best == model.n_clusters_ == 12
    assert adjusted_rand_score(z, model.labels_) > 0.99
    check(model, X)
    twin = twins.spherical.fit(
        X, model.lam_, init=model.path_.centers(12), max_clusters=12, max_iter=300
    )
    assert np.array_equal(model.labels_, twin.labels)
    single = SphericalDPMeans(random_state=0).fit(X.astype(np.float32))
    assert np.array_equal(single.labels_, model.labels_)


def test_penalty_for_a_guess():
    """Farthest-first from the first row: half the squared distance at the last seed."""
    X, z = planted(3000, 60, 12, 0.9)
    model = SphericalDPMeans(lam="farthest-first", guess=12).fit(X)
    assert adjusted_rand_score(z, model.labels_) == 1
    seeds = X[:1]
    for _ in range(12):
        distance = twins.exact.nearest(X, seeds)[1]
        seeds = np.concatenate([seeds, X[[distance.argmax()]]])
    np.testing.assert_allclose(model.lam_, distance.max() / 2, rtol=1e-12)


def test_lam_of_a_path_is_what_a_cluster_saves():
    X, _ = planted(1500, 30, 5, 0.7)
    model = SphericalDPMeans(random_state=0).fit(X)
    for k in (4, 6):
        other_model = SphericalDPMeans(lam=0, max_clusters=k, init=model.path_.centers(k)).fit(X)
        assert model.objective_ < other_model.inertia_ + model.lam_ * k


def test_one_direction():
    """A path on rows that do not differ, and its objective."""
    for X in (np.ones((9, 3)), np.arange(1.0, 10)[:, None] * [[1, -2, 3]]):
        model = SphericalDPMeans().fit(X)
        assert model.n_clusters_ == 1 and not model.labels_.any()
        np.testing.assert_allclose(model.cluster_centers_[0], X[0] / np.linalg.norm(X[0]))
        np.testing.assert_allclose(model.inertia_, 0, atol=1e-14)


def test_is_dpmeans_of_unit_rows_where_centers_are_rows():
    """While every row is its own cluster, or equal rows are, both are the same."""
    X = twins.spherical.unit_rows(np.random.default_rng(0).normal(size=(50, 8)))
    X = np.concatenate([X, X])
    model = SphericalDPMeans(lam=1e-6).fit(X)
    assert np.array_equal(model.labels_, DPMeans(lam=2e-6, init=X[:1]).fit(X).labels_)
    assert model.n_clusters_ == 50


def test_worked_example():
    """At 60 degrees from the first row, cos = .5, a row opens a cluster only above that."""
    angle = np.deg2rad([0, 60, 120, 180])
    X = np.column_stack([np.cos(angle), np.sin(angle)])
    model = SphericalDPMeans(min_cosine=0.4).fit(X)
    assert model.labels_.tolist() == [0, 0, 1, 1]
    np.testing.assert_allclose(model.inertia_, 4 * (1 - np.cos(np.pi / 6)))
    assert SphericalDPMeans(min_cosine=0.6).fit(X).n_clusters_ == 4


def test_a_sum_that_vanishes():
    """Opposite rows in one cluster have no direction: it goes, and its rows with it."""
    X = np.array([[1.0, 0.0], [-1.0, 0.0]])
    model = SphericalDPMeans(lam=5.0).fit(X)
    assert model.n_clusters_ == 1 and model.inertia_ == 2.0
    assert model.cluster_centers_.tolist() == [[1.0, 0.0]]
    X = np.array([[0.0, 1.0], [1.0, 0.0], [-1.0, 0.0]])
    model = SphericalDPMeans(lam=5.0, init=[[0.0, -1.0], [0.0, 1.0]]).fit(X)
    assert model.n_clusters_ == 1 and model.labels_.tolist() == [0, 0, 0]
    np.testing.assert_allclose(model.objective_, 2 + 5)
    assert never_rises(model.objective_path_)


def test_lengths_do_not_matter():
    """From 1e-300 to 1e300; rows of length 1 stay the numbers they are."""
    X, _ = planted(200)
    expected = SphericalDPMeans(min_cosine=0.4).fit(X)
    rng = np.random.default_rng(0)
    model = SphericalDPMeans(min_cosine=0.4).fit(X * 2.0 ** rng.integers(-900, 900, size=(200, 1)))
    assert np.array_equal(model.labels_, expected.labels_)
    np.testing.assert_allclose(model.cluster_centers_, expected.cluster_centers_, atol=1e-14)
    part = X.copy()
    part[7] *= 3.0
    again = SphericalDPMeans(min_cosine=0.4).fit(part)
    np.testing.assert_allclose(again.cluster_centers_, expected.cluster_centers_, atol=1e-15)


@pytest.mark.parametrize("kind", ["unit", "others", "in a file"])
def test_rows_lie_where_they_are(monkeypatch, tmp_path, kind):
    """No copy of rows of length 1, one of others, in their own type; of a memory map in a file."""
    X = np.random.default_rng(0).normal(size=(20_000, 100)).astype(np.float32)
    X = twins.spherical.unit_rows(X) if kind == "unit" else X
    if kind == "in a file":
        monkeypatch.setattr(unit_rows, "IN_MEMORY", 0)
        np.save(tmp_path / "X.npy", X)
        X = np.load(tmp_path / "X.npy", mmap_mode="r")
    tracemalloc.start()
    model = SphericalDPMeans(lam=0, max_clusters=3, init=X[:3], max_iter=2, n_threads=1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model.fit(X)
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert most < (2.3 if kind == "others" else 0.5) * X.nbytes


LEARNED = (
    *("labels_", "cluster_centers_", "objective_path_", "inertia_", "lam_", "min_cosine_"),
    *("resultant_lengths_", "n_iter_"),
)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize(
    "options",
    [
        {"min_cosine": 0.8},
        {"lam": 0.1, "algorithm": "delayed", "n_init": 2},
        {"lam": "farthest-first"},
        {"lam": 0, "max_clusters": 120},
        {"n_clusters": 4},
        {},
    ],
)
def test_rows_in_any_layout_and_in_a_file(monkeypatch, tmp_path, options, dtype):
    """The same results, with weights, whether the copy is in memory or in a file."""
    rng = np.random.default_rng(0)
    X = planted(700, 70, 30, 0.4)[0] * rng.uniform(0.01, 100.0, (700, 1))
    X[::5] = twins.spherical.unit_rows(X[::5])
    X[3] = X[4]
    X = X.astype(dtype)
    weights = rng.choice([0.0, 0.7, 3.0], size=700)
    np.save(tmp_path / "X.npy", X)
    mapped = np.load(tmp_path / "X.npy", mmap_mode="r")
    layouts = (mapped, 1), (X.copy(order="F"), 2), (X[:, ::-1].copy()[:, ::-1], 3)
    monkeypatch.setattr(unit_rows, "IN_MEMORY", 0)

    def found(X, weight, threads):
        model = SphericalDPMeans(**options, random_state=0, n_threads=threads)
        model.fit(X, sample_weight=weight)
        out = [getattr(model, name) for name in LEARNED]
        out += [*model.predict(X, return_cosines=True), model.transform(X), model.score(X)]
        if hasattr(model, "path_"):
            out += [model.path_.criterion, model.path_.error, model.path_.labels(2)]
        for part in np.array_split(X, 3):
            model.partial_fit(part)
        return [*out, model.labels_, model.cluster_centers_, model.resultant_lengths_]

    for weight in (None, weights):
        expected = found(X, weight, 1)
        for layout, threads in layouts:
            for one, other in zip(expected, found(layout, weight, threads), strict=True):
                assert np.array_equal(one, other)


@pytest.mark.parametrize("scale", [1e-300, 1e-130, 1e130, 1e300])
def test_rows_of_extreme_lengths(scale):
    X = planted(300, 5, 3, 0.2)[0]
    expected = SphericalDPMeans(min_cosine=0.5).fit(X).labels_
    X[::2] *= scale
    assert np.array_equal(SphericalDPMeans(min_cosine=0.5).fit(X).labels_, expected)


def test_clusterings_beside_the_best_are_those_of_the_whole_path():
    """Those that the penalty follows from are found first: alone they are the same."""
    X = planted(9000, 20, 30, 0.9)[0]
    path = SphericalDPMeans(random_state=0).fit(X).path_
    assert path.best > 20 and path._unswept
    near = path.counts[[i + path.counts.tolist().index(path.best) for i in (-1, 0, 1)]]
    before = [path.centers(k) for k in near]
    assert path._unswept
    path.error  # noqa: B018
    assert not path._unswept
    for k, centers in zip(near, before, strict=True):
        assert np.array_equal(path.centers(k), centers)
    assert (np.diff(path.error) < 0.0).all()


def test_several_starts():
    """The one with the lowest objective, its labels in the order of the rows."""
    X, _ = planted(300, 4, 12, 0.8)
    model = SphericalDPMeans(min_cosine=0.6, n_init=5, random_state=0).fit(X)
    rng = check_random_state(0)
    orders = [None, *(rng.permutation(300) for _ in range(4))]
    runs = [twins.spherical.fit(X, model.lam_, order=order) for order in orders]
    assert len({run.objective for run in runs}) > 1
    best = min(runs, key=lambda run: run.objective)
    assert model.objective_ == best.objective
    assert np.array_equal(model.labels_, best.labels)


@seeds(20)
def test_batches_equal_twin(seed):
    """Rows that come in batches: the same labels, and centers up to rounding."""
    rng = np.random.default_rng([seed, 5])
    X, _ = planted(400, 3 + seed, 6, 0.8, seed)
    X = X.astype(np.float32) if seed % 3 == 0 else X
    weights = rng.choice([0, 0.5, 1, 2], size=400) if seed % 2 else None
    cap = 4 if seed % 5 == 0 else None
    model = SphericalDPMeans(min_cosine=0.3, max_clusters=cap, n_threads=1 + seed % 2)
    w = np.ones(400) if weights is None else weights
    begin = X[np.flatnonzero(w[:100])[:1]].astype(float)
    centers, sums = twins.spherical.unit_rows(begin), np.zeros((1, X.shape[1]))
    for start in range(0, 400, 100):
        part = slice(start, start + 100)
        model.partial_fit(X[part], sample_weight=None if weights is None else weights[part])
        labels, centers, sums = twins.spherical.partial_fit(
            X[part], centers, sums, 0.7, weights=w[part], max_clusters=cap
        )
        assert np.array_equal(model.labels_, labels)
        np.testing.assert_allclose(model.cluster_centers_, centers, atol=1e-12)
        np.testing.assert_allclose(model.resultant_lengths_, np.linalg.norm(sums, axis=1))
    assert model.n_steps_ == 4 and model.n_clusters_ == len(centers)
    own = np.einsum("ij,ij->i", twins.spherical.unit_rows(X[part]), centers[labels])
    np.testing.assert_allclose(model.inertia_, w[part] @ (1 - own), rtol=1e-5)
    assert model.objective_ == model.inertia_ + model.lam_ * model.n_clusters_
    assert model.min_cosine_ == 1 - model.lam_


@pytest.mark.parametrize("min_cosine", [None, 0.3])
def test_batches_after_a_fit(min_cosine):
    """The sums of the fit count; a new direction opens a cluster, old ones stay."""
    X, z = planted(2000, 60, 9, 0.75)
    old = z < 8
    model = SphericalDPMeans(min_cosine=min_cosine, random_state=0).fit(X[old])
    assert model.n_clusters_ == 8 and model.n_steps_ == 0
    centers = model.cluster_centers_
    sums = np.array([X[old][model.labels_ == k].sum(axis=0) for k in range(8)])
    np.testing.assert_allclose(model.resultant_lengths_, np.linalg.norm(sums, axis=1))
    model.partial_fit(X[~old])
    assert model.n_clusters_ == 9 and set(model.labels_) == {8}
    np.testing.assert_allclose(model.cluster_centers_[:8], centers, atol=1e-15)
    again = (
        SphericalDPMeans(min_cosine=min_cosine, random_state=0).partial_fit(X[old]).partial_fit(X)
    )
    assert again.n_clusters_ == 9
    assert adjusted_rand_score(z, again.predict(X)) == 1
    before = vars(again).copy()
    with pytest.raises(ValueError, match="length zero"):
        again.partial_fit(0 * X)
    assert vars(again) == before
    for single in (model, again):
        with pytest.raises(ValueError, match="min_cosine must stay what it was"):
            single.set_params(min_cosine=0.5).partial_fit(X)


def test_a_first_batch_that_cancels():
    """Its sum has no direction, so the center stays at the first row, as in a fit."""
    X = np.array([[1.0], [-1.0], [1.0], [-1.0]])
    model = SphericalDPMeans(lam=4).partial_fit(X)
    assert model.cluster_centers_.tolist() == [[1.0]] and model.labels_.tolist() == [0, 0, 0, 0]
    assert SphericalDPMeans(lam=4).fit(X).cluster_centers_.tolist() == [[1.0]]
    assert model.resultant_lengths_.tolist() == [0.0]
    model.partial_fit(-X[:1])  # now the sum has one
    assert model.cluster_centers_.tolist() == [[-1.0]]


def test_ties_go_to_the_lowest_index():
    model = SphericalDPMeans(lam=0, max_clusters=2, init=[[1.0, 0.0], [0.0, 1.0]])
    model.fit([[1.0, 0.0], [0.0, 1.0]])
    assert model.predict([[1.0, 1.0], [-1.0, -1.0], [5.0, 5.0]]).tolist() == [0, 0, 0]


X = planted(60)[0]


@pytest.mark.parametrize(
    ("parameters", "error", "match"),
    [
        ({"min_cosine": 1.0}, ValueError, r"min_cosine must be > -1 and < 1, got 1\.0"),
        ({"min_cosine": -1}, ValueError, "min_cosine must be > -1 and < 1, got -1"),
        ({"min_cosine": 7.5}, ValueError, "min_cosine must be > -1 and < 1"),
        ({"min_cosine": np.nan}, ValueError, "min_cosine must not be NaN"),
        ({"min_cosine": "auto"}, TypeError, "min_cosine must be a number or None"),
        ({"min_cosine": True}, TypeError, "min_cosine must be a number or None"),
        ({"min_cosine": 0.5, "lam": 0.5}, ValueError, "lam must be None where min_cosine is"),
        ({"min_cosine": 0.5, "lam": "auto"}, ValueError, "lam must be None where min_cosine is"),
        ({"lam": 0.0}, ValueError, "lam must be > 0, or 0 if max_clusters is given, got 0.0"),
        ({"algorithm": "collapsed"}, ValueError, "algorithm must be one of 'serial', 'delayed'"),
        ({"init": "mean"}, ValueError, "init must be one of 'first'"),
        ({"init": np.zeros((1, 20))}, ValueError, "init must have no rows of length zero"),
        ({"init": np.ones((1, 3))}, ValueError, "init must have shape"),
        ({"init": np.ones((3, 20)), "max_clusters": 2}, ValueError, "at most max_clusters"),
    ],
)
def test_bad_parameters(parameters, error, match):
    assert_refuses(SphericalDPMeans(**parameters), lambda m: m.fit(X), error, match)


def test_bad_rows():
    """Refused by name; nothing changes."""
    model = SphericalDPMeans(min_cosine=0.4).fit(X)
    bad = X.copy()
    for value in (np.nan, np.inf):
        bad[11] = value
        assert_refuses(model, lambda m: m.fit(bad.astype(np.float16)), ValueError, "NaN|inf")
    for method in ("fit", "partial_fit", "fit_predict"):
        words = "X must have a row that has a direction, got 60 of length zero"
        assert_refuses(model, lambda m, f=method: getattr(m, f)(0 * X), ValueError, words)
    weight = np.zeros(60)
    weight[11] = 1.0
    bad[11] = 0.0
    words = "sample_weight must be positive for a row that has a dir"
    assert_refuses(model, lambda m: m.fit(bad, sample_weight=weight), ValueError, words)
    words = "return_cosines must be True or False"
    assert_refuses(model, lambda m: m.predict(X, return_cosines=1), TypeError, words)


# Rows of length zero ---------------------------------------------------------------------------

LEARNED = (
    "cluster_centers_",
    "resultant_lengths_",
    "objective_path_",
    *("objective_", "inertia_", "lam_", "min_cosine_", "n_clusters_", "n_iter_"),
)


def assert_as_without(model, bare, used):
    """A fit is, bit for bit, the one without the rows that are not used, whose label is -1."""
    expected = np.full(len(used), -1)
    expected[used] = bare.labels_
    assert model.labels_.dtype == np.int32
    assert np.array_equal(model.labels_, expected)
    for name in LEARNED:
        assert np.array_equal(getattr(model, name, None), getattr(bare, name, None)), name


def fit_with_warning(model, X, count, method="fit", **options):
    """Fit, with one warning of so many rows of length zero."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        getattr(model, method)(X, **options)
    words = [str(w.message) for w in caught if "of length zero" in str(w.message)]
    assert len(words) == (count > 0)
    assert all(word.startswith(f"X has {count} row") for word in words)
    files = [w.filename for w in caught if "of length zero" in str(w.message)]
    assert files == [__file__] * (count > 0)
    return model


@pytest.mark.parametrize("kind", ["dense", "float32", "float16", "sparse", "unit"])
@seeds(40)
def test_rows_of_length_zero_take_no_part(kind, seed):
    rng = np.random.default_rng([seed, 99])
    n, d = int(rng.integers(2, 150)), int(rng.integers(1, 12))
    rows = rng.normal(size=(6, d))[rng.integers(6, size=n)] + 0.2 * rng.normal(size=(n, d))
    rows[~rows.any(axis=1)] = 1.0
    if kind == "unit":
        rows = twins.spherical.unit_rows(rows)
    used = rng.random(n) < rng.choice([0.2, 0.9])
    used[rng.integers(n)] = True
    rows[~used] = 0.0
    rows = rows.astype({"float32": np.float32, "float16": np.float16}.get(kind, float))
    data = sp.csr_array(rows) if kind == "sparse" else rows
    few = sp.csr_array(rows[used]) if kind == "sparse" else rows[used]
    weight = [None, np.ones(n), rng.choice([0.0, 0.5, 1.0, 3.0], n)][seed % 3]
    if weight is not None and not weight[used].any():
        weight = None
    weights = {} if weight is None else {"sample_weight": weight}
    few_weights = {} if weight is None else {"sample_weight": weight[used]}
    options = [
        {"min_cosine": 0.5},
        {"min_cosine": 0.8, "algorithm": "delayed"},
        {"min_cosine": 0.8, "n_init": 2, "random_state": 0},
        {"lam": "farthest-first", "guess": 2 if used.sum() > 1 else 1},
        {"random_state": 0},
        {"n_clusters": 1, "random_state": 0},
        {"lam": 0, "max_clusters": 2},
        {"min_cosine": 0.3, "init": np.eye(d)},
    ][seed % 8]
    count = n - int(used.sum())
    model = fit_with_warning(SphericalDPMeans(**options), data, count, **weights)
    bare = SphericalDPMeans(**options).fit(few, **few_weights)
    assert_as_without(model, bare, used)
    labels, cosines = model.predict(data, return_cosines=True)
    assert (labels[~used] == -1).all() and (cosines[~used] == 0.0).all()
    assert np.array_equal(labels[used], bare.predict(few))
    assert np.array_equal(cosines[used], bare.predict(few, return_cosines=True)[1])
    distances = model.transform(data)
    assert distances.dtype == bare.transform(few).dtype
    assert (distances[~used] == 1.0).all()
    assert np.array_equal(distances[used], bare.transform(few))
    assert model.score(data, **weights) == bare.score(few, **few_weights)
    twice = fit_with_warning(SphericalDPMeans(**options), data, count, "partial_fit", **weights)
    fit_with_warning(twice, data, count, "partial_fit")
    bare = SphericalDPMeans(**options).partial_fit(few, **few_weights).partial_fit(few)
    assert_as_without(twice, bare, used)


@pytest.mark.parametrize("make", [np.asarray, sp.csr_array, np.asfortranarray])
def test_only_rows_of_length_zero(make):
    """They are predicted, and cost nothing but the clusters, whatever they weigh."""
    model = SphericalDPMeans(min_cosine=0.4).fit(X)
    zero = make(0 * X[:3])
    assert model.predict(zero).tolist() == [-1, -1, -1]
    assert model.predict(zero).dtype == np.int32
    assert model.predict(zero, return_cosines=True)[1].tolist() == [0.0, 0.0, 0.0]
    assert model.transform(zero).tolist() == [[1.0] * model.n_clusters_] * 3
    assert model.score(zero) == -model.lam_ * model.n_clusters_
    some = make(np.vstack([X[:1], 0 * X[:1]]))
    assert model.score(some, sample_weight=[0.0, 5.0]) == -model.lam_ * model.n_clusters_
    assert model.score(some) == model.score(make(X[:1]))


def test_rows_that_only_seem_to_vanish():
    """Their squares do; their directions are known."""
    tiny = np.array([[3e-320, 4e-320], [0.0, -0.0], [1e-200, 0.0]])
    model = fit_with_warning(SphericalDPMeans(min_cosine=0.9), tiny, 1)
    assert model.labels_.tolist() == [0, -1, 1]


# Sparse rows -----------------------------------------------------------------------------------


@pytest.mark.parametrize("algorithm", ["serial", "delayed"])
@seeds(200)
def test_sparse_rows_are_the_same_rows(algorithm, seed):
    """Of any length or of length 1, in order or not, with entries of 0 and columns without any."""
    rng = np.random.default_rng(seed)
    n, d = int(rng.integers(1, 120)), int(rng.integers(1, 40))
    X = rng.integers(-2, 3, (n, d)) * 1.0 if seed % 3 == 0 else rng.normal(size=(n, d))
    X *= rng.random((n, d)) < rng.choice([0.1, 0.4])
    X[~X.any(axis=1), rng.integers(d)] = 1.0
    if seed % 4 == 1:
        X /= np.linalg.norm(X, axis=1, keepdims=True)
    if seed % 4 == 2:
        X *= 10.0 ** rng.integers(-100, 100, (n, 1))
    X = X.astype(np.float32 if seed % 2 and seed % 4 != 2 else np.float64)
    weight = rng.choice([0.0, 0.5, 2.0], n) if seed % 5 == 0 else None
    weight = None if weight is None or not weight.any() else weight
    S = sp.csr_array(X)
    if seed % 7 == 0:
        S = sp.csc_array(S)
    elif seed % 7 == 1:
        S.data = np.append(S.data, 0.0).astype(X.dtype)  # an entry of 0, out of order
        free = np.setdiff1d(np.arange(d), S.indices[S.indptr[-2] :])
        S = sp.csr_array(
            (S.data, np.append(S.indices, free[0]), np.append(S.indptr[:-1], len(S.data))), S.shape
        ) if len(free) else sp.csr_array(X)  # fmt: skip
    kind = rng.choice(["min_cosine", "farthest-first", "auto"], p=[0.7, 0.2, 0.1])
    options = {"lam": str(kind), "guess": min(3, n)} if kind != "min_cosine" else {}
    if kind == "min_cosine":
        options["min_cosine"] = float(rng.choice([-0.5, 0.1, 0.5, 0.9]))
    options |= {"algorithm": algorithm, "random_state": 0, "n_threads": 1 + seed % 3}
    before = S.copy()
    dense = SphericalDPMeans(**options).fit(X, sample_weight=weight)
    sparse = SphericalDPMeans(**options).fit(S, sample_weight=weight)
    assert (before != S).nnz == 0 and S.dtype == before.dtype
    assert np.array_equal(sparse.labels_, dense.labels_)
    assert np.array_equal(sparse.cluster_centers_, dense.cluster_centers_)
    assert sparse.n_iter_ == dense.n_iter_
    assert_allclose(sparse.objective_, dense.objective_, rtol=1e-9, atol=1e-7)
    assert np.array_equal(sparse.predict(S), dense.predict(X))
    assert_allclose(sparse.transform(S), dense.transform(X), atol=1e-6)
    assert_allclose(sparse.score(S), dense.score(X), rtol=1e-9, atol=1e-7)
    two = [SphericalDPMeans(**options).partial_fit(data).partial_fit(data) for data in (X, S)]
    assert np.array_equal(two[0].labels_, two[1].labels_)


def test_sparse_rows_without_entries():
    X = sp.csr_array(np.array([[1.0, 0.0], [0.0, 0.0], [0.0, 0.0]]))
    X.data = np.append(X.data, 0.0)  # an entry that is zero
    X.indices, X.indptr = np.append(X.indices, 1), np.array([0, 1, 1, 2])
    with pytest.warns(UserWarning, match="X has 2 rows of length zero, the first at index 1: wit"):
        assert SphericalDPMeans(min_cosine=0.5).fit_predict(X).tolist() == [0, -1, -1]
    half = sp.csr_array(np.eye(3, dtype=np.float32))
    assert SphericalDPMeans(min_cosine=0.5).fit(half).n_clusters_ == 3


@pytest.mark.parametrize("n_first", [1, 5, 40])
@pytest.mark.parametrize("fit", [False, True])
def test_penalty_of_a_single_direction_is_chosen_again(n_first, fit):
    """From the first batch with several directions; then it stays."""
    rng = np.random.default_rng(0)
    directions = np.array([[1.0, 0.0, 0.0], [0.6, 0.8, 0.0], [0.6, 0.0, 0.8]])
    truth = np.repeat(np.arange(3), 40)
    X = directions[truth] + 0.05 * rng.normal(size=(120, 3))
    model = SphericalDPMeans(random_state=0)
    model = (model.fit if fit else model.partial_fit)(X[:n_first])
    assert model.n_clusters_ == 1
    model.partial_fit(X)
    assert model.n_clusters_ == model.path_.best == 3
    assert adjusted_rand_score(truth, model.labels_) == 1.0
    expected = SphericalDPMeans(random_state=0).partial_fit(X)
    for name in ("lam_", "min_cosine_"):
        assert getattr(model, name) == pytest.approx(getattr(expected, name))
    before = model.lam_
    assert model.partial_fit(-X).lam_ == before


@pytest.mark.parametrize("seed", range(3))
def test_a_wide_cluster_is_one(seed):
    """The sphere is bent, so residuals in space look thinner in pieces of a cluster."""
    rows = np.random.default_rng(seed).normal([2.0, 0.0, 0.0], [0.5, 0.9, 0.3], size=(500, 3))
    model = SphericalDPMeans(random_state=0).fit(rows)
    assert model.n_clusters_ == 1


def topics(seed, n=600, d=12):
    """Four topics; each has four words of its own, in part of its rows and more or less of them."""
    rng = np.random.default_rng(seed)
    y = rng.integers(4, size=n)
    means = np.linalg.qr(rng.normal(size=(d, d)))[0][:4]
    words = rng.normal(size=(4, 4, d)) / np.sqrt(d)
    loads = rng.exponential(size=(n, 4)) * (rng.random((n, 4)) < 0.4)
    rows = means[y] + 0.9 * np.einsum("ij,ijl->il", loads, words[y])
    return rows + 0.05 * rng.normal(size=(n, d)), y


@pytest.mark.parametrize("seed", range(3))
def test_topics_are_not_split_into_pieces(seed):
    X, y = topics(seed)
    with pytest.warns(UnclearNumberWarning):
        model = SphericalDPMeans(random_state=0).fit(X)
    assert model.n_clusters_ == 4
    assert adjusted_rand_score(y, model.labels_) > 0.75
    # pieces do lower the criterion
    assert model.path_.ranking[1] > 4


def test_more_columns_than_have_covariances_of_their_own():
    rng = np.random.default_rng(0)
    y = rng.integers(5, size=400)
    X = rng.normal(size=(5, 200))[y] + rng.normal(size=(400, 200)) * 0.7
    model = SphericalDPMeans(random_state=0).fit(X)
    assert model.n_clusters_ == 5
    assert adjusted_rand_score(y, model.labels_) == 1.0


@pytest.mark.parametrize("tight", [False, True])
def test_tangent_vectors(tight):
    """In float32, of differences in float64: rows may be too near to their center for float32."""
    rng = np.random.default_rng(1)
    centers = np.linalg.qr(rng.normal(size=(5, 5)))[0][:3]
    labels = rng.integers(3, size=90)
    rows = centers[labels] + rng.normal(size=(90, 5)) * (1e-8 if tight else 0.3)
    rows /= np.linalg.norm(rows, axis=1)[:, None]
    c = 1.0 - 0.5 * np.square(rows - centers[labels]).sum(axis=1)
    expected = (rows - c[:, None] * centers[labels]) / np.sqrt(0.5 * (1.0 + c))[:, None]
    unit = np.sqrt(np.square(expected).mean())
    for k in range(3):
        i = np.flatnonzero(labels == k)
        for length in (1.0, 3.0):
            X = rows * length
            vectors = tangent_vectors(X, i, centers[k], 1.0 - c, 0.5 * (1.0 + c), length)
            np.testing.assert_allclose(vectors / unit, expected[i] / unit, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("n", [1, 5, 40])
@pytest.mark.parametrize("weighted", [False, True])
def test_squared_lengths_by_the_covariance_of_a_cluster(n, weighted):
    rng = np.random.default_rng(n)
    vectors, a, b = rng.normal(size=(n, 10)).astype(np.float32), 0.6, 0.3
    weight = rng.uniform(0.5, 2.0, size=n) if weighted else None
    w = np.ones(n) if weight is None else weight
    S = a * np.eye(10) + b * (vectors.T * w) @ vectors
    expected = w * np.einsum("ij,ij->i", vectors @ np.linalg.inv(S), vectors)
    cluster = _Cluster(vectors.copy(), weight, True)
    np.testing.assert_allclose(cluster.lengths, np.square(vectors).sum(axis=1), rtol=1e-6)
    squares, logdet, trace = cluster.measure(a, b, True)
    np.testing.assert_allclose(squares, expected, rtol=1e-5)
    assert logdet == pytest.approx(np.linalg.slogdet(S)[1])
    assert trace == pytest.approx(np.trace(np.linalg.inv(S)))


def criteria(values):
    return [PathClustering(k + 1, None, float(v)) for k, v in enumerate(values)]


def test_number_at_the_minimum_or_at_the_bend():
    # beyond the minimum, three clusters, the criterion rises by the price of a cluster
    assert sharpest(criteria([0, -500, -1000, -990, -980]), 10.0).k == 3
    # it hardly rises: by 400 for each cluster to the third, by 15 for each to the sixth
    assert sharpest(criteria([0, -400, -800, -810, -830, -845, -844, -843]), 10.0).k == 3
    # falls by less than a price count as one: 30 / 10 at four clusters, 5 / 3 at two
    assert sharpest(criteria([0, -50, -80, -110, -111, -111]), 10.0).k == 4
    # the rise is that to a quarter more clusters: at the minimum itself V may be level
    level = criteria([0, -90, -120, -140, -150, -155, -158, -160, -159, -149, -139])
    assert sharpest(level, 10.0).k == 8 and sharpest(level, 20.0).k == 2
    # nothing is known beyond the last one
    assert sharpest(criteria([0, -400, -800, -810]), 10.0).k == 4
    assert sharpest(criteria([0, 1, 2]), 10.0).k == 1
    assert sharpest(criteria([0, -400, -380, np.inf]), 10.0).k == 2


@pytest.mark.parametrize("d", [4, 150])
def test_weight_two_in_the_criterion_of_directions(d):
    """Weight 2 is two equal rows; the unit of weights does not matter."""
    rng = np.random.default_rng(1)
    X = unit_rows.unit_rows(rng.normal(size=(100, d)) + 2.0 * rng.choice([-1, 1], (100, 1)), 1)
    # few of two: values that many rows share count as recorded in steps
    weight, labels = 1 + (np.arange(100) % 10 == 0), (X[:, 0] > 0.0).astype(np.int32)

    def value(X, w, labels):
        criterion, _ = directions(X, w, 1)
        return criterion(criterion.relabeled(labels, 2))[0]

    twice = np.repeat(np.arange(100), weight)
    V = value(X, weight.astype(float), labels)
    assert_allclose(value(X[twice], None, labels[twice]), V, rtol=1e-6)
    assert_allclose(value(X, 3.0 * weight, labels), V, rtol=1e-6)
