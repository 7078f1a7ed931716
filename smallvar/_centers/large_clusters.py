"""Starts of DP-means that end with clusters of a least weight each.

The merge path says which clusters are too small (see ``smallvar/_selection/least_size.py``). Rows
nearest to one of these are set aside: they take no part in the sweeps, and at the end they join the
nearest cluster. A cluster that falls below the size during the sweeps is left out, and sweeps go on
from the others.
"""

import numpy as np

from smallvar._centers.starts import Start
from smallvar._core.frame import nearest_sweep
from smallvar._selection.least_size import no_such_number, small


def set_aside(path, centers, rows, weight, n_threads):
    """The mask of the rows that are nearest to a cluster that is too small; None if none is."""
    beside = path.beside(len(centers))
    if beside is None:
        return None
    both = np.vstack([centers, beside])
    aside = nearest_sweep(rows, None, both, n_threads).labels >= len(centers)
    left = (~aside).sum() if weight is None else weight @ ~aside
    return aside if aside.any() and left > 0.0 else None


class LargeClusters:
    """The least weight of a cluster, and the rows set aside, of one start.

    ``aside`` is their mask, None if there are none; ``asked`` is what the user gave as the size.
    """

    def __init__(self, least, asked, rows, weight, aside, n_threads):
        self.least, self.asked, self.rows, self.aside = least, asked, rows, aside
        self.all_weight, self.n_threads = weight, n_threads

    @property
    def weight(self):
        """The weights of the rows, zero for those set aside."""
        if self.aside is None:
            return self.all_weight
        return ~self.aside * (1.0 if self.all_weight is None else self.all_weight)


class LargeStart(Start):
    """A start whose clusters have at least the weight that a LargeClusters, ``large``, asks for."""

    def __init__(self, large, *args, **options):
        super().__init__(*args, **options)
        self.large = large

    def run(self, loop):
        """Sweep to the end; again without the smallest cluster, while that is too small."""
        large, own = self.large, self._in_order(self.large.weight)
        while True:
            super().run(loop)
            sizes = np.bincount(self.sweep.labels, own, minlength=self.k)
            if self.k == 1 or not small(sizes, large.least).any():
                break
            if self.exact:
                raise no_such_number(self.exact, large.asked)
            centers = np.delete(self.sweep.centers, int(sizes.argmin()), axis=0)
            self.sweep.start(np.ascontiguousarray(centers))
            self.cap, self.are_means = len(centers), False
        self.join()
        return self

    def _in_order(self, values):
        """Values of rows in the order of visit."""
        return values if values is None or self.order is None else values[self.order]

    def join(self):
        """Rows that were set aside join the nearest clusters, and count in all objectives."""
        large, aside = self.large, self._in_order(self.large.aside)
        if aside is None:
            return
        weight = self._in_order(large.all_weight)
        rows = large.rows if self.order is None else large.rows[self.order]
        near = nearest_sweep(rows[aside], None, self.sweep.centers, large.n_threads)
        self.sweep.labels[aside] = near.labels
        squares = near.assigned_distances()
        self.add_error(float(squares.sum() if weight is None else weight[aside] @ squares))

    def add_error(self, error):
        """Add the error of rows set aside to the inertia and all objectives."""
        error *= self.share
        self.inertia += error
        self.progress.path[:] = [objective + error for objective in self.progress.path]
