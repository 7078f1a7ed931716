"""Eigenvalues above a threshold from a Krylov space: none is missing, or there is no answer."""

import time

import numpy as np
import pytest
from helpers import seeds
from sklearn.datasets import make_blobs
from sklearn.metrics.pairwise import laplacian_kernel, rbf_kernel

from smallvar import SpectralDPMeans
from smallvar._core import linear_algebra
from smallvar._core.linear_algebra import KrylovSpace
from smallvar._kernel import relaxation


@pytest.fixture
def small(monkeypatch):
    """Blocks of four columns, up to half of all columns, from 60 rows."""
    monkeypatch.setattr(linear_algebra, "KRYLOV_COLUMNS", 4)
    monkeypatch.setattr(linear_algebra, "BASIS_SHARE", 2)
    for module in (linear_algebra, relaxation):
        monkeypatch.setattr(module, "LEAST_KRYLOV_ROWS", 60)


def matrix(kind, seed):
    """A symmetric matrix of 150 rows."""
    rng = np.random.default_rng([seed, 5])
    Q = np.linalg.qr(rng.standard_normal((150, 150)))[0]
    if kind == "rbf":
        G = rbf_kernel(make_blobs(150, 3, centers=6, random_state=seed)[0], gamma=0.02)
    elif kind == "laplacian":
        G = laplacian_kernel(make_blobs(150, 3, centers=6, random_state=seed)[0], gamma=0.02)
    elif kind == "copies":  # more of them than a block has columns
        G = Q * np.repeat([9.0, 5.0, 1.0, 0.1], [1, 11, 3, 135]) @ Q.T
    elif kind == "near copies":
        G = Q * np.append(5 + 1e-9 * rng.random(20), rng.random(130)) @ Q.T
    elif kind == "low rank":
        X = rng.standard_normal((150, 4))
        G = X @ X.T
    elif kind == "indefinite":
        G = Q * np.append([30.0, 20.0, -40.0, -39.0], rng.standard_normal(146)) @ Q.T
    elif kind == "bulk":
        G = rng.standard_normal((150, 150))
    else:
        G = np.zeros((150, 150)) if seed % 2 else np.eye(150)
    return (G + G.T) / 2


KINDS = ("rbf", "laplacian", "copies", "near copies", "low rank", "indefinite", "bulk", "flat")


def check(found, G, threshold, least, tolerance):
    """The pairs are those of a dense solver."""
    values, vectors = found
    every = np.linalg.eigvalsh(G)
    norm = np.abs(every).max()
    wanted = max(np.count_nonzero(every > threshold), least)
    np.testing.assert_allclose(values, every[150 - wanted :], rtol=0, atol=tolerance * norm)
    np.testing.assert_allclose(vectors.T @ vectors, np.eye(wanted), rtol=0, atol=1e-12)
    alone = int(
        wanted > np.count_nonzero(every > threshold)
    )  # the value is accurate, not the vector
    residual = np.linalg.norm(G @ vectors - vectors * values, axis=0)
    assert np.all(residual[alone:] <= 1e-12 * norm)


@pytest.mark.parametrize("kind", KINDS)
def test_all_or_no_answer(kind, small):
    answers = []
    for seed in range(6):
        G = matrix(kind, seed)
        every = np.linalg.eigvalsh(G)[::-1]
        space = KrylovSpace(G)
        for k in (1, 2, 5, 9, 15, 20, 40):
            threshold = (every[k - 1] + every[k]) / 2
            if np.abs(every - threshold).min() > 1e-9 * np.abs(every).max():
                found = space.largest(threshold)
                answers.append(found is not None)
                if found is not None:
                    check(found, G, threshold, 0, 1e-12)
            found = KrylovSpace(G).largest(np.inf, k)
            if found is not None:
                check(found, G, np.inf, k, 1e-9)
    if kind in ("rbf", "copies", "indefinite"):  # many are too many
        assert np.mean(answers) > 0.25


@pytest.mark.parametrize("kind", ["rbf", "laplacian", "copies", "indefinite", "bulk"])
def test_the_rest_is_bounded(kind, small):
    """By the trace and the sum of squares, at every size of the basis."""
    G = matrix(kind, 0)
    space = KrylovSpace(G)
    for _ in range(10):
        space._extend()
        Q = space.Q
        p = Q.shape[1]
        np.testing.assert_allclose(Q.T @ Q, np.eye(p), rtol=0, atol=1e-12)
        np.testing.assert_allclose(Q.T @ G @ Q, space.H, rtol=0, atol=1e-12 * np.abs(G).sum())
        rest = np.linalg.qr(Q, mode="complete")[0][:, p:]
        highest = np.linalg.eigvalsh(rest.T @ G @ rest)[-1]
        space._is_complete(np.linalg.eigvalsh(space.H), 1e9, slice(None))
        assert space.rest >= highest - 1e-12 * np.abs(G).sum()
        for s in (highest - 1e-6, highest + 1e-6):
            assert s < 1e-3 or space._exceeds_rest(s) == (s > highest)


@pytest.mark.parametrize("tail", [0.02, 1.0])
def test_a_hidden_eigenvector(tail, small):
    """What no vector of the space has a part of is missed, and the proof says so."""
    rng = np.random.default_rng(0)
    Q = np.linalg.qr(rng.standard_normal((150, 150)))[0]
    values = np.append([10.0, 8.0, 6.0], tail * rng.random(147))
    G = Q * values @ Q.T
    proofs = []
    for hidden in (False, True):
        space = KrylovSpace(G)
        if hidden:
            y = Q[:, 1]
            space.G = G - 8.0 * np.outer(y, y)  # so that products never show it
            space.next = np.linalg.qr(space.next - np.outer(y, y @ space.next))[0]
        exceeds = space._exceeds_rest

        def proof(s, space=space, exceeds=exceeds):
            space.G = G
            proofs.append(exceeds(s))
            return proofs[-1]

        space._exceeds_rest = proof
        found = space.largest(1.5)
        assert (found is None) == hidden
        if not hidden:
            check(found, G, 1.5, 0, 1e-12)
    assert proofs == ([False] if tail < 0.1 else [True, False])


def test_a_threshold_that_is_an_eigenvalue(small):
    """Rounding decides how many of the copies are above."""
    G = matrix("copies", 0)
    found = KrylovSpace(G).largest(5.0 + 1e-15)
    assert found is None or 1 <= len(found[0]) <= 12
    assert KrylovSpace(G).largest(0.0) is None
    assert KrylovSpace(G).largest(-1.0) is None


@pytest.mark.parametrize("kind", KINDS)
def test_without_the_first_vector(kind, small):
    """As the matrix between projections."""
    answers = 0
    for seed in range(4):
        G = matrix(kind, seed)
        u = np.sqrt(np.random.default_rng(seed).random(150) + 0.1)
        u /= np.linalg.norm(u)
        P = np.eye(150) - np.outer(u, u)
        every = np.linalg.eigvalsh(P @ G @ P)[::-1]
        space = KrylovSpace(G, u)
        for k in (1, 3, 8):
            threshold = (every[k - 1] + every[k]) / 2
            if np.abs(every - threshold).min() > 1e-9 * np.abs(every).max():
                found = space.largest(threshold, without_first=True)
                if found is not None:
                    answers += 1
                    check(found, P @ G @ P, threshold, 0, 1e-12)
    assert answers > 3 or kind not in ("rbf", "indefinite")


@seeds(4)
def test_spectral_dpmeans_as_by_the_dense_solver(seed, monkeypatch):
    rng = np.random.default_rng(seed)
    X, _ = make_blobs(700, 3, centers=6, random_state=seed)
    X = X.astype([np.float64, np.float32][seed % 2])
    w = rng.choice([0.0, 0.5, 2.0], size=700) if seed > 1 else None
    options = {"guess": 6, "random_state": 0, "n_init": 3}
    used = []
    largest = KrylovSpace.largest

    def counted(self, *arguments, **more):
        used.append(largest(self, *arguments, **more))
        return used[-1]

    for lam in ("spectrum", 20.0, 1e3, 1e-5):
        for module in (linear_algebra, relaxation):
            monkeypatch.setattr(module, "LEAST_KRYLOV_ROWS", np.inf)
        dense = SpectralDPMeans(lam=lam, **options).fit(X, sample_weight=w)
        for module in (linear_algebra, relaxation):
            monkeypatch.setattr(module, "LEAST_KRYLOV_ROWS", 300)
        monkeypatch.setattr(KrylovSpace, "largest", counted)
        model = SpectralDPMeans(lam=lam, **options).fit(X, sample_weight=w)
        monkeypatch.setattr(KrylovSpace, "largest", largest)
        assert np.array_equal(model.labels_, dense.labels_)
        assert model.lam_ == pytest.approx(dense.lam_, rel=1e-9)
        np.testing.assert_allclose(model.eigenvalues_, dense.eigenvalues_, rtol=1e-9)
        np.testing.assert_allclose(
            model.embedding_ @ model.embedding_.T, dense.embedding_ @ dense.embedding_.T, atol=1e-9
        )
        assert model.bound_ == pytest.approx(dense.bound_, rel=1e-9)
        assert model.objective_ == pytest.approx(dense.objective_, rel=1e-9)
    assert sum(found is not None for found in used) >= 4  # for 1e-5 there are too many
    assert sum(found is None for found in used) >= 2


def test_ctrl_c(interrupt):
    """Within a second, in all parts: 5,000 rows, and a proof by a Cholesky factor."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((5000, 300)) + 3 * np.eye(300)[rng.integers(20, size=5000)]
    K = laplacian_kernel(X[:, :30], gamma=0.02)
    model = SpectralDPMeans(lam=8.0, kernel="precomputed", random_state=0)
    for seconds in (0.3, 0.6):
        interrupt(seconds)
        begin = time.perf_counter()
        with pytest.raises(KeyboardInterrupt):
            model.fit(K)
        assert time.perf_counter() - begin < seconds + 1
    assert not hasattr(model, "labels_")
