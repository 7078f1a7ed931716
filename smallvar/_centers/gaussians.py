"""Clusters with covariances: what they cost, the sweeps that fit them."""

import numpy as np

from smallvar._centers.divergence import blocks
from smallvar._core.fit_loop import LoopSettings, Progress
from smallvar._sweeps.sums import Layout, Sums, cluster_range, exact_total

PATH_SWEEPS = 5  # after a merger
SMALLEST_VARIANCE = 1e-300  # absolute: squares of the roots of smaller ones would leave float64
# of a variance: a covariance is singular where less of one is left, the columns before it known
SINGULAR = 1e-14
PLAIN_SWEEPS = 20  # of a k-means that seeds a start


def roots_of(covariances, raise_singular):
    """W with S^-1 = W W' for each S, and log det S; ``raise_singular(k)`` where there are none."""
    scale = np.einsum("kjj->kj", covariances)
    try:
        lower = np.linalg.cholesky(covariances)
    except np.linalg.LinAlgError:
        raise_singular(int(np.argmin(np.linalg.eigvalsh(covariances)[:, 0])))
    pivots = np.einsum("kjj->kj", lower)
    left = np.square(pivots) / scale  # of a variance, once the columns before it are known
    if not (left > SINGULAR).all():
        raise_singular(int(np.argmin(left.min(axis=1))))
    return np.linalg.inv(lower).transpose(0, 2, 1), 2.0 * np.log(pivots).sum(axis=1)


def _order_of_values(X, w):
    """Rows by their values, column after column, and then by weight."""
    order = np.argsort(X[:, 0], kind="stable")
    tied = X[order[1:], 0] == X[order[:-1], 0]
    if tied.any():
        place = np.append(tied, False) | np.append(False, tied)
        rows = order[place]
        order[place] = rows[np.lexsort([w[rows], *X[rows].T[::-1]])]
    return order


def need_finite(squares, X):
    """Raise where squared Mahalanobis distances are beyond their type."""
    if not np.isfinite(squares).all():
        raise ValueError(
            "X must be so near the centers, for their covariances, that squared Mahalanobis "
            f"distances, and distances as {X.dtype}, are finite, got entries up to "
            f"{float(np.abs(X).max()):.3g}"
        )


class Data:
    """Rows, their weights > 0, the layout of their sums, an order that follows from the values."""

    def __init__(self, X, w, weighted):
        self.X, self.w = X, w
        self.layout = Layout(X, w if weighted else None, 1)
        # products are added in this order, so that covariances do not depend on that of the rows
        self.order = _order_of_values(X, w)


class Gaussians:
    """Centers and covariances, and the objective they give.

    ``data`` : a Data with the rows X and weights w, for ``refit``
    """

    by_point = False

    def __init__(self, X, w, lam, scale, reg, known, data=None):
        self.X, self.w, self.data = X, w, data
        self.sums = None if data is None else Sums(data.layout, 1)
        self.summed = None
        self.lam, self.scale, self.reg, self.known = lam, scale, reg, known
        self.identity = np.eye(X.shape[1])

    def rows(self, index):
        return self.X[index].astype(np.float64, copy=False)

    def _moments(self, label, k):
        """Mean of each cluster, and the sum of w (x - mean)(x - mean)'."""
        d, weight = self.X.shape[1], self.w if self.sums.layout.weighted else None
        self.sums.reserve(k)
        if self.summed is None:
            self.sums.add(self.X, label, weight)
        else:
            self.sums.move(self.X, self.summed, label, weight)
        self.summed = label.copy()
        low, high = cluster_range(self.X, label, k)
        centers = np.clip(self.sums.means[:k], low, high)  # so that the mean of equal rows is exact
        scatter = np.zeros((k, d, d))
        order = self.data.order
        order = order[np.argsort(label[order], kind="stable")]
        start = np.searchsorted(label[order], np.arange(k + 1))
        for c in np.flatnonzero(np.diff(start) > 1):
            members = order[start[c] : start[c + 1]]
            w = self.w[members]
            for b in blocks(len(w), d):
                apart = self.rows(members[b]) - centers[c]
                scatter[c] += (w[b, None] * apart).T @ apart
        return centers, scatter

    def refit(self, label, k):
        """Means and covariances of the members; returns the objective."""
        self.centers, scatter = self._moments(label, k)
        if self.known is None:
            self.set_covariances(self._learned(scatter), label)
        elif self.known.ndim == 2:
            self.set_covariances(np.broadcast_to(self.known, scatter.shape).copy(), label)
        else:
            self.set_covariances(self.known, label)
        with np.errstate(over="ignore", invalid="ignore"):  # checked here
            within = float(np.sum((scatter @ self.roots) * self.roots))
        need_finite(within, self.X)
        return within + self.prior()

    def _learned(self, scatter):
        """The best covariances; MB13, appendix E: S_k = (scatter_k + reg I) / scale."""
        return (scatter + self.reg * self.identity) / self.scale

    def set_covariances(self, covariances, label=None):
        """Covariances, and their roots."""

        def singular(k):
            members = "" if label is None else f" of {np.count_nonzero(label == k)} rows"
            raise ValueError(
                f"reg_covar must be larger: with reg_covar={self.reg:.6g} the covariance of "
                f"cluster {k}{members} in {self.X.shape[1]} dimensions is singular"
            )

        least = float(np.einsum("kjj->kj", covariances).min())
        if 0.0 < least < SMALLEST_VARIANCE:
            raise ValueError(
                "X, sample_weight, reg_covar and scale must make variances of at least 1e-300, got "
                f"{least:.3g}: rescale the data or their weights"
            )
        self.covariances = covariances
        self.roots, self.logdet = roots_of(covariances, singular)

    def set_clusters(self, centers, covariances, shares=None):
        """Have these clusters; ``shares`` of the weight where points pay for them."""
        self.centers = centers
        self.set_covariances(covariances)
        if shares is not None:
            self.set_shares(shares)

    def prior(self):
        """What clusters cost apart from distances: reg tr S_k^-1 + scale log det S_k + lam each."""
        trace = self.reg * float(np.square(self.roots).sum())
        return trace + self.scale * float(self.logdet.sum()) + self.lam * len(self.logdet)

    def distances(self, x):
        """Squared Mahalanobis distances, (n, k)."""
        out = np.empty((len(x), len(self.centers)))
        for k, (center, root) in enumerate(zip(self.centers, self.roots, strict=True)):
            with np.errstate(over="ignore", invalid="ignore"):  # checked below
                white = (x - center) @ root
                out[:, k] = np.einsum("ij,ij->i", white, white)
        need_finite(out, self.X)
        return out

    def costs(self, x):
        """What rows pay in each cluster, (n, k)."""
        return self.distances(x)

    def assign(self):
        """Cheapest cluster of each row, and what the row pays there."""
        n = self.X.shape[0]
        label, least = np.empty(n, dtype=np.int32), np.empty(n)
        for b in blocks(n, max(self.centers.shape)):
            table = self.costs(self.rows(b))
            label[b] = table.argmin(axis=1)
            least[b] = np.take_along_axis(table, label[b, None], axis=1)[:, 0]
        return label, least

    def keep(self, kept):
        """Forget the other clusters."""
        self.centers, self.covariances = self.centers[kept], self.covariances[kept]
        self.roots, self.logdet = self.roots[kept], self.logdet[kept]


class PointGaussians(Gaussians):
    """The same where each point pays for the volume of its cluster, and for how rare that is.

    A point of cluster k pays its squared distance + log det S_k - 2 log p_k, p_k the cluster's
    share of the weight: -2 log of the joint likelihood of point and label, less d log(2 pi). A
    cluster pays what its covariance deviates from reg I / scale, as ``scale`` points would see it:
    nothing where they are equal, and so nothing depends on units.
    """

    by_point = True

    def __init__(self, X, w, lam, scale, reg, known, data=None):
        super().__init__(X, w, lam, scale, reg, known, data)
        self.total = exact_total(w)

    def _moments(self, label, k):
        centers, self.scatter = super()._moments(label, k)
        self.mass = np.array(self.sums.totals[1][:k])
        return centers, self.scatter

    def _learned(self, scatter):
        return (scatter + self.reg * self.identity) / (self.mass + self.scale)[:, None, None]

    def refit(self, label, k):
        """Means, covariances and shares of the members; returns the objective."""
        apart = super().refit(label, k)
        self.set_shares(self.mass / self.total)
        return apart + float(self.mass @ self.charges)

    def set_shares(self, shares):
        """Shares of the weight, and what they and the volumes add to the cost of a point."""
        self.shares = shares
        self.charges = self.logdet - 2.0 * np.log(shares)

    def take(self, other):
        """Take the clusters of another state."""
        self.centers = other.centers
        self.set_covariances(other.covariances)
        self.set_shares(other.shares)

    def set_clusters(self, centers, covariances, shares=None):
        """Have these clusters; ``shares`` of the weight where points pay for them."""
        self.centers = centers
        self.set_covariances(covariances)
        if shares is not None:
            self.set_shares(shares)

    def prior(self):
        """What clusters cost apart from their points."""
        price = self.lam * len(self.logdet)
        if self.reg == 0:  # known covariances
            return price
        trace = self.reg * float(np.square(self.roots).sum())
        return price + trace + self.scale * float((self.logdet - self._unit()).sum())

    def _unit(self):
        """Of tr(reg I S^-1) / scale + log det S, the least value."""
        return len(self.identity) * (1.0 + np.log(self.reg / self.scale))

    def costs(self, x):
        """What rows pay in each cluster, (n, k)."""
        return self.distances(x) + self.charges

    def _apart(self, mass, scatter):
        """The objective of clusters with these moments, lam left out."""
        d = len(self.identity)
        entropy = 2.0 * mass * np.log(mass / self.total)
        if self.known is not None:
            white = self.roots[0]
            return np.sum((scatter @ white) * white, axis=(1, 2)) + mass * self.logdet[0] - entropy
        freedom = mass + self.scale
        wide = (scatter + self.reg * self.identity) / freedom[:, None, None]
        logdet = np.linalg.slogdet(wide)[1]
        return freedom * (logdet + d) - self.scale * self._unit() - entropy

    def cheapest_pair(self):
        """The two clusters whose merger costs least."""
        k, least, pair = len(self.mass), np.inf, None
        own = self._apart(self.mass, self.scatter)
        for a in range(k - 1):
            others = slice(a + 1, k)
            mass = self.mass[a] + self.mass[others]
            way = self.centers[others] - self.centers[a]
            pull = self.mass[a] * self.mass[others] / mass
            scatter = self.scatter[a] + self.scatter[others]
            scatter = scatter + pull[:, None, None] * way[:, :, None] * way[:, None, :]
            lost = self._apart(mass, scatter) - own[a] - own[others]
            b = int(lost.argmin())
            if pair is None or lost[b] < least:
                least, pair = lost[b], (a, a + 1 + b)
        return pair


def merge_path(state, label, k):
    """Clusterings into ever fewer clusters: number, labels and objective of each.

    Greedy mergers, a few sweeps after each; clusters that lose all their rows are gone.
    """
    while True:
        objective = state.refit(label, k)
        for _ in range(PATH_SWEEPS):
            before = label
            found, label = np.unique(state.assign()[0], return_inverse=True)
            label, k = label.astype(np.int32), len(found)
            if np.array_equal(label, before):
                break
            objective = state.refit(label, k)
        yield k, label, objective
        if k == 1:
            return
        a, b = state.cheapest_pair()
        label = np.where(label == b, a, label - (label > b)).astype(np.int32)
        k -= 1


def plain_clusters(data, seeds, covariance):
    """Labels of a short k-means in the metric of this covariance, and how many there are."""
    state = Gaussians(data.X, data.w, 0.0, 1.0, 0.0, covariance, data)
    covariances = np.broadcast_to(covariance, (len(seeds), *covariance.shape))
    state.set_clusters(seeds.astype(np.float64), covariances)
    label, least = state.assign()
    start = GaussianStart(state, len(seeds), label)
    start.restart(least)
    start.run(True, LoopSettings(PLAIN_SWEEPS))
    found, label = np.unique(start.label, return_inverse=True)
    return label.astype(np.int32), len(found)


class GaussianStart:
    """One start of MahalanobisMeans, from ``label`` with ``k`` clusters.

    Rows open clusters where there is a ``cost`` for that, in this ``order`` of visit.
    """

    def __init__(self, gaussians, k, label, cost=None, order=None):
        self.state, self.k, self.label = gaussians, k, label
        self.cost, self.order = cost, order

    @property
    def objective(self):
        """The objective at the end."""
        return self.progress.objective

    def run(self, first, loop):
        """Sweep from the labels to a fixed point; ``first``: they are the first sweep."""
        state = self.state
        progress = self.progress = Progress(loop, len(self.label))
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
                kept, label = np.unique(self.label, return_inverse=True)
                self.label, self.k = label.astype(np.int32), len(kept)
            if moved or opened:
                objective = state.refit(self.label, self.k)
            self._record(objective, moved, opened)
        if not progress.converged:
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
        """Emptied clusters begin anew at the worst-fitted rows that are not alone."""
        count = np.bincount(self.label, minlength=self.k)
        for k in np.flatnonzero(count == 0):
            worst = np.where(count[self.label] > 1, self.state.w * least, -np.inf).argmax()
            count[self.label[worst]] -= 1
            self.label[worst], least[worst], count[k] = k, 0.0, 1

    def _retain(self, before, least):
        """Emptied clusters keep the one of their rows for which staying costs least.

        At worst all rows stay, so that the objective never rises.
        """
        state = self.state
        while True:
            count = np.bincount(self.label, minlength=self.k)
            emptied = np.flatnonzero(count == 0)
            if not len(emptied):
                return
            for k in emptied:
                (rows,) = np.nonzero(before == k)
                stay = state.costs(state.rows(rows))[:, k]
                row = rows[(state.w[rows] * (stay - least[rows])).argmin()]
                self.label[row] = k

    def _open(self, least):
        """Rows in order of visit whose distance exceeds the cost open clusters."""
        state, order, opened, after = self.state, self.order, 0, 0
        if state.known is None:
            root = np.sqrt(state.scale / state.reg) * state.identity
        else:
            root = state.roots[0]
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
                rows = order[after:][b]
                with np.errstate(over="ignore"):  # infinity is not nearer
                    new = np.square((state.rows(rows) - center) @ root).sum(axis=1)
                rows, new = rows[new < least[rows]], new[new < least[rows]]
                self.label[rows], least[rows] = self.k, new
            self.k += 1
            opened += 1
