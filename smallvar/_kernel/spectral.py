"""The spectral relaxation of the kernel DP-means objective (KJ12, section 5.1, Theorem 5.2).

The eigenvectors of the weighted Gram matrix are computed by the problems of relaxation.py, and
rounded to labels as in Yu & Shi (2003), or by k-means.
"""

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.sparse import csr_array, issparse, sparray, spmatrix
from sklearn.base import ClusterMixin
from sklearn.cluster import KMeans
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from smallvar._core.config import resolve_threads
from smallvar._core.estimator import keywords_only
from smallvar._core.fit_loop import best_of
from smallvar._core.frame import nearest_sweep
from smallvar._core.groups import first_appearance
from smallvar._core.linear_algebra import (
    DENSE_SOLVED_ROWS,
    RoundedLabels,
    unit_rows,
    yu_shi,
)
from smallvar._core.validation import (
    check_lam,
    check_number,
    check_option,
    check_reach,
    check_symmetric,
    check_verbose,
    check_weights,
    mean_weight,
    sparse_rows,
    varying_columns,
)
from smallvar._kernel.gram import (
    DISTANCES,
    Gram,
    KernelEstimator,
    batches,
    block_size,
    warn_remote,
)
from smallvar._kernel.relaxation import (
    DENSE_SOLVER,
    EQUAL_VALUES,
    BlockProblem,
    GramProblem,
    LinearProblem,
    weighted_means,
)
from smallvar._selection.path import find_path
from smallvar._selection.penalty import GUESS, cut_guess

DISTANCE_KERNELS = ("linear", *DISTANCES)  # kernels that are large for rows at a small distance
# constants of "auto" where it chooses the number of clusters by the eigenvectors
MIN_LIKENESS = 0.78  # least likeness of k clusters and k eigenvectors
ROUNDINGS_PER_NUMBER = 3  # roundings for each k
MAX_EIGENVALUES = 40  # largest k
COPY_DISTANCE = 1e-6  # rows of eigenvectors, scaled to length 1, that differ by less are copies
LEAST_RATIO = 1e-4  # an eigenvalue counts as at least this times the one before it


def kmeans_labels(Y, rng, n_init, weight):
    """Iterate over runs of k-means on the rows of Y, k its number of columns.

    Yields the labels and the number of iterations of each of the ``n_init`` runs.
    """
    for _ in range(n_init):
        model = KMeans(Y.shape[1], n_init=1, random_state=rng)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)  # fewer distinct rows than k
            model.fit(Y, sample_weight=weight)
        yield first_appearance(model.labels_), model.n_iter_


def likeness(labels, Y, weight):
    """Share of the span of the k columns of Y that is in the span of the clusters' indicators.

    From 0 to 1. The constant vector is in the span of the indicators of every clustering, so the
    part of the span of Y that it reaches is left out.
    """
    root_weight, k = np.sqrt(weight), Y.shape[1]
    sums = (
        csr_array((root_weight, labels, np.arange(len(root_weight) + 1)), (len(root_weight), k)).T
        @ Y
    )
    cluster_weight = np.bincount(labels, weight, k)
    constant = np.square(root_weight @ Y).sum() / weight.sum()
    reached = (
        np.square(sums).sum(axis=1)[cluster_weight > 0] / cluster_weight[cluster_weight > 0]
    ).sum()
    return float((reached - constant) / (k - constant))


@dataclass
class _FeatureMeans:
    """Cluster means in feature space: sums of rows, by the columns of sparse coefficients."""

    coefficients: Any
    squares: NDArray[np.float64]  # squared norms of the means
    rows: Any  # of the fit; None for a precomputed kernel


class SpectralDPMeans(ClusterMixin, KernelEstimator):
    """The spectral relaxation of kernel DP-means: a clustering and a bound on all of them.

    DP-means minimizes, over labels and the number of clusters K, in the feature space of a kernel,

        sum_i w_i ||phi(x_i) - m_{z_i}||^2 + lam * K  =  tr G - max over Y of tr Y' (G - lam I) Y,

    where G = W^1/2 (kernel matrix) W^1/2 and Y is the normalized indicator matrix of a clustering.
    With Y free to be any matrix with orthonormal columns the maximum is known: the eigenvectors of
    G whose eigenvalue exceeds ``lam``. Their number bounds the number of clusters looked for, their
    eigenvalues give a lower bound on the objective of *every* clustering, and rounding them to an
    indicator matrix gives a clustering.

    Parameters
    ----------
    lam : float, "auto", "spectrum" or "farthest-first", default="auto"
        Penalty for each cluster, in squared units of the feature space, > 0; also the threshold of
        the eigenvalues. "spectrum" is the geometric mean of the eigenvalue number ``guess`` and the
        next one; without a guess, of a number of clusters that the eigenvectors show, see Notes.
        "auto" is likewise, for the number of :func:`cluster_path`, or, for sparse data and other
        kernels than "rbf", "laplacian" and "linear", from the eigenvectors. "farthest-first"
        derives it from ``guess`` as :func:`farthest_first_lambda` does, from distances in feature
        space; as a threshold it is often low.
    kernel : str or callable, default="rbf"
        A kernel of :func:`sklearn.metrics.pairwise.pairwise_kernels`, "precomputed", or a function
        of two arrays that returns the whole matrix between their rows.
    gamma : float, default=None
        Parameter of the kernels "rbf", "laplacian", "chi2", "poly" and "sigmoid", >= 0. None: for
        "rbf", 1 / (median squared distance between rows); for "laplacian", the same with the
        distance that it is made of, the sum of absolute differences; for the others, and where all
        rows are equal, scikit-learn's default, for most 1 / n_features. The median is over rows
        with a weight, copies once, of 500 rows if there are more.
    guess : int, default=None
        Guess of the number of clusters for "spectrum" and "farthest-first", at most n_samples; not
        a bound. None: "spectrum" finds the number, "farthest-first" takes 8, or n_samples if there
        are fewer. Not used with "auto" or a number as ``lam``. There is no exact number to ask for:
        k eigenvectors may round to fewer than k clusters.
    rounding : {"yu-shi", "kmeans"}, default="yu-shi"
        How the eigenvectors become labels. "yu-shi" rotates them until they are as close as
        possible to an indicator matrix; "kmeans" is k-means on their rows, with as many clusters as
        there are eigenvectors. Rows are scaled to length 1 before.
    n_init : int, default=10
        Starts of the rounding. The labels with the lowest objective are kept.
    max_memory : float, default=2e9
        Bytes for the kernel matrix and its solver. A dense solver takes 48 for each entry, 2e9 for
        6454 rows; for more rows a sparse one takes over, on a matrix that is held in the type of
        the data where it fits, and otherwise made again, block by block, for each product. Besides
        there are the data and tables of a number for each row and eigenvector. A matrix that has
        too many eigenvalues above ``lam`` for a sparse solver raises an error if a dense solver
        does not fit. Not used for dense data with the linear kernel, which need no matrix.
    random_state : int, RandomState instance or None, default=None
        Generator of the starts and of the Lanczos vectors.
    verbose : int, default=0
        Print a line a start.

    Attributes
    ----------
    labels_ : ndarray of shape (n_samples,), int32
        Cluster of each row, numbered by first appearance.
    n_clusters_ : int
        Number of clusters found, at most ``max(1, len(eigenvalues_))``.
    objective_ : float
        The objective of ``labels_``.
    bound_ : float
        No clustering has a lower objective, up to rounding. It is the better of the bounds from G
        and from the centered G.
    eigenvalues_ : ndarray of shape (n_vectors,), float64
        Eigenvalues of G above ``lam_``, copies included, falling.
    embedding_ : ndarray of shape (n_samples, n_vectors), float64
        Their eigenvectors, orthonormal; rows of weight zero are zero.
    lam_ : float
        The penalty used.
    gamma_ : float or None
        The ``gamma`` used, in ``predict`` too; None where the kernel has none.
    n_iter_ : int
        Iterations of the start that was kept; 0 if no eigenvalue exceeds ``lam_``.
    n_features_in_ : int
        Number of columns of the data.
    feature_names_in_ : ndarray of shape (n_features,)
        Names of the columns, if all are strings.

    Raises
    ------
    ValueError, TypeError
        From ``fit``, for data that are not finite, numeric and two-dimensional, for a Gram matrix
        that is not square and symmetric, and for parameters out of their bounds. The estimator is
        then as it was before.

    See Also
    --------
    DPMeans : Local search for the same objective with the linear kernel.
    cluster_path : Where "auto" has the number of clusters from.
    sklearn.cluster.SpectralClustering : A given number of eigenvectors of a normalized graph.

    Notes
    -----
    "auto" takes the number of clusters that the merge path of the rows supports, as ``DPMeans``
    does; a single cloud then stays one cluster. For kernels that do not depend on distances between
    rows, for a matrix and for sparse data it goes by the eigenvectors, as "spectrum" without a
    guess does for all data. That rounds those of the k
    largest eigenvalues for k = 2, 3, ..., at most 40 and a quarter of the distinct rows, and
    computes which share of their span the indicators of the labels reach: all of it for clusters
    that are far apart, about 2 / pi for one round cloud cut in two. Of the k that reach 0.78 it
    takes the one before the largest ratio of neighboring eigenvalues, and one cluster if there is
    none. This rule cuts a cloud in a single column.

    There are no more eigenvectors than the feature space has dimensions: with the linear kernel and
    d columns at most d clusters are found. Eigenvalues grow with the number of rows. If ``lam``
    lies below those that stem from the spread within clusters, the rounding splits clusters; the
    bound holds for any ``lam``.

    The bound from the centered G, lam + the sum of min(eigenvalue, lam) over its eigenvalues, is
    the better one: it is the maximum over subspaces that contain the square roots of the weights,
    as the subspace of every clustering does.

    If no eigenvalue exceeds ``lam``, there is one cluster. The rounding does not lower the
    objective step by step, so there is no ``objective_path_``. An indefinite Gram matrix is
    accepted: its objective is not a sum of squared distances, but the bound holds.

    The m eigenvalues above ``lam`` of a dense matrix within ``max_memory`` are found in a block
    Krylov space, in O(n^2 m), with a proof that none is missing. Where m is large, an eigenvalue is
    ``lam`` up to rounding, or the rows are few, LAPACK takes O(n^3) (with the linear kernel
    O(n d min(n, d))). The connected components of a sparse matrix are solved one by one, the large
    ones by Lanczos runs, each in the complement of the eigenvectors found before, until a run from
    a random vector finds no eigenvalue above ``lam``. Dense matrices beyond ``max_memory`` are
    solved as one component. Memory beyond the matrix is then O(n n_vectors), but a component with
    more than one eigenvalue above ``lam`` for eight of its rows is made dense, with 40 bytes for an
    entry.

    A row of weight w counts as w copies; a ``lam`` that is chosen is proportional to the weights.
    With ``kernel="linear"`` and such a ``lam``, constant columns of dense rows are left out. Rows
    of weight zero are left out of the fit and labeled as by ``predict``.

    References
    ----------
    Kulis & Jordan (2012), Revisiting k-means: new algorithms via Bayesian nonparametrics, section
    5.1, Theorem 5.2. RoundedLabels: Yu & Shi (2003), Multiclass spectral clustering.

    Examples
    --------
    >>> import numpy as np
    >>> from smallvar import SpectralDPMeans
    >>> X = np.array([[0.0, 0.0], [0.0, 1.0], [5.0, 5.0], [5.0, 6.0], [0.0, 9.0]])
    >>> model = SpectralDPMeans(lam=0.9, kernel="rbf", gamma=0.1, random_state=0).fit(X)
    >>> model.labels_
    array([0, 0, 1, 1, 2], dtype=int32)
    >>> model.eigenvalues_.round(2)
    array([1.92, 1.89, 1.  ])
    >>> print(f"{model.bound_:.4f} <= {model.objective_:.4f}")
    2.8901 <= 2.8903
    """

    labels_: NDArray[np.int32]
    n_clusters_: int
    objective_: float
    bound_: float
    eigenvalues_: NDArray[np.float64]
    embedding_: NDArray[np.float64]
    lam_: float
    gamma_: float | None
    n_iter_: int

    _gamma_scale = 1.0

    @keywords_only
    def __init__(
        self,
        *,
        lam: float | Literal["auto", "spectrum", "farthest-first"] = "auto",
        kernel: str | Callable[..., ArrayLike] = "rbf",
        gamma: float | None = None,
        guess: int | None = None,
        rounding: Literal["yu-shi", "kmeans"] = "yu-shi",
        n_init: int = 10,
        max_memory: float = 2e9,
        random_state: int | np.random.RandomState | None = None,
        verbose: int = 0,
    ) -> None:
        self.lam = lam
        self.kernel = kernel
        self.gamma = gamma
        self.guess = guess
        self.rounding = rounding
        self.n_init = n_init
        self.max_memory = max_memory
        self.random_state = random_state
        self.verbose = verbose

    _takes_sparse = True

    def _validate_kernel(self, X: Any, *, reset: bool, least: int = 1) -> Any:
        X = super()._validate_kernel(X, reset=reset, least=least)
        check_reach(X)
        return X

    def _learn_varying(self, X):
        """Drop constant columns of these rows: for a dense linear kernel with a rule for lam.

        Kernels of distances do not depend on them; for others they may have a meaning.
        """
        drops = isinstance(self.lam, str) and self._kernel_is("linear") and not issparse(X)
        self._varying = varying_columns(X) if drops else None

    def _problem(self, X, weight):
        """Numbers of the rows with weight, and the problem of the relaxation for these rows."""
        rows, is_matrix = np.flatnonzero(weight), self._kernel_is("precomputed")
        n = len(rows)
        if n < X.shape[0]:
            X, weight = X[rows], weight[rows]
            X = X[:, rows] if is_matrix else X
        if self._kernel_is("linear"):
            return rows, LinearProblem(X, weight, self.max_memory)
        fits = n <= DENSE_SOLVED_ROWS or n * n * DENSE_SOLVER <= self.max_memory
        if not (fits or (is_matrix and issparse(X))):
            gram = Gram(self._kernel_of_fit(), X, self.max_memory)
            sample = np.linspace(0, n - 1, DENSE_SOLVED_ROWS).astype(int)
            if callable(self.kernel):
                self._check_callable(gram.block(sample, sample))
            return rows, BlockProblem(gram, weight, self.max_memory)
        K = X if is_matrix else self._kernel_of_fit().between(X, X)
        if callable(self.kernel):
            self._check_callable(K)
        return rows, GramProblem(K.astype(np.float64, copy=False), weight, self.max_memory)

    def _check_callable(self, K):
        check_symmetric(K, f"kernel={self.kernel!r} must return a symmetric matrix")

    def fit(
        self,
        X: ArrayLike | sparray | spmatrix,
        y: object = None,
        sample_weight: ArrayLike | None = None,
    ) -> Self:
        """Cluster the data.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
            Data, or, with ``kernel="precomputed"``, their symmetric Gram matrix of shape
            (n_samples, n_samples). A sparse Gram matrix, and sparse data with
            ``kernel="linear"``, stay sparse.
        y : None
            Ignored.
        sample_weight : array-like of shape (n_samples,), default=None
            Weights >= 0, not all zero; None means 1 each.

        Returns
        -------
        self : SpectralDPMeans
            The fitted estimator.
        """
        self._check_parameters()
        rng = check_random_state(self.random_state)
        X = self._validate_kernel(X, reset=True)
        weight = check_weights(sample_weight, X.shape[0])
        weight = self._relative(weight, isinstance(self.lam, str))
        weight = np.ones(X.shape[0]) if weight is None else weight
        self._learn_varying(X if weight.all() else X[weight > 0])
        X = self._columns(X)
        warn_remote(self, X)
        self._learn_kernel(X, weight)
        rows, problem = self._problem(X, weight)
        self.lam_, eigenpairs = self._penalty(problem, X, weight, rng)
        Y = self._relax(problem, self.lam_, eigenpairs, rng)
        self.embedding_ = np.zeros((X.shape[0], Y.shape[1]))
        self.embedding_[rows] = Y

        best = best_of(
            self._roundings(problem, self.lam_, Y, rng, weight[rows]),
            total=self.n_init,
            callback=self._callback(),
            rounding=EQUAL_VALUES * problem.scale,
        )
        self.objective_, labels, self.n_iter_ = best
        self.n_clusters_ = best.k
        self._store_means(X, rows, labels, problem)
        self.labels_ = np.empty(X.shape[0], dtype=np.int32)
        self.labels_[rows] = labels
        weightless = np.flatnonzero(weight == 0)
        if len(weightless):
            self.labels_[weightless] = self._nearest(X[weightless])
            self.labels_ = first_appearance(self.labels_)
            self._store_means(X, rows, self.labels_[rows], problem)
        self._multiply("lam_", "objective_", "bound_", "eigenvalues_")
        return self

    def _check_parameters(self):
        check_verbose(self.verbose)
        check_lam(self.lam, options=("auto", "spectrum", "farthest-first"))
        check_number(self.max_memory, "max_memory", low=0, low_open=True)
        check_number(self.guess, "guess", low=1, integer=True, none=True)
        check_option(self.rounding, "rounding", ("yu-shi", "kmeans"))
        check_number(self.n_init, "n_init", low=1, integer=True)
        self._check_kernel()

    def _relax(self, problem, lam, eigenpairs, rng):
        """Eigenvectors of eigenvalues above lam; sets ``eigenvalues_`` and ``bound_``."""
        values, Y = problem.eigen(lam, rng) if eigenpairs is None else eigenpairs
        above = values > lam
        self.eigenvalues_, Y = values[above], Y[:, above]
        centered = problem.centered_values(lam, rng, self.eigenvalues_, Y)
        # KJ12, Theorem 5.2: objective >= tr G - sum over eigenvalues above lam of (eigenvalue -
        # lam); and objective >= tr G_c + lam - that sum for the centered G_c
        self.bound_ = float(
            max(
                problem.trace - (self.eigenvalues_ - lam).sum(),
                problem.centered_trace + lam - (centered - lam).sum(),
            )
        )
        return Y

    def _penalty(self, problem, X, weight, rng):
        """Penalty, and eigenpairs: at least all above the penalty, or None if not computed."""
        lam, guess = self.lam, None
        if not isinstance(lam, str):
            return float(lam), None
        if lam == "farthest-first" or (lam == "spectrum" and self.guess is not None):
            # the bound on guess counts rows without weight, too
            guess = GUESS if self.guess is None else self.guess
            guess = min(cut_guess(guess, X.shape[0]), problem.n)
        elif lam == "auto" and self._goes_by_rows(X):
            guess = find_path(X, weight, rng, resolve_threads(None), transforms=False).best
        if lam == "farthest-first":
            return mean_weight(weight) * float(problem.farthest_first(guess)), None
        eigenpairs = values, Y = problem.eigen(
            np.inf, rng, least=min(problem.n, (guess or MAX_EIGENVALUES) + 1)
        )
        rank = int(np.count_nonzero(values > EQUAL_VALUES * problem.scale))
        if not rank:
            return mean_weight(weight), None
        if guess is None:
            guess = self._choose_number(values[:rank], Y[:, :rank], rng, weight[weight > 0])
        # the penalty is the root of the product of two neighboring eigenvalues
        last = values[min(guess, rank) - 1]
        next_value = max(values[guess] if guess < len(values) else 0.0, LEAST_RATIO * last)
        return float(np.sqrt(last) * np.sqrt(next_value)), eigenpairs

    def _goes_by_rows(self, X):
        """Whether "auto" takes the number of the merge path: for kernels of distances of rows."""
        return not issparse(X) and isinstance(self.kernel, str) and self.kernel in DISTANCE_KERNELS

    def _choose_number(self, values, Y, rng, weight):
        """Number of clusters k: of those with a large likeness, that before the largest ratio.

        Likeness is that of k clusters and k eigenvectors, ratios are of neighboring eigenvalues.
        """
        largest_ratio, number = 0.0, 1
        distinct = len(np.unique(np.round(unit_rows(Y) / COPY_DISTANCE), axis=0))
        for k in range(2, min(MAX_EIGENVALUES, distinct // 4, len(values)) + 1):
            next_value = values[k] if k < len(values) else LEAST_RATIO * values[k - 1]
            ratio = values[k - 1] / max(next_value, LEAST_RATIO * values[k - 1])
            if ratio > largest_ratio * (1 + EQUAL_VALUES) and any(
                likeness(labels, Y[:, :k], weight) >= MIN_LIKENESS
                for labels, _ in self._label_vectors(Y[:, :k], rng, weight, ROUNDINGS_PER_NUMBER)
            ):
                largest_ratio, number = ratio, k
        return number

    def _store_means(self, X, rows, labels, problem):
        """Store the cluster means for ``predict``, as points or by coefficients of the rows."""
        self._forget("_centers", "_means")
        M = weighted_means(labels, problem.weight)
        if self._kernel_is("linear"):
            centers = M.T @ problem.X
            centers = centers.toarray() if issparse(centers) else centers
            self._centers = np.ascontiguousarray(centers)
        elif self._kernel_is("precomputed"):  # new rows come with a column for each old one
            coefficients = csr_array((M.data, (rows, M.indices)), shape=(X.shape[0], M.shape[1]))
            self._means = _FeatureMeans(coefficients, problem.squared_norms(M), None)
        else:
            self._means = _FeatureMeans(M, problem.squared_norms(M), X[rows])

    def _nearest(self, X):
        """Cluster whose mean is nearest to each row."""
        if self._kernel_is("linear"):
            X = sparse_rows(X) if issparse(X) else X
            return nearest_sweep(X, None, self._centers, resolve_threads(None)).labels
        labels, means = np.empty(X.shape[0], dtype=np.int32), self._means
        size, kernel = block_size(self.max_memory), self._kernel_of_fit()
        for batch in batches(X.shape[0], max(1, size // means.coefficients.shape[0])):
            K = X[batch] if means.rows is None else kernel.between(X[batch], means.rows)
            inner = K @ means.coefficients
            inner = inner.toarray() if issparse(inner) else inner
            labels[batch] = np.argmin(means.squares - 2 * inner, axis=1)
        return labels

    def _roundings(self, problem, lam, Y, rng, weight):
        """Iterate over the starts of the rounding, as RoundedLabels with labels and objective."""
        errors = {}  # of labels met before: most starts end in the same labels
        for labels, n_iter in self._label_vectors(Y, rng, weight, self.n_init):
            key = labels.tobytes()
            if key not in errors:
                errors[key] = float(problem.error(labels))
            k = int(labels.max()) + 1
            yield RoundedLabels(float(errors[key] + lam * k), labels, n_iter)

    def _label_vectors(self, Y, rng, weight, n_init):
        """Iterable over label vectors from the eigenvectors Y, and the iterations each took."""
        if not Y.shape[1]:
            return [(np.zeros(len(Y), dtype=np.int32), 0)]
        if self.rounding == "kmeans":
            return kmeans_labels(unit_rows(Y), rng, n_init, weight)
        return yu_shi(Y, rng, n_init, weight)

    def predict(self, X: ArrayLike | sparray | spmatrix) -> NDArray[np.int32]:
        """Nearest cluster mean of each row, in feature space; no row opens a cluster.

        For rows of the fit this may differ from ``labels_``: the rounding does not assign rows to
        the nearest mean.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
            New data, or, with ``kernel="precomputed"``, the kernel of each new row with each row of
            the fit, of shape (n_samples, n_samples_fit).

        Returns
        -------
        labels : ndarray of shape (n_samples,), int32
            Cluster of each row; at a tie the lowest one.
        """
        check_is_fitted(self)
        check_number(self.max_memory, "max_memory", low=0, low_open=True)
        return self._nearest(self._columns(self._validate_kernel(X, reset=False)))
