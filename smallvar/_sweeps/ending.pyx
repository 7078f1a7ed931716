"""When the sweeps of a start are over: the rule of every estimator, in Python and compiled."""


cdef class EndRule:
    """The rule for a start whose sweeps are called from Python: see Progress in _core/fit_loop.py."""

    cdef Ending e

    def __init__(self, double max_iter, double tol, Py_ssize_t spare):
        begin(&self.e, max_iter, tol, spare)

    def note(self, double objective, double previous, double first, bint changed, bint opened, bint converged):
        """Record a sweep: the objective after it and after the one before, and that of the first sweep."""
        note(&self.e, objective, previous, first, changed, opened, converged)

    @property
    def goes_on(self):
        """Whether there is to be another sweep."""
        return goes_on(&self.e)

    @property
    def ended(self):
        """Whether the sweeps came to an end before ``max_iter``."""
        return bool(self.e.converged or self.e.enough)

    @property
    def n_iter(self):
        """The number of sweeps."""
        return self.e.n_iter

    @property
    def counted(self):
        """The sweeps that count toward ``max_iter``."""
        return self.e.counted

    @property
    def converged(self):
        """Whether the last sweep changed nothing."""
        return bool(self.e.converged)

    @converged.setter
    def converged(self, bint value):
        self.e.converged = value

    @property
    def enough(self):
        """Whether the last sweep lowered the objective by no more than ``tol``."""
        return bool(self.e.enough)

    @enough.setter
    def enough(self, bint value):
        self.e.enough = value
