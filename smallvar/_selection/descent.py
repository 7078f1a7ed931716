"""The descent from many clusters to one: mergers of the cheapest pair, and sweeps between."""

import numpy as np
from scipy.spatial.distance import cdist
from sklearn.utils import gen_batches

from smallvar._core.config import one_blas_thread
from smallvar._core.frame import RowsFrame
from smallvar._selection.columns import BLOCK_ROWS
from smallvar._sweeps.merge import MergeSweep

# Distances are measured in the space of the centers if there are at least COLUMNS_A_CLUSTER columns
# for each cluster, and if a sweep takes more than PROJECTED multiplications. PROJECTED_ROWS rows
# are projected at a time.
COLUMNS_A_CLUSTER, PROJECTED, PROJECTED_ROWS = 8, 1 << 26, 512


class MergeDescent:
    """Clusters of rows that are merged down to a single one, with k-means sweeps in between.

    ``frame`` is that of the rows, ``sweep`` has labels and centers. ``top`` is the number of
    clusters at which the tree begins, ``mergers`` is a list of those since then: for each call of
    ``merge`` the pairs (a, b), b being merged into a, as numbered before the call, and what each
    merger adds to the error (Ward's cost).
    """

    projected = None  # the rows in the affine span of the centers, once distances are those

    def __init__(self, frame, sweep):
        self.frame, self.sweep, self.X, self.weight = frame, sweep, frame.X, frame.weight

    def seed(self, size, rng):
        """Set centers at ``size`` rows, drawn by weight times squared distance from those before.

        As in k-means++, but a round draws half as many rows as there are centers. Returns, by
        number of centers, the sum over the rows of weight times squared distance. Numbers within a
        round have the value at its end; that of the last round is not computed. Entry 0 is unused.
        """
        sweep, n = self.sweep, self.X.shape[0]
        total = np.arange(1.0, n + 1.0) if self.weight is None else np.cumsum(self.weight)
        (row,) = draw(total, 1, rng)
        sweep.start(np.array(self.X[row : row + 1], dtype=np.float64))
        sweep.assign()
        sums = [0.0]
        while sweep.k < size:
            total = np.cumsum(self._distances())
            sums += [total[-1]] * (sweep.k + 1 - len(sums))
            if not total[-1] > 0.0:
                break  # every row is equal to a seed
            sweep.seed(draw(total, min(size - sweep.k, max(1, sweep.k // 2)), rng))
        return sums

    def _distances(self):
        """Weight times squared distance of each row from its center, 0 where that is rounding."""
        distance = self.sweep.assigned_distances()
        distance[distance <= self.frame.rounding] = 0.0
        return distance if self.weight is None else self.weight * distance

    def open_farthest(self, number):
        """Open clusters, up to this number, at the farthest rows; returns whether any did."""
        before = self.sweep.k
        while self.sweep.k < number and (distance := self._distances()).any():
            self.sweep.seed(distance.argmax(keepdims=True))
        return self.sweep.k > before

    def start(self, centers=None):
        """Assign rows to the nearest centers (None: the rows), move these, and begin a tree."""
        self.projected = None
        centers = self.X if centers is None else centers
        self.sweep.start(np.ascontiguousarray(centers, dtype=np.float64))
        self.sweep.assign()
        self.sweep.move_centers()
        self.begin()

    def begin(self):
        """Make the clusters as they are now the leaves of the tree."""
        self.top, self.mergers = self.sweep.k, []

    @property
    def tree(self):
        """The mergers since ``begin`` as a linkage of scipy: rows (id, id, height, leaves).

        The height is sqrt(2 cost), as in Ward's linkage of scipy. Sweeps between the mergers may
        make a later one cheaper; it then gets the height of the one before.
        """
        ids, leaves, rows = list(range(self.top)), [1.0] * self.top, []
        for pairs, costs in self.mergers:
            for (a, b), cost in zip(pairs.tolist(), costs.tolist(), strict=True):
                first, second = sorted((ids[a], ids[b]))
                leaves.append(leaves[first] + leaves[second])
                rows.append((first, second, cost, leaves[-1]))
                ids[a] = len(leaves) - 1
            ids = np.delete(ids, pairs[:, 1]).tolist()
        tree = np.array(rows, dtype=np.float64).reshape(-1, 4)
        tree[:, 2] = np.maximum.accumulate(np.sqrt(2.0 * tree[:, 2]))
        return tree

    def run_lloyd(self, most):
        """Sweep until no row moves, ``most`` times at most; record clusters that become empty."""
        while most > 0:
            # centers are None if no cluster became empty: the sweeps are over
            swept, centers = lloyd_sweeps(self.sweep, most, self.projected)
            if centers is None:
                break
            self._drop(self.sweep.remap[: len(centers)], centers)
            most -= swept

    def project(self):
        """Measure distances in the affine span of the centers from here on, if that saves work.

        Centers of later sweeps and mergers stay close to this span, as they are means of almost
        the same rows. The part of a row that is orthogonal to the span adds the same to its squared
        distances from all centers in it: without it the nearest is the same. Not so for other
        divergences.
        """
        n, d = self.X.shape
        k, by_squares = self.sweep.k, isinstance(self.sweep, MergeSweep)
        if by_squares and COLUMNS_A_CLUSTER * k <= d and n * k * d > PROJECTED:
            self.projected = Projected(self)

    def _drop(self, remap, centers):
        """Record clusters that became empty as mergers with the nearest one, at no cost.

        ``centers`` are those before the sweep, ``remap`` the new number of each, -1 if it is empty.
        """
        kept, gone = np.flatnonzero(remap >= 0), np.flatnonzero(remap < 0)
        nearest = kept[cdist(centers[gone], centers[kept]).argmin(axis=1)]
        self.mergers.append((np.column_stack([nearest, gone]), np.zeros(len(gone))))

    def merge(self, count):
        """Merge the cheapest pair of clusters, ``count`` times."""
        self.mergers.append(self.sweep.merge(count))

    def down(self, step, sweeps):
        """Merge down to one cluster; yields the number of clusters at the start and at each halt.

        Between halts ``step(k)`` pairs of the k clusters are merged, and at most ``sweeps`` sweeps
        follow.
        """
        while True:
            yield self.sweep.k
            if self.sweep.k == 1:
                return
            self.merge(step(self.sweep.k))
            self.run_lloyd(sweeps)


def lloyd_sweeps(sweep, most, projected=None):
    """Sweep until no row moves, or a cluster becomes empty, ``most`` times at most.

    Returns the number of sweeps, and the centers before the last one if a cluster became empty in
    it, else None. With ``projected`` distances are those of the projected rows.
    """
    if projected is None and isinstance(sweep, MergeSweep):
        return sweep.run_lloyd(most)
    for swept in range(1, most + 1):
        centers = sweep.centers
        if projected is None:
            sweep.assign()
            moved = sweep.moved()
        else:
            moved = sweep.follow(projected.nearest(centers))
        if not moved:
            return swept, None
        sweep.move_centers()
        if sweep.k < len(centers):
            return swept, centers
    return most, None


class Projected:
    """Rows projected to the affine span of the centers of a descent, in an orthonormal basis."""

    def __init__(self, descent):
        X, weight, centers = descent.X, descent.weight, descent.sweep.centers
        self.origin = centers.mean(axis=0)
        self.basis = np.ascontiguousarray(np.linalg.qr((centers - self.origin).T)[0])
        rows = np.empty((len(X), len(centers)))
        for some in gen_batches(len(X), PROJECTED_ROWS):
            rows[some] = (X[some] - self.origin) @ self.basis
        self.sweep = RowsFrame(rows, weight, descent.frame.n_threads).sweep(len(centers))

    def nearest(self, centers):
        """Labels: the number of the nearest center of each row, in the projection."""
        self.sweep.set_centers((centers - self.origin) @ self.basis)
        self.sweep.assign()
        if self.sweep.needs_float64:
            self.sweep.use_float64()
        return self.sweep.labels


def draw(total, size, rng):
    """Numbers of ``size`` rows drawn with the probabilities whose cumulative sum is ``total``.

    Ascending and distinct, so there are fewer where a row is drawn twice.
    """
    rows = np.searchsorted(total, rng.uniform(size=size) * total[-1], side="right")
    return np.unique(np.minimum(rows, len(total) - 1))


def check_distinct(n_distinct, number, where=""):
    """Raise ValueError if ``number`` clusters are asked for, and fewer rows are distinct."""
    if number is not None and n_distinct < number:
        raise ValueError(
            f"n_clusters must be <= {n_distinct}, the number of distinct rows{where}, got "
            f"n_clusters={number}"
        )


def check_reached(k, number):
    """Raise ValueError if only ``k`` clusters could be made, as other rows differ by rounding."""
    check_distinct(k, number, " (up to rounding)")


class Metric:  # numpydoc ignore=PR01
    """Linear transform x -> (x - origin) matrix, after which the clusters are about spherical."""

    def __init__(self, matrix, origin):
        self.matrix, self.origin = matrix, origin

    def __call__(self, X):
        """Transformed rows; BLOCK_ROWS at a time, so that their differences need little memory."""
        out = np.empty((X.shape[0], self.matrix.shape[1]))
        largest = min(X.shape[0], BLOCK_ROWS), max(self.matrix.shape)
        with one_blas_thread(*largest), np.errstate(over="ignore", invalid="ignore"):
            for some in gen_batches(X.shape[0], BLOCK_ROWS):
                out[some] = (X[some] - self.origin) @ self.matrix
        if not np.isfinite(out).all():
            raise ValueError("X must be so near the rows of the fit that distances are finite")
        return out


def descent_by_squares(frame):
    """A MergeDescent of the rows of a frame by squared Euclidean distances."""
    return MergeDescent(frame, frame.sweep(8, bounded=True, kind=MergeSweep))
