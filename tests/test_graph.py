"""PenalizedCut and cut_path: Theorem 5.3, twins, fixed points, known communities, bad input."""

import itertools
import os
import subprocess
import sys
import warnings
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import scipy.sparse
import scipy.sparse.csgraph
import twins.exact
import twins.graph
from helpers import assert_refuses, seeds
from scipy.sparse.linalg import ArpackError
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics import normalized_mutual_info_score
from sklearn.neighbors import kneighbors_graph
from smallvar._sweeps.graph import LinkSweep

from smallvar import PenalizedCut, UnclearNumberWarning, cut_path
from smallvar._graph import cuts, neighbors, network

CUTS = pytest.mark.parametrize("cut", ["normalized", "ratio"])
ALGORITHMS = pytest.mark.parametrize("algorithm", ["multilevel", "incremental", "batch"])


def random_graph(seed, n=None, *, loops=True, alone=True):
    """Groups of nodes; by turns weighted, with self-links, nodes without links, in two parts."""
    rng = np.random.default_rng([seed, 52])
    n = int(rng.integers(2, 36)) if n is None else n
    group = rng.integers(max(2, n // 8), size=n)
    likely = np.where(group[:, None] == group, rng.uniform(0.3, 0.9), rng.uniform(0.02, 0.2))
    A = np.triu(rng.random((n, n)) < likely, 1).astype(float)
    if seed % 2:
        A *= rng.gamma(1.0, size=(n, n))
    if alone and seed % 3 == 0:
        A[rng.integers(n, size=2)] = 0
    if seed % 5 == 0:
        A[: n // 2, n // 2 :] = 0
    A = np.triu(A, 1) + np.triu(A, 1).T
    if alone and seed % 3 == 0:
        nodes = rng.integers(n, size=2)
        A[nodes], A[:, nodes] = 0, 0
    if loops and seed % 4 > 1:
        A += np.diag(rng.random(n) * (rng.random(n) < 0.4))
    return A


def regular_graph(seed, n=60):
    """Every node has six links of weight 1: many clusters cost the same."""
    A, i = np.zeros((n, n)), np.arange(n)
    for step in np.random.default_rng([seed, 8]).choice(np.arange(1, 25), 3, replace=False):
        A[i, (i + step) % n] = A[(i + step) % n, i] = 1.0
    return A


def linked(A):
    """The graph with weak links added between all nodes."""
    return A + 1e-3 * (1 - np.eye(len(A)))


def penalty(seed, A, cut):
    """A penalty in the useful range."""
    factor = np.random.default_rng([seed, 3]).choice([0.2, 0.35, 0.5, 0.65, 0.8])
    return -factor if cut == "normalized" else -factor * max(A.sum(axis=1).mean(), 0.1)


def check(model, A):
    """Assert what holds after every fit."""
    A = np.asarray(A, dtype=float)
    labels, k = model.labels_, model.n_clusters_
    assert labels.dtype == np.int32 and labels.shape == (len(A),)
    assert np.array_equal(labels, twins.exact.first_appearance(labels))
    assert k == labels.max() + 1 == len(np.unique(labels))
    cut = twins.graph.cut_value(A, labels, model.cut)
    assert model.cut_ == pytest.approx(cut, rel=1e-9, abs=1e-12)
    assert model.objective_ == pytest.approx(cut + model.lam_ * k, rel=1e-9, abs=1e-9)
    path = model.objective_path_
    assert path.dtype == np.float64 and path[-1] == model.objective_
    assert len(path) == model.n_iter_
    assert np.all(np.diff(path) <= 1e-9 * max(1, abs(path[0])))
    for i in np.flatnonzero((A - np.diag(np.diag(A))).sum(axis=1) == 0):
        assert (labels == labels[i]).sum() == 1


def fit(A, lam, **options):
    """A fit that may warn about its penalty."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "lam=.* is outside the useful range")
        return PenalizedCut(lam=lam, **{"n_init": 1, **options}).fit(A)


# ----------------------------------------------------------------------------------------
# The theory


@CUTS
@seeds(40)
def test_theorem_5_3(seed, cut):
    """Kernel k-means differs from the cut by a constant and a multiple of K."""
    rng = np.random.default_rng(seed)
    A = linked(random_graph(seed, alone=False))
    labels = twins.exact.without_gaps(rng.integers(int(rng.integers(1, 9)), size=len(A)))[0]
    shift = rng.uniform(0, 3)
    K, w = twins.graph.cut_kernel(A, shift, cut)
    k, n, d = labels.max() + 1, len(A), A.sum(axis=1)
    if cut == "normalized":
        constant, each = shift * n + np.sum(np.diag(A) / d), shift + 1
    else:
        constant, each = shift * n - np.sum(d - np.diag(A)), shift
    value = twins.graph.cut_kernel_error(K, w, labels)
    expected = constant - each * k + twins.graph.cut_value(A, labels, cut)
    np.testing.assert_allclose(value, expected, rtol=1e-9, atol=1e-9)


@CUTS
@seeds(20)
def test_shift_is_the_least_that_is_enough(seed, cut):
    A = linked(random_graph(seed, alone=False, loops=False))
    model = PenalizedCut(lam=None, cut=cut)
    shift = cuts.kernel_shift(network.read_graph(model, A, cut)) - (cut == "normalized")
    K, _ = twins.graph.cut_kernel(A, shift, cut)
    low, high = np.linalg.eigvalsh(K)[[0, -1]]
    assert abs(low) < 1e-9 * max(high, 1) or (cut == "normalized" and shift == 0)


@CUTS
@pytest.mark.parametrize("fails", [False, True])
def test_shift_of_a_large_graph(fails, cut, monkeypatch):
    """By Lanczos runs; where these fail it is a bound, not much too large."""

    def fail(*args, **options):
        raise ArpackError(-9999)

    if fails:
        monkeypatch.setattr(cuts, "eigsh", fail)
    graph = network.read_graph(PenalizedCut(lam=None, cut=cut), planted_graph(600)[0], cut)
    exact = np.linalg.eigvalsh(graph.laplacian().toarray())[-1]
    assert exact <= cuts.kernel_shift(graph) <= exact * (3 if fails else 1 + 1e-5)


# ----------------------------------------------------------------------------------------
# The twins


@CUTS
@seeds(100)
def test_equals_twin(seed, cut):
    A = random_graph(seed) if seed % 10 else regular_graph(seed)
    lam = penalty(seed, A, cut)
    for algorithm in ("incremental", "multilevel"):
        model = fit(A, lam, cut=cut, algorithm=algorithm)
        twin = getattr(twins.graph, f"cut_{algorithm}")(A, lam, cut)
        assert model.labels_.tolist() == twin.labels.tolist()
        assert model.n_iter_ == len(twin.path)
        np.testing.assert_allclose(model.objective_path_, twin.path, rtol=1e-9, atol=1e-9)
        check(model, A)


@CUTS
@seeds(30)
def test_equals_twin_from_given_labels(seed, cut):
    A = random_graph(seed, alone=False)
    lam, init = penalty(seed, A, cut), np.random.default_rng(seed).integers(4, size=len(A))
    start = np.unique(init, return_inverse=True)[1]
    alone = (A - np.diag(np.diag(A))).sum(axis=1) == 0
    start[alone] = len(A) + np.arange(alone.sum())
    start = np.unique(start, return_inverse=True)[1]
    for algorithm in ("incremental", "multilevel"):
        model = fit(A, lam, cut=cut, algorithm=algorithm, init=10 - 3 * init)
        # names count: the twin gets the labels in the order that sorting the names gives
        names = np.unique(10 - 3 * init, return_inverse=True)[1]
        names[alone] = len(A) + np.arange(alone.sum())
        names = np.unique(names, return_inverse=True)[1]
        twin = getattr(twins.graph, f"cut_{algorithm}")(A, lam, cut, names)
        assert model.labels_.tolist() == twin.labels.tolist()
        before = twins.graph.cut_value(A, start, cut) + lam * len(np.unique(start))
        assert model.objective_ <= before + 1e-9
        check(model, A)


@CUTS
@seeds(60)
def test_batch_equals_kernel_twin(seed, cut):
    """The candidates tried are enough to find what all means in the kernel's space give."""
    A = linked(random_graph(seed, alone=False))
    wave = np.sin(1 + np.arange(len(A)))
    A = A * (1 + 0.1 * np.outer(wave, wave)) if seed % 3 else np.ceil(A)  # without ties, and with
    lam = penalty(seed, A, cut) * (1.5 if seed % 3 else 1)
    init = np.random.default_rng(seed).integers(5, size=len(A))
    model = fit(A, lam, cut=cut, algorithm="batch", init=init)
    start = np.unique(init, return_inverse=True)[1]
    twin = twins.graph.cut_batch(A, lam, cut, start)
    assert model.labels_.tolist() == twin.labels.tolist()
    np.testing.assert_allclose(model.objective_path_, twin.path, rtol=1e-9, atol=1e-9)
    assert model.objective_ <= twins.graph.cut_value(A, start, cut) + lam * (start.max() + 1) + 1e-9
    check(model, A)


def test_batch_takes_the_lowest_cluster_at_a_tie():
    """Each of two nodes is as near to the other one as to itself."""
    model = fit(np.array([[0.0, 1.0], [1.0, 0.0]]), -0.2, algorithm="batch", init=[0, 1])
    assert model.labels_.tolist() == [0, 0] and model.objective_ == -0.2


def single_moves(A, labels):
    """All labels after one node moved to a cluster that it has links to, or to a new one."""
    links = A - np.diag(np.diag(A))
    for i in np.flatnonzero(links.sum(axis=1)):
        inside = set(labels[links[i] > 0])
        alone = np.flatnonzero(links.sum(axis=1) == 0)
        for c in {*inside, labels.max() + 1} - {labels[i], *labels[alone]}:
            moved = labels.copy()
            moved[i] = c
            yield moved


@CUTS
@pytest.mark.parametrize("algorithm", ["incremental", "multilevel"])
@seeds(25)
def test_no_single_move_helps(seed, algorithm, cut):
    A = random_graph(seed)
    lam = penalty(seed, A, cut)
    model = fit(A, lam, cut=cut, algorithm=algorithm, n_init=1 + seed % 3, random_state=seed)
    for moved in single_moves(A, model.labels_):
        value = twins.graph.cut_value(A, moved, cut) + lam * len(np.unique(moved))
        assert value >= model.objective_ - 1e-9
    if algorithm == "multilevel":  # nor does a merger of two clusters with links
        for a in range(model.n_clusters_):
            for b in range(a):
                first, second = model.labels_ == a, model.labels_ == b
                if A[first][:, second].any():
                    merged = np.where(first, b, model.labels_)
                    value = twins.graph.cut_value(A, merged, cut) + lam * (model.n_clusters_ - 1)
                    assert value >= model.objective_ - 1e-9


@CUTS
@ALGORITHMS
@seeds(12)
def test_invariants(seed, algorithm, cut):
    A = random_graph(seed)
    lam = penalty(seed, A, cut)
    options = {"cut": cut, "algorithm": algorithm, "n_init": 3, "random_state": 0}
    model = fit(A, lam, **options)
    check(model, A)
    again = fit(A, lam, **options)
    assert np.array_equal(model.labels_, again.labels_)
    first = fit(A, lam, **{**options, "n_init": 1})
    if algorithm != "batch":
        assert model.objective_ <= first.objective_ + 1e-9
    # weights in another unit
    second = fit(4 * A, lam if cut == "normalized" else 4 * lam, **options)
    assert np.array_equal(model.labels_, second.labels_)


# ----------------------------------------------------------------------------------------
# Worked out by hand


def path_graph(n):
    """Nodes in a row."""
    return np.eye(n, k=1) + np.eye(n, k=-1)


def cliques(k, m):
    """k groups of m nodes, in a ring."""
    A = np.kron(np.eye(k), np.ones((m, m))) - np.eye(k * m)
    for c in range(k):
        i, j = m * c, m * ((c + 1) % k) + 1
        A[i, j] = A[j, i] = 1
    return A


def test_two_triangles_by_hand():
    A = np.zeros((6, 6))
    A[:3, :3] = A[3:, 3:] = 1
    np.fill_diagonal(A, 0)
    A[2, 3] = A[3, 2] = 1
    model = PenalizedCut(lam=-0.5).fit(A)
    assert model.labels_.tolist() == [0, 0, 0, 1, 1, 1]
    assert model.cut_ == pytest.approx(2 / 7)
    assert model.objective_ == pytest.approx(2 / 7 - 1)
    model = PenalizedCut(lam=-1.0, cut="ratio", n_init=10, random_state=0).fit(
        A
    )  # one start merges all
    assert model.labels_.tolist() == [0, 0, 0, 1, 1, 1]
    assert model.cut_ == pytest.approx(2 / 3)
    assert PenalizedCut(lam=None).fit(A).lam_ == -0.5
    assert PenalizedCut(lam=None, cut="ratio").fit(A).lam_ == pytest.approx(-0.5 * 14 / 6)


def test_self_links_count_once_in_the_degree():
    A = np.array([[3.0, 1.0], [1.0, 0.0]])
    with pytest.warns(UserWarning, match="outside the useful range"):
        model = PenalizedCut(lam=-1.5).fit(A)
    assert model.n_clusters_ == 2
    assert model.cut_ == pytest.approx(1 / 4 + 1)
    with pytest.warns(UserWarning, match="-2 < lam < 0"):
        model = PenalizedCut(lam=-2.5, cut="ratio").fit(A)
    assert model.cut_ == pytest.approx(2)
    # alone: 1/4 + 1, together: 0; so together from lam = -5/4 on
    assert PenalizedCut(lam=-1.24).fit(A).n_clusters_ == 1


@pytest.mark.parametrize("lam", [-0.9, -0.5, -0.3])
def test_cliques(lam):
    model = PenalizedCut(lam=lam).fit(cliques(6, 5))
    assert model.labels_.tolist() == np.repeat(np.arange(6), 5).tolist()
    assert model.cut_ == pytest.approx(6 * 2 / 22)


@ALGORITHMS
@CUTS
def test_nodes_without_links(cut, algorithm):
    """Nodes without links have a cut of 0 and pay lam each; a self-link changes nothing."""
    A = np.zeros((9, 9))
    A[1:4, 1:4] = A[5:8, 5:8] = 1
    np.fill_diagonal(A, 0)
    A[8, 8] = 2
    model = PenalizedCut(lam=-0.5, cut=cut, algorithm=algorithm, random_state=0).fit(A)
    assert model.labels_.tolist() == [0, 1, 1, 1, 2, 3, 3, 3, 4]
    assert model.cut_ == 0 and model.objective_ == -2.5
    given = PenalizedCut(lam=-0.5, cut=cut, algorithm=algorithm, init=[0, 0, 0, 0, 0, 1, 1, 1, 1])
    assert given.fit(A).labels_.tolist() == [0, 1, 1, 1, 2, 3, 3, 3, 4]


@ALGORITHMS
@CUTS
@pytest.mark.parametrize("n", [1, 4])
def test_no_edges(n, cut, algorithm):
    model = PenalizedCut(lam=None, cut=cut, algorithm=algorithm).fit(np.zeros((n, n)))
    assert model.labels_.tolist() == list(range(n))
    assert model.cut_ == 0 and model.objective_ == model.lam_ * n
    model = PenalizedCut(lam=-0.3, cut=cut, algorithm=algorithm).fit(np.zeros((n, n)))
    assert model.objective_ == pytest.approx(-0.3 * n)


def test_lam_outside_its_range():
    A = cliques(3, 4)
    for cut in ("normalized", "ratio"):
        for lam in (0, 0.5):
            with pytest.warns(UserWarning, match="outside the useful range.*each connected part"):
                model = PenalizedCut(lam=lam, cut=cut).fit(A)
            assert model.n_clusters_ == 1
        low = network.read_graph(PenalizedCut(), A, cut).least_lam(cut)
        if cut == "normalized":  # -1 - f
            d = A.sum(axis=1)
            assert low == pytest.approx(-1 - (2 * A / (d[:, None] + d)).max())
        with pytest.warns(UserWarning, match="outside the useful range.*each node"):
            model = PenalizedCut(lam=low * (1 + 1e-6), cut=cut).fit(A)
        assert model.n_clusters_ == 12
        assert PenalizedCut(lam=low * (1 - 1e-6), cut=cut).fit(A).n_clusters_ < 12


def test_incremental_is_stuck_where_multilevel_is_not():
    """From one cluster no node leaves; from nodes alone it stops early."""
    A = path_graph(40)
    model = PenalizedCut(lam=-0.3, algorithm="incremental", init=np.zeros(40, int)).fit(A)
    assert model.n_clusters_ == 1
    many = PenalizedCut(lam=-0.3, algorithm="incremental").fit(A)
    few = PenalizedCut(lam=-0.3).fit(A)
    assert many.n_clusters_ > few.n_clusters_ > 1
    assert few.objective_ < min(many.objective_, model.objective_)


# ----------------------------------------------------------------------------------------
# Known communities


def planted_graph(n, size=50, inside=12, outside=4, seed=0):
    """Groups of `size` nodes, with so many links of a node inside and outside, about."""
    rng = np.random.default_rng(seed)
    u = np.repeat(np.arange(n), (inside + outside) // 2)
    near = u // size * size + rng.integers(size, size=len(u))
    v = np.where(
        rng.random(len(u)) < inside / (inside + outside), near, rng.integers(n, size=len(u))
    )
    place = rng.permutation(n)
    u, v = place[u[u != v]], place[v[u != v]]
    A = scipy.sparse.csr_array((np.ones(2 * len(u)), (np.r_[u, v], np.r_[v, u])), shape=(n, n))
    A.sum_duplicates()
    truth = np.empty(n, dtype=int)
    truth[place] = np.arange(n) // size
    return A, truth


def read(name):
    """A graph of SMALLVAR_DATA, and its communities."""
    folder = Path(os.environ.get("SMALLVAR_DATA", ""))
    if not Path(folder, f"graph_{name}_edges.csv").exists():
        pytest.skip(f"SMALLVAR_DATA is not a folder with graph_{name}_edges.csv")
    table = {"delimiter": ",", "skiprows": 1, "dtype": int}
    u, v = np.loadtxt(folder / f"graph_{name}_edges.csv", **table)[:, :2].T
    truth = np.loadtxt(folder / f"graph_{name}_labels.csv", **table)[:, 1]
    A = np.zeros((len(truth), len(truth)))
    A[u, v] = A[v, u] = 1
    return A, truth


# Louvain: networkx 3.6, median over 20 seeds
@pytest.mark.parametrize(
    ("name", "louvain", "plateau"), [("karate", 0.498, 0.56), ("football", 0.885, 0.9)]
)
def test_known_communities(name, louvain, plateau):
    A, truth = read(name)
    scores = [
        normalized_mutual_info_score(truth, PenalizedCut(lam=lam, random_state=0).fit(A).labels_)
        for lam in np.linspace(-0.9, -0.1, 33)
    ]
    assert max(scores) > louvain + 0.02
    path = cut_path(A, random_state=0)
    assert normalized_mutual_info_score(truth, path.labels()) > plateau
    fitted = PenalizedCut(lam=path.lam, random_state=0).fit(A)
    assert normalized_mutual_info_score(truth, fitted.labels_) > louvain


@CUTS
def test_planted_groups_are_found(cut):
    A, truth = planted_graph(2000)
    model = PenalizedCut(lam=None, cut=cut).fit(A)
    assert normalized_mutual_info_score(truth, model.labels_) > 0.97


# ----------------------------------------------------------------------------------------
# The path over lam


@CUTS
def test_path(cut):
    A = random_graph(4, 40)
    path = cut_path(A, cut=cut, n_lams=20, random_state=0)
    assert len(path.lams) == 20
    assert (np.diff(path.lams) > 0).all() and path.lams[-1] < 0
    assert (np.diff(path.n_clusters) > 0).all()
    for k, error in zip(path.n_clusters, path.cut, strict=True):
        labels = path.labels(k)
        assert k == labels.max() + 1
        assert error == pytest.approx(twins.graph.cut_value(A, labels, cut))
    best = [path.at(lam) for lam in path.lams]
    assert (np.diff(best) <= 0).all()
    for k, lam in zip(best, path.lams, strict=True):
        value = path.cut[path.n_clusters == k][0]
        assert value + lam * k <= fit(A, lam, cut=cut).objective_ + 1e-9
        i = int(np.flatnonzero(path.counts == k)[0])
        assert path.lam_low[i] <= lam <= path.lam_high[i]
    k = path.best
    i = path.counts.tolist().index(k)
    low, high, value = path.lam_low[i], path.lam_high[i], path.error[i]
    assert low < path.lam == pytest.approx((low + high) / 2)
    assert 1 < k < 40 and np.array_equal(path.labels(), path.labels(k))
    for edge, step in ((low, 1e-6), (high, -1e-6)):
        within = (path.cut + (edge + step) * path.n_clusters).min()
        assert within == pytest.approx(value + (edge + step) * k)
    if low > path.lams[0] + 1e-3:
        beyond = (path.cut + (low - 1e-3) * path.n_clusters).min()
        assert beyond < value + (low - 1e-3) * k


def test_path_finds_the_groups():
    path = cut_path(cliques(7, 6))
    assert path.labels().tolist() == np.repeat(np.arange(7), 6).tolist()
    given = cut_path(cliques(7, 6), [-0.2, -0.8, -0.5])
    assert given.lams.tolist() == [-0.8, -0.5, -0.2]
    assert given.n_clusters.tolist() == [7]
    assert (given.lam_low, given.lam_high) == (-0.8, -0.2)
    assert (given.best, given.lam) == (7, -0.5)
    nothing = cut_path(np.zeros((3, 3)))
    assert np.isnan(nothing.lam) and nothing.best is None
    with pytest.raises(ValueError, match="k must be given"):
        nothing.labels()
    with pytest.raises(ValueError, match="k must be one of \\[7\\], got k=3"):
        given.labels(3)


@pytest.mark.parametrize("given", [False, True])
@seeds(40)
def test_link_sweeps_equal_twin(seed, given):
    """The first sweep, and later ones over neighbors of moved nodes, equal the twin's."""
    A = random_graph(seed, loops=False)
    wave = np.sin(1 + np.arange(len(A)))
    A = A * (1 + 0.1 * np.outer(wave, wave))  # no ties
    graph = network.read_graph(PenalizedCut(), A, "normalized")
    lam = np.random.default_rng([seed, 7]).choice([0.3, 1.0, 4.0]) / max(A.sum(), 1e-300)
    labels = np.arange(len(A), dtype=np.int32)
    if given:
        labels = np.random.default_rng(seed).integers(2, size=len(A)).astype(np.int32)
    expected = twins.graph.link_sweeps(A, lam, labels)
    sweep = LinkSweep(graph.arrays, labels, lam, 1e-12)
    for number, (after, moved) in enumerate(expected):
        assert (sweep.sweep_again(None) if number else sweep.sweep(None)) == moved
        assert labels.tolist() == after.tolist()
    assert sweep.sweep_again(None) == 0
    least = twins.graph.link_value(A, A.sum(axis=1), labels, lam)
    assert sweep.objective() == pytest.approx(least, rel=1e-9, abs=1e-12)


@seeds(20)
def test_graph_of_the_clusters(seed):
    A = random_graph(seed)
    graph = network.read_graph(PenalizedCut(), A, "normalized")
    labels = np.random.default_rng(seed).integers(5, size=len(A))
    labels = np.unique(labels, return_inverse=True)[1].astype(np.int32)
    k = labels.max() + 1
    Z = np.eye(k)[labels]
    links = Z.T @ (A - np.diag(np.diag(A))) @ Z
    np.fill_diagonal(links, 0)
    whole = graph.contracted(labels, k)
    np.testing.assert_allclose(whole.adjacency().toarray(), links, rtol=1e-12)
    np.testing.assert_allclose(whole.out, links.sum(axis=1), rtol=1e-12, atol=1e-300)
    np.testing.assert_allclose(whole.size, Z.T @ A.sum(axis=1), rtol=1e-12)


@CUTS
@seeds(20)
def test_clusterings_know_their_cut_and_length(seed, cut):
    A = random_graph(seed)
    graph = network.read_graph(PenalizedCut(), A, cut)
    length = cuts.LinkDescription(graph)
    labels = np.random.default_rng(seed).integers(5, size=len(A))
    labels = np.unique(labels, return_inverse=True)[1].astype(np.int32)
    actual = cuts.CutClustering.of(graph, labels, length)
    assert actual.k == labels.max() + 1
    assert actual.cut == pytest.approx(twins.graph.cut_value(A, labels, cut), abs=1e-12)
    assert actual.length == length(labels)


@seeds(30)
def test_description_length_equals_twin(seed):
    A = random_graph(seed)
    graph = network.read_graph(PenalizedCut(), A, "normalized")
    length = cuts.LinkDescription(graph)
    rng = np.random.default_rng(seed)
    for k in (1, 2, 5, len(A)):
        labels = rng.integers(k, size=len(A)).astype(np.int32)
        if graph.linked.any():
            expected = twins.graph.description_length(A, labels)
            assert length(labels) == pytest.approx(expected, rel=1e-9, abs=1e-9)
        else:
            assert length(labels) == 0.0


def test_auto_finds_planted_groups():
    for n, inside, outside in ((400, 12, 4), (400, 10, 10), (1000, 16, 2)):
        A, truth = planted_graph(n, inside=inside, outside=outside)
        for cut in ("normalized", "ratio"):
            model = PenalizedCut(cut=cut, random_state=0).fit(A)
            assert normalized_mutual_info_score(truth, model.labels_) > 0.95
            check(model, A.toarray())
            path = model.path_
            assert path.best == path.ranking[0] == path.n_clusters[path.criterion.argmin()]
            assert (np.diff(path.n_clusters) > 0).all()
            for k, value in zip(path.n_clusters, path.cut, strict=True):
                assert len(np.unique(path.labels(k))) == k
                expected = twins.graph.cut_value(A.toarray(), path.labels(k), cut)
                assert value == pytest.approx(expected)
            again = PenalizedCut(lam=model.lam_, cut=cut, init=model.labels_, n_init=1).fit(A)
            assert np.array_equal(again.labels_, model.labels_)  # a fixed point


@seeds(10)
def test_auto_finds_nothing_in_random_links(seed):
    rng = np.random.default_rng([seed, 12])
    A = np.triu(rng.random((300, 300)) < 8 / 300, 1).astype(float)
    A += A.T
    parts = scipy.sparse.csgraph.connected_components(A)[0]
    model = PenalizedCut(random_state=0).fit(A)
    assert model.n_clusters_ == parts
    assert model.cut_ == 0


def test_more_starts_only_where_descents_disagree():
    """Clear groups are found by the first three; in a mixture every start is made, and helps."""
    for inside, outside, agree in ((10, 4, True), (6, 5, False)):
        A, _ = planted_graph(1000, inside=inside, outside=outside, seed=1)
        graph = network.read_graph(PenalizedCut(), A, "normalized")
        length = cuts.LinkDescription(graph)
        counts, values = [], []
        for n_init in (1, 6):
            model = PenalizedCut(n_init=n_init)
            rng = np.random.RandomState(0)
            clusterings = cuts.search_communities(model, graph, length, None, rng)
            counts.append(len(clusterings))
            values.append(min(first.length for first in clusterings))
            again = cuts.search_communities(model, graph, length, None, np.random.RandomState(0))
            for first, second in zip(clusterings, again, strict=True):
                assert first.length == second.length
                assert np.array_equal(first.labels, second.labels)
        assert (counts[0] == counts[1]) == agree
        assert values[1] == values[0] if agree else values[1] < values[0]


@pytest.mark.parametrize("cut", ["normalized", "ratio"])
def test_exact_number(cut):
    """So many clusters as asked for, at a fixed point or without a move; the planted ones, too."""
    A, truth = planted_graph(300, inside=14, outside=3)
    whole = scipy.sparse.csgraph.connected_components(A)[0]
    true = len(np.unique(truth)) + whole - 1
    for k in (whole, whole + 1, true - 1, true, true + 1, 77, 299, 300):
        model = PenalizedCut(n_clusters=k, cut=cut, random_state=0).fit(A)
        assert model.n_clusters_ == model.path_.best == k
        assert np.array_equal(np.unique(model.labels_), np.arange(k))
        assert np.array_equal(model.labels_, model.path_.labels(k))
        assert model.cut_ == pytest.approx(twins.graph.cut_value(A.toarray(), model.labels_, cut))
        assert model.objective_ == pytest.approx(model.cut_ + model.lam_ * k)
        again = PenalizedCut(n_clusters=k, cut=cut, random_state=0).fit(A * 4.0)
        assert np.array_equal(again.labels_, model.labels_)
        if k == true:
            assert normalized_mutual_info_score(truth, model.labels_) > 0.95
    for k, words in ((301, "n_clusters must be <= 300, the number of nodes, got 301"),
                     (0, "n_clusters must be >= 1, got 0")):  # fmt: skip
        with pytest.raises(ValueError, match=words):
            PenalizedCut(n_clusters=k, cut=cut).fit(A)
    apart = scipy.sparse.block_diag([A, np.ones((3, 3)), np.zeros((1, 1))]).tocsr()
    for k in range(1, whole + 3):  # no more than components: without a cut
        model = PenalizedCut(n_clusters=k, cut=cut).fit(apart)
        assert model.n_clusters_ == k and model.cut_ == 0.0
        assert len(set(model.labels_[-4:])) == (2 if k == whole + 2 else 1)  # the smallest merge


@seeds(10)
def test_every_number_of_small_graphs(seed):
    A = random_graph(seed)
    for k in range(1, len(A) + 1):
        model = PenalizedCut(n_clusters=k, random_state=seed).fit(A)
        assert np.array_equal(np.unique(model.labels_), np.arange(k))


def test_number_and_penalty():
    A = cliques(3, 4)
    for lam in (-0.5, None, "plateau"):
        with pytest.raises(ValueError, match="lam must be 'auto' if n_clusters is a number"):
            PenalizedCut(lam=lam, n_clusters=2).fit(A)
    with pytest.raises(TypeError, match="n_clusters must not be given"):
        cut_path(A, n_clusters=2)


def test_mergers_take_the_cheapest_pair():
    """As a loop over all pairs finds it, in plain numpy."""
    A, _ = planted_graph(40, size=10, inside=6, outside=3)
    graph = network.read_graph(PenalizedCut(), A, "normalized")
    labels = np.arange(len(graph), dtype=np.int32)
    for k in range(len(graph) - 1, 30, -1):
        values = {}
        for a, b in itertools.combinations(range(k + 1), 2):
            if A.toarray()[np.ix_(labels == a, labels == b)].any():
                merged = np.where(labels == b, a, labels)
                merged = np.unique(merged, return_inverse=True)[1].astype(np.int32)
                values[a, b] = twins.graph.cut_value(A.toarray(), merged, "normalized")
        labels = cuts.merged_to(graph, labels, k)
        found = twins.graph.cut_value(A.toarray(), labels, "normalized")
        assert found == pytest.approx(min(values.values()))


def test_auto_knows_no_unit():
    A, _ = planted_graph(300)
    expected = PenalizedCut(random_state=0).fit(A)
    for unit in (0.25, 1024.0):
        model = PenalizedCut(random_state=0).fit(A * unit)
        assert np.array_equal(model.labels_, expected.labels_)
        assert model.lam_ == expected.lam_


# ----------------------------------------------------------------------------------------
# Points that are linked to their neighbors


def neighbor_graph(X, k=10):
    """Each point linked to its k nearest neighbors; a link counts twice if it is both ways."""
    A = kneighbors_graph(X, k)
    return scipy.sparse.csr_array(A + A.T)


def test_a_network_without_shorter_groups_is_not_clear():
    """The number that is best over the widest range of penalties is named; not for points."""
    networkx = pytest.importorskip("networkx")
    words = "the number of clusters, 1, is not clear.* but 3 are best over the widest range"
    with pytest.warns(UnclearNumberWarning, match=words):
        model = PenalizedCut(random_state=0).fit(networkx.karate_club_graph())
    assert model.n_clusters_ == 1
    assert PenalizedCut(lam="plateau").fit(networkx.karate_club_graph()).n_clusters_ == 3
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        PenalizedCut(random_state=0).fit(neighbor_graph(np.random.default_rng(0).random((200, 3))))


@seeds(4)
def test_auto_leaves_a_cloud_of_points_whole(seed):
    """Any cut of a body of points shortens the description of its links."""
    rng = np.random.default_rng([seed, 3])
    for n, d in ((200, 3), (400, 5)):
        for X in (rng.random((n, d)), rng.standard_normal((n, d))):
            model = PenalizedCut(random_state=0).fit(neighbor_graph(X))
            assert model.n_clusters_ == model.path_.best == model.path_.ranking[0] == 1
            shortest = model.path_.n_clusters[model.path_.criterion.argmin()]
            assert shortest > 1 and shortest == model.path_.ranking[1]


@seeds(4)
@CUTS
def test_auto_finds_clouds_of_points(seed, cut):
    rng = np.random.default_rng([seed, 4])
    truth = rng.permutation(np.arange(320) % 4)
    X = 4.5 * np.eye(4, 3)[truth] + rng.standard_normal((320, 3))
    A = neighbor_graph(X)
    model = PenalizedCut(cut=cut, random_state=0).fit(A)
    assert model.n_clusters_ == 4
    assert normalized_mutual_info_score(truth, model.labels_) > 0.85
    check(model, A.toarray())
    for same in (A * 0.375, A * 64.0):  # no unit matters
        again = PenalizedCut(cut=cut, random_state=0).fit(same)
        assert np.array_equal(again.labels_, model.labels_)


def test_graphs_of_neighbors_are_told_from_networks():
    """Not by degrees alone, nor by triangles alone, which meetings of several nodes make, too."""

    def told(A, truth):
        graph = network.read_graph(PenalizedCut(), A, "normalized")
        return neighbors.links_neighbors(graph, truth.astype(np.int32))

    rng = np.random.default_rng(0)
    X = rng.random((300, 2))
    halves = X[:, 0] > 0.5
    for A in (neighbor_graph(X), kneighbors_graph(X, 5).maximum(kneighbors_graph(X, 5).T)):
        assert told(A, halves) and told(A * 8.0, halves)
    assert not told(neighbor_graph(X + 5.0 * halves[:, None]), halves)  # there is no link between
    assert not told(*planted_graph(300))
    truth, A = np.arange(320) // 40, np.zeros((320, 320))
    for meeting in range(500):
        groups = [meeting % 8] if meeting % 3 else rng.choice(8, 2, replace=False)
        who = rng.choice(np.flatnonzero(np.isin(truth, groups)), 4, replace=False)
        A[np.ix_(who, who)] = 1.0
    np.fill_diagonal(A, 0.0)
    assert not told(A, truth)
    assert normalized_mutual_info_score(truth, PenalizedCut().fit(A).labels_) > 0.9
    ring = sum(np.roll(np.eye(300), step, axis=1) for step in (1, 47, 101, 127, 140))
    assert not told(ring + ring.T, np.arange(300) // 30)  # equal degrees, but no triangles


def test_dimension_and_links_of_a_cut():
    """Of uniform points, but for their border, and of the links across a plane through the cube."""
    rng = np.random.default_rng(1)
    for d, low, high in ((1, 1.0, 1.4), (2, 1.8, 2.4), (3, 2.6, 3.3), (5, 3.9, 5.2)):
        X = rng.random((2000, d))
        graph = network.read_graph(PenalizedCut(), neighbor_graph(X), "normalized")
        assert low < neighbors.dimension(graph) < high
        labels = (X[:, 0] > 0.5).astype(np.int32)
        scale = cuts.LinkDescription(graph).scale
        bodies = neighbors._Bodies(graph, labels, scale, float(d))
        ratio, apart = bodies.ratio(0, 1)
        assert 0.6 < ratio < 1.2 and not apart
        assert ratio == pytest.approx(bodies.ratio_around(0))
    full = network.read_graph(PenalizedCut(), np.ones((9, 9)), "normalized")
    assert neighbors.dimension(full) == 1.0
    star = np.zeros((9, 9))
    star[0, 1:] = star[1:, 0] = 1.0
    assert neighbors.dimension(network.read_graph(PenalizedCut(), star, "normalized")) == np.inf


def test_bodies_count_links():
    """After mergers, as from the labels."""
    rng = np.random.default_rng(2)
    A = neighbor_graph(rng.random((120, 2)), 6)
    graph = network.read_graph(PenalizedCut(), A, "normalized")
    labels = rng.integers(8, size=120).astype(np.int32)
    bodies = neighbors._Bodies(graph, labels, 2.0, 2.0)
    for a, b in ((1, 4), (2, 7), (1, 2)):
        bodies.unite(a, b)
        labels[labels == b] = a
    expected = neighbors._Bodies(graph, labels, 2.0, 2.0)
    assert bodies.size[np.unique(labels)].tolist() == expected.size[expected.size > 0].tolist()
    for a in np.unique(labels):
        assert bodies.links[a] == pytest.approx(expected.links[a])
        assert bodies.within[a] == pytest.approx(expected.within[a])
        assert bodies.ratio_around(a) == pytest.approx(expected.ratio_around(a))


@pytest.mark.parametrize("lam", ["auto", "plateau"])
@CUTS
def test_choice_of_small_graphs(lam, cut):
    for A, k in (
        (np.zeros((1, 1)), 1),
        (np.zeros((4, 4)), 4),
        (np.eye(3), 3),
        (np.eye(2)[::-1], 1),
        (np.ones((3, 3)), 1),
    ):
        model = PenalizedCut(lam=lam, cut=cut).fit(A)
        assert model.n_clusters_ == k
        check(model, A)
    model = PenalizedCut(lam=lam, cut=cut, random_state=0).fit(cliques(7, 6))
    assert model.labels_.tolist() == np.repeat(np.arange(7), 6).tolist()
    given = PenalizedCut(lam=lam, cut=cut, init=np.arange(42) % 2).fit(cliques(7, 6))
    assert given.n_clusters_ == 7
    assert not hasattr(model.set_params(lam=-0.5).fit(GOOD), "path_")


def test_plateaus_are_ranked():
    path = cut_path(random_graph(4, 40), n_lams=20, random_state=0)
    at = np.searchsorted(path.counts, path.ranking)
    low, high = path.lam_low[at], path.lam_high[at]
    assert (low < high).all() and (high <= 0).all()
    widths = (low / high).tolist()
    assert len(widths) > 1 and widths == sorted(widths, reverse=True)
    assert path.best in path.ranking
    assert len(cut_path(cliques(4, 4), [-0.5, 0.0]).ranking) == 1
    graph = network.read_graph(PenalizedCut(), random_graph(4, 40), "normalized")
    length = cuts.LinkDescription(graph)
    assert path.criterion.tolist() == [length(path.labels(k)) for k in path.counts]
    model = PenalizedCut(lam="plateau", random_state=0).fit(random_graph(4, 40))
    assert model.path_.best == model.path_.ranking[0] and model.path_.lam == model.lam_


def test_path_refuses():
    A = cliques(2, 3)
    with pytest.raises(TypeError, match="lam must not be given"):
        cut_path(A, lam=-0.5)
    with pytest.raises(ValueError, match="n_lams must be >= 1"):
        cut_path(A, n_lams=0)
    with pytest.raises(ValueError, match="cut must be one of"):
        cut_path(A, cut="min")
    with pytest.raises(ValueError, match="must be a square"):
        cut_path(np.ones((2, 3)))


# ----------------------------------------------------------------------------------------
# Input of every kind


def test_every_kind_of_matrix():
    A = np.round(random_graph(4, 40))
    expected = PenalizedCut(lam=None, n_init=1).fit(A).labels_
    rows = np.flatnonzero(A.sum(axis=1))[:1]
    kinds = [A.astype(t) for t in ("float32", "int64", "uint8", "bool")]
    kinds += [A.tolist(), np.asfortranarray(A), pd.DataFrame(A)]
    for name in ("csr", "csc", "coo", "lil", "dok", "bsr", "dia"):
        for kind in ("array", "matrix"):
            kinds.append(getattr(scipy.sparse, f"{name}_{kind}")(A))
    wide = scipy.sparse.csr_array(A)
    wide.indptr, wide.indices = wide.indptr.astype(np.int64), wide.indices.astype(np.int64)
    kinds.append(wide)
    for X in kinds:
        assert np.array_equal(PenalizedCut(lam=None, n_init=1).fit(X).labels_, expected), type(X)
    assert rows.size


def test_explicit_zeros_duplicates_and_unsorted_rows():
    A = scipy.sparse.coo_array(random_graph(5, 30))
    expected = PenalizedCut(lam=None, n_init=1).fit(A).labels_
    u, v = np.r_[A.row, A.row, [0, 29]], np.r_[A.col, A.col, [29, 0]]
    data = np.r_[0.25 * A.data, 0.75 * A.data, [0, 0]]
    order = np.random.default_rng(0).permutation(len(u))
    X = scipy.sparse.coo_array((data[order], (u[order], v[order])), shape=A.shape)
    assert np.array_equal(PenalizedCut(lam=None, n_init=1).fit(X).labels_, expected)
    count = np.bincount(X.row, minlength=30)
    place = np.argsort(X.row, kind="stable")
    indptr = np.r_[0, np.cumsum(count)]
    X = scipy.sparse.csr_array((X.data[place], X.col[place], indptr), shape=A.shape)
    copies = X.data.copy(), X.indices.copy(), X.indptr.copy()
    for array in (X.data, X.indices, X.indptr):
        array.flags.writeable = False
    assert np.array_equal(PenalizedCut(lam=None, n_init=1).fit(X).labels_, expected)
    for array, copy in zip((X.data, X.indices, X.indptr), copies, strict=True):
        assert np.array_equal(array, copy)


def test_names_of_a_data_frame():
    A = cliques(2, 3)
    names = list("abcdef")
    model = PenalizedCut(lam=None).fit(pd.DataFrame(A, index=names, columns=names))
    assert model.feature_names_in_.tolist() == names and model.n_features_in_ == 6


def test_networkx():
    networkx = pytest.importorskip("networkx")
    G = networkx.Graph()
    G.add_edge("x", "y", weight=2.0)
    G.add_edges_from([("y", "z"), ("z", "x"), ("p", "q"), ("q", "r"), ("r", "p")])
    G.add_edge("r", "x", weight=0.1)
    G.add_node("alone")
    model = PenalizedCut(lam=None).fit(G)
    groups = dict(zip(G, model.labels_.tolist(), strict=True))
    assert groups == {"x": 0, "y": 0, "z": 0, "p": 1, "q": 1, "r": 1, "alone": 2}
    assert model.cut_ == pytest.approx(0.1 / 8.1 + 0.1 / 6.1)
    assert model.n_features_in_ == 7
    assert np.array_equal(cut_path(G, [-0.5]).labels(3), model.labels_)
    many = networkx.MultiGraph(G)
    many.add_edge("x", "y", weight=1.0)
    assert PenalizedCut(lam=None).fit(many).cut_ == pytest.approx(0.1 / 10.1 + 0.1 / 6.1)
    with pytest.raises(ValueError, match="must be an undirected graph"):
        PenalizedCut(lam=None).fit(networkx.DiGraph(G))
    with pytest.raises(ValueError, match="must have at least 1 node"):
        PenalizedCut(lam=None).fit(networkx.Graph())
    G.add_edge("x", "y", weight="heavy")
    with pytest.raises(ValueError, match="must have numbers as its edges' weights"):
        PenalizedCut(lam=None).fit(G)


def test_networkx_is_not_imported():
    code = (
        "import sys, numpy as np, smallvar; smallvar.PenalizedCut(lam=None).fit(np.eye(2)[::-1]);"
        "assert 'networkx' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


# ----------------------------------------------------------------------------------------
# Bad input

GOOD = cliques(2, 3)


def changed(i, j, value, kind=float):
    """A valid matrix with one entry changed."""
    A = GOOD.astype(kind)
    A[i, j] = value
    return A


@pytest.mark.parametrize(
    ("X", "message"),
    [
        (GOOD[:5], r"must be a square adjacency matrix, got shape \(5, 6\)"),
        (scipy.sparse.csr_array(GOOD[:5]), "must be a square adjacency matrix"),
        (-GOOD, "must be >= 0, got -1: Negative values in data"),
        (scipy.sparse.coo_array(-GOOD), "must be >= 0"),
        (changed(0, 1, 1 + 1e-9), "must be a symmetric adjacency matrix, got entries 1e-09 apart"),
        (scipy.sparse.csr_array(changed(0, 5, 1)), "must be a symmetric"),
        (changed(0, 1, np.nan), "NaN"),
        (changed(0, 1, np.inf), "inf"),
        (scipy.sparse.csr_array(changed(0, 1, np.nan)), "NaN"),
        (changed(0, 1, 1j, complex), "[Cc]omplex"),
        (scipy.sparse.csr_array(GOOD.astype(complex)), "[Cc]omplex"),
        (changed(0, 1, "a", object), "X must be numbers, got column 1"),
        (np.zeros((0, 0)), "0 sample"),
        (GOOD[0], "2D array"),
        (1e200 * GOOD, "1e140"),
    ],
)
def test_bad_matrices(X, message):
    model = PenalizedCut(lam=None).fit(cliques(3, 4))
    assert_refuses(model, lambda m: m.fit(X), ValueError, message)


def test_asymmetry_by_rounding_is_taken():
    expected = PenalizedCut(lam=None).fit(GOOD).labels_
    assert np.array_equal(PenalizedCut(lam=None).fit(changed(0, 1, 1 + 1e-11)).labels_, expected)
    single = changed(0, 1, np.float32(1 + 2e-7), np.float32)
    assert np.array_equal(PenalizedCut(lam=None).fit(single).labels_, expected)


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"lam": np.inf}, ValueError, "lam must be finite, got inf"),
        ({"lam": "best"}, ValueError, "lam must be one of 'auto', 'plateau', got 'best'"),
        (
            {"lam": "auto", "algorithm": "batch"},
            ValueError,
            "lam must be a number or None with algorithm='batch', got 'auto'",
        ),
        ({"cut": "min"}, ValueError, "cut must be one of 'normalized', 'ratio', got 'min'"),
        ({"init": [0, 1]}, ValueError, r"init must have shape \(6,\), got \(2,\)"),
        ({"init": np.zeros((6, 1), int)}, ValueError, "init must have shape"),
        ({"init": np.zeros(6)}, TypeError, "init must be integer labels or None"),
        ({"init": "data"}, ValueError, "init must have shape"),
    ],
)
def test_bad_parameters(options, error, message):
    assert_refuses(PenalizedCut(**options), lambda m: m.fit(GOOD), error, message)


@ALGORITHMS
def test_max_iter(algorithm):
    A, init = planted_graph(500)
    init[:100] = 0
    model = PenalizedCut(lam=None, algorithm=algorithm, max_iter=1, init=init)
    with pytest.warns(ConvergenceWarning, match=r"in max_iter=1 sweeps; increase max_iter\.$"):
        model.fit(A)
    check(model, A.toarray())


def test_tags_and_predict():
    model = PenalizedCut()
    tags = model.__sklearn_tags__().input_tags
    assert tags.pairwise and tags.positive_only and tags.sparse
    assert not hasattr(model, "predict")
    assert np.array_equal(model.fit_predict(GOOD), model.labels_)


# ----------------------------------------------------------------------------------------
# Found by hand


@pytest.mark.timeout(60)
def test_costs_that_nearly_tie_end():
    """Clusters whose costs are about the width of a tie apart, the node's own among them."""
    tie = 1e-12 * 6.5
    A, init = np.zeros((27, 27)), np.zeros(27, dtype=int)
    init[2] = 1
    for c in range(4):
        m = 3 + 6 * c + np.arange(6)
        init[m] = 2 + c
        A[np.ix_(m, m)] = 1 - np.eye(6)
        for t in range(3):
            weight = 1.0 + (tie if t == 2 else -1.5 * tie if t == 1 else 0.0) * (c == 0)
            A[t, m[t]] = A[m[t], t] = weight
    model = PenalizedCut(lam=-0.5, cut="ratio", algorithm="incremental", init=init, n_init=1).fit(A)
    check(model, A)


def test_range_of_the_ratio_cut_knows_nodes_without_a_link():
    A = np.zeros((22, 22))
    A[0, 2:12] = A[1, 12:22] = A[2, 12] = 1  # two stars, leaf to leaf
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        single = PenalizedCut(lam=-8.0, cut="ratio").fit(A + A.T)
        # the hubs are better off together, but no single node gets there
        init = np.concatenate([[0], np.arange(21)])
        both = PenalizedCut(lam=-8.0, cut="ratio", init=init).fit(A + A.T)
    assert both.labels_[0] == both.labels_[1]
    assert both.objective_ < single.objective_


def test_path_warns_of_max_iter():
    A, _ = planted_graph(500)
    with pytest.warns(ConvergenceWarning, match="did not converge in max_iter=1"):
        cut_path(A, n_lams=2, max_iter=1)


@pytest.mark.parametrize(
    "lams", [3.0, 1j, {}, "x", [10**400], [[1.0]], [], [np.nan], [-np.inf], None]
)
def test_bad_penalties_of_the_cut_path(lams):
    if lams is None:
        assert len(cut_path(np.ones((3, 3)), lams, n_lams=2).lams) == 2
        return
    with pytest.raises(ValueError, match="lams must be a sequence of finite numbers"):
        cut_path(np.ones((3, 3)), lams)
