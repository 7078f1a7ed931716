"""How every fit starts, goes on and ends: the best of several starts, and when a start is over."""

import time
from typing import Protocol

import numpy as np

TIE = 1e-12  # of an objective: it is not known better than that
# of the error of all rows about one point: a smaller difference of sums is mostly rounding, so the
# rows are added up one by one
CANCELLATION = 1e-6
PATIENCE = 10.0  # seconds after which the lines printed say how long it may still take
NO_CAP = 2**31 - 1  # labels are int32


def span(seconds):
    """A length of time in words."""
    if seconds < 10:
        return f"{seconds:.2g} s"
    return f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.0f} min"


class Progress:
    """The objective after every sweep of a start, and whether there is to be another sweep.

    A start is over when a sweep changes nothing (``converged``); when one lowers the objective by
    at most ``tol`` times the absolute value that it had after the first (``enough``, for ``tol`` >
    0); or after ``max_iter`` sweeps. A sweep that opens clusters and lowers the objective does not
    count among these. At most ``n`` sweeps, one for each row, go uncounted: a fit whose clusters
    open by rounding would never end otherwise.

    ``path`` are the objectives. What is done after the last sweep (nearest centers once more, sums
    anew) may append to it or correct its end; ``n_iter`` counts the sweeps alone.
    """

    def __init__(self, max_iter, tol, n, verbose):
        self.max_iter, self.tol, self.n, self.verbose = max_iter, float(tol), n, verbose
        self.path, self.n_iter, self.counted = [], 0, 0
        self.converged = self.enough = False
        self.begin = time.perf_counter()

    @property
    def goes_on(self):
        """Whether there is to be another sweep."""
        return not self.ended and self.counted < self.max_iter

    @property
    def ended(self):
        """Whether it came to an end before ``max_iter``."""
        return self.converged or self.enough

    @property
    def objective(self):
        """The last one."""
        return self.path[-1]

    @objective.setter
    def objective(self, value):
        self.path[-1] = value

    def record(self, objective, line, *, changed, opened=0, converged=None):
        """Note a sweep; ``changed``: something did; ``converged``: None for that nothing did.

        ``line`` are the words to print, with a place for the objective.
        """
        path = self.path
        path.append(objective)
        self.n_iter += 1
        fell = len(path) < 2 or path[-1] < path[-2]
        free = opened and fell and self.n_iter - self.counted <= self.n
        self.counted += not free
        self.converged = not changed if converged is None else converged
        if self.tol > 0 and len(path) > 1 and changed:
            self.enough = path[-2] - path[-1] <= self.tol * abs(path[0])
        if self.verbose:
            print(f"sweep {self.n_iter}: {line.format(f'objective {objective:.8g}')}{self.pace()}")

    def pace(self):
        """How long a sweep takes, and all that there may be, in a fit that takes long."""
        elapsed = time.perf_counter() - self.begin
        if elapsed < PATIENCE:
            return ""
        pace = elapsed / self.n_iter
        left = pace * (self.max_iter - self.counted) if self.goes_on else 0.0
        return f" ({span(pace)} a sweep, at most {span(left)} left)"


def best_of(starts, *, total=None, verbose=0, rounding=None):
    """The start with the lowest objective; at a tie, the earlier one.

    Objectives tie that differ by no more than ``rounding``, by default TIE times the least.
    ``starts`` yields them when they are over, each with its ``objective`` and, to be printed, its
    number of clusters ``k``; ``total`` is how many there will be, if that is known.
    """
    best, begin = None, time.perf_counter()
    for number, start in enumerate(starts, 1):
        if verbose and total != 1:
            line = f"start {number}: {start.k} clusters, objective {start.objective:.8g}"
            elapsed = time.perf_counter() - begin
            if total is not None and elapsed >= PATIENCE:
                line += f" (about {span(elapsed / number * (total - number))} left)"
            print(line)
        if best is not None:
            tie = TIE * abs(best.objective) if rounding is None else rounding
            if not start.objective < best.objective - tie:
                continue
        best = start
    return best


class Sweep(Protocol):
    """What a Start drives: clusters of rows, and passes over the rows in the order of visit.

    ``DPSweep`` is one for squared distances (``CollapsedSweep`` where means move with each row),
    ``DivergenceSweep`` one for divergences. ``lam`` is
    the penalty, ``cap`` the largest number of clusters.
    """

    k: int  # clusters
    centers: np.ndarray  # of shape (k, n_features)
    labels: np.ndarray  # cluster of each row, in the order of visit
    total: float  # weighted error of all rows from one place: the scale of rounding in sums
    crowded: bool  # whether scores in float32 leave much to decide again; then it has use_double()

    def start(self, centers):
        """Begin at these centers; all labels are 0."""

    def create(self, lam, cap):
        """KJ12, Algorithm 1: each row joins its nearest center, or opens a cluster at once."""

    def seek_farthest(self, lam, seek):
        """Say whether the next ``assign`` has to find the row farthest beyond lam."""

    def assign(self):
        """Each row joins its nearest center."""

    def open_farthest(self):
        """That row, if there is one, opens a cluster: delayed creation."""

    def collapse(self, lam, cap):
        """MB13, eq. 8-9: rows move one by one, means too; returns rows moved, clusters opened."""

    def moved(self):
        """Rows with another label than before the sweep."""

    def move_centers(self):
        """Means of the members, empty clusters dropped; returns the error, by sums."""

    def drop_empty(self):
        """Forget clusters without members; whether there were any. Other centers stay."""

    def squared_error(self):
        """Weighted error from the own centers, row by row."""


class Start:
    """One start of DP-means: sweeps until nothing changes, or until tol or max_iter ends them.

    ``order`` are the rows in the order of visit, None for as given; ``given``: whether the centers
    to begin at are the user's, so that they may not be means; ``share``: what counts of an error of
    the sweep, 1/2 for directions, as 1 - cos is half the squared distance.
    """

    def __init__(self, sweep, order, centers, lam, algorithm, given, max_clusters, share=1.0):
        self.sweep, self.order, self.lam, self.algorithm = sweep, order, lam, algorithm
        self.given, self.cap = given, NO_CAP if max_clusters is None else max_clusters
        self.share, self.reach = share, lam / share
        sweep.start(centers)

    @property
    def k(self):
        """Number of clusters."""
        return self.sweep.k

    @property
    def objective(self):
        """The objective at the end."""
        return self.progress.objective

    def run(self, max_iter, tol, verbose):
        """Sweep to the end, then make labels, centers and objective agree."""
        sweep = self.sweep
        progress = self.progress = Progress(max_iter, tol, len(sweep.labels), verbose)
        if self.algorithm == "collapsed":
            if self.given:
                sweep.assign()
            sweep.move_centers()
        while progress.goes_on:
            moved, opened = self.step()
            # a first sweep that keeps all labels: given centers have not moved to their means yet
            first = progress.n_iter == 0
            converged = not (moved or opened) and not (first and self.given)
            known = converged and not first
            progress.record(
                progress.objective if known else self.measured(sweep.move_centers()),
                f"{sweep.k} clusters, {{}}, {moved} points moved, {opened} clusters opened",
                changed=not converged,
                opened=opened,
            )
        if not progress.converged and self.algorithm != "collapsed":
            self.finish()
        self.inertia = self.share * sweep.squared_error()
        progress.objective = self.inertia + self.lam * sweep.k
        return self

    def step(self):
        """One sweep; returns the points moved and the clusters opened."""
        sweep, before = self.sweep, self.sweep.k
        if self.algorithm == "collapsed":
            return sweep.collapse(self.lam, self.cap)
        if self.algorithm == "serial":
            sweep.create(self.reach, self.cap)
        else:
            room = before < self.cap
            sweep.seek_farthest(self.reach, room)
            sweep.assign()
            if room:
                sweep.open_farthest()
        if sweep.crowded:
            sweep.use_double()
        return sweep.moved(), sweep.k - before

    def measured(self, error):
        """The objective after a sweep, from the sums where that is accurate enough."""
        if not error > CANCELLATION * self.sweep.total:
            error = self.sweep.squared_error()
        return self.share * error + self.lam * self.sweep.k

    def finish(self):
        """Labels of the nearest centers where the sweeps did not end at a fixed point."""
        sweep = self.sweep
        sweep.seek_farthest(self.reach, False)
        sweep.assign()
        if sweep.drop_empty():  # rows of weight zero may have been in such a cluster
            sweep.assign()
        self.progress.path.append(np.nan)  # run() sets it
