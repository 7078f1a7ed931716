"""DynamicMeans by divergences and directions: equal to the twin and bounded by brute force."""

import itertools
import pickle
from functools import cache

import numpy as np
import pytest
import twins.dynamic
from helpers import assert_refuses, learned_arrays, never_rises, seeds
from sklearn.base import clone
from sklearn.utils.estimator_checks import parametrize_with_checks

from smallvar import BregmanDPMeans, DynamicMeans, SphericalDPMeans
from smallvar._time.rule_step import Rule, RuleStep

KINDS = ("kl", "itakura_saito", "logistic", "directions")
LAM = {"kl": 9.0, "itakura_saito": 3.0, "logistic": 1.2, "directions": 0.1}


def options(kind):
    """The parameters that make a DynamicMeans of this kind."""
    return {"directions": True} if kind == "directions" else {"divergence": kind}


def places(kind, rng, k, d):
    """Random centers."""
    if kind == "logistic":
        return rng.beta(0.5, 0.5, size=(k, d))
    return unit(rng.normal(size=(k, d))) if kind == "directions" else rng.gamma(0.7, 6, size=(k, d))


def unit(X):
    """Rows divided by their lengths."""
    return X / np.sqrt(np.square(X).sum(axis=1, keepdims=True))


def rows_at(kind, rng, centers):
    """A row of the family about each center; on the border for some."""
    if kind == "kl":
        return rng.poisson(centers).astype(float)
    if kind == "itakura_saito":
        return centers * rng.gamma(3.0, 1 / 3, size=centers.shape) + 1e-3
    if kind == "logistic":
        return np.where(
            rng.random(centers.shape) < 0.5, rng.random(centers.shape) < centers, centers
        )
    return unit(centers + 0.25 * rng.normal(size=centers.shape))


def stream(kind, seed, steps=10, most=6):
    """Batches of clusters that move, hide, and are empty at times, with weights for odd seeds."""
    rng = np.random.default_rng(seed)
    centers, batches = places(kind, rng, 5, 2 + seed % 4), []
    for _ in range(steps):
        new = rng.random(5) < 0.1
        centers[new] = places(kind, rng, new.sum(), centers.shape[1])
        seen = np.flatnonzero((rng.random(5) > 0.3) & (rng.random() > 0.1))
        Y = rows_at(kind, rng, rng.permutation(centers[seen.repeat(rng.integers(1, most))]))
        batches.append((Y, rng.integers(1, 4, len(Y)) / 2.0 if seed % 2 else None))
    return batches


def problem(kind, seed, n, k):
    """Arguments of a step: rows, old centers, weights and ages, lam, Q, tau; and row weights."""
    rng = np.random.default_rng(seed)
    phi = places(kind, rng, k, 2 + seed % 3)
    Y = rows_at(
        kind, rng, np.vstack([phi, places(kind, rng, 3, 2 + seed % 3)])[rng.integers(k + 3, size=n)]
    )
    if kind == "kl" and k:
        phi[rng.random(phi.shape) < 0.2] = 0.0
    if kind == "itakura_saito":
        phi = phi + 1e-3
    lam = LAM[kind] * float(rng.choice([0.2, 1.0, 2.0]))
    v, ages = rng.gamma(2.0, 3.0, size=k) + 0.1, rng.integers(1, 5, size=k)
    q, tau = lam * float(rng.choice([0.0, 0.1, 0.2])), float(rng.choice([0.0, 0.1, 1.0]))
    return (Y, phi, v, ages, lam, q, tau), rng.integers(1, 5, size=n) / 2.0 if seed % 2 else None


def step_of(kind, args, weight, order=None):
    """The result of a RuleStep, and its objective."""
    Y, phi, v, ages, lam, q, tau = args
    gamma = 1 / (1 / v + tau * ages)
    step = RuleStep(Rule(kind), Y, weight, phi, gamma, q * ages, lam, 1).run(order, 300)
    assert step.converged and never_rises(step.values)
    return step


@pytest.mark.parametrize("kind", KINDS)
@seeds(50)
def test_step_equals_twin(kind, seed):
    """Labels, centers and objectives of all sweeps, with weights and in other orders."""
    args, weight = problem(kind, seed, 40 if seed % 3 else 6, seed % 5)
    order = np.random.default_rng(seed).permutation(len(args[0])) if seed % 4 > 1 else None
    step = step_of(kind, args, weight, order)
    twin = twins.dynamic.dynamic_step(*args, sample_weight=weight, order=order, name=kind)
    labels, centers, weights, path = step.result()
    np.testing.assert_allclose(path, twin.path, rtol=1e-9)
    assert np.array_equal(labels, twin.labels)
    np.testing.assert_allclose(centers, twin.centers, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(weights, twin.weight_sums)


def least_objective(kind, args, w):
    """The least objective of a step over all labels."""
    Y, phi, v, ages, lam, q, tau = args

    @cache
    def cost(rows, k):
        y, own = Y[list(rows)], w[list(rows)]
        gamma = 1 / (1 / v[k] + tau * ages[k]) if k < len(phi) else 0.0
        old = phi[k] if k < len(phi) else y[0]
        theta = twins.dynamic.best_center(old, gamma, own @ y, own.sum(), kind)
        total = own @ twins.dynamic.differences(y, theta[None], kind)[:, 0]
        if k == len(phi):
            return lam + total
        return q * ages[k] + gamma * twins.dynamic.difference(old, theta, kind) + total

    @cache
    def least(rows, k):
        """Of these rows in the old clusters from k on and in new ones."""
        if not rows:
            return 0.0
        found, k = [], min(k, len(phi))
        for size in range(len(rows) + 1):
            for part in itertools.combinations(rows, size):
                rest = tuple(i for i in rows if i not in part)
                if part and (k < len(phi) or part[0] == rows[0]):
                    found.append(cost(part, k) + least(rest, k + 1))
                elif not part and k < len(phi):
                    found.append(least(rest, k + 1))
        return min(found)

    return least(tuple(range(len(Y))), 0)


@pytest.mark.parametrize("kind", KINDS)
def test_no_objective_is_below_the_least_of_all_labels(kind):
    """Of 15 problems with ten orders each, most reach it."""
    reached = 0
    for seed in range(15):
        args, weight = problem(kind, seed, 6, seed % 3)
        least = least_objective(kind, args, np.ones(6) if weight is None else weight)
        orders = [None, *map(np.random.default_rng(seed).permutation, [6] * 9)]
        found = min(step_of(kind, args, weight, order).objective for order in orders)
        assert found >= least * (1 - 1e-9)
        reached += found <= least * (1 + 1e-9)
    print(kind, reached)
    assert reached >= 9


@pytest.mark.parametrize("kind", KINDS)
@seeds(12)
def test_stream_equals_twin(kind, seed):
    """Numbers, centers, weights, ages and predictions after every step, and of all at once."""
    lam, batches = LAM[kind], stream(kind, seed)
    moves = [{}, {"t_q": 3, "k_tau": 1.2}, {"q": 0.0, "tau": 0.0}][seed % 3]
    model = DynamicMeans(lam=lam, n_init=1, record=True, **moves, **options(kind))
    twin = twins.dynamic.Stream(batches[0][0].shape[1], lam, name=kind, **moves)
    new = rows_at(
        kind,
        np.random.default_rng(seed),
        places(kind, np.random.default_rng(1), 50, len(twin.phi.T)),
    )
    for Y, weight in batches:
        model = pickle.loads(pickle.dumps(model)).partial_fit(Y, sample_weight=weight)
        if len(Y):
            step = twin.starts(Y, [None], weight)[0]
            assert np.array_equal(model.labels_, twin.ids_after(step)[step.labels])
            np.testing.assert_allclose(model.objective_, step.objective, rtol=1e-9)
        twin.take(step if len(Y) else None)
        assert np.array_equal(model.cluster_ids_, twin.ids)
        assert np.array_equal(model.ages_, twin.ages)
        np.testing.assert_allclose(model.weights_, twin.v)
        np.testing.assert_allclose(model.cluster_centers_, twin.phi, rtol=1e-9, atol=1e-12)
        if len(twin.ids):
            assert np.array_equal(model.predict(new, dormant=True), twin.predict(new, dormant=True))
        if 1 in twin.ages:
            assert np.array_equal(model.predict(new), twin.predict(new))
    X, w = (
        np.concatenate(part)
        for part in zip(
            *((Y, np.ones(len(Y)) if W is None else W) for Y, W in batches), strict=True
        )
    )
    times = np.repeat(np.arange(len(batches)), [len(Y) for Y, _ in batches])
    again = clone(model).fit(X, sample_weight=w, times=times, step=1)
    last = times.max() == len(batches) - 1
    assert (
        not last
        or learned_arrays(again)["cluster_centers_"] == learned_arrays(model)["cluster_centers_"]
    )


def test_revivals_by_hand():
    """The cost of a revival in closed form; opposite rows of equal weight have no direction."""
    phi, gamma, Y, w = np.eye(2), np.array([2.0, 0.5]), np.array([[0.6, 0.8]]), np.array([3.0])
    for k in range(2):
        sum_of_both = gamma[k] * phi[k] + 3.0 * Y[0]
        cost = Rule("directions").revivals(Y, w, phi[k], gamma[k])[1]
        np.testing.assert_allclose(cost, gamma[k] + 3.0 - np.linalg.norm(sum_of_both))
    model = DynamicMeans(lam=2.0, q=0.0, tau=0.0, directions=True)
    model.partial_fit([[1.0, 0.0]]).partial_fit([[-5.0, 0.0]])
    assert model.cluster_centers_.tolist() == [[1.0, 0.0]] and model.objective_ == 2.0


def test_centers_off_the_border():
    """A word that the first row of a cluster lacks does not keep out rows that have it."""
    batch = np.array([[40.0, 0.0, 7.0], [40.0, 1.0, 9.0], [41.0, 0.0, 8.0], [1.0, 0.0, 90.0]])
    model = DynamicMeans(lam=12.0, n_init=1, divergence="kl")
    for _ in range(3):
        assert model.partial_fit(batch).labels_.tolist() == [0, 0, 0, 1]
    assert model.cluster_centers_[1, 1] == 0.0  # a mean stays on the border


@pytest.mark.parametrize("kind", KINDS)
def test_penalties_of_the_first_rows(kind):
    """Both rules follow the estimators of single data sets, in the unit of the weights."""
    rng = np.random.default_rng(5)
    Y = rows_at(kind, rng, places(kind, rng, 6, 8).repeat(30, axis=0))
    single = SphericalDPMeans if kind == "directions" else BregmanDPMeans
    settings = options(kind) if kind != "directions" else {}
    model = DynamicMeans(lam="farthest-first", guess=6, **options(kind)).partial_fit(Y)
    assert model.lam_ == single(lam="farthest-first", guess=6, **settings).fit(Y).lam_
    weighted = DynamicMeans(random_state=0, n_threads=1, **options(kind))
    weighted.partial_fit(Y, sample_weight=np.full(len(Y), 4.0))
    model = DynamicMeans(random_state=0, n_threads=3, **options(kind)).partial_fit(Y)
    path = single(random_state=0, **settings).fit(Y).path_
    assert model.path_.best == path.best > 1
    np.testing.assert_allclose(weighted.lam_, 4.0 * model.lam_)
    assert np.array_equal(weighted.labels_, model.labels_)
    near, far = (
        DynamicMeans(lam="farthest-first", guess=path.best + more, **options(kind)).fit(Y).lam_
        for more in (0, 1)
    )
    np.testing.assert_allclose(model.lam_, np.sqrt(near * far))
    alone = DynamicMeans(random_state=0, **options(kind)).partial_fit(Y[:1].repeat(9, axis=0))
    assert alone.lam_ == 1.0 and alone.n_clusters_ == 1
    assert alone.partial_fit(Y).lam_ == model.lam_


@pytest.mark.parametrize(
    ("settings", "X", "words"),
    [
        ({"divergence": "kl"}, [[1.0, -1.0]], "X must be >= 0 for divergence='kl', got -1"),
        ({"divergence": "itakura_saito"}, [[0.0, 1.0]], "X must be > 0 .*, got 0"),
        ({"divergence": "logistic"}, [[0.0, 2.0]], "X must be <= 1 .*, got 2"),
        ({"divergence": "x"}, [[0.0, 2.0]], "divergence must be .*'kl'.* got 'x'"),
        (
            {"directions": True},
            [[1.0, 1.0], [0.0, 0.0]],
            "length zero.*got 1, the first at index 1",
        ),
        ({"directions": 1}, [[1.0, 1.0]], "directions must be True or False, got 1"),
        (
            {"directions": True, "divergence": "kl"},
            [[1.0, 1.0]],
            "divergence must be 'squared_eucl",
        ),
    ],
)
def test_bad_input(settings, X, words):
    """Refused, also in the middle of a stream, and by predict."""
    for method in ("fit", "partial_fit"):
        model = DynamicMeans(lam=1.0, **settings)
        assert_refuses(model, lambda m: getattr(m, method)(X), (ValueError, TypeError), words)  # noqa: B023
    model = DynamicMeans(lam=1.0, random_state=0).partial_fit([[0.5, 0.5]])
    with pytest.raises(ValueError, match="must stay what"):
        model.set_params(divergence="kl").partial_fit([[0.5, 0.5]])
    if len(settings) == 1 and X != [[1.0, 1.0]] and settings != {"divergence": "x"}:
        model = DynamicMeans(lam=1.0, **settings).partial_fit([[0.5, 0.5]])
        for method in ("partial_fit", "predict"):
            assert_refuses(model, lambda m: getattr(m, method)(X), ValueError, words)  # noqa: B023


@parametrize_with_checks(
    [DynamicMeans(lam=1.0, divergence="kl"), DynamicMeans(lam=0.1, directions=True)],
    expected_failed_checks=lambda estimator: {
        "check_sample_weight_equivalence_on_dense_data": "a weight is a factor",
        **(
            {"check_estimators_dtypes": "of its rows, as whole numbers, one has length zero"}
            if estimator.directions
            else dict.fromkeys(
                ("check_clustering", "check_clustering(readonly_memmap=True)"),
                "its data have negative values, whatever the tag says",
            )
        ),
    },
)
def test_scikit_learn_contract(estimator, check):
    """The checks of scikit-learn."""
    check(estimator)
