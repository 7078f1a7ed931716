"""predict_proba, score_samples, outlier_scores: mixtures about the centers of a fit."""

import pickle
import tracemalloc

import numpy as np
import pytest
import scipy.sparse as sp
import twins.mixture
from helpers import seeds
from scipy.special import logsumexp
from scipy.stats import chi2, f
from sklearn.base import clone
from sklearn.datasets import make_blobs
from sklearn.exceptions import NotFittedError
from smallvar._sweeps.memberships import softmax, softmax_of_squares

import smallvar
from smallvar import DPMeans, MiniBatchDPMeans, RobustDPMeans, ShapeMeans
from smallvar._core.mixture import (
    SCATTER_FORMS,
    DenseRows,
    Form,
    Mixture,
    Scatter,
    fit_mixture,
    log_sums,
)
from smallvar._core.row_model import RowModel, _Scaled

PER_ROW = ("predict_proba", "score_samples", "outlier_scores")


def blobs(seed, n=300, d=3, k=3, spread=1.5):
    """Rows, true labels and a fit."""
    X, y = make_blobs(n, d, centers=k, cluster_std=spread, random_state=seed)
    return X, y, DPMeans(n_clusters=k, random_state=0).fit(X)


def of_blocks(X, size=64):
    """Every estimator of rows of numbers, fitted."""
    groups = np.arange(len(X)) % 3
    positive = np.exp(X / 8)
    yield DPMeans(random_state=0).fit(X), X
    yield DPMeans(metric="auto", random_state=0).fit(X), X
    yield MiniBatchDPMeans(random_state=0).fit(X), X
    yield RobustDPMeans(random_state=0).fit(X), X
    yield smallvar.MahalanobisMeans(random_state=0).fit(X), X
    yield smallvar.HDPMeans(random_state=0).fit(X, groups=groups), X
    yield ShapeMeans(random_state=0).fit(X), X
    yield smallvar.SphericalDPMeans(random_state=0).fit(X), X
    for divergence in ("squared_euclidean", "kl", "itakura_saito"):
        yield smallvar.BregmanDPMeans(divergence=divergence, random_state=0).fit(positive), positive
    yield smallvar.MixedDPMeans(random_state=0).fit(X), X


# ---- the mixture -----------------------------------------------------------------------------


@pytest.mark.parametrize("form", SCATTER_FORMS)
@pytest.mark.parametrize("heavy", [False, True])
@seeds(12)
def test_equals_twin(seed, form, heavy):
    rng = np.random.default_rng(seed)
    n, d, k = 150, 1 + seed % 4, 1 + seed % 3
    if form.shape != "spherical" and d == 1:
        d = 2
    centers = 3.0 * rng.normal(size=(k, d))
    z = np.sort(rng.integers(k, size=n))
    z[:k] = np.arange(k)
    X = centers[z] + rng.normal(size=(n, d)) @ rng.normal(size=(d, d))
    if heavy:
        X[::9] += 6.0 * rng.standard_t(2, size=X[::9].shape)
    weight = rng.integers(1, 4, size=n).astype(float) if seed % 2 else None
    labels = np.square(X[:, None] - centers).sum(axis=2).argmin(axis=1).astype(np.int32)
    centers = np.array(
        [X[labels == j].mean(axis=0) if (labels == j).any() else centers[j] for j in range(k)]
    )
    found = fit_mixture(DenseRows(X, weight, centers), labels, (form,))
    shares, scatters, freedom = twins.mixture.fit(X, weight, labels, centers, *form)
    assert found.freedom == freedom
    np.testing.assert_allclose(found.shares, shares, rtol=1e-6, atol=1e-9)
    logs = found.logs(found.scatter.squares(X, centers))
    expected = twins.mixture.log_joint(X, centers, shares, scatters, freedom)
    likely = expected > expected.max(axis=1, keepdims=True) - 30
    np.testing.assert_allclose(logs[likely], expected[likely], rtol=1e-5, atol=1e-5)


@seeds(20)
def test_softmax(seed):
    rng = np.random.default_rng(seed)
    n, k = 1 + 40 * seed, 1 + seed % 21
    logs = rng.normal(size=(n, k)) * rng.choice([1.0, 50.0, 1e4], size=(n, 1))
    expected = np.exp(logs - logs.max(axis=1, keepdims=True))
    expected /= expected.sum(axis=1, keepdims=True)
    shares = rng.dirichlet(np.ones(k))
    found = [logs.copy() for _ in range(2)]
    for table, n_threads in zip(found, (1, 3), strict=True):
        softmax(table, shares, n_threads)
    np.testing.assert_allclose(found[0], expected, rtol=1e-12, atol=1e-300)
    assert np.array_equal(*found)
    np.testing.assert_allclose(found[0].sum(axis=1), 1.0, rtol=1e-12)


@seeds(20)
def test_softmax_of_squares(seed):
    rng = np.random.default_rng(seed)
    n, k = 1 + 30 * seed, 1 + seed % 19
    q = rng.exponential(size=(n, k)) * rng.choice([1e-12, 1.0, 1e3, 1e30, 1e200], size=(n, k))
    offset, factor, shares = (
        rng.normal(size=k),
        rng.uniform(0.1, 3, size=k),
        rng.dirichlet(np.ones(k)),
    )
    for power in (0.0, 2.5, 140.0):
        logs = offset - (power * np.log1p(factor * q) if power else factor * q)
        softmax(logs, shares, 1)
        found = [q.copy() for _ in range(2)]
        for table, n_threads in zip(found, (1, 2), strict=True):
            softmax_of_squares(table, offset, factor, power, shares, n_threads)
        np.testing.assert_allclose(found[0], logs, rtol=1e-10, atol=1e-290)
        assert np.array_equal(*found)
    far = np.full((2, k), np.inf)
    softmax_of_squares(far, offset, factor, 2.5, shares, 1)
    np.testing.assert_allclose(far, [shares, shares], rtol=1e-12)
    with pytest.raises(ValueError, match="as many clusters"):
        softmax_of_squares(far, offset, factor[:0], 2.5, shares, 1)


def test_softmax_of_rows_without_weight():
    table = np.full((3, 2), -np.inf)
    table[1] = 0.0, -np.inf
    softmax(table, np.array([0.25, 0.75]), 1)
    np.testing.assert_allclose(table, [[0.25, 0.75], [1.0, 0.0], [0.25, 0.75]], atol=1e-300)
    with pytest.raises(ValueError, match="as many clusters"):
        softmax(np.zeros((2, 3)), np.ones(2), 1)


def test_higher_density_of_a_single_cluster():
    """The probability that a row is nearer to the center."""
    for d, freedom, law in ((3, np.inf, chi2(3)), (4, 5.0, f(4, 5))):
        scatter = Scatter(Form("spherical", False), np.array([2.0]), d)
        mixture = Mixture(np.ones(1), scatter, freedom)
        squares = np.linspace(0.01, 30, 50)
        levels, higher = mixture.typicality()
        logs = log_sums(mixture.logs(squares[:, None]))[:, 0]
        expected = law.cdf(squares if np.isinf(freedom) else squares / d)
        np.testing.assert_allclose(np.interp(logs, levels, higher), expected, atol=1e-3)


@pytest.mark.parametrize("freedom", [np.inf, 4.0])
def test_higher_density_of_rows_of_a_mixture(freedom):
    """Scores of rows from clusters apart are uniform."""
    rng = np.random.default_rng(0)
    d, variance = 3, np.array([1.0, 25.0, 0.04])
    mixture = Mixture(
        np.array([0.6, 0.3, 0.1]), Scatter(Form("spherical", True), variance, d), freedom
    )
    centers, z = 1e3 * rng.normal(size=(3, d)), rng.choice(3, p=mixture.shares, size=40_000)
    noise = rng.normal(size=(len(z), d))
    if np.isfinite(freedom):
        noise /= np.sqrt(rng.chisquare(freedom, size=(len(z), 1)) / freedom)
    X = centers[z] + noise * np.sqrt(variance[z])[:, None]
    logs = log_sums(mixture.logs(mixture.scatter.squares(X, centers)))[:, 0]
    scores = np.sort(np.interp(logs, *mixture.typicality()))
    assert np.abs(scores - np.linspace(0, 1, len(z))).max() < 0.012


@pytest.mark.parametrize("form", SCATTER_FORMS)
@pytest.mark.parametrize("freedom", [np.inf, 4.0])
@seeds(6)
def test_shortcuts_are_the_mixture(seed, form, freedom):
    """Linear functions of rows, and one pass over distances, near 0 and far from it."""
    rng = np.random.default_rng(seed)
    d, k, shift = 1 + seed, 2 + seed, 10.0 ** (3 * seed - 3)
    d = max(d, 2)
    roots = rng.normal(size=(k if form.own else 1, d, d)) + 2.0 * np.eye(d)
    values = {
        "spherical": rng.uniform(0.2, 3, size=len(roots)),
        "columns": rng.uniform(0.2, 3, size=(len(roots), d)),
        "full": roots @ roots.transpose(0, 2, 1),
    }[form.shape]
    centers = 4.0 * rng.normal(size=(k, d)) + shift
    scatter = Scatter(form, values, d)
    mixture = Mixture(rng.dirichlet(np.ones(k)), scatter, freedom)
    columns = np.sort(rng.permutation(d + 2)[:d]) if seed % 2 else None
    model = RowModel(mixture, _Scaled(scatter, None, centers, columns), None)
    X = rng.normal(size=(70, d + 2 if seed % 2 else d)) * 5.0 + shift
    used = X if columns is None else X[:, columns]
    logs = twins.mixture.log_joint(
        used - shift,
        centers - shift,
        mixture.shares,
        {
            "spherical": values[:, None, None] * np.eye(d) if values.ndim == 1 else None,
            "columns": np.eye(d) * values[:, None] if values.ndim == 2 else None,
            "full": values,
        }[form.shape]
        + np.zeros((k, 1, 1)),
        freedom,
    )
    expected = np.exp(logs - logsumexp(logs, axis=1, keepdims=True))
    for n_threads in (1, 2):
        found = model.memberships(X, n_threads)
        np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-8)


# ---- estimators ------------------------------------------------------------------------------


def test_all_estimators():
    X, _, _ = blobs(1, 240)
    for model, rows in of_blocks(X):
        name = type(model).__name__
        P, U = model.predict_proba(rows), model.predict_proba(rows, unknown=True)
        k = model.n_clusters_
        assert P.shape == (len(X), k), name
        assert U.shape == (len(X), k + 1), name
        for table in (P, U):
            assert np.abs(table.sum(axis=1) - 1.0).max() < 1e-12, name
            assert table.min() >= 0.0, name
        # an unknown cluster takes the same share from all others
        known = U[:, :-1] / U[:, :-1].sum(axis=1, keepdims=True)
        np.testing.assert_allclose(known, P, rtol=1e-8, atol=1e-12, err_msg=name)
        labels = model.labels_
        own = np.where(labels < 0, 0.0, P[np.arange(len(X)), labels])
        np.testing.assert_allclose(model.probabilities_, own, atol=1e-15, err_msg=name)
        scores, density = model.outlier_scores(rows), model.score_samples(rows)
        assert scores.min() >= 0.0, name
        assert scores.max() <= 1.0, name
        assert np.isfinite(density).all(), name
        assert (np.diff(scores[np.argsort(-density)]) >= 0.0).all() or k > 1 or "M" in name
        # scores of rows of the fit are those without their own weight
        assert (model.outlier_scores_ >= scores - 1e-9).mean() > 0.9, name
        mostly = P.argmax(axis=1) == model.predict(rows)
        assert mostly.mean() > 0.85, name


def test_limit_of_no_noise():
    """Shares and spreads being equal, the largest probability is that of the nearest center."""
    X = np.array([[0.0, 0.0], [0.0, 2.0], [9.0, 0.0], [9.0, 2.0]])
    X = np.vstack([X, X + np.array([2.0, 0.0])])
    model = DPMeans(n_clusters=2, random_state=0).fit(X)
    Z = np.random.default_rng(0).uniform(-5, 16, size=(500, 2))
    P = model.predict_proba(Z)
    far = np.abs(Z[:, 0] - 5.5) > 1e-9
    assert np.array_equal(P.argmax(axis=1)[far], model.predict(Z)[far])
    near = model.predict_proba([[5.5 - 1e-7, 0.0]])[0]
    np.testing.assert_allclose(near, [0.5, 0.5], atol=1e-4)
    np.testing.assert_allclose(model._row_model().mixture.shares, [0.5, 0.5], rtol=1e-9)


def codes(rng, n, levels=5):
    """Eight codes, each as a flag for each of its levels, in four clusters; their numbers."""
    truth = rng.integers(4, size=2 * n)
    laws = rng.dirichlet(np.full(levels, 0.25), size=(8, 4)).cumsum(axis=2)
    level = (laws[:, truth] < rng.random((8, 2 * n, 1))).sum(axis=2).clip(max=levels - 1)
    return np.hstack(list(np.eye(levels)[level])), truth


@seeds(4)
def test_rare_flags_do_not_count_most(seed):
    """Probabilities of rows of flags agree with the labels, and with the truth as well as these."""
    X, truth = codes(np.random.default_rng(seed), 600)
    model = DPMeans(n_clusters=4, random_state=0).fit(X[:600])
    labels, chances = model.predict(X[600:]), model.predict_proba(X[600:])
    assert np.mean(chances.argmax(axis=1) == labels) > 0.985
    cluster_of = [np.bincount(model.labels_[truth[:600] == c]).argmax() for c in range(4)]
    right = np.eye(4)[np.array(cluster_of)[truth[600:]]]
    brier = np.square(chances - right).sum(axis=1).mean()
    assert brier < np.square(np.eye(4)[labels] - right).sum(axis=1).mean() + 0.015


@seeds(8)
def test_order_of_rows_and_units(seed):
    X, _, model = blobs(seed)
    rng = np.random.default_rng(seed)
    order = rng.permutation(len(X))
    same = DPMeans(n_clusters=3, random_state=0).fit(X[order])
    match = same.predict(model.cluster_centers_)
    Z = rng.normal(size=(50, 3)) * 6
    np.testing.assert_allclose(
        same.predict_proba(Z)[:, match], model.predict_proba(Z), rtol=1e-6, atol=1e-12
    )
    np.testing.assert_allclose(same.outlier_scores_, model.outlier_scores_[order], atol=1e-9)
    for unit in (1e-60, 1e60, 4096.0):
        other = DPMeans(n_clusters=3, random_state=0).fit(X * unit)
        match = other.predict(model.cluster_centers_ * unit)
        np.testing.assert_allclose(
            other.predict_proba(Z * unit)[:, match], model.predict_proba(Z), rtol=1e-6, atol=1e-12
        )
        np.testing.assert_allclose(
            other.outlier_scores(Z * unit), model.outlier_scores(Z), atol=1e-9
        )
        np.testing.assert_allclose(
            other.score_samples(Z * unit) + 3 * np.log(unit), model.score_samples(Z), rtol=1e-6
        )


def at_given_centers(X):
    """Estimators that take centers, with some, which no penalty changes in number; their rows."""
    at, groups = X[[0, 1, 2]], {"groups": np.zeros(len(X), dtype=int)}
    positive, cap = np.exp(X / 8), {"lam": 0.0, "max_clusters": 3}
    yield DPMeans(lam=np.inf, init=at), X, {}
    yield RobustDPMeans(lam=1e9, price=1e9, init=at), X, {}
    yield smallvar.MahalanobisMeans(n_clusters=3, init=at), X, {}
    yield smallvar.HDPMeans(lam_local=1e9, lam_global=1e9), X, groups
    yield smallvar.SphericalDPMeans(**cap, init=at), X, {}
    yield smallvar.BregmanDPMeans(divergence="kl", lam=np.inf, init=np.exp(at / 8)), positive, {}
    kinds, whole = dict.fromkeys(range(3), "normal"), np.round(X * 3.0)  # rows on a known grid
    yield smallvar.MixedDPMeans(lam=np.inf, init=whole[:3], columns=kinds), whole, {}


@seeds(6)
def test_weights_are_masses(seed):
    """A row of weight w is w equal rows; weights that add up to less than the rows are scaled."""
    X, _, _ = blobs(seed, 200)
    w = np.random.default_rng(seed).integers(0 if seed else 1, 5, size=len(X)).astype(float)
    rows = np.repeat(np.arange(len(X)), w.astype(int))
    for model, given, options in at_given_centers(X):
        weighted = clone(model).fit(given, sample_weight=w, **options)
        few = {name: value[rows] for name, value in options.items()}
        repeated = clone(model).fit(given[rows], **few)
        name = type(model).__name__
        assert np.array_equal(repeated.labels_, weighted.labels_[rows]), name
        for method in PER_ROW:
            found, expected = (getattr(m, method)(given) for m in (repeated, weighted))
            np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-9, err_msg=name)
        for result in ("probabilities_", "outlier_scores_"):
            found, expected = getattr(repeated, result), getattr(weighted, result)[rows]
            np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-9, err_msg=name)
    of_mean_1, tiny = (
        DPMeans(n_clusters=3, random_state=0).fit(X, sample_weight=w * factor)
        for factor in (np.count_nonzero(w) / w.sum(), 1e-9)
    )
    np.testing.assert_allclose(tiny.predict_proba(X), of_mean_1.predict_proba(X), rtol=1e-9)


def test_threads_give_the_same_bits():
    X, _, _ = blobs(0, 9000, 5, 12)
    found = []
    for n_threads in (1, 2, 3):
        model = DPMeans(n_clusters=12, random_state=0, n_threads=n_threads).fit(X)
        found.append([getattr(model, name)(X) for name in PER_ROW] + [model.probabilities_])
    for other in found[1:]:
        assert all(np.array_equal(a, b) for a, b in zip(found[0], other, strict=True))


def test_blocks_of_rows_do_not_matter():
    X, _, model = blobs(3)
    for name in PER_ROW:
        whole, method = getattr(model, name)(X), getattr(model, name)
        rows = np.concatenate([method(X[i : i + 7]) for i in range(0, len(X), 7)])
        np.testing.assert_allclose(rows, whole, rtol=1e-10, atol=1e-14)


def test_many_rows_are_measured_on_a_sample():
    X, _, model = blobs(0, 60_000, 4, 3, spread=2.5)
    options = {"lam": 0.0, "max_clusters": 3, "init": model.cluster_centers_}
    model, again = DPMeans(**options).fit(X), DPMeans(**options).fit(X[::-1])
    np.testing.assert_allclose(again.predict_proba(X), model.predict_proba(X), atol=1e-7)
    truth = 2.5**2
    assert abs(model._row_model().mixture.scatter.values.mean() / truth - 1.0) < 0.03
    share = np.bincount(model.labels_) / len(X)
    np.testing.assert_allclose(model._row_model().mixture.shares, share, atol=0.01)


def test_sparse_rows():
    X, _, _ = blobs(2)
    X[np.abs(X) < 1.0] = 0.0
    dense, sparse = (DPMeans(lam=60.0).fit(rows) for rows in (X, sp.csr_matrix(X)))
    assert np.array_equal(dense.labels_, sparse.labels_)
    P = sparse.predict_proba(sp.csr_matrix(X))
    assert np.abs(P.sum(axis=1) - 1.0).max() < 1e-12
    np.testing.assert_allclose(sparse.predict_proba(X), P, rtol=1e-6, atol=1e-12)
    np.testing.assert_allclose(
        dense.predict_proba(sp.csr_matrix(X)), dense.predict_proba(X), rtol=1e-6, atol=1e-12
    )
    assert sparse.outlier_scores_.shape == sparse.probabilities_.shape == (len(X),)


def test_far_rows():
    X, _, model = blobs(0)
    far = np.array([[1e6, 0.0, 0.0], [1e100, 1e100, 0.0], [-1e200, 0.0, 0.0]])
    for unknown in (False, True):
        P = model.predict_proba(far, unknown=unknown)
        assert np.isfinite(P).all()
        np.testing.assert_allclose(P.sum(axis=1), 1.0, rtol=1e-12)
    np.testing.assert_allclose(P[:, -1], 1.0)
    assert (model.outlier_scores(far) == 1.0).all()
    assert model.predict_proba(X, unknown=True)[:, -1].mean() < 0.05


def test_centers_beyond_squares():
    """Squared distances, and differences of them, are beyond float64."""
    X = np.broadcast_to([1e300, -1e300], (5, 2))
    model = DPMeans(lam=2.0).fit(X)
    Z = np.array([[1e300, -1e300], [0.0, 1.0], [-1e300, 1e300]])
    assert (model.predict_proba(Z) == 1.0).all()
    assert model.outlier_scores(Z)[1:].tolist() == [1.0, 1.0]
    assert not np.isnan(model.score_samples(Z)).any()


def test_one_cluster_and_as_many_as_rows():
    X, _, _ = blobs(0, 40)
    one = DPMeans(n_clusters=1).fit(X)
    assert (one.predict_proba(X) == 1.0).all()
    assert np.abs(one.outlier_scores_.mean() - 0.5) < 0.1
    every = DPMeans(n_clusters=40).fit(X)
    assert (every.predict_proba(X).argmax(axis=1) == every.labels_).all()
    assert (every.probabilities_ == 1.0).all()
    assert (every.outlier_scores_ == 1.0).all()  # a row does not vouch for itself
    equal = DPMeans().fit(np.ones((9, 2)))
    assert (equal.predict_proba([[1.0, 1.0], [5.0, 1.0]]) == 1.0).all()
    assert equal.outlier_scores([[1.0, 1.0], [5.0, 1.0]]).tolist() == [0.0, 1.0]


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_constant_columns_do_not_matter(dtype):
    """Unless a row has another value there, which no row of the fit had."""
    X, _, _ = blobs(0)
    X = X.astype(dtype)
    model = DPMeans(n_clusters=3, random_state=0).fit(X)
    wide = np.column_stack(
        [X[:, :1], np.full(len(X), 0.1, dtype), np.zeros(len(X), dtype), X[:, 1:]]
    )
    other = DPMeans(n_clusters=3, random_state=0).fit(wide)
    np.testing.assert_allclose(other.predict_proba(wide), model.predict_proba(X), rtol=1e-9)
    scores = model.outlier_scores(X)
    np.testing.assert_allclose(other.outlier_scores(wide), scores, rtol=1e-9)
    near = wide.astype(np.float64)
    near[:, 1] = 0.1 if dtype == np.float32 else np.nextafter(0.1, 1.0)
    np.testing.assert_allclose(other.outlier_scores(near), scores, rtol=1e-5)
    for column, value in ((1, 0.1001), (1, 0.0), (2, 1e-3)):
        off = wide[:20].copy()
        off[::2, column] = value
        assert (other.outlier_scores(off)[::2] == 1.0).all()
        assert (other.outlier_scores(sp.csr_array(off))[::2] == 1.0).all()
        np.testing.assert_allclose(other.outlier_scores(off)[1::2], scores[1:20:2], rtol=1e-9)


def test_memory_does_not_depend_on_squares_of_columns():
    """Beyond the rows: tables of rows or columns by clusters, and blocks of rows."""
    X = np.random.default_rng(0).normal(size=(40, 50_000)).astype(np.float32)
    model = DPMeans(lam=1e9).fit(X)
    tracemalloc.start()
    assert (model.predict_proba(X) == 1.0).all()
    assert model.outlier_scores_.shape == (40,)
    assert len(pickle.dumps(model)) < 4_000_000
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 100_000_000  # one table of columns by columns has 20 GB


def test_variances_below_float64():
    """Equal rows far below the others: the least positive number stands for their variance."""
    for values in (np.zeros(1), np.zeros((1, 2)), np.array([1e-300, 0.0])):
        scatter = Scatter(SCATTER_FORMS[1 if values.ndim == 2 else 0], values, 2)
        assert np.isfinite(scatter.log_volume).all()
        assert np.isfinite(scatter.times(1e-30).log_volume).all()


def test_groups_of_outliers_are_strange():
    X, _, _ = blobs(0, 300, 2, 3)
    far = np.array([[60.0, 60.0], [-70.0, 50.0], [-70.5, 50.0]])
    model = DPMeans(random_state=0).fit(np.vstack([X, far]))
    assert (np.argsort(model.outlier_scores_)[-3:] >= len(X)).all()


@pytest.mark.parametrize("odd", [0, 1, 3, 30])
def test_words_that_tell_clusters_nearly_exactly(odd):
    """Divergences of words are log likelihoods: they have no unit that could be measured."""
    words = np.array(list("abc"))[np.arange(300) % 3]
    other = words.copy()
    other[:odd] = np.roll(words, -1)[:odd]
    table = {"p": words, "q": other, "r": words}
    model = smallvar.MixedDPMeans(n_clusters=3, random_state=0).fit(table)
    assert model.probabilities_.mean() > 0.99
    assert (model.outlier_scores_[:odd] > 0.95).all()
    assert (model.outlier_scores_[:odd] > np.median(model.outlier_scores_)).all()


def test_noise():
    X, _, _ = blobs(0, 400, 2, 3)
    Z = np.vstack([X, np.random.default_rng(0).uniform(-60, 60, size=(40, 2))])
    model = RobustDPMeans(random_state=0).fit(Z)
    noise = model.labels_ < 0
    assert noise.sum() > 20
    assert (model.probabilities_[noise] == 0.0).all()
    P, U = model.predict_proba(Z), model.predict_proba(Z, unknown=True)
    assert P.shape[1] == U.shape[1] - 1 == model.n_clusters_
    assert U[noise, -1].mean() > 0.9
    assert U[~noise, -1].mean() < 0.1
    assert model.outlier_scores_[noise].mean() > 0.98


def test_pieces_add_up():
    rng = np.random.default_rng(0)
    t = rng.uniform(0, np.pi, size=600)
    X = np.column_stack([np.cos(t), np.sin(t)]) + 0.06 * rng.normal(size=(600, 2))
    X[300:] = [1.0, 0.5] - X[300:]
    model = ShapeMeans(random_state=0).fit(X)
    assert model.n_clusters_ == 2 < len(model.piece_centers_)
    mixture, P = model._row_model().mixture, model.predict_proba(X)
    logs = mixture.logs(mixture.scatter.squares(X, model.piece_centers_))
    of_pieces = np.exp(logs - log_sums(logs))
    expected = of_pieces @ (model.piece_clusters_[:, None] == np.arange(2))
    np.testing.assert_allclose(P, expected, atol=1e-12)


def test_stream():
    X, _, _ = blobs(4, 400)
    stream = MiniBatchDPMeans(random_state=0)
    for i in range(0, 400, 100):
        stream.partial_fit(X[i : i + 100])
    whole = MiniBatchDPMeans(random_state=0).fit(X)
    assert stream.n_clusters_ == whole.n_clusters_ == 3
    match = stream.predict(whole.cluster_centers_)
    np.testing.assert_allclose(stream.predict_proba(X)[:, match], whole.predict_proba(X), atol=0.15)
    assert stream.probabilities_.shape == (100,)
    mixture = stream._row_model().mixture
    assert abs(mixture.scatter.values[0] / 1.5**2 - 1.0) < 0.15
    np.testing.assert_allclose(mixture.shares.sum(), 1.0)
    forgetful = MiniBatchDPMeans(random_state=0, half_life=50)
    for i in range(0, 400, 100):
        forgetful.partial_fit(X[i : i + 100])
    assert forgetful._within[1] < stream._within[1]


@pytest.mark.parametrize("half_life", [1, 10, 1e3])
def test_stream_that_forgets(half_life):
    """A cluster that has had no rows for long is still the likeliest at its center."""
    rng = np.random.default_rng(0)
    model = MiniBatchDPMeans(lam=60, half_life=half_life)
    model.partial_fit(np.vstack([rng.normal(size=(20, 1)), 12.0 + rng.normal(size=(20, 1))]))
    model.partial_fit([[-8.5]])
    for batch in range(1000):
        model.partial_fit(rng.normal(size=(20, 1)))
        if batch in (0, 99, 999):
            assert model.n_clusters_ == 3
            chances = model.predict_proba(model.cluster_centers_)
            assert chances.argmax(axis=1).tolist() == model.predict(model.cluster_centers_).tolist()


def test_stream_of_directions_that_cancel():
    model = smallvar.SphericalDPMeans(lam=1000.0)
    model.partial_fit([[1.0], [1.0]]).partial_fit([[-1.0], [-1.0]])
    assert model.resultant_lengths_.tolist() == [0.0]
    assert model.predict_proba([[1.0], [-1.0]]).tolist() == [[1.0], [1.0]]
    assert np.isfinite(model.outlier_scores([[1.0]])).all()


def test_replaced_centers():
    X, _, model = blobs(0)
    before = model.predict_proba(X)
    model.cluster_centers_ = model.cluster_centers_[::-1].copy()
    np.testing.assert_allclose(model.predict_proba(X), before[:, ::-1], rtol=1e-6, atol=1e-12)


# ---- when rows are there ---------------------------------------------------------------------


def test_pickles_have_the_model():
    X, _, _ = blobs(1, 200)
    for model, rows in of_blocks(X):
        copy = pickle.loads(pickle.dumps(model))
        for name in PER_ROW:
            assert np.array_equal(getattr(copy, name)(rows), getattr(model, name)(rows)), name
        with pytest.raises(AttributeError, match="pickled"):
            _ = copy.probabilities_
        _ = model.probabilities_
        kept = pickle.loads(pickle.dumps(model))
        assert np.array_equal(kept.probabilities_, model.probabilities_)


@pytest.mark.parametrize("kind", ["cell", "sign", "order", "float32", "sparse", "weight"])
@seeds(8)
def test_changed_rows(seed, kind):
    """Any cell of rows or weights that has changed since the fit is noticed."""
    rng = np.random.default_rng(seed)
    X, weight = blobs(1, 200)[0], np.ones(200)
    weight[0] = 2.0
    rows = {"float32": X.astype(np.float32), "sparse": sp.csr_array(X)}.get(kind, X)
    if seed % 2 and kind in ("cell", "sign", "order"):
        rows = np.asfortranarray(rows)
    model = DPMeans(n_clusters=3, random_state=0).fit(rows, sample_weight=weight)
    cells = rows.data if kind == "sparse" else rows
    if kind == "order":
        rng.shuffle(rows)
    elif kind == "sign":
        rows *= -1.0
    elif kind == "weight":
        weight[rng.integers(200)] += 1e-9
    else:
        at = tuple(rng.integers(size) for size in cells.shape)
        cells[at] = np.nextafter(cells[at], cells.dtype.type(np.inf))
    for ask in (model.predict_proba, model.outlier_scores):
        with pytest.raises(ValueError, match="as they were in fit"):
            ask([[0.0, 0.0, 0.0]])
    with pytest.raises(ValueError, match="as they were in fit"):
        _ = model.outlier_scores_
    assert pickle.loads(pickle.dumps(model)).predict([[0.0, 0.0, 0.0]]).shape == (1,)


def test_labels_changed_by_a_user_are_not_those_of_the_fit():
    X, _, model = blobs(1)
    expected = clone(model).fit(X)
    model.labels_ += 1
    for name in ("probabilities_", "outlier_scores_"):
        assert np.array_equal(getattr(model, name), getattr(expected, name))


def test_changed_memory_map(tmp_path):
    """Of rows that may be larger than memory a few are compared."""
    X, _, _ = blobs(1, 200)
    np.save(tmp_path / "rows.npy", X)
    rows = np.load(tmp_path / "rows.npy", mmap_mode="r+")
    model = DPMeans(random_state=0).fit(rows)
    rows[1] += 1.0  # none of these
    assert model.predict_proba(X).shape == (200, model.n_clusters_)
    model = DPMeans(random_state=0).fit(rows)
    rows[:] = 0.0
    with pytest.raises(ValueError, match="as they were in fit"):
        model.predict_proba(X)


def test_before_fit():
    model = DPMeans()
    with pytest.raises(NotFittedError):
        model.predict_proba([[0.0]])
    assert not hasattr(model, "probabilities_")
    assert not hasattr(clone(model), "outlier_scores_")


def test_wrong_input():
    X, _, model = blobs(0)
    with pytest.raises(TypeError, match="unknown"):
        model.predict_proba(X, unknown="yes")
    with pytest.raises(TypeError):
        model.predict_proba(X, True)
    for name in PER_ROW:
        with pytest.raises(ValueError, match="features"):
            getattr(model, name)(X[:, :2])
        with pytest.raises(ValueError, match="NaN"):
            getattr(model, name)(np.full((1, 3), np.nan))


def test_fits_are_not_slower_for_it():
    """Nothing is measured before it is asked for, and rows are not copied."""
    X, _, model = blobs(0)
    assert not model._fitted_rows.results
    assert model._fitted_rows.X is X


def test_covariances_that_are_all_prior():
    """Equal rows, with a covariance from the prior alone."""
    X = np.full((4, 1), 1e8)
    model = smallvar.MahalanobisMeans(n_clusters=1, scale=3e16).fit(X)
    assert model.predict_proba(X).tolist() == [[1.0]] * 4
    assert np.isfinite(model.outlier_scores(X)).all()
