"""The merge path of a table: clusterings into every number of clusters, and the number chosen.

A ``MixedDescent`` merges clusters; mixed_search.py says when and on which rows. ``MixedCriterion``
chooses among the clusterings. ``MixedPath`` is the result, ``MixedMergePath`` has what fits need.
"""

from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import gammaln, xlogy

from smallvar._centers.large_clusters import LargeClusters, LargeStart
from smallvar._centers.starts import DPProblem, Start
from smallvar._core.validation import check_number
from smallvar._mixed.columns import repack
from smallvar._mixed.measure import LEAST_WEIGHT, SEED_COUNT, MixedSweep, variances
from smallvar._mixed.single import lowest
from smallvar._selection.confidence import shares, weighed
from smallvar._selection.descent import MergeDescent, check_distinct, draw
from smallvar._selection.envelope import (
    Path,
    as_seen_by_users,
    best_first,
    envelope,
    penalty_of,
)
from smallvar._selection.least_size import small
from smallvar._sweeps.mixed import EXPONENTIAL, NORMAL

# prices, times log(number of rows): of the mean of a column of numbers, of a share, of a cluster
MIXED_PRICE, SHARE_PRICE, MIXED_CLUSTER_PRICE = 2.0, 1.0, 4.0
# that of the variance of each further cluster, as OWN_PRICE of own_shapes.py
VARIANCE_PRICE = 1.6
# rows that the pooled variance counts as in that of a cluster, as in own_shapes.py for one column
POOLED_ROWS = 3.0
SAME_ROW = 1e-9  # nats a row: below this a row is equal to a center


@dataclass
class MixedClustering:
    """A clustering on the descent.

    ``criterion`` is infinite where there are too many clusters. ``raw`` (p,) are sums of
    divergences of the columns of numbers, without s_j^2; ``codes`` is the sum of divergences of the
    codes, and the prior; ``variance`` (p,) are the s_j^2 within these clusters. ``error`` is in
    nats, by the s_j^2 of one measure for all clusterings: set later. Where clusters have a least
    size, ``large`` is the clustering by those that have it (None: there are none), and ``beside``
    (of that) are the centers of the others.
    """

    k: int
    centers: NDArray[np.float64]
    criterion: float
    raw: NDArray[np.float64]
    codes: float
    variance: NDArray[np.float64]
    error: float = np.nan
    large: Any = None
    beside: NDArray[np.float64] | None = None

    def error_by(self, factor):
        """The error in nats, by these factors of the divergences of numbers."""
        return float(self.raw @ factor) + self.codes


class MixedCriterion:
    """Minus twice the log-likelihood of rows and labels, and the price of the parameters.

    V(K) = sum_j min(V_j of clusters + price K P_j,
                     V_j of clusters with variances + price K P_j + VARIANCE_PRICE log(n) (K - 1),
                     V_j of all + price P_j)
           - 2 n sum_k p_k log p_k + MIXED_CLUSTER_PRICE log(n) (K - 1),

    price = MIXED_PRICE log(n),

    with P_j parameters of column j: 1, or (levels - 1) / 2, as a share has half the price. So a
    column in which clusters do not differ by more than the price of their parameters has the V_j of
    one cluster, or of a single distribution of another shape if that is lower: see single.py. n is
    the number of rows; weights are divided by their mean. V_j are

        normal        n_j log s_j^2
        poisson       2 n_j (D / s_j^2 + log s_j)           Efron's double Poisson law
        exponential   2 n_j (a D + a - a log a + log Gamma(a)),   the gamma law, a = 1 / s_j^2
        codes         -2 sum_v n_v log(n_v / n)

    of the n_j rows with a cell, but for terms that do not depend on the clusters. With a variance
    of each cluster a normal column has

        sum_k n_kj (log s_kj^2 + (m_kj + f_j) / s_kj^2 - 1),
        s_kj^2 = (n_kj m_kj + POOLED_ROWS m_j) / (n_kj + POOLED_ROWS) + f_j,

    with m_kj the mean squared distance within cluster k, m_j that within all, and f_j the variance
    within a recorded step.
    """

    def __init__(self, sweep, numbers, weight):
        self.measure = sweep.measure
        sums, raw = sweep.one_cluster()
        self.n = len(sweep.labels)
        # weights relative to their mean: the likelihood then is that of n rows
        self.unit = self.n / float(sums.weight[0])
        self.tie = MIXED_PRICE * np.log(max(self.n, 2))
        self.per_variance = VARIANCE_PRICE * np.log(max(self.n, 2))
        self.per_cluster = MIXED_CLUSTER_PRICE * np.log(max(self.n, 2))
        self.cap = max(1, self.n // 3)
        of_codes = SHARE_PRICE / MIXED_PRICE * (np.diff(self.measure.begin) - 1.0)
        self.parameters = np.append(np.ones(len(self.measure.kind)), of_codes)
        # V_j where all clusters share one distribution, by the family or by another shape
        variance = variances(self.measure, raw, sums.weights.sum(axis=0))
        price = self.tie * self.parameters
        self.alone = self.by_columns(sums, raw, variance) + price
        self.alone = np.minimum(self.alone, self._single(numbers, weight) + price)

    def _single(self, numbers, weight):
        """V_j of columns of numbers by single distributions; infinite for codes."""
        out, measure = np.full(len(self.parameters), np.inf), self.measure
        for j, kind in enumerate(measure.kind):
            x = numbers[:, j].astype(np.float64)
            there = ~np.isnan(x)
            w = self.unit * (np.ones(len(x)) if weight is None else weight)
            if there.sum() > 1 and np.ptp(x[there]) > 0.0:
                value, n_extra = lowest(kind, x[there], w[there], measure.step[j])
                out[j] = value + self.tie * n_extra
        return out

    def by_columns(self, sums, raw, variance):
        """V_j of all columns."""
        weights = self.unit * sums.weights.sum(axis=0)
        mean = self.unit * raw / np.maximum(weights, LEAST_WEIGHT)
        a = 1.0 / variance  # the shape of a gamma law, the precision of the others
        out = np.where(
            self.measure.kind == NORMAL,
            weights * np.log(variance),
            weights * (2.0 * mean * a - np.log(a)),
        )
        at = self.measure.kind == EXPONENTIAL
        shape = 2.0 * weights * (a * mean + a - a * np.log(a) + gammaln(a))
        level = self.unit * sums.level
        total = self.measure.by_column(level)
        # -2 sum_v n_v log(n_v / n) of the members of each cluster
        codes = 2.0 * (xlogy(total, total) - self.measure.by_column(xlogy(level, level)))
        return np.append(np.where(at, shape, out), codes.sum(axis=0))

    def by_own_variances(self, sums, raw):
        """V_j by a variance of each cluster, with the price of the variances; see ``__call__``.

        Infinite but for normal columns.
        """
        k, measure = len(sums.size), self.measure
        w, raw = self.unit * sums.weights, self.unit * raw
        pooled = raw.sum(axis=0) / np.maximum(w.sum(axis=0), LEAST_WEIGHT)
        shrunk = (raw + POOLED_ROWS * pooled) / (w + POOLED_ROWS)
        variance = shrunk + measure.floor
        mean = raw / np.maximum(w, LEAST_WEIGHT) + measure.floor
        own = np.full(len(self.parameters), np.inf)
        at = np.flatnonzero(measure.kind == NORMAL)
        ratio = mean[:, at] / variance[:, at]
        own[at] = (w[:, at] * (np.log(variance[:, at]) + ratio - 1.0)).sum(axis=0)
        return own + (k - 1) * self.per_variance

    def __call__(self, sums, raw, variance, aside=0.0):
        """V of clusters with these sums; ``raw`` (k, p) are their sums of divergences.

        ``aside`` is the weight of the rows in none of them. These cost as much as rows do on
        average where all have the single distributions V_j of all, and count as one more label.
        """
        k = len(sums.size)
        if k > self.cap:
            return np.inf
        costs = self.by_columns(sums, raw.sum(axis=0), variance)
        costs = np.minimum(costs, self.by_own_variances(sums, raw))
        price = self.tie * self.parameters
        # each column: parameters in every cluster, with or without a variance of its own, or one
        # distribution for all, whichever is lowest
        columns, weight = np.minimum(costs + k * price, self.alone), sums.weight
        if aside > 0.0:
            part = self.unit * aside / self.n * self.alone
            columns = np.minimum(costs + k * price, self.alone - part) + part
            weight = np.append(weight, aside)
        p = weight / weight.sum()
        return float(columns.sum() - 2.0 * self.n * xlogy(p, p).sum() + self.per_cluster * (k - 1))


class MixedDescent(MergeDescent):
    """Clusters of some rows, which are merged from many to one, with sweeps in between.

    ``moving``: the variances s_j^2 follow the clusters; else they stay those of the measure.
    ``rows`` are the numbers of the rows, None: all.
    """

    def __init__(self, problem, numbers, codes, weight, rows):
        self.sweep = MixedSweep(problem.measure, numbers, codes, weight, None, problem.n_threads)
        self.numbers, self.codes = numbers, codes
        self.weight, self.rows, self.n = weight, rows, len(numbers)
        self.moving = problem.moving
        self.least = None  # weight of a cluster; None: any
        if problem.least is not None:
            total = problem.n if problem.weight is None else float(problem.weight.sum())
            self.least = problem.least * (self.n if weight is None else weight.sum()) / total
        self.criterion = MixedCriterion(self.sweep, numbers, weight)

    def seed(self, size, rng):
        """Set centers at ``size`` rows, drawn by weight times divergence from those before."""
        sweep, w = self.sweep, self.weight
        total = np.arange(1.0, self.n + 1.0) if w is None else np.cumsum(w)
        points = draw(total, 1, rng)
        sweep.start(sweep.rows.centers_at(points, SEED_COUNT))
        sweep.assign()

        def drawn(distance):
            # half as many rows as there are centers, a round of k-means|| (Bahmani et al. 2012)
            total = np.cumsum(distance)
            if total[-1] > SAME_ROW * self.n:
                return draw(total, min(size - sweep.k, max(1, sweep.k // 2)), rng)
            return None

        self._open(size, drawn)

    def grow(self, centers, number):
        """Begin at these centers, and open clusters at the rows farthest from their own."""
        self.start(centers)

        def farthest(distance):
            row = distance.argmax()
            return np.array([row], dtype=np.intp) if distance[row] > SAME_ROW else None

        self._open(number, farthest)
        check_distinct(self.sweep.k, number)

    def _open(self, number, pick):
        """Open clusters at seeds, up to ``number`` clusters.

        ``pick`` returns the rows for the next ones, None if there are none. Its argument is what
        rows gain, by weight times divergence, from a seed of their own.
        """
        sweep, w = self.sweep, self.weight
        # at rows themselves only if seeds are too near each other for this many clusters
        for prior_rows in (SEED_COUNT, 0.0):
            # the pseudo-count keeps divergences above 0 even for rows equal to their center
            alone = sweep.rows.divergences_alone(prior_rows)
            while sweep.k < number:
                distance = np.maximum(sweep.assigned_distances() - alone, 0.0)
                points = pick(distance if w is None else w * distance)
                if points is None:
                    break
                centers = sweep.rows.centers_at(points, prior_rows)
                sweep.set_centers(np.vstack([sweep.centers, centers]))
                sweep.assign()

    def clustering(self):
        """The present clustering, whose variances count from here on if they are ``moving``."""
        sweep = self.sweep
        of_clusters, codes = sweep.rows.cluster_errors(), sweep.errors_of_codes()
        raw, sums = of_clusters.sum(axis=0), sweep.present_sums(sweep.k)
        variance = sweep.measure.variance
        if self.moving:
            variance = variances(sweep.measure, raw, sums.weights.sum(axis=0))
        value = self.criterion(sums, of_clusters, variance)
        clustering = MixedClustering(
            sweep.k, sweep.centers, value, raw, float(codes.sum()), variance
        )
        clustering.large = self._large(clustering, sums, of_clusters)
        if self.moving:
            sweep.rescale(variance)
        return clustering

    def _large(self, clustering, sums, of_clusters):
        """The clustering by the clusters of the least size; the rows of the others are set aside.

        These count in its error by the nearest of its clusters.
        """
        few = small(sums.weight, 0.0 if self.least is None else self.least)
        if self.least is None or not few.any():
            return clustering
        if few.all():
            return None
        sweep, large = self.sweep, ~few
        own, of_clusters = sums.kept(large), of_clusters[large]
        variance = sweep.measure.variance
        if self.moving:
            variance = variances(sweep.measure, of_clusters.sum(axis=0), own.weights.sum(axis=0))
        value = self.criterion(own, of_clusters, variance, float(sums.weight[few].sum()))
        centers, labels = sweep.centers, sweep.labels.copy()
        sweep.start(centers[large])
        sweep.assign()
        raw, codes = sweep.errors()
        sweep.set_centers(centers)
        sweep.labels[:] = labels
        return MixedClustering(
            len(own.size), centers[large], value, raw, float(codes.sum()), variance,
            beside=centers[few],
        )  # fmt: skip


class MixedPath(Path):  # numpydoc ignore=PR01
    """Clusterings of the rows of a table into many numbers of clusters.

    Attributes
    ----------
    counts : ndarray of shape (n_path,), intp
        The numbers of clusters K, ascending from 1.
    error : ndarray of shape (n_path,), float64
        The sum of divergences and the prior, in nats, by the spreads within the clusters chosen.
    criterion : ndarray of shape (n_path,), float64
        Minus twice the log-likelihood of rows and labels, and the price of parameters.
    lam_low, lam_high : ndarray of shape (n_path,), float64
        Between these penalties ``error + lam * K`` is lowest for this K.
    best : int
        The number chosen.
    lam : float
        A penalty for it.
    confidence : float
        How likely this number is right, from 0 to 1; NaN where the number or the penalty was given.
    confidences : ndarray of shape (n_path,), float64
        The confidence in every number.
    tie : float
        The price of a parameter.
    ranking : ndarray of shape (n_path,), intp
        All K: the one chosen, and then those of the lowest criterion first.
    n_samples : int
        The rows that the path was found on.
    """

    error_name = "divergence, in nats"

    tie: float
    confidence: float
    confidences: NDArray[np.float64]
    n_samples: int

    def __init__(self, problem, clusterings, best, descent):
        self.counts = np.array([c.k for c in clusterings], dtype=np.intp)
        self.criterion = np.array([c.criterion for c in clusterings])
        self.error = self.found_error = np.array([c.error for c in clusterings])
        self.lam_low, self.lam_high = envelope(self.counts, self.error)
        self.best, self.tie, self.n_samples = best.k, float(descent.criterion.tie), descent.n
        self.longest = int(self.counts[-1])
        self.value = problem.value(best)
        self.variance = best.variance
        self.rows = descent.rows
        self._packed, self._kinds = problem.packed, problem.packed.columns
        self._measure = problem.measure.scaled(best.variance)
        self._centers = {c.k: c.centers for c in clusterings}
        self.stays = problem.least is not None
        self._beside = {c.k: c.beside for c in clusterings if c.beside is not None}
        i = int(np.searchsorted(self.counts, self.best))
        self.lam = penalty_of(i, (self.lam_low, self.lam_high), self.error)
        self.confidence = np.nan
        self.confidences = np.full(len(clusterings), np.nan)
        if problem.free:
            self._weigh(problem, i)

    def _weigh(self, problem, i):
        """Set the confidence in each number; the number chosen has index i."""
        if len(self.counts) == 1:
            self.confidence = 1.0
            self.confidences[:] = 1.0
            return
        values = np.where(self.counts <= problem.most, self.criterion, np.inf)
        with np.errstate(divide="ignore", invalid="ignore"):
            ratio = self.lam_high[i] / self.lam_low[i]
        self.confidence, self.confidences, _ = weighed(
            self.counts, self.criterion, values, self.best, self.tie, (ratio,) * 2, self.n_samples
        )

    def labels(self, k: int, X: Any = None) -> NDArray[np.int32]:
        """Label rows by the nearest of the centers of ``k`` clusters.

        Parameters
        ----------
        k : int
            One of ``counts``.
        X : table, default=None
            Rows with the columns of the fit; None means those of the fit. They are not pickled
            along.

        Returns
        -------
        labels : ndarray of shape (n_samples,), int32
            Cluster of each row.
        """
        check_number(k, "k", low=1, integer=True)
        if k not in self._centers:
            raise ValueError(f"k must be on the path, got k={k}: see counts")
        if X is not None:
            packed = repack(X, self._kinds)
        elif self._packed is not None:
            packed = self._packed
        else:
            raise ValueError("X must be given: a path that was pickled has lost its rows")
        return self._labels(k, packed.numbers, packed.codes)

    def _labels(self, k, numbers, codes):
        """Labels of packed rows by the centers of k clusters."""
        sweep = MixedSweep(self._measure, numbers, codes)
        sweep.start(self._centers[k])
        sweep.assign()
        return sweep.labels

    def __getstate__(self):
        return vars(self) | {"_packed": None}

    @property
    def ranking(self) -> NDArray[np.intp]:  # numpydoc ignore=RT01
        """All numbers: the one chosen, and then those of the lowest criterion first."""
        return best_first(self.counts, self.criterion, self.best)

    @property
    def n_clusters(self) -> NDArray[np.intp]:  # numpydoc ignore=RT01
        """The numbers of clusters, ``counts``."""
        return self.counts


class MixedMergePath(MixedPath):
    """A MixedPath with what its search, and the fits that begin at it, need."""

    few_valued = skewed = np.empty(0, dtype=np.intp)
    seen = as_seen_by_users

    @property
    def measure(self):
        """The measure, with the variances of the clusters chosen."""
        return self._measure

    def trust(self, confidence, most):
        """Set the confidence in the number chosen; others up to ``most`` share the rest."""
        i = int(np.searchsorted(self.counts, self.best))
        values = np.where(self.counts <= most, self.criterion, np.inf)
        self.confidence = confidence
        self.confidences = shares(values, i, confidence, self.tie)

    def labels_of(self, numbers, codes):
        """Labels of packed rows by the centers of the number chosen."""
        return self._labels(self.best, numbers, codes)

    def doubts(self):
        """Texts with possible reasons for an unclear number."""
        if self.best == 1:
            return ["clusters that overlap may look like one: see {labels}"]
        return [
            "clusters overlap, or a cluster whose columns depend on each other is cut to pieces: "
            "compare {labels}"
        ]

    def found(self, k):
        """The centers of k clusters, as found on the descent, or adopted."""
        return self._centers[k].copy()

    def beside(self, k):
        """Return the centers of the small clusters whose rows are set aside; None: none is."""
        return self._beside.get(k)

    def adopt(self, centers):
        """Take the centers of a fit that went on from those of the best number, if as many.

        Where clusters have a least size, the fit may have lost some: the number is then that left.
        """
        k = len(centers)
        if self.stays and k < (self.best or 0) and k in self._centers:
            self.best, self.confidence = k, float(self.confidences[self.counts == k][0])
        if centers.shape == self._centers[self.best].shape:
            self._centers[self.best] = centers.copy()


class MixedProblem(DPProblem):
    """The rows of a fit, the measure of their divergences, and the settings of the fit.

    ``moving`` is that of MixedDescent; ``free``: neither the penalty nor the number of clusters is
    given.
    ``rows`` are the numbers of the rows with a weight, None for all. ``least`` is the least weight
    of a cluster, None: any, and ``asked`` the same as the user gave it.
    """

    def __init__(self, fit, packed, measure, weight, n_threads, least=None, asked=None):
        super().__init__(fit)
        self.least, self.asked = least, asked
        self.packed, self.measure = packed, measure
        self.weight, self.n_threads, self.moving = weight, n_threads, fit.lam is None
        self.most = np.inf if fit.max_clusters is None else fit.max_clusters
        self.rows = None if weight is None or weight.all() else np.flatnonzero(weight)
        self.n = len(packed.numbers) if self.rows is None else len(self.rows)
        self.free = fit.lam is fit.n_clusters is None

    def start(self, point):
        """The Start at the given centers, or at the overall means and shares."""
        measure, packed, of_start = self.measure, self.packed, Start
        rows, w = point.visited(self.rows, self.weight)
        if self.least is not None:
            rows, aside = self._divided(point, rows)
            w = None if w is None else self.weight[rows]
            of_start = partial(LargeMixedStart, self, aside)
        if point.path is not None and self.moving:
            # the spreads are those within the clusters that the path has chosen
            measure = measure.scaled(point.path.variance)
        sweep = MixedSweep(measure, packed.numbers, packed.codes, w, rows, self.n_threads)
        are_means = point.centers is None
        centers = measure.overall() if are_means else point.centers
        return of_start(point, sweep, centers, are_means, rows)

    def _divided(self, point, rows):
        """Those of the visited rows (None: all) that sweeps visit, and those that are set aside.

        These are nearest to a cluster of the path that is too small.
        """
        beside = point.path.beside(len(point.centers))
        rows = np.arange(len(self.packed.numbers)) if rows is None else rows
        if beside is None:
            return rows, rows[:0]
        measure = self.measure.scaled(point.path.variance)
        sweep = MixedSweep(measure, self.packed.numbers, self.packed.codes)
        sweep.start(np.vstack([point.centers, beside]))
        sweep.assign()
        own = sweep.labels[rows] < len(point.centers)
        return (rows[own], rows[~own]) if own.any() else (rows, rows[:0])

    def descent(self, size, rng):
        """A MixedDescent on ``size`` random rows, or on all rows if there are no more."""
        rows, packed, weight = self.rows, self.packed, self.weight
        if size < self.n:
            drawn = np.sort(rng.permutation(self.n)[:size])
            rows = drawn if rows is None else rows[drawn]
        numbers, codes = packed.numbers, packed.codes
        if rows is not None:
            numbers, codes = numbers[rows], codes[rows]
            weight = None if weight is None else weight[rows]
        return MixedDescent(self, numbers, codes, weight, rows)

    def clusterings(self, descent, step, sweeps):
        """Merge down to one cluster: all clusterings, with errors by the measure of the table."""
        found = [descent.clustering() for _ in descent.down(step, sweeps)][::-1]
        for clustering in found:
            clustering.error = clustering.error_by(self.measure.factor)
        return found

    def value(self, clustering):
        """The criterion or, for a given lam, the objective: the lower, the better."""
        lam = self.fit.lam
        return clustering.criterion if lam is None else clustering.error + lam * clustering.k

    def best(self, clusterings):
        """The clustering nearest to the given number, or with the lowest ``value``."""
        number = self.fit.n_clusters
        if number is not None:
            return min(clusterings, key=lambda c: abs(c.k - number))
        allowed = [c for c in clusterings if c.k <= self.most] or clusterings[:1]
        return min(allowed, key=self.value)


class LargeMixedStart(LargeStart):
    """A start of a table whose clusters have a least weight; ``aside`` are rows not visited."""

    def __init__(self, problem, aside, *args):
        sizes = problem.least, problem.asked
        super().__init__(LargeClusters(*sizes, None, problem.weight, None, 1), *args)
        self.problem, self.aside, self.labels_aside = problem, aside, None

    def join(self):
        """Rows that were set aside join the nearest clusters, and count in all objectives."""
        packed, weight, rows = self.problem.packed, self.problem.weight, self.aside
        sweep = MixedSweep(self.sweep.measure, packed.numbers[rows], packed.codes[rows])
        sweep.start(self.sweep.centers)
        sweep.assign()
        self.labels_aside, errors = sweep.labels, sweep.assigned_distances()
        self.add_error(float(errors.sum() if weight is None else weight[rows] @ errors))

    def result(self, n_samples):
        """The result of this start; ``n_samples`` is the number of all rows."""
        result = super().result(n_samples)
        result.labels[self.aside] = self.labels_aside
        return result
