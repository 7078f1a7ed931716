"""Sparse rows: the same results as for the dense array of the same numbers."""

import inspect
import os
import tracemalloc

import numpy as np
import pytest
import scipy.sparse as sp
from helpers import assert_refuses, fit, seeds
from sklearn.base import BaseEstimator, clone
from sklearn.decomposition import TruncatedSVD
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import normalize
from sklearn.utils.estimator_checks import check_estimator
from smallvar._sweeps.ranges import column_range
from smallvar._sweeps.sums import Layout, Sums
from twins import dpmeans as twin

import smallvar
from smallvar import (
    DPMeans,
    MiniBatchDPMeans,
    PenalizedCut,
    SpectralDPMeans,
    SphericalDPMeans,
    cluster_path,
    coreset,
    cut_path,
    farthest_first_lambda,
    hdp_lambdas,
    progress_callback,
)
from smallvar._core.validation import sparse_rows
from smallvar._sweeps import nearest_sweep

FORMATS = [
    f"{kind}_{form}" for kind in ("csr", "csc", "coo", "bsr", "lil") for form in ("array", "matrix")
]
each_algorithm = pytest.mark.parametrize("algorithm", ["serial", "delayed"])


def entangled(X, rng):
    """The same numbers as CSR data as they are met: parts to be summed, unsorted, zeros stored."""
    rows, columns = np.nonzero((X != 0) | (rng.random(X.shape) < 0.1))
    values = X[rows, columns]
    if rng.random() < 0.5:  # halves add up exactly
        twice = rng.random(len(rows)) < 0.3
        rows, columns = np.append(rows, rows[twice]), np.append(columns, columns[twice])
        half = values[twice] / 2
        values[twice] = half
        values = np.append(values, half)
    order = np.argsort(rows + rng.random(len(rows)))  # columns of a row in any order
    begin = np.append(0, np.cumsum(np.bincount(rows, minlength=len(X))))
    kind = rng.choice([np.int32, np.int64])
    S = sp.csr_array(X.shape, dtype=X.dtype)
    S.data, S.indices, S.indptr = values[order], columns[order].astype(kind), begin.astype(kind)
    name = rng.choice(FORMATS)
    S = getattr(sp, name)(S) if rng.random() < 0.5 else S
    for part in ("data", "indices", "indptr", "row", "col"):
        array = getattr(S, part, None)
        if isinstance(array, np.ndarray) and S.format != "lil":
            array.flags.writeable = False
    return S


def problem(seed):
    """Rows with many zeros, and weights or None."""
    rng = np.random.default_rng(seed)
    n, d = rng.integers(1, 250), rng.integers(1, 50)
    grid = rng.random() < 0.5
    X = rng.integers(-2, 4, (n, d)) if grid else rng.normal(size=(n, d))
    X = np.where(rng.random((n, d)) < rng.choice([0.02, 0.1, 0.4, 1.0]), X, 0.0)
    if rng.random() < 0.3:
        X[:, rng.integers(d)] += 100  # no zeros there
    if rng.random() < 0.3:
        X[rng.integers(0, n, n // 3)] = 0
    if rng.random() < 0.3:
        X[:, rng.integers(d)] = 0
    if rng.random() < 0.3:
        X = X[rng.integers(0, n, n)]
    X = X.astype(rng.choice([np.float32, np.float64]))
    if rng.random() < 0.2:
        X *= X.dtype.type(2.0 ** rng.integers(-60, 50))
    weight = None if rng.random() < 0.5 else rng.integers(0, 3, n) * rng.choice([1.0, 0.37])
    if weight is not None and not weight.any():
        weight[rng.integers(n)] = 2.0
    return rng, X, weight


def penalty(X, rng):
    """Often exactly the squared distance of two rows, so that what opens a cluster is a tie."""
    pair = X[rng.integers(0, len(X), 2)].astype(np.float64)
    squared = float(np.square(pair[0] - pair[1]).sum())
    spread = float(np.square(X - X.mean(axis=0, dtype=np.float64)).sum(axis=1).max())
    lam = squared if rng.random() < 0.4 else spread * rng.choice([0.05, 0.3, 0.7])
    return lam or spread or 1.0


def same_fit(dense, other_model):
    """The same labels and sweeps, and the same bits of all centers."""
    assert np.array_equal(dense.labels_, other_model.labels_)
    assert dense.cluster_centers_.tobytes() == other_model.cluster_centers_.tobytes()
    assert dense.n_iter_ == other_model.n_iter_
    assert np.isclose(dense.objective_, other_model.objective_, rtol=1e-10)


@seeds(200)
@each_algorithm
def test_same_labels_as_dense(seed, algorithm):
    rng, X, weight = problem(seed)
    S = entangled(X, rng)
    options = {"lam": penalty(X, rng), "algorithm": algorithm, "random_state": 0}
    options |= {"n_init": 1 + (rng.random() < 0.3), "max_iter": int(rng.choice([300, 2]))}
    if rng.random() < 0.3:
        options["max_clusters"] = int(rng.integers(3, 9))
    if rng.random() < 0.3:
        options["init"] = X[rng.integers(0, len(X), 3)].astype(np.float64)
    dense, other_model = DPMeans(**options), DPMeans(**options, n_threads=int(rng.integers(1, 3)))
    before = S.copy()
    assert fit(dense, X, weight) == fit(other_model, S, weight)
    assert (before != S).nnz == 0 and S.dtype == before.dtype
    same_fit(dense, other_model)
    Y = X[rng.permutation(len(X))] + X.dtype.type(0.5) * (X != 0)
    T = entangled(Y, rng)
    assert np.array_equal(dense.predict(Y), other_model.predict(T))
    assert np.isclose(
        dense.score(Y, sample_weight=weight), other_model.score(T, sample_weight=weight)
    )
    near = dense.transform(Y), other_model.transform(T)
    assert near[0].dtype == near[1].dtype
    largest = np.abs(Y).max(initial=0.0) * np.sqrt(Y.shape[1])
    np.testing.assert_allclose(*near, rtol=1e-5, atol=1e-6 * largest)


@seeds(60)
def test_same_as_the_twin(seed):
    rng, X, weight = problem(seed)
    lam = penalty(X, rng)
    model = DPMeans(lam=lam)
    fit(model, entangled(X, rng), weight)
    expected = twin.serial(X, lam, weights=weight)
    assert np.array_equal(model.labels_, expected.labels)
    assert np.isclose(model.objective_, expected.objective, rtol=1e-9)


@seeds(60)
def test_mini_batches_same_as_dense(seed):
    rng, X, weight = problem(seed)
    options = {"batch_size": int(rng.integers(5, 100)), "max_iter": 3, "random_state": 0}
    dense, other_model = (
        MiniBatchDPMeans(lam=penalty(X, np.random.default_rng(5)), **options) for _ in "12"
    )
    S = entangled(X, rng)
    fit(dense, X, weight)
    fit(other_model, S, weight)
    same_fit(dense, other_model)
    dense.partial_fit(X + 1, sample_weight=weight)
    other_model.partial_fit(entangled(X + 1, rng), sample_weight=weight)
    assert np.array_equal(dense.labels_, other_model.labels_)
    assert dense.cluster_centers_.tobytes() == other_model.cluster_centers_.tobytes()


@seeds(100)
def test_farthest_first_same_as_dense(seed):
    rng, X, _ = problem(seed)
    k = int(rng.integers(1, min(6, len(X)) + 1))
    assert farthest_first_lambda(X, k) == farthest_first_lambda(entangled(X, rng), k)


@seeds(100)
def test_sums_same_bits_as_dense(seed):
    rng, X, weight = problem(seed)
    S = sparse_rows(sp.csr_array(X))
    label = rng.integers(0, 3, len(X)).astype(np.int32)
    for dense, other in zip(column_range(X, weight, 2), column_range(S, weight, 2), strict=True):
        assert np.array_equal(dense, other)
    cells = []
    for rows in (X, S):
        sums = Sums(Layout(rows, weight, 2), 3)
        sums.add(rows, label, weight, 2)
        sums.move(
            rows[:5], label[:5], label[::-1][:5].copy(), None if weight is None else weight[:5]
        )
        cells.append(sums.cells + 0.0)
    assert cells[0].tobytes() == cells[1].tobytes()


def blobs(n=3000, d=400, seed=0):
    """Rows of few words from ten topics."""
    rng = np.random.default_rng(seed)
    topic = rng.integers(0, 10, n)
    word = (topic[:, None] * (d // 10) + rng.integers(0, d // 10, (n, 12))) % d
    common = rng.integers(0, d, (n, 4))
    columns = np.concatenate([word, common], axis=1)
    return sp.csr_array(
        (np.ones(columns.size), (np.repeat(np.arange(n), 16), columns.ravel())), (n, d)
    )


def test_auto_and_path_same_as_dense():
    S = blobs(600, 60)
    dense, other_model = (DPMeans(random_state=0).fit(rows) for rows in (S.toarray(), S))
    same_fit(dense, other_model)
    assert dense.lam_ == other_model.lam_
    path = cluster_path(S, random_state=0)
    assert path.best == dense.n_clusters_
    assert np.array_equal(path.labels(3), path.labels(3, S.toarray()))
    assert np.array_equal(path.labels(3), path.labels(3, S))
    batches = [MiniBatchDPMeans(random_state=0).fit(rows).labels_ for rows in (S, S.toarray())]
    assert np.array_equal(*batches)


@each_algorithm
def test_same_bits_for_any_number_of_threads(algorithm, eight_cores):
    S = blobs(6000)
    models = [
        DPMeans(lam=22.0, algorithm=algorithm, max_clusters=40, n_threads=n).fit(S)
        for n in (1, 2, 8)
    ]
    assert models[0].n_clusters_ > 3
    for other_model in models[1:]:
        same_fit(models[0], other_model)
        assert other_model.objective_path_.tobytes() == models[0].objective_path_.tobytes()


def test_double_scores_where_single_ones_do_not_tell():
    rng = np.random.default_rng(0)
    X = np.where(rng.random((3000, 40)) < 0.3, rng.normal(size=(3000, 40)), 0.0)
    X[:, 0] = 1e6 + rng.normal(size=3000)  # sums have an origin there, scores have none
    dense, other = (DPMeans(lam=20.0, max_clusters=30).fit(rows) for rows in (X, sp.csr_array(X)))
    same_fit(dense, other)


def test_memory():
    """Never a dense copy of the rows; at most six numbers of 8 bytes a center and column."""
    rng = np.random.default_rng(0)
    n, d, k = 3000, 30_000, 60
    S = sp.random_array((n, d), density=0.001, format="csr", random_state=rng)
    init = S[:k].toarray()
    model = DPMeans(lam=1e9, init=init)
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        model.fit(S)
        peak = tracemalloc.get_traced_memory()[1] - before
        assert peak < 6 * 8 * k * d
        model.predict(S), model.score(S), model.transform(S)
        assert tracemalloc.get_traced_memory()[1] - before < 6 * 8 * k * d
    finally:
        tracemalloc.stop()


@pytest.mark.skipif(not hasattr(os, "sysconf"), reason="memory is not known on this system")
def test_centers_beyond_memory(monkeypatch):
    monkeypatch.setattr(os, "sysconf", lambda name: 1 << 16)  # 4 GiB
    wide = sp.csr_array((np.ones(2), ([0, 1], [0, 1])), (2, 2**31 - 1))
    for model in (DPMeans(lam=1.0), MiniBatchDPMeans(lam=1.0)):
        assert_refuses(model, lambda m: m.fit(wide), MemoryError, "bytes", "TruncatedSVD")
    with pytest.raises(MemoryError, match="bytes"):
        nearest_sweep.check_memory(10**6, 10**8)
    with pytest.raises(ValueError, match=r"lam must be a number.*bytes.*TruncatedSVD"):
        DPMeans().fit(sp.csr_array((6000, 50_000)))
    # of few rows no matrix has as many rows and columns as there are columns
    assert DPMeans().fit(sp.csr_array((100, 50_000))).n_clusters_ == 1
    with pytest.raises(ValueError, match="columns"):
        DPMeans(lam=1.0).fit(sp.csr_array((2, 2**31)))


def test_many_centers_of_few_rows_are_refused_early(monkeypatch):
    """Where nothing limits clusters of few rows, they may take a part of the memory; a cap all."""
    monkeypatch.setattr(nearest_sweep, "available_memory", lambda: 1 << 28)
    S = sp.random_array((3000, 2000), density=0.01, format="csr", random_state=0)
    S = sp.csr_array(normalize(S))
    for model in (DPMeans(lam=0.9), SphericalDPMeans(min_cosine=0.5), MiniBatchDPMeans(lam=0.9)):
        assert_refuses(
            model, lambda m: m.fit(S), MemoryError, " clusters of 2000 columns take", "max_"
        )
    assert DPMeans(lam=0.9, max_clusters=1000).fit(S).n_clusters_ == 1000
    assert DPMeans(lam=0.9).fit(S[:600]).n_clusters_ == 600


@pytest.mark.parametrize("name", smallvar.__all__)
def test_others_refuse_by_name(name):
    estimator = getattr(smallvar, name)
    if not inspect.isclass(estimator) or not issubclass(estimator, BaseEstimator):
        pytest.skip("no estimator")
    model = estimator()
    if model.__sklearn_tags__().input_tags.sparse:
        pytest.skip("takes sparse data")
    S = sp.csr_array(np.eye(6))
    arguments = (np.zeros(6),) if name in ("HDPMeans", "KernelHDPMeans") else ()
    method = "partial_fit" if name.endswith("DynamicMeans") else "fit"
    assert_refuses(model, lambda m: getattr(m, method)(S, *arguments), TypeError, name, "toarray")


OF_ROWS = {
    "DPMeans": lambda X: DPMeans(lam=1.0).fit(X).predict(X),
    "DPMeans delayed": lambda X: DPMeans(lam=1.0, algorithm="delayed").fit(X).predict(X),
    "DPMeans auto": lambda X: DPMeans(random_state=0).fit(X).transform(X),
    "MiniBatchDPMeans": lambda X: MiniBatchDPMeans(lam=1.0, random_state=0).fit(X).predict(X),
    "SpectralDPMeans": lambda X: SpectralDPMeans(lam=2.0, random_state=0).fit(X).predict(X),
    "SpectralDPMeans linear": lambda X: (
        SpectralDPMeans(kernel="linear", random_state=0).fit(X).predict(X)
    ),
    "SphericalDPMeans": lambda X: SphericalDPMeans(lam=0.3).fit(X).predict(X),
    "coreset": lambda X: coreset(X, 20, 0.1, random_state=0)[0],
    "farthest_first_lambda": lambda X: farthest_first_lambda(X, 4),
    "cluster_path": lambda X: cluster_path(X, random_state=0).lam,
}
OF_MATRICES = {
    "PenalizedCut": lambda X: PenalizedCut(lam=-0.5, random_state=0).fit(X).labels_,
    "PenalizedCut auto": lambda X: PenalizedCut(random_state=0).fit(X).labels_,
    "SpectralDPMeans precomputed": lambda X: (
        SpectralDPMeans(lam=2.0, kernel="precomputed", random_state=0).fit(X).labels_
    ),
    "cut_path": lambda X: cut_path(X, random_state=0).lam,
}
INDEX_TYPES = [(np.int32, np.int64), (np.int64, np.int32), (np.int64, np.int64), (np.uint16, int)]


@pytest.mark.parametrize("types", INDEX_TYPES, ids=str)
@pytest.mark.parametrize("key", [*OF_ROWS, *OF_MATRICES])
def test_index_arrays_of_several_types(key, types):
    X = sp.csr_array(sp.random(60, 10, 0.4, format="csr", random_state=0))
    call = OF_ROWS.get(key)
    if call is None:
        X, call = X @ X.T, OF_MATRICES[key]
    wanted = call(X)
    for form in FORMATS:
        if form.startswith("lil"):
            continue
        S = getattr(sp, form)(X)
        names = ("row", "col") if S.format == "coo" else ("indices", "indptr")
        for name, dtype in zip(names, types, strict=True):
            setattr(S, name, getattr(S, name).astype(dtype))
        dense = S.toarray()
        assert np.array_equal(call(S), wanted), form
        assert np.array_equal(S.toarray(), dense)  # not sorted, or only in part, behind its back


@pytest.mark.parametrize("form", ["csr_array", "csc_matrix", "coo_array"])
def test_indices_of_the_user_are_not_those_of_the_sweeps(form):
    """Whatever is written to them during a fit, entries of no other memory are read."""
    S = getattr(sp, form)(sp.random(60, 10, 0.4, random_state=0))
    names = ("row", "col") if S.format == "coo" else ("indices", "indptr")
    wanted = DPMeans(lam=1.0).fit(S).labels_

    def spoil(event):
        for name in names:
            getattr(S, name)[:] = 2**31 - 1

    with progress_callback(spoil):
        assert np.array_equal(DPMeans(lam=1.0).fit(S).labels_, wanted)


@pytest.mark.parametrize("algorithm", ["collapsed", "merge"])
def test_algorithms_for_dense_rows_refuse_by_name(algorithm):
    model = DPMeans(lam=1.0, algorithm=algorithm)
    assert not model.__sklearn_tags__().input_tags.sparse
    assert_refuses(model, lambda m: m.fit(sp.eye(5)), ValueError, algorithm, "serial", "toarray")


def test_functions_for_dense_rows_refuse():
    with pytest.raises(TypeError, match="toarray"):
        hdp_lambdas(sp.eye(5), np.zeros(5), 1, 1)


def broken(**parts):
    """CSR data with some of its arrays replaced behind its back."""
    S = sp.csr_array(np.eye(4))
    for name, value in parts.items():
        setattr(S, name, np.asarray(value))
    return S


def broken_coo():
    S = sp.coo_array(np.eye(4))
    S.col = S.col + 3
    return S


BAD = {
    "column too large": (broken(indices=[0, 1, 2, 4]), "indices must be >= 0 and < 4, got 0 to 4"),
    "column negative": (broken(indices=[0, -1, 2, 3]), "indices must be >= 0 and < 4, got -1"),
    "columns no integers": (broken(indices=[0.0, 1.0, 2.0, 3.0]), "integers"),
    "rows beyond the entries": (broken(indptr=[0, 1, 2, 3, 9]), "indptr must ascend"),
    "rows descend": (broken(indptr=[0, 3, 2, 3, 4]), "indptr must ascend"),
    "rows from -1": (broken(indptr=[-1, 1, 2, 3, 4]), "indptr must ascend"),
    "too few rows": (broken(indptr=[0, 1, 2]), "indptr must ascend"),
    "fewer entries than columns": (broken(data=[1.0]), "indptr must ascend"),
    "coordinates": (broken_coo(), "col must be >= 0 and < 4, got 3 to 6"),
    "NaN": (broken(data=[1.0, np.nan, 1.0, 1.0]), "NaN"),
    "infinity": (broken(data=[1.0, np.inf, 1.0, 1.0]), "infinity"),
    "infinite sum": (
        sp.csr_array((np.full(2, 1e308), [0, 0], [0, 2]), (1, 2)),
        "infinite sums",
    ),
    "one dimension": (sp.coo_array(np.ones(3)), "two dimensions"),
    "objects": (broken(data=np.array([1, 2, 3, 4], dtype=object)), "real numbers"),
    "complex": (sp.csr_array(np.eye(3) * 1j), "real numbers"),
    "no rows": (sp.csr_array((0, 3)), "0 sample"),
    "no columns": (sp.csr_array((3, 0)), "0 feature"),
    "beyond squares": (sp.csr_array(np.eye(3) * 1e200), "1e140"),
}


@pytest.mark.parametrize("case", BAD)
@pytest.mark.parametrize("estimator", [DPMeans, MiniBatchDPMeans])
def test_bad_data(estimator, case):
    bad, words = BAD[case]
    if case == "one dimension" and bad.ndim != 1:
        pytest.skip("scipy before 1.13 has no sparse arrays of one dimension")
    assert_refuses(estimator(lam=1.0), lambda m: m.fit(bad), ValueError, words)
    fitted = estimator(lam=1.0).fit(np.eye(4))
    assert_refuses(fitted, lambda m: m.fit(bad), ValueError, words)
    with pytest.raises(ValueError, match=words):
        farthest_first_lambda(bad, 1)


@pytest.mark.parametrize("case", [case for case in BAD if "col" in case or "rows" in case])
@pytest.mark.parametrize("estimator", [SpectralDPMeans(lam=1.0, kernel="linear"), PenalizedCut()])
def test_arrays_that_do_not_fit_each_other(estimator, case):
    bad, words = BAD[case]
    if min(bad.shape) == 0:
        words = "0 sample|0 feature"
    assert_refuses(clone(estimator), lambda m: m.fit(bad), ValueError, words)


def test_predict_wants_the_columns_of_the_fit():
    model = DPMeans(lam=1.0).fit(sp.eye(4).tocsr())
    with pytest.raises(ValueError, match="5 features"):
        model.predict(sp.eye(5).tocsr())
    assert model.predict(np.eye(4)).tolist() == model.predict(sp.eye(4)).tolist()


def test_no_entries_at_all():
    for rows in (sp.csr_array((5, 3)), sp.coo_matrix((5, 3), dtype=np.float32)):
        model = DPMeans(lam=1.0).fit(rows)
        assert model.n_clusters_ == 1 and model.inertia_ == 0.0
        assert model.labels_.tolist() == [0] * 5
        assert farthest_first_lambda(rows, 2) == 1.0


@each_algorithm
def test_estimator_contract_where_sparse_is_taken(algorithm):
    assert DPMeans(algorithm=algorithm).__sklearn_tags__().input_tags.sparse
    reason = "the check takes whatever has predict_proba for a classifier of four classes"
    checks = {f"check_estimator_sparse_{kind}": reason for kind in ("array", "matrix")}
    model = DPMeans(algorithm=algorithm)
    check_estimator(model, on_skip=None, expected_failed_checks=checks)


def test_in_a_pipeline():
    rows = blobs(300)
    assert make_pipeline(TruncatedSVD(3), DPMeans(lam=2.0)).fit_predict(rows).shape == (300,)


def test_tags_of_an_algorithm_that_is_none():
    """Tools ask for tags before a fit can refuse it."""
    model = DPMeans(algorithm=np.array(["serial", "delayed"]))
    assert not model.__sklearn_tags__().input_tags.sparse
