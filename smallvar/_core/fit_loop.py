"""The loop of a fit: when a start is over, and which of several starts is the best.

``LoopSettings`` are the bounds of the loop, ``Progress`` records the sweeps of a start and says
whether another one follows, ``best_of`` chooses among starts.
"""

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from smallvar._core.progress import ProgressEvent
from smallvar._sweeps.stopping import StoppingRule

OBJECTIVE_TIE = 1e-12  # relative accuracy of an objective: closer ones are equal
PACE_PATIENCE = 10.0  # seconds after which the lines printed estimate the time left
NO_CAP = 2**31 - 1  # labels are int32


def span(seconds):
    """A length of time in words."""
    if seconds < 10:
        return f"{seconds:.2g} s"
    return f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.0f} min"


@dataclass(frozen=True)
class LoopSettings:
    """The bounds of the sweeps of a start, and the callback after each sweep."""

    max_iter: int
    tol: float = 0.0
    callback: Callable[[ProgressEvent], Any] | None = None


class Progress(StoppingRule):
    """The objective after every sweep of a start, and whether another sweep follows.

    A start is over when a sweep changes nothing (``converged``); when a sweep lowers the objective
    by at most ``tol`` times its absolute value after the first (``within_tol``, for ``tol`` > 0);
    or after ``max_iter`` sweeps. A sweep that opens clusters and lowers the objective does not
    count among these. Not counted are at most ``n`` sweeps, one for each row, and at most
    ``max_iter`` more than there are clusters: otherwise a fit whose clusters come and go, by
    rounding or since the rows change meanwhile, might never end.

    ``path`` has the objectives. Steps after the last sweep (nearest centers once more, sums
    computed anew) may append to it or correct its end; ``n_iter`` counts sweeps only. ``settings``
    is a LoopSettings.
    """

    def __init__(self, settings, n):
        super().__init__(settings.max_iter, settings.tol, n)
        self.max_iter, self.callback = settings.max_iter, settings.callback
        self.path, self.begin = [], time.perf_counter()

    @property
    def objective(self):
        """The objective after the last sweep."""
        return self.path[-1]

    def correct(self, objective):
        """Replace the last objective by one computed anew."""
        self.path[-1] = objective

    def record(
        self,
        objective,
        line,
        *,
        changed,
        opened=0,
        converged=None,
        n_clusters=None,
        n_open=None,
    ):
        """Record a sweep and its objective, and call the callback.

        ``changed``: the sweep changed something; ``opened``: it opened clusters; ``converged``: it
        is the last sweep (None: it is if it changed nothing). ``line`` describes the sweep, with
        ``{}`` in place of the objective. ``n_open``: the clusters there are of all kinds that
        ``opened`` counts (None: ``n_clusters``).
        """
        previous = self.path[-1] if self.path else objective
        self.path.append(objective)
        converged = not changed if converged is None else converged
        n_open = n_clusters if n_open is None else n_open
        n_open = math.inf if n_open is None else n_open
        first = self.path[0]
        self.record_sweep(objective, previous, first, changed, opened, converged, n_open)
        if self.callback is not None:
            words = line.format(f"objective {objective:.8g}")
            message = f"sweep {self.n_iter}: {words}{self.pace()}"
            self.callback(ProgressEvent("sweep", self.n_iter, message, n_clusters, objective))

    def resume(self, path):
        """Continue after an end; ``path`` are the objectives of the sweeps so far."""
        self.path, self.converged, self.within_tol = path, False, False

    def conclude(self):
        """Mark the last sweep as one that changed nothing."""
        self.converged = True

    def pace(self):
        """Text: seconds a sweep takes, and at most left; empty before PACE_PATIENCE is over."""
        elapsed = time.perf_counter() - self.begin
        if elapsed < PACE_PATIENCE:
            return ""
        pace = elapsed / self.n_iter
        left = pace * (self.max_iter - self.counted) if self.should_continue else 0.0
        return f" ({span(pace)} a sweep, at most {span(left)} left)"


class RecordedStart:
    """A start whose sweeps are recorded in ``progress``, for ``best_of``."""

    @property
    def objective(self):
        """The objective at the end."""
        return self.progress.objective


def best_of(starts, *, total=None, callback=None, rounding=None):
    """The start with the lowest objective; at a tie, the earlier one.

    Objectives that differ by no more than ``rounding`` (by default OBJECTIVE_TIE times the least)
    tie. ``starts`` yields starts that are over, with attributes ``objective`` and ``k``, the number
    of clusters; ``total`` is their number, if known. ``callback`` is called with an event for each,
    unless there is only one.
    """
    best, begin = None, time.perf_counter()
    for number, start in enumerate(starts, 1):
        if callback is not None and total != 1:
            line = f"start {number}: {start.k} clusters, objective {start.objective:.8g}"
            elapsed = time.perf_counter() - begin
            if total is not None and elapsed >= PACE_PATIENCE:
                line += f" (about {span(elapsed / number * (total - number))} left)"
            callback(ProgressEvent("start", number, line, start.k, start.objective))
        if best is not None:
            # a later start must be better by more than rounding
            tie = OBJECTIVE_TIE * abs(best.objective) if rounding is None else rounding
            if not start.objective < best.objective - (tie if math.isfinite(tie) else 0.0):
                continue
        best = start
    return best
