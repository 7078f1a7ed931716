"""Profiles of clusters of rows of numbers, and the rows that stand for them."""

import copy
import pickle
from functools import partial
from types import SimpleNamespace

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.sparse import csr_array
from scipy.spatial.distance import cdist
from sklearn import config_context
from sklearn.datasets import load_iris, make_blobs, make_moons
from sklearn.preprocessing import scale

import smallvar
from smallvar import (
    BregmanDPMeans,
    DPMeans,
    HDPMeans,
    MahalanobisMeans,
    MiniBatchDPMeans,
    MixedDPMeans,
    RobustDPMeans,
    SegmentMeans,
    ShapeMeans,
    SphericalDPMeans,
)
from smallvar._core.profiles import NUMBER_FIELDS, cluster_moments, parts_of_squares

IRIS = load_iris().data
three_clusters = partial(DPMeans, n_clusters=3, random_state=0)
MODELS = {
    "DPMeans": three_clusters(),
    "collapsed": DPMeans(lam=5.0, algorithm="collapsed"),
    "metric": DPMeans(n_clusters=3, metric="auto", random_state=0),
    "MiniBatchDPMeans": MiniBatchDPMeans(n_clusters=3, random_state=0),
    "RobustDPMeans": RobustDPMeans(n_clusters=3, price=1.0, random_state=0),
    "MahalanobisMeans": MahalanobisMeans(3, random_state=0),
    "HDPMeans": HDPMeans(n_clusters=3, random_state=0),
    "ShapeMeans": ShapeMeans(n_clusters=3, random_state=0),
    "SphericalDPMeans": SphericalDPMeans(n_clusters=3, random_state=0),
    "BregmanDPMeans": BregmanDPMeans(n_clusters=3, random_state=0),
    "kl": BregmanDPMeans(divergence="kl", n_clusters=3, random_state=0),
    "itakura_saito": BregmanDPMeans(divergence="itakura_saito", n_clusters=3, random_state=0),
    "SegmentMeans": SegmentMeans(n_clusters=3),
}
SQUARES = ("DPMeans", "collapsed", "MiniBatchDPMeans", "RobustDPMeans", "HDPMeans", "ShapeMeans")
three_seeds = pytest.mark.parametrize("seed", range(3))


def by_cluster(table, name, d=4):
    """The values of a field, (k, d), columns in their order."""
    columns = table["column"].astype(int)
    out = np.full((table["cluster"].max() + 1, d), np.nan)
    out[table["cluster"], columns] = table[name]
    return out


def twin(X, labels, weight=None):
    """Means, spreads, the mean of all and n (mu - m)^2 of squared distances, in plain sums."""
    weight = np.ones(len(X)) if weight is None else weight
    kept = labels >= 0
    m = np.average(X[kept], axis=0, weights=weight[kept])
    means, spreads, saved = [], [], []
    for c in range(labels.max() + 1):
        rows, w = X[labels == c], weight[labels == c]
        mean = w @ rows / w.sum()
        means.append(mean)
        spreads.append(np.sqrt(w @ (rows - mean) ** 2 / w.sum()))
        saved.append(w.sum() * (mean - m) ** 2)
    return np.array(means), np.array(spreads), m, np.array(saved)


@pytest.mark.parametrize("name", MODELS)
def test_means_and_shares(name):
    model = copy.deepcopy(MODELS[name]).fit(IRIS)
    table = model.profiles_
    assert tuple(table) == NUMBER_FIELDS
    k = model.n_clusters_
    assert len(table["cluster"]) == 4 * k
    X = IRIS
    if name == "SphericalDPMeans":
        X = IRIS / np.linalg.norm(IRIS, axis=1, keepdims=True)
    means, spreads, m, saved = twin(X, model.labels_)
    assert_allclose(by_cluster(table, "mean"), means, rtol=1e-12)
    assert_allclose(by_cluster(table, "spread"), spreads, rtol=1e-9)
    assert_allclose(by_cluster(table, "overall"), np.tile(m, (k, 1)), rtol=1e-12)
    sizes = np.bincount(model.labels_[model.labels_ >= 0])
    assert_array_equal(by_cluster(table, "size")[:, 0], sizes)
    shares = by_cluster(table, "saved")
    assert_allclose(shares.sum(axis=1), 1.0, rtol=1e-12)
    assert (shares >= 0.0).all()
    if name in SQUARES and getattr(model, "metric_", None) is None:
        assert_allclose(shares, saved / saved.sum(axis=1, keepdims=True), rtol=1e-6)
    for c in range(k):  # what sets the cluster apart comes first
        assert (np.diff(table["apart"][table["cluster"] == c]) <= 0.0).all()


@three_seeds
@pytest.mark.parametrize("weighted", [False, True])
def test_what_is_saved_adds_up_to_the_total_less_the_inertia(seed, weighted):
    X, _ = make_blobs(120, 3, centers=4, random_state=seed)
    weight = np.random.default_rng(seed).uniform(0.5, 2.0, 120) if weighted else np.ones(120)
    model = DPMeans(n_clusters=4, random_state=0).fit(X, sample_weight=weight)
    table = model.profiles_
    m = np.average(X, axis=0, weights=weight)
    total = weight @ ((X - m) ** 2).sum(axis=1)
    # by the dispersion 2 inertia / (n d) nats become costs of a row
    saved = table["apart"] * table["size"] * 2.0 * model.inertia_ / weight.sum() / 3
    assert_allclose(saved.sum(), total - model.inertia_, rtol=1e-9)
    whole = np.bincount(table["cluster"], saved)
    assert_allclose(table["saved"], saved / whole[table["cluster"]], rtol=1e-9)


def test_nats_are_those_of_gaussians_with_one_variance():
    X, _ = make_blobs(300, 2, centers=3, random_state=0)
    model = three_clusters().fit(X)
    variance = model.inertia_ / X.size
    delta = by_cluster(model.profiles_, "mean", 2) - X.mean(axis=0)
    assert_allclose(by_cluster(model.profiles_, "apart", 2), delta**2 / (2.0 * variance))


@pytest.mark.parametrize("name", ["MahalanobisMeans", "metric", "SphericalDPMeans", "kl"])
def test_what_other_objectives_save(name):
    model = copy.deepcopy(MODELS[name]).fit(IRIS)
    table, X = model.profiles_, IRIS
    if name == "SphericalDPMeans":
        X = IRIS / np.linalg.norm(IRIS, axis=1, keepdims=True)
    sizes = np.bincount(model.labels_).astype(float)
    means, m = twin(X, model.labels_)[0], X.mean(axis=0)
    if name == "MahalanobisMeans":
        costs = [(c - m) @ np.linalg.solve(S, c - m) for c, S in zip(means, model.covariances_,
                                                                     strict=True)]  # fmt: skip
        cost, saved = 4.0, np.array(costs)
    else:
        cost = model.inertia_ / len(X)
        if name == "metric":
            assert model.metric_ is not None
            saved = np.square((means - m) @ model.metric_).sum(axis=1)
        elif name == "SphericalDPMeans":  # sum of 1 - cosine with the center of all, less own
            own, every = (np.atleast_2d(a) for a in (means, m))
            own = own / np.linalg.norm(own, axis=1, keepdims=True)
            every = every / np.linalg.norm(every)
            saved = (means * (own - every)).sum(axis=1)
        else:
            saved = (means * np.log(means / m) - means + m).sum(axis=1)
    apart = np.bincount(table["cluster"], table["apart"])
    assert_allclose(apart, saved * 4 / (2.0 * cost), rtol=1e-6)
    assert len(sizes) == len(apart)


@three_seeds
def test_parts_of_squares(seed):
    rng = np.random.default_rng(seed)
    M, delta = rng.normal(size=(5, 3)), rng.normal(size=(4, 5))
    unit = rng.uniform(0.5, 2.0, 5)
    parts = parts_of_squares(delta, M, unit)
    assert_allclose(parts.sum(axis=1), np.square(delta @ M).sum(axis=1))
    scale = rng.uniform(0.1, 10.0, 5)  # other units of the columns
    assert_allclose(parts_of_squares(delta * scale, M / scale[:, None], unit * scale), parts)
    assert_allclose(parts_of_squares(delta, np.eye(5), unit), delta**2, rtol=1e-9)
    assert_allclose(parts_of_squares(delta, np.diag(scale), unit), (delta * scale) ** 2, rtol=1e-9)


@pytest.mark.parametrize("unit", [1e-6, 1e3])
def test_units(unit):
    """Another unit of all columns changes means and spreads only, that of one the shares, too."""
    one = three_clusters().fit(IRIS)
    same = three_clusters().fit(IRIS * unit).profiles_
    for name in ("mean", "spread", "overall"):
        assert_allclose(same[name], unit * one.profiles_[name], rtol=1e-6)
    for name in ("apart", "saved"):
        assert_allclose(same[name], one.profiles_[name], rtol=1e-6)
    scale = np.array([1.0, unit, 1.0, 1.0])
    other = DPMeans(lam=1e-9, init=one.cluster_centers_ * scale, max_clusters=3).fit(IRIS * scale)
    saved = twin(IRIS * scale, other.labels_)[3]
    assert_allclose(
        by_cluster(other.profiles_, "saved"), saved / saved.sum(axis=1, keepdims=True), rtol=1e-6
    )
    # of squared distances a column counts by the square of its unit
    assert (by_cluster(other.profiles_, "saved")[:, 1] > 0.9).all() == (unit > 1.0)


def test_units_of_columns_do_not_matter_where_covariances_are_learned():
    scale = np.array([1.0, 100.0, 1e-3, 7.0])
    covariances = MahalanobisMeans(3, random_state=0).fit(IRIS)
    model = copy.copy(covariances)
    before = by_cluster(covariances.profiles_, "saved")
    model.covariances_ = covariances.covariances_ * scale * scale[:, None]
    rows = SimpleNamespace(X=IRIS * scale, weight=None, labels=covariances.labels_)
    model._fitted_rows = smallvar._core.fitted_rows.FittedRows(rows.X, None, rows.labels)
    assert_allclose(by_cluster(model.profiles_, "saved"), before, rtol=1e-6)


@three_seeds
@pytest.mark.parametrize("sparse", [False, True])
def test_order_weights_and_sparse_rows(seed, sparse):
    rng = np.random.default_rng(seed)
    X = rng.poisson(0.7, (60, 5)).astype(float) * [1.0, 2.0, 0.0, 1.0, 3.0]
    labels = rng.integers(0, 3, 60).astype(np.int32)
    weight = rng.integers(1, 4, 60).astype(float)

    def kind(rows):
        return csr_array(rows) if sparse else rows

    found = cluster_moments(kind(X), weight, labels, 3)
    repeats = weight.astype(int)
    again = cluster_moments(X.repeat(repeats, axis=0), None, labels.repeat(repeats), 3)
    order = rng.permutation(60)
    moved = cluster_moments(kind(X[order]), weight[order], labels[order], 3)
    means, spreads, m, _ = twin(X, labels, weight)
    assert_allclose(found.mean, np.vstack([means, m]), rtol=1e-12, atol=1e-12)
    assert_allclose(np.sqrt(found.variance[:-1]), spreads, rtol=1e-9)
    for a, b, c in zip(found, again, moved, strict=True):
        assert_allclose(a, b, rtol=1e-9, atol=1e-12)
        assert_allclose(a, c, rtol=1e-9, atol=1e-12)
    left_out = np.where(np.arange(60) % 2, labels, -1)  # rows in no cluster
    some = cluster_moments(kind(X), weight, left_out, 3)
    whole = cluster_moments(kind(X[1::2]), weight[1::2], labels[1::2], 3)
    for a, b in zip(some, whole, strict=True):
        assert_allclose(a, b, rtol=1e-12, atol=1e-12)


def test_blocks_of_rows(monkeypatch):
    labels = np.arange(150) % 3
    whole = [cluster_moments(X, None, labels, 3) for X in (IRIS, csr_array(IRIS))]
    monkeypatch.setattr(smallvar._core.profiles, "PROFILE_NUMBERS", 28)
    for X, expected in zip((IRIS, csr_array(IRIS)), whole, strict=True):
        for a, b in zip(cluster_moments(X, None, labels, 3), expected, strict=True):
            assert_allclose(a, b, rtol=1e-12)


def test_weights_are_sizes():
    weight = np.arange(150) % 3 + 1.0
    rows = IRIS.repeat(weight.astype(int), axis=0)
    options = {"lam": 1e9, "max_clusters": 3, "init": IRIS[[0, 60, 120]]}
    one = DPMeans(**options).fit(IRIS, sample_weight=weight).profiles_
    other = DPMeans(**options).fit(rows).profiles_
    assert one["size"].dtype == np.float64 and other["size"].dtype == np.int64
    for name in ("size", "mean", "spread", "saved", "apart", "overall"):
        assert_allclose(one[name], other[name], rtol=1e-9)


def test_rows_of_weight_zero_do_not_count():
    weight = np.r_[np.ones(150), np.zeros(2)]
    far = np.vstack([IRIS, 100.0 + IRIS[:2]])
    options = {"lam": 1e9, "max_clusters": 3, "init": IRIS[[0, 60, 120]]}
    one = DPMeans(**options).fit(far, sample_weight=weight)
    other = DPMeans(**options).fit(IRIS)
    for name in ("size", "mean", "spread", "saved"):
        assert_allclose(one.profiles_[name], other.profiles_[name])
    assert max(one.representatives_.centers) < 150


@pytest.mark.parametrize("unit", [1.0, 1e9])
def test_one_cluster_saves_nothing(unit):
    table = DPMeans(n_clusters=1).fit(IRIS * unit).profiles_
    assert np.isnan(table["saved"]).all() and (table["apart"] == 0.0).all()
    assert table["summary"].tolist()[0] == ("5.84 ± 0.83" if unit == 1.0 else "5.84e+09 ± 8.25e+08")


def test_constant_columns_and_equal_rows():
    X = np.c_[IRIS[:, 2], np.full(150, 0.1), np.full(150, 1e9)]
    table = DPMeans(n_clusters=2, random_state=0).fit(X).profiles_
    saved = by_cluster(table, "saved", 3)
    assert saved.tolist() == [[1.0, 0.0, 0.0]] * 2
    assert by_cluster(table, "spread", 3)[:, 1:].tolist() == [[0.0, 0.0]] * 2
    equal = DPMeans(lam=1.0).fit([[0.0, 1.0], [0.0, 1.0], [9.0, 1.0]]).profiles_  # no inertia
    assert_array_equal(by_cluster(equal, "saved", 2), [[1.0, 0.0]] * 2)
    assert by_cluster(equal, "apart", 2).tolist() == [[np.inf, 0.0]] * 2


def test_far_from_zero():
    near = three_clusters().fit(IRIS).profiles_
    far = three_clusters().fit(IRIS + 1e7).profiles_
    for name in ("spread", "saved"):
        assert_allclose(far[name], near[name], rtol=1e-6)


@pytest.mark.parametrize("library", ["pandas", "polars", "pyarrow"])
def test_a_table_of_the_same_library(library):
    module = pytest.importorskip(library)
    names = ["a", "b", "c", "d"]
    columns = dict(zip(names, IRIS.T, strict=True))
    frame = module.table(columns) if library == "pyarrow" else module.DataFrame(columns)
    model = three_clusters().fit(frame)
    table, plain = model.profiles_, three_clusters().fit(IRIS).profiles_
    assert type(table) is type(frame)
    if hasattr(model, "feature_names_in_"):  # not of all tables by older scikit-learn
        named = [names[j] for j in plain["column"]]
        assert np.asarray(table["column"]).tolist() == named
    assert_allclose(np.asarray(table["saved"]), plain["saved"])
    assert len(model.representatives_.centers) == 3  # names of columns are no hindrance
    assert isinstance(model.fit(IRIS).profiles_, dict)


def test_many_columns():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(40, 3000))
    X[:20, :7] += 30.0
    model = DPMeans(n_clusters=2, random_state=0).fit(X)
    table = model.profiles_
    assert len(table["cluster"]) == 2 * 100
    assert set(table["column"][:7]) == set(range(7))
    whole = model.profile_clusters()
    assert len(whole["cluster"]) == 2 * 3000
    assert_allclose(np.bincount(whole["cluster"], whole["saved"]), 1.0)
    first = model.profile_clusters(max_columns=3)
    assert first["column"].tolist() == [
        j for c in range(2) for j in table["column"][table["cluster"] == c][:3]
    ]
    with pytest.raises(ValueError, match="max_columns must be >= 1, got 0"):
        model.profile_clusters(max_columns=0)


def test_sparse_rows():
    rng = np.random.default_rng(0)
    X = rng.poisson(0.2, (80, 12)).astype(float)
    X[:40, 0] += 9.0
    dense, sparse = (DPMeans(lam=15.0).fit(rows) for rows in (X, csr_array(X)))
    assert dense.n_clusters_ > 1
    for name in ("size", "mean", "spread", "saved", "apart"):
        one, other = (by_cluster(model.profiles_, name, 12) for model in (sparse, dense))
        assert_allclose(one, other, rtol=1e-9, atol=1e-12)
    assert_array_equal(sparse.representatives_.centers, dense.representatives_.centers)


def test_columns_of_noise_save_nothing():
    rng = np.random.default_rng(0)
    centers = np.array([[0.0, 0.0, 0.0], [9.0, 0.0, 0.0], [0.0, 9.0, 0.0], [0.0, 0.0, 9.0]])
    X = centers[np.arange(600) % 4] + rng.normal(size=(600, 3))
    X = scale(np.c_[X, rng.normal(size=(600, 30))])
    for kind in (DPMeans, ShapeMeans):
        model = kind(random_state=0).fit(X)
        assert model.path_.noise_columns.tolist() == list(range(3, 33))
        assert not getattr(model, "metric_", None)
        saved = by_cluster(model.profiles_, "saved", 33)
        assert (saved[:, 3:] == 0.0).all()
        assert_allclose(saved.sum(axis=1), 1.0)


def test_noise_rows_are_left_out():
    far = np.array([[400.0, 0.0], [-300.0, 500.0]])
    X = np.vstack([make_blobs(300, centers=4, random_state=2)[0], far])
    model = RobustDPMeans(random_state=0).fit(X)
    assert model.labels_[-2:].tolist() == [-1, -1]
    assert_allclose(by_cluster(model.profiles_, "overall", 2)[0], X[:-2].mean(axis=0), rtol=1e-6)


def test_batches():
    model = MiniBatchDPMeans(lam=4.0)
    for part in np.array_split(IRIS[::-1], 5):
        model.partial_fit(part)
    table = model.profiles_
    assert_allclose(by_cluster(table, "mean"), model.cluster_centers_)
    assert_allclose(by_cluster(table, "size")[:, 0], model.cluster_weights_)
    assert np.isnan(table["spread"]).all() and "±" not in "".join(table["summary"])
    assert_allclose(by_cluster(table, "saved").sum(axis=1), 1.0)
    with pytest.raises(AttributeError, match=r"no representatives_: it keeps no rows"):
        model.representatives_  # noqa: B018
    assert model.fit(IRIS).profiles_["spread"].min() > 0.0
    assert not hasattr(SphericalDPMeans(lam=0.1).partial_fit(IRIS), "profiles_")


def test_pickled():
    model = three_clusters().fit(IRIS)
    read = pickle.loads(pickle.dumps(model))
    assert len(pickle.dumps(model)) < len(pickle.dumps(IRIS)) + 40_000
    for name in ("profiles_", "representatives_"):
        with pytest.raises(AttributeError, match=f"no {name}: it was pickled or copied"):
            getattr(read, name)
    table, found = model.profiles_, model.representatives_
    read = pickle.loads(pickle.dumps(model))
    for name in table:
        assert_array_equal(read.profiles_[name], table[name])
    assert read.representatives_.boundaries == found.boundaries
    read.fit(IRIS[:100])  # what is kept is that of the last fit
    assert read.profiles_["size"].max() <= 100


def test_not_fitted():
    for name in ("profiles_", "representatives_"):
        assert not hasattr(DPMeans(), name)
    with pytest.raises(Exception, match="not fitted") as error:
        DPMeans().profile_clusters()
    assert type(error.value).__name__ == "NotFittedError"


def test_asking_changes_no_fit():
    one, other = (three_clusters().fit(IRIS) for _ in range(2))
    attributes = set(vars(one))
    one.profiles_, one.representatives_  # noqa: B018
    assert set(vars(one)) == attributes
    assert_array_equal(one.fit(IRIS[::2]).labels_, other.fit(IRIS[::2]).labels_)


def test_representatives_of_mixed_tables():
    pd = pytest.importorskip("pandas")
    rng = np.random.default_rng(0)
    kind = rng.integers(3, size=200)
    frame = pd.DataFrame({"a": 6.0 * kind + rng.normal(size=200), "b": np.array(list("xyz"))[kind]})
    frame.loc[::7, "a"] = np.nan
    model = MixedDPMeans(n_clusters=3, random_state=0).fit(frame)
    D, labels = model.transform(frame), model.labels_
    found = model.representatives_
    for k, row in enumerate(found.centers):
        assert labels[row] == k
        assert D[row, k] == D[labels == k, k].min()
    assert found.boundaries
    for (a, b), pair in found.boundaries.items():
        for own, other, row in ((a, b, pair[0]), (b, a, pair[1])):
            assert labels[row] == own
            assert D[row].argsort()[1] == other or (D[labels == own].argsort()[:, 1] != other).all()
    assert model.probabilities_[found.centers].min() > 0.9


def test_shares_of_mixed_tables():
    pd = pytest.importorskip("pandas")
    rng = np.random.default_rng(0)
    truth = rng.integers(2, size=300)
    frame = pd.DataFrame(
        {
            "size": 9.0 * truth + rng.normal(size=300),
            "other": 3.0 * truth + rng.normal(size=300),
            "word": np.where(rng.random(300) < 0.8, truth, 1 - truth).astype(str),
        }
    )
    frame.loc[rng.random(300) < 0.5, "other"] = np.nan
    table = MixedDPMeans(n_clusters=2, random_state=0).fit(frame).profiles_
    for _, lines in table.groupby("cluster"):
        saved = lines["apart"] * (1.0 - lines["missing"])
        assert_allclose(lines["saved"], saved / saved.sum())
        assert_allclose(lines["saved"].sum(), 1.0)
    alone = MixedDPMeans(n_clusters=1, random_state=0).fit(frame).profiles_
    assert alone["saved"].isna().all()


# -- rows that stand for clusters -------------------------------------------------------------


def nearest_by_hand(distances, labels, k):
    """Rows nearest to centers, and beside the boundaries, by their definition."""
    centers = [
        min(np.flatnonzero(labels == c), key=lambda i, c=c: distances[i, c]) for c in range(k)
    ]
    second = np.array([
        min((c for c in range(k) if c != own), key=lambda c, row=row: row[c])
        for row, own in zip(distances, labels, strict=True)
    ])  # fmt: skip
    boundaries = {}
    for a in range(k):
        for b in range(a + 1, k):
            facing = [(labels == x) & (second == y) for x, y in ((a, b), (b, a))]
            if sum(one.sum() for one in facing) < 2:
                continue
            rows = []
            for one, own in zip(facing, (a, b), strict=True):
                among = np.flatnonzero(one if one.any() else labels == own)
                gap = np.abs(distances[among, a] - distances[among, b])
                rows.append(int(among[gap.argmin()]))
            boundaries[a, b] = tuple(rows)
    return centers, boundaries


@pytest.mark.parametrize("name", MODELS)
def test_representatives(name):
    model = copy.deepcopy(MODELS[name]).fit(IRIS)
    found, k = model.representatives_, model.n_clusters_
    used = model.labels_ >= 0
    if hasattr(model, "transform"):
        distances = model.transform(IRIS)
    else:
        distances = cdist(IRIS, model.cluster_centers_)
    centers, boundaries = nearest_by_hand(distances[used], model.labels_[used], k)
    number = np.flatnonzero(used)
    assert_array_equal(found.centers, number[centers])
    assert found.boundaries == {
        pair: tuple(number[list(rows)].tolist()) for pair, rows in boundaries.items()
    }
    assert_array_equal(model.labels_[found.centers], np.arange(k))


def test_boundaries_are_those_of_boundary_evidence():
    X, _ = make_moons(600, noise=0.1, random_state=0)
    model = DPMeans(n_clusters=6, random_state=0).fit(X)
    table = smallvar.boundary_evidence(X, model.labels_)
    found = model.representatives_.boundaries
    assert list(found) == [tuple(pair) for pair in table.clusters.tolist()]
    for (a, b), (i, j) in found.items():
        assert (model.labels_[i], model.labels_[j]) == (a, b)


def test_blocks_of_distances(monkeypatch):
    model = DPMeans(n_clusters=5, random_state=0).fit(IRIS)
    found = copy.copy(DPMeans(n_clusters=5, random_state=0).fit(IRIS)).fit(IRIS).representatives_
    monkeypatch.setattr(smallvar._selection.representatives, "MOST_COMPARED", 20)
    again = model.representatives_
    assert_array_equal(again.centers, found.centers)
    assert again.boundaries == found.boundaries


@pytest.mark.parametrize("kind", [DPMeans, ShapeMeans, SphericalDPMeans])
def test_representatives_where_transform_makes_tables(kind):
    pytest.importorskip("pandas")
    frame = load_iris(as_frame=True).data.astype(np.float32)
    plain = kind(n_clusters=3, random_state=0).fit(frame).representatives_
    tables = kind(n_clusters=3, random_state=0).set_output(transform="pandas").fit(frame)
    assert tables.representatives_.boundaries == plain.boundaries
    with config_context(transform_output="pandas"):
        everywhere = kind(n_clusters=3, random_state=0).fit(frame)
        assert everywhere.representatives_.boundaries == plain.boundaries
        assert everywhere.transform(frame).shape == (150, 3)


def test_one_cluster_has_no_boundary():
    found = DPMeans(n_clusters=1).fit(IRIS).representatives_
    assert found.boundaries == {} and found.centers.shape == (1,)


def test_zero_rows_have_no_direction():
    X = np.vstack([np.zeros((2, 4)), IRIS])
    with pytest.warns(UserWarning, match="2 rows of length zero"):
        model = SphericalDPMeans(n_clusters=2, random_state=0).fit(X)
    found = model.representatives_
    assert (found.centers >= 2).all()
    assert model.profiles_["size"].sum() == 4 * 150


def test_picture():
    matplotlib = pytest.importorskip("matplotlib")
    matplotlib.use("Agg")
    model = three_clusters().fit(IRIS)
    display = smallvar.ProfileDisplay.from_estimator(model)
    assert display.names[0] == "column 2" and display.directed.all()
    assert "other shares" not in display.ax_.get_title()
    signs = np.sign(by_cluster(model.profiles_, "mean") - IRIS.mean(axis=0))
    order = [int(name.removeprefix("column ")) for name in display.names]
    assert_array_equal(np.sign(display.distances), signs[:, order])
    batches = MiniBatchDPMeans(lam=4.0).partial_fit(IRIS, sample_weight=np.full(150, 2.0))
    drawn = smallvar.ProfileDisplay.from_estimator(batches)
    assert np.isfinite(drawn.distances).all() and drawn.distances.any()
    assert smallvar.ClusterDisplay.from_estimator(model, IRIS).sizes.sum() == 150
    matplotlib.pyplot.close("all")
    with pytest.raises(Exception, match="keeps no rows"):
        smallvar.ProfileDisplay.from_estimator(SphericalDPMeans(lam=0.1).partial_fit(IRIS))
