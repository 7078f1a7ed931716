"""min_cluster_size: the number of large clusters, in spite of rows and small groups far away."""

import pickle
from functools import partial

import numpy as np
import pytest
import twins.least_size
from scipy.sparse import csr_matrix
from sklearn.base import clone
from sklearn.datasets import make_blobs, make_moons

import smallvar
from smallvar import DPMeans, MixedDPMeans, ShapeMeans
from smallvar._centers.dpmeans import RowsProblem
from smallvar._centers.starts import DPFit, StartPoint
from smallvar._core.fit_loop import LoopSettings
from smallvar._selection.least_size import LargeClusterings
from smallvar._selection.path import find_path

pytestmark = pytest.mark.filterwarnings("ignore::smallvar.UnclearNumberWarning")

LEAST = 25
large_clusters = partial(DPMeans, min_cluster_size=LEAST, random_state=0)
SIZES = (120, 90, 70, 50)
CENTERS = np.array([[0, 0, 0], [12, 0, 0], [0, 12, 3], [11, 11, 9]], dtype=float)


def planted(seed, kind="far"):
    """Rows in four clusters and some that are in none (-1): far, in small groups, or extreme."""
    rng = np.random.default_rng(seed)
    X, y = make_blobs(SIZES, centers=CENTERS, random_state=seed)
    if kind == "far":
        others = 40.0 * rng.standard_t(2, (20, 3))
    elif kind == "extreme":
        others = 1e6 * rng.standard_normal((4, 3))
    else:
        at = 60.0 * rng.standard_normal((4, 3))
        groups = zip(at, (3, 9, 14, 24), strict=True)
        others = np.vstack([c + 0.5 * rng.standard_normal((n, 3)) for c, n in groups])
    order = rng.permutation(len(X) + len(others))
    return np.vstack([X, others])[order], np.r_[y, np.full(len(others), -1)][order]


def is_right(model, X, y, least=LEAST):
    """Assert that the large clusters are those of y, and that all results agree."""
    assert model.n_clusters_ == len(SIZES)
    pairs = np.unique(np.column_stack([y, model.labels_])[y >= 0], axis=0)
    assert len(pairs) == len(SIZES)
    assert len(set(pairs[:, 1])) == len(SIZES)
    assert np.bincount(model.labels_).min() >= least
    assert (model.predict(X) == model.labels_).all()


@pytest.mark.parametrize("kind", ["far", "groups", "extreme"])
@pytest.mark.parametrize("seed", range(4))
def test_the_number_is_that_of_the_large_clusters(seed, kind):
    X, y = planted(seed, kind)
    free = DPMeans(random_state=0).fit(X)
    assert free.n_clusters_ > len(SIZES)
    model = large_clusters().fit(X)
    is_right(model, X, y)
    assert model.path_.best == len(SIZES)
    assert model.path_.confidence > 0.8
    inertia = np.square(X - model.cluster_centers_[model.labels_]).sum()
    np.testing.assert_allclose(model.inertia_, inertia, rtol=1e-9)
    np.testing.assert_allclose(model.objective_, inertia + 4 * model.lam_, rtol=1e-9)
    np.testing.assert_allclose(model.objective_, -model.score(X), rtol=1e-9)
    assert model.objective_path_[-1] == model.objective_
    assert (np.diff(model.objective_path_) <= 1e-9 * model.objective_).all()
    # far rows move no center
    distance = np.abs(model.cluster_centers_[:, None] - CENTERS).max(axis=2).min(axis=1)
    assert distance.max() < 1.0


def test_small_clusters_join_where_that_describes_them_better():
    """Nine clusters of 20 rows in three groups: with 30 rows at least there are three clusters."""
    rng = np.random.default_rng(0)
    groups = np.array([[0.0, 0.0], [40.0, 0.0], [0.0, 40.0]])
    at = np.array([[0.0, 0.0], [6.0, 0.0], [0.0, 6.0]])
    X = np.vstack([g + a + rng.standard_normal((20, 2)) for g in groups for a in at])
    assert DPMeans(random_state=0).fit(X).n_clusters_ == 9
    model = DPMeans(min_cluster_size=30, random_state=0).fit(X)
    assert np.bincount(model.labels_).tolist() == [60, 60, 60]
    means = np.array([X[model.labels_ == k].mean(axis=0) for k in range(3)])
    np.testing.assert_allclose(model.cluster_centers_, means, rtol=1e-9)


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("weighted", [False, True])
def test_equals_the_twin(seed, weighted):
    """Of each clustering on the path what it becomes, and the fit from the one chosen."""
    X, _ = planted(seed, ["far", "groups"][seed % 2])
    X = X.astype(np.float32).astype(np.float64)
    rng = np.random.default_rng(seed)
    w = rng.integers(1, 4, len(X)).astype(float) if weighted else None
    v = np.ones(len(X)) if w is None else w
    found = {}

    class Recorded(LargeClusterings):
        def _of(self, labels, k, large):
            found[len(found)] = labels, super()._of(labels, k, large), self.sample.rows
            return found[len(found) - 1][1]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("smallvar._selection.path.LargeClusterings", Recorded)
        path = find_path(X, w, np.random.RandomState(0), 1, least=LEAST * v.mean())
    n_aside = 0
    for labels, made, rows in found.values():
        assert rows is None
        for clustering in made:
            sizes = np.bincount(clustering.labels, v)
            assert sizes.min() >= LEAST * v.mean()
            assert len(sizes) == clustering.k
            if clustering.own is None:
                near = twins.least_size.nearest_of(X, clustering.centers)
                assert (near != clustering.labels).mean() < 0.02  # sweeps may end early
                continue
            n_aside += 1
            expected = twins.least_size.set_aside(X, v, labels, LEAST * v.mean())
            np.testing.assert_array_equal(clustering.labels, expected[0])
            np.testing.assert_allclose(clustering.centers, expected[1], rtol=1e-9, atol=1e-9)
            np.testing.assert_allclose(clustering.beside, expected[2], rtol=1e-9, atol=1e-9)
            np.testing.assert_array_equal(~clustering.own, expected[3])
            squares = np.square(X - expected[1][expected[0]]).sum(axis=1)
            np.testing.assert_allclose(clustering.error, v @ squares, rtol=1e-9)
    assert n_aside > 5
    centers, beside = path.found(path.best), path.beside(path.best)
    assert beside is not None
    labels, centers, error = twins.least_size.fit(X, v, centers, beside, LEAST * v.mean())
    share = LEAST * v.mean() / v.sum()
    model = DPMeans(min_cluster_size=share, random_state=0).fit(X, sample_weight=w)
    np.testing.assert_array_equal(model.labels_, labels)
    np.testing.assert_allclose(model.cluster_centers_, centers, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(model.inertia_, error, rtol=1e-9)


def test_a_cluster_that_falls_below_the_size_is_left_out():
    """Sweeps from given centers move rows from one cluster to another."""
    rng = np.random.default_rng(0)
    X = np.concatenate([rng.normal(0, 1, 60), rng.normal(3.2, 1, 30), rng.normal(40, 1, 50)])[
        :, None
    ]
    for least in range(20, 60, 4):
        model = DPMeans(min_cluster_size=least, random_state=0).fit(X)
        assert np.bincount(model.labels_).min() >= least
        assert (model.predict(X) == model.labels_).all()
        assert model.path_.best == model.n_clusters_


class GivenPath:
    """A path that a start may begin from: these rows and no small clusters."""

    noise_columns = ()

    def __init__(self, X):
        self.X = X

    def measured(self):
        return self.X

    def beside(self, k):
        return None


@pytest.mark.parametrize("algorithm", ["serial", "collapsed"])
def test_a_cluster_that_loses_its_rows_in_the_sweeps_is_left_out(algorithm):
    """The second center takes 20 rows of the first cluster at first, and loses them to it again."""
    rng = np.random.default_rng(0)
    X = np.concatenate([rng.normal(0, 1, 60), [9.0, 10.0, 11.0], rng.normal(40, 1, 50)])[:, None]
    centers = np.array([[-1.0], [2.0], [40.0]])
    fit = DPFit(len(X), None, LoopSettings(300, 0.0, None))
    for exact in (False, True):
        problem = RowsProblem(fit, X, None, 1, least=10.0, asked=10)
        point = StartPoint(None, centers, 1.0, algorithm, 3, GivenPath(X), exact)
        start = problem.start(point)
        if exact:
            with pytest.raises(ValueError, match="n_clusters=3 clusters of min_cluster_size=10"):
                start.run(fit.loop)
            continue
        found = start.run(fit.loop).result(len(X))
        assert np.bincount(found.labels).tolist() == [63, 50]
        near = twins.least_size.nearest_of(X, found.centers)
        np.testing.assert_array_equal(found.labels, near)
        np.testing.assert_allclose(found.centers[0], X[:63].mean(axis=0), rtol=1e-12)
        np.testing.assert_allclose(found.objective, found.inertia + 2.0, rtol=1e-12)


@pytest.mark.parametrize("algorithm", ["serial", "delayed", "collapsed", "merge"])
@pytest.mark.parametrize("kind", ["far", "extreme"])
def test_all_algorithms_orders_and_numbers(algorithm, kind):
    X, y = planted(0, kind)
    options = {"min_cluster_size": LEAST, "algorithm": algorithm, "random_state": 0}
    is_right(DPMeans(**options).fit(X), X, y)
    is_right(DPMeans(n_init=2, **options).fit(X), X, y)
    is_right(DPMeans(n_clusters=4, **options).fit(X), X, y)
    few = DPMeans(max_clusters=2, **options).fit(X)
    assert few.n_clusters_ == 2
    assert np.bincount(few.labels_).min() >= LEAST


@pytest.mark.parametrize("number", [1, 2, 3, 5, 8])
def test_the_number_may_be_given(number):
    X, _ = planted(1)
    model = DPMeans(n_clusters=number, min_cluster_size=12, random_state=0).fit(X)
    assert model.n_clusters_ == number
    assert np.bincount(model.labels_).min() >= 12
    assert (model.predict(X) == model.labels_).all()


def test_permuted_rows_and_units():
    X, y = planted(2)
    model = large_clusters().fit(X)
    order = np.random.default_rng(0).permutation(len(X))
    permuted = large_clusters().fit(X[order])
    is_right(permuted, X[order], y[order])
    centers = [c[c[:, 0].argsort()] for c in (model.cluster_centers_, permuted.cluster_centers_)]
    np.testing.assert_allclose(*centers, rtol=1e-9)
    for unit in (2.0**-300, 2.0**200):
        scaled = large_clusters().fit(unit * X)
        np.testing.assert_array_equal(scaled.labels_, model.labels_)
        assert scaled.lam_ == unit**2 * model.lam_
    threads = large_clusters(n_threads=3).fit(X)
    assert threads.cluster_centers_.tobytes() == model.cluster_centers_.tobytes()


def test_weights_count():
    """Weight 2 is two rows; rows without weight count for nothing, and get a label."""
    X, y = planted(3)
    w = np.random.default_rng(0).integers(0, 3, len(X)).astype(float)
    model = large_clusters().fit(X, sample_weight=w)
    assert np.bincount(model.labels_, w).min() >= LEAST
    is_right(model, X, y, 1)
    repeated = np.repeat(X, w.astype(int), axis=0)
    same = large_clusters().fit(repeated)
    assert same.n_clusters_ == model.n_clusters_
    np.testing.assert_array_equal(same.predict(X)[model.labels_ == 0].var(), 0.0)
    # of weights of a half, as many rows weigh half as much
    half = large_clusters().fit(X, sample_weight=np.full(len(X), 0.5))
    whole = DPMeans(min_cluster_size=2 * LEAST, random_state=0).fit(X)
    np.testing.assert_array_equal(half.labels_, whole.labels_)


def test_a_share_of_the_rows():
    X, _ = planted(0)
    share = DPMeans(min_cluster_size=LEAST / len(X), random_state=0).fit(X)
    number = large_clusters().fit(X)
    np.testing.assert_array_equal(share.labels_, number.labels_)


@pytest.mark.parametrize("estimator", [DPMeans, ShapeMeans, MixedDPMeans])
def test_without_effect_nothing_changes(estimator):
    """A size of one row, and one that all clusters have, give the same bits."""
    X, _ = make_blobs(SIZES, centers=CENTERS, random_state=0)
    free = estimator(random_state=0).fit(X)
    for least in (1, 0.001):
        bound = estimator(random_state=0, min_cluster_size=least).fit(X)
        assert bound.labels_.tobytes() == free.labels_.tobytes()
        assert bound.path_.criterion.tobytes() == free.path_.criterion.tobytes()
        assert bound.path_.lam == free.path_.lam
    large = estimator(random_state=0, min_cluster_size=40).fit(X)
    np.testing.assert_array_equal(large.labels_, free.labels_)


def test_sparse_wide_and_many_rows():
    X, y = planted(0)
    sparse = large_clusters().fit(csr_matrix(X))
    dense = large_clusters().fit(X)
    np.testing.assert_array_equal(sparse.labels_, dense.labels_)
    # more columns than rows
    few = np.flatnonzero(y >= 0)[::4]
    wide = np.hstack([X[few], 0.1 * np.random.default_rng(0).normal(size=(len(few), 120))])
    wide = np.vstack([wide, 300.0 * np.random.default_rng(1).normal(size=(2, wide.shape[1]))])
    model = DPMeans(min_cluster_size=5, random_state=0).fit(wide)
    assert np.bincount(model.labels_).min() >= 5
    # more rows than the path looks at: the size is that of the whole table
    rng = np.random.default_rng(0)
    many = CENTERS[rng.integers(4, size=25_000)] + rng.standard_normal((25_000, 3))
    many = np.vstack([many, 300.0 * rng.standard_normal((60, 3))])
    model = DPMeans(min_cluster_size=1000, random_state=0).fit(many)
    assert model.n_clusters_ == 4
    assert model.path_.n_samples < len(many)
    assert np.bincount(model.labels_).min() >= 1000


def test_path_is_kept_by_pickle_and_clone():
    X, y = planted(0)
    model = large_clusters().fit(X)
    path = pickle.loads(pickle.dumps(model)).path_
    assert path.best == 4
    np.testing.assert_array_equal(path.error, model.path_.error)
    np.testing.assert_array_equal(path.labels(4, X), model.labels_)
    is_right(clone(model).fit(X), X, y)
    assert np.isfinite(model.path_.criterion[: model.path_.best]).all()


@pytest.mark.parametrize("seed", range(3))
def test_tables(seed):
    X, y = planted(seed)
    rng = np.random.default_rng(seed)
    color = np.where(rng.random(len(X)) < 0.8, y % 3, rng.integers(3, size=len(X)))
    table = {"a": X[:, 0], "b": X[:, 1], "c": X[:, 2], "color": np.array(list("rgb"))[color]}
    assert MixedDPMeans(random_state=0).fit(table).n_clusters_ > 4
    model = MixedDPMeans(min_cluster_size=LEAST, random_state=0).fit(table)
    is_right(model, table, y)
    assert model.path_.best == 4
    np.testing.assert_allclose(model.objective_, -model.score(table), rtol=1e-9)
    given = MixedDPMeans(min_cluster_size=LEAST, n_clusters=4, random_state=0).fit(table)
    is_right(given, table, y)
    shuffled = MixedDPMeans(min_cluster_size=LEAST, n_init=2, random_state=0).fit(table)
    is_right(shuffled, table, y)
    w = rng.integers(0, 3, len(X)).astype(float)
    model = MixedDPMeans(min_cluster_size=LEAST, random_state=0).fit(table, sample_weight=w)
    assert np.bincount(model.labels_, w).min() >= LEAST
    assert (model.predict(table) == model.labels_).all()


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("n_clusters", [None, 2])
def test_shapes(seed, n_clusters):
    """Two moons, and small groups far away, which the free fit takes for clusters."""
    rng = np.random.default_rng(seed)
    X, y = make_moons(600, noise=0.06, random_state=seed)
    at = np.array([[4.0, 4.0], [-4.0, 4.0], [4.0, -4.0]])
    others = [c + 0.1 * rng.standard_normal((n, 2)) for c, n in zip(at, (20, 9, 14), strict=True)]
    X = np.vstack([X, *others, 8.0 * rng.standard_normal((6, 2))])
    y = np.r_[y, np.full(len(X) - 600, -1)]
    options = {"min_cluster_size": 50, "n_clusters": n_clusters, "random_state": 0}
    model = ShapeMeans(**options).fit(X)
    assert model.n_clusters_ == 2
    assert np.bincount(model.labels_).min() >= 50
    assert (model.predict(X) == model.labels_).all()
    agree = (model.labels_ == y)[y >= 0].mean()
    assert max(agree, 1.0 - agree) > 0.99
    w = np.random.default_rng(seed).integers(1, 3, len(X)).astype(float)
    # all small groups together weigh 75: more than 50, so that they could be one cluster
    weighted = ShapeMeans(**options | {"min_cluster_size": 80}).fit(X, sample_weight=w)
    assert weighted.n_clusters_ == 2


WRONG = [
    ({"min_cluster_size": 0}, ValueError, "min_cluster_size must be >= 1, got 0"),
    ({"min_cluster_size": 1.0}, ValueError, "an integer >= 1, a share between 0 and 1, or None"),
    ({"min_cluster_size": 2.5}, ValueError, "got 2.5"),
    ({"min_cluster_size": np.nan}, ValueError, "got nan"),
    ({"min_cluster_size": "5"}, TypeError, "min_cluster_size must be an integer or None, got '5'"),
    ({"min_cluster_size": True}, TypeError, "got True"),
    ({"min_cluster_size": 351}, ValueError, "must be <= 350, the number of rows, got .*=351"),
    ({"min_cluster_size": 5, "lam": 3.0}, ValueError, "unless lam is 'auto'.*=5 and lam=3.0"),
    ({"min_cluster_size": 5, "lam": "farthest-first"}, ValueError, "lam='farthest-first'"),
    ({"min_cluster_size": 5, "metric": "auto"}, ValueError, "must be None with metric='auto'"),
    ({"min_cluster_size": 90, "n_clusters": 4}, ValueError, "n_clusters=4 .* min_cluster_size=90"),
    ({"min_cluster_size": 80, "n_clusters": 4}, ValueError, "n_clusters=4 .* min_cluster_size=80"),
]  # fmt: skip


@pytest.mark.parametrize(("options", "error", "message"), WRONG)
def test_what_cannot_be_is_refused(options, error, message):
    X, y = planted(0)
    X = np.vstack([X[y >= 0], X[y < 0]])[:350]
    with pytest.raises(error, match=message):
        DPMeans(random_state=0, **options).fit(X)


def test_weights_are_named():
    X, _ = planted(0)
    w = np.full(len(X), 0.1)
    for estimator in (DPMeans, ShapeMeans, MixedDPMeans):
        with pytest.raises(ValueError, match="must be <= 35, the sum of the weights, got .*=36"):
            estimator(min_cluster_size=36).fit(X, sample_weight=w)
    for estimator in (ShapeMeans, MixedDPMeans):
        with pytest.raises(ValueError, match="n_clusters=4 clusters of min_cluster_size=90"):
            estimator(min_cluster_size=90, n_clusters=4).fit(X)


def test_other_estimators_do_not_have_it():
    for name in ("MiniBatchDPMeans", "SphericalDPMeans", "RobustDPMeans"):
        with pytest.raises(TypeError, match="min_cluster_size"):
            getattr(smallvar, name)(min_cluster_size=5)
