"""Clusters with covariances: their objective, and the sweeps that minimize it."""

import numpy as np

from smallvar._centers.divergence import blocks
from smallvar._core.config import resolve_threads
from smallvar._core.fit_loop import Progress, RecordedStart
from smallvar._sweeps.gaussians import (
    assign_gaussians,
    cluster_moments,
    gaussian_costs,
    inverse_roots,
    union_log_determinants,
    without_entry,
)
from smallvar._sweeps.pairs import PairTable
from smallvar._sweeps.rows import UNSOUND
from smallvar._sweeps.sums import Layout, Sums, exact_total

OPENING_SWEEPS = 100  # that open clusters and do not count: each opens one at every row beyond
SMALLEST_VARIANCE = 1e-300  # absolute: squares of the roots of smaller ones would leave float64
# a covariance is singular if less than this share of the variance of a column is left, given the
# columns before it
SINGULAR = 1e-14
# attributes of Gaussians with an entry for each cluster
OF_CLUSTERS = (
    *("centers", "scatter", "weights", "covariances", "roots", "logdet", "within", "charges"),
    *("moved", "changed", "stale"),
)


def roots_of(covariances, raise_singular):
    """W with S^-1 = W'W for each S, and log det S; ``raise_singular(k)`` where there are none."""
    roots, logdet, left = inverse_roots(np.ascontiguousarray(covariances))
    if not (left > SINGULAR).all():
        raise_singular(int(np.argmin(left)))
    return roots, logdet


def _order_of_values(X, w):
    """Order of the rows by their values, column after column, and then by weight."""
    order = np.argsort(X[:, 0], kind="stable")
    tied = X[order[1:], 0] == X[order[:-1], 0]
    if tied.any():
        place = np.append(tied, False) | np.append(False, tied)
        rows = order[place]
        order[place] = rows[np.lexsort([w[rows], *X[rows].T[::-1]])]
    return order


def need_finite(squares, X):
    """Raise ValueError if squared Mahalanobis distances are not finite."""
    if not np.isfinite(squares).all():
        largest = float(np.abs(X).max())
        raise ValueError(
            "X must be so near the centers, for their covariances, that squared Mahalanobis "
            f"distances, and distances as {X.dtype}, are finite, got entries up to {largest:.3g}"
            if np.isfinite(largest)
            else UNSOUND
        )


class Data:
    """Rows, their weights > 0, the layout of their sums, an order that follows from the values.

    ``stand_for`` : for how many rows each of them stands: more than 1 in a sample
    """

    def __init__(self, X, w, weighted, stand_for=1.0):
        self.X, self.w, self.stand_for = X, w, stand_for
        self.layout = Layout(X, w if weighted else None, 1)
        # products are added in this order, so that covariances do not depend on that of the rows
        self.order = _order_of_values(X, w)

    def sample(self, size, rng):
        """A sample of at most ``size`` rows; their weights add up to those of all rows."""
        n = len(self.w)
        if n <= size:
            return self
        rows = np.sort(rng.choice(n, size, replace=False))
        share = exact_total(self.w) / exact_total(self.w[rows])
        return Data(self.X[rows], self.w[rows] * share, True, self.stand_for * n / size)


class Gaussians:
    """Centers and covariances, and the objective they give.

    ``data`` : a Data with the rows X and weights w, for ``refit``

    Of each cluster: ``centers``, ``scatter`` and ``weights`` of the members, ``covariances`` S,
    ``roots`` W with S^-1 = W'W, ``logdet``, ``within``, the sum of its members' squared distances,
    and ``charges``, what a point pays apart from its squared distance. What has not changed is not
    computed again: ``moved`` are clusters that others have become members of, since their moments
    were computed; ``changed`` and ``stale`` those with other moments than in the last ``assign``
    and in the last ``cheapest_pair``.
    """

    by_point = False

    def __init__(self, X, w, lam, scale, reg, given_covariances, data=None):
        self.X, self.w, self.data = X, w, data
        self.sums = None if data is None else Sums(data.layout, 1)
        self.lam, self.scale, self.reg, self.given_covariances = lam, scale, reg, given_covariances
        self.identity, self.given_root = np.eye(X.shape[1]), None
        self.threads = resolve_threads(None)
        n = X.shape[0]
        self.label, self.summed = np.zeros(n, dtype=np.int32), None
        self.least, self.second = np.empty(n), np.empty(n)  # see assign_gaussians

    def rows(self, index):
        """The rows of these indices as float64."""
        return self.X[index].astype(np.float64, copy=False)

    def _reserve(self, k):
        """Allocate arrays for k clusters, all of which count as moved."""
        d = self.X.shape[1]
        self.centers, self.scatter = np.empty((k, d)), np.empty((k, d, d))
        self.covariances, self.roots = np.empty((k, d, d)), np.empty((k, d, d))
        self.weights, self.logdet, self.within = np.empty(k), np.empty(k), np.empty(k)
        self.charges = np.zeros(k)
        self.moved, self.changed, self.stale = (np.ones(k, dtype=bool) for _ in range(3))
        self.pairs = None

    def move(self, label, k):
        """Update the sums of the clusters to these labels, below k."""
        weight = self.w if self.sums.layout.weighted else None
        self.sums.reserve(k)
        if self.summed is None:
            # the first labels: all rows are added; later only those that have moved
            self.sums.add(self.X, label, weight, self.threads)
            self._reserve(k)
        else:
            rows = np.flatnonzero(self.summed != label)
            left, joined = self.summed[rows], label[rows]
            weight = None if weight is None else weight[rows]
            self.sums.move(self.X[rows], left, joined, weight)
            # only clusters that rows have left or joined have new moments; with another k all have
            if k == len(self.centers):
                self.moved[left] = self.moved[joined] = True
            else:
                self._reserve(k)
        self.label[:] = label
        self.summed = label.copy()

    def keep(self, kept):
        """Keep the clusters with the numbers ``kept``, and drop the others."""
        is_kept = np.zeros(len(self.centers), dtype=bool)
        is_kept[kept] = True
        gone = np.flatnonzero(~is_kept)
        for name in OF_CLUSTERS:
            array = getattr(self, name)
            # after a merger only one is gone: a copy of the others would take most of the time
            setattr(self, name, without_entry(array, gone[0]) if len(gone) == 1 else array[kept])
        if self.pairs is not None:
            self.pairs.keep(kept)

    def _renumber(self, kept):
        """Drop all clusters but ``kept``, as they have no members; returns the new labels."""
        number = np.full(len(self.centers), -1, dtype=np.int32)
        number[kept] = np.arange(len(kept))
        self.keep(kept)
        self.sums.keep(kept)
        self.summed = number[self.summed]
        self.label[:] = self.summed
        return self.summed.copy()

    def leave_out_emptied(self, label, k):
        """Drop clusters without members; returns the new labels and the number of clusters."""
        count = np.bincount(label, minlength=k)
        if count.all():
            return label, k
        self.move(label, k)
        kept = np.flatnonzero(count)
        return self._renumber(kept), len(kept)

    def unite(self, a, b):
        """Merge cluster b into cluster a; returns the labels."""
        self.sums.unite(a, b)
        self.summed[self.summed == b] = a
        self.moved[a] = True
        return self._renumber(np.delete(np.arange(len(self.centers)), b))

    def _update_moments(self):
        """Update mean, weight and sum of w (x - mean)(x - mean)' of clusters that have moved."""
        rows, weight = self.moved, self.w if self.sums.layout.weighted else None
        # means come from the exact sums; the scatter is about them, so that nothing cancels
        self.weights = np.array(self.sums.totals[1][: len(rows)])
        self.centers[rows] = self.sums.means[: len(rows)][rows]
        cluster_moments(
            *(self.X, weight, self.data.order, self.label, rows.view(np.uint8)),
            *(self.centers, self.scatter, self.threads),
        )

    def refit(self, label, k):
        """Means and covariances of the members; returns the objective."""
        self.move(label, k)
        self._update_moments()
        rows = np.flatnonzero(self.moved)
        if self.given_covariances is None:
            self.set_covariances(rows, self._learned(rows), label)
        elif self.given_covariances.ndim == 3:
            self.set_covariances(rows, self.given_covariances[rows], label)
        else:
            if self.given_root is None:
                # one covariance for all clusters: factored once
                self.set_covariances(rows[:1], self.given_covariances[None], label)
                self.given_root = self.roots[rows[0]].copy(), self.logdet[rows[0]]
            self.covariances[rows] = self.given_covariances
            self.roots[rows], self.logdet[rows] = self.given_root
        with np.errstate(over="ignore", invalid="ignore"):  # checked here
            # sum of squared distances: tr(S^-1 scatter) = tr(W scatter W')
            roots = self.roots[rows]
            self.within[rows] = ((roots @ self.scatter[rows]) * roots).sum(axis=(1, 2))
        need_finite(self.within, self.X)
        self.changed |= self.moved
        self.stale |= self.moved
        self.moved[:] = False
        # sum_k [tr(S_k^-1 scatter_k) + reg tr S_k^-1 + scale log det S_k + lam]
        return float(self.within.sum()) + self.prior()

    def _learned(self, rows):
        """The best covariances; MB13, appendix E: S_k = (scatter_k + reg I) / scale."""
        return (self.scatter[rows] + self.reg * self.identity) / self.scale

    def set_covariances(self, rows, covariances, label=None):
        """Set the covariances of the clusters ``rows``, and their roots."""
        if not len(rows):
            return

        def singular(k):
            k = rows[k]
            members = "" if label is None else f" of {np.count_nonzero(label == k)} rows"
            raise ValueError(
                f"reg_covar must be larger: with reg_covar={self.reg:.6g} the covariance of "
                f"cluster {k}{members} in {self.X.shape[1]} dimensions is singular"
            )

        least = float(np.einsum("kjj->kj", covariances).min())
        if not np.isfinite(covariances).all():
            raise ValueError(UNSOUND)
        if 0.0 < least < SMALLEST_VARIANCE:
            raise ValueError(
                "X, sample_weight, reg_covar and scale must make variances of at least 1e-300, got "
                f"{least:.3g}: rescale the data or their weights"
            )
        self.covariances[rows] = covariances
        self.roots[rows], self.logdet[rows] = roots_of(covariances, singular)

    def set_clusters(self, centers, covariances, shares=None):
        """Replace the clusters; ``shares`` of the weight are given if points pay for them."""
        self._reserve(len(centers))
        self.centers[:] = centers
        self.set_covariances(np.arange(len(centers)), covariances)
        if shares is not None:
            self.set_shares(shares)

    def prior(self):
        """What clusters cost apart from distances: reg tr S_k^-1 + scale log det S_k + lam each."""
        trace = self.reg * float(np.square(self.roots).sum())
        return trace + self.scale * float(self.logdet.sum()) + self.lam * len(self.logdet)

    def distances(self, x):
        """Squared Mahalanobis distances, (n, k)."""
        out = gaussian_costs(x, self.centers, self.roots, np.zeros(len(self.centers)))
        need_finite(out, self.X)
        return out

    def costs_in(self, k, rows):
        """Costs of rows in cluster k."""
        of = slice(k, k + 1)
        clusters = self.centers[of], self.roots[of], self.charges[of]
        return gaussian_costs(self.rows(rows), *clusters)[:, 0]

    def assign(self):
        """Cheapest cluster of each row, and the cost of the row there."""
        assign_gaussians(
            *(self.X, self.centers, self.roots, self.charges, self.changed.view(np.uint8)),
            *(self.label, self.least, self.second, self.threads),
        )
        need_finite(self.least, self.X)
        self.changed[:] = False
        return self.label.copy(), self.least.copy()

    def force(self, row, cost):
        """Note that a row is in another cluster than the cheapest one, at this cost."""
        # no lower bound for other clusters, so that the next sweep compares the row with all
        self.least[row], self.second[row] = cost, -np.inf


class PointGaussians(Gaussians):
    """Gaussian clusters whose points pay for the volume of their cluster, and for its rarity.

    A point of cluster k pays its squared distance + log det S_k - 2 log p_k, p_k the cluster's
    share of the weight: -2 log of the joint likelihood of point and label, less d log(2 pi). A
    cluster pays what its covariance deviates from reg I / scale, as ``scale`` points would see it:
    nothing where they are equal, and so nothing depends on units.
    """

    by_point = True

    def __init__(self, X, w, lam, scale, reg, given_covariances, data=None):
        super().__init__(X, w, lam, scale, reg, given_covariances, data)
        self.total = exact_total(w)

    def _learned(self, rows):
        # the minimum of m log det S + tr((scatter + reg I) S^-1) + scale log det S over S, with
        # m the weight of the cluster
        weights = self.weights[rows, None, None]
        return (self.scatter[rows] + self.reg * self.identity) / (weights + self.scale)

    def refit(self, label, k):
        """Means, covariances and shares of the members; returns the objective."""
        apart = super().refit(label, k)
        self.set_shares(self.weights / self.total)
        return apart + float(self.weights @ self.charges)

    def set_shares(self, shares):
        """Shares of the weight, and what they and the volumes add to the cost of a point."""
        self.shares = shares
        self.charges = self.logdet - 2.0 * np.log(shares)

    def take(self, source):
        """Take the clusters of another state."""
        self.set_clusters(source.centers, source.covariances, source.shares)

    def prior(self):
        """The part of the objective that clusters cost apart from their points."""
        price = self.lam * len(self.logdet)
        if self.reg == 0:  # known covariances
            return price
        trace = self.reg * float(np.square(self.roots).sum())
        # less the least value of tr(reg I S^-1) / scale + log det S
        unit = len(self.identity) * (1.0 + np.log(self.reg / self.scale))
        return price + trace + self.scale * float((self.logdet - unit).sum())

    def _union_costs(self, a, b):
        """Changes of the objective, without lam, by mergers of the clusters a and b (arrays)."""

        def entropy(weight):
            return 2.0 * weight * np.log(weight / self.total)

        # points pay -2 m log(m / total) for the rarity of their cluster: less in the union
        union_weights = self.weights[a] + self.weights[b]
        lost = entropy(self.weights)[a] + entropy(self.weights)[b] - entropy(union_weights)
        if self.given_covariances is not None:
            # Ward: m_a m_b / (m_a + m_b) (mu_b - mu_a)' S^-1 (mu_b - mu_a)
            way = (self.centers[b] - self.centers[a]) @ self.roots[0].T
            return lost + self.weights[a] * self.weights[b] / union_weights * np.square(way).sum(
                axis=1
            )
        # at its best S a cluster pays (m + scale) (log det S + d)
        logdet = union_log_determinants(
            *(self.weights, self.centers, self.scatter, self.reg, self.scale, a, b)
        )
        terms = (self.weights + self.scale) * self.logdet
        # the least value of the prior, and d for each unit of weight, cancel but for one cluster
        unit = len(self.identity) * np.log(self.reg / self.scale)
        return (
            lost + (union_weights + self.scale) * logdet - terms[a] - terms[b] + self.scale * unit
        )

    def cheapest_pair(self):
        """The two clusters whose merger costs least."""
        k, stale = len(self.stale), np.flatnonzero(self.stale)
        if self.pairs is None:
            self.pairs = PairTable(k)
        # costs of two clusters that have not changed since the last call are still right
        one, other = np.repeat(stale, k), np.tile(np.arange(k), len(stale))
        once = (one != other) & ~(self.stale[other] & (other < one))
        one, other = one[once], other[once]
        a, b = np.minimum(one, other), np.maximum(one, other)
        self.stale[:] = False
        return self.pairs.cheapest(a, b, self._union_costs(a, b))


class GaussianStart(RecordedStart):
    """One start from ``label``; rows open clusters, in this ``order``, if there is a ``cost``."""

    def __init__(self, gaussians, k, label, cost=None, order=None):
        self.state, self.k, self.label = gaussians, k, label
        self.cost, self.order = cost, order

    def run(self, first, loop):
        """Sweep from the labels to a fixed point; ``first``: they are the first sweep."""
        state = self.state
        progress = self.progress = Progress(loop, min(len(self.label), OPENING_SWEEPS))
        objective = state.refit(self.label, self.k)
        if first:
            self._record(objective, len(self.label), 0)
        while progress.should_continue:
            before, least = self.label, None
            self.label, least = state.assign()
            opened = 0
            if self.cost is not None:
                opened = self._open(least)
            elif state.by_point:
                self._retain(before, least)
            else:
                self.restart(least)
            moved = int(np.count_nonzero(before != self.label))
            if self.cost is not None:
                # where K is free, emptied clusters are dropped
                kept, label = np.unique(self.label, return_inverse=True)
                self.label, self.k = label.astype(np.int32), len(kept)
            if moved or opened:
                objective = state.refit(self.label, self.k)
                if self.cost is not None:  # opening changes labels as it likes
                    state.changed[:] = True
            self._record(objective, moved, opened)
        if not progress.converged:
            # max_iter was reached: the labels, and the objective, of the last centers
            self.label, least = state.assign()
            if self.cost is not None:
                kept, label = np.unique(self.label, return_inverse=True)
                self.label, self.k = label.astype(np.int32), len(kept)
                state.keep(kept)
            progress.path.append(exact_total(state.w * least) + state.prior())
        return self

    def _record(self, objective, moved, opened):
        line = f"{self.k} clusters, {{}}, {moved} points moved, {opened} clusters opened"
        self.progress.record(
            objective, line, changed=moved or opened, opened=opened, n_clusters=self.k
        )

    def restart(self, least):
        """Restart clusters without rows at the rows of the largest cost that are not alone."""
        count = np.bincount(self.label, minlength=self.k)
        for k in np.flatnonzero(count == 0):
            # a row that is the only one of its cluster would empty that
            worst = np.where(count[self.label] > 1, self.state.w * least, -np.inf).argmax()
            count[self.label[worst]] -= 1
            self.label[worst], least[worst], count[k] = k, 0.0, 1
            self.state.force(worst, 0.0)

    def _retain(self, before, least):
        """Leave clusters that would become empty the row for which staying costs least.

        This may empty another cluster, so it is repeated. At worst all rows stay, so that the
        objective never rises.
        """
        state = self.state
        while True:
            count = np.bincount(self.label, minlength=self.k)
            emptied = np.flatnonzero(count == 0)
            if not len(emptied):
                return
            for k in emptied:
                (rows,) = np.nonzero(before == k)
                stay = state.costs_in(k, rows)
                least_lost = (state.w[rows] * (stay - least[rows])).argmin()
                row = rows[least_lost]
                self.label[row] = k
                state.force(row, stay[least_lost])

    def _open(self, least):
        """Open clusters beyond the cost, which later rows may join; returns how many."""
        state, order, opened, after = self.state, self.order, 0, 0
        if state.given_covariances is None:
            # a cluster of one point has scatter 0, so its covariance is reg I / scale
            root = np.sqrt(state.scale / state.reg) * state.identity
        else:
            root = state.roots[0].T
        while True:
            rest = order[after:]
            far = state.w[rest] * least[rest] > self.cost
            first = int(far.argmax()) if len(far) else 0
            if not len(far) or not far[first]:
                return opened
            i, after = rest[first], after + first + 1
            self.label[i], least[i] = self.k, 0.0
            center = state.rows(i)
            for b in blocks(len(order) - after, state.X.shape[1]):
                # rows visited later may join the new cluster; earlier ones wait for the next sweep
                rows = order[after:][b]
                with np.errstate(over="ignore"):  # infinity is not nearer
                    new = np.square((state.rows(rows) - center) @ root).sum(axis=1)
                rows, new = rows[new < least[rows]], new[new < least[rows]]
                self.label[rows], least[rows] = self.k, new
            self.k += 1
            opened += 1
