"""Gram matrices of kernels, held in memory or computed again block by block."""

import math
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.linalg import eigvalsh, eigvalsh_tridiagonal
from scipy.sparse import csr_array, issparse
from scipy.spatial.distance import cdist, pdist, squareform
from sklearn.metrics.pairwise import (
    KERNEL_PARAMS,
    kernel_metrics,
    pairwise_distances,
    pairwise_kernels,
)
from sklearn.utils.validation import check_is_fitted

from smallvar._core.estimator import Estimator
from smallvar._core.validation import DTYPES, check_data, check_number, check_symmetric, shown
from smallvar._sweeps.sums import round_origin

BLOCK = 1 << 19  # elements of a block of rows: a few megabytes, for the cache
TEMPORARY = 32  # bytes for each of these elements: temporaries, the element, its float64 copy
DENSE = 500  # rows up to which all eigenvalues are computed, to find negative ones
STEPS, FEW_STEPS, MANY = 40, 8, 4000  # Lanczos steps beyond that; few for more rows than MANY
# kernels exp(-gamma distance), whose gamma has the unit of one over that distance
DISTANCES = {"rbf": "sqeuclidean", "laplacian": "cityblock"}
# rows are subtracted before they are squared where squares of rows exceed REMOTE times their
# squared spread, or LARGE / gamma: the rounding of so large squares shows in K
REMOTE = 1e6
LARGE = 300.0
FEW_LABELS = 32  # a product of them all takes less than copies of the rows by their label
TILE = 256  # rows and columns of a tile of the "rbf" kernel, which then stays in the cache
LOST = 1e10  # the same ratio, beyond which at most 6 digits of a distance are left
# of the largest eigenvalue: Lanczos ends at so small a residual; a kernel, centered, is indefinite
# with one below -100 times this (or the epsilon of the type)
ZERO_EIGENVALUE = 1e-10
EQUAL_ROWS = 1e-10  # of the largest squared distance: sparse rows that are closer are copies
# kernels of products: what is left of a distance is their rounding, relative to squares of rows
PRODUCTS = ("linear", "poly", "polynomial", "cosine")
SHARE = 0.3  # gamma times the typical distance, where gamma is not given
SAMPLE = 500  # rows that the typical distance is taken from


def batches(n, size):
    """Slices of ``size`` that cover n."""
    return (slice(start, min(start + size, n)) for start in range(0, n, size))


def typical_distance(X, weight, metric):
    """Median distance between rows, 0 if all are equal; copies do not count, nor rows of weight 0.

    Of more than SAMPLE rows, always the same ones are looked at, drawn at random: rows in a regular
    order, such as one from each of several groups in turn, must not be taken at regular steps.
    """
    rows = np.arange(X.shape[0]) if weight is None else np.flatnonzero(weight > 0)
    if len(rows) > SAMPLE:
        rows = np.sort(np.random.default_rng(0).choice(rows, SAMPLE, replace=False))
    if issparse(X):
        root = metric == "sqeuclidean"
        distance = pairwise_distances(
            X[rows].astype(np.float64), metric="euclidean" if root else metric
        )
        distance = distance ** (1 + root)
        distance[distance <= EQUAL_ROWS * distance.max(initial=0)] = 0.0
    else:
        distance = squareform(pdist(X[rows], metric))
    first = (distance == 0).argmax(axis=1) == np.arange(len(rows))  # of its copies
    distance = distance[np.ix_(first, first)][np.triu_indices(np.count_nonzero(first), 1)]
    return float(np.median(distance)) if len(distance) else 0.0


def squares(low, high):
    """Largest square of rows between these, that of their spread, and the roots of both."""
    low, high = low.astype(np.float64), high.astype(np.float64)
    reach = np.maximum(np.abs(low), np.abs(high))
    with np.errstate(over="ignore"):  # infinity is far away
        spread = high - low
        square, apart = float(reach @ reach), float(spread @ spread)
    return square, apart, float(reach.max()), float(spread.max())


def origin_of(X):
    """A round point near rows that are far from zero; None where they are not."""
    low, high = X.min(axis=0), X.max(axis=0)
    square, apart, _, _ = squares(low, high)
    if not square > REMOTE * apart > 0 or not np.isfinite(square):
        return None
    return round_origin(low.astype(np.float64), high.astype(np.float64)).astype(X.dtype)


def warn_remote(estimator, X, kernels=PRODUCTS):
    """Warn where the kernel of rows so far from zero is the same for all, up to rounding."""
    if not isinstance(estimator.kernel, str) or estimator.kernel not in kernels or issparse(X):
        return
    square, apart, reach, spread = squares(X.min(axis=0), X.max(axis=0))
    if square > LOST * apart > 0:
        warnings.warn(
            f"{type(estimator).__name__}: X lies {reach:.3g} from zero and is spread over "
            f"{spread:.3g}: with kernel={estimator.kernel!r} distances between its rows are lost, "
            "or nearly so, in the rounding of the kernel. Subtract a point near the rows from X, "
            "or take kernel='rbf', to which that makes no difference.",
            UserWarning,
            stacklevel=4,
        )


def is_remote(X, Y, gamma):
    """Whether squared distances from squares and products lose 6 digits and more.

    So they do where squares are large for ``gamma``: the rounding of K then depends on which rows
    are in a block, and sweeps over a K that is made again may never find nothing to change. Sparse
    rows have zeros, so they are not far from zero.
    """
    if issparse(X) or issparse(Y):
        return False
    square, apart, _, _ = squares(
        np.minimum(X.min(axis=0), Y.min(axis=0)), np.maximum(X.max(axis=0), Y.max(axis=0))
    )
    return square > REMOTE * apart > 0 or square * gamma > LARGE


def same(value, other):
    """Whether two arguments of a kernel are equal, arrays too."""
    return value is other or (
        type(value) is type(other) and bool(np.array_equal(np.asarray(value), np.asarray(other)))
    )


def block_size(max_memory):
    """Elements of a block of K: few enough for the budget."""
    return int(min(BLOCK, max(1, max_memory / TEMPORARY)))


def rbf_tiles(X, gamma):
    """A function of two slices: what scikit-learn's ``rbf_kernel`` returns for these rows of X."""
    points = X.astype(np.float64, copy=False)
    squares = np.einsum("ij,ij->i", points, points)

    def tile(rows, columns):
        with np.errstate(over="ignore", invalid="ignore"):  # as scikit-learn's products are
            K = points[rows] @ points[columns].T
            K *= -2.0
            K += squares[rows, None]
            K += squares[columns]
        np.maximum(K, 0.0, out=K)
        K = K.astype(X.dtype, copy=False)
        K *= -gamma
        return np.exp(K, out=K)

    return tile


@dataclass(frozen=True)
class Kernel:
    """A kernel and its arguments. Where there is an ``origin``, it is subtracted from all rows."""

    function: str | Callable[..., ArrayLike]
    arguments: dict[str, Any] = field(default_factory=dict)
    origin: NDArray[np.floating] | None = None

    def between(self, X, Y):
        """The kernel of each row of X with each of Y, float32 or float64."""
        if self.origin is not None:
            X, Y = X - self.origin, Y - self.origin
        gamma = self.arguments.get("gamma", 1.0 / X.shape[1])
        if isinstance(self.function, str) and self.function == "rbf" and is_remote(X, Y, gamma):
            with np.errstate(over="ignore", invalid="ignore"):  # checked below
                K = np.exp(-gamma * cdist(X, Y, "sqeuclidean"))
            K = K.astype(np.result_type(X, Y), copy=False)
        elif isinstance(self.function, str):
            with np.errstate(over="ignore", invalid="ignore"):  # checked below
                K = pairwise_kernels(X, Y, metric=self.function, **self.arguments)
        else:
            K = np.asarray(self.function(X, Y, **self.arguments))
            if K.shape != (X.shape[0], Y.shape[0]):
                raise ValueError(
                    f"kernel must return a matrix of shape {(X.shape[0], Y.shape[0])} for "
                    f"{X.shape[0]} and {Y.shape[0]} rows, got {K.shape}"
                )
        if K.dtype.kind not in "fiub":
            raise ValueError(f"kernel must return real numbers, got {K.dtype}")
        if not np.isfinite(K).all():
            raise ValueError(
                f"kernel must return finite numbers, got others from {self.function!r}"
            )
        return K if K.dtype in DTYPES else K.astype(np.float64)

    def matrix(self, X, side):
        """The kernel of each two rows of X, exactly symmetric, from tiles of at most ``side`` rows.

        Those below the diagonal are copies. "rbf" goes without scikit-learn's checks of each tile.
        """
        n, tile = X.shape[0], lambda rows, columns: self.between(X[rows], X[columns])
        if isinstance(self.function, str) and self.function == "rbf":
            gamma = self.arguments.get("gamma", 1.0 / X.shape[1])
            if not issparse(X) and not is_remote(X, X, gamma):
                tile, side = rbf_tiles(X, gamma), min(side, TILE)
        K = np.empty((n, n), dtype=X.dtype)
        for rows in batches(n, side):
            for columns in batches(n, side):
                if columns.start >= rows.start:
                    part = tile(rows, columns)
                    if columns == rows:
                        part = np.tril(part) + np.tril(part, -1).T
                    K[rows, columns] = part
                    K[columns, rows] = part.T
        return K

    def diagonal(self, X):
        """The kernel of each row with itself, float64."""
        # one row at a time would be a Python loop; small squares are nearly as cheap
        diagonal = np.empty(X.shape[0])
        for rows in batches(X.shape[0], 256):
            diagonal[rows] = self.between(X[rows], X[rows]).diagonal()
        return diagonal


class KernelEstimator(Estimator):
    """Base of estimators that see the data through a kernel only.

    They have the parameters ``kernel``, ``gamma`` and ``kernel_params``. Where a fit has set
    ``gamma_``, that is the gamma from then on, and where it has called ``_remember_kernel``,
    another kernel is refused.
    """

    _share = SHARE

    def _threads(self):
        return 1  # products are BLAS's, and its threads the user's

    def _check_kernel(self):
        kernel, names = self.kernel, kernel_metrics()
        if isinstance(kernel, str):
            if kernel != "precomputed" and kernel not in names:
                raise ValueError(
                    "kernel must be 'precomputed', a callable or one of "
                    f"{', '.join(map(repr, sorted(names)))}, got {kernel!r}"
                )
        elif not callable(kernel):
            raise TypeError(f"kernel must be a string or a callable, got {kernel!r}")
        if self.kernel_params is not None and not isinstance(self.kernel_params, dict):
            raise TypeError(f"kernel_params must be a dict or None, got {self.kernel_params!r}")
        if self.gamma is not None:
            if not math.isfinite(check_number(self.gamma, "gamma", low=0)):
                raise ValueError(f"gamma must be finite, got {shown(self.gamma)}")
            if "gamma" in (self.kernel_params or {}):
                raise ValueError("gamma must not be given twice, got it in kernel_params too")
        if isinstance(kernel, str):
            takes = KERNEL_PARAMS.get(kernel, frozenset())
            for name in self._kernel_arguments():
                if name not in takes:
                    raise ValueError(
                        f"{name} must not be given for kernel={kernel!r}, which takes "
                        f"{', '.join(sorted(takes)) or 'no parameters'}"
                    )

    def _kernel_arguments(self):
        """Parameters of the kernel as they are given."""
        given = dict(self.kernel_params or {})
        if self.gamma is not None:
            given["gamma"] = float(self.gamma)
        return given

    def _find_gamma(self, X, weight=None):
        """The gamma given, or one that suits the data; None where the kernel has none."""
        given = self._kernel_arguments()
        if "gamma" in given:
            return given["gamma"]
        if not isinstance(self.kernel, str) or "gamma" not in KERNEL_PARAMS.get(self.kernel, ()):
            return None
        if self.kernel in DISTANCES:
            typical = typical_distance(X, weight, DISTANCES[self.kernel])
            if typical > 0 and np.isfinite(self._share / typical):
                return self._share / typical
        return 1.0 if self.kernel == "chi2" else 1.0 / X.shape[1]  # scikit-learn's

    def _remember_kernel(self):
        """What is learned belongs to this kernel."""
        self._learned_by = self.kernel, dict(self.kernel_params or {})

    def _check_same_kernel(self):
        """Raise if the kernel is not that of the fit, but for ``gamma``, which ``gamma_`` keeps."""
        kernel, given = self._learned_by
        if type(self.kernel) is not type(kernel) or self.kernel != kernel:
            raise ValueError(
                f"kernel must stay what it was in fit, {kernel!r}, got {self.kernel!r}: fit again"
            )
        now = self.kernel_params or {}
        for name in sorted((set(given) | set(now)) - {"gamma"}):
            if name not in given or name not in now or not same(given[name], now[name]):
                raise ValueError(
                    f"kernel_params must stay what they were in fit, {given!r}, got "
                    f"{self.kernel_params!r}: fit again"
                )

    def _validate_kernel(
        self, X: ArrayLike, *, reset: bool, least: int = 1
    ) -> NDArray[np.floating]:
        """The data; in ``fit``, a precomputed Gram matrix is checked."""
        if not reset:  # a parameter may have been set since
            self._check_kernel()
            if "_learned_by" in vars(self):
                self._check_same_kernel()
        X = self._validate(X, reset=reset, least=least)
        if reset and isinstance(self.kernel, str) and self.kernel == "precomputed":
            check_gram(X)
        return X

    def _kernel_of_fit(self):
        """The kernel with its arguments, ``gamma_`` where a fit has set it."""
        arguments = self._kernel_arguments()
        if "gamma_" in vars(self):  # another may have been set since
            arguments.pop("gamma", None)
            if self.gamma_ is not None:
                arguments["gamma"] = self.gamma_
        return Kernel(self.kernel, arguments)

    def kernel_matrix(self, X: ArrayLike, Y: ArrayLike | None = None) -> NDArray[np.floating]:
        """Return the kernel of each row of X with each row of Y, as the fitted estimator has it.

        For the linear kernel of ``KernelDPMeans`` and ``KernelHDPMeans``, fitted to rows far from
        zero, a point near these is subtracted from all rows: distances stay the same.

        Parameters
        ----------
        X : array-like of shape (n_samples_X, n_features)
            Rows; names of columns are not compared with those of the fit.
        Y : array-like of shape (n_samples_Y, n_features), default=None
            Other rows; None: those of X.

        Returns
        -------
        K : ndarray of shape (n_samples_X, n_samples_Y), float32 or float64
            The kernel, with ``gamma_`` where the estimator has one.

        Raises
        ------
        ValueError
            For ``kernel="precomputed"``, where only the data themselves are the kernel.
        """
        check_is_fitted(self)
        self._check_kernel()
        if "_learned_by" in vars(self):
            self._check_same_kernel()
        if isinstance(self.kernel, str) and self.kernel == "precomputed":
            raise ValueError("kernel must not be 'precomputed' for kernel_matrix: X is the matrix")
        rows = [check_data(Z) for Z in (X, Y) if Z is not None]
        for name, Z in zip("XY", rows, strict=False):
            if Z.shape[1] != self.n_features_in_:
                raise ValueError(
                    f"{name} must have {self.n_features_in_} columns, got {Z.shape[1]}"
                )
        return self._kernel_of_fit().between(rows[0], rows[-1])

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.input_tags.pairwise = isinstance(self.kernel, str) and self.kernel == "precomputed"
        return tags


class Gram:
    """K of the data with themselves: held where it fits ``max_memory`` bytes.

    Otherwise every product computes its rows again, block by block, ``step`` rows at a time. Sums
    are in float64. ``room`` is what is left of ``max_memory``.
    """

    def __init__(self, kernel, X, max_memory):
        n = X.shape[0]
        self.X, self.shape, self.kernel = X, (n, n), kernel
        size = block_size(max_memory)
        self.step = max(1, size // n)
        fits = n * n * X.dtype.itemsize + size * TEMPORARY <= max_memory
        given = isinstance(kernel.function, str) and kernel.function == "precomputed"
        if given:
            self.K = X if X.flags.c_contiguous else X.T  # rows are what is read
        elif fits and callable(kernel.function):
            self.K = self.kernel.between(X, X)  # a kernel may depend on the whole set
        elif fits:
            self.K = self.kernel.matrix(X, max(1, math.isqrt(size)))
        else:
            self.K = None
        self.room = max_memory - size * TEMPORARY
        if self.K is not None and not given:
            self.room -= self.K.nbytes
        if self.K is not None:
            self.diagonal = self.K.diagonal().astype(np.float64)
        else:
            self.diagonal = kernel.diagonal(X)

    def _blocks(self):
        return batches(self.shape[0], self.step)

    def rows(self, index):
        """Rows of K as float64; ``index`` selects few of them."""
        K = self.kernel.between(self.X[index], self.X) if self.K is None else self.K[index]
        return K.astype(np.float64, copy=False)

    def block(self, index, other):
        """Part of K, rows ``index`` and columns ``other`` (arrays, few entries), as float64."""
        if self.K is None:
            K = self.kernel.between(self.X[index], self.X[other])
        else:
            K = self.K[np.ix_(index, other)]
        return K.astype(np.float64, copy=False)

    def add(self, out, index, label, coefficient):
        """out[label] += coefficient * K[index], for all entries of these three arrays."""
        n = self.shape[0]
        if self.K is None or len(out) > FEW_LABELS or 2 * len(index) < n:
            add_rows(out, index, label, coefficient, self.rows, self.step)
            return
        Z = csr_array((coefficient, (label, index)), (len(out), n)).toarray()
        for few in self._blocks():
            out += Z[:, few] @ self.rows(few)

    def product(self, B):
        """K @ B for B of shape (n, m) or (n,), float64."""
        if self.K is not None and self.K.dtype == np.float64:
            return self.K @ B
        out = np.empty((self.shape[0], *B.shape[1:]))
        for rows in self._blocks():
            out[rows] = self.rows(rows) @ B
        return out

    def dense(self):
        """All of K as float64."""
        return self.rows(slice(None))


def add_rows(out, index, label, coefficient, rows, step):
    """out[label] += coefficient * rows(index), ``step`` rows at a time."""
    order = np.argsort(label, kind="stable")  # so that a block has few labels, and BLAS few rows
    index, label, coefficient = index[order], label[order], coefficient[order]
    for few in batches(len(index), step):
        touched, place = np.unique(label[few], return_inverse=True)
        Z = np.zeros((len(touched), len(place)))
        Z[place, np.arange(len(place))] = coefficient[few]
        out[touched] += Z @ rows(index[few])


def check_gram(K):
    """Raise unless K is square and symmetric."""
    if K.shape[0] != K.shape[1]:
        raise ValueError(f"X must be a square Gram matrix for kernel='precomputed', got {K.shape}")
    check_symmetric(K, "X must be a symmetric Gram matrix for kernel='precomputed'")


def lowest_eigenvalue(gram):
    """The least eigenvalue, or an upper bound on it, and the largest absolute one found.

    Those of K with its row and column means taken out, on which distances depend.
    """
    n = gram.shape[0]
    if n <= DENSE:
        K = gram.dense()
    else:  # the eigenvalues of a part of K lie within those of K
        few = np.sort(np.random.default_rng(0).choice(n, DENSE, replace=False))
        K = gram.block(few, few)
    K = K - K.mean(axis=0)
    K -= K.mean(axis=1)[:, None]
    values = eigvalsh((K + K.T) / 2)
    low, high = float(values[0]), float(np.abs(values).max())
    if n <= DENSE:
        return low, high
    # so do the values of Lanczos: a negative one is a proof
    steps = STEPS if n <= MANY else FEW_STEPS
    basis = np.empty((steps, n))
    v = np.random.default_rng(0).standard_normal(n)
    diagonal, off = [], []
    for j in range(steps):
        v -= v.mean()
        basis[j] = v / np.linalg.norm(v)
        v = gram.product(basis[j])
        v -= v.mean()
        diagonal.append(float(v @ basis[j]))
        for _ in range(2):
            v -= basis[: j + 1].T @ (basis[: j + 1] @ v)
        off.append(float(np.linalg.norm(v)))
        if off[-1] <= ZERO_EIGENVALUE * max(map(abs, diagonal)):
            break
    values = eigvalsh_tridiagonal(np.array(diagonal), np.array(off[: len(diagonal) - 1]))
    return min(low, float(values[0])), max(high, float(np.abs(values).max()))


def warn_indefinite(estimator, gram):
    """Warn where K belongs to no distance: where it has a negative eigenvalue, once centered."""
    low, high = lowest_eigenvalue(gram)
    high = max(high, float(np.abs(gram.diagonal).max()))
    if low < -max(ZERO_EIGENVALUE, float(np.finfo(gram.X.dtype).eps)) * 100 * high:
        warnings.warn(
            f"{type(estimator).__name__}: the Gram matrix is indefinite, with an eigenvalue of "
            f"{low:.3g} or below once it is centered (the largest is {high:.3g}); it belongs to no "
            "distance, the objective may rise from sweep to sweep and max_iter may end the fit.",
            UserWarning,
            stacklevel=4,
        )
