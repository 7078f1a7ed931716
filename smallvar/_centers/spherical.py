"""Spherical DP-means: directions, clustered by cosine."""

from dataclasses import replace
from typing import Literal, Self, overload

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.sparse import csr_matrix, issparse
from scipy.spatial.distance import cdist
from sklearn.utils.validation import check_is_fitted

from smallvar._centers.dpmeans import DPMeans
from smallvar._centers.minibatch import BatchEstimator, labels_of_all, without_copies
from smallvar._centers.sphere_problem import (
    ERROR_SHARE,
    PATH_OPTIONS,
    SphereProblem,
    as_directions,
    first_row,
    opening_penalty,
)
from smallvar._centers.starts import run_starts
from smallvar._centers.unit_rows import (
    length_rounding,
    no_direction,
    rows_with_direction,
    squares,
    unit_rows,
    warn_of_zero_rows,
)
from smallvar._core.estimator import keywords_only, warn_not_converged
from smallvar._core.frame import FewRows, nearest, nearest_sweep
from smallvar._core.profiles import NO_SPREAD
from smallvar._core.validation import (
    DTYPES,
    Data,
    check_flag,
    check_init,
    check_lam,
    check_number,
    check_option,
    check_weights,
    learned,
    mean_weight,
    shown,
    some_rows,
)
from smallvar._selection.confidence import warn_if_unclear
from smallvar._selection.path import find_path
from smallvar._selection.penalty import LAM_RULES, check_exact_number, cut_guess, farthest_row
from smallvar._sweeps.means import ZERO_RESULTANT

TRANSFORMED_ROWS = 4096  # at a time


def resultants(totals, weights):
    """Lengths of sums of weighted rows of length 1; ``weights`` are the sums of the weights."""
    # divided by powers of two near the weights, without rounding: squares of tiny sums vanish
    unit = np.ldexp(1.0, np.frexp(weights)[1])
    return np.sqrt(squares(totals / unit[:, None])) * unit


class SphericalDPMeans(DPMeans, BatchEstimator):
    """DP-means for directions: rows that differ in angle, as embeddings of text do.

    Minimizes, over labels, centers of length 1 and their number K,

        sum_i w_i (1 - cos(x_i, mu_{z_i})) + lam * K.

    A row opens a cluster when its largest cosine with a center is below ``min_cosine``, which is
    1 - ``lam``. Rows are divided by their length; by default the data choose K.

    Of text as tf-idf with thousands of columns, the default finds too few clusters, often one, and
    takes long. Fit it to the rows of ``sklearn.decomposition.TruncatedSVD(50)`` instead, or give
    ``n_clusters`` or ``min_cosine`` (see Notes).

    Parameters
    ----------
    min_cosine : float, default=None
        Least cosine of a row with its center, between -1 and 1: a row opens a cluster below it.
        None: ``lam`` tells.
    lam : float, "auto" or "farthest-first", default=None
        Penalty for each cluster in place of ``min_cosine``, > 0 (0 is allowed together with
        ``max_clusters``: that is spherical k-means). "auto" chooses the number of clusters by how
        well they describe the rows of length 1, see :func:`cluster_path`; "farthest-first" derives
        the penalty from ``guess``. None: 1 - ``min_cosine`` if that is given, else
        "auto".
    n_clusters : int, "auto" or None, default=None
        The exact number of clusters, if ``lam`` is "auto": the clusters of that number on the merge
        path, and the penalty for which it is best. At most ``max_clusters`` and the number of
        distinct rows (of positive weight). None or "auto": the data choose.
    guess : int, default=8
        Guess of the number of clusters for ``lam="farthest-first"``, not a bound, at most the
        number of rows (to which the default is cut). Not used otherwise.
    max_clusters : int, default=None
        Never have more clusters than this. At the cap a far point joins its nearest cluster.
    algorithm : {"serial", "delayed"}, default="serial"
        "serial": rows in order, each one below ``min_cosine`` opens a cluster at once. "delayed"
        opens at most one cluster a sweep, for the row with the largest w (1 - cos): fewer redundant
        clusters. With "auto" both are the same: the clusters of the merge path, brought to a fixed
        point by sweeps.
    init : "first" or array-like of shape (n_centers, n_features), default="first"
        Starting centers, of any length but 0; "first" is the first row visited. With "auto" given
        centers are where the path begins: no more clusters than those are found.
    n_init : int, default=1
        Number of starts, the first in the given order, the others in random order. The one with
        the lowest objective is kept; with "auto" the path with the lowest criterion.
    max_iter : int, default=300
        Largest number of sweeps; those that open clusters do not count,
        but there are at most ``max_iter + n_samples``.
    tol : float, default=0.0
        Stop when a sweep lowers the objective by at most ``tol`` times its value after the first
        sweep. 0 runs to a fixed point.
    random_state : int, RandomState instance or None, default=None
        Generator of the random orders, and of what a merge path draws.
    n_threads : int, default=None
        Threads; None means all that this process may use. The result does not depend on it.
    verbose : int, default=0
        Print a line a sweep.

    Attributes
    ----------
    cluster_centers_ : ndarray of shape (n_clusters, n_features), float64
        Centers of length 1, the normalized sums of the rows, in order of creation.
    labels_ : ndarray of shape (n_samples,), int32
        Cluster of each row; -1 for a row of length zero.
    n_clusters_ : int
        Number of clusters found.
    inertia_ : float
        Weighted sum of 1 - cosine with the own center, of the rows that have one.
    objective_ : float
        ``inertia_ + lam_ * n_clusters_``.
    objective_path_ : ndarray of shape (n_sweeps,), float64
        The objective after every sweep, and after the last labels where ``max_iter`` or ``tol``
        ended the fit; it never rises.
    lam_ : float
        The penalty used; with "auto" one for which the number of clusters chosen is better than
        those next to it on the path: a price for a whole cluster, not a 1 - cosine.
    min_cosine_ : float
        Cosine below which ``partial_fit`` opens a cluster: 1 - ``lam_``, over the mean weight where
        ``lam_`` was found; after a ``fit`` with "auto" one between those of rows of one cluster and
        those with other centers.
    resultant_lengths_ : ndarray of shape (n_clusters,), float64
        Length of the (weighted) sum of the rows each center was given so far.
    n_iter_ : int
        Sweeps, the last, unchanging one included.
    n_steps_ : int
        Batches seen by ``partial_fit`` since the last ``fit``.
    path_ : ClusterPath
        The merge path of the rows at length 1, without those of length zero, with "auto" only.
    probabilities_ : ndarray of shape (n_samples,), float64
        The probability of its own cluster for each row, see :meth:`predict_proba`.
    outlier_scores_ : ndarray of shape (n_samples,), float64
        How strange each row is, from 0 to 1, see :meth:`outlier_scores`.
    profiles_ : DataFrame, Table or dict of arrays
        What sets each cluster apart: a row for each cluster and column, of rows of length 1. See
        :meth:`profile_clusters`. Not after ``partial_fit``.
    representatives_ : Representatives
        Numbers of rows that stand for the clusters: ``centers``, those nearest to the centers, and
        ``boundaries``, a dict with two rows for each pair of clusters that touch. Not after
        ``partial_fit``.
    n_features_in_ : int
        Number of columns of the data.
    feature_names_in_ : ndarray of shape (n_features,)
        Names of the columns, if all are strings.

    Raises
    ------
    ValueError, TypeError
        From ``fit``, for data that are not finite, numeric and two-dimensional or have only rows of
        length zero, and for parameters out of their bounds. The estimator is then as it was.

    See Also
    --------
    DPMeans : The same for squared distances.

    Notes
    -----
    It is the limit of a Dirichlet process mixture of von Mises-Fisher distributions. Where rows
    and centers have length 1, ||x - mu||^2 = 2 (1 - cos): every decision compares this squared
    distance, taken in float64 between the row as it is stored and the center, with 2 ``lam``, and a
    tie goes to the lowest index. A row counts as being of length 1 if its squared length is within
    64 rounding errors of its type, and is then used as it is; all others are divided by their
    length and rounded to the type of the data (float32 for float16), in one copy. That of a memory
    map (``np.load(..., mmap_mode="r")``) of more than 4 million numbers is in a temporary file, so
    that data may be larger than memory. An error e of the length changes 1 - cos by the factor
    1 + e.

    The criterion by which the data choose K is that of :func:`cluster_path`, but with densities of
    tangent vectors t = (x - c mu) / sqrt((1 + c) / 2), c the cosine of x and its center mu: in
    d - 1 directions, and over the sphere ((1 + c) / 2)^(-(d - 3) / 2) times as large. Each is t or
    Gaussian, either spherical with the same variance v for all clusters, or with a covariance of
    each cluster that has an inverse Wishart prior at v I, of the weight of 6 d rows, over which the
    likelihood is integrated (of more than 128 columns, in the 128 of the largest second moments;
    in others it is spherical). A coordinate of a center costs log(u). If the criterion rises
    from its minimum to a quarter more clusters by less than half the price of each, pieces of
    clusters lower it. Then K is where it bends most: on its lower convex hull, where the fall to K
    is the largest multiple of that beyond K, or of the price if that is more.

    The price of a cluster grows with the number of directions in which the rows vary. In tf-idf
    rows these are hundreds or thousands, most of them words of few texts, so the price is more than
    what a topic gains. ``TruncatedSVD`` keeps the directions that many texts share.

    ``partial_fit`` takes a batch at a time, as :class:`MiniBatchDPMeans` does: the row with the
    largest w (1 - cos) opens a cluster while its cosine is below ``min_cosine_``, then each center
    becomes the normalized sum of all rows it was ever given. With "auto" the first batch chooses
    the centers to begin at, and ``min_cosine_``, which is chosen again from later batches while
    none has shown several clusters. It goes on from a ``fit``, too.

    A row of weight w counts w times, and opens a cluster at w (1 - cos) > ``lam``; a ``lam`` that
    is found goes with the mean weight, ``min_cosine_`` being for a row of that weight. Rows of
    weight zero take no part and are labeled as by ``predict``. A cluster whose rows sum to zero has
    no direction; it is dropped, and its rows go elsewhere.

    A row of length zero, such as an empty document, has no direction. It takes no part: the fit is
    the one of the other rows, which are copied, with a warning. Its label is -1, also in
    ``predict``, and its distance to every center is 1.

    References
    ----------
    Straub, Campbell, How & Fisher (2015), Small-variance nonparametric clustering on the
    hypersphere. Dhillon & Modha (2001), Concept decompositions, for a fixed number of clusters.
    Fraley & Raftery (2007), Bayesian regularization for normal mixture estimation, for the prior
    of covariances. Baudry, Maugis & Michel (2012), Slope heuristics, for criteria that go on
    falling.

    Examples
    --------
    >>> import numpy as np
    >>> from smallvar import SphericalDPMeans
    >>> X = np.array([[1.0, 0.1], [0.1, 2.0], [9.0, 1.0], [-3.0, -4.0], [0.0, 5.0]])
    >>> model = SphericalDPMeans(min_cosine=0.9).fit(X)
    >>> model.labels_
    array([0, 1, 0, 2, 1], dtype=int32)
    >>> labels, cosines = model.predict([[1.0, 1.0], [0.0, 0.1]], return_cosines=True)
    >>> labels, cosines.round(2)
    (array([0, 1], dtype=int32), array([0.78, 1.  ]))
    """

    resultant_lengths_: NDArray[np.float64]
    min_cosine_: float

    _error_share = ERROR_SHARE
    _given = "resultant_lengths_"
    _used_up = ("min_cosine", "lam", "n_clusters", "init")
    _dtypes = (*DTYPES, np.float16)

    @keywords_only
    def __init__(
        self,
        *,
        min_cosine: float | None = None,
        lam: float | Literal["auto", "farthest-first"] | None = None,
        n_clusters: int | Literal["auto"] | None = None,
        guess: int = 8,
        max_clusters: int | None = None,
        algorithm: Literal["serial", "delayed"] = "serial",
        init: Literal["first"] | ArrayLike = "first",
        n_init: int = 1,
        max_iter: int = 300,
        tol: float = 0.0,
        random_state: int | np.random.RandomState | None = None,
        n_threads: int | None = None,
        verbose: int = 0,
    ) -> None:
        self.min_cosine = min_cosine
        self.lam = lam
        self.n_clusters = n_clusters
        self.guess = guess
        self.max_clusters = max_clusters
        self.algorithm = algorithm
        self.init = init
        self.n_init = n_init
        self.max_iter = max_iter
        self.tol = tol
        self.random_state = random_state
        self.n_threads = n_threads
        self.verbose = verbose

    def _check_parameters(self):
        cosine = check_number(self.min_cosine, "min_cosine", none=True)
        self._check_starts()
        # min_cosine and lam = 1 - min_cosine are two names of one parameter
        if cosine is not None:
            if not -1.0 < cosine < 1.0:
                raise ValueError(f"min_cosine must be > -1 and < 1, got {shown(self.min_cosine)}")
            if self.lam is not None:
                raise ValueError(
                    "lam must be None where min_cosine is given, which is 1 - lam, got "
                    f"lam={shown(self.lam)} and min_cosine={shown(self.min_cosine)}"
                )
        elif self.lam is not None:
            check_lam(self.lam, capped=self.max_clusters is not None, options=LAM_RULES)
        check_exact_number(self, ("min_cosine", "lam"))
        check_option(self.algorithm, "algorithm", ("serial", "delayed"))

    def _usable_rows(self, X):
        return rows_with_direction(X, self._threads())

    def _taking_part(self, X, sample_weight):
        n = X.shape[0]
        weight = check_weights(sample_weight, n)
        X, used = self._usable_rows(X)
        if used is None:
            return X, weight, None
        if not len(used):
            raise ValueError(no_direction(n))
        if weight is not None and not weight[used].any():
            raise ValueError("sample_weight must be positive for a row that has a direction")
        # the first number that is missing among those of the rows used
        first = int(np.argmax(np.append(used, n) != np.arange(len(used) + 1)))
        warn_of_zero_rows(n - len(used), first)
        return X, None if weight is None else check_weights(weight[used], len(used)), used

    def fit(  # type: ignore[override]  # without links
        self, X: Data, y: object = None, sample_weight: ArrayLike | None = None
    ) -> Self:
        """Cluster the data.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
            Rows of any length; those of length zero get the label -1. float32 and float64 in any
            memory layout are used as they are if all rows have length 1, else copied once; float16
            is converted to float32, other types to float64. Sparse data are used as CSR.
        y : None
            Ignored.
        sample_weight : array-like of shape (n_samples,), default=None
            Weights >= 0, not all zero; None means 1 each.

        Returns
        -------
        self : SphericalDPMeans
            The fitted estimator.
        """
        self._check_parameters()
        rng, n_threads = self._rng(), self._threads()
        X = self._validate(X, reset=True)
        n, weight = X.shape[0], check_weights(sample_weight, X.shape[0])
        rows, taken, used = self._taking_part(X, sample_weight)
        given = self._given_centers(X.shape[1], n_threads)
        relative = self._relative(taken, self._finds_penalty)
        fit = self._described(rows.shape[0], self._penalty(rows, relative, n_threads), given)
        problem = SphereProblem(fit, rows, relative, n_threads)
        best = self._learn(run_starts(problem, rng), rows, relative, n_threads)
        self.labels_ = labels_of_all(self.labels_, used, n)
        self._remember_rows(X, weight)
        if not best.ended:
            warn_not_converged(self, self.n_iter_)
        warn_if_unclear(self)
        return self

    def _used_rows(self, rows):
        X, used = self._usable_rows(rows.X)
        kept = slice(None) if used is None else used
        return X, None if rows.weight is None else rows.weight[kept], rows.labels[kept]

    def _gains(self, moments):
        # With r c the mean of the rows, |c| = 1, a row gains r (1 - c.m) = r |c - m|^2 / 2 over the
        # center m of all rows
        r = np.sqrt(np.square(moments.mean).sum(axis=1, keepdims=True))
        c = np.divide(moments.mean, r, out=np.zeros(moments.mean.shape), where=r > ZERO_RESULTANT)
        delta = c[:-1] - c[-1]
        return np.where(np.abs(delta) > NO_SPREAD, 0.5 * r[:-1] * np.square(delta), 0.0)

    def _given_centers(self, n_features, n_threads):
        """The centers of ``init``, of length 1; None for the first row."""
        given = check_init(self.init, n_features, self.max_clusters, start="first")
        return None if given is None else unit_rows(given, n_threads, "init")

    def _penalty(self, X, weight, n_threads):
        """The penalty as a number, None where the data choose."""
        if self.min_cosine is not None:
            return 1.0 - float(self.min_cosine)
        if self.lam is None or self.lam == "auto":
            return None
        if self.lam == "farthest-first":
            guess = cut_guess(self.guess, X.shape[0])
            about = (first_row(X, weight)[0], length_rounding(X))
            farthest = farthest_row(X, guess, weight, n_threads, about=about) or 2.0
            # 1 - cos, in the unit of the weights; rows that are all alike give 1, a right angle
            return mean_weight(weight) * 0.5 * farthest
        return float(self.lam)

    @property
    def _finds_penalty(self):
        """Whether the penalty is not given as a number."""
        return self.min_cosine is None and (self.lam is None or isinstance(self.lam, str))

    def _note_cosine(self, weight):
        """The cosine at which a row opens a cluster, one of mean weight where that was found."""
        typical = mean_weight(weight) if self._finds_penalty else 1.0
        self.min_cosine_ = 1.0 - self._opening / typical

    def _fit_elsewhere(self, rows):
        rng, n_threads = self._rng(), self._threads()
        given = self._given_centers(rows.n_features, n_threads)
        fit = self._described(rows.n_samples, self._penalty(None, None, n_threads), given)
        problem = rows.problem(fit, rng, n_threads)
        best = run_starts(problem, rng)
        return self._learn(best, *problem.sampled, n_threads).ended

    def _learn(self, fitted, X, weight, n_threads):
        """Set the attributes of a fit; X are the rows, or those that the path was found on."""
        # the length of the sum of its rows is the weight of a center in later partial fits
        totals, weights = fitted.sweep.cluster_sums().totals
        k = fitted.n_clusters
        self.resultant_lengths_ = resultants(totals[:k], weights[:k])
        fitted = replace(fitted, sweep=None)  # its bounds take memory
        super()._learn(fitted)
        # lam_ counts clusters in the objective; later batches open clusters by ``_opening``: the
        # penalty of a path may be less than distances within its clusters
        self._opening, path, within = fitted.lam, getattr(self, "path_", None), None
        if path is not None:
            self._opening, within = opening_penalty(X, weight, self.cluster_centers_, n_threads)
        self._note_cosine(weight)
        self._multiply("_opening", "resultant_lengths_")
        self._forget("_found")
        if path is not None:
            self._found = self._resting_on(path, self._opening, within)
        self._begin_stream()
        self._note()
        return fitted

    def _begin(self, X, weight, rng, n_threads):
        given = without_copies(self._given_centers(X.shape[1], n_threads))
        lam = self._penalty(X, weight, n_threads)
        self._forget("path_", "_found")
        if lam is None:
            found, given = self._choose(X, weight, rng, n_threads, given)
            self._take(found, weight)
        else:
            self.lam_ = self._opening = lam
            self._note_cosine(weight)
        self.cluster_centers_ = given
        # length 0: given centers have no weight yet, the first rows that join give the direction
        self.resultant_lengths_ = None if given is None else np.zeros(len(given))
        self._begin_stream()
        self._note()

    def _choose(self, X, weight, rng, n_threads, init):
        options = self._path_options() | PATH_OPTIONS
        path = find_path(X, weight, rng, n_threads, **options, init=init).seen()
        centers = as_directions(path.centers(path.best), X, weight, n_threads)
        lam, within = opening_penalty(X, weight, centers, n_threads)
        return self._resting_on(path, lam, within), centers

    def _take(self, found, weight):
        self._found, self.path_, self.lam_, self._opening = found, found.path, found.lam, found.lam
        self._note_cosine(weight)

    def _first(self, X, weight, n_threads):
        return first_row(X, weight)

    def _opens_beyond(self):
        # a squared distance: twice 1 - cos
        return 2.0 * self._opening

    def _moved(self, centers, total, weights):
        # a center is the sum of its rows at length 1; where the sum vanishes it stays as it was
        size = resultants(total, weights)
        nonzero = size > ZERO_RESULTANT * weights
        centers[nonzero] = total[nonzero] / size[nonzero, None]
        return centers, size

    def _finish(self, sweep):
        super()._finish(sweep)
        self._forget("objective_path_")  # that of a fit

    def _nearest(self, X, weight=None):
        rows, used = self._usable_rows(X)
        centers = learned(self, "cluster_centers_", None, X.shape[1])
        weight = weight if used is None or weight is None else weight[used]
        if rows.shape[0] and (weight is None or weight.any()):
            return nearest(rows, weight, centers, self._threads())
        return FewRows(rows[:0], None, centers, np.empty(0, np.int32), np.empty(0), None)

    def _measured(self, X):
        rows, used = self._usable_rows(X)
        if used is not None:  # rows without a direction are equally far from all centers
            n = X.shape[0], len(used)
            where = csr_matrix((np.ones(n[1]), (used, np.arange(n[1]))), shape=n)
            rows = where @ rows
        return rows, learned(self, "cluster_centers_", None, X.shape[1])

    def _constant_columns(self, fitted):
        return None  # they are not constant in rows of length 1

    def _made_row_model(self, fitted):
        if fitted.before is not None:
            return super()._made_row_model(fitted)
        rows, weight, labels, centers = self._sample_for_model(fitted)
        # of the tangent plane, where a von Mises-Fisher density is a Gaussian
        d = max(1, min(rows.shape) - 1)
        return self._model_of_distances(rows, weight, labels, centers, d)

    @overload
    def predict(  # numpydoc ignore=GL08
        self, X: Data, *, return_cosines: Literal[False] = False
    ) -> NDArray[np.int32]: ...

    @overload
    def predict(  # numpydoc ignore=GL08
        self, X: Data, *, return_cosines: Literal[True]
    ) -> tuple[NDArray[np.int32], NDArray[np.float64]]: ...

    def predict(
        self, X: Data, *, return_cosines: bool = False
    ) -> NDArray[np.int32] | tuple[NDArray[np.int32], NDArray[np.float64]]:
        """Center of the largest cosine with each row; no row opens a cluster.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
            New data.
        return_cosines : bool, default=False
            Return these cosines, too: what is below ``min_cosine_`` would have opened a
            cluster.

        Returns
        -------
        labels : ndarray of shape (n_samples,), int32
            Index into ``cluster_centers_``; at a tie the lowest one; -1 for a row of length zero.
        cosines : ndarray of shape (n_samples,), float64
            Only if ``return_cosines``; 0 for a row of length zero.
        """
        check_is_fitted(self)
        check_flag(return_cosines, "return_cosines")
        X = self._validate(X, reset=False)
        n = X.shape[0]
        centers = learned(self, "cluster_centers_", None, X.shape[1])
        X, used = self._usable_rows(X)
        sweep = nearest_sweep(X, None, centers, self._threads()) if X.shape[0] else None
        labels = labels_of_all(np.empty(0) if sweep is None else sweep.labels, used, n)
        if not return_cosines:
            return labels
        cosines = np.zeros(n)
        if sweep is not None:
            # cos = 1 - ||x - mu||^2 / 2 for vectors of length 1; rounding may leave less than -1
            cosine = np.maximum(1.0 - 0.5 * sweep.assigned_distances(), -1.0)
            cosines[slice(None) if used is None else used] = cosine
        return labels, cosines

    def transform(self, X: Data) -> NDArray[np.floating]:
        """Compute 1 - cosine of each row with each center.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
            New data.

        Returns
        -------
        distances : ndarray of shape (n_samples, n_clusters)
            Cosine distances, from 0 to 2, in units of ``lam``: like distances elsewhere, the least
            is that of the nearest center. A row of length zero has distance 1 to every center, as
            in scikit-learn's ``cosine_distances``. float32 for float32 and float16 data.
        """
        check_is_fitted(self)
        X = self._validate(X, reset=False)
        centers = learned(self, "cluster_centers_", None, X.shape[1])
        rows, used = self._usable_rows(X)
        used = np.arange(X.shape[0]) if used is None else used
        distances = np.ones((X.shape[0], len(centers)), dtype=rows.dtype)
        # cdist makes a float64 copy of what it gets
        for start in range(0, len(used), TRANSFORMED_ROWS):
            some = slice(start, start + TRANSFORMED_ROWS)
            if issparse(X):
                block = np.clip(1.0 - some_rows(rows, some) @ centers.T, 0.0, 2.0)
            else:
                block = 0.5 * cdist(rows[some], centers, "sqeuclidean")
            distances[used[some]] = block
        return distances
