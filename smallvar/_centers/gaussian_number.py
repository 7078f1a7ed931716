"""The number of Gaussian clusters that describe rows best, and how likely it is right.

The objective of MahalanobisMeans counts tails, skewness and recorded steps of a cluster as more
clusters. So clusterings of merge paths are compared by a criterion with densities that have these.
"""

import numpy as np

from smallvar._centers.gaussian_path import begin_path, merge_path
from smallvar._centers.gaussians import Data
from smallvar._selection.columns import PowerTransform, recorded
from smallvar._selection.components import PARAMETER_PRICE
from smallvar._selection.confidence import NumberChoice, of_gaussians, shares
from smallvar._sweeps.residual_density import fit_residual_density

STARTS = 2  # merge paths, of the rows and of the transformed rows; each number keeps the best


class GaussianNumber:
    """The criterion of each number of clusters, of rows as given and of transformed rows.

    ``state_of(data)`` makes the PointGaussians of rows, and ``begin`` the number of clusters that
    paths begin with. V is the objective with -2 log f in place of Gaussian distances,

        V = sum_i w_i (-2 log f(x_i) - 2 log p_k - d log(2 pi)) + what the clusters cost,

    f being Gaussian or t, whichever is likelier, with the covariance of the cluster plus the
    variance within the steps in which columns were recorded. Of transformed rows it has the
    Jacobian, and the price of two parameters for each transformed column.
    """

    def __init__(self, data, state_of, begin, rng):
        self.state_of, self.begin, self.rng = state_of, begin, rng
        self.few_valued = np.flatnonzero(recorded(data.X, data.w).few)
        self.given = self._table(data)
        transform = PowerTransform(data.X, data.w)
        self.skewed, self.transformed = np.array(transform.columns, dtype=np.intp), None
        if len(self.skewed):
            X, slope = transform(data.X)
            price = 2.0 * len(self.skewed) * PARAMETER_PRICE * self._log_rows(data)
            price -= 2.0 * float(data.w @ slope)
            table = self._table(Data(X, data.w, data.layout.weighted, data.stand_for))
            self.transformed = {k: V + price for k, V in table.items()}
        self.n, self.lam = float(data.w.sum()), self.state_of(data).lam

    @staticmethod
    def _log_rows(data):
        return np.log(max(float(data.w.sum()), 2.0))

    def _table(self, data):
        """The criterion of each number of clusters, the lowest of the paths."""
        table, floor = {}, recorded(data.X, data.w).variance
        for _ in range(STARTS):
            state = self.state_of(data)
            start = begin_path(state, None, self.begin, None, self.rng)
            for k, label, _ in merge_path(state, *start):
                V = self._value(state, label, floor)
                table[k] = min(V, table.get(k, np.inf))
        return table

    def _value(self, state, label, floor):
        """V of the clusters of this state."""
        d, k, total = state.X.shape[1], len(state.centers), state.total
        squares = np.empty(len(label))
        apart = -2.0 * float(state.weights @ np.log(state.shares))
        factors = np.linalg.cholesky(state.covariances + np.diag(floor))
        members = np.split(
            np.argsort(label, kind="stable"), np.cumsum(np.bincount(label, minlength=k))[:-1]
        )
        for j, (inverse, rows) in enumerate(zip(np.linalg.inv(factors), members, strict=True)):
            squares[rows] = np.square((state.rows(rows) - state.centers[j]) @ inverse.T).sum(axis=1)
            squares[rows] += np.square(inverse).sum(axis=0) @ floor
            apart -= 2.0 * state.weights[j] * float(np.log(np.diag(inverse)).sum())
        deviance, is_t = fit_residual_density(squares, state.w, label, np.zeros(k), total, d)
        price = PARAMETER_PRICE * np.log(max(total, 2.0)) if is_t else 0.0
        return total * (deviance - d * np.log(2.0 * np.pi)) + apart + state.prior() + price

    def choice(self):
        """The number chosen, as a NumberChoice."""
        tables = [self.given] if self.transformed is None else [self.given, self.transformed]
        lowest = [min(table.values()) for table in tables]
        numbers = [min(table, key=table.get) for table in tables]
        is_transformed = lowest[-1] < lowest[0]
        best = numbers[-1] if is_transformed else numbers[0]
        values = {k: min(table.get(k, np.inf) for table in tables) for k in set().union(*tables)}
        counts = np.array(sorted(values))
        V = np.array([values[k] for k in counts])
        i = int(np.searchsorted(counts, best))
        more = V[i + 1 :].min() - V[i] if i + 1 < len(V) else np.inf
        second = V[i + 1] - V[i] - self.lam if best == 1 and len(V) > 1 else np.inf
        confidence = of_gaussians(
            *(best, self.n, more / self.lam if self.lam > 0.0 else np.inf, second / self.n),
            *(numbers[0] == numbers[-1], is_transformed),
        )
        tie = PARAMETER_PRICE * np.log(max(self.n, 2.0))
        confidences = shares(V, i, confidence, tie)
        return NumberChoice(best, counts, confidence, confidences, self.few_valued, self.skewed)
