"""RobustDPMeans: equal to the twin, to all labelings of few rows; what outliers must not change."""

import warnings

import numpy as np
import pytest
import twins.robust
from helpers import all_partitions, assert_refuses, fit, never_rises, seeds
from problems import blobs
from sklearn.exceptions import ConvergenceWarning

from smallvar import DPMeans, RobustDPMeans
from smallvar._centers import noise as noise_module
from smallvar._centers import robust as robust_module
from smallvar._centers import uniform_noise

FAMILIES = ("blobs", "grid", "weights", "float32", "far", "few")


def problem(family, seed):
    """Rows, weights, lam, price, starting centers, cap and sweeps."""
    rng = np.random.default_rng([seed, FAMILIES.index(family)])
    n = int(rng.integers(2, 9)) if family == "few" else int(10 ** rng.uniform(1, 3.3))
    d, k = int(rng.integers(1, 7)), int(rng.integers(1, 9))
    weights = None
    if family == "grid":
        X = rng.integers(0, 7, size=(n, min(d, 2))).astype(float)
        price, lam = float(rng.integers(1, 9)), float(rng.integers(1, 60))
    else:
        X = blobs(rng, n, d, k, spread=rng.choice([0.05, 0.15, 0.4]))
        lost = rng.random(n) < rng.choice([0.0, 0.05, 0.4])
        X[lost] = X.mean(axis=0) + 3 * X.std() * rng.standard_normal((lost.sum(), X.shape[1]))
        spread = np.square(X - X.mean(axis=0)).sum(axis=1).mean()
        price = spread * 10 ** rng.uniform(-2, 1)
        lam = price * 10 ** rng.uniform(-0.5, max(0.5, np.log10(n)))
    if family == "weights":
        kind = seed % 3
        weights = rng.integers(0, 4, n) if kind == 0 else 10 ** rng.uniform(-3, 3, n)
        weights = weights.astype(float) * (rng.random(n) < 0.8 if kind == 2 else 1)
        weights[0] = 1.0
    if family == "float32":
        X = X.astype(np.float32)
    if family == "far":
        X += 1e5
    init = X[rng.integers(0, n, size=int(rng.integers(1, 2 * k + 2)))].astype(float)
    if family != "grid" and seed % 4 == 0:
        init += rng.standard_normal(init.shape) * np.sqrt(price)
    cap = len(init) + int(rng.integers(0, 3)) if seed % 5 == 0 else None
    return X, weights, lam, price, init, cap, int(rng.choice([1, 2, 300, 300, 300]))


@pytest.mark.parametrize("family", FAMILIES)
@seeds(40)
def test_equals_twin(family, seed):
    """The same labels and centers to the last bit, sweep by sweep, from the same decisions."""
    X, weights, lam, price, init, cap, sweeps = problem(family, seed)
    model = RobustDPMeans(
        lam=lam,
        price=price,
        init=init,
        max_clusters=cap,
        max_iter=sweeps,
        random_state=seed,
        n_threads=1 + seed % 3,
    )
    warned = fit(model, X, weights)
    twin = twins.robust.robust(
        X, lam, price, init, weights=weights, max_clusters=cap, max_iter=sweeps, seed=seed
    )
    assert np.array_equal(model.labels_, twin.labels)
    assert model.cluster_centers_.tobytes() == twin.centers.tobytes()
    assert model.n_iter_ == twin.n_iter
    assert warned != twin.converged
    assert len(model.objective_path_) == len(twin.objective_path)
    assert np.allclose(model.objective_path_, twin.objective_path, rtol=1e-9)
    assert model.objective_ == twin.objective
    assert never_rises(model.objective_path_)
    check(model, X, weights)


def check(model, X, weights=None):
    """What holds of every fit."""
    labels, noise = model.labels_, model.labels_ < 0
    w = np.ones(len(X)) if weights is None else weights
    assert labels.dtype == np.int32
    assert labels.min() >= -1
    assert np.array_equal(np.unique(labels[~noise & (w > 0)]), np.arange(model.n_clusters_))
    own = np.square(X - model.cluster_centers_[labels]).sum(axis=1)
    assert model.inertia_ == pytest.approx((w * own)[~noise].sum(), rel=1e-9, abs=1e-9)
    assert model.noise_weight_ == pytest.approx(w[noise].sum(), rel=1e-12)
    parts = model.inertia_ + model.lam_ * model.n_clusters_ + model.price_ * model.noise_weight_
    assert model.objective_ == parts == model.objective_path_[-1]
    assert np.array_equal(model.predict(X), labels)
    assert model.score(X, sample_weight=weights) == pytest.approx(-model.objective_, rel=1e-12)


def objective_of(X, w, labels, lam, price):
    """The objective of labels, at their means."""
    total = price * w[labels < 0].sum()
    for c in np.unique(labels[labels >= 0]):
        rows = labels == c
        mean = np.average(X[rows], axis=0, weights=w[rows])
        total += lam + (w[rows] * np.square(X[rows] - mean).sum(axis=1)).sum()
    return total


@seeds(30)
def test_no_closing_and_no_union_lowers_the_objective(seed):
    """At the end each cluster pays against any other use of its rows, and each pair apart."""
    X, weights, lam, price, init, _, _ = problem(("blobs", "grid", "weights")[seed % 3], seed)
    model = RobustDPMeans(lam=lam, price=price, init=init, random_state=0).fit(
        X, sample_weight=weights
    )
    w = np.ones(len(X)) if weights is None else weights
    active = w > 0
    X, w, labels = X[active], w[active], model.labels_[active]
    centers, k = model.cluster_centers_, model.n_clusters_
    slack = 1e-9 * model.objective_
    table = np.square(X[:, None] - centers).sum(axis=2)
    assert np.allclose(np.minimum(table.min(axis=1), price).dot(w) + lam * k, model.objective_)
    k = min(k, 12)  # of those looked at
    for c in range(k if model.n_clusters_ > 1 else 0):
        rest = np.minimum(np.delete(table, c, axis=1).min(axis=1), price).dot(w)
        assert rest + lam * (model.n_clusters_ - 1) >= model.objective_ - slack
        for other in range(c):
            rows = (labels == c) | (labels == other)
            Y, m = X[rows], w[rows]
            union = objective_of(Y, m, np.zeros(len(Y)), lam, price)
            assert union >= objective_of(Y, m, labels[rows], lam, price) - slack


def few(seed):
    """The best fit of several starts, and the least objective."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((6, 1 + seed % 2)) * 2
    w = rng.integers(1, 4, 6).astype(float) if seed % 3 == 0 else np.ones(6)
    lam = float(rng.uniform(0.5, 6))
    price = float(rng.uniform(0.1, 1.2)) * lam
    fits = [
        RobustDPMeans(lam=lam, price=price, init=init, random_state=0).fit(X, sample_weight=w)
        for init in (X, X[:3], X[3:5], X.mean(axis=0, keepdims=True), "path")
    ]
    best = min(fits, key=lambda model: model.objective_)
    value = objective_of(X, w, best.labels_, lam, price)
    assert best.objective_ == pytest.approx(value, rel=1e-9)
    return best.objective_, twins.robust.least(X, w, lam, price, all_partitions(6))


@pytest.mark.long
def test_few_rows_against_all_labelings():
    """The objective is what it says, never below the least one, and mostly the least one."""
    found = np.array([few(seed) for seed in range(40)])
    assert (found[:, 0] >= found[:, 1] * (1 - 1e-12)).all()
    assert (found[:, 0] <= found[:, 1] * (1 + 1e-9)).sum() >= 30


# ---- outliers --------------------------------------------------------------------------------


def thousand(seed, d=2, k=6):
    """1,000 rows in blobs whose centers are at least ten standard deviations apart."""
    rng = np.random.default_rng(seed)
    centers = np.array(np.meshgrid(*[np.arange(4)] * d)).reshape(d, -1).T * 10.0
    centers = rng.permutation(centers)[:k]
    return centers[np.arange(1000) % k] + rng.standard_normal((1000, d)), rng


def far_rows(kind, X, rng):
    """Outliers of a kind."""
    d, reach = X.shape[1], np.ptp(X, axis=0).max()
    way = rng.standard_normal((5, d))
    way /= np.linalg.norm(way, axis=1)[:, None]
    if kind == "together":
        return X.mean(axis=0) + 4 * reach * way[:1] + 0.1 * rng.standard_normal((5, d))
    times = {"apart": 2, "far": 100, "very far": 1e5}.get(kind)
    if times:
        return X.mean(axis=0) + times * reach * way * rng.uniform(1, 2, size=(5, 1))
    box = rng.uniform(-reach, 2 * reach, size=(50, d))
    return box if kind == "anywhere" else np.vstack([box, X.mean(axis=0) + 10 * reach * way])


def one_to_one(a, b):
    """Whether two labelings are equal up to the numbers of clusters; noise is noise."""
    pairs = set(zip(a.tolist(), b.tolist(), strict=True))
    alike = len(pairs) == len({i for i, _ in pairs}) == len({j for _, j in pairs})
    return alike and all((i < 0) == (j < 0) for i, j in pairs)


@pytest.mark.parametrize("lam", ["auto", 300.0])
@pytest.mark.parametrize("kind", ["together", "apart", "far", "very far", "anywhere", "both"])
@seeds(6)
def test_outliers_change_no_other_label(kind, lam, seed):
    d, k = ((2, 6), (3, 9), (2, 3))[seed % 3]
    X, rng = thousand(seed, d, k)
    price = "auto" if lam == "auto" else 25.0
    alone = RobustDPMeans(lam=lam, price=price, random_state=0).fit(X)
    assert alone.n_clusters_ == k
    assert np.count_nonzero(alone.labels_ < 0) <= 1
    extra = far_rows(kind, X, rng)
    order = rng.permutation(len(X) + len(extra))
    rows = np.vstack([X, extra])
    model = RobustDPMeans(lam=lam, price=price, random_state=0).fit(rows)
    assert one_to_one(model.labels_[: len(X)], alone.labels_)
    if kind == "together" and model.n_clusters_ > k:  # they are a cluster of their own
        (label,) = set(model.labels_[len(X) :])
        assert np.count_nonzero(model.labels_ == label) == 5
    elif kind not in ("anywhere", "both"):
        assert (model.labels_[len(X) :] < 0).all()
        assert np.allclose(model.cluster_centers_, alone.cluster_centers_, rtol=0, atol=1e-9)
        assert model.price_ == alone.price_
    mixed = RobustDPMeans(lam=lam, price=price, random_state=0).fit(rows[order])
    assert one_to_one(mixed.labels_[np.argsort(order)][: len(X)], alone.labels_)


def test_without_noise_it_is_dpmeans():
    for seed in range(4):
        X, _ = thousand(seed)
        plain, robust = (e(random_state=0).fit(X) for e in (DPMeans, RobustDPMeans))
        assert one_to_one(plain.labels_, robust.labels_)
        assert robust.lam_ <= plain.lam_ * (1 + 1e-12)


def test_a_row_at_the_price_is_in_the_cluster():
    X = np.array([[0.0], [0.0], [0.0], [0.0], [2.0], [-2.0], [3.0]])
    model = RobustDPMeans(lam=4.0, price=4.0, init=[[0.0]], max_clusters=1).fit(X)
    assert model.labels_.tolist() == [0, 0, 0, 0, 0, 0, -1]
    assert model.objective_ == 8.0 + 4.0 + 4.0
    assert model.predict([[2.0], [-2.0], [np.nextafter(2.0, 3.0)]]).tolist() == [0, 0, -1]


def test_a_cluster_that_saves_just_lam_stays():
    """Two rows far away cost 2 price as noise, lam as a cluster."""
    X = np.array([[0.0]] * 20 + [[100.0]] * 2)
    for lam, k in ((8.0, 2), (np.nextafter(8.0, 9.0) + 1e-9, 1)):
        model = RobustDPMeans(lam=lam, price=4.0, init=[[0.0], [100.0]]).fit(X)
        assert model.n_clusters_ == k
        assert model.noise_weight_ == 4 - 2 * k


def test_a_fit_goes_on_where_one_ended():
    X, rng = thousand(7)
    X = np.vstack([X, far_rows("both", X, rng)])
    model = RobustDPMeans(random_state=0).fit(X)
    again = RobustDPMeans(
        lam=model.lam_,
        price=model.price_,
        init=model.cluster_centers_,
        max_clusters=model.n_clusters_,
    ).fit(X)
    assert np.array_equal(again.labels_, model.labels_)
    assert again.objective_ == model.objective_
    assert again.n_iter_ == 2


def test_all_rows_equal_or_one():
    for X in (np.ones((5, 2)), [[3.0, 4.0]], np.zeros((2, 1))):
        model = RobustDPMeans().fit(X)
        assert model.labels_.tolist() == [0] * len(X)
        assert model.objective_ == model.lam_
        assert model.price_ > 0
    model = RobustDPMeans(random_state=0).fit([[0.0]] * 20 + [[10.0]] * 20 + [[1000.0]])
    assert model.labels_[-1] == -1
    assert (model.labels_[:-1] >= 0).all()


def test_noise_alone_leaves_a_cluster():
    """Where no row is within the price of a center, one cluster goes to the nearest row."""
    X = np.array([[0.0], [10.0], [20.0], [21.0]])
    model = RobustDPMeans(lam=5.0, price=0.01, init=[[13.0]]).fit(X)
    assert model.labels_.tolist() == [-1, 0, -1, -1]
    assert model.objective_ == 5.0 + 3 * 0.01
    weighted = RobustDPMeans(lam=5.0, price=0.01, init=[[13.0]]).fit(X, sample_weight=[1, 0, 1, 1])
    assert weighted.labels_.tolist() == [-1, -1, 0, -1]


def test_a_cap_is_not_spent_on_outliers():
    X, rng = thousand(8)
    X = np.vstack([X, far_rows("far", X, rng)])
    for lam in ("auto", 300.0):
        model = RobustDPMeans(lam=lam, max_clusters=6, random_state=0).fit(X)
        assert (model.labels_[1000:] < 0).all()
        assert sorted(np.bincount(model.labels_[:1000])) == [166, 166, 167, 167, 167, 167]


def test_of_the_path_rows_far_away_are_left_out():
    X, rng = thousand(9)
    model = RobustDPMeans(random_state=0).fit(np.vstack([X, far_rows("apart", X, rng)]))
    assert model.path_.n_samples == 1000
    assert model.path_.best == model.n_clusters_ == 6


@pytest.mark.long
@pytest.mark.parametrize("lam", ["auto", 20_000.0])
def test_many_rows(lam):
    """Sizes and price come from a part of them; the penalty of a cluster is that of all."""
    rng = np.random.default_rng(0)
    n = 60_000
    assert n > robust_module.SAMPLE_ROWS
    X = rng.integers(0, 3, size=n)[:, None] * [20.0, 0.0] + rng.standard_normal((n, 2))
    extra = far_rows("apart", X, rng)
    fits = [
        RobustDPMeans(lam=lam, random_state=0).fit(np.vstack([X, extra]), sample_weight=w)
        for w in (None, np.full(n + 5, 2.0 if lam == "auto" else 1.5))
    ]
    for model in fits:
        assert model.n_clusters_ == 3
        assert np.count_nonzero(model.labels_[:n] < 0) <= 3
        assert (model.labels_[n:] < 0).all()
        assert model.price_ == pytest.approx(2 * np.log(n / 0.05), rel=0.1)
    if lam == "auto":
        assert fits[1].lam_ == pytest.approx(2 * fits[0].lam_, rel=1e-9)


def test_lam_is_no_more_than_a_cluster_saves():
    """Of "auto": closing any cluster, or joining two, raises the objective at lam_."""
    for seed in range(6):
        rng = np.random.default_rng(seed)
        sizes = rng.permutation([400, 200, 100, 40, 25])
        X = np.repeat(rng.permutation(5)[:, None] * 9.0, sizes, axis=0)
        X = np.hstack([X, np.zeros_like(X)]) + rng.standard_normal((len(X), 2))
        model = RobustDPMeans(random_state=0).fit(X)
        assert model.n_clusters_ == 5
        table = np.square(X[:, None] - model.cluster_centers_).sum(axis=2)
        for c in range(5):
            rest = np.minimum(np.delete(table, c, axis=1).min(axis=1), model.price_).sum()
            assert rest + 4 * model.lam_ >= model.objective_ * (1 - 1e-12)


@pytest.mark.parametrize("shape", [0.5, 1.0, 4.0])
def test_price_of_gamma_distances(shape):
    """The quantile that the law itself has, from a large sample."""
    from scipy.stats import gamma

    rng = np.random.default_rng(0)
    distance = rng.gamma(shape, 2.0, size=200_000)
    labels = np.zeros(len(distance), dtype=np.int32)
    price = noise_module.price_of(distance, labels, 1, None, 1000)
    assert price == pytest.approx(gamma(shape, scale=2.0).isf(0.05 / 1000), rel=0.05)
    spoiled = np.append(distance, np.full(4000, 1e9))
    labels = np.zeros(len(spoiled), dtype=np.int32)
    assert noise_module.price_of(spoiled, labels, 1, None, 1000) == pytest.approx(price, rel=0.25)


def test_quantile_of_weights():
    values, weights = np.array([3.0, 1.0, 2.0]), np.array([1.0, 2.0, 1.0])
    assert [noise_module.quantile(values, weights, q) for q in (0.5, 0.51, 0.75, 0.76, 1.0)] == [
        1.0,
        2.0,
        2.0,
        3.0,
        3.0,
    ]
    assert noise_module.quantile(values, None, 0.5) == 2.0


# ---- noise among the clusters ------------------------------------------------------------------


def noisy(seed, d, share, n=1200, k=6):
    """Blobs with rows of noise drawn evenly over a box around them, and the mask of these."""
    rng = np.random.default_rng(seed)
    centers = np.empty((0, d))
    while len(centers) < k:
        center = rng.uniform(-20, 20, size=(1, d))
        if not len(centers) or np.linalg.norm(centers - center, axis=1).min() > 6:
            centers = np.vstack([centers, center])
    X = centers[rng.integers(k, size=n)] + rng.standard_normal((n, d))
    noise = rng.random(n) < share
    X[noise] = rng.uniform(-25, 25, size=(noise.sum(), d))
    return X, noise


def f1(noise, labels):
    return 2 * (noise & (labels < 0)).sum() / (noise.sum() + (labels < 0).sum())


@pytest.mark.parametrize("share", [0.2, 0.4])
@pytest.mark.parametrize("d", [2, 5])
@seeds(4)
def test_noise_among_clusters(d, share, seed):
    """It is found, no cluster is made of it, and the price is that of the clusters."""
    X, noise = noisy(seed, d, share)
    model = RobustDPMeans(random_state=0).fit(X)
    assert model.n_clusters_ == 6
    assert f1(noise, model.labels_) > (0.9 if d == 2 else 0.98)
    clean = RobustDPMeans(random_state=0).fit(X[~noise])
    assert clean.price_ / 3 < model.price_ < 1.3 * clean.price_
    check(model, X)


def test_a_bound_or_a_number_does_not_hide_the_noise():
    X, noise = noisy(1, 5, 0.3)
    for options, k in (({"max_clusters": 6}, 6), ({"n_clusters": 6}, 6), ({"max_clusters": 5}, 5)):
        model = RobustDPMeans(**options, random_state=0).fit(X)
        assert model.n_clusters_ == k
        assert f1(noise, model.labels_) > (0.98 if k == 6 else 0.9)


def test_noise_beside_rows_far_away():
    """Neither outliers nor a code for missing values widen the box of the noise."""
    for seed in range(3):
        X, noise = noisy(seed, 4, 0.2)
        rng = np.random.default_rng(seed)
        for far in (1e4 * rng.standard_normal((8, 4)), np.full((12, 4), -9999.0)):
            rows = np.vstack([X, far])
            model = RobustDPMeans(random_state=0).fit(rows)
            assert f1(noise, model.labels_[: len(X)]) > 0.95
            assert model.n_clusters_ == (6 if far[0, 0] != -9999.0 else 7)


def test_a_wide_cluster_is_not_noise():
    for seed in range(4):
        rng = np.random.default_rng(seed)
        spread = np.array([1.0, 1.0, 1.0, 6.0])
        centers = np.array([[0, 0, 0], [15, 0, 0], [0, 15, 0], [25, 25, 25]])
        labels = rng.integers(4, size=1000)
        X = centers[labels] + spread[labels, None] * rng.standard_normal((1000, 3))
        model = RobustDPMeans(random_state=0).fit(X)
        assert np.count_nonzero(model.labels_ < 0) <= 1


def test_rows_without_noise_have_the_price_of_their_law():
    """Also a single cloud, evenly filled, and a square that the path cuts into pieces."""
    rng = np.random.default_rng(0)
    ring = np.exp(2j * np.pi * rng.random(600)) * rng.uniform(9, 10, 600)
    for X in (rng.random((600, 2)), rng.random((600, 5)), np.column_stack([ring.real, ring.imag])):
        model = RobustDPMeans(random_state=0).fit(X)
        assert np.count_nonzero(model.labels_ < 0) <= 1


def test_noise_by_weights_and_in_other_units():
    X, noise = noisy(3, 3, 0.3, n=800)
    model = RobustDPMeans(random_state=0).fit(X)
    assert f1(noise, model.labels_) > 0.95
    twice = RobustDPMeans(random_state=0).fit(np.repeat(X, 2, axis=0))
    for other in (
        RobustDPMeans(random_state=0).fit(X, sample_weight=np.full(len(X), 2.0)),
        RobustDPMeans(random_state=0).fit(2.0**-20 * X),
    ):
        assert np.array_equal(other.labels_, model.labels_)
    assert (twice.labels_[::2] < 0).mean() == pytest.approx((model.labels_ < 0).mean(), abs=0.01)


def test_bound_of_even_noise():
    """In two columns exp(-r / s) n / s equals K pi times the density where the price is."""
    law = uniform_noise.UniformNoise()
    sizes, scales = np.array([200.0, 200.0]), np.array([2.0, 2.0])
    assert law.bound(sizes, scales, 1.0, 1.0, 50.0) == 50.0
    law.found, law.d, law.log_density = True, 2, np.log(0.1)
    equal = 2.0 * np.log(400 / 2.0 / (2 * np.pi * 0.1))
    assert law.bound(sizes, scales, 1.0, 1.0, 50.0) == pytest.approx(equal, rel=1e-9)
    assert law.bound(sizes, scales, 1.0, 1.0, 5.0) == 5.0
    assert law.bound(sizes, scales, 1.0, 20.0, 50.0) == 20.0


# ---- what is refused ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "error", "words"),
    [
        ({"lam": 0.0}, ValueError, ("lam", "> 0")),
        ({"lam": "farthest-first"}, ValueError, ("lam", "'auto'", "farthest-first")),
        ({"lam": np.inf}, ValueError, ("lam", "finite")),
        ({"lam": None}, TypeError, ("lam", "None")),
        ({"price": 0}, ValueError, ("price", "> 0")),
        ({"price": -1.0}, ValueError, ("price", "-1")),
        ({"price": "cheap"}, ValueError, ("price", "'auto'", "cheap")),
        ({"price": np.inf}, ValueError, ("price", "finite")),
        ({"price": True}, TypeError, ("price", "True")),
        ({"init": "mean"}, ValueError, ("init", "'path'")),
        ({"init": [[1.0]]}, ValueError, ("init", "shape")),
    ],
)
def test_refuses(options, error, words):
    X = np.random.default_rng(0).random((20, 2))
    assert_refuses(RobustDPMeans().set_params(**options), lambda m: m.fit(X), error, *words)


@pytest.mark.filterwarnings("error")
def test_weights_whose_squares_vanish_or_overflow():
    """As of rows that are all at their centers, or that weigh next to nothing beside another."""
    X = np.ones((3, 5))
    model = RobustDPMeans().fit(X, sample_weight=np.full(3, 1e-300))
    assert model.labels_.tolist() == [0, 0, 0]
    for seed in (186, 260, 310, 444):
        rng = np.random.default_rng(seed)
        X = rng.integers(0, 4, size=(3, 2)).astype(float)
        weight = 10.0 ** rng.integers(-150, 100, size=3)
        model = RobustDPMeans(random_state=0, init=X[:2]).fit(X, sample_weight=weight)
        assert np.isfinite(model.objective_) and np.isfinite(model.lam_)


def test_verbose_and_max_iter(capsys):
    X, _ = thousand(0)
    model = RobustDPMeans(lam=5.0, price=30.0, init=X[:20], max_iter=1, verbose=1)
    with pytest.warns(ConvergenceWarning, match="max_iter=1"):
        model.fit(X)
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == model.n_iter_
    assert "20 clusters" in lines[0] and "noise" in lines[0] and "objective" in lines[0]
    stopped = RobustDPMeans(lam=5.0, price=30.0, init=X[:20], tol=0.9).fit(X)
    assert stopped.n_iter_ == 2
    check(stopped, X)


@pytest.mark.parametrize("seed", range(5))
def test_few_different_rows(seed):
    """The rows of large clusters that are not equal span no box."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(3, 3))[rng.integers(0, 3, size=20)]
    with warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)
        model = RobustDPMeans(random_state=1).fit(X)
    assert (model.labels_ >= 0).any()
