"""SpectralDPMeans: the eigenvalues above a threshold, the rounding, the bound, bad input."""

import sys
import warnings

import numpy as np
import pytest
import scipy.sparse as sp
import twins.spectral
from helpers import all_partitions, assert_refuses, printed, seeds
from scipy.linalg import eigh
from scipy.sparse.linalg import ArpackError, ArpackNoConvergence, aslinearoperator
from scipy.spatial.distance import pdist
from sklearn.base import clone
from sklearn.cluster import KMeans
from sklearn.datasets import make_blobs
from sklearn.metrics import adjusted_rand_score
from sklearn.metrics.pairwise import rbf_kernel

from smallvar import DPMeans, SpectralDPMeans, cluster_path, farthest_first_lambda
from smallvar._core import linear_algebra
from smallvar._core.groups import first_appearance
from smallvar._core.linear_algebra import eigen_above, yu_shi
from smallvar._kernel import gram as gram_module
from smallvar._kernel import relaxation, spectral
from smallvar._kernel.gram import Gram, Kernel

FORMS = {
    "sparse": sp.csr_array,
    "Gram": lambda K: Gram(Kernel("precomputed"), K, 0),
    "operator": lambda K: aslinearoperator(sp.csr_array(K)),
    "dense": lambda K: K,
}
weighted_or_not = pytest.mark.parametrize("weighted", [False, True])


def path_graph(n):
    """Adjacency matrix of a path."""
    return sp.diags_array([np.ones(n - 1), np.ones(n - 1)], offsets=[-1, 1], shape=(n, n))


def cycle_graph(n):
    """Adjacency matrix of a cycle: all eigenvalues but one or two are double."""
    A = path_graph(n).tolil()
    A[0, n - 1] = A[n - 1, 0] = 1
    return sp.csr_array(A)


def grid(A, B):
    """Adjacency matrix of the Cartesian product of two graphs."""
    return sp.kron(A, sp.eye_array(B.shape[0])) + sp.kron(sp.eye_array(A.shape[0]), B)


def random_symmetric(rng, n, density):
    """A sparse symmetric matrix."""
    A = sp.random_array((n, n), density=density, random_state=rng, data_sampler=rng.standard_normal)
    return A + A.T


def matrix(kind, seed):
    """A symmetric matrix, dense: most kinds have multiple eigenvalues."""
    rng = np.random.default_rng([seed, 11])
    n = int(rng.integers(1, 130))
    if kind == "random":
        K = random_symmetric(rng, n, 0.1)
    elif kind == "copies":
        block = random_symmetric(rng, int(rng.integers(1, 90)), 0.3)
        K = sp.block_diag([block] * int(rng.integers(1, 4)))
    elif kind == "cliques":
        K = sp.block_diag([np.ones((k, k)) for k in rng.choice([1, 2, 20, 50], size=6)])
    elif kind == "Laplacian":
        A = grid(path_graph(int(rng.integers(2, 12))), path_graph(int(rng.integers(2, 12))))
        K = -sp.csgraph.laplacian(A)
    elif kind == "torus":
        k = int(rng.integers(3, 12))
        K = grid(cycle_graph(k), cycle_graph(k))
    elif kind == "bipartite":
        a, b = rng.integers(1, 60, size=2)
        K = sp.block_array([[None, np.ones((a, b))], [np.ones((b, a)), None]])
    elif kind == "zero":
        K = sp.csr_array((n, n))
    elif kind == "low rank":
        X = rng.standard_normal((n, 4))
        K = sp.csr_array(X @ X.T)
    else:
        Q = np.linalg.qr(rng.standard_normal((n, n)))[0]
        K = sp.csr_array(Q * np.repeat(rng.standard_normal(n), 5)[:n] @ Q.T)
    K = sp.csr_array(K).toarray()
    return (K + K.T) / 2


KINDS = (
    "random",
    "copies",
    "cliques",
    "Laplacian",
    "torus",
    "bipartite",
    "zero",
    "low rank",
    "multiple",
)


def check_pairs(actual, K, threshold, all_of_K=None):
    """Number, values and span are those of a dense solver, where the threshold is clear."""
    values, vectors = actual
    every, V = eigh(K) if all_of_K is None else all_of_K
    norm = max(np.abs(every).max(), 1e-300)
    above = every > threshold
    assert np.all(np.abs(every - threshold) > 1e-8 * norm)
    assert values.shape == (above.sum(),) and vectors.shape == (len(K), above.sum())
    np.testing.assert_allclose(values, every[above][::-1], rtol=0, atol=1e-10 * norm)
    np.testing.assert_allclose(vectors.T @ vectors, np.eye(len(values)), rtol=0, atol=1e-10)
    gap = 1.0
    if above.any() and not above.all():
        gap = (every[above].min() - every[~above].max()) / norm
    V = V[:, above]
    assert np.abs(vectors @ vectors.T - V @ V.T).max() < 1e-11 / gap + 1e-11
    assert np.all(vectors.max(axis=0, initial=-1) >= -(1 - 1e-5) * vectors.min(axis=0, initial=0))


def thresholds(K):
    """Thresholds that are not close to any eigenvalue."""
    every = np.linalg.eigvalsh(K)
    norm = max(np.abs(every).max(), 1.0)
    wanted = np.array([-0.205, 0.051, 0.303, 0.805, 2.0]) * norm
    return [t for t in wanted if np.abs(every - t).min() > 1e-8 * norm]


@pytest.fixture
def runs(monkeypatch):
    """One entry for each run of ARPACK."""
    runs, eigsh = [], linear_algebra.eigsh
    monkeypatch.setattr(linear_algebra, "eigsh", lambda *a, **k: runs.append(1) or eigsh(*a, **k))
    return runs


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("kind", KINDS)
def test_all_eigenpairs_are_found(kind, form, runs, monkeypatch):
    """Eigenpairs equal those of a dense solver, for 14 matrices of each kind."""
    monkeypatch.setattr(linear_algebra, "DENSE_SOLVED_ROWS", 20)
    for seed in range(14):
        K = matrix(kind, seed)
        for threshold in thresholds(K):
            actual = eigen_above(FORMS[form](K), threshold, seed)
            check_pairs(actual, K, threshold)
    if form != "dense" and kind not in ("zero", "cliques"):
        assert len(runs) > 10


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("kind", KINDS)
def test_at_least_so_many(kind, form, monkeypatch):
    monkeypatch.setattr(linear_algebra, "DENSE_SOLVED_ROWS", 20)
    for seed in range(4):
        K = matrix(kind, seed)
        every = np.linalg.eigvalsh(K)[::-1]
        norm = max(np.abs(every).max(), 1.0)
        for threshold in (2 * norm, np.inf, 0.7003 * norm):
            wanted = max(min(3, len(K)), np.count_nonzero(every > threshold))
            values, vectors = eigen_above(FORMS[form](K), threshold, 0, least=3)
            np.testing.assert_allclose(values, every[:wanted], rtol=0, atol=1e-10 * norm)
            residual = K @ vectors - vectors * values
            assert np.abs(residual).max() < 1e-10 * norm
            np.testing.assert_allclose(vectors.T @ vectors, np.eye(wanted), rtol=0, atol=1e-10)


@pytest.mark.long
@pytest.mark.parametrize("n", [2000])
def test_large_sparse(n, runs):
    """As it is: copies of a torus (multiplicities up to 24 in all) and a Laplacian in one."""
    torus = grid(cycle_graph(25), cycle_graph(25))
    plane = 4 * sp.eye_array(125) - sp.csgraph.laplacian(grid(path_graph(5), path_graph(25)))
    K = sp.csr_array(sp.block_diag([torus] * 3 + [plane]))
    assert K.shape == (n, n)
    shuffle = np.random.default_rng(0).permutation(n)
    K = K[shuffle][:, shuffle]
    all_of_K = eigh(K.toarray())
    for form in ("sparse", "operator"):
        actual = eigen_above(FORMS[form](K), 3.7, 0)
        check_pairs(actual, K.toarray(), 3.7, all_of_K)
    assert len(runs) >= 4


def test_one_vector_of_each_eigenspace(monkeypatch):
    """Later Lanczos runs find the copies of eigenvalues that a run missed."""
    monkeypatch.setattr(linear_algebra, "DENSE_SOLVED_ROWS", 20)

    def one_each(operator, k, **options):
        values, vectors = eigh(operator @ np.eye(operator.shape[0]))
        _, first = np.unique(values.round(6), return_index=True)
        return values[first[-k:]], vectors[:, first[-k:]]

    monkeypatch.setattr(linear_algebra, "eigsh", one_each)
    K = grid(cycle_graph(12), cycle_graph(12)).toarray()
    every = np.linalg.eigvalsh(K)
    for threshold, least in ((3.3, 0), (2.7, 0), (3.5, 4)):
        values, _ = eigen_above(aslinearoperator(K), threshold, 0, least=least)
        m = max(least, np.count_nonzero(every > threshold))
        np.testing.assert_allclose(values, every[::-1][:m], rtol=0, atol=1e-12)


@pytest.mark.parametrize("failure", ["some", "none", "error"])
def test_failing_lanczos(failure, monkeypatch):
    """Converged pairs are kept; if some never converge, the dense solver is used."""
    monkeypatch.setattr(linear_algebra, "DENSE_SOLVED_ROWS", 20)
    eigsh, calls = linear_algebra.eigsh, []

    def failing(operator, k, **options):
        calls.append(options["ncv"])
        if failure == "error":
            raise ArpackError(-9999)
        values, vectors = eigsh(operator, k, **options)
        if failure == "some" and len(calls) == 1:
            raise ArpackNoConvergence("no", values[-2:], vectors[:, -2:])
        if failure == "none":
            raise ArpackNoConvergence("no", values[:0], vectors[:, :0])
        return values, vectors

    monkeypatch.setattr(linear_algebra, "eigsh", failing)
    K = grid(path_graph(11), path_graph(13)).toarray()
    check_pairs(eigen_above(sp.csr_array(K), 3.501, 0), K, 3.501)
    assert calls if failure == "error" else calls[1] == 4 * calls[0]


def test_failing_dense_solver(monkeypatch):
    """If the solver for a part of the spectrum fails, that for all of it is used."""

    whole = linear_algebra.eigh

    def failing(K, **options):
        if "above" in options:
            raise linear_algebra.LinAlgError("the leading minor is not what it was")
        return whole(K, **options)

    monkeypatch.setattr(linear_algebra, "eigh", failing)
    K = grid(path_graph(5), path_graph(6)).toarray()
    check_pairs(eigen_above(K, 1.01, 0), K, 1.01)
    K = sp.csr_array(sp.block_diag([K, K[:17, :17]]))
    check_pairs(eigen_above(K, 1.01, 0, least=2), K.toarray(), 1.01)


def test_eigen_above_reproduces_and_decides_signs():
    K = grid(cycle_graph(25), cycle_graph(20))
    first, repeated, second = (eigen_above(K, 3.01, seed)[1] for seed in (0, 0, 1))
    assert np.array_equal(first, repeated)
    assert np.abs(first @ first.T - second @ second.T).max() < 1e-12
    simple = np.diag([3.0, 2.0, 1.0])
    assert np.array_equal(eigen_above(simple, 1.5, 0)[1], np.eye(3)[:, :2])
    flat = -np.ones((4, 4)) / 2 + 3 * np.outer([1, -1, 1, -1], [1, -1, 1, -1])
    assert np.allclose(eigen_above(flat, 5, 0)[1].T, [[0.5, -0.5, 0.5, -0.5]])


def indicator(rng, sizes):
    """A normalized indicator matrix, rotated, with its labels."""
    truth = rng.permutation(np.repeat(np.arange(len(sizes)), sizes))
    Y = np.eye(len(sizes))[truth] / np.sqrt(sizes)
    Q = np.linalg.qr(rng.standard_normal((len(sizes), len(sizes))))[0]
    return Y @ Q, truth


def rounded(Y, seed=0, weight=None, n_init=4):
    """Labels of the starts of the rounding."""
    return [labels for labels, _ in yu_shi(Y, seed, n_init, weight)]


@seeds(10)
def test_rounding_undoes_a_rotation(seed):
    rng = np.random.default_rng(seed)
    Y, truth = indicator(rng, rng.integers(1, 30, size=rng.integers(1, 9)))
    actual = rounded(Y, seed, n_init=5)
    assert len(actual) == 5
    for labels in actual:
        assert labels.dtype == np.int32
        assert np.array_equal(labels, first_appearance(truth))


def test_rounding_of_zero_rows_and_few_columns():
    Y, truth = indicator(np.random.default_rng(0), [4, 5, 6])
    Y[[0, 7]] = 0
    (labels,) = rounded(Y, n_init=1)
    others = np.delete(np.arange(15), [0, 7])
    assert adjusted_rand_score(labels[others], truth[others]) == 1
    assert labels[0] == labels[7]
    noise = Y.copy()
    noise[[0, 7]] = 1e-17 * np.random.default_rng(1).standard_normal((2, 3))
    assert np.array_equal(rounded(noise)[0], labels)
    for m in (0, 1):
        assert [x.tolist() for x in rounded(np.zeros((3, m)), n_init=2)] == [[0, 0, 0]] * 2


@seeds(20)
def test_rounding_equals_its_twin(seed):
    rng = np.random.default_rng(seed)
    Y = np.linalg.qr(rng.standard_normal((60, int(rng.integers(1, 9)))))[0]
    w = rng.integers(1, 4, size=60).astype(float) if seed % 2 else np.ones(60)
    draws = np.random.RandomState(seed)
    actual = rounded(Y, seed, w if seed % 2 else None)
    for start, labels in enumerate(actual):
        u = draws.random_sample() * w.sum() if start else -1
        expected, _, fits = twins.spectral.rows_to_labels(Y, int((np.cumsum(w) <= u).sum()), w)
        assert np.array_equal(labels, first_appearance(expected))
        assert np.all(np.diff(fits)[:-1] > 0)
    rotated = Y @ np.linalg.qr(rng.standard_normal((Y.shape[1],) * 2))[0]
    again = rounded(rotated, seed, w)
    assert all(np.array_equal(a, b) for a, b in zip(actual, again, strict=True))


def problem(seed):
    """A Gram matrix in general position, a penalty among its eigenvalues, weights, the points."""
    rng = np.random.default_rng([seed, 3])
    n, d, k = int(rng.integers(2, 70)), int(rng.integers(1, 6)), int(rng.integers(1, 6))
    truth = rng.integers(k, size=n)
    X = 4 * rng.standard_normal((k, d))[truth] + rng.standard_normal((n, d))
    kind = seed % 4
    if kind == 0:
        K = rbf_kernel(X, gamma=0.1)
    elif kind == 1:
        K = X @ X.T
    elif kind == 2:
        K = (1 + X @ X.T / 10) ** 2
    else:
        K = rbf_kernel(X, gamma=0.1) * (truth[:, None] == truth)  # components
    w = None if seed % 3 else rng.choice([0.5, 1.0, 2.0], size=n)
    root = np.ones(n) if w is None else np.sqrt(w)
    values = np.linalg.eigvalsh(root[:, None] * K * root)[::-1]
    place = int(rng.integers(0, min(n - 1, 8)))
    lam = float(np.mean(values[place : place + 2]))
    if not lam > 1e-6 * values[0]:
        lam = float(values[0] / 2)
    return K, lam, w, X, truth


@seeds(40)
def test_equals_twin(seed):
    K, lam, w, X, _ = problem(seed)
    twin = twins.spectral.spectral(K, lam, weights=w, random_state=seed)
    scale = np.trace(np.diag(np.ones(len(K)) if w is None else w) @ K) + lam
    forms = [(K, "precomputed"), (sp.csr_array(K), "precomputed")]
    if seed % 4 == 1:
        forms += [(X, "linear"), (sp.csr_array(X), "linear")]
    for data, kernel in forms:
        model = SpectralDPMeans(lam=lam, kernel=kernel, random_state=seed).fit(
            data, sample_weight=w
        )
        np.testing.assert_allclose(model.eigenvalues_, twin.eigenvalues, rtol=1e-8)
        projector = model.embedding_ @ model.embedding_.T
        np.testing.assert_allclose(projector, twin.Y @ twin.Y.T, rtol=0, atol=1e-7)
        assert model.bound_ == pytest.approx(max(twin.plain, twin.centered), abs=1e-10 * scale)
        assert twin.centered >= twin.plain - 1e-10 * scale
        assert model.lam_ == lam
        direct = twins.spectral.kernel_objective(K, model.labels_, lam, w)
        assert model.objective_ == pytest.approx(direct, abs=1e-10 * scale)
        assert np.array_equal(model.labels_, first_appearance(model.labels_))
        assert model.n_clusters_ == model.labels_.max() + 1 <= max(1, len(twin.eigenvalues))
        length = np.linalg.norm(twin.Y, axis=1)
        # a row of no length becomes all ones: which rows that is near to is a matter of the signs
        # of the eigenvectors, and no LAPACK promises these
        known = (length > 1e-10 * length.max(initial=0.0)).all()
        if known and (kernel == "precomputed" or not sp.issparse(data)):
            assert np.array_equal(model.labels_, first_appearance(twin.labels))
            assert model.n_iter_ == twin.n_iter
            assert model.objective_ == pytest.approx(twin.objective, abs=1e-10 * scale)


@pytest.mark.filterwarnings("ignore:one cluster is left")
@pytest.mark.parametrize("form", ["dense", "sparse"])
@seeds(24)
def test_bound(seed, form):
    """The bound is below the objective of every clustering tried, at several penalties."""
    K, lam, w, X, truth = problem(seed)
    rng = np.random.default_rng(seed)
    n = len(K)
    tried = [truth, np.arange(n), np.zeros(n, dtype=int)]
    tried += [rng.integers(k, size=n) for k in (2, 3, 5, n)]
    tried += [
        KMeans(k, n_init=1, random_state=seed).fit_predict(X, sample_weight=w)
        for k in range(1, min(n, 9))
    ]
    tried.append(DPMeans(lam=lam).fit_predict(X, sample_weight=w))
    for factor in (1e-3, 0.3, 1.0, 2.5):
        for rounding in ("yu-shi", "kmeans"):
            model = SpectralDPMeans(
                lam=lam * factor, kernel="precomputed", rounding=rounding, n_init=2, random_state=0
            ).fit(FORMS[form](K), sample_weight=w)
            noise = 1e-10 * np.trace(K) * (1 if w is None else w.max())
            assert model.bound_ <= model.objective_ + noise
            for labels in tried:
                value = twins.spectral.kernel_objective(K, labels, lam * factor, w)
                assert model.bound_ <= value + noise


@seeds(5)
def test_bound_and_the_best_of_all_clusterings(seed):
    """For 7 points the bound is at least two thirds of the minimum, on average."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((7, 3))
    X -= X.mean(axis=0)
    w = rng.random(7) + 0.5 if seed % 2 else None
    indefinite = rng.standard_normal((7, 7))
    reached = []
    for K in (X @ X.T, rbf_kernel(X), indefinite + indefinite.T):
        for lam in (0.2, 1.0, 3.0):
            best = min(
                twins.spectral.kernel_objective(K, np.array(p), lam, w) for p in all_partitions(7)
            )
            with warnings.catch_warnings():
                warnings.simplefilter("error")
                model = SpectralDPMeans(lam=lam, kernel="precomputed", random_state=0).fit(
                    K, sample_weight=w
                )
            assert model.bound_ <= best + 1e-10 <= model.objective_ + 2e-10
            reached.append(model.bound_ / best)
    assert np.mean(reached[:6]) > 2 / 3


@pytest.mark.parametrize("form", ["dense", "sparse", "linear", "sparse linear"])
@weighted_or_not
def test_tight_for_copies_of_orthogonal_points(form, weighted):
    rng = np.random.default_rng(0)
    truth = rng.permutation(np.repeat(np.arange(6), [3, 4, 5, 5, 5, 9]))
    X = 2 * np.eye(6)[truth]
    w = rng.random(len(X)) + 0.5 if weighted else None
    data = {
        "dense": X @ X.T,
        "sparse": sp.csr_array(X @ X.T),
        "linear": X,
        "sparse linear": sp.csr_array(X),
    }[form]
    kernel = "linear" if "linear" in form else "precomputed"
    for rounding in ("yu-shi", "kmeans"):
        model = SpectralDPMeans(lam=3.0, kernel=kernel, rounding=rounding, random_state=0)
        model.fit(data, sample_weight=w)
        assert np.array_equal(model.labels_, first_appearance(truth))
        assert model.objective_ == pytest.approx(18.0, abs=1e-11)
        assert model.bound_ == pytest.approx(18.0, abs=1e-11)
        weight_sums = np.bincount(truth, w)
        np.testing.assert_allclose(model.eigenvalues_, np.sort(4 * weight_sums)[::-1], rtol=1e-12)
        assert model.embedding_.shape == (31, 6)


def test_components_of_a_large_sparse_gram(runs, monkeypatch):
    """The centered bound of 30 equal cliques needs only what their eigenspace leaves over."""
    for module in (linear_algebra, relaxation, spectral):
        monkeypatch.setattr(module, "DENSE_SOLVED_ROWS", 20)
    rng = np.random.default_rng(0)
    X = sp.csr_array(np.repeat(np.eye(30), 17, axis=0))
    K = sp.csr_array(X @ X.T)
    w = rng.random(510) + 0.5
    for weight in (None, w):
        model = SpectralDPMeans(lam=5.0, kernel="precomputed", random_state=0)
        model.fit(K, sample_weight=weight)
        assert model.bound_ == pytest.approx(150.0, abs=1e-9)
        assert model.objective_ == pytest.approx(150.0, abs=1e-9)
        assert model.n_clusters_ == 30
    assert 0 < len(runs) < 40
    linear = SpectralDPMeans(lam=5.0, random_state=0, kernel="linear").fit(X, sample_weight=w)
    assert linear.bound_ == pytest.approx(150.0, abs=1e-9)
    np.testing.assert_allclose(linear.eigenvalues_, model.eigenvalues_, rtol=1e-10)


@pytest.mark.parametrize("shape", [(600, 50), (50, 600), (600, 700)])
def test_sparse_data_stay_sparse(shape, monkeypatch):
    """Sparse fits by X X' or X' X, with Lanczos, equal the dense fit."""
    for module in (linear_algebra, relaxation, spectral):
        monkeypatch.setattr(module, "DENSE_SOLVED_ROWS", 40)
    rng = np.random.default_rng(0)
    X = sp.csr_array(sp.random_array(shape, density=0.02, random_state=rng))
    w = rng.random(shape[0])
    dense = X.toarray()
    monkeypatch.setattr(sp.csr_array, "toarray", None)
    lam = np.linalg.svd(np.sqrt(w)[:, None] * dense, compute_uv=False)[8:10].mean() ** 2
    model = SpectralDPMeans(lam=lam, random_state=0, kernel="linear").fit(X, sample_weight=w)
    monkeypatch.undo()
    other_model = SpectralDPMeans(lam=lam, random_state=0, kernel="linear").fit(
        dense, sample_weight=w
    )
    assert len(model.eigenvalues_) == 9
    np.testing.assert_allclose(model.eigenvalues_, other_model.eigenvalues_, rtol=1e-10)
    assert model.bound_ == pytest.approx(other_model.bound_, rel=1e-10)
    np.testing.assert_allclose(
        model.embedding_ @ model.embedding_.T,
        other_model.embedding_ @ other_model.embedding_.T,
        atol=1e-8,
    )


@pytest.mark.parametrize("kernel", ["linear", "precomputed", "rbf"])
@pytest.mark.parametrize("form", ["dense", "sparse"])
def test_rows_without_weight(kernel, form):
    X, _ = make_blobs(60, 6, centers=4, random_state=2)
    w = np.random.default_rng(0).integers(0, 3, size=60)
    w[0] = 0
    used = np.flatnonzero(w)
    assert 60 - len(used) > 0
    lam = 2.0 if kernel == "rbf" else 60.0
    data, part = X, X[used]
    if kernel == "precomputed":
        data = X @ X.T
        part = data[np.ix_(used, used)]
    options = {"kernel": kernel, "random_state": 0}
    model = SpectralDPMeans(lam=lam, **options).fit(FORMS[form](data), sample_weight=w)
    alone = SpectralDPMeans(lam=lam, **options).fit(FORMS[form](part), sample_weight=w[used])
    assert model.n_clusters_ == alone.n_clusters_ > 2
    assert np.array_equal(first_appearance(model.labels_[used]), alone.labels_)
    assert model.objective_ == pytest.approx(alone.objective_, rel=1e-12)
    assert model.bound_ == pytest.approx(alone.bound_, rel=1e-12)
    idle = np.flatnonzero(w == 0)
    assert np.array_equal(model.predict(FORMS[form](data))[idle], model.labels_[idle])
    assert np.array_equal(first_appearance(model.labels_), model.labels_)
    assert not model.embedding_[idle].any()
    mine, its = model.embedding_[used], alone.embedding_
    np.testing.assert_allclose(mine @ mine.T, its @ its.T, rtol=0, atol=1e-10)


@weighted_or_not
@pytest.mark.parametrize("kernel", ["linear", "rbf", "precomputed", "sparse", "sparse linear"])
def test_predict_is_the_nearest_mean(kernel, weighted, monkeypatch):
    monkeypatch.setattr(gram_module, "GRAM_BLOCK", 300)
    rng = np.random.default_rng(5)
    X, new = rng.standard_normal((80, 3)), 2 * rng.standard_normal((200, 3))
    w = rng.random(80) + 0.1 if weighted else np.ones(80)

    def between(A, B):
        return rbf_kernel(A, B, 0.5) if kernel == "rbf" else A @ B.T

    data, asked = X, new
    if kernel in ("precomputed", "sparse"):
        data, asked = between(X, X), between(new, X)
    if "sparse" in kernel:
        data, asked = sp.csr_array(data), sp.csr_array(asked)
    name = {"sparse": "precomputed", "sparse linear": "linear"}.get(kernel, kernel)
    options = {"gamma": 0.5} if kernel == "rbf" else {}
    model = SpectralDPMeans(lam=4.0, kernel=name, random_state=0, **options)
    model.fit(data, sample_weight=w)
    assert model.n_clusters_ > 2
    cost = np.empty((200, model.n_clusters_))
    for c in range(model.n_clusters_):
        rows = model.labels_ == c
        share = w[rows] / w[rows].sum()
        inner = share @ between(X[rows], X[rows]) @ share
        cost[:, c] = inner - 2 * between(new, X[rows]) @ share
    labels = model.predict(asked)
    assert labels.dtype == np.int32
    assert np.array_equal(labels, cost.argmin(axis=1))
    assert len(np.unique(labels)) > 1


@pytest.mark.parametrize("shift", [0.0, 1e3, 1e6])
def test_bound_of_moved_data(shift):
    """The objective does not depend on the origin, nor does the better bound."""
    X, truth = make_blobs(100, 4, centers=4, random_state=0)
    here = SpectralDPMeans(lam=50.0, random_state=0, kernel="linear").fit(X)
    there = SpectralDPMeans(lam=50.0, random_state=0, kernel="linear").fit(X + shift)
    assert there.bound_ == pytest.approx(here.bound_, rel=1e-8)
    means = np.array([X[truth == c].mean(axis=0) for c in range(4)])
    assert here.bound_ <= 200 + np.square(X - means[truth]).sum()
    values = np.linalg.eigvalsh(np.cov(X.T, bias=True) * 100)
    assert here.bound_ == pytest.approx(50 + np.minimum(values, 50).sum(), rel=1e-10)


def test_scale():
    X, _ = make_blobs(100, 4, centers=4, random_state=0)
    first = SpectralDPMeans(lam=50.0, random_state=0, kernel="linear").fit(X)
    for scale in (2.0**-300, 2.0**-30, 2.0**30, 2.0**300):
        for data in (X * scale, sp.csr_array(X * scale)):
            second = SpectralDPMeans(lam=50.0 * scale**2, random_state=0, kernel="linear").fit(data)
            assert np.array_equal(second.labels_, first.labels_)
            assert second.bound_ == pytest.approx(first.bound_ * scale**2, rel=1e-10)


def test_farthest_first_in_feature_space():
    X, _ = make_blobs(60, 3, centers=4, random_state=0)
    expected = farthest_first_lambda(X, 4)
    for data, kernel in (
        (X, "linear"),
        (sp.csr_array(X), "linear"),
        (X @ X.T, "precomputed"),
        (sp.csr_array(X @ X.T), "precomputed"),
    ):
        model = SpectralDPMeans(lam="farthest-first", guess=4, kernel=kernel, random_state=0).fit(
            data
        )
        assert model.lam_ == pytest.approx(expected, rel=1e-10)
        w = (np.arange(60) % 3 > 0) * 2.5
        model.fit(data, sample_weight=w)
        assert model.lam_ == pytest.approx(2.5 * farthest_first_lambda(X[w > 0], 4), rel=1e-10)
    few = np.repeat(np.eye(3), 4, axis=0)  # three places for a guess of eight
    model = SpectralDPMeans(lam="farthest-first", kernel="precomputed", random_state=0).fit(
        few @ few.T
    )
    assert model.lam_ == pytest.approx(2 / 3, rel=1e-12)
    same = SpectralDPMeans(lam="farthest-first", kernel="precomputed", random_state=0).fit(
        np.ones((9, 9))
    )
    assert same.lam_ == 1.0 and same.n_clusters_ == 1


@weighted_or_not
@pytest.mark.parametrize("form", ["rbf", "linear", "sparse linear", "precomputed", "sparse"])
def test_spectrum_lies_between_two_eigenvalues(form, weighted):
    rng = np.random.default_rng(0)
    X = rng.standard_normal((60, 7))
    w = rng.random(60) + 0.5 if weighted else None
    K = rbf_kernel(X, gamma=0.1) if form in ("rbf", "precomputed", "sparse") else X @ X.T
    values = twins.spectral.spectral(K, 1e-9, weights=w, n_init=1).eigenvalues
    data = {"sparse linear": sp.csr_array(X), "precomputed": K, "sparse": sp.csr_array(K)}
    kernel = "linear" if "linear" in form else "rbf" if form == "rbf" else "precomputed"
    gamma = 0.1 if form == "rbf" else None
    for k in (1, 2, 4, 7):
        model = SpectralDPMeans(
            lam="spectrum", guess=k, kernel=kernel, gamma=gamma, random_state=0
        ).fit(data.get(form, X), sample_weight=w)
        after = values[k] if k < len(values) else 1e-4 * values[k - 1]
        assert model.lam_ == pytest.approx(np.sqrt(values[k - 1] * after), rel=1e-6)
        np.testing.assert_allclose(model.eigenvalues_, values[:k], rtol=1e-8)
        given = clone(model).set_params(lam=model.lam_).fit(data.get(form, X), sample_weight=w)
        assert given.bound_ == pytest.approx(model.bound_, rel=1e-10)
        assert given.objective_ == pytest.approx(model.objective_, rel=1e-10)


@pytest.mark.parametrize("lam", ["auto", "spectrum"])
def test_penalties_of_the_spectrum_where_there_is_none(lam):
    for K in (np.zeros((9, 9)), -np.eye(9), np.ones((9, 9)), np.ones((1, 1)), 3 * np.eye(1)):
        for data in (K, sp.csr_array(K)):
            model = SpectralDPMeans(lam=lam, kernel="precomputed", random_state=0).fit(data)
            assert model.lam_ > 0 and model.n_clusters_ == 1
            assert model.bound_ <= model.objective_ + 1e-12
    few = np.repeat(np.eye(3), 4, axis=0)  # three places for a guess of eight: three eigenvalues
    for guess in (None, 8):
        model = SpectralDPMeans(lam=lam, guess=guess, kernel="precomputed", random_state=0)
        model.fit(few @ few.T)
        # too few rows to find a number
        k, penalty = (3, 0.04) if lam == "spectrum" and guess else (1, 4.0)
        assert model.n_clusters_ == k and model.lam_ == pytest.approx(penalty)
    assert SpectralDPMeans(lam=lam, random_state=0).fit(np.ones((20, 2))).n_clusters_ == 1


@seeds(3)
def test_spectrum_finds_the_number_unless_there_is_a_guess(seed):
    """By the eigenvectors, for a kernel of the rows and for a matrix; a round cloud is one."""
    for k in (1, 2, 5, 9):
        rng = np.random.default_rng([seed, k])
        truth = rng.permutation(np.arange(180) % k)
        X = 8.0 * np.eye(9)[truth] + rng.standard_normal((180, 9))
        model = SpectralDPMeans(lam="spectrum", random_state=0).fit(X)
        assert model.n_clusters_ == k
        assert adjusted_rand_score(truth, model.labels_) > 0.95
        options = {"lam": "spectrum", "kernel": "precomputed", "random_state": 0}
        K = rbf_kernel(X, gamma=model.gamma_)
        assert SpectralDPMeans(**options).fit(K).lam_ == pytest.approx(model.lam_)
        for guess in (3, 8):
            assert len(SpectralDPMeans(guess=guess, **options).fit(K).eigenvalues_) == guess


@weighted_or_not
def test_auto_finds_separate_clusters(weighted):
    """Automatic lam finds clusters by all forms of a kernel, and with weights, also zero."""
    for k, d, seed in ((2, 3, 0), (5, 4, 3), (7, 6, 1), (12, 8, 0)):
        X, truth = make_blobs(40 * k, d, centers=k, cluster_std=0.7, random_state=seed)
        w = np.random.default_rng(seed).choice([0.0, 0.7, 2.0], 40 * k) if weighted else None
        model = SpectralDPMeans(random_state=0).fit(X, sample_weight=w)
        assert adjusted_rand_score(truth, model.labels_) > 0.99
        K = rbf_kernel(X, gamma=model.gamma_)
        for data in (K, sp.csr_array(K)):
            other_model = SpectralDPMeans(kernel="precomputed", random_state=0)
            other_model.fit(data, sample_weight=w)
            assert other_model.lam_ == pytest.approx(model.lam_, rel=1e-8)
            assert np.array_equal(other_model.labels_, model.labels_)
        if not weighted:
            copies = SpectralDPMeans(random_state=0, gamma=model.gamma_)
            copies.fit(X, sample_weight=np.full(len(X), 3.0))
            assert copies.lam_ == pytest.approx(3 * model.lam_, rel=1e-8)


@pytest.mark.parametrize("d", [1, 2, 3, 5, 10, 50])
def test_auto_leaves_one_cluster_alone(d):
    for seed, n in ((0, 150), (1, 400)):
        X = np.random.default_rng([d, seed]).standard_normal((n, d))
        model = SpectralDPMeans(random_state=0).fit(X)
        assert model.n_clusters_ == 1
        if d > 1:
            K = rbf_kernel(X, gamma=model.gamma_)
            other_model = SpectralDPMeans(kernel="precomputed", random_state=0).fit(K)
            assert other_model.n_clusters_ == 1


@pytest.mark.parametrize("kernel", ["rbf", "laplacian", "linear"])
def test_auto_takes_the_number_of_the_merge_path(kernel):
    X, _ = make_blobs(300, 6, centers=4, cluster_std=2.5, random_state=1)
    w = np.random.default_rng(0).choice([0.0, 1.0, 2.0], 300)
    for weight in (None, w):
        k = cluster_path(X, sample_weight=weight, random_state=0).best
        assert k > 1
        model, guessed = (
            SpectralDPMeans(lam=lam, guess=k, kernel=kernel, random_state=0)
            for lam in ("auto", "spectrum")
        )
        model.fit(X, sample_weight=weight)
        guessed.fit(X, sample_weight=weight)
        assert model.lam_ == pytest.approx(guessed.lam_, rel=1e-12)
        assert len(model.eigenvalues_) == k


def test_likeness_by_projectors():
    """The likeness equals that from projectors onto both spans, with and without the constant."""
    rng = np.random.default_rng(0)
    for k in (2, 3, 6):
        w = rng.random(40) + 0.1
        Y = np.linalg.qr(rng.standard_normal((40, k)))[0]
        labels = np.append(np.arange(k), rng.integers(k, size=40 - k))
        V = np.linalg.qr(np.sqrt(w)[:, None] * np.eye(k)[labels])[0]
        u = np.sqrt(w / w.sum())
        P = V @ V.T - np.outer(u, u)
        expected = np.trace(P @ Y @ Y.T) / (k - np.square(u @ Y).sum())
        assert spectral.likeness(labels, Y, w) == pytest.approx(expected, rel=1e-12)
        assert spectral.likeness(labels, V, w) == pytest.approx(1.0)


def test_gamma_is_that_of_the_fit():
    X, _ = make_blobs(80, 3, centers=3, random_state=0)
    model = SpectralDPMeans(random_state=0).fit(X)
    assert model.gamma_ == pytest.approx(1 / np.median(pdist(X, "sqeuclidean")))
    more = np.repeat(X, np.arange(80) % 3 + 1, axis=0)  # copies do not count
    for kernel in ("rbf", "laplacian"):
        one, *others = (
            SpectralDPMeans(lam=1.0, kernel=kernel, n_init=1).fit(form).gamma_
            for form in (X, more, sp.csr_array(X), sp.csr_array(more))
        )
        assert others == pytest.approx([one] * 3, rel=1e-10)
    labels = model.predict(X)
    assert np.array_equal(model.set_params(gamma=1e3).predict(X), labels)
    assert model.fit(X).gamma_ == 1e3
    assert SpectralDPMeans(lam=1.0, kernel="linear").fit(X).gamma_ is None


# Memory ----------------------------------------------------------------------------------------


@weighted_or_not
@pytest.mark.parametrize("kernel", ["rbf", "precomputed", "function"])
def test_small_memory_gives_the_same(kernel, weighted, monkeypatch):
    """Fits by products with three blocks of the matrix, computed again, are the same."""
    for module in (linear_algebra, relaxation, spectral):
        monkeypatch.setattr(module, "DENSE_SOLVED_ROWS", 20)
    monkeypatch.setattr(spectral, "MAX_EIGENVALUES", 6)
    X, _ = make_blobs(150, 4, centers=5, cluster_std=0.7, random_state=3)
    w = np.random.default_rng(0).choice([0.0, 0.7, 2.0], 150) if weighted else None
    data = rbf_kernel(X, gamma=0.02) if kernel == "precomputed" else X
    options = {"kernel": rbf_kernel if kernel == "function" else kernel, "random_state": 0}
    if kernel != "precomputed":
        options["gamma"] = 0.02
    for lam in (3.0, "spectrum", "auto", 1e-3):
        whole = SpectralDPMeans(lam=lam, guess=5, **options).fit(data, sample_weight=w)
        few = SpectralDPMeans(lam=lam, guess=5, max_memory=3e5, **options)
        if lam == 1e-3:  # too many eigenvalues are above it
            with pytest.raises(ValueError, match=r"max_memory must be at least .* got"):
                few.fit(data, sample_weight=w)
            continue
        few.fit(data, sample_weight=w)
        np.testing.assert_allclose(few.eigenvalues_, whole.eigenvalues_, rtol=1e-8)
        assert few.lam_ == pytest.approx(whole.lam_, rel=1e-8)
        assert few.bound_ == pytest.approx(whole.bound_, rel=1e-8)
        assert few.objective_ == pytest.approx(whole.objective_, rel=1e-8)
        assert np.array_equal(few.labels_, whole.labels_)
        assert np.array_equal(few.predict(data), whole.predict(data))


MEMORY = """
import resource, sys
import numpy as np
from smallvar import SpectralDPMeans
rng = np.random.default_rng(0)
X = rng.normal(size=(2000, 5)) + 8 * rng.integers(3, size=2000)[:, None]
SpectralDPMeans(lam=30.0, n_init=1, random_state=0).fit(X[:600])
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
model = SpectralDPMeans(lam=200.0, n_init=1, max_memory=float(sys.argv[1]), random_state=0).fit(X)
assert model.n_clusters_ == 3
print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024)
"""


@pytest.mark.long
@pytest.mark.skipif(sys.platform != "linux", reason="ru_maxrss is in KB on Linux")
@pytest.mark.parametrize("budget", [2e8, 6e7, 3e7])
def test_memory_stays_within_the_budget(budget):
    """The dense solver takes 1.9e8 bytes for 2000 rows, their matrix 3.2e7."""
    assert printed(MEMORY, budget) < 1.05 * budget


def test_edges():
    alone = SpectralDPMeans(lam=3.0, kernel="linear").fit([[5.0, 1.0]])
    assert alone.objective_ == alone.bound_ == 3.0 and alone.labels_.tolist() == [0]
    X = np.array([[1.0], [-1.0], [2.0], [-2.0]])
    for lam in (10.1, np.inf):
        model = SpectralDPMeans(lam=lam, kernel="linear").fit(X)  # the eigenvalue is 10
        assert model.labels_.tolist() == [0, 0, 0, 0] and model.n_iter_ == 0
        assert model.embedding_.shape == (4, 0) and model.eigenvalues_.shape == (0,)
        assert model.objective_ == model.bound_ == 10 + lam
        gram = SpectralDPMeans(lam=lam, kernel="precomputed").fit(X @ X.T)
        assert gram.objective_ == gram.bound_ == 10 + lam
    zero = SpectralDPMeans(lam=1.0, kernel="precomputed").fit(sp.csr_array((5, 5)))
    assert zero.objective_ == zero.bound_ == 1.0 and zero.n_clusters_ == 1
    many = SpectralDPMeans(lam=0.5, kernel="precomputed").fit(sp.eye_array(30))
    assert many.labels_.tolist() == list(range(30))
    assert many.bound_ == pytest.approx(15.0) and many.objective_ == pytest.approx(15.0)


def test_random_state_and_verbose(capsys):
    K, lam, _, _, _ = problem(2)
    options = {"kernel": "precomputed", "n_init": 3}
    model_a = SpectralDPMeans(lam=lam / 20, random_state=4, verbose=1, **options).fit(
        sp.csr_array(K)
    )
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 3 and lines[0].startswith("start 1: ")
    assert min(float(line.split()[-1]) for line in lines) == pytest.approx(model_a.objective_)
    model_b = SpectralDPMeans(lam=lam / 20, random_state=4, **options).fit(sp.csr_array(K))
    assert np.array_equal(model_a.labels_, model_b.labels_)
    assert np.array_equal(model_a.embedding_, model_b.embedding_)
    larger_model = SpectralDPMeans(
        lam=lam / 20, kernel="precomputed", n_init=40, random_state=4
    ).fit(K)
    assert larger_model.objective_ <= model_a.objective_ * (1 + 1e-9)


BAD_FITS = {
    "lam": ({"lam": 0}, ValueError, "lam must be > 0, got 0"),
    "word": ({"lam": "best"}, ValueError, "'spectrum', 'farthest-first', got 'best'"),
    "none": ({"lam": None}, TypeError, "lam must be a number"),
    "spectrum": ({"lam": "spectrum", "guess": 7}, ValueError, "guess must be <= n"),
    "rounding": ({"rounding": "Yu"}, ValueError, "rounding must be one of 'yu-shi', 'kmeans'"),
    "gamma": ({"gamma": 1.0}, ValueError, "gamma must be None for kernel='linear'"),
    "odd": (
        {"kernel": lambda A, B: A @ np.triu(np.ones((2, 2))) @ B.T},
        ValueError,
        "must return a symmetric matrix, got entries",
    ),
}


@pytest.mark.parametrize("name", BAD_FITS)
def test_bad_parameters(name):
    changes, error, message = BAD_FITS[name]
    X = np.arange(12.0).reshape(6, 2) % 5
    model = SpectralDPMeans(lam=1.0, random_state=0, kernel="linear").fit(X).set_params(**changes)
    assert_refuses(model, lambda m: m.fit(X[:, ::-1] + 1), error, message)


@pytest.mark.parametrize(
    ("X", "kernel", "message"),
    [
        (sp.csr_array([[0.0], [np.inf]]), "linear", "got infinity in column 0"),
        ([[1e200], [0.0]], "linear", "rescale the data"),
        (sp.csr_array([[1e200], [0.0]]), "linear", "rescale the data"),
        ([[1e200, 0.0], [0.0, 1.0]], "precomputed", "rescale the data"),
        (np.ones((3, 2)), "precomputed", "X must be a square Gram matrix"),
        (sp.csr_array(np.ones((3, 2))), "precomputed", "X must be a square Gram matrix"),
        ([[1.0, 0.5], [0.4, 1.0]], "precomputed", "symmetric Gram matrix .* entries 0.1 apart"),
        (sp.csr_array([[1.0, 0.5], [0, 1]]), "precomputed", "symmetric .* entries 0.5 apart"),
        ([[1.0, np.nan], [np.nan, 1.0]], "precomputed", "NaN"),
    ],
)
def test_bad_data(X, kernel, message):
    model = SpectralDPMeans(lam=1.0, kernel=kernel).fit(np.eye(2))
    assert_refuses(model, lambda m: m.fit(X), ValueError, message)


def test_refit_with_another_kernel_starts_afresh():
    X = np.random.default_rng(0).normal(size=(20, 2))
    model = SpectralDPMeans(lam=2.0, kernel="rbf").fit(X).set_params(kernel="linear").fit(X)
    assert vars(model).keys() == vars(SpectralDPMeans(lam=2.0, kernel="linear").fit(X)).keys()
