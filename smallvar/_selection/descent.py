"""The way down from many clusters to one: mergers of the cheapest pair, and sweeps between."""

import math

import numpy as np
from scipy.spatial.distance import cdist

from smallvar._core.config import one_blas_thread
from smallvar._core.frame import RowsFrame
from smallvar._selection.columns import BLOCK
from smallvar._sweeps.dpmeans import DPSweep
from smallvar._sweeps.merge import MergeSweep

# columns for each cluster, and products of a sweep, from which distances are measured in the space
# of the centers; rows that are projected to it at a time
COLUMNS, PROJECTED, ROWS = 8, 1 << 26, 512


class Descent:
    """Rows, clusters on them, and the way down to a single one.

    ``mergers`` are those since the top of the tree: pairs of clusters, the second of which goes
    into the first, in the numbers before them, and what they cost.
    """

    def __init__(self, X, weight, sweep, frame=None, n_threads=1):
        self.X, self.weight, self.sweep, self.frame = X, weight, sweep, frame
        self.projected, self.n_threads = None, n_threads
        self.rounding = 0.0 if frame is None else frame.rounding

    def seed(self, size, rng):
        """Centers at ``size`` rows far apart, drawn in rounds by weight times squared distance.

        Returns the sum of these for every number of centers.
        """
        sweep, n = self.sweep, self.X.shape[0]
        total = np.arange(1.0, n + 1.0) if self.weight is None else np.cumsum(self.weight)
        (row,) = draw(total, 1, rng)
        sweep.start(np.array(self.X[row : row + 1], dtype=np.float64))
        sweep.assign()
        sums = [0.0]
        while sweep.k < size:
            distance = sweep.assigned_distances()
            distance[distance <= self.rounding] = 0.0
            total = np.cumsum(distance if self.weight is None else self.weight * distance)
            sums += [total[-1]] * (sweep.k + 1 - len(sums))
            if not total[-1] > 0.0:
                break  # every row is equal to a seed
            sweep.seed(draw(total, min(size - sweep.k, max(1, sweep.k // 2)), rng))
        return sums

    def start(self, centers):
        """The clusters of the nearest of these centers."""
        self.projected = None
        self.sweep.start(np.ascontiguousarray(centers, dtype=np.float64))
        self.sweep.assign()
        self.sweep.move_centers()
        self.begin()

    def begin(self):
        """Where the clusters are now is the top of the tree."""
        self.top, self.mergers = self.sweep.k, []

    @property
    def tree(self):
        """The mergers since the top: rows (id, id, height, clusters of the top in it).

        As in scipy's linkages; heights never fall.
        """
        ids, leaves, height, rows = list(range(self.top)), [1.0] * self.top, 0.0, []
        for pairs, costs in self.mergers:
            gone = set()
            for (a, b), cost in zip(pairs.tolist(), costs.tolist(), strict=True):
                height = max(height, math.sqrt(2.0 * cost))
                first, second = sorted((ids[a], ids[b]))
                leaves.append(leaves[first] + leaves[second])
                rows.append((first, second, height, leaves[-1]))
                ids[a] = len(leaves) - 1
                gone.add(b)
            ids = [i for k, i in enumerate(ids) if k not in gone]
        return np.array(rows, dtype=np.float64).reshape(-1, 4)

    def settle(self, most):
        """Sweeps until no row moves, ``most`` at the most."""
        while most > 0:
            swept, centers = self._sweeps(most)
            if centers is not None:
                self._drop(self.sweep.remap[: len(centers)], centers)
            most = most - swept if centers is not None else 0

    def _sweeps(self, most):
        """How many there were, and the centers before the last one if that has emptied any."""
        sweep = self.sweep
        if self.projected is None:
            return sweep.settle(most)
        for swept in range(1, most + 1):
            centers = sweep.centers
            if not sweep.follow(self.projected.nearest(centers)):
                break
            sweep.move_centers()
            if sweep.k < len(centers):
                return swept, centers
        return most, None

    def project(self):
        """From here on measure distances in the space of the centers, if it has few dimensions.

        On the way down the centers hardly leave it: they are means of much the same rows, and what
        is orthogonal to it is the same for all of them but for the noise in these means.
        """
        n, d = self.X.shape
        k = self.sweep.k
        if self.frame is not None and COLUMNS * k <= d and n * k * d > PROJECTED:
            self.projected = Projected(self)

    def grow(self, centers, number):
        """Clusters of these centers and of rows far from them, ``number`` in all, at a fixed point.

        While there are fewer, the row farthest from its center opens one. The tree stays.
        """
        sweep, changed = self.sweep, True
        sweep.start(np.ascontiguousarray(centers, dtype=np.float64))
        while changed:
            before = sweep.k
            sweep.seek_farthest(0.0, before < number)
            sweep.assign()
            if before < number:
                sweep.open_farthest()
            if sweep.needs_float64:
                sweep.use_float64()
            changed = sweep.moved() > 0 or sweep.k > before
            if changed:
                sweep.move_centers()
        sweep.seek_farthest(0.0, False)
        check_reached(sweep.k, number)

    def _drop(self, remap, centers):
        """Clusters that lost their last row: in the tree they are merged with the nearest one."""
        kept, gone = np.flatnonzero(remap >= 0), np.flatnonzero(remap < 0)
        nearest = kept[cdist(centers[gone], centers[kept]).argmin(axis=1)]
        self.mergers.append((np.column_stack([nearest, gone]), np.zeros(len(gone))))

    def merge(self, count):
        """The cheapest pair of clusters becomes one, ``count`` times over."""
        self.mergers.append(self.sweep.merge(count))

    def down(self, step, sweeps):
        """Yield at every stop on the way down: the number of clusters."""
        while True:
            yield self.sweep.k
            if self.sweep.k == 1:
                return
            self.merge(step(self.sweep.k))
            self.settle(sweeps)


class Projected:
    """Rows in the space of the centers of a descent: in coordinates along an orthonormal basis."""

    def __init__(self, descent):
        X, weight, centers = descent.X, descent.weight, descent.sweep.centers
        self.origin = centers.mean(axis=0)
        self.basis = np.ascontiguousarray(np.linalg.qr((centers - self.origin).T)[0])
        rows = np.empty((len(X), len(centers)))
        for start in range(0, len(X), ROWS):
            part = np.asarray(X[start : start + ROWS], dtype=np.float64)
            rows[start : start + ROWS] = (part - self.origin) @ self.basis
        frame, label = RowsFrame(rows, weight, 1), np.zeros(len(X), dtype=np.int32)
        self.sweep = DPSweep(
            rows, weight, None, label, frame, descent.n_threads, len(centers), False
        )

    def nearest(self, centers):
        """The numbers of the centers nearest to the rows."""
        self.sweep.set_centers((centers - self.origin) @ self.basis)
        self.sweep.assign()
        if self.sweep.needs_float64:
            self.sweep.use_float64()
        return self.sweep.labels


def draw(total, size, rng):
    """Distinct rows, drawn by the steps of this cumulated sum; fewer where one is drawn twice."""
    rows = np.searchsorted(total, rng.uniform(size=size) * total[-1], side="right")
    return np.unique(np.minimum(rows, len(total) - 1))


def check_distinct(found, number, where=""):
    """Raise where there are fewer distinct rows than clusters asked for."""
    if number is not None and found < number:
        raise ValueError(
            f"n_clusters must be <= {found}, the number of distinct rows{where}, got "
            f"n_clusters={number}"
        )


def check_reached(found, number):
    """Raise where rows that differ are too near each other to make so many clusters."""
    check_distinct(found, number, " (up to rounding)")


class Metric:  # numpydoc ignore=PR01
    """A metric that makes clusters round: the distance of rows after a matrix, from an origin."""

    def __init__(self, matrix, origin):
        self.matrix, self.origin = matrix, origin

    def __call__(self, X):
        """The rows, less the origin, times the matrix."""
        out = np.empty((X.shape[0], self.matrix.shape[1]))
        largest = min(X.shape[0], BLOCK), max(self.matrix.shape)
        with one_blas_thread(*largest), np.errstate(over="ignore", invalid="ignore"):
            for i in range(0, X.shape[0], BLOCK):
                out[i : i + BLOCK] = (X[i : i + BLOCK] - self.origin) @ self.matrix
        if not np.isfinite(out).all():
            raise ValueError("X must be so near the rows of the fit that distances are finite")
        return out


def descent_by_squares(X, weight, n_threads):
    """A Descent by squared distances."""
    frame, label = RowsFrame(X, weight, n_threads), np.zeros(X.shape[0], dtype=np.int32)
    sweep = MergeSweep(X, weight, None, label, frame, n_threads, 8, True)
    return Descent(X, weight, sweep, frame, n_threads)
