"""The rule for when the sweeps of a start are over, for compiled starts. See stopping.pyx."""

cdef struct Stopping:
    # the limits
    double max_iter             # most sweeps that count
    double tol                  # least gain of a sweep, relative to the first objective; 0: any
    Py_ssize_t max_uncounted    # most sweeps that do not count, because they open clusters, however many there are
    # the sweeps so far
    Py_ssize_t n_iter           # all sweeps
    Py_ssize_t counted          # those that count
    bint converged              # the last one changed nothing
    bint within_tol             # the last one lowered the objective by no more than tol


cdef inline void begin_sweeps(
    Stopping* stopping, double max_iter, double tol, Py_ssize_t max_uncounted
) noexcept nogil:
    """Set the limits; there are no sweeps so far."""
    stopping.max_iter, stopping.tol, stopping.max_uncounted = max_iter, tol, max_uncounted
    stopping.n_iter = stopping.counted = 0
    stopping.converged = stopping.within_tol = False


cdef inline void record_sweep(
    Stopping* stopping, double objective, double previous, double first, bint changed, bint opened, bint converged,
    double n_clusters,
) noexcept nogil:
    """Record a sweep: the objective after it and after the one before, and that of the first sweep of the start.

    ``n_clusters``: how many there are, infinite if that is not known.
    """
    cdef bint is_first = stopping.n_iter == 0, falls = is_first or objective < previous
    cdef Py_ssize_t uncounted = stopping.n_iter - stopping.counted
    stopping.n_iter += 1
    # Many sweeps may be needed to open all clusters, so these do not count. But clusters may come and go for ever: by
    # rounding, or since the rows change meanwhile. As many as there are have been opened; max_iter more are let off.
    if not (opened and falls and uncounted < min(<double> stopping.max_uncounted, stopping.max_iter + n_clusters)):
        stopping.counted += 1
    stopping.converged = converged
    if stopping.tol > 0 and not is_first and changed:
        stopping.within_tol = previous - objective <= stopping.tol * (first if first > 0.0 else -first)


cdef inline bint should_continue(const Stopping* stopping) noexcept nogil:
    """Whether there is to be another sweep."""
    return not stopping.converged and not stopping.within_tol and stopping.counted < stopping.max_iter
