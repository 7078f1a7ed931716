"""D-Means by a Bregman divergence D or by directions: the rule of either, and a time step.

For every Bregman divergence the best center is the mean of rows, gamma of them at the old center
(Banerjee et al. 2005). For directions D = 1 - cos, and centers are divided by their length.
"""

import numpy as np

from smallvar._centers.divergence import SumsFrame
from smallvar._centers.divergence_path import Family
from smallvar._centers.divergence_rules import DIVERGENCES
from smallvar._centers.sphere_problem import PATH_OPTIONS, as_directions, first_row
from smallvar._centers.unit_rows import length_rounding, unit_rows
from smallvar._core.validation import check_flag, check_option, mean_weight
from smallvar._selection.penalty import farthest_by, farthest_row
from smallvar._sweeps.divergences import within_members
from smallvar._sweeps.means import ZERO_RESULTANT
from smallvar._sweeps.sums import Sums, exact_total


class Rule:
    """A divergence of ``DIVERGENCES``, or "directions", whose rows have length 1."""

    def __init__(self, name):
        self.name, self.divergence = name, DIVERGENCES.get(name)
        self.path_options, self.top = PATH_OPTIONS, np.inf
        if self.divergence is not None:
            self.path_options = {"family": Family(self.divergence)}
            self.top = self.divergence.high

    def checked(self, X, n_threads):
        """The rows, which must be in the domain or have a direction."""
        if self.divergence is None:
            return unit_rows(X, n_threads)
        self.divergence.check(X, "X", self.name)
        return X

    def between(self, X, centers):
        """D(X, centers), broadcast over all axes but the last."""
        if self.divergence is None:
            return 0.5 * np.square(X - centers).sum(axis=-1)  # 1 - cos of vectors of length 1
        return self.divergence.between(X, centers)

    def center(self, phi, gamma, mean, weight, other):
        """The best center for gamma rows at phi and others; ``other`` if all are as good."""
        share = gamma / (gamma + weight)
        center = share * phi + (1.0 - share) * mean
        if self.divergence is not None:
            return np.clip(center, np.minimum(phi, mean), np.maximum(phi, mean))
        length = np.sqrt(np.square(center).sum(axis=-1, keepdims=True))
        vanishes = length <= ZERO_RESULTANT
        return np.where(vanishes, other, center / np.where(vanishes, 1.0, length))

    def revival_costs(self, X, w, phi, gamma):
        """What each row and gamma rows at phi cost at their best center."""
        center = self.center(phi, gamma, X, w[:, None], phi)
        return gamma * self.between(phi, center) + w * self.between(X, center)

    def cheapest(self, X, centers, offset, gamma):
        """The cheapest cluster for each row, those of infinite gamma at D, others to revive."""
        X, weight = X.astype(np.float64, copy=False), np.ones(len(X))
        costs = [
            self.between(X, phi) if g == np.inf else Q + self.revival_costs(X, weight, phi, g)
            for phi, Q, g in zip(centers, offset, gamma, strict=True)
        ]
        return np.argmin(costs, axis=0)

    def farthest(self, X, guess, weight, n_threads):
        """D of the farthest-first rule, of a divergence from where clusters open."""
        if self.divergence is None:
            about = (first_row(X, weight)[0], length_rounding(X))
            return 0.5 * (farthest_row(X, guess, weight, n_threads, about=about) or 2.0)
        mean, X = SumsFrame(X, weight, n_threads).mean, X.astype(np.float64, copy=False)

        def from_row(i):
            return self.between(X, self.off_border(X[i], mean))

        return farthest_by(self.between(X, mean), from_row, guess, 0.0) or 1.0

    def off_border(self, center, mean):
        """The center, components on the border of the domain a tenth of the way to the mean."""
        return self.divergence.off_border(center[None], self.divergence.inside(mean))[0]

    def opening(self, X, weight, center, n_threads):
        """``opening_distance`` of rows with a single center (1, d)."""
        if self.divergence is None:
            center = as_directions(center, X, weight, n_threads)
        far = self.between(X.astype(np.float64), center[0])
        within = float((far if weight is None else weight * far).max())
        return (4.0 * within if within > 0.0 else mean_weight(weight)), within


def rule_of(divergence, directions):
    """The Rule of these parameters, None for squared distances."""
    check_option(divergence, "divergence", ("squared_euclidean", *DIVERGENCES))
    check_flag(directions, "directions")
    if directions and divergence in DIVERGENCES:
        raise ValueError(
            f"divergence must be 'squared_euclidean' with directions=True, got {divergence!r}"
        )
    name = "directions" if directions else divergence
    return None if name == "squared_euclidean" else Rule(name)


class RuleStep:
    """One batch of D-Means by a rule: arguments, methods and results are those of DynamicStep.

    Row i, in the order of visit, pays ``costs[k][i]`` to join cluster k. Rows take the cheapest, up
    to one that opens, revives or empties a cluster, whose costs then change for those that follow.
    """

    def __init__(self, rule, X, weight, phi, gamma, penalty, lam, n_threads):
        self.rule, self.phi, self.gamma, self.penalty, self.lam = rule, phi, gamma, penalty, lam
        self.X = np.ascontiguousarray(X, dtype=np.float64)
        self.weight = np.ones(len(X)) if weight is None else weight
        self.frame = SumsFrame(self.X, self.weight, n_threads)
        self.revival_costs = [
            penalty[k] + rule.revival_costs(self.X, self.weight, phi[k], gamma[k])
            for k in range(len(phi))
        ]

    def run(self, order, max_iter):
        """Sweep over the rows in this order (None: as given) until the objective stops falling."""
        self.order = np.arange(len(self.X)) if order is None else order
        self.x, self.w = self.X[self.order], self.weight[self.order]
        self.labels = np.full(len(self.X), -1, dtype=np.int32)
        self.costs = [costs[self.order] for costs in self.revival_costs]
        self.centers, self.counts = list(self.phi), [0] * len(self.phi)
        self.stale = set()  # clusters that ``costs`` has not the costs of all rows of
        self.values, self.n_iter, self.converged, previous = [], 0, False, np.inf
        while self.n_iter < max_iter and not self.converged:
            changes = self._sweep()
            if changes:
                self._move_centers()
            self.values.append(self.objective)
            self.converged = changes == 0 or not self.objective < previous
            self.n_iter, previous = self.n_iter + 1, self.objective
        return self

    def _sweep(self):
        """Visit all rows; returns how many changed cluster."""
        start = changes = 0
        self.best, self.least = self._cheapest(slice(None))
        while True:
            joins = np.where(self.least[start:] <= self.lam, self.best[start:], len(self.costs))
            rows = np.flatnonzero(joins != self.labels[start:])
            for i, k in zip((start + rows).tolist(), joins[rows].tolist(), strict=True):
                begins, left = k == len(self.costs) or self.counts[k] == 0, int(self.labels[i])
                if begins:
                    self._begin(i, k)
                self.labels[i], changes = k, changes + 1
                self.counts[k] += 1
                if left >= 0:
                    self.counts[left] -= 1
                empties = left >= 0 and self.counts[left] == 0
                if begins or empties:
                    break
            else:
                return changes
            start = i + 1
            if begins:
                costs = self.rule.between(self.x[start:], self.centers[k])
                self._set_costs(k, start, self.w[start:] * costs)
            if empties:
                self._set_costs(left, start, self._retired(left)[start:])

    def _cheapest(self, rows):
        """The first of the cheapest clusters for rows, and its cost."""
        if not self.costs:
            return np.zeros(len(self.x), dtype=np.intp), np.full(len(self.x), np.inf)
        costs = np.array([costs[rows] for costs in self.costs])
        return costs.argmin(axis=0), costs.min(axis=0)

    def _old(self, k, center):
        """Old center, its gamma and the price of a cluster; of a new one ``center``, 0 and lam."""
        if k < len(self.phi):
            return self.phi[k], self.gamma[k], self.penalty[k]
        return center, 0.0, self.lam

    def _begin(self, i, k):
        """Open or revive cluster k at row i, off the border of the domain if that pays."""
        x, w, others = self.x[i], self.w[i], [costs[i] for costs in self.costs]
        if k == len(self.costs):
            self.costs.append(np.empty(len(self.x)))
            self.counts.append(0)
            self.centers.append(x)
        else:
            others[k] = self.lam
        phi, gamma, price = self._old(k, x)
        self.centers[k] = center = self.rule.center(phi, gamma, x, w, phi)
        if self.rule.divergence is not None:
            # as BregmanDPMeans, but by the share that the row has in the center
            moved = self.rule.off_border(center, self.frame.mean)
            moved = center + w / (gamma + w) * (moved - center)
            cost = gamma * self.rule.between(phi, moved) + w * self.rule.between(x, moved)
            if price + cost < min(others, default=np.inf):
                self.centers[k] = moved

    def _retired(self, k):
        """Close cluster k, which has no rows; returns what rows pay for an old one again."""
        if k < len(self.phi):
            self.centers[k] = self.phi[k]
            return self.revival_costs[k][self.order]
        return np.full(len(self.x), np.inf)

    def _set_costs(self, k, start, values):
        """Set the costs of joining cluster k for the rows from ``start`` on."""
        self.costs[k][start:] = values
        self.stale.add(k)
        best, least = self.best[start:], self.least[start:]
        better = (values < least) | ((values == least) & (k < best))
        again = np.flatnonzero((best == k) & ~better)
        best[better], least[better] = k, values[better]
        best[again], least[again] = self._cheapest(start + again)

    def _move_centers(self):
        """Move centers to the means, and compute the objective and the costs at these."""
        k, has_rows = len(self.costs), np.array(self.counts) > 0
        sums = Sums(self.frame.layout, k)
        sums.add(self.x, self.labels, self.w)
        weights = self.weights = sums.totals[1][:k].copy()
        share = self.w.min() / np.where(has_rows, weights, 1.0)
        means = within_members(sums.means[:k], self.x, self.labels, share, self.rule.top)
        total = 0.0
        for c in range(k):
            if has_rows[c]:
                phi, gamma, price = self._old(c, means[c])
                center = self.rule.center(phi, gamma, means[c], weights[c], self.centers[c])
                total += price + gamma * float(self.rule.between(phi, center))
                if c in self.stale or (center != self.centers[c]).any():
                    self.costs[c] = self.w * self.rule.between(self.x, center)
                self.centers[c] = center
            elif c in self.stale:
                self.costs[c] = self._retired(c)
        self.stale.clear()
        assigned = np.array(self.costs)[self.labels, np.arange(len(self.x))]
        if not np.isfinite(assigned).all():
            raise ValueError("X must have finite divergences from its means: replace tiny values")
        self.objective = total + exact_total(assigned)

    def result(self):
        """Labels in the order of the rows, centers and weights of clusters."""
        kept = [k for k in range(len(self.costs)) if k < len(self.phi) or self.counts[k]]
        labels = np.empty(len(self.labels), dtype=np.intp)
        labels[self.order] = np.searchsorted(kept, self.labels)
        return labels, np.array(self.centers)[kept], self.weights[kept]
