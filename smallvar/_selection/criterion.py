"""The criterion for the number of clusters: likelihood, entropy, a price of parameters."""

import numpy as np

from smallvar._core.fit_loop import CANCELLATION
from smallvar._selection.columns import count_different, recorded
from smallvar._sweeps.merge import MergeSweep
from smallvar._sweeps.residual_density import (
    SmallCriterion,
    fit_residual_density,
    own_covariance_distances,
)

PRICE = 2.0  # of a parameter, in log(distinct rows)
PER_COLUMN, PER_CLUSTER = 1.6, 3.0  # of a center's coordinate, and of a cluster beside
ZERO_VARIANCE = 1e-9  # of the largest eigenvalue, or of a determinant: less is rounding
BLOCK = 4096
MARGIN = 0.3  # of a transformed column, in distinct rows
SMALL = 1 << 17  # products of a covariance of all rows: up to here numpy takes longer to be called


class Criterion:
    """V of a clustering of these rows: the lower, the better the data speak for it.

    V = (u / n) (-2 sum_i w_i log f(x_i; mu_{z_i}) - 2 n sum_k p_k log p_k) + price of parameters,

    n the sum of weights, u the number of distinct rows, p_k = n_k / n. f is the best of a few
    shapes that all clusters share: t or Gaussian, with a covariance that is spherical, or
    spherical but for q directions; in two columns also with a covariance for each cluster, and,
    for a single cluster, a uniform box. The entropy of p makes this a likelihood of rows *and*
    labels: by it a Gaussian, of any covariance, never gains by being cut.

    A column that was recorded in steps has at least the variance within a step in every f but the
    clusters' own covariances, which are left out then.

    f is a density in the directions in which rows vary at all, of which there are ``rank``: a
    column that others determine says nothing of its own, and would make every cut look better.
    """

    def __init__(self, X, weight, frame, n_threads):
        self.X, self.weight, self.frame = X, weight, frame
        self.n = float(X.shape[0] if weight is None else weight.sum())
        self.distinct, self.d = count_different(X), X.shape[1]
        columns = recorded(X, weight)
        self.floor, self.few_valued = columns.variance, columns.few
        self.cap = self.distinct // 3
        if columns.in_steps.all():  # then equal rows are to be expected
            self.cap, self.distinct = self.distinct, X.shape[0]
        self.tie = PRICE * np.log(self.distinct)
        self.total, self.rank = self._scatter(None) if self.d > 1 else None, self.d
        self.basis = None  # of the directions in which rows vary, where steps vary in others too
        self.varying = frame.spread > 0.0  # not all may be so in these rows
        # fewer rows than columns say nothing of the rank, nor do rows that are all repeated
        if 1 < self.d < self.distinct and columns.repeated.all():
            self.rank = max(1, int(self.varying.sum()))
        elif 1 < self.d < self.distinct:
            offset = frame.mean - frame.origin
            S = self.total / self.n - np.outer(offset, offset)
            e = np.linalg.eigvalsh(S)
            self.rank = max(1, int((e > ZERO_VARIANCE * e[-1]).sum()))
            if self.rank < self.d and self.floor.any():
                self.basis = np.linalg.eigh(S)[1][:, self.d - self.rank :]
        self.price_of_cluster = np.log(self.distinct) * (PER_COLUMN * self.rank + PER_CLUSTER)
        self.relabeled, self.n_threads = Relabeled(X, weight, frame, n_threads), n_threads
        self.constant, self.small = 0.0, self._made_small()

    def _made_small(self):
        """The same in one call, where rows and columns are few; None where they are not."""
        if self.rank < self.d or self.X.shape[0] * self.d**2 > SMALL:
            return None
        volume, prices = np.inf, (PRICE, PER_COLUMN)
        if self.varying.all():
            volume = float(np.log(self.frame.spread + np.sqrt(12 * self.floor)).sum())
        return SmallCriterion(
            self.X,
            self.weight,
            self.floor,
            self.n,
            self.distinct,
            self.price_of_cluster,
            volume,
            self.frame.scale,
            prices,
            ZERO_VARIANCE,
        )

    def _by_small(self, sweep):
        V, error, q, e, U = self.small(sweep.labels, sweep.centers, sweep.weights)
        return V + self.constant, U.T / np.sqrt(e) if q else None, error

    def _scatter(self, sweep):
        """Sum of w r r', r the residuals of the sweep, or from the origin."""
        out = np.zeros((self.d, self.d))
        for start in range(0, self.X.shape[0], BLOCK):
            rows = slice(start, start + BLOCK)
            R = np.asarray(self.X[rows], dtype=np.float64)
            R = R - (self.frame.origin if sweep is None else sweep.centers[sweep.labels[rows]])
            out += (R if self.weight is None else R * self.weight[rows, None]).T @ R
        return out

    def _covariance(self, sweep):
        """The pooled covariance within clusters."""
        M = sweep.centers - self.frame.origin
        within = self.total - (M * sweep.weights[:, None]).T @ M
        if np.trace(within) < CANCELLATION * np.trace(self.total):
            within = self._scatter(sweep)  # the difference is mostly rounding
        return within / self.n + np.diag(self.floor)

    def charge(self, slope, columns):
        """Count the rows as transformed: the logarithms of the Jacobian, parameters, a margin."""
        u = self.distinct
        total = slope.sum() if self.weight is None else self.weight @ slope
        self.constant = -2.0 * u / self.n * total
        self.constant += columns * (2 * PRICE * np.log(u) + MARGIN * u)

    def __call__(self, sweep):
        """V, the matrix that makes the clusters round (None if they are), the squared error."""
        if self.small is not None:
            return self._by_small(sweep)
        K, n, d, u = sweep.k, self.n, self.rank, self.distinct
        mass, unit = sweep.weights, np.log(u)
        base = -2.0 * u / n * float(mass @ np.log(mass / n))
        base += (K - 1) * self.price_of_cluster + unit * PRICE * d
        # squares about a mean are too small by 1 / n_k of the variance of its rows: add that
        back = n / (u - K) / mass if u > K else np.zeros(K)

        def value(squares, logdet, parameters, price=PRICE):
            deviance, is_t = fit_residual_density(squares, self.weight, sweep.labels, back, n, d)
            return base + u * (deviance + logdet) + unit * (price * parameters + PRICE * is_t)

        floor = self.floor.sum()
        if self.basis is not None:
            floor = float((self.basis**2).sum(axis=1) @ self.floor)
        q, e, U = self._directions(sweep) if d > 1 else (0, None, None)
        if not q:
            squares, metric = sweep.residuals()[0], None
            error = self._sum(squares)
            squares += floor
            V = value(squares, 0.0, 1)
        else:
            # r' S^-1 r from all directions; or r'r / e_d less a sum over the q long ones, if few
            metric, few = U / np.sqrt(e), 2 * q < d and e[0] < 1e2 * e[-1]
            W = U[:, :q] * np.sqrt(1.0 / e[-1] - 1.0 / e[:q]) if few else metric
            long = np.sqrt(e[0])
            W = np.ascontiguousarray(W.T * long, dtype=np.float32)
            squares, image = sweep.residuals(W, 1.0 / long)
            error = self._sum(squares)
            squares += floor
            image += np.float32((W.astype(float) ** 2 @ self.floor).sum() / long**2)
            V = value(squares.copy(), 0.0, 1)
            squares = np.maximum(squares / e[-1] - image, 0.0) if few else image.astype(np.float64)
            V = min(V, value(squares, float(np.log(e).sum()), d * q - q * (q - 1) / 2 + 1))
        if d == self.d == 2 and not floor:
            own = self._own(sweep)
            if own is not None:
                V = min(V, value(*own, 3 * K, PER_COLUMN))
        if K == 1 and d == self.varying.sum():
            sides = (self.frame.spread + np.sqrt(12 * self.floor))[self.varying]
            box = 2.0 * u * float(np.log(sides).sum()) + unit * PRICE * 2 * d
            if box < V:
                V, metric = box, None
        return V + self.constant, metric, error

    def _sum(self, squares):
        return float((squares if self.weight is None else self.weight * squares).sum())

    def _own(self, sweep):
        """Squared distances by clusters' own covariances, in two columns, and log determinant."""
        squares, det = own_covariance_distances(
            self.X,
            self.weight,
            sweep.labels,
            sweep.centers,
            self.frame.scale,
            3.0 * self.n / self.distinct,
            ZERO_VARIANCE,
        )
        if not det.min() > ZERO_VARIANCE * det.max():
            return None
        logdet = float(sweep.weights @ np.log(det)) / self.n
        return squares, logdet - 4.0 * np.log(self.frame.scale)

    def _directions(self, sweep):
        """How many directions q are worth their price; eigenvalues and vectors of the covariance.

        q maximizes the penalized Gaussian likelihood of a covariance that is spherical but for q
        directions; all other eigenvalues are their mean.
        """
        d, u = self.rank, self.distinct
        most = min(d - 1, u // 3 - sweep.k)
        if most < 1:
            return 0, None, None
        S = self._covariance(sweep)
        if self.basis is not None:
            S = self.basis.T @ S @ self.basis
        e = np.linalg.eigvalsh(S)[::-1][:d].clip(0.0)
        if not e[0] > 0.0:
            return 0, None, None
        q = np.arange(most + 1)
        tail = np.maximum(e.sum() - np.append(0.0, np.cumsum(e[:most])), 0.0) / (d - q)
        usable = tail > ZERO_VARIANCE * e[0]
        with np.errstate(divide="ignore", invalid="ignore"):
            head = np.append(0.0, np.cumsum(np.log(e[:most])))
            cost = u * (head + (d - q) * np.log(tail))
        cost += PRICE * np.log(u) * (d * q - q * (q - 1) / 2)
        q = int(np.where(usable, cost, np.inf).argmin())
        if q == 0:
            return 0, None, None
        e, U = np.linalg.eigh(S)
        if self.basis is not None:
            U = self.basis @ U
        return q, np.append(e[::-1][:q], np.full(d - q, tail[q])), U[:, ::-1][:, :d]


class Relabeled:
    """Sweeps over rows with labels that were found in another metric."""

    def __init__(self, X, weight, frame, n_threads):
        self.data, self.sweep = (X, weight, frame, n_threads), None

    def __call__(self, labels, k):
        """A sweep with these labels."""
        X, weight, frame, n_threads = self.data
        if self.sweep is None:
            label = np.zeros(X.shape[0], dtype=np.int32)
            self.sweep = MergeSweep(X, weight, None, label, frame, n_threads, 8, False)
        self.sweep.start(np.zeros((k, X.shape[1])))
        self.sweep.labels[:] = labels
        self.sweep.move_centers()
        return self.sweep
