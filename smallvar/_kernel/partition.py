"""Partitions of points that are known by a kernel: their sums, starts, and a base of estimators."""

from copy import copy
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array
from sklearn.base import ClusterMixin

from smallvar._core.fit_loop import Progress, best_of
from smallvar._core.validation import check_number, learned, unit_of
from smallvar._kernel.gram import (
    PRODUCTS,
    Gram,
    KernelEstimator,
    add_rows,
    batches,
    block_size,
    origin_of,
    warn_indefinite,
    warn_remote,
)
from smallvar._selection.penalty import among, farthest_by

# of the terms that a distance is the difference of: its rounding. Distances that are closer tie, a
# smaller excess over lam opens no cluster, a smaller error is 0
TIE = 1e-13
SMALL = 1 << 18  # entries of a table of costs that is looked at as a whole
TABLES = 24  # bytes for each cluster and point: sums, the sums of the next sweep, temporaries
CANCELLATION = 1e-3  # of the sum of w K_ii: a smaller objective needs sums made from scratch
# kernels that may have negative eigenvalues; gamma < 0 is not allowed
INDEFINITE = ("precomputed", "sigmoid", "poly", "polynomial")


def cheapest(cost, size):
    """Index of the least entry of each column, the lowest one of those equal up to rounding.

    Returns it with the least value, and what counts as rounding: TIE times the largest entry of
    the column and ``size``.
    """
    least = cost.min(axis=0)
    tie = TIE * (np.abs(cost).max(axis=0) + size)
    return (cost <= least + tie).argmax(axis=0), least, tie


class Partition:
    """A partition of the points, and the sums over its clusters that distances follow from.

    With sums[c, i] = sum_{j in c} w_j K_ij and mass s_c, the squared distance of point i to the
    mean of c is K_ii - 2 sums[c, i] / s_c + norm_c, norm_c = sum_{i in c} w_i sums[c, i] / s_c^2
    (KJ12, section 5.2).

    The sums are held, and brought up to date, where their tables fit ``room`` bytes. Otherwise they
    are added up, some columns at a time, wherever they are needed.
    """

    def __init__(self, gram, weight, label, room=np.inf):
        n = gram.shape[0]
        self.room = room
        self.gram, self.diagonal = gram, gram.diagonal
        self.weight = np.ones(n) if weight is None else weight
        self.unit = unit_of(weight)  # of one of two weights that are multiplied
        self.active = np.flatnonzero(self.weight > 0)
        self.label = np.zeros(n, dtype=np.int32)
        self.k, self.sums, self.n_changes = 0, np.zeros((0, n)), 0
        self.put(label, int(label.max()) + 1, exact=True)

    def holds(self, k):
        """Whether there is room for the sums of so many clusters."""
        return TABLES * k * len(self.label) <= self.room

    @property
    def exact(self):
        """Whether the sums were added up from scratch and not changed since."""
        return self.n_changes == 0

    def put(self, label, k, *, exact=False):
        """Take other labels, numbers below ``k``; clusters without mass vanish.

        Returns the new number of each old one, -1 for those that vanish.
        """
        active, old = self.active, self.label
        used = np.zeros(k, dtype=bool)
        used[label[active]] = True
        number = np.where(used, np.cumsum(used) - 1, -1)
        kept = np.flatnonzero(used[: self.k])
        changed = active[label[active] != old[active]]
        now = number[label[changed]]
        # an update reads two rows for each change
        if not self.holds(k):
            self.sums, self.n_changes = None, 0
        elif (
            self.sums is None
            or exact
            or 2 * len(changed) >= len(active)
            or self.n_changes > 4 * len(active)
        ):
            self.sums = np.zeros((used.sum(), len(old)))
            self.gram.add(self.sums, active, number[label[active]], self.weight[active])
            self.n_changes = 0
        elif len(changed) or len(kept) < k or k > self.k:
            sums = np.zeros((used.sum(), len(old)))
            sums[number[kept]] = self.sums[kept]
            left = used[old[changed]]
            self.gram.add(
                sums,
                np.concatenate([changed, changed[left]]),
                np.concatenate([now, number[old[changed[left]]]]),
                np.concatenate([self.weight[changed], -self.weight[changed[left]]]),
            )
            self.sums = sums
            self.n_changes += len(changed)
        self.label, self.k = np.maximum(number[label], 0).astype(np.int32), int(used.sum())
        self.measure()
        return number

    def part(self, columns, label=None, k=None):
        """The sums of these points, an array of their numbers; with other labels if given."""
        if label is None:
            if self.sums is not None:
                return self.sums[:, columns]
            label, k = self.label, self.k
        active = self.active
        first = np.zeros(len(self.label) + 1, dtype=np.int64)
        first[active + 1] = 1
        coefficients = csr_array(
            (self.weight[active], label[active], np.cumsum(first)), (len(self.label), k)
        )
        out = np.empty((k, len(columns)))
        for few in batches(len(columns), self.gram.step):
            out[:, few] = (self.gram.rows(columns[few]) @ coefficients).T
        return out

    def parts(self):
        """The same of all points, as many at a time as make a small table: slices, and sums."""
        held, n = self.sums is not None, len(self.label)
        for few in batches(n, max(1, SMALL // self.k) if held else self.gram.step):
            yield few, self.sums[:, few] if held else self.part(np.arange(few.start, few.stop))

    def measure(self):
        """Masses, norms and the squared error from the sums."""
        c, w = self.label[self.active], self.weight[self.active]
        self.mass = np.bincount(c, w, self.k)
        if self.sums is not None:
            own = self.sums[c, self.active]
        else:
            own = np.empty(len(self.label))
            for few, sums in self.parts():
                own[few] = sums[self.label[few], np.arange(sums.shape[1])]
            own = own[self.active]
        square = np.bincount(c, w / self.unit * own, self.k)
        self.norm = square / self.mass / (self.mass / self.unit)
        total = np.bincount(c, w * self.diagonal[self.active], self.k)
        error = float((total - square / (self.mass / self.unit)).sum())
        self.size = float(np.abs(total).sum())
        # a negative error is of an indefinite matrix, or rounding
        self.error = 0.0 if abs(error) <= TIE * self.size else error

    def costs(self, columns):
        """norm_c - 2 sums[c, i] / s_c for these points: squared distances less K_ii."""
        return self._costs(self.part(columns))

    def _costs(self, sums):
        cost = sums * (-2.0 / self.mass)[:, None]
        cost += self.norm[:, None]
        return cost

    def nearest(self):
        """Nearest mean of each point, its squared distance, and the rounding of that."""
        n = len(self.label)
        label, least, tie = np.empty(n, dtype=np.int32), np.empty(n), np.empty(n)
        size = np.abs(self.norm).max()
        for few, sums in self.parts():
            label[few], least[few], tie[few] = cheapest(self._costs(sums), size)
        return label, least + self.diagonal, tie + TIE * np.abs(self.diagonal)

    def to_point(self, i, row):
        """Squared distances of all points to point i, whose kernel is ``row``."""
        return self.diagonal - 2.0 * row + self.diagonal[i]


def kernel_rounding(clusters):
    """Squared distance that the rounding of the kernel may make out of none."""
    largest = max(
        float(np.abs(clusters.diagonal).max()),
        *(float(np.abs(sums / clusters.mass[:, None]).max()) for _, sums in clusters.parts()),
    )
    precision = clusters.gram.X.dtype if clusters.gram.K is None else clusters.gram.K.dtype
    return (8.0 * float(np.finfo(precision).eps) + TIE) * largest


def farthest_first(gram, rows, distance, n_clusters, rounding):
    """The farthest-first rule among ``rows``, from their distances to their mean."""

    def to_row(farthest):
        row = gram.block(rows[[farthest]], rows)[0]
        row *= -2.0
        row += gram.diagonal[rows] + gram.diagonal[rows[farthest]]
        return row

    return farthest_by(among(distance, to_row), n_clusters, rounding)


class PartitionStart:
    """Base of starts on a partition: sweeps until one, by sums from scratch, changes nothing.

    ``sweep`` returns labels, the number of clusters and whether either is another than before;
    ``measured`` is the objective of the present partition, ``words`` are what to print of it, and
    ``renumber`` is called with the new numbers of the clusters.
    """

    def __init__(self, clusters, order, rounding):
        self.clusters, self.order, self.rounding = copy(clusters), order, rounding

    @property
    def objective(self):
        """The objective at the end."""
        return self.progress.objective

    def renumber(self, number):
        """New number of each old cluster, -1 where it vanished."""

    def run(self, loop):
        """Sweep to the end, then compute the objective from sums made from scratch."""
        clusters = self.clusters
        # with an indefinite matrix clusters may open without end
        progress = self.progress = Progress(loop, len(self.order))
        verifying = False
        while progress.should_continue or (verifying and not progress.ended):
            was_exact = clusters.exact
            label, k, changed = self.sweep()
            opened = k - clusters.k
            if verifying and not changed:
                progress.conclude()
                break
            # updated sums drift: a fixed point counts once it is one of sums from scratch
            verifying = not changed and not was_exact
            if changed or verifying:
                self.renumber(clusters.put(label, k, exact=verifying))
                if not clusters.exact and abs(self.measured()) < CANCELLATION * clusters.size:
                    # or the rounding of updates could make the objective rise
                    clusters.put(clusters.label, clusters.k, exact=True)
            progress.record(
                self.measured(),
                self.words() if loop.callback is not None else "",
                changed=changed,
                opened=opened,
                converged=not changed and was_exact,
                n_clusters=clusters.k,
            )
        if not clusters.exact:
            clusters.put(clusters.label, clusters.k, exact=True)
        progress.correct(self.measured())
        return self


class KernelClusters(ClusterMixin, KernelEstimator):
    """Base of kernel DP-means and HDP: the Gram matrix, starts, and distances of new points."""

    labels_: NDArray[np.int32]
    n_clusters_: int
    inertia_: float
    objective_: float
    objective_path_: NDArray[np.float64]
    gamma_: float | None
    n_iter_: int
    X_fit_: NDArray[np.floating] | None
    center_labels_: NDArray[np.int32]
    center_weights_: NDArray[np.float64]
    center_norms_: NDArray[np.float64]

    def _check_common(self):
        self._check_kernel()
        check_number(self.max_memory, "max_memory", low=0, low_open=True)
        self._check_starts()

    _origin = None  # a point near the data, where the kernel is the linear one and they are far

    def _gram(self, X, weight=None):
        self.gamma_ = self._find_gamma(X, weight)
        self._remember_kernel()
        self._origin = origin_of(X) if self._linear else None
        warn_remote(self, X, PRODUCTS[1:])
        gram = Gram(self._kernel_of_fit(), X, self.max_memory)
        if callable(self.kernel) or self.kernel in INDEFINITE:
            warn_indefinite(self, gram)
        return gram

    def _best_start(self, starts, total):
        """Run all of the ``total`` starts; the path of the best one becomes the result's."""
        loop = self._loop()
        finished = (start.run(loop) for start in starts)
        best = best_of(finished, total=total, callback=loop.callback)
        self.objective_, self.objective_path_ = best.objective, np.array(best.progress.path)
        self.n_iter_ = best.progress.n_iter
        return best

    @property
    def _linear(self):
        return isinstance(self.kernel, str) and self.kernel == "linear"

    def _kernel_of_fit(self):
        kernel = super()._kernel_of_fit()  # distances are the same from anywhere
        return replace(kernel, origin=self._origin) if self._linear else kernel

    @property
    def _precomputed(self):
        return isinstance(self.kernel, str) and self.kernel == "precomputed"

    def _keep(self, X, label, weight, mass, norm):
        """What the distances of new points follow from."""
        self.X_fit_ = None if self._precomputed else X.copy()
        self.center_labels_ = label
        self.center_weights_ = np.where(label >= 0, weight / np.append(mass, 1.0)[label], 0.0)
        self.center_norms_ = norm

    def _costs(self, X):
        """Squared distances of rows to the means, less K(x, x): batches of rows, (K, m) arrays."""
        check_number(self.max_memory, "max_memory", low=0, low_open=True)
        if self._precomputed != (self.X_fit_ is None):
            was = "'precomputed'" if self.X_fit_ is None else "another one than 'precomputed'"
            raise ValueError(f"kernel must stay what it was in fit, {was}, got {self.kernel!r}")
        norms = learned(self, "center_norms_", None)
        own = learned(self, "center_labels_", X.shape[1] if self._precomputed else len(self.X_fit_))
        weights = learned(self, "center_weights_", len(own))
        if own.max() >= len(norms):
            raise ValueError(f"center_labels_ must be < {len(norms)}, got {own.max():.0f}")
        used = np.flatnonzero(own >= 0)
        label, coefficient = own[used].astype(np.int32), -2.0 * weights[used]
        k, size, kernel = len(norms), block_size(self.max_memory), self._kernel_of_fit()
        for few in batches(X.shape[0], max(1, min(4096, size // k))):
            cost = np.zeros((k, len(X[few])))

            def rows(index, some=X[few]):
                if self.X_fit_ is None:
                    return some[:, index].T.astype(np.float64, copy=False)
                K = kernel.between(some, self.X_fit_[index])
                return K.T.astype(np.float64, copy=False)

            add_rows(cost, used, label, coefficient, rows, max(1, size // cost.shape[1]))
            cost += norms[:, None]
            yield few, cost

    def _assign(self, X, offset=None):
        """The cheapest cluster of each row, and its cost, less K(x, x)."""
        label, least = np.empty(X.shape[0], dtype=np.int32), np.empty(X.shape[0])
        size = np.abs(self.center_norms_).max()
        for few, cost in self._costs(X):
            if offset is not None:
                cost += offset(few)
            label[few], least[few], _ = cheapest(cost, size)
        return label, least

    def _own_kernel(self, X, wanted):
        """K(x, x) of new points."""
        if self._precomputed:
            raise ValueError(
                f"kernel must not be 'precomputed' for {wanted}: the kernel of the new points "
                "with themselves is not known"
            )
        return self._kernel_of_fit().diagonal(X)
