"""Partitions of points in the feature space of a kernel, for kernel DP-means and the kernel HDP.

``Partition`` has labels, and the sums of K over clusters that distances to cluster means follow
from (KJ12, section 5.2). ``PartitionStart`` sweeps over a partition to a fixed point, and
``KernelClusters`` is the base of both estimators: their Gram matrix, and distances of new points.
"""

from copy import copy
from functools import partial

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array
from sklearn.base import ClusterMixin

from smallvar._core.fit_loop import Progress, RecordedStart, best_of
from smallvar._core.validation import check_number, learned, mean_weight, unit_of
from smallvar._kernel.gram import (
    PRODUCT_KERNELS,
    Gram,
    KernelEstimator,
    add_rows,
    batches,
    block_size,
    check_size,
    remote_origin,
    warn_indefinite,
    warn_remote,
)
from smallvar._selection.penalty import farthest_by

# Rounding error of a distance, relative to the terms that it is the difference of. Distances that
# differ by less tie, an excess over lam below it opens no cluster, an error below it is 0.
TABLE_TIE = 1e-13
SMALL_TABLE = 1 << 18  # entries of a table of costs that is processed at once
TABLE_BYTES = 24  # bytes for each cluster and point: sums, the sums of the next sweep, temporaries
CANCELED_OBJECTIVE = 1e-3  # objectives below this times sum_i w_i K_ii need sums made from scratch
# kernels that may have negative eigenvalues (those of other kernels are not, as gamma >= 0)
INDEFINITE = ("precomputed", "sigmoid", "poly", "polynomial")


def cheapest_cluster(cost, size):
    """Index of the least entry of each column of ``cost``, at a tie the lowest one.

    ``cost`` has a row for each cluster. ``size``, a number or an array with one for each column, is
    the magnitude of the terms that costs are differences of. Entries tie if they differ by no more
    than rounding: TABLE_TIE times the sum of ``size`` and the absolute value of the least entry.
    Returns the indices, the least values and these bounds on rounding, each for all columns.
    """
    least = cost.min(axis=0)
    tie = TABLE_TIE * (np.abs(least) + size)
    return (cost <= least + tie).argmax(axis=0), least, tie


class Partition:
    """A partition of the points, and the sums over its clusters that distances follow from.

    With sums[c, i] = sum_{j in c} w_j K_ij and s_c the weight of cluster c, the squared distance of
    point i to the mean of c is K_ii - 2 sums[c, i] / s_c + norm_c, where the squared norm of the
    mean is norm_c = sum_{i in c} w_i sums[c, i] / s_c^2 (KJ12, section 5.2).

    If their tables fit ``capacity`` bytes, the sums are held and updated for the points that
    change clusters; every so often they are added up from scratch, as rounding errors add up.
    Otherwise they are added up, some columns at a time, wherever they are needed.
    """

    def __init__(self, gram, weight, label, capacity=np.inf):
        n = gram.shape[0]
        self.capacity = capacity
        self.gram, self.diagonal = gram, gram.diagonal
        self.weight = np.ones(n) if weight is None else weight
        self.unit = unit_of(weight)  # products of two weights are divided by it: no overflow
        self.active = np.flatnonzero(self.weight > 0)
        self.label = np.zeros(n, dtype=np.int32)
        self.k, self.sums, self.n_changes = 0, np.zeros((0, n)), 0
        self.relabel(label, int(label.max()) + 1, exact=True)

    def can_hold_sums(self, k):
        """Whether the sums of ``k`` clusters fit ``capacity`` bytes."""
        return TABLE_BYTES * k * len(self.label) <= self.capacity

    @property
    def exact(self):
        """Whether the sums were added up from scratch and not changed since."""
        return self.n_changes == 0

    def relabel(self, label, k, *, exact=False):
        """Replace the labels by ``label`` (numbers below ``k``) and update the sums.

        Clusters without weight are removed. With ``exact`` the sums are added up from scratch.
        """
        active, old = self.active, self.label
        used = np.zeros(k, dtype=bool)
        used[label[active]] = True
        new_number = np.where(used, np.cumsum(used) - 1, -1)
        kept_clusters = np.flatnonzero(used[: self.k])
        changed = active[label[active] != old[active]]
        new_labels = new_number[label[changed]]
        # an update reads two rows of K for each change, adding up from scratch one for each point
        if not self.can_hold_sums(k):
            self.sums, self.n_changes = None, 0
        elif (
            self.sums is None
            or exact
            or 2 * len(changed) >= len(active)
            or self.n_changes > 4 * len(active)
        ):
            self.sums = np.zeros((used.sum(), len(old)))
            self.gram.add(self.sums, active, new_number[label[active]], self.weight[active])
            self.n_changes = 0
        elif len(changed) or len(kept_clusters) < k or k > self.k:
            sums = np.zeros((used.sum(), len(old)))
            sums[new_number[kept_clusters]] = self.sums[kept_clusters]
            was_used = used[old[changed]]
            self.gram.add(
                sums,
                np.concatenate([changed, changed[was_used]]),
                np.concatenate([new_labels, new_number[old[changed[was_used]]]]),
                np.concatenate([self.weight[changed], -self.weight[changed[was_used]]]),
            )
            self.sums = sums
            self.n_changes += len(changed)
        self.label, self.k = np.maximum(new_number[label], 0).astype(np.int32), int(used.sum())
        self.update_statistics()

    def sums_at(self, columns, label=None, k=None):
        """Sums of K over clusters for the points ``columns`` (indices), shape (k, len(columns)).

        They are over the present clusters, or over those of the labels ``label``, below ``k``.
        """
        if label is None:
            if self.sums is not None:
                return self.sums[:, columns]
            label, k = self.label, self.k
        active = self.active
        at = active, label[active]
        coefficients = csr_array((self.weight[active], at), shape=(len(self.label), k))
        sums = np.empty((k, len(columns)))
        for batch in batches(len(columns), self.gram.step):
            sums[:, batch] = (self.gram.rows(columns[batch]) @ coefficients).T
        return sums

    def iterate_sums(self):
        """Iterate over all points in batches: yields a slice of points and ``sums_at`` of it."""
        stored, n = self.sums is not None, len(self.label)
        for batch in batches(n, max(1, SMALL_TABLE // self.k) if stored else self.gram.step):
            columns = batch if stored else np.arange(batch.start, batch.stop)
            yield batch, self.sums_at(columns)

    def update_statistics(self):
        """Set weights, squared norms of means, and the squared error, from the sums."""
        labels, w = self.label[self.active], self.weight[self.active]
        self.cluster_weight = np.bincount(labels, w, self.k)
        if self.sums is not None:
            inner = self.sums[labels, self.active]
        else:
            inner = np.empty(len(self.label))
            for batch, sums in self.iterate_sums():
                inner[batch] = sums[self.label[batch], np.arange(sums.shape[1])]
            inner = inner[self.active]
        square = np.bincount(labels, w / self.unit * inner, self.k)
        self.norm = square / self.cluster_weight / (self.cluster_weight / self.unit)
        total = np.bincount(labels, w * self.diagonal[self.active], self.k)
        error = float((total - square / (self.cluster_weight / self.unit)).sum())
        self.size = float(np.abs(total).sum())
        # the error is negative by rounding, or if the matrix is indefinite
        self.error = 0.0 if abs(error) <= TABLE_TIE * self.size else error

    def costs(self, columns):
        """Squared distances less K_ii of the points ``columns``: norm_c - 2 sums[c, i] / s_c."""
        return self._costs(self.sums_at(columns))

    def _costs(self, sums):
        cost = sums * (-2.0 / self.cluster_weight)[:, None]
        cost += self.norm[:, None]
        return cost

    def nearest(self):
        """Nearest mean of each point, its squared distance, and the rounding of the distance."""
        n = len(self.label)
        label, least, tie = np.empty(n, dtype=np.int32), np.empty(n), np.empty(n)
        size = np.abs(self.norm).max()
        for batch, sums in self.iterate_sums():
            label[batch], least[batch], tie[batch] = cheapest_cluster(self._costs(sums), size)
        return label, least + self.diagonal, tie + TABLE_TIE * np.abs(self.diagonal)

    def distances_to(self, i, row):
        """Squared distances of all points to point i; ``row`` is row i of K."""
        return self.diagonal - 2.0 * row + self.diagonal[i]


def kernel_rounding(clusters):
    """Largest squared distance between equal points that rounding of the kernel can make."""
    used = clusters.weight > 0
    largest = float(np.abs(clusters.diagonal[used]).max())
    for batch, sums in clusters.iterate_sums():
        inner = np.abs(sums[:, used[batch]] / clusters.cluster_weight[:, None])
        largest = max(largest, float(inner.max(initial=0.0)))
    precision = clusters.gram.X.dtype if clusters.gram.K is None else clusters.gram.K.dtype
    return (8.0 * float(np.finfo(precision).eps) + TABLE_TIE) * largest


def distances_to_mean(clusters):
    """Squared distances of points of weight, all in one cluster, to their unweighted mean."""
    if (clusters.weight != 1.0).any():  # which rows are far does not depend on weights > 0
        weight = (clusters.weight > 0).astype(float)
        clusters = Partition(clusters.gram, weight, clusters.label, clusters.capacity)
    return clusters.nearest()[1][clusters.active]


def distances_to(gram, rows, i):
    """Squared distances of ``rows`` to that of number i among them."""
    row = gram.block(rows[[i]], rows)[0]
    row *= -2.0
    row += gram.diagonal[rows] + gram.diagonal[rows[i]]
    return row


def farthest_first(gram, rows, distance, n_clusters, rounding):
    """Penalty by the farthest-first rule among ``rows``, from their distances to their mean."""
    return farthest_by(distance, partial(distances_to, gram, rows), n_clusters, rounding)


def guessed_penalty(clusters, guess, rounding):
    """Penalty by the farthest-first rule among points of weight, which are all in one cluster."""
    distance = distances_to_mean(clusters)
    found = farthest_first(clusters.gram, clusters.active, distance, guess, rounding)
    return mean_weight(clusters.weight) * (found or 1.0)


class PartitionStart(RecordedStart):
    """Base of starts: sweeps over a partition until one, with exact sums, changes nothing.

    Subclasses have ``sweep``, which returns labels, the number of clusters and whether they differ
    from those before; ``current_objective`` and ``progress_text``, of the present partition.
    """

    def __init__(self, clusters, order, rounding):
        self.clusters, self.order, self.rounding = copy(clusters), order, rounding

    def run(self, loop):
        """Sweep to the end, then compute the objective from sums made from scratch."""
        clusters = self.clusters
        # at most as many opening sweeps as points: with an indefinite matrix they might not end
        progress = self.progress = Progress(loop, len(self.order))
        verifying = False
        while progress.should_continue or (verifying and not progress.ended):
            was_exact = clusters.exact
            label, k, changed = self.sweep()
            opened = k - clusters.k
            if verifying and not changed:
                progress.conclude()
                break
            # updated sums drift: a fixed point must be one by sums from scratch
            verifying = not changed and not was_exact
            if changed or verifying:
                clusters.relabel(label, k, exact=verifying)
                objective = self.current_objective()
                if not clusters.exact and abs(objective) < CANCELED_OBJECTIVE * clusters.size:
                    # the objective is a small difference, and might rise by the rounding of updates
                    clusters.relabel(clusters.label, clusters.k, exact=True)
            progress.record(
                self.current_objective(),
                self.progress_text() if loop.callback is not None else "",
                changed=changed,
                opened=opened,
                converged=not changed and was_exact,
                n_clusters=clusters.k,
            )
        if not clusters.exact:
            clusters.relabel(clusters.label, clusters.k, exact=True)
        progress.correct(self.current_objective())
        return self


class KernelClusters(ClusterMixin, KernelEstimator):
    """Base of kernel DP-means and the kernel HDP: Gram matrix, starts, distances of new points."""

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

    def _gram(self, X, weight=None):
        """Gram matrix of the data of a fit; sets ``gamma_`` and the origin, and may warn."""
        self._learn_kernel(X, weight)
        self._origin = remote_origin(X) if self._kernel_is("linear") else None
        warn_remote(self, X, PRODUCT_KERNELS[1:])
        gram = Gram(self._kernel_of_fit(), X, self.max_memory)
        definite = not callable(self.kernel) and self.kernel not in INDEFINITE
        check_size(gram, weight, definite)
        if not definite:
            warn_indefinite(self, gram)
        return gram

    def _best_start(self, starts, total):
        """Best of the ``total`` starts, run to the end; its objectives become those of the fit."""
        loop = self._loop()
        finished = (start.run(loop) for start in starts)
        best = best_of(finished, total=total, callback=loop.callback)
        self.objective_, self.objective_path_ = best.objective, np.array(best.progress.path)
        self.n_iter_ = best.progress.n_iter
        return best

    def _store_means(self, X, label, weight, cluster_weight, norm):
        """Set the attributes that the distances of new points follow from."""
        self.X_fit_ = None if self._kernel_is("precomputed") else X.copy()
        self.center_labels_ = label
        self.center_weights_ = np.where(
            label >= 0, weight / np.append(cluster_weight, 1.0)[label], 0.0
        )
        self.center_norms_ = norm

    def _costs(self, X):
        """Iterate over squared distances of rows to the means, less K(x, x).

        Yields pairs of a slice of m rows and an array of shape (n_clusters, m).
        """
        check_number(self.max_memory, "max_memory", low=0, low_open=True)
        norms = learned(self, "center_norms_", None)
        n_fit = X.shape[1] if self.X_fit_ is None else len(self.X_fit_)
        labels = learned(self, "center_labels_", n_fit)
        weights = learned(self, "center_weights_", len(labels))
        if labels.max() >= len(norms):
            raise ValueError(f"center_labels_ must be < {len(norms)}, got {labels.max():.0f}")
        used = np.flatnonzero(labels >= 0)
        label, coefficient = labels[used].astype(np.int32), -2.0 * weights[used]
        k, size, kernel = len(norms), block_size(self.max_memory), self._kernel_of_fit()
        for batch in batches(X.shape[0], max(1, min(4096, size // k))):
            cost = np.zeros((k, len(X[batch])))

            def rows(index, X_batch=X[batch]):
                if self.X_fit_ is None:
                    return X_batch[:, index].T.astype(np.float64, copy=False)
                K = kernel.between(X_batch, self.X_fit_[index])
                return K.T.astype(np.float64, copy=False)

            add_rows(cost, used, label, coefficient, rows, max(1, size // cost.shape[1]))
            cost += norms[:, None]
            yield batch, cost

    def _assign(self, X, offset=None):
        """Cheapest cluster of each row, and its cost less K(x, x).

        ``offset``, a function of a slice of rows, returns what is added to their squared distances.
        """
        label, least = np.empty(X.shape[0], dtype=np.int32), np.empty(X.shape[0])
        size = np.abs(self.center_norms_).max()
        for batch, cost in self._costs(X):
            if offset is not None:
                cost += offset(batch)
            label[batch], least[batch], _ = cheapest_cluster(cost, size)
        return label, least

    def _self_kernel(self, X, method):
        """K(x, x) of new points; the error names the ``method`` that needs it."""
        if self._kernel_is("precomputed"):
            raise ValueError(
                f"kernel must not be 'precomputed' for {method}: the kernel of the new points "
                "with themselves is not known"
            )
        return self._kernel_of_fit().diagonal(X)
