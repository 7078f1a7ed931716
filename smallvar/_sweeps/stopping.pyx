"""The rule for when the sweeps of a start are over: one for all estimators, in Python and compiled.

They are over at a fixed point, once a sweep lowers the objective by no more than tol times the absolute value of the
first one, or after max_iter sweeps, of which those that open clusters and lower the objective do not count, as long as
they are no more than max_iter and the number of clusters.
"""

from smallvar._sweeps.tolerances cimport C_CANCELLATION

CANCELLATION = C_CANCELLATION  # the same number for Python


cdef class StoppingRule:
    """The rule for a start whose sweeps are called from Python: see Progress in _core/fit_loop.py."""

    cdef Stopping stopping

    def __init__(self, double max_iter, double tol, Py_ssize_t max_uncounted):
        begin_sweeps(&self.stopping, max_iter, tol, max_uncounted)

    def record_sweep(
        self, double objective, double previous, double first, bint changed, bint opened, bint converged,
        double n_clusters,
    ):
        """Record a sweep: the objective after it and after the one before, and that of the first sweep."""
        record_sweep(&self.stopping, objective, previous, first, changed, opened, converged, n_clusters)

    @property
    def should_continue(self):
        """Whether there is to be another sweep."""
        return should_continue(&self.stopping)

    @property
    def ended(self):
        """Whether the sweeps came to an end before ``max_iter``."""
        return bool(self.stopping.converged or self.stopping.within_tol)

    @property
    def n_iter(self):
        """The number of sweeps."""
        return self.stopping.n_iter

    @property
    def counted(self):
        """The sweeps that count toward ``max_iter``."""
        return self.stopping.counted

    @property
    def converged(self):
        """Whether the last sweep changed nothing."""
        return bool(self.stopping.converged)

    @converged.setter
    def converged(self, bint value):
        self.stopping.converged = value

    @property
    def within_tol(self):
        """Whether the last sweep lowered the objective by no more than ``tol``."""
        return bool(self.stopping.within_tol)

    @within_tol.setter
    def within_tol(self, bint value):
        self.stopping.within_tol = value
