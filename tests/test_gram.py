"""Gram matrices: held and blocked products, sums of rows, eigenvalues, the budget."""

import numpy as np
import pytest
from sklearn.metrics.pairwise import pairwise_kernels

from smallvar._kernel.gram import Gram, Kernel, block_size, lowest_eigenvalue

X = np.random.default_rng(0).normal(size=(900, 7))
each_dtype = pytest.mark.parametrize("dtype", [np.float64, np.float32])


@each_dtype
@pytest.mark.parametrize("memory", [1e9, 5e4])
@pytest.mark.parametrize("kernel", ["rbf", "linear", "precomputed", "callable"])
def test_products(kernel, memory, dtype):
    data = X.astype(dtype)
    K = pairwise_kernels(data, metric="linear" if kernel in ("linear", "callable") else "rbf")
    given = (lambda A, B: A @ B.T) if kernel == "callable" else kernel
    gram = Gram(
        Kernel(given),
        np.asfortranarray(K) if kernel == "precomputed" else data,
        memory,
    )
    assert (gram.K is None) == (memory < 1e6 and kernel != "precomputed")
    if gram.K is not None:
        assert gram.K.dtype == dtype and gram.K.flags.c_contiguous
        if kernel in ("rbf", "linear"):
            assert np.array_equal(gram.K, gram.K.T)
    exact = {"rtol": 0, "atol": 1e-12 if dtype == np.float64 else 1e-5}
    rng = np.random.default_rng(1)
    index, other, B = rng.integers(900, size=50), rng.integers(900, size=20), rng.random((900, 3))
    np.testing.assert_allclose(gram.diagonal, np.diag(K), **exact)
    np.testing.assert_allclose(gram.rows(index), K[index], **exact)
    np.testing.assert_allclose(gram.block(index, other), K[np.ix_(index, other)], **exact)
    exact["atol"] *= 1000
    np.testing.assert_allclose(gram @ B, K @ B, **exact)
    np.testing.assert_allclose(gram @ B[:, 0], K @ B[:, 0], **exact)
    label, coefficient = rng.integers(6, size=50), rng.normal(size=50)
    out = rng.random((6, 900))
    expected = out.copy()
    np.add.at(expected, label, coefficient[:, None] * K[index])
    gram.add(out, index, label, coefficient)
    np.testing.assert_allclose(out, expected, **exact)
    gram.add(out, index[:0], label[:0], coefficient[:0])
    np.testing.assert_allclose(out, expected, **exact)
    for array in (gram.rows(index), gram.block(index, other), gram.diagonal):
        assert array.dtype == np.float64


@each_dtype
@pytest.mark.parametrize("shift", [0.0, 1e5])
def test_tiles_of_the_rbf_kernel(dtype, shift):
    """Tiles equal scikit-learn's kernel, also where squares are large for gamma."""
    data = (X + shift).astype(dtype)
    tolerance = 1e-12 if dtype == np.float64 else 1e-6
    for side in (1000, 300, 7):
        rows = data[: 100 * side]
        K = Kernel("rbf", 0.3).matrix(rows, side)
        apart = np.square(rows[:, None].astype(np.float64) - rows[:100]).sum(axis=2)
        assert K.dtype == dtype and np.array_equal(K, K.T)
        np.testing.assert_allclose(K[:, :100], np.exp(-0.3 * apart), rtol=0, atol=tolerance)


@each_dtype
@pytest.mark.parametrize("k", [1, 5, 32, 33])
def test_sums_of_most_rows(k, dtype):
    """Sums over few clusters are products with the whole matrix, over more those of rows."""
    gram = Gram(Kernel("rbf"), X.astype(dtype), 1e9)
    rng = np.random.default_rng(k)
    for index in (np.arange(900), rng.permutation(900)[:500], rng.integers(900, size=700)):
        label, coefficient = rng.integers(k, size=len(index)), rng.normal(size=len(index))
        out = rng.random((k, 900))
        expected = out.copy()
        np.add.at(expected, label, coefficient[:, None] * gram.K[index].astype(np.float64))
        gram.add(out, index, label, coefficient)
        np.testing.assert_allclose(out, expected, rtol=0, atol=1e-11)


def test_the_budget_is_kept():
    assert Gram(Kernel("rbf"), X, 900 * 900 * 8).K is None  # no room for temporary arrays
    assert Gram(Kernel("rbf"), X, 900 * 900 * 8 + 20e6).K is not None
    assert block_size(32e3) == 1000 and block_size(1) == 1
    assert block_size(float("inf")) == block_size(1e12)


@pytest.mark.parametrize("n", [1, 2, 60, 500, 501, 900])
def test_lowest_eigenvalue(n):
    """The lowest eigenvalue is exact for few points, else a useful bound from above."""
    K = X[:n] @ X[:n].T
    kernel = Kernel("precomputed")

    def found(K):
        return lowest_eigenvalue(Gram(kernel, K, 1e9))

    H = np.eye(n) - 1 / n
    for matrix in (K, K - 1.0, K - 3 * np.outer(X[:n, 0], X[:n, 0])):
        low, high = found(matrix)
        values = np.linalg.eigvalsh(H @ matrix @ H)
        rounding = 1e-12 * max(np.abs(values).max(), np.abs(matrix).max())
        assert low >= values[0] - rounding * n
        assert high <= np.abs(values).max() + rounding * n
        if n <= 500:
            np.testing.assert_allclose(
                [low, high], [values[0], np.abs(values).max()], atol=n * rounding
            )
        elif values[0] < -0.01 * values[-1]:
            assert low < 0.5 * values[0]


def test_one_bad_direction_among_many_points():
    """The two parts of the check together find a single negative eigenvalue."""
    rng = np.random.default_rng(0)
    Y = rng.normal(size=(4500, 4))
    v = rng.normal(size=4500)
    K = Y @ Y.T - 0.1 * np.outer(v, v)
    low, _ = lowest_eigenvalue(Gram(Kernel("precomputed"), K, 1e9))
    assert low < -1.0
