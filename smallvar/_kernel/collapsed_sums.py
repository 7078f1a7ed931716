"""Sums over the clusters of a kernel matrix, where each point leaves its cluster first."""

import numpy as np

LEAST_REST = 1e-15  # least weight of a cluster without a point, relative to that of the point


class CollapsedSums:
    """Sums over clusters in a collapsed sweep, which change with every point that moves.

    Cluster c has ``weight[c]`` = s_c, ``square[c]`` = sum_{i, j in c} w_i w_j K_ij / unit, and
    ``count[c]`` points, of which it may lose all: it then keeps its number during the sweep.
    ``sums`` are those of Partition, None if they are not held.
    """

    def __init__(self, clusters, order):
        self.clusters, self.label = clusters, clusters.label.copy()
        self.weight = clusters.cluster_weight.copy()
        self.square = clusters.norm * (self.weight * (self.weight / clusters.unit))
        self.count = np.bincount(self.label[order], minlength=clusters.k)
        self.sums = None if clusters.sums is None else clusters.sums.copy()

    @property
    def k(self):
        """Number of clusters, those without points included."""
        return len(self.weight)

    @property
    def n_used(self):
        """Number of clusters with points."""
        return np.count_nonzero(self.count)

    def costs(self, rows):
        """Costs of these points in each cluster, (k, m) array, with sizes and sums.

        By MB13, eq. 8, adding a point of weight w to a cluster of weight s raises its error by
        w s / (w + s) ||x - mean||^2. The cost of its own cluster, whose s and mean include the
        point, is what its error would fall by: w s / (s - w) ||x - mean||^2. It is infinite if the
        point is alone there. ``sizes`` are what rounding errors of the distances are relative to.
        """
        clusters = self.clusters
        if self.sums is not None:
            sums = self.sums[:, rows]
        else:
            sums = clusters.sums_at(rows, self.label, self.k)
        assigned, w, columns = self.label[rows], clusters.weight[rows], np.arange(len(rows))
        alone = self.count[assigned] == 1
        s = np.where(self.weight > 0, self.weight, 1.0)[:, None]
        distance = sums * (-2.0 / s)
        distance += self.square[:, None] / s / (s / clusters.unit)
        sizes = np.abs(distance).max(axis=0) + np.abs(clusters.diagonal[rows])
        distance += clusters.diagonal[rows]
        factor = w * (s / (w + s))
        rest = np.where(alone, 1.0, s[assigned, 0] - w)
        factor[assigned, columns] = w * (s[assigned, 0] / np.maximum(rest, LEAST_REST * w))
        cost = distance * factor
        cost[self.count == 0] = np.inf
        cost[assigned[alone], columns[alone]] = np.inf
        return cost, sizes, sums

    def move(self, i, new, sums):
        """Move point i to cluster ``new``, which is opened if it is k; ``sums`` are those of i."""
        clusters, old, w = self.clusters, self.label[i], self.clusters.weight[i]
        if new == self.k:
            self.weight, self.square, self.count = (
                np.append(array, array.dtype.type(0))
                for array in (self.weight, self.square, self.count)
            )
            sums = np.append(sums, 0.0)
            if self.sums is not None:
                fits = clusters.can_hold_sums(self.k)
                self.sums = np.vstack([self.sums, np.zeros(len(self.label))]) if fits else None
        row = w * clusters.gram.rows(np.array([i]))[0]
        for c, sign in ((old, -1), (new, 1)):
            self.square[c] += w / clusters.unit * (sign * 2.0 * sums[c] + row[i])
            if self.sums is not None:
                self.sums[c] += sign * row
            self.weight[c] += sign * w
            self.count[c] += sign
        if not self.count[old]:
            self.weight[old] = 0.0
        self.label[i] = new
