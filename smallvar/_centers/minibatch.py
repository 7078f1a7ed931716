"""MiniBatchDPMeans: DP-means from batches of the data, in bounded memory.

The objective is that of Kulis & Jordan (2012); a batch opens clusters as in Dinari & Freifeld
(2022) and then moves each center to the mean of all rows that it was ever given, as in Sculley
(2010). The module has ``BatchEstimator``, the base with the update by one batch and
``partial_fit`` (also of the spherical form), and the estimator, whose ``fit`` makes passes.
"""

import math
from collections.abc import Callable
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.sparse import issparse

from smallvar._centers.center_estimator import CenterEstimator, NearestCenters
from smallvar._core.estimator import keywords_only
from smallvar._core.fit_loop import NO_CAP
from smallvar._core.frame import (
    RowsFrame,
    added_to,
    nearest,
    nearest_again,
    nearest_row,
    nearest_sweep,
)
from smallvar._core.identifiers import warn_of_identifiers
from smallvar._core.profiles import ColumnMoments
from smallvar._core.progress import ProgressEvent
from smallvar._core.row_model import RowModelMixin, model_of_stream
from smallvar._core.validation import (
    Data,
    check_init,
    check_lam,
    check_number,
    check_stays,
    check_weights,
    exact_number,
    is_same,
    learned,
    some_rows,
)
from smallvar._selection.cluster_path import ClusterPath
from smallvar._selection.confidence import warn_if_unclear
from smallvar._selection.descent import check_reached
from smallvar._selection.path import find_path
from smallvar._selection.penalty import (
    LAM_RULES,
    BatchPenalty,
    check_exact_number,
    opening_distance,
    resolve_lam,
)
from smallvar._sweeps.nearest_sweep import check_memory
from smallvar._sweeps.sums import Stream, exact_total

# Rows of a stream that forgets count 2^h times, h halvings after its sums began, instead of halving
# the sums; these are divided by a power of two when h reaches MOST_HALVINGS. NOTHING_LEFT halvings
# make any float64 number 0. A weight below FADED times that of the next batch then counts as 0, so
# that sums need few digits.
MOST_HALVINGS, NOTHING_LEFT, FADED = 32.0, 2200.0, 2.0**-256


def without_copies(centers):
    """Centers without those equal to an earlier one; None stays None.

    A copy would get no row, as ties go to the first; but once that has moved, rows would join the
    copy, which in other estimators has vanished by then.
    """
    if centers is None:
        return None
    _, first = np.unique(centers + 0.0, axis=0, return_index=True)  # -0.0 is 0.0
    return centers[np.sort(first)]


def labels_of_all(labels, used, n):
    """Labels of n rows from those of the rows used, by their numbers; -1 for the others."""
    if used is None:
        return labels
    all_labels = np.full(n, -1, dtype=np.int32)
    all_labels[used] = labels
    return all_labels


class BatchEstimator(RowModelMixin, CenterEstimator):
    """Base of estimators whose centers are updated batch by batch.

    ``_given`` names the learned array that has, for each center, the total weight of its rows so
    far (for directions: their resultant length). ``_stream`` has the sums of the rows, with copies
    of the centers and of that array as they followed from the sums. If the user has replaced either
    since, or ``_stream`` is None, the sums are derived from centers and array. In a stream that
    forgets, sums are 2^``_halvings`` times those of the weights that rows have by now.

    A subclass has ``_check_parameters()`` and ``_begin(X, weight, rng, n_threads)``, which sets the
    penalty and the starting centers from the first data seen; centers of None mean the one of
    ``_first``. For penalties that the data choose, ``_choose(X, weight, rng, n_threads, init)``
    returns a BatchPenalty and the centers of its path, and ``_take(found, weight)`` sets it.
    """

    _given = "cluster_weights_"
    # parameters that must stay what they were at the first data
    _used_up: tuple[str, ...] = ("lam", "n_clusters", "init")
    _used: dict[str, Any]
    _stream: Any
    _batch_cost = np.nan  # of a row of the last batch, on average
    _found: BatchPenalty | None = None  # with "auto"; None: the penalty is not chosen again
    half_life: float | None = None  # for subclasses without the parameter
    _halvings = 0.0  # the sums in ``_stream`` are 2^_halvings times those of the faded weights
    lam: Any
    inertia_: float
    lam_: float
    n_steps_: int
    max_clusters: int | None
    n_clusters: int | Literal["auto"] | None
    _check_parameters: Callable[[], None]
    _begin: Callable[..., None]
    _choose: Callable[..., tuple[BatchPenalty, Any]]
    _take: Callable[..., None]

    def _note(self):
        """Keep the values of the parameters that must not change after the first data."""
        names = {*self._used_up, *(("guess",) if self.lam == "farthest-first" else ())}
        self._used = {name: getattr(self, name) for name in sorted(names)}

    def _path_options(self):
        """Arguments of ``find_path`` for the first data."""
        options = {"most": self.max_clusters, "number": exact_number(self.n_clusters)}
        return options | {"callback": self._callback()}

    def _taking_part(self, X, sample_weight):
        """The rows that take part in a fit, their weights, and their numbers (None: all)."""
        return X, check_weights(sample_weight, X.shape[0]), None

    def _first(self, X, weight, n_threads):
        """The starting center where none is given, of shape (1, n_features)."""
        return RowsFrame(X, weight, n_threads).mean.reshape(1, -1)

    def _opens_beyond(self):
        """The weighted squared distance beyond which a row opens a cluster."""
        return self.lam_

    def _moved(self, centers, total, weights):
        """Centers, and the array named by ``_given``, from the sums of all rows so far.

        A row of weight w so moves its mean by w / (total weight) of the way to itself: the learning
        rate of Sculley (2010).
        """
        return total / weights[:, None], weights

    def _resting_on(self, path, lam, within):
        """The BatchPenalty of a path; it is not chosen again if the number of clusters is given."""
        alone = path.best == 1 and exact_number(self.n_clusters) is None and self.max_clusters != 1
        return BatchPenalty(path, lam, within if alone else None)

    def _step(self, X, weight, n_threads, later=False):
        """Open clusters and move the centers by a batch; its ``nearest`` before the move."""
        caps = (exact_number(self.n_clusters), self.max_clusters, NO_CAP)
        cap = next(cap for cap in caps if cap is not None)
        centers = self.cluster_centers_
        given = getattr(self, self._given)
        if centers is None:
            centers = self._first(X, weight, n_threads)
            stream, given = Stream.of(centers, np.zeros(1)), np.zeros(0)
        else:
            stream, *derived, summed = self._stream or [None, None]
            if stream is None or not (is_same(derived[0], centers) and is_same(derived[1], given)):
                stream, summed, self._halvings = Stream.of(centers, given), given, 0.0
            given = summed
            if later and self.half_life is not None:
                stream, given = self._faded(stream, centers, given, X.shape[0], weight)
        factor = 2.0**self._halvings
        zero = np.zeros(X.shape[1])  # one origin of the sums for all batches, wherever they lie
        sweep = nearest(X, weight, centers, n_threads, zero)
        distance = sweep.assigned_distances()
        # delayed creation: the row with the largest weighted distance opens a cluster, repeatedly
        opened = []
        weighted = distance if weight is None else weight * distance
        farthest = int(weighted.argmax())
        largest = weighted[farthest]
        if later and self._found is not None and self._found.within is not None:
            self._found = self._found.counted()
            if self._found.is_due or largest > self._opens_beyond():
                new, _ = self._choose(X, weight, self._rng(), n_threads, None)
                self._take(self._found.after(new), weight)
        while largest > self._opens_beyond() and len(centers) + len(opened) < cap:
            seed, farthest, largest = nearest_row(X, weight, farthest, distance, n_threads)
            opened.append(seed)
            if issparse(X):
                check_memory(len(centers) + len(opened), X.shape[1])
        if opened:
            centers = np.vstack([centers, *opened])
            sweep = nearest(X, weight, centers, n_threads, zero)
        stream, counts = added_to(stream, X, weight, sweep, factor, n_threads)
        # only centers with rows in the batch move
        touched = np.flatnonzero(counts)
        centers, new_given = centers.copy(), np.zeros(sweep.k)
        new_given[: len(given)] = given
        centers[touched], new_given[touched] = self._moved(centers[touched], *stream.read(touched))
        if self.cluster_centers_ is None and counts[0] == 0:
            # the starting center has no rows: it was no user's, and is dropped
            stream, centers, new_given = stream.only(slice(1, None)), centers[1:], new_given[1:]
        self._set_state(stream, centers, new_given, factor)
        self.n_steps_ += 1
        return sweep

    def _faded(self, stream, centers, summed, n, weight):
        """The stream before a batch of n rows, as whose weight grows that of earlier rows fades.

        ``summed`` are the weights in its sums, and are returned with it.
        """
        size = float(n) if weight is None else exact_total(weight)
        self._halvings += min(size / float(self.half_life), NOTHING_LEFT)
        if self._halvings < MOST_HALVINGS:
            return stream, summed
        whole = math.floor(self._halvings)
        self._halvings -= whole
        summed = np.ldexp(summed, -whole)
        summed[summed < FADED * size] = 0.0
        return Stream.of(centers, summed), summed

    def _begin_stream(self):
        """Forget all batches."""
        self._stream, self.n_steps_ = None, 0
        self._forget("_halvings", "_within")

    def _set_state(self, stream, centers, summed, factor=1.0):
        """Set sums in which weights count ``factor`` times, and the arrays that follow."""
        self.cluster_centers_ = centers
        given = summed if factor == 1.0 else summed / factor
        setattr(self, self._given, given)
        self._stream = stream, centers.copy(), given.copy(), summed

    def _finish(self, sweep):
        """Set labels and objective from a sweep over the data at the present centers."""
        error = self._error_share * sweep.squared_error()
        self.labels_ = sweep.labels
        self.n_clusters_ = len(self.cluster_centers_)
        self.inertia_ = error
        self.objective_ = error + self.lam_ * self.n_clusters_

    def partial_fit(
        self, X: Data, y: object = None, sample_weight: ArrayLike | None = None
    ) -> Self:
        """Update the clusters with one batch.

        ``lam``, ``n_clusters`` and ``init`` must stay what they were at the first batch; so must
        ``min_cosine`` where there is one, and ``guess`` for "farthest-first".

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
            The batch, used as a whole.
        y : None
            Ignored.
        sample_weight : array-like of shape (n_samples,), default=None
            Weights >= 0, not all zero.

        Returns
        -------
        self : estimator
            The updated estimator.
        """
        self._check_parameters()
        n_threads = self._threads()
        first = not hasattr(self, "cluster_centers_")
        X = self._validate(X, reset=first)
        n, batch = X.shape[0], X
        X, weight, used = self._taking_part(X, sample_weight)
        if first:
            self._begin(X, weight, self._rng(), n_threads)
            self.n_iter_ = 1
        else:
            centers = learned(self, "cluster_centers_", None, X.shape[1])
            setattr(self, self._given, learned(self, self._given, len(centers)))
            check_stays(self, self._used)
            self.cluster_centers_ = centers
        before = self._step(X, weight, n_threads, later=not first)
        self._finish(nearest_again(before, X, weight, self.cluster_centers_, n_threads))
        self.labels_ = labels_of_all(self.labels_, used, n)
        self._remember_batch(batch, X.shape[0] if weight is None else float(weight.sum()))
        if first:
            warn_if_unclear(self)
        return self

    def _remember_rows(self, X, weight, **options):
        super()._remember_rows(X, weight, **options)
        self._within = self.inertia_, X.shape[0] if weight is None else float(weight.sum())

    def _remember_batch(self, X, total):
        """Remember a batch, at the end of its fit, and what rows have lain off their centers."""
        error, seen = vars(self).get("_within", (0.0, 0.0))
        left = 1.0 if self.half_life is None else 2.0 ** (-total / float(self.half_life))
        self._within = left * error + self.inertia_, left * seen + total
        super()._remember_rows(X, None, before=self._within)

    def _made_row_model(self, fitted):
        if fitted.before is None:
            return super()._made_row_model(fitted)
        # of a stream only sums are known
        weights, (error, total) = getattr(self, self._given), fitted.before
        centers = learned(self, "cluster_centers_", None, self.n_features_in_)
        variance = error / (self._error_share * total * centers.shape[1])
        total = float(weights.sum())  # 0 for directions that cancel
        shares = np.full(len(centers), 1.0 / len(centers))
        if self.half_life is None and total > 0.0:  # weights that fade tell the age of clusters
            shares = weights / total
        return model_of_stream(centers, shares, variance)


class MiniBatchDPMeans(NearestCenters, BatchEstimator):
    """DP-means from batches of the data: bounded memory, streams, large files.

    Follows the objective of :class:`DPMeans`,

        sum_i w_i ||x_i - mu_{z_i}||^2 + lam * K,

    one batch at a time. In each batch the point with the largest weighted squared distance to its
    nearest center opens a cluster, as long as that exceeds ``lam``. Then every center moves to the
    mean of all points that were ever assigned to it (learning rate w / total weight).

    Parameters
    ----------
    lam : float, "auto" or "farthest-first", default="auto"
        Penalty for each cluster, in squared data units, > 0 (0 is allowed together with
        ``max_clusters``): the squared distance at which a cluster opens. "auto" starts from the
        clusters that :func:`cluster_path` finds, and takes a squared distance beyond all within
        them. The path is that of all data (a sample of them) in ``fit``, and of the first batch in
        ``partial_fit``. Later batches keep the penalty, unless it rests on a single cluster: it is
        then chosen again, up to the first batch whose own path has several clusters. (With rows
        that open no cluster, only 16 batches and then every power of two are looked at.)
        "farthest-first" derives the penalty from the same data and ``guess``. Both are proportional
        to the mean weight of the rows: a row of weight w opens a cluster at w times its squared
        distance.
    n_clusters : int, "auto" or None, default=None
        The exact number of clusters, if ``lam`` is "auto": the clusters of that number on the merge
        path; no row opens another. At most ``max_clusters`` and the number of distinct rows (of
        positive weight) in ``fit``, or in the first batch of ``partial_fit``. A cluster without
        rows at the end of ``fit`` is replaced by the row farthest from its center. None or "auto":
        the path chooses the number, and later rows open clusters.
    guess : int, default=8
        Guess of the number of clusters for ``lam="farthest-first"``, not a bound, at most the
        number of rows (to which the default is cut). Not used otherwise.
    max_clusters : int, default=None
        Never have more clusters than this.
    half_life : float, default=None
        In ``partial_fit``, the weight of later rows (their number, without ``sample_weight``) after
        which a row counts half, > 0, so that centers follow rows that move. None: all rows count
        the same, for ever. A center is the mean of its rows with the weights w 2^(-a / half_life),
        where the age a of a row is the total weight of the batches after its own. A center that
        gets no rows stays where it is and loses weight, down to 0: see ``cluster_weights_``. Rows
        of ``fit`` come in random order, and count the same until ``partial_fit`` goes on.
    init : "mean" or array-like of shape (n_centers, n_features), default="mean"
        Starting centers; "mean" is the mean of the first batch. They carry no weight. Copies of a
        center are left out. With ``partial_fit`` a center stays until rows come for it; ``fit``
        drops those that no row is nearest to in the end.
    batch_size : int, default=4096
        Rows of a batch in ``fit``.
    max_iter : int, default=100
        Largest number of passes over the data in ``fit``. No warning is given when ``fit`` ends
        by it.
    tol : float, default=1e-3
        ``fit`` stops when a pass lowers the objective by at most ``tol`` times that of the first
        pass: the sum of the batches' errors, each before its update, plus ``lam_ * n_clusters_``.
    random_state : int, RandomState instance or None, default=None
        Generator of the batches of ``fit``, and of the path of ``lam="auto"``.
    n_threads : int, default=None
        Threads; None means all that this process may use. The result does not depend on it.
    verbose : int, default=0
        Print a line a pass.

    Attributes
    ----------
    cluster_centers_ : ndarray of shape (n_clusters, n_features), float64
        Running means of the clusters, in order of creation.
    cluster_weights_ : ndarray of shape (n_clusters,), float64
        Total weight of the points assigned to each center so far; with ``half_life``, what is left
        of it.
    labels_ : ndarray of shape (n_samples,), int32
        Nearest center of each row of ``fit``'s data, or of the last batch.
    n_clusters_ : int
        Number of clusters.
    inertia_ : float
        Weighted sum of squared distances behind ``labels_``.
    objective_ : float
        ``inertia_ + lam_ * n_clusters_``.
    lam_ : float
        The penalty used.
    n_iter_ : int
        Passes over the data of ``fit``; 1 after ``partial_fit`` alone.
    n_steps_ : int
        Batches seen since the last ``fit`` began.
    path_ : ClusterPath
        The merge path behind ``lam="auto"``, with that only: of all data after ``fit``, else of the
        batch from which the penalty was chosen, the first one or the first with several clusters.
    probabilities_ : ndarray of shape (n_samples,), float64
        The probability of its own cluster for each row, see :meth:`predict_proba`.
    outlier_scores_ : ndarray of shape (n_samples,), float64
        How strange each row is, from 0 to 1, see :meth:`outlier_scores`.
    profiles_ : DataFrame, Table or dict of arrays
        What sets each cluster apart: a row for each cluster and column. See
        :meth:`profile_clusters`. After ``partial_fit`` without spreads.
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
        From ``fit`` and ``partial_fit``, as for :class:`DPMeans`.

    See Also
    --------
    DPMeans : From all data at once, to a fixed point.

    References
    ----------
    Kulis & Jordan (2012) for the objective; delayed creation after Dinari & Freifeld (2022);
    learning rates as in Sculley (2010), Web-scale k-means clustering.

    Examples
    --------
    >>> import numpy as np
    >>> from smallvar import MiniBatchDPMeans
    >>> model = MiniBatchDPMeans(lam=4.0)
    >>> model.partial_fit([[0.0, 0.0], [9.0, 9.0]]).n_clusters_
    2
    >>> model.partial_fit([[0.0, 1.0], [0.0, 9.0]]).n_clusters_
    3
    >>> model.predict([[0.0, 2.0], [9.0, 8.0], [1.0, 9.0]])
    array([0, 1, 2], dtype=int32)
    """

    cluster_weights_: NDArray[np.float64]
    path_: ClusterPath

    @keywords_only
    def __init__(
        self,
        *,
        lam: float | Literal["auto", "farthest-first"] = "auto",
        n_clusters: int | Literal["auto"] | None = None,
        guess: int = 8,
        max_clusters: int | None = None,
        half_life: float | None = None,
        init: Literal["mean"] | ArrayLike = "mean",
        batch_size: int = 4096,
        max_iter: int = 100,
        tol: float = 1e-3,
        random_state: int | np.random.RandomState | None = None,
        n_threads: int | None = None,
        verbose: int = 0,
    ) -> None:
        self.lam = lam
        self.n_clusters = n_clusters
        self.guess = guess
        self.max_clusters = max_clusters
        self.half_life = half_life
        self.init = init
        self.batch_size = batch_size
        self.max_iter = max_iter
        self.tol = tol
        self.random_state = random_state
        self.n_threads = n_threads
        self.verbose = verbose

    _takes_sparse = True

    def _check_parameters(self):
        self._check_starts()
        check_lam(self.lam, capped=self.max_clusters is not None, options=LAM_RULES)
        check_exact_number(self)
        check_number(self.batch_size, "batch_size", low=1, integer=True)
        check_number(self.half_life, "half_life", low=0, low_open=True, none=True)

    def _begin(self, X, weight, rng, n_threads):
        """Set the penalty and the starting centers from the first data seen."""
        given = without_copies(check_init(self.init, X.shape[1], self.max_clusters))
        self._note()
        self._forget("path_", "_found")
        if isinstance(self.lam, str) and self.lam == "auto":
            found, given = self._choose(X, weight, rng, n_threads, given)
            self._take(found, weight)
        else:
            self.lam_ = resolve_lam(self.lam, X, self.guess, weight, n_threads)
        self.cluster_centers_ = given
        self.cluster_weights_ = None if given is None else np.zeros(len(given))
        self._begin_stream()

    def _choose(self, X, weight, rng, n_threads, init):
        path = find_path(X, weight, rng, n_threads, **self._path_options(), init=init).seen()
        centers = path.centers(path.best)
        lam, within = opening_distance(X, weight, centers, n_threads)
        return self._resting_on(path, lam, within), centers

    def _take(self, found, weight):
        self._found, self.path_, self.lam_ = found, found.path, found.lam

    def fit(self, X: Data, y: object = None, sample_weight: ArrayLike | None = None) -> Self:
        """Cluster the data in passes over random batches, from scratch.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
            Data. float32 and float64 in any memory layout are used as they are, other types
            converted once. Sparse data stay sparse, as for :class:`DPMeans`.
        y : None
            Ignored.
        sample_weight : array-like of shape (n_samples,), default=None
            Weights >= 0, not all zero.

        Returns
        -------
        self : MiniBatchDPMeans
            The fitted estimator.
        """
        self._check_parameters()
        rng, n_threads = self._rng(), self._threads()
        X = self._validate(X, reset=True)
        weight = check_weights(sample_weight, X.shape[0])
        self._begin(X, weight, rng, n_threads)
        first_cost, previous, callback = 0.0, None, self._callback()
        for n_iter in range(1, self.max_iter + 1):
            cost = self._pass(X, weight, rng.permutation(X.shape[0]), n_threads)
            if callback is not None:
                k = len(self.cluster_centers_)
                message = f"pass {n_iter}: {k} clusters, cost {cost:.8g}"
                callback(ProgressEvent("pass", n_iter, message, k, cost))
            # stop when a pass lowers the objective by at most tol times that of the first
            if previous is None:
                first_cost = cost
            elif previous - cost <= float(self.tol) * first_cost:
                break
            previous = cost
        self.n_iter_ = n_iter
        # final labels of all rows; clusters without rows are replaced or dropped
        sweep = nearest_sweep(X, weight, self.cluster_centers_, n_threads)
        kept = sweep.cluster_sums().counts[: sweep.k] > 0
        number = exact_number(self.n_clusters)
        if number is not None and not kept.all():
            sweep = self._refilled(X, weight, kept, number, n_threads)
        else:
            if sweep.drop_empty():  # rows of weight zero may have been in such a cluster
                sweep.assign()
            stream, given = self._stream[0].only(kept), self.cluster_weights_[kept]
            self._set_state(stream, sweep.centers, given)
        self._finish(sweep)
        self._remember_rows(X, weight)
        warn_of_identifiers(self, X)
        warn_if_unclear(self)
        return self

    def _moments(self):
        if self._fitted_rows is not None and self._fitted_rows.before is None:
            return super()._moments()
        # after a batch all that is known are the running means of all rows, and their weights
        weights, centers = self.cluster_weights_, self.cluster_centers_
        weight = np.append(weights, weights.sum())
        mean = np.vstack([centers, weights @ centers / weights.sum()])
        weight = np.broadcast_to(weight[:, np.newaxis], mean.shape)
        return ColumnMoments(weight, mean, np.full(mean.shape, np.nan)), True

    def _mean_cost(self, moments):
        # of all batches, where the rows are not known
        before = None if self._fitted_rows is None else self._fitted_rows.before
        return super()._mean_cost(moments) if before is None else before[0] / before[1]

    def _refilled(self, X, weight, kept, number, n_threads):
        """The sweep after clusters without rows are replaced by the rows farthest from centers."""
        while True:
            centers, given = self.cluster_centers_[kept], self.cluster_weights_[kept]
            sweep = nearest_sweep(X, weight, centers, n_threads)
            distance = sweep.assigned_distances()
            while len(centers) < number:
                farthest = int((distance if weight is None else weight * distance).argmax())
                if not distance[farthest] > 0.0:
                    check_reached(len(centers), number)
                # the new center has the weight of its row
                given = np.append(given, 1.0 if weight is None else weight[farthest])
                seed, *_ = nearest_row(X, weight, farthest, distance, n_threads)
                centers = np.vstack([centers, seed])
            self._set_state(Stream.of(centers, given), centers, given)
            sweep = nearest_sweep(X, weight, centers, n_threads)
            kept = sweep.cluster_sums().counts[: sweep.k] > 0
            if kept.all():
                return sweep

    def _pass(self, X, weight, order, n_threads):
        """Update by all batches once; returns the objective, batches measured before updates."""
        cost, size = 0.0, int(self.batch_size)  # a type of few bits would overflow
        for start in range(0, len(order), size):
            rows = np.sort(order[start : start + size])
            batch_weight = None if weight is None else weight[rows]
            if batch_weight is not None and not batch_weight.any():
                continue
            cost += self._step(some_rows(X, rows), batch_weight, n_threads).squared_error()
        return cost + self.lam_ * len(self.cluster_centers_)
