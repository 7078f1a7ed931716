"""The loop of a fit: when a start is over, and which of several starts is the best."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from smallvar._core.progress import ProgressEvent
from smallvar._sweeps.stopping import StoppingRule

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


@dataclass(frozen=True)
class LoopSettings:
    """When the sweeps of a start end at the latest, and what is called after each of them."""

    max_iter: int
    tol: float = 0.0
    callback: Callable[[ProgressEvent], Any] | None = None


class Progress(StoppingRule):
    """The objective after every sweep of a start, and whether there is to be another sweep.

    A start is over when a sweep changes nothing (``converged``); when one lowers the objective by
    at most ``tol`` times the absolute value that it had after the first (``within_tol``, for
    ``tol`` > 0); or after ``max_iter`` sweeps. A sweep that opens clusters and lowers the objective
    does not count among these. At most ``n`` sweeps, one for each row, go uncounted: a fit whose
    clusters open by rounding would never end otherwise.

    ``path`` are the objectives. What is done after the last sweep (nearest centers once more, sums
    anew) may append to it or correct its end; ``n_iter`` counts the sweeps alone. ``settings`` is a
    LoopSettings.
    """

    def __init__(self, settings, n):
        super().__init__(settings.max_iter, settings.tol, n)
        self.max_iter, self.callback = settings.max_iter, settings.callback
        self.path, self.begin = [], time.perf_counter()

    @property
    def objective(self):
        """The last one."""
        return self.path[-1]

    def correct(self, objective):
        """Replace the last objective, by one measured anew."""
        self.path[-1] = objective

    def record(self, objective, line, *, changed, opened=0, converged=None, n_clusters=None):
        """Record a sweep and its objective, and call the callback.

        ``changed``: the sweep changed something; ``opened``: it opened clusters; ``converged``: it
        is the last one, None: if it changed nothing. ``line`` says what it did, with a place for
        the objective, ``{}``.
        """
        previous = self.path[-1] if self.path else objective
        self.path.append(objective)
        converged = not changed if converged is None else converged
        self.record_sweep(objective, previous, self.path[0], changed, opened, converged)
        if self.callback is not None:
            words = line.format(f"objective {objective:.8g}")
            message = f"sweep {self.n_iter}: {words}{self.pace()}"
            self.callback(ProgressEvent("sweep", self.n_iter, message, n_clusters, objective))

    def resume(self, path):
        """Go on after an end, with these objectives of the sweeps so far."""
        self.path, self.converged, self.within_tol = path, False, False

    def conclude(self):
        """Count the last sweep as one that changed nothing."""
        self.converged = True

    def pace(self):
        """How long a sweep takes, and all that there may be, in a fit that takes long."""
        elapsed = time.perf_counter() - self.begin
        if elapsed < PATIENCE:
            return ""
        pace = elapsed / self.n_iter
        left = pace * (self.max_iter - self.counted) if self.should_continue else 0.0
        return f" ({span(pace)} a sweep, at most {span(left)} left)"


def best_of(starts, *, total=None, callback=None, rounding=None):
    """The start with the lowest objective; at a tie, the earlier one.

    Objectives tie that differ by no more than ``rounding``, by default TIE times the least.
    ``starts`` yields them when they are over, each with its ``objective`` and its number of
    clusters ``k``; ``total`` is how many there will be, if that is known. ``callback`` is called
    with an event for each, unless there is one alone.
    """
    best, begin = None, time.perf_counter()
    for number, start in enumerate(starts, 1):
        if callback is not None and total != 1:
            line = f"start {number}: {start.k} clusters, objective {start.objective:.8g}"
            elapsed = time.perf_counter() - begin
            if total is not None and elapsed >= PATIENCE:
                line += f" (about {span(elapsed / number * (total - number))} left)"
            callback(ProgressEvent("start", number, line, start.k, start.objective))
        if best is not None:
            tie = TIE * abs(best.objective) if rounding is None else rounding
            if not start.objective < best.objective - tie:
                continue
        best = start
    return best
