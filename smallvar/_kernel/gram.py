"""Gram matrices of kernels, held in memory or computed again block by block.

In this order: how far rows are from zero, relative to their spread, which decides how a kernel is
computed; ``Kernel``, a function and its gamma; ``KernelEstimator``, the base of estimators with
a kernel; ``Gram``, the matrix K of the data with themselves; and checks of K: whether it is
symmetric, whether its sums fit float64, and whether it has negative eigenvalues.
"""

import math
import warnings
from collections.abc import Callable
from dataclasses import dataclass
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

from smallvar._core.config import one_blas_thread
from smallvar._core.estimator import Estimator
from smallvar._core.validation import (
    DTYPES,
    check_data,
    check_number,
    check_symmetric,
    level_of_caller,
    shown,
)
from smallvar._sweeps.rows import LARGEST_ERROR
from smallvar._sweeps.sums import round_origin

GRAM_BLOCK = 1 << 19  # elements of a block of rows: a few megabytes, for the cache
TEMPORARY = 32  # bytes for each of these elements: temporaries, the element, its float64 copy
ALL_EIGENVALUES_ROWS = 500  # rows up to which all eigenvalues are computed, to find negative ones
# Lanczos steps for more rows than ALL_EIGENVALUES_ROWS, and for more than MANY_ROWS
LANCZOS_STEPS, FEW_LANCZOS_STEPS, MANY_ROWS = 40, 8, 4000
# kernels exp(-gamma distance), and their distances
DISTANCES = {"rbf": "sqeuclidean", "laplacian": "cityblock"}
# "rbf" is computed from differences of rows, not from squares and products of rows, where squares
# of rows exceed REMOTE_RATIO times their squared spread, or LARGE_SQUARE / gamma: the rounding of
# so large squares would show in K
REMOTE_RATIO = 1e6
LARGE_SQUARE = 300.0
FEW_LABELS = 32  # up to so many labels, sums over labels are one product with all rows
RBF_TILE = 256  # rows and columns of a tile of the "rbf" kernel, which then stays in the cache
LOST_RATIO = 1e10  # squares of rows over squared spread: at most 6 digits of a distance are left
# Relative to the largest eigenvalue: Lanczos ends at a residual as small as this. A centered kernel
# is indefinite if an eigenvalue is below -100 times this (or the epsilon of the type).
ZERO_EIGENVALUE = 1e-10
EQUAL_ROWS = 1e-10  # sparse rows closer than this, relative to the largest distance, are copies
# kernels made of products of rows: rounding errors of distances are relative to squares of rows
PRODUCT_KERNELS = ("linear", "poly", "polynomial", "cosine")
GAMMA_SCALE = 0.3  # gamma times the median distance, where gamma is not given
MEDIAN_ROWS = 500  # rows that the median distance is taken from


def batches(n, size):
    """Slices of length ``size`` (the last one may be shorter) that cover ``range(n)``."""
    return (slice(start, min(start + size, n)) for start in range(0, n, size))


def median_distance(X, weight, metric):
    """Median distance between different rows of positive weight, 0 if all are equal.

    Of more than MEDIAN_ROWS rows a random sample is taken, always the same one. A sample at regular
    steps would be biased for rows in a regular order, such as one from each group in turn.
    """
    rows = np.arange(X.shape[0]) if weight is None else np.flatnonzero(weight > 0)
    if len(rows) > MEDIAN_ROWS:
        rows = np.sort(np.random.default_rng(0).choice(rows, MEDIAN_ROWS, replace=False))
    if issparse(X):
        squared = metric == "sqeuclidean"
        distance = pairwise_distances(
            X[rows].astype(np.float64), metric="euclidean" if squared else metric
        )
        distance = distance ** (1 + squared)
        distance[distance <= EQUAL_ROWS * distance.max(initial=0)] = 0.0
    else:
        distance = squareform(pdist(X[rows], metric))
    is_first = (distance == 0).argmax(axis=1) == np.arange(len(rows))  # of its copies
    distance = distance[np.ix_(is_first, is_first)][np.triu_indices(np.count_nonzero(is_first), 1)]
    return float(np.median(distance)) if len(distance) else 0.0


class Extent:
    """Range of the columns of dense rows: how far rows are from zero and from each other.

    ``square`` and ``spread_square`` bound the squares of rows and of their distances.
    """

    def __init__(self, *tables):
        self.low = np.min([X.min(axis=0) for X in tables], axis=0).astype(np.float64)
        self.high = np.max([X.max(axis=0) for X in tables], axis=0).astype(np.float64)
        self.largest = np.maximum(np.abs(self.low), np.abs(self.high))
        with np.errstate(over="ignore"):  # infinity compares as very far
            self.spread = self.high - self.low
            self.square = float(self.largest @ self.largest)
            self.spread_square = float(self.spread @ self.spread)

    def is_far(self, ratio):
        """Whether squares of rows exceed their squared spread, if there is one, so many times."""
        return self.square > ratio * self.spread_square > 0


def remote_origin(X):
    """A round point near the rows of X, None if they are not far from zero for their spread."""
    extent = Extent(X)
    if not extent.is_far(REMOTE_RATIO) or not np.isfinite(extent.square):
        return None
    return round_origin(extent.low, extent.high).astype(X.dtype)


def warn_remote(estimator, X, kernels=PRODUCT_KERNELS):
    """Warn if X is so far from zero that distances are lost in the rounding of the kernel."""
    if not isinstance(estimator.kernel, str) or estimator.kernel not in kernels or issparse(X):
        return
    extent = Extent(X)
    if extent.is_far(LOST_RATIO):
        warnings.warn(
            f"{type(estimator).__name__}: X lies {extent.largest.max():.3g} from zero and is "
            f"spread over {extent.spread.max():.3g}: with kernel={estimator.kernel!r} distances "
            "between its rows are lost, or nearly so, in the rounding of the kernel. Subtract a "
            "point near the rows from X, or take kernel='rbf', to which that makes no difference.",
            UserWarning,
            stacklevel=level_of_caller(),
        )


def block_size(max_memory):
    """Elements of a block of K, at most GRAM_BLOCK, whose temporaries fit ``max_memory``."""
    return int(min(GRAM_BLOCK, max(1, max_memory / TEMPORARY)))


def rbf_tile_function(X, gamma):
    """Function of two slices that returns the "rbf" kernel between these rows of X.

    Equal to scikit-learn's ``rbf_kernel``, without its checks of each tile.
    """
    points = X.astype(np.float64, copy=False)
    squares = np.einsum("ij,ij->i", points, points)

    def tile(rows, columns):
        # ||x - y||^2 = ||x||^2 - 2 x.y + ||y||^2, where scikit-learn is silent about overflow
        with np.errstate(over="ignore", invalid="ignore"):
            K = points[rows] @ points[columns].T
            K *= -2.0
            K += squares[rows, None]
            K += squares[columns]
            np.maximum(K, 0.0, out=K)
            K = K.astype(X.dtype, copy=False)
            if gamma == 0.0:
                K[:] = 0.0  # also where a squared distance overflows
            K *= -gamma
            return np.exp(K, out=K)

    return tile


@dataclass(frozen=True)
class Kernel:
    """A kernel, with its ``gamma`` if it has one.

    ``origin`` (if not None) is subtracted from all rows first.
    """

    function: str | Callable[..., ArrayLike]
    gamma: float | None = None
    origin: NDArray[np.floating] | None = None

    def gamma_for(self, X):
        """``gamma``, or scikit-learn's default for "rbf"."""
        return 1.0 / X.shape[1] if self.gamma is None else self.gamma

    def needs_differences(self, X, Y):
        """Whether "rbf" is computed from differences of rows: products would lose 6 digits or more.

        They also count as lost where squares are large for ``gamma``. The rounding of K would then
        depend on which rows are in a block, and sweeps over a K that is computed again might never
        reach a fixed point. Sparse rows have zeros, so they are not far from zero.
        """
        if self.function != "rbf" or issparse(X) or issparse(Y):
            return False
        extent = Extent(X, Y)
        return extent.is_far(REMOTE_RATIO) or extent.square * self.gamma_for(X) > LARGE_SQUARE

    def between(self, X, Y):
        """Kernel matrix between the rows of X and those of Y, float32 or float64."""
        if self.origin is not None:
            X, Y = X - self.origin, Y - self.origin
        options = {} if self.gamma is None else {"gamma": self.gamma}
        if callable(self.function):
            K = np.asarray(self.function(X, Y, **options))
            if K.shape != (X.shape[0], Y.shape[0]):
                raise ValueError(
                    f"kernel must return a matrix of shape {(X.shape[0], Y.shape[0])} for "
                    f"{X.shape[0]} and {Y.shape[0]} rows, got {K.shape}"
                )
        else:
            with np.errstate(over="ignore", invalid="ignore"):  # checked below
                if self.needs_differences(X, Y):
                    K = np.exp(-self.gamma_for(X) * cdist(X, Y, "sqeuclidean"))
                    K = K.astype(np.result_type(X, Y), copy=False)
                else:
                    K = pairwise_kernels(X, Y, metric=self.function, **options)
        if K.dtype.kind not in "fiub":
            raise ValueError(f"kernel must return real numbers, got {K.dtype}")
        self.check_finite(K)
        return K if K.dtype in DTYPES else K.astype(np.float64)

    def check_finite(self, K):
        """Raise a ValueError if entries of K are not finite."""
        if not np.isfinite(K).all():
            raise ValueError(
                f"kernel must return finite numbers, got others from {self.function!r}"
            )

    def matrix(self, X, side):
        """Kernel matrix of the rows of X, exactly symmetric, from tiles of at most ``side`` rows.

        Entries below the diagonal are copies of those above it.
        """
        n, tile = X.shape[0], lambda rows, columns: self.between(X[rows], X[columns])
        if self.function == "rbf" and not issparse(X) and not self.needs_differences(X, X):
            tile, side = rbf_tile_function(X, self.gamma_for(X)), min(side, RBF_TILE)
        K = np.empty((n, n), dtype=X.dtype)
        for rows in batches(n, side):
            for columns in batches(n, side):
                if columns.start >= rows.start:
                    part = tile(rows, columns)
                    self.check_finite(part)
                    if columns == rows:
                        part = np.tril(part) + np.tril(part, -1).T
                    K[rows, columns] = part
                    K[columns, rows] = part.T
        return K

    def diagonal(self, X):
        """Kernel of each row of X with itself, float64."""
        # a kernel function takes two sets of rows: small squares, of which the diagonal is used,
        # are faster than a loop over single rows
        diagonal = np.empty(X.shape[0])
        for rows in batches(X.shape[0], 256):
            diagonal[rows] = self.between(X[rows], X[rows]).diagonal()
        return diagonal


def in_row_order(X: Any) -> Any:
    """The array itself, or a copy where its rows do not lie one after another.

    BLAS, and so a kernel, rounds otherwise for arrays in another order. Sparse rows get index
    arrays of one type, as functions of scipy take them.
    """
    if issparse(X):
        return csr_array((X.data, X.indices, X.indptr), shape=X.shape)
    return np.ascontiguousarray(X)


class KernelEstimator(Estimator):
    """Base of estimators that depend on the data only by a kernel.

    They have the parameters ``kernel`` and ``gamma``. After a fit, methods use ``gamma_``, if the
    fit has set it. If the fit has called ``_learn_kernel``, they raise for any other kernel.
    """

    _gamma_scale = GAMMA_SCALE
    _origin: NDArray[np.floating] | None = None  # subtracted from the rows that a kernel is given
    _blas = staticmethod(one_blas_thread)  # the bits of products depend on the number of threads

    def _validate(self, X: Any, *, reset: bool, least: int = 1) -> NDArray[np.floating]:
        return in_row_order(super()._validate(X, reset=reset, least=least))

    def _check_kernel(self):
        """Raise unless ``kernel`` and ``gamma`` are valid and go together."""
        kernel, names = self.kernel, kernel_metrics()
        if isinstance(kernel, str):
            if kernel != "precomputed" and kernel not in names:
                raise ValueError(
                    "kernel must be 'precomputed', a callable or one of "
                    f"{', '.join(map(repr, sorted(names)))}, got {kernel!r}"
                )
        elif not callable(kernel):
            raise TypeError(f"kernel must be a string or a callable, got {kernel!r}")
        if self.gamma is None:
            return
        if not math.isfinite(check_number(self.gamma, "gamma", low=0)):
            raise ValueError(f"gamma must be finite, got {shown(self.gamma)}")
        if not callable(kernel) and not self._has_gamma():
            raise ValueError(f"gamma must be None for kernel={kernel!r}, got {self.gamma!r}")

    def _kernel_is(self, name):
        return isinstance(self.kernel, str) and self.kernel == name

    def _has_gamma(self):
        """Whether the kernel is one of scikit-learn's with the parameter ``gamma``."""
        return isinstance(self.kernel, str) and "gamma" in KERNEL_PARAMS.get(self.kernel, ())

    def _learn_kernel(self, X, weight=None):
        """Set ``gamma_``, and the kernel that methods then must have.

        ``gamma_`` is ``gamma`` or from the median distance; None if the kernel has none.
        """
        self._learned_by, self.gamma_ = self.kernel, None
        if self.gamma is not None:
            self.gamma_ = float(self.gamma)
        elif self._has_gamma():
            # scikit-learn's, if there is no distance
            self.gamma_ = 1.0 if self.kernel == "chi2" else 1.0 / X.shape[1]
            if self.kernel in DISTANCES:
                distance = median_distance(X, weight, DISTANCES[self.kernel])
                if not math.isfinite(distance):
                    raise ValueError(
                        f"kernel={self.kernel!r} needs a median distance within float64 for its "
                        f"gamma, got {distance}: rescale X, or give gamma"
                    )
                if distance > 0 and np.isfinite(self._gamma_scale / distance):
                    self.gamma_ = self._gamma_scale / distance

    def _check_same_kernel(self):
        """Raise if the kernel is not that of the fit. ``gamma`` may differ: ``gamma_`` is used."""
        kernel = vars(self).get("_learned_by", self.kernel)
        if type(self.kernel) is not type(kernel) or self.kernel != kernel:
            raise ValueError(
                f"kernel must stay what it was in fit, {kernel!r}, got {self.kernel!r}: fit again"
            )

    def _validate_kernel(
        self, X: ArrayLike, *, reset: bool, least: int = 1
    ) -> NDArray[np.floating]:
        """Validated data; in ``fit`` (``reset``), a precomputed Gram matrix must be symmetric."""
        if not reset:  # parameters may have been set after the fit
            self._check_kernel()
            self._check_same_kernel()
        X = self._validate(X, reset=reset, least=least)
        if reset and self._kernel_is("precomputed"):
            check_gram(X)
        return X

    def _kernel_of_fit(self):
        """Kernel with its ``gamma_``, or ``gamma`` if no fit has set that."""
        gamma = vars(self).get("gamma_", self.gamma)
        return Kernel(self.kernel, None if gamma is None else float(gamma), self._origin)

    def kernel_matrix(self, X: ArrayLike, Y: ArrayLike | None = None) -> NDArray[np.floating]:
        """Return the kernel of each row of X with each row of Y, as the fitted estimator has it.

        If ``KernelDPMeans`` or ``KernelHDPMeans`` with the linear kernel were fitted to rows far
        from zero, a point near these rows is subtracted from all rows; distances stay the same.

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
        self._check_same_kernel()
        if self._kernel_is("precomputed"):
            raise ValueError("kernel must not be 'precomputed' for kernel_matrix: X is the matrix")
        rows = [in_row_order(check_data(Z)) for Z in (X, Y) if Z is not None]
        for name, Z in zip("XY", rows, strict=False):
            if Z.shape[1] != self.n_features_in_:
                raise ValueError(
                    f"{name} must have {self.n_features_in_} columns, got {Z.shape[1]}"
                )
        return self._kernel_of_fit().between(rows[0], rows[-1])

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.input_tags.pairwise = self._kernel_is("precomputed")
        return tags


class Gram:
    """The Gram matrix K of the data, held in memory if it fits ``max_memory`` bytes.

    Otherwise ``K`` is None, and every product computes the rows of K again, ``step`` rows at a
    time. Sums are in float64. ``capacity`` is the number of bytes of ``max_memory`` that are left.
    """

    def __init__(self, kernel, X, max_memory):
        n = X.shape[0]
        self.X, self.shape, self.kernel = X, (n, n), kernel
        size = block_size(max_memory)
        self.step = max(1, size // n)
        fits = n * n * X.dtype.itemsize + size * TEMPORARY <= max_memory
        precomputed = kernel.function == "precomputed"
        if precomputed:
            self.K = X if X.flags.c_contiguous else X.T  # K is symmetric; rows are read
        elif not fits:
            self.K = None
        elif callable(kernel.function):
            self.K = kernel.between(X, X)  # a function may depend on the whole set of rows
        else:
            self.K = kernel.matrix(X, max(1, math.isqrt(size)))
        held = 0 if precomputed or not fits else self.K.nbytes
        self.capacity = max_memory - size * TEMPORARY - held
        diagonal = kernel.diagonal(X) if self.K is None else self.K.diagonal()
        self.diagonal = diagonal.astype(np.float64)

    def rows(self, index):
        """Rows of K selected by ``index`` (few of them), as float64."""
        K = self.kernel.between(self.X[index], self.X) if self.K is None else self.K[index]
        return K.astype(np.float64, copy=False)

    def block(self, index, columns):
        """Block of K with rows ``index`` and these ``columns`` (small arrays), as float64."""
        if self.K is None:
            K = self.kernel.between(self.X[index], self.X[columns])
        else:
            K = self.K[np.ix_(index, columns)]
        return K.astype(np.float64, copy=False)

    def add(self, out, index, label, coefficient):
        """Add rows of K to rows of ``out``: out[label] += coefficient * K[index].

        For all entries of these three arrays; labels may repeat.
        """
        n = self.shape[0]
        if self.K is None or len(out) > FEW_LABELS or 2 * len(index) < n:
            add_rows(out, index, label, coefficient, self.rows, self.step)
            return
        coefficients = csr_array((coefficient, (label, index)), (len(out), n)).toarray()
        for part in batches(n, self.step):
            out += coefficients[:, part] @ self.rows(part)

    def __matmul__(self, B):
        """Product K @ B for B of shape (n, m) or (n,), float64."""
        if self.K is not None and self.K.dtype == np.float64:
            return self.K @ B
        out = np.empty((self.shape[0], *B.shape[1:]))
        for rows in batches(self.shape[0], self.step):
            out[rows] = self.rows(rows) @ B
        return out


def add_rows(out, index, label, coefficient, rows, step):
    """Add rows to rows of ``out``, ``step`` at a time: out[label] += coefficient * rows(index)."""
    order = np.argsort(label, kind="stable")  # a block then has few labels, its product few rows
    index, label, coefficient = index[order], label[order], coefficient[order]
    for part in batches(len(index), step):
        touched, position = np.unique(label[part], return_inverse=True)
        coefficients = np.zeros((len(touched), len(position)))
        coefficients[position, np.arange(len(position))] = coefficient[part]
        out[touched] += coefficients @ rows(index[part])


def check_gram(K):
    """Raise a ValueError unless K is square and symmetric."""
    if K.shape[0] != K.shape[1]:
        raise ValueError(f"X must be a square Gram matrix for kernel='precomputed', got {K.shape}")
    check_symmetric(K, "X must be a symmetric Gram matrix for kernel='precomputed'")


def check_size(gram, weight, definite):
    """Raise a ValueError if weighted sums of values of the kernel would leave float64."""
    largest = float(np.abs(gram.diagonal).max())
    if gram.K is not None and not definite:  # then those beside the diagonal may be larger
        largest = max(largest, float(gram.K.max()), -float(gram.K.min()))
    total = float(gram.shape[0] if weight is None else weight.sum())
    if total * largest > LARGEST_ERROR:
        raise ValueError(
            "kernel must have values that, times the weight of all rows, are at most 1e290, got "
            f"{largest:.3g} for a weight of {total:.3g}: rescale X or sample_weight"
        )


def lowest_eigenvalue(gram):
    """Least eigenvalue of the centered K, or an upper bound on it, and the largest absolute one.

    K is centered by subtracting the means of its rows and columns; distances do not change by that.
    """
    n = gram.shape[0]
    if n <= ALL_EIGENVALUES_ROWS:
        K = gram.rows(slice(None))
    else:  # the eigenvalues of a principal submatrix lie between the least and largest of K
        sample = np.sort(np.random.default_rng(0).choice(n, ALL_EIGENVALUES_ROWS, replace=False))
        K = gram.block(sample, sample)
    K = K - K.mean(axis=0)
    K -= K.mean(axis=1)[:, None]
    values = eigvalsh((K + K.T) / 2)
    low, high = float(values[0]), float(np.abs(values).max())
    if n <= ALL_EIGENVALUES_ROWS:
        return low, high
    # Lanczos, with full orthogonalization. Its Ritz values, too, lie between the least and largest
    # eigenvalue, so a negative one proves that K is indefinite
    steps = LANCZOS_STEPS if n <= MANY_ROWS else FEW_LANCZOS_STEPS
    basis = np.empty((steps, n))
    v = np.random.default_rng(0).standard_normal(n)
    diagonal, off_diagonal = [], []
    for j in range(steps):
        v -= v.mean()
        basis[j] = v / np.linalg.norm(v)
        v = gram @ basis[j]
        v -= v.mean()
        diagonal.append(float(v @ basis[j]))
        for _ in range(2):
            v -= basis[: j + 1].T @ (basis[: j + 1] @ v)
        off_diagonal.append(float(np.linalg.norm(v)))
        if off_diagonal[-1] <= ZERO_EIGENVALUE * max(map(abs, diagonal)):
            break
    values = eigvalsh_tridiagonal(np.array(diagonal), np.array(off_diagonal[: len(diagonal) - 1]))
    return min(low, float(values[0])), max(high, float(np.abs(values).max()))


def warn_indefinite(estimator, gram):
    """Warn if the centered K has a negative eigenvalue: it then belongs to no distance."""
    low, high = lowest_eigenvalue(gram)
    high = max(high, float(np.abs(gram.diagonal).max()))
    if low < -max(ZERO_EIGENVALUE, float(np.finfo(gram.X.dtype).eps)) * 100 * high:
        warnings.warn(
            f"{type(estimator).__name__}: the Gram matrix is indefinite, with an eigenvalue of "
            f"{low:.3g} or below once it is centered (the largest is {high:.3g}); it belongs to no "
            "distance, the objective may rise from sweep to sweep and max_iter may end the fit.",
            UserWarning,
            stacklevel=level_of_caller(),
        )
