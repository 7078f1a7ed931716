"""Segments of records: states that rows stay in for a while, and come back to."""

from typing import Literal, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.utils.validation import check_is_fitted

from smallvar._centers.center_estimator import CenterEstimator
from smallvar._core.estimator import keywords_only, warn_not_converged
from smallvar._core.frame import RowsFrame
from smallvar._core.tables import GAPS_IN_TIME
from smallvar._core.validation import (
    check_lam,
    check_number,
    check_reach,
    check_verbose,
    check_weights,
    exact_number,
    learned,
)
from smallvar._selection.confidence import warn_if_unclear
from smallvar._selection.penalty import check_exact_number
from smallvar._selection.scale import MOST_CONFIDENT, NONE_WIDE, warn_of_wide, wide_of_many
from smallvar._time.record import Record
from smallvar._time.segment_search import StateSearch


class SegmentMeans(CenterEstimator):
    """Segments of records: rows in an order stay in a state for a while, and may come back to it.

    Minimizes, over labels, centers and their number K,

        sum_t w_t ||x_t - mu_{z_t}||^2 + lam_switch * (number of t with z_t != z_{t-1}) + lam * K,

    the objective of :class:`DPMeans` plus a price ``lam_switch`` for each row that has another
    state than the row before. By default the data choose both penalties.

    Parameters
    ----------
    lam : float or "auto", default="auto"
        Penalty for each state, in squared data units, > 0 (0 is allowed together with
        ``max_clusters``). It is the amount by which a state must lower the squared error of all its
        segments. With "auto" the data choose the number of states: see Notes.
    lam_switch : float or "auto", default="auto"
        Penalty for each switch, in squared data units, >= 0. "auto" derives
        it from the noise between neighboring rows: see Notes.
    n_clusters : int, "auto" or None, default=None
        The exact number of states, if ``lam`` is "auto". At most ``max_clusters`` and the number of
        distinct rows or, where ``lam_switch`` is a number, of states that save more squared error
        than their switches cost. None or "auto": the data choose.
    max_clusters : int, default=None
        Never have more states than this.
    n_init : int, default=3
        Number of prices at which pieces are made that starts begin with. The start with the lowest
        objective is kept.
    max_iter : int, default=300
        Largest number of sweeps; those that open states do not
        count, but there are at most ``max_iter + n_samples``.
    tol : float, default=0.0
        Stop when a sweep lowers the objective by at most ``tol`` times its value after the first
        sweep. 0 runs to a fixed point.
    n_threads : int, default=None
        Threads; None means all that this process may use. The result does not depend on it.
    verbose : int, default=0
        Print a line a sweep.

    Attributes
    ----------
    cluster_centers_ : ndarray of shape (n_clusters, n_features), float64
        (Weighted) means of the states, unless ``max_iter`` or ``tol`` ended the fit; in the order
        in which they are first entered, sequences as sorted by name.
    labels_ : ndarray of shape (n_samples,), int32
        State of each row.
    segments_ : ndarray of shape (n_segments,), int64
        The row at which each segment begins, sequence by sequence as sorted by name;
        ``labels_[segments_]`` are the states that are gone through.
    n_switches_ : int
        Number of switches: segments less sequences.
    n_clusters_ : int
        Number of states found.
    inertia_ : float
        Weighted sum of squared distances to the own centers.
    objective_ : float
        ``inertia_ + lam_switch_ * n_switches_ + lam_ * n_clusters_``.
    objective_path_ : ndarray of shape (n_sweeps,), float64
        The objective after every sweep, and after the last labels where ``max_iter`` or ``tol``
        ended the fit; it never rises.
    lam_ : float
        The penalty of a state used.
    lam_switch_ : float
        The penalty of a switch used.
    confidence_ : float
        How likely ``n_clusters_`` is right, from 0 to 1, judged by generated series whose number of
        states is known; below 0.5 there is an UnclearNumberWarning. NaN where ``n_clusters`` or
        ``lam`` is given.
    n_iter_ : int
        Sweeps, the last, unchanging one included.
    profiles_ : DataFrame, Table or dict of arrays
        What sets each cluster apart: a row for each cluster and column. See
        :meth:`profile_clusters`.
    representatives_ : Representatives
        Numbers of rows that stand for the clusters: ``centers``, those nearest to the centers, and
        ``boundaries``, a dict with two rows for each pair of clusters that touch.
    n_features_in_ : int
        Number of columns of the data.
    feature_names_in_ : ndarray of shape (n_features,)
        Names of the columns, if all are strings.

    Raises
    ------
    ValueError, TypeError
        From ``fit``, for data that are not finite, numeric and two-dimensional, and for parameters
        out of their bounds. The estimator is then as it was before.

    See Also
    --------
    DPMeans : The same without an order of the rows.
    DynamicMeans : Clusters that move from one batch of rows to the next.

    Notes
    -----
    A sweep finds the cheapest labels of all rows for the centers as they are (the Viterbi
    algorithm; as every switch costs the same, it takes n K steps), then moves centers to the means.
    Where a sweep changes nothing, a state is given up whose segments cost less in others, or made
    two, or a piece of the record made a new one, if that lowers the objective. Of labels that cost
    the same a row has the state of the row after it, else the lowest: switches come early.

    The fit begins with the pieces that minimize squared error about their own means plus a price
    for each, by dynamic programming (PELT, exact as long as no more than 2,048 rows at which the
    last piece may have begun are left, up to rounding where some rows are some 10^8 times as far
    as others), and goes on from states for which pieces are merged, as
    clusters are on the path of :func:`cluster_path`; of more than 16,384 pieces some are merged,
    and the others go to the nearest union. With a number for ``lam`` pieces are made at
    ``n_init`` prices, three numbers of states of each are tried, and the lowest objective is kept;
    with "auto" that is done for the number of states chosen. There is nothing random in it.

    The paper's objective has, in place of ``lam_switch``, the negative logarithms of transition
    probabilities, estimated along with the states, and a price for every pair of states between
    which there is a transition. Here all transitions cost the same.

    ``lam_switch="auto"`` and the least price of a state follow from the covariance of the noise,
    with eigenvalues e_1 >= e_2 >= ..., n rows, weights on average 1 ::

        lam_switch_ = 2 e_1 log(n),   least = sum_j e_j + 2 sqrt(2 log(n) sum_j e_j^2)

    With these, noise alone hardly ever opens a state: its saving exceeds ``least`` plus two
    switches with a probability below n^-2 for any given segment. The covariance is that of
    differences of neighboring rows, halved, without those beyond three of their scales (from the
    median of the absolute values), so states must last for some rows; where most differences are
    0, the variance is that of rounding to the least of the others. Where no row has a neighbor,
    the covariance is that of all rows: give penalties then. ``lam="auto"`` and
    ``lam_switch="auto"`` try states at both prices, and at 2, 4, 8 and 16 times this noise, and
    choose those with the shortest description of the record ::

        -2 sum_t log f(e_t) + 2 log C(n - q, S) + 2 S log(K - 1) + 2 q log(K) + 2 d K log(n),

    with S switches and n rows of d columns in q sequences. f is the density of t distributions,
    of the degrees of freedom that fit best, as noise may have heavy tails, and e_t are the errors
    of predicting what the states leave of the rows: r_t itself, or, where they are smaller by the
    price of two parameters, r_t - phi r_{t-1} for autocorrelated noise, or r_t less an
    exponentially weighted mean of the rows before it for levels that drift slowly. ``lam_`` is
    between the penalties for which that number of states is best, and at least ``least`` at the
    noise chosen.

    A row of weight w counts w times in means and objective. Rows of weight zero take no part, and
    get the state of the row after them in their sequence, or else of the one before. Penalties that
    the data choose go with the mean of the weights.

    References
    ----------
    Roychowdhury, Jiang & Kulis (2013), Small-variance asymptotics for hidden Markov models.
    Killick, Fearnhead & Eckley (2012), Optimal detection of changepoints with a linear
    computational cost. Laurent & Massart (2000), Adaptive estimation of a quadratic functional by
    model selection, lemma 1.

    Examples
    --------
    >>> import numpy as np
    >>> from smallvar import SegmentMeans
    >>> X = np.array([[0.0], [1.0], [0.0], [9.0], [8.0], [9.0], [1.0], [0.0], [1.0]])
    >>> model = SegmentMeans(lam=5.0, lam_switch=2.0).fit(X)
    >>> model.labels_
    array([0, 0, 0, 1, 1, 1, 0, 0, 0], dtype=int32)
    >>> model.segments_
    array([0, 3, 6])
    >>> round(model.objective_, 3)
    16.167
    >>> model.predict([[8.0], [4.4], [8.0]])
    array([1, 1, 1], dtype=int32)

    Without numbers, the data choose:

    >>> rng = np.random.default_rng(0)
    >>> levels = np.repeat([0.0, 3.0, 0.0, 6.0, 3.0, 0.0], 50)
    >>> model = SegmentMeans().fit((levels + rng.normal(size=300)).reshape(-1, 1))
    >>> model.n_clusters_, model.labels_[model.segments_]
    (3, array([0, 1, 0, 2, 1, 0], dtype=int32))
    """

    _gaps_advice = GAPS_IN_TIME
    inertia_: float
    objective_path_: NDArray[np.float64]
    segments_: NDArray[np.int64]
    n_switches_: int
    confidence_: float
    lam_: float
    lam_switch_: float

    @keywords_only
    def __init__(
        self,
        *,
        lam: float | Literal["auto"] = "auto",
        lam_switch: float | Literal["auto"] = "auto",
        n_clusters: int | Literal["auto"] | None = None,
        max_clusters: int | None = None,
        n_init: int = 3,
        max_iter: int = 300,
        tol: float = 0.0,
        n_threads: int | None = None,
        verbose: int = 0,
    ) -> None:
        self.lam = lam
        self.lam_switch = lam_switch
        self.n_clusters = n_clusters
        self.max_clusters = max_clusters
        self.n_init = n_init
        self.max_iter = max_iter
        self.tol = tol
        self.n_threads = n_threads
        self.verbose = verbose

    def _check_parameters(self):
        check_number(self.max_clusters, "max_clusters", low=1, integer=True, none=True)
        check_lam(self.lam, capped=self.max_clusters is not None, finite=True, options=("auto",))
        check_exact_number(self)
        check_lam(self.lam_switch, capped=True, finite=True, name="lam_switch", options=("auto",))
        check_verbose(self.verbose)
        check_number(self.n_init, "n_init", low=1, integer=True)
        check_number(self.max_iter, "max_iter", low=1, integer=True)
        check_number(self.tol, "tol", low=0)

    def fit(
        self,
        X: ArrayLike,
        y: object = None,
        *,
        groups: ArrayLike | None = None,
        sample_weight: ArrayLike | None = None,
    ) -> Self:
        """Find states and segments.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Rows in their order. float32 and float64 in any memory layout are used as they are,
            other types converted once; there is a copy where rows of a sequence do not follow each
            other, or rows have no weight.
        y : None
            Ignored.
        groups : array-like of shape (n_samples,), default=None
            The sequence that each row is from: numbers or strings. The rows of a sequence are taken
            in the order in which they are given; between sequences nothing is a switch. None: all
            from one.
        sample_weight : array-like of shape (n_samples,), default=None
            Weights >= 0, not all zero; None means 1 each.

        Returns
        -------
        self : SegmentMeans
            The fitted estimator.
        """
        self._check_parameters()
        X = self._validate(X, reset=True)
        check_reach(X)
        weight = check_weights(sample_weight, X.shape[0])
        record = Record.of(X, weight, groups, self._threads())
        active = record.active()
        search = StateSearch(
            record=active,
            lam=None if self.lam == "auto" else float(self.lam),
            lam_switch=None if self.lam_switch == "auto" else float(self.lam_switch),
            number=exact_number(self.n_clusters),
            cap=active.n if self.max_clusters is None else self.max_clusters,
            n_init=self.n_init,
            loop=self._loop(),
        )
        best, choice = search.best()
        self.lam_, self.lam_switch_ = best.lam, best.price
        self.cluster_centers_, labels = best.centers, best.labels
        if active is not record:
            labels = record.viterbi(best.centers, best.price)
        self.labels_, self.segments_ = record.as_given(labels), record.beginnings(labels)
        self.n_clusters_, self.n_switches_ = best.k, best.switches
        self.inertia_, self.objective_ = best.error, best.objective
        self.objective_path_ = np.array(best.progress.path)
        self.n_iter_ = best.progress.n_iter
        self._remember_rows(X, weight)
        self.confidence_ = np.nan if choice is None else choice.confidence
        wide = NONE_WIDE if choice is None else wide_of_many(X, weight)
        if len(wide.columns):
            self.confidence_ = min(self.confidence_, MOST_CONFIDENT)
        if not best.progress.ended:
            warn_not_converged(self, self.n_iter_)
        warn_of_wide(self, wide)
        if choice is not None:
            warn_if_unclear(self, choice)
        return self

    def predict(
        self, X: ArrayLike, groups: ArrayLike | None = None, sample_weight: ArrayLike | None = None
    ) -> NDArray[np.int32]:
        """Find the cheapest states of new rows, at the centers and ``lam_switch_`` of the fit.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            New data, in their order.
        groups : array-like of shape (n_samples,), default=None
            The sequence of each row, as for ``fit``. None: all from one.
        sample_weight : array-like of shape (n_samples,), default=None
            Weights >= 0, not all zero; None means 1 each. A row of weight zero costs nothing in any
            state.

        Returns
        -------
        labels : ndarray of shape (n_samples,), int32
            Index into ``cluster_centers_``. Those of the data of the fit, with its groups and
            weights, are ``labels_``.
        """
        record, _, labels = self._predict(X, groups, sample_weight)
        return record.as_given(labels)

    def _predict(self, X, groups, sample_weight):
        """The Record of the rows, the centers, and labels in the order of the record."""
        check_is_fitted(self)
        X = self._validate(X, reset=False)
        check_reach(X)
        n_threads, weight = self._threads(), check_weights(sample_weight, X.shape[0])
        centers = learned(self, "cluster_centers_", None, X.shape[1])
        if weight is not None:
            RowsFrame(X, weight, n_threads, centers)  # squares times weights stay within float64
        record = Record.of(X, weight, groups, n_threads)
        return record, centers, record.viterbi(centers, float(self.lam_switch_))

    def score(
        self,
        X: ArrayLike,
        y: object = None,
        sample_weight: ArrayLike | None = None,
        *,
        groups: ArrayLike | None = None,
    ) -> float:
        """Return minus the objective of data at the fitted centers.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Data.
        y : None
            Ignored.
        sample_weight : array-like of shape (n_samples,), default=None
            Weights of the rows.
        groups : array-like of shape (n_samples,), default=None
            The sequence of each row, as for ``predict``.

        Returns
        -------
        score : float
            ``-(sum of w * squared distance to the own center + lam_switch_ * switches + lam_ *
            n_clusters_)``, with the labels of ``predict``.
        """
        record, centers, labels = self._predict(X, groups, sample_weight)
        error = record.error(labels, centers)
        switches = record.switches(labels)
        return -(error + self.lam_switch_ * switches + self.lam_ * len(centers))
