"""D-Means by a Bregman divergence D or by directions: the rule of either, and a time step.

For every Bregman divergence the best center is the mean (Banerjee et al. 2005): with gamma rows at
phi it is (gamma phi + sum w y) / (gamma + sum w), so that a row y of weight w revives a cluster at
Q times its age + gamma D(phi, m) + w D(y, m), m = (gamma phi + w y) / (gamma + w). For directions
D = 1 - cos, and centers are divided by their length.
"""

import math

import numpy as np

from smallvar._centers.divergence import DIVERGENCES, SumsFrame, farthest_first
from smallvar._centers.divergence_path import Family
from smallvar._centers.spherical import PATH_OPTIONS, as_directions, first_row
from smallvar._centers.unit_rows import length_rounding, unit_rows
from smallvar._core.config import at_most_blas_threads
from smallvar._core.validation import mean_weight
from smallvar._selection.path import find_path
from smallvar._selection.penalty import BatchPenalty, farthest_row
from smallvar._sweeps.divergences import within_members
from smallvar._sweeps.means import ZERO_RESULTANT
from smallvar._sweeps.sums import Sums, exact_total


class Rule:
    """A divergence of ``DIVERGENCES``, or "directions", whose rows have length 1."""

    def __init__(self, name):
        self.name, self.divergence = name, DIVERGENCES.get(name)

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
        """The best center for gamma rows at phi and rows of this mean and weight.

        It is ``other`` where all directions are as good.
        """
        share = gamma / (gamma + weight)
        center = share * phi + (1.0 - share) * mean
        if self.divergence is not None:
            return np.clip(center, np.minimum(phi, mean), np.maximum(phi, mean))
        length = np.sqrt(np.square(center).sum(axis=-1, keepdims=True))
        vanishes = length <= ZERO_RESULTANT
        return np.where(vanishes, other, center / np.where(vanishes, 1.0, length))

    def revivals(self, X, w, phi, gamma):
        """For each row, the best center with gamma rows at phi, and what both cost there."""
        center = self.center(phi, gamma, X, w[:, None], phi)
        return center, gamma * self.between(phi, center) + w * self.between(X, center)

    def cheapest(self, X, centers, offset, gamma):
        """The cheapest cluster for each row, those of infinite gamma at D, others to revive."""
        X, table = X.astype(np.float64, copy=False), np.empty((len(centers), len(X)))
        for k, phi in enumerate(centers):
            if np.isinf(gamma[k]):
                table[k] = self.between(X, phi)
            else:
                table[k] = offset[k] + self.revivals(X, np.ones(len(X)), phi, gamma[k])[1]
        return table.argmin(axis=0)

    def farthest(self, X, guess, n_threads):
        """D of the farthest-first rule."""
        if self.divergence is None:
            about = (first_row(X, None)[0], length_rounding(X))
            return 0.5 * (farthest_row(X, guess, None, n_threads, about=about) or 2.0)
        return farthest_first(self.divergence, X, None, SumsFrame(X, None, n_threads).mean, guess)

    def penalty(self, lam, guess, X, weight, rng, n_threads):
        """The BatchPenalty of a batch, as DynamicMeans derives it from squared distances."""
        unit, n = mean_weight(weight), len(X)
        if lam == "farthest-first":
            within = None if np.ptp(X, axis=0).any() else 0.0
            return BatchPenalty(None, unit * self.farthest(X, guess, n_threads), within)
        options = PATH_OPTIONS
        if self.divergence is not None:
            options = {"family": Family(self.divergence), "transforms": False}
        with at_most_blas_threads(n_threads):
            path = find_path(X, weight, rng, n_threads, **options)
        k = path.best
        if k > 1:
            lams = [self.farthest(X, min(g, n), n_threads) for g in (k, k + 1)]
            return BatchPenalty(path, unit * lams[1] * math.sqrt(lams[0] / lams[1]), None)
        center = path.centers(1)
        if self.divergence is None:
            center = as_directions(center, X, weight, n_threads)
        far = self.between(X.astype(np.float64), center[0])
        within = float((far if weight is None else weight * far).max())
        return BatchPenalty(path, 4.0 * within if within > 0.0 else unit, within)


class RuleStep:
    """One batch of D-Means by a rule: arguments, methods and results are those of DynamicStep.

    ``cost[k][i]`` is what row i, in the order of visit, pays to join cluster k. All rows take the
    cheapest cluster, up to the first that opens, revives or empties one. The costs of this one are
    then computed anew, for the rows that follow.
    """

    def __init__(self, rule, X, weight, phi, gamma, penalty, lam, n_threads):
        self.rule, self.phi, self.gamma, self.penalty, self.lam = rule, phi, gamma, penalty, lam
        self.X, self.weight = np.ascontiguousarray(X, dtype=np.float64), weight
        self.frame, w = SumsFrame(self.X, weight, n_threads), self._weights_of(slice(None))
        costs = [rule.revivals(self.X, w, *old)[1] for old in zip(phi, gamma, strict=True)]
        self.revival = [Q + cost for Q, cost in zip(penalty, costs, strict=True)]

    def _weights_of(self, rows):
        """Weights of these rows."""
        return np.ones(len(self.X)) if self.weight is None else self.weight[rows].astype(float)

    def run(self, order, max_iter):
        """Sweep over the rows in this order (None: as given) until the objective stops falling."""
        self.order = np.arange(len(self.X)) if order is None else order
        self.x, self.w = self.X[self.order], self._weights_of(self.order)
        self.label = np.full(len(self.X), -1, dtype=np.int32)
        self.cost, self.theta = [cost[self.order] for cost in self.revival], list(self.phi)
        self.count, self.stale = [0] * len(self.phi), set()  # stale: not the costs of all rows
        self.values, self.converged, previous = [], False, np.inf
        for self.n_iter in range(1, max_iter + 1):
            changes = self._sweep()
            if changes:
                self._move_centers()
            self.values.append(self.objective)
            self.converged = not changes or not self.objective < previous
            if self.converged:
                break
            previous = self.objective
        return self

    def _sweep(self):
        """Visit all rows; returns how many changed cluster."""
        start = changes = 0
        self.best, self.least = self._cheapest(slice(None))
        while True:
            joins = np.where(self.least[start:] <= self.lam, self.best[start:], len(self.cost))
            rows = np.flatnonzero(joins != self.label[start:])
            for i, k in zip((start + rows).tolist(), joins[rows].tolist(), strict=True):
                begins, left = k == len(self.cost) or self.count[k] == 0, int(self.label[i])
                if begins:
                    self._begin(i, k)
                self.label[i] = k
                self.count[k] += 1
                if left >= 0:
                    self.count[left] -= 1
                changes += 1
                empties = left >= 0 and self.count[left] == 0
                if begins or empties:
                    break
            else:
                return changes
            start = i + 1
            if begins:
                costs = self.rule.between(self.x[start:], self.theta[k])
                self._set_costs(k, start, self.w[start:] * costs)
            if empties:
                self._set_costs(left, start, self._retired(left)[start:])

    def _cheapest(self, rows):
        """The first of the cheapest clusters for rows, and its cost."""
        if not self.cost:
            return np.zeros(len(self.x), dtype=np.intp), np.full(len(self.x), np.inf)
        costs = np.array([cost[rows] for cost in self.cost])
        return costs.argmin(axis=0), costs.min(axis=0)

    def _begin(self, i, k):
        """Open or revive cluster k at row i, off the border of the domain if that pays."""
        x, w, others = self.x[i], self.w[i], [cost[i] for cost in self.cost]
        phi, gamma, fixed, center = x, 0.0, self.lam, x
        if k < len(self.phi):
            phi, gamma, fixed = self.phi[k], self.gamma[k], self.penalty[k]
            center = self.rule.revivals(x[None], self.w[i : i + 1], phi, gamma)[0][0]
            others[k] = self.lam
        else:
            self.cost.append(np.empty(len(self.x)))
            self.count.append(0)
            self.theta.append(x)
        if (divergence := self.rule.divergence) is not None:
            m0 = divergence.inside(self.frame.mean)
            # as BregmanDPMeans, but by the share that the row has in the center
            off = w / (gamma + w) * (divergence.off_border(center[None], m0)[0] - center)
            cost = gamma * self.rule.between(phi, center + off)
            cost += fixed + w * self.rule.between(x, center + off)
            if off.any() and cost < min(others, default=np.inf):
                center = center + off
        self.theta[k] = center

    def _retired(self, k):
        """Close cluster k, which has no rows; returns what rows pay for an old one again."""
        if k < len(self.phi):
            self.theta[k] = self.phi[k]
            return self.revival[k][self.order]
        return np.full(len(self.x), np.inf)

    def _set_costs(self, k, start, values):
        """Set the costs of joining cluster k for the rows from ``start`` on."""
        self.cost[k][start:] = values
        self.stale.add(k)
        best, least = self.best[start:], self.least[start:]
        better = (values < least) | ((values == least) & (k < best))
        again = np.flatnonzero((best == k) & ~better)
        best[better], least[better] = k, values[better]
        best[again], least[again] = self._cheapest(start + again)

    def _move_centers(self):
        """Move centers to the means, and compute the objective and the costs at these."""
        k, n_old, kept = len(self.cost), len(self.phi), np.array(self.count) > 0
        sums = Sums(self.frame.layout, k)
        sums.add(self.x, self.label, None if self.weight is None else self.w)
        weights = self.weights = sums.totals[1][:k].copy()
        share = self.w.min() / np.where(kept, weights, 1.0)
        top = np.inf if self.rule.divergence is None else self.rule.divergence.high
        means = within_members(sums.means[:k], self.x, self.label, share, top)
        total = 0.0
        for c in range(k):
            if not kept[c]:
                if c in self.stale:
                    self.cost[c] = self._retired(c)
                continue
            phi, gamma, fixed = means[c], 0.0, self.lam
            if c < n_old:
                phi, gamma, fixed = self.phi[c], self.gamma[c], self.penalty[c]
            theta = self.rule.center(phi, gamma, means[c], weights[c], self.theta[c])
            total += fixed + gamma * float(self.rule.between(phi, theta))
            if c in self.stale or (theta != self.theta[c]).any():
                self.cost[c] = self.w * self.rule.between(self.x, theta)
            self.theta[c] = theta
        self.stale.clear()
        own = np.array(self.cost)[self.label, np.arange(len(self.x))]
        if not np.isfinite(own).all():
            raise ValueError(
                "X must have finite divergences from the centers, got values from "
                f"{float(self.X.min()):.3g} to {float(self.X.max()):.3g}: replace tiny values"
            )
        self.objective = total + exact_total(own)

    def result(self):
        """Labels in the order of the rows, centers and weights of clusters, all objectives."""
        kept = [k for k in range(len(self.cost)) if k < len(self.phi) or self.count[k]]
        labels = np.empty(len(self.label), dtype=np.intp)
        labels[self.order] = np.searchsorted(kept, self.label)
        return labels, np.array(self.theta)[kept], self.weights[kept], np.array(self.values)
