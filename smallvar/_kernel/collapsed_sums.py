"""Sums over the clusters of a kernel matrix, where each point leaves its cluster first."""

import numpy as np

LEAST_REST = 1e-15  # least weight of a cluster without a point, relative to that of the point


class CollapsedSums:
    """Sums over clusters in a collapsed sweep, which change with every point that moves.

    Cluster c has ``weight[c]`` = s_c, ``square[c]`` = sum_{i, j in c} w_i w_j K_ij / unit, and
    ``count[c]`` points, of which it may lose all. ``sums`` are those of Partition, None if they are
    not held. Clusters that lose all points keep their numbers during the sweep: ``n_used`` of the
    ``k`` clusters have points. The arrays have a capacity of more than ``k`` clusters.
    """

    def __init__(self, clusters, order):
        self.clusters, self.label = clusters, clusters.label.copy()
        k = self.k = self.n_used = clusters.k
        self.capacity = k + 8
        self.weight, self.square = np.zeros(self.capacity), np.zeros(self.capacity)
        self.weight[:k] = clusters.cluster_weight
        squared_weight = clusters.cluster_weight * (clusters.cluster_weight / clusters.unit)
        self.square[:k] = clusters.norm * squared_weight
        self.count = np.zeros(self.capacity, dtype=np.int64)
        self.count[:k] = np.bincount(self.label[order], minlength=k)
        self.sums = None
        if clusters.sums is not None and clusters.can_hold_sums(self.capacity):
            self.sums = np.empty((self.capacity, len(self.label)))
            self.sums[:k] = clusters.sums

    def costs(self, rows):
        """Costs of these points in each cluster, (k, m) array, with sizes and sums.

        By MB13, eq. 8, adding a point of weight w to a cluster of weight s raises its error by
        w s / (w + s) ||x - mean||^2. The cost of its own cluster, whose s and mean include the
        point, is what its error would fall by: w s / (s - w) ||x - mean||^2. It is infinite if the
        point is alone there. ``sizes`` are what rounding errors of the distances are relative to.
        """
        clusters, k = self.clusters, self.k
        if self.sums is not None:
            sums = self.sums[:k, rows]
        else:
            sums = clusters.sums_at(rows, self.label, k)
        assigned, w, columns = self.label[rows], clusters.weight[rows], np.arange(len(rows))
        alone = self.count[assigned] == 1
        s = np.where(self.weight[:k] > 0, self.weight[:k], 1.0)[:, None]
        distance = sums * (-2.0 / s)
        distance += self.square[:k, None] / s / (s / clusters.unit)
        sizes = np.abs(distance).max(axis=0) + np.abs(clusters.diagonal[rows])
        distance += clusters.diagonal[rows]
        factor = w * (s / (w + s))
        rest = np.where(alone, 1.0, s[assigned, 0] - w)
        factor[assigned, columns] = w * (s[assigned, 0] / np.maximum(rest, LEAST_REST * w))
        cost = distance * factor
        cost[self.count[:k] == 0] = np.inf
        cost[assigned[alone], columns[alone]] = np.inf
        return cost, sizes, sums

    def move(self, i, new, sums):
        """Move point i to cluster ``new``, which is opened if it is k; ``sums`` are those of i."""
        clusters, old, w = self.clusters, self.label[i], self.clusters.weight[i]
        if new == self.k:
            self._add_cluster()
        self.n_used -= bool(self.count[old] == 1)
        row = w * clusters.gram.rows(np.array([i]))[0]
        for c, sign in ((old, -1), (new, 1)):
            inner = sums[c] if c < len(sums) else 0.0
            self.square[c] += w / clusters.unit * (sign * 2.0 * inner + row[i])
            if self.sums is not None:
                self.sums[c] += sign * row
            self.weight[c] += sign * w
            self.count[c] += sign
        if not self.count[old]:
            self.weight[old] = 0.0
        self.label[i] = new

    def _add_cluster(self):
        """Add an empty cluster; the arrays grow if they are full."""
        k = self.k
        if k == self.capacity:
            self.capacity *= 2
            added = self.capacity - k
            if self.sums is not None:
                fits = self.clusters.can_hold_sums(self.capacity)
                added_sums = np.empty((added, len(self.label)))
                self.sums = np.concatenate([self.sums, added_sums]) if fits else None
            self.weight, self.square, self.count = (
                np.concatenate([array, np.zeros(added, dtype=array.dtype)])
                for array in (self.weight, self.square, self.count)
            )
        if self.sums is not None:
            self.sums[k] = 0.0
        self.k += 1
        self.n_used += 1
