"""When the sweeps of a start are over, for compiled starts."""

cdef struct Ending:
    double max_iter     # sweeps that count, at most
    double tol          # relative to the first objective; 0: the sweeps go on to a fixed point
    Py_ssize_t spare    # sweeps that open clusters and do not count, at most
    Py_ssize_t n_iter   # all sweeps
    Py_ssize_t counted  # those that count
    bint converged      # the last one changed nothing
    bint enough         # the last one lowered the objective by no more than tol


cdef inline void begin(Ending* e, double max_iter, double tol, Py_ssize_t spare) noexcept nogil:
    """Before the first sweep."""
    e.max_iter, e.tol, e.spare = max_iter, tol, spare
    e.n_iter = e.counted = 0
    e.converged = e.enough = False


cdef inline void note(
    Ending* e, double objective, double previous, double first, bint changed, bint opened, bint converged,
) noexcept nogil:
    """Record a sweep: the objective after it and after the one before, and that of the first sweep of the start."""
    cdef bint alone = e.n_iter == 0
    e.n_iter += 1
    # a sweep that opens clusters and lowers the objective does not count, but rounding may open clusters for ever
    e.counted += not (opened and (alone or objective < previous) and e.n_iter - e.counted <= e.spare)
    e.converged = converged
    if e.tol > 0 and not alone and changed:
        e.enough = previous - objective <= e.tol * (first if first > 0.0 else -first)


cdef inline bint goes_on(const Ending* e) noexcept nogil:
    """Whether there is to be another sweep."""
    return not e.converged and not e.enough and e.counted < e.max_iter
