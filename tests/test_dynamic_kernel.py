"""Kernel D-Means and SD-Means: matching, thinning, twins, bounds, state, bad input."""

import pickle
from functools import partial
from itertools import product

import numpy as np
import pytest
import twins.kernel
from helpers import assert_refuses, never_rises, seeds, state
from scipy.optimize import linear_sum_assignment
from scipy.sparse.csgraph import minimum_spanning_tree, shortest_path
from scipy.spatial.distance import cdist, pdist
from sklearn.base import clone
from sklearn.metrics import normalized_mutual_info_score as nmi
from sklearn.metrics.pairwise import laplacian_kernel, linear_kernel, rbf_kernel
from smallvar._sweeps.exchange import ExchangeSweep

from smallvar import (
    DynamicMeans,
    KernelDynamicMeans,
    SpectralDynamicMeans,
    match_clusters,
)
from smallvar._time import exchange
from smallvar._time.exchange import Batch, Exchange, ridge_change, thin_center

BOTH = pytest.mark.parametrize("estimator", [KernelDynamicMeans, SpectralDynamicMeans])


# Matching ----------------------------------------------------------------------------------


def total(new, old, link):
    """Cost of a link."""
    linked = link >= 0
    return new[~linked].sum() + old[linked, link[linked]].sum()


@pytest.mark.parametrize("kind", ["general", "tied", "equal", "far", "crowded"])
def test_matching_is_the_best(kind):
    rng = np.random.default_rng(0)
    for _ in range(100):
        k, n_old = rng.integers(1, 8), rng.integers(0, 8)
        if kind == "general":
            new, old = rng.random(k), rng.random((k, n_old))
        elif kind == "tied":
            new, old = (rng.integers(0, 3, size).astype(float) for size in (k, (k, n_old)))
        elif kind == "equal":
            new, old = np.full(k, 2.0), np.full((k, n_old), rng.choice([1.0, 2.0, 3.0]))
        elif kind == "crowded":  # several clusters prefer one
            new, old = 1 + rng.random(k), 5 + rng.random((k, n_old))
            if n_old:
                old[np.arange(k), np.arange(k) // 3 % n_old] = 0.5 * rng.random(k)
        else:  # gains of all sizes, on top of a large cost
            new = 1e4 + rng.random(k)
            old = new[:, None] + rng.choice([-1, 1], (k, n_old)) * 10 ** rng.uniform(-6, 2)
        link = match_clusters(new, old)
        assert link.dtype == np.int64 and link.shape == (k,)
        used = link[link >= 0]
        assert len(set(used.tolist())) == len(used) and (used < n_old).all()
        # the padded square problem
        square = np.zeros((k + n_old, k + n_old))
        square[:k, :n_old], square[:k, n_old:] = old, new[:, None]
        best = square[linear_sum_assignment(square)].sum()
        scale = np.abs(new[:, None] - old).max(initial=0)
        assert abs(total(new, old, link) - best) <= 1e-7 * scale + 1e-14 * np.abs(new).sum()
        if kind in ("tied", "equal"):  # as many links as any optimum has
            square[:k, :n_old] -= 1e-6
            most = sum(
                row < k and column < n_old
                for row, column in zip(*linear_sum_assignment(square), strict=True)
            )
            assert len(used) == most


def test_matching_by_hand():
    assert match_clusters([5.0, 5.0], [[1.0, 2.0], [2.0, 9.0]]).tolist() == [1, 0]
    assert match_clusters([5.0], [[5.0]]).tolist() == [0]  # a tie links
    assert match_clusters([5.0], [[5.1]]).tolist() == [-1]
    assert match_clusters([1.0, 1.0], np.zeros((2, 0))).tolist() == [-1, -1]
    assert match_clusters([], np.zeros((0, 3))).tolist() == []


@pytest.mark.parametrize(
    ("new", "old", "message"),
    [
        ([1.0], [[1.0], [2.0]], r"old_costs must have one row .* \(2, 1\) and \(1,\)"),
        ([[1.0]], [[1.0]], r"got shapes \(1, 1\) and \(1, 1\)"),
        ([1.0], [[np.nan]], "contains NaN"),
        ([np.inf], [[1.0]], "contains infinity"),
    ],
)
def test_bad_costs(new, old, message):
    with pytest.raises(ValueError, match=message):
        match_clusters(new, old)


# Thinning ----------------------------------------------------------------------------------


@seeds(5)
def test_thinning_equals_twin(seed):
    rng = np.random.default_rng(seed)
    X, a = rng.standard_normal((25, 3)), rng.random(25)
    K = np.exp(-cdist(X, X, "sqeuclidean"))
    chosen, b = thin_center(K, a, 8)
    assert chosen.tolist() == sorted(twins.kernel.forward_selection(K, a, 8))
    own = K[np.ix_(chosen, chosen)]
    # least ||phi - sum b phi(x)||^2 + ridge ||b - a||^2
    expected = a[chosen] + np.linalg.solve(own + 1e-3 * np.eye(8), K[chosen] @ a - own @ a[chosen])
    assert np.allclose(b, expected, rtol=1e-9)
    best = np.linalg.solve(own, K[chosen] @ a)

    def error(c):
        return a @ K @ a - 2 * c @ K[chosen] @ a + c @ own @ c

    assert error(b) <= error(best) + 1e-3 * np.square(best - a[chosen]).sum()


def test_numbers_whose_squares_overflow():
    """The points chosen do not depend on the scale of the kernel."""
    x = np.random.default_rng(0).normal(size=(12, 5))
    a = np.arange(1.0, 13.0) / 78
    chosen, b = thin_center(x @ x.T, a, 2)
    far, c = thin_center(1e180 * (x @ x.T), a, 2)
    assert far.tolist() == chosen.tolist()
    np.testing.assert_allclose(c, b, rtol=1e-4)


@seeds(5)
def test_of_equal_gains_the_first_is_taken(seed):
    """Copies and corners of a square are chosen in order, whatever the rounding of the kernel."""
    rng = np.random.default_rng(seed)
    X = rng.permutation(np.repeat([[0.0, 0.0], [0.0, 1.0], [1.0, 0.0], [1.0, 1.0]], 4, axis=0))
    K, a = np.exp(-cdist(X, X, "sqeuclidean")), np.full(16, 1 / 16)
    noise = 4e-16 * rng.standard_normal(K.shape)
    first = np.sort(np.unique(X, axis=0, return_index=True)[1]).tolist()
    for kernel in (K, K * (1 + noise + noise.T)):
        assert thin_center(kernel, a, 1)[0].tolist() == [0]
        assert thin_center(kernel, a, 4)[0].tolist() == first


@pytest.mark.parametrize("least", [0.0, -1e-14, -1e-9, -0.5])
def test_change_along_eigenvectors(least):
    """A ridge along each, nothing where the eigenvalue is negative by more than rounding."""
    V = np.linalg.qr(np.random.default_rng(0).standard_normal((6, 6)))[0]
    values = np.array([2.0, 1.0, 0.5, 1e-3, 1e-5, least])
    K = V * values @ V.T
    K, missing = (K + K.T) / 2, V @ np.array([1.0, 1.0, 1.0, 1.0, 1.0, min(-least, 1e-3)])
    along = (V.T @ missing) / (np.abs(values) + 1e-3)
    if least < -1e-12:
        along[5] = 0.0
    np.testing.assert_allclose(ridge_change(K, missing, 1.0), V @ along, rtol=1e-9, atol=1e-9)


def test_within_the_budget_nothing_changes():
    a = np.array([0.2, 0.3, -0.1])
    chosen, b = thin_center(np.eye(3), a, 3)
    assert chosen.tolist() == [0, 1, 2] and b is a


@pytest.mark.parametrize("K", [np.ones((40, 40)), np.zeros((40, 40))])
def test_points_that_are_the_same_fill_the_budget(K):
    """One point would do, but they may differ in the next step."""
    chosen, b = thin_center(K, np.full(40, 1 / 40), 10)
    assert len(chosen) >= 9 and np.diff(chosen).max() <= 8
    assert (b > 0).all()
    if K.any():
        assert b.sum() == pytest.approx(1, abs=1e-3) and b.max() < 2 * b.min()


# One step ----------------------------------------------------------------------------------


def random_batch(seed, n=14, n_old=3, n_kept=4):
    """A batch and old centers in the plane, RBF kernel."""
    rng = np.random.default_rng(seed)
    X = 3 * rng.random((n + n_old * n_kept, 2))
    K = np.exp(-cdist(X, X, "sqeuclidean"))
    coefficients = list(rng.dirichlet(np.ones(n_kept), n_old))
    gamma, penalty = rng.uniform(0.2, 5, n_old), rng.uniform(0, 0.4, n_old)
    return K, coefficients, gamma, penalty, rng.uniform(0.4, 1.0)


@seeds(5)
def test_costs(seed):
    """Costs equal the twin's and, for points with coordinates, those from computed centers."""
    K, coefficients, gamma, penalty, lam = random_batch(seed)
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((len(K), 20))
    K = X @ X.T
    n, A = 14, np.zeros((len(K), 3))
    for k, a in enumerate(coefficients):
        A[n + 4 * k : n + 4 * k + 4, k] = a
    batch = Batch(K, coefficients, gamma, penalty, lam)
    assert np.allclose(batch.cross, (K @ A)[:n])
    assert np.allclose(batch.norm, (A.T @ K @ A).diagonal())
    labels = np.append([0, 1, 2], rng.integers(3, size=n - 3))
    new, old = batch.costs(labels, 3)
    phi = A.T @ X
    for k in range(3):
        mine = X[:n][labels == k]
        assert new[k] == pytest.approx(lam + np.square(mine - mine.mean(axis=0)).sum())
        for j in range(3):
            theta = (gamma[j] * phi[j] + mine.sum(axis=0)) / (gamma[j] + len(mine))
            expected = penalty[j] + gamma[j] * np.square(theta - phi[j]).sum()
            assert old[k, j] == pytest.approx(expected + np.square(mine - theta).sum())
            members = np.flatnonzero(labels == k)
            args = (K, members, lam, batch.cross, batch.norm, gamma, penalty)
            assert old[k, j] == pytest.approx(twins.kernel.kernel_cluster_cost(*args, j))


@seeds(30)
def test_step_equals_twin(seed):
    batch = Batch(*random_batch(seed))
    order = np.random.default_rng(seed).permutation(14) if seed % 2 else None
    run = Exchange(batch, order, 100)
    labels, path = twins.kernel.kernel_dynamic_step(
        batch.K, batch.cross, batch.norm, batch.gamma, batch.penalty, batch.lam, order=order
    )
    slots, labels = np.unique(labels, return_inverse=True)  # the twin never closes a gap
    slots[slots >= 3] = 3 + np.arange((slots >= 3).sum())
    assert np.array_equal(run.labels, slots[labels])
    assert np.allclose(run.path, path, rtol=1e-10, atol=1e-12)
    assert run.n_iter == len(path)
    assert never_rises(np.array(run.path))


@seeds(24)
def test_exchange_equals_twin(seed, monkeypatch):
    """Starts equal the twin bit for bit, also at ties, in any order, with many clusters."""
    rng = np.random.default_rng(seed)
    kind, n = seed % 4, int(rng.integers(1, 60))
    K, coefficients, gamma, penalty, lam = random_batch(seed, n=n, n_old=seed % 5)
    if kind == 1:  # points on a grid, many of them copies
        X = rng.integers(0, 3, (len(K), 2)).astype(float)
        K = X @ X.T
    elif kind == 2:  # nearly every point alone
        lam = 0.02
    elif kind == 3:  # indefinite
        K = K - 0.3 * rng.random() * np.ones_like(K)
    batch = Batch(K, coefficients, gamma, penalty, lam)
    order = rng.permutation(n) if seed % 3 else None
    run = Exchange(batch, order, 20)
    with monkeypatch.context() as patch:
        patch.setattr(exchange, "ExchangeSweep", twins.kernel.ExchangeSweep)
        twin = Exchange(batch, order, 20)
    assert np.array_equal(run.labels, twin.labels)
    assert run.path == twin.path and run.converged == twin.converged


@pytest.mark.parametrize("own", [False, True])
def test_ties_of_the_exchange(own):
    """A point between two clusters stays in its own, and takes the first one if it has none."""
    K = np.array([[1.0, 0.0, 0.5], [0.0, 1.0, 0.5], [0.5, 0.5, 1.0]])
    sweep = ExchangeSweep(K, np.zeros((3, 0)), *np.zeros((3, 0)), 0.6, 1e-12)
    labels = np.array([-1, -1, -1])
    assert sweep.run(np.array([0, 1, 2]), labels) == 3  # 1 - 1.5 to join one, .6 for another
    assert labels.tolist() == [0, 1, 0]
    if own:
        labels = np.array([0, 1, 1])
        rows = np.array([K[0], K[1] + K[2]])
        sums = np.array([1, 2]), rows, np.array([1.0, 3.0]), np.zeros((2, 0))
        sweep.set_clusters(np.array([0, 1]), *sums)
    before = labels.tolist()
    assert sweep.run(np.array([2, 1, 0]), labels) == 0
    assert labels.tolist() == before


@pytest.mark.parametrize(
    ("labels", "order"), [([0, 0, 2], [0, 1, 2]), ([-2, 0, 0], [0, 1, 2]), ([0, 0], [0, 1])]
)
def test_exchange_refuses_labels_that_do_not_fit(labels, order):
    sweep = ExchangeSweep(np.eye(3), np.zeros((3, 2)), *np.ones((3, 2)), 0.9, 1e-12)
    with pytest.raises(ValueError, match="labels must"):
        sweep.run(np.array(order), np.array(labels))


def test_sums_are_added_in_the_order_of_the_points():
    A = np.random.default_rng(0).standard_normal((50, 50))
    labels = np.arange(50) * 7 % 4
    sums = Batch(A, [], *np.zeros((2, 0)), 1.0, kept=[]).sums(labels, 5)
    for k in range(5):
        total = np.zeros(50)
        for row in A[labels == k]:
            total += row
        assert np.array_equal(sums.rows[k], total)


def test_steps_show_everything():
    """Revivals, new clusters and more than two sweeps occur above."""
    runs = [Exchange(Batch(*random_batch(seed)), None, 100) for seed in range(30)]
    assert any((run.labels >= 3).any() for run in runs)
    assert any((run.labels < 3).any() for run in runs)
    assert max(run.n_iter for run in runs) > 2


def test_many_new_clusters():
    """More clusters open than arrays have room for at first."""
    K = np.eye(60)
    run = Exchange(Batch(K, [], np.zeros(0), np.zeros(0), 0.3), None, 100)
    assert np.array_equal(run.labels, np.arange(60))
    assert run.objective == pytest.approx(60 * 0.3)


def partitions(n):
    """All label vectors of n points."""
    for labels in product(range(n), repeat=n):
        if all(label <= max(labels[:i], default=-1) + 1 for i, label in enumerate(labels)):
            yield np.array(labels)


@seeds(6)
def test_bound(seed):
    """The bound is below the best of all clusterings with all links."""
    K, coefficients, gamma, penalty, lam = random_batch(seed, n=6, n_old=2)
    batch = Batch(K, coefficients, gamma, penalty, lam)
    best = np.inf
    for labels in partitions(6):
        new, old = batch.costs(labels, labels.max() + 1)
        best = min(best, total(new, old, twins.kernel.padded_matching(new, old)))
    model = SpectralDynamicMeans(n_init=5)
    model._generator = np.random.RandomState(0)
    model._partition(batch)
    assert model.bound_ <= best + 1e-9
    assert best - 1e-9 <= model.objective_
    assert best <= Exchange(batch, None, 100).objective + 1e-9
    assert model.bound_ > best - 2  # and not far below


# Streams -----------------------------------------------------------------------------------


def stream(seed, steps=12, d=2, sd=0.05):
    """Well separated clusters that move, pause and die."""
    rng = np.random.default_rng(seed)
    places = 10 * rng.permutation(30)[:4, None] + np.zeros((4, d))
    for step in range(steps):
        if step == 7:
            places[0] += 500  # replaced by another
        places = places + 0.05 * rng.standard_normal(places.shape)
        seen = rng.random(4) < 0.75
        which = rng.permutation(np.flatnonzero(seen).repeat(5))
        yield places[which] + sd * rng.standard_normal((len(which), d))


@seeds(4)
def test_linear_kernel_is_dynamic_means(seed):
    """Without thinning, labels, objective and state are those of D-Means, empty batches too."""
    options = {"lam": 2.0, "t_q": 2.5, "k_tau": 1.05, "random_state": 0, "record": True}
    model = KernelDynamicMeans(kernel="linear", budget=10_000, **options)
    second = DynamicMeans(**options)
    for Y in stream(seed):
        model.partial_fit(Y)
        second.partial_fit(Y)
        assert np.array_equal(model.labels_, second.labels_)
        assert model.objective_ == pytest.approx(second.objective_, rel=1e-6, abs=1e-8)
        for name in ("cluster_ids_", "ages_"):
            assert np.array_equal(getattr(model, name), getattr(second, name))
        assert np.allclose(model.weights_, second.weights_)
        centers = [a @ x for a, x in zip(model.kept_coefficients_, model.kept_points_, strict=True)]
        assert np.allclose(np.reshape(centers, (-1, 2)), second.cluster_centers_)
        if len(Y):
            assert never_rises(model.objective_path_)
    for name in ("births_", "deaths_", "revivals_"):
        for ours, theirs in zip(getattr(model, name), getattr(second, name), strict=True):
            assert np.array_equal(ours, theirs)
    assert sum(map(len, model.revivals_)) and sum(map(len, model.deaths_))
    assert model.tracks_.keys() == second.tracks_.keys()
    for number, track in model.tracks_.items():
        assert np.array_equal(track[:, 0], second.tracks_[number][:, 0])
        assert set(track[:, 1]) == {5.0}


@seeds(3)
def test_spectral_follows_separated_clusters(seed):
    model = SpectralDynamicMeans(lam=2.0, t_q=2.5, k_tau=1.05, gamma=1.0, budget=8, random_state=0)
    other_model = DynamicMeans(lam=2.0, t_q=2.5, k_tau=1.05)
    for Y in stream(seed):
        model.partial_fit(Y)
        assert np.array_equal(model.labels_, other_model.partial_fit(Y).labels_)
        assert model.bound_ <= model.objective_ + 1e-9
        assert all(len(a) <= 8 for a in model.kept_coefficients_)
        assert len(model.kept_points_) == model.n_clusters_


@seeds(4)
def test_objective_of_a_stream(seed):
    """Overlapping clusters, a small budget: paths never rise, the state is what the twin says."""
    rng = np.random.default_rng(seed)
    model = KernelDynamicMeans(lam=0.5, t_q=3.0, k_tau=1.1, gamma=2.0, budget=4, n_init=1)
    before = None
    for _ in range(6):
        Y = 2 * rng.random((12, 2))
        if before:
            points, coefficients, gamma, penalty = before
            X = np.concatenate([Y, *points])
            K = np.exp(-2 * cdist(X, X, "sqeuclidean"))
            batch = Batch(K, coefficients, gamma, penalty, 0.5)
            _, path = twins.kernel.kernel_dynamic_step(
                batch.K, batch.cross, batch.norm, gamma, penalty, 0.5
            )
            assert np.allclose(model.partial_fit(Y).objective_path_, path, atol=1e-10)
            assert never_rises(model.objective_path_)
        model.partial_fit(Y)
        gamma = 1 / (1 / model.weights_ + model.tau_ * model.ages_)
        penalty = np.minimum(model.q_ * model.ages_, model.lam_)
        before = (model.kept_points_, model.kept_coefficients_, gamma, penalty)


@BOTH
@pytest.mark.parametrize("name", ["rbf", "linear", "laplacian"])
def test_named_kernels_are_functions_of_pairs(estimator, name):
    """A kernel by its name is not evaluated for pairs that do not matter: results are the same."""
    options = {"lam": 0.7, "t_q": 2.5, "k_tau": 1.05, "budget": 6, "random_state": 0}
    function = {"rbf": rbf_kernel, "linear": linear_kernel, "laplacian": laplacian_kernel}[name]
    arguments = {} if name == "linear" else {"gamma": 0.3}
    named = estimator(kernel=name, **options, **arguments)
    given = estimator(kernel=function, **options, **arguments)
    # in the plane, where "linear" has rank 2, all points after the first one gain the same
    for Y in stream(1, d=12, sd=0.15) if name == "linear" else stream(1, sd=0.4):
        assert np.array_equal(named.partial_fit(Y).labels_, given.partial_fit(Y).labels_)
        assert named.objective_ == pytest.approx(given.objective_, rel=1e-9, abs=1e-9)
        for one, two in zip(named.kept_points_, given.kept_points_, strict=True):
            assert np.array_equal(one, two)
        if len(Y):
            for dormant in (False, True):
                new = Y + 0.1
                actual = named.predict(new, dormant=dormant)
                assert np.array_equal(actual, given.predict(new, dormant=dormant))


@BOTH
@pytest.mark.parametrize("kernel", ["chi2", "rbf", "laplacian", "cosine", "poly"])
def test_rows_that_are_read_only(estimator, kernel):
    X = 1 + np.random.default_rng(0).random((30, 3))
    there = estimator(kernel=kernel, random_state=0).partial_fit(X).partial_fit(X)
    X.setflags(write=False)
    model = estimator(kernel=kernel, random_state=0).partial_fit(X).partial_fit(X)
    assert state(model) == state(there)
    assert np.array_equal(model.predict(X), there.predict(X))


# Rings -------------------------------------------------------------------------------------


def ring_kernel(X, Y, n_batch, threshold, width):
    """Length of the long edges on the path through the spanning tree of the batch."""
    batch, kept = X[:n_batch], X[n_batch:]
    tree = minimum_spanning_tree(cdist(batch, batch))
    tree.data[tree.data <= threshold] = 1e-12
    distance = shortest_path(tree, directed=False)
    to_batch = (cdist(kept, batch)[:, :, None] + distance).min(axis=1)
    between = np.minimum(cdist(kept, kept), (to_batch[:, None] + cdist(kept, batch)).min(axis=2))
    between = np.minimum(between, between.T)
    distance = np.block([[distance, to_batch.T], [to_batch, between]])
    np.fill_diagonal(distance, 0)
    return np.exp(-distance / width)


def test_rings():
    """Two rings and a spot that move: SD-Means keeps their numbers, D-Means cuts them up."""
    rng = np.random.default_rng(0)
    model = SpectralDynamicMeans(
        lam=30.0,
        t_q=5.0,
        k_tau=1.01,
        kernel=partial(ring_kernel, threshold=0.1, width=0.07),
        budget=40,
        random_state=0,
    )
    other = DynamicMeans(lam=0.1, t_q=5.0, k_tau=1.01)
    center, shares, names = np.zeros(2), [], None
    for _ in range(6):
        center = center + 0.02 * rng.standard_normal(2)
        truth, angle = rng.integers(3, size=240), 2 * np.pi * rng.random(240)
        radius = np.array([0.0, 0.2, 0.4])[truth] + 0.01 * rng.standard_normal(240)
        X = center + radius[:, None] * np.column_stack([np.cos(angle), np.sin(angle)])
        predicted = [m.partial_fit(X).labels_ for m in (model, other)]
        if names is None:  # the true clusters keep the numbers that most of their points have
            names = [
                np.array([np.bincount(f[truth == t]).argmax() for t in range(3)]) for f in predicted
            ]
        shares.append([np.mean(n[truth] == f) for n, f in zip(names, predicted, strict=True)])
    spectral, plain = np.mean(shares, axis=0)
    assert spectral > 0.95
    assert plain < 0.7


# Kernels -----------------------------------------------------------------------------------


@BOTH
def test_kernel_sees_all_points_once_a_step(estimator):
    seen = []

    def kernel(X, Y, n_batch):
        assert X is Y
        seen.append((n_batch, len(X)))
        return X @ Y.T

    model = estimator(kernel=kernel, budget=2)  # the penalty is from the kernel, too
    model.partial_fit([[0.0], [0.1], [0.2], [5.0]])
    model.partial_fit([[0.1], [0.3], [0.2]])
    kept = [len(a) for a in model.kept_coefficients_]
    assert max(kept) <= 2
    model.predict([[0.1]])
    assert seen[0] == (4, 4)
    assert seen[1][0] == 3 and seen[1][1] <= 3 + 4
    assert seen[2:] == [(1, 1 + sum(kept))]


@BOTH
def test_penalty_from_the_first_batch(estimator):
    """For the linear kernel the penalty is that of DynamicMeans."""
    Y = np.random.default_rng(0).random((30, 2))
    empty = np.zeros((0, 2))
    model = estimator(kernel="linear").partial_fit(empty)
    assert not hasattr(model, "lam_")
    expected = DynamicMeans(lam="farthest-first").partial_fit(Y).lam_
    assert model.partial_fit(Y).lam_ == pytest.approx(expected, rel=1e-9)
    assert model.partial_fit(10 * Y).lam_ == pytest.approx(expected, rel=1e-9)
    assert estimator().partial_fit(np.ones((3, 2))).lam_ == 1.0


# State -------------------------------------------------------------------------------------


def blobs(scale=1.0):
    """Five blobs in a square, in random order."""
    rng = np.random.default_rng(3)
    means = 20 * np.array([[0, 0], [0, 1], [1, 0], [1, 1], [2, 0]])
    truth = rng.permutation(np.arange(5).repeat(16))
    return scale * (means[truth] + rng.standard_normal((80, 2))), truth


@BOTH
@pytest.mark.parametrize("kernel", ["rbf", "laplacian"])
def test_default_gamma_goes_with_the_scale(estimator, kernel):
    """The clusters are the same for any unit of the data."""
    X, _ = blobs()
    times = np.arange(80) // 20
    model = estimator(kernel=kernel, random_state=0).fit(X, times=times)
    share = 0.3 if estimator is KernelDynamicMeans else 1.0
    distances = pdist(X[:20], "sqeuclidean" if kernel == "rbf" else "cityblock")
    assert model.gamma_ == pytest.approx(share / np.median(distances))
    for scale in (1e-3, 10.0, 1e3):
        other_model = estimator(kernel=kernel, random_state=0).fit(scale * X, times=times)
        assert np.array_equal(other_model.labels_, model.labels_)


@BOTH
def test_default_gamma_finds_blobs(estimator):
    X, truth = blobs(1e3)
    assert nmi(truth, estimator(random_state=0).fit(X).labels_) > 0.9


@BOTH
def test_default_gamma_is_of_the_first_batch_with_rows(estimator):
    X, _ = blobs()
    model = estimator(random_state=0).partial_fit(X[:0])
    assert not hasattr(model, "gamma_")
    first = model.partial_fit(X[:40]).gamma_
    assert model.partial_fit(1e3 * X[40:]).gamma_ == first
    assert np.array_equal(model.kernel_matrix(X), rbf_kernel(X, gamma=first))
    copy = pickle.loads(pickle.dumps(model))
    assert copy.gamma_ == first and state(copy.partial_fit(X)) == state(model.partial_fit(X))
    assert not hasattr(clone(model), "gamma_")
    assert model.fit(1e3 * X).gamma_ < 1e-4 * first  # afresh
    assert estimator(kernel="linear").fit(X).gamma_ is None
    assert estimator(gamma=2.0).fit(X).gamma_ == 2.0


@BOTH
def test_empty_batches(estimator):
    model = estimator(lam=1.0, t_q=2.5, k_tau=1.1, kernel="linear", record=True)
    model.partial_fit([[0.0], [0.1], [9.0]])
    ids = model.cluster_ids_
    model.partial_fit(np.zeros((0, 1)))
    assert model.ages_.tolist() == [2] * len(ids) and model.labels_.size == 0
    assert model.objective_ == 0.0
    model.partial_fit(np.zeros((0, 1)))
    assert model.n_clusters_ == 0 and model.kept_points_ == []
    assert model.deaths_[-1].tolist() == ids.tolist()
    assert model.partial_fit([[0.0]]).labels_.tolist() == [len(ids)]


@BOTH
def test_fit_is_partial_fit_of_every_time(estimator):
    batches = [Y for Y in stream(3, sd=1.0) if len(Y)]
    X, times = (
        np.concatenate(batches),
        np.repeat(np.arange(len(batches)), [len(Y) for Y in batches]),
    )
    model = estimator(lam=0.7, random_state=0, gamma=0.1).fit(X, times=times)
    other_model = estimator(lam=0.7, random_state=0, gamma=0.1, record=True)
    labels = [other_model.partial_fit(Y).labels_ for Y in batches]
    assert np.array_equal(model.labels_, np.concatenate(labels))
    assert np.array_equal(model.step_objectives_, other_model.step_objectives_)
    for number, track in model.tracks_.items():
        step, size = track.T
        assert np.array_equal(size, [np.sum(labels[int(t)] == number) for t in step])


@BOTH
def test_predict_by_hand(estimator):
    """Active ones cost the distance, the dormant one 1 + half of it (v = 1), as in D-Means."""
    model = estimator(lam=4.0, q=1.0, tau=0.0, kernel="linear", random_state=0)
    plain = DynamicMeans(lam=4.0, q=1.0, tau=0.0, random_state=0)
    for Y in (10 * np.eye(3), 10 * np.eye(3)[1:]):
        assert np.array_equal(model.partial_fit(Y).labels_, plain.partial_fit(Y).labels_)
    assert model.ages_.tolist() == [2, 1, 1]
    # squared distances from 0, 1 and 2: (1, 181, 201), (55.25, 45.25, 155.25), (181, 1, 181)
    new = [[10.0, 1.0, 0.0], [5.0, 5.5, 0.0], [0.0, 9.0, 0.0]]
    for both in (model, plain):
        assert both.predict(new).tolist() == [1, 1, 1]
        assert both.predict(new, dormant=True).tolist() == [0, 0, 1]


@pytest.mark.parametrize("dormant", [False, True])
def test_predict_of_the_linear_kernel(dormant):
    """Predictions are those of D-Means, for clusters of all weights and ages."""
    rng = np.random.default_rng(0)
    places, new = (
        np.array([[0.0, 0.0], [0.0, 2.0], [2.0, 0.0], [2.0, 2.0]]),
        3 * rng.random((300, 2)),
    )
    options = {"t_q": 5.0, "k_tau": 1.1, "n_init": 1}
    model = KernelDynamicMeans(lam=0.4, kernel="linear", budget=1000, **options)
    plain, unseen = DynamicMeans(lam=0.4, **options), 0
    for _ in range(12):
        seen = np.flatnonzero(rng.random(4) < 0.6).repeat(rng.integers(1, 4))
        Y = places[seen] + 0.05 * rng.standard_normal((len(seen), 2))
        assert np.array_equal(model.partial_fit(Y).labels_, plain.partial_fit(Y).labels_)
        if len(Y):
            actual = plain.predict(new, dormant=dormant)
            assert np.array_equal(model.predict(new, dormant=dormant), actual)
            unseen += np.isin(actual, plain.cluster_ids_[plain.ages_ > 1]).sum()
    assert (unseen > 0) == dormant


# Bad input ---------------------------------------------------------------------------------


@BOTH
@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"kernel": "precomputed"}, "kernel must not be 'precomputed'"),
        ({"kernel": "linear", "gamma": 1.0}, "gamma must be None for kernel='linear'"),
        ({"kernel": lambda X, Y: np.full((2, 2), np.nan)}, "kernel must return finite"),
        ({"kernel": lambda X, Y: np.zeros((2, 1))}, r"shape \(2, 2\)"),
        ({"kernel": lambda X, Y: np.array([[1.0, 0.5], [0.4, 1.0]])}, "0.1 apart"),
        ({"kernel": lambda X, Y: np.eye(2) * 1j}, "kernel must return real numbers"),
    ],
)
def test_values_out_of_bounds(estimator, options, message):
    for method in (estimator.fit, estimator.partial_fit):
        call = partial(method, X=[[0.0], [1.0]])
        assert_refuses(estimator(**options), call, ValueError, message)


@BOTH
def test_a_step_beyond_the_memory_is_refused(estimator):
    """A kernel of 60,000 rows takes 28.8 GB, which numpy would ask for."""
    X = np.random.default_rng(0).normal(size=(60_000, 2))
    message = (
        r"max_memory must be at least 28800000000 for a step of 60000 rows and 0 kept points, the "
        r"bytes of its kernel, got 2000000000.0: pass fewer rows at a time"
    )
    with pytest.raises(ValueError, match=message):
        estimator(lam=1.0).partial_fit(X)
    model = estimator(lam=1.0, random_state=0, max_memory=8 * 50 * 50).partial_fit(X[:50])
    kept = sum(map(len, model.kept_points_))
    with pytest.raises(ValueError, match=f"for a step of 50 rows and {kept} kept points"):
        model.partial_fit(X[50:100])
    assert model.n_steps_ == 1
    model.set_params(max_memory=8 * 50 * (50 + kept)).partial_fit(X[50:100])
    assert model.n_steps_ == 2

    def kernel(A, B):
        return np.exp(-(((A[:, None] - B) ** 2).sum(axis=2)))

    model = estimator(lam=1.0, kernel=kernel, random_state=0, max_memory=8 * 50 * 50)
    model.partial_fit(X[:50])
    with pytest.raises(ValueError, match=f"at least {8 * (50 + kept) ** 2} for a step"):
        model.partial_fit(X[50:100])


@BOTH
def test_bad_kernel_later_changes_nothing(estimator):
    def kernel(X, Y):
        K = X @ Y.T
        return np.where(K > 100, np.nan, K)

    model = estimator(lam=0.7, kernel=kernel, random_state=0).partial_fit([[0.0], [1.0]])
    words = "kernel must return finite"
    assert_refuses(model, lambda m: m.partial_fit([[11.0]]), ValueError, words)


def test_thinning_of_an_indefinite_kernel_takes_each_point_once():
    rng = np.random.default_rng(0)
    X = rng.random((30, 2))
    chosen, a = thin_center(-1e10 * (X @ X.T) - 1e10, rng.random(30), 5)
    assert len(np.unique(chosen)) == len(chosen) <= 5 and np.isfinite(a).all()
