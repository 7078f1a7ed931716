"""The criterion for the number of clusters: likelihood, entropy, a price of parameters."""

import numpy as np

from smallvar._selection.columns import recorded
from smallvar._selection.components import (
    PARAMETER_PRICE,
    ZERO_VARIANCE,
    Components,
    LongDirections,
    RoundMetric,
    find_long,
)
from smallvar._sweeps.merge import MergeSweep
from smallvar._sweeps.residual_density import (
    SmallCriterion,
    fit_residual_density,
    own_covariance_distances,
)

# prices, times log(distinct rows): of a coordinate of a center, and of a cluster besides
PER_COLUMN, PER_CLUSTER = 1.6, 3.0
# price of a transformed column besides its parameters, times the distinct rows
TRANSFORM_MARGIN = 0.3
# products of a covariance of all rows up to which calls of numpy take longer
SMALL_PRODUCTS = 1 << 17


class DensityCriterion:
    """V of a clustering of these rows: the lower, the better the data support it.

    V = (u / n) (-2 sum_i w_i log f(x_i; mu_{z_i}) - 2 n sum_k p_k log p_k) + price of parameters,

    n the sum of weights, u the number of distinct rows, p_k = n_k / n. f is the best of a few
    shapes that all clusters share: t or Gaussian, with a covariance that is spherical, or
    spherical but for q directions; in two columns also with a covariance for each cluster, and,
    for a single cluster, a uniform box. The entropy of p makes this a likelihood of rows *and*
    labels: by it a Gaussian, of any covariance, never gains by being cut.

    A column that was recorded in steps has at least the variance within a step in every f but the
    clusters' own covariances, which are left out then; so have columns that are nearly collinear
    with others the variance that these do not determine.

    f is a density in the directions in which rows vary at all, of which there are ``rank``: a
    column that others determine says nothing of its own, and would make every cut look better.
    """

    def __init__(self, frame):
        X, weight = self.X, self.weight = frame.X, frame.weight
        self.frame = frame
        self.n = float(X.shape[0] if weight is None else weight.sum())
        columns = recorded(X, weight)
        self.distinct, self.d = columns.n_different, X.shape[1]
        self.floor = np.maximum(columns.variance, columns.error)
        self.step, self.few_valued = np.sqrt(12.0 * columns.variance), columns.few
        self.cap = self.distinct // 3
        if columns.in_steps.all():  # then equal rows are to be expected
            self.cap, self.distinct = self.distinct, X.shape[0]
        self.tie = PARAMETER_PRICE * np.log(self.distinct)
        self.varying = frame.spread > 0.0  # not all may be so in these rows
        self.rank, self.components, self.total_floor = self.d, None, float(self.floor.sum())
        if self.d > 1:
            floor, rank = self.floor, self.d
            # The rank cannot be told from fewer distinct rows than columns: all columns stay. Nor
            # can it with few values in every column: only constant columns are left out.
            if self.d < self.distinct:
                floor = floor * self.varying
                rank = int(self.varying.sum()) if columns.repeated.all() else None
            self.components = Components(frame, floor, rank)
            self.rank, self.total_floor = self.components.rank, self.components.total_floor
        self.price_of_cluster = np.log(self.distinct) * (PER_COLUMN * self.rank + PER_CLUSTER)
        self.relabeled = Relabeled(frame)
        self.constant, self.small = 0.0, self._made_small()

    def _made_small(self):
        """A compiled criterion for few rows and columns; None if there are more."""
        n, d = self.X.shape
        if self.rank < d or d > n or n * d**2 > SMALL_PRODUCTS:
            return None
        volume, prices = np.inf, (PARAMETER_PRICE, PER_COLUMN)
        if self.varying.all():
            volume = float(np.log(self.frame.spread + np.sqrt(12 * self.floor)).sum())
        rows = self.X, self.weight, self.floor, self.n, self.distinct
        settings = self.price_of_cluster, volume, self.frame.scale, prices, ZERO_VARIANCE
        return SmallCriterion(*rows, *settings)

    def _by_small(self, sweep):
        """The result of the criterion, from the compiled one."""
        V, error, q, e, U = self.small(sweep.labels, sweep.centers, sweep.weights)
        if not q:
            return V + self.constant, None, error
        long = LongDirections(self.components.basis.T @ U[:q].T, e[:q].copy(), float(e[-1]))
        return V + self.constant, RoundMetric(self.components, long), error

    def charge(self, slope, columns):
        """Add to V what transforms of ``columns`` columns cost.

        That is -2 times the logarithm of the Jacobian (``slope`` is that of each row), the price of
        two parameters for each column, and TRANSFORM_MARGIN.
        """
        u = self.distinct
        total = slope.sum() if self.weight is None else self.weight @ slope
        self.constant = -2.0 * u / self.n * total
        self.constant += columns * (2 * PARAMETER_PRICE * np.log(u) + TRANSFORM_MARGIN * u)

    def __call__(self, sweep, own=None):
        """V, the metric in which clusters are spherical (None: that of the data), and the error.

        ``own``: the mask of the rows that the centers are the means of, and that tell the
        covariance; the others have a label only. None: all.
        """
        if self.small is not None and own is None:
            return self._by_small(sweep)
        K, n, d, u = sweep.k, self.n, self.rank, self.distinct
        weights, unit = sweep.weights, np.log(u)
        base = -2.0 * u / n * float(weights @ np.log(weights / n))
        base += (K - 1) * self.price_of_cluster + unit * PARAMETER_PRICE * d
        # squares about the mean of n_k rows are too small by 1 / n_k of their variance: add that
        back = n / (u - K) / weights if u > K else np.zeros(K)

        def value(squares, logdet, parameters, price=PARAMETER_PRICE):
            rest = back
            if own is not None:
                squares, rest = given_back(squares, self.weight, own, sweep.labels, back)
            deviance, is_t = fit_residual_density(squares, self.weight, sweep.labels, rest, n, d)
            return (
                base
                + u * (deviance + logdet)
                + unit * (price * parameters + PARAMETER_PRICE * is_t)
            )

        squares = sweep.residuals()
        weighted = squares if self.weight is None else self.weight * squares
        error, metric, long = float(weighted.sum()), None, None
        most = min(d - 1, u // 3 - K)
        if most > 0:
            centers = self.components.centers(sweep, own)
            S = self.components.covariance(sweep, centers, own)
            counted = slice(None) if own is None else own
            w = None if self.weight is None else self.weight[counted]
            total = float(np.average(squares[counted], weights=w)) + self.total_floor
            long = find_long(S, total, d, u, most)
        V = value(squares + self.total_floor, 0.0, 1)
        if long is not None:
            metric, q = RoundMetric(self.components, long), len(long.variances)
            logdet = float(np.log(long.variances).sum()) + (d - q) * np.log(long.rest)
            by_long = self.components.squares_by(long, sweep.labels, centers, squares)
            V = min(V, value(by_long, logdet, d * q - q * (q - 1) / 2 + 1))
        if d == self.d == 2 and not self.total_floor:
            plane = self._own(sweep)
            if plane is not None:
                V = min(V, value(*plane, 3 * K, PER_COLUMN))
        if K == 1 and d == self.varying.sum():
            sides = (self.frame.spread + np.sqrt(12 * self.floor))[self.varying]
            box = 2.0 * u * float(np.log(sides).sum()) + unit * PARAMETER_PRICE * 4 * d
            if box < V:
                V, metric = box, None
        return V + self.constant, metric, error

    def _own(self, sweep):
        """Squared distances by own covariances, and mean log determinant; None: one is singular."""
        clusters, least = (sweep.labels, sweep.centers), 3.0 * self.n / self.distinct
        squares, det = own_covariance_distances(
            self.X, self.weight, *clusters, self.frame.scale, least, ZERO_VARIANCE
        )
        if not det.min() > ZERO_VARIANCE * det.max():
            return None
        logdet = float(sweep.weights @ np.log(det)) / self.n
        return squares, logdet - 4.0 * np.log(self.frame.scale)


def given_back(squares, weight, own, labels, back):
    """Squares with the mean of the ``own`` rows times ``back`` of the cluster, and nothing more.

    Rows set aside may be so far that the mean of all squares is theirs.
    """
    mean = float(np.average(squares[own], weights=None if weight is None else weight[own]))
    return squares + mean * back[labels], np.zeros_like(back)


class Relabeled:
    """Sweeps over rows with labels that were found in another metric."""

    def __init__(self, frame):
        self.frame, self.sweep = frame, None

    def __call__(self, labels, k, centers=None):
        """A sweep with these labels, and these centers; None: the means."""
        if self.sweep is None:
            self.sweep = self.frame.sweep(8, kind=MergeSweep)
        start = np.zeros((k, self.frame.X.shape[1])) if centers is None else centers
        self.sweep.start(np.ascontiguousarray(start))
        self.sweep.labels[:] = labels
        if centers is None:
            self.sweep.move_centers()
        return self.sweep
