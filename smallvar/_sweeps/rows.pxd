"""The rows of some data, whatever their strides, type, order and weights; and the check for signals."""

from cpython.exc cimport PyErr_CheckSignals

ctypedef fused real_x:  # element type of the data
    float
    double


cdef struct Rows:
    const void* x               # n x d, float32 or float64, of any strides
    bint single                 # whether they are float32
    Py_ssize_t row              # elements from one row to the next
    Py_ssize_t col              # elements from one column to the next
    Py_ssize_t n                # rows
    Py_ssize_t d                # columns
    const Py_ssize_t* order     # point i, the i-th one visited, is row order[i]; NULL: as given
    const double* weight        # of point i, or NULL


cdef Rows rows_of(X, const double[::1] weight, const Py_ssize_t[::1] order) except *


cdef inline Py_ssize_t start_of(const Rows* r, Py_ssize_t i) noexcept nogil:
    """Number of the first element of point i."""
    return (i if r.order == NULL else r.order[i]) * r.row


cdef inline const real_x* point(const real_x* x, const Rows* r, Py_ssize_t i) noexcept nogil:
    """First element of point i of data whose type is known."""
    return x + start_of(r, i)


cdef inline double weight_of(const Rows* r, Py_ssize_t i) noexcept nogil:
    return 1.0 if r.weight == NULL else r.weight[i]


cdef inline double value_of(const Rows* r, Py_ssize_t i, Py_ssize_t j) noexcept nogil:
    if r.single:
        return point(<const float*> r.x, r, i)[j * r.col]
    return point(<const double*> r.x, r, i)[j * r.col]


cdef inline void read_row(const Rows* r, Py_ssize_t i, double* out, Py_ssize_t step) noexcept nogil:
    """The values of point i, ``step`` apart."""
    cdef const float* single
    cdef const double* double_
    cdef Py_ssize_t j
    if r.single:
        single = point(<const float*> r.x, r, i)
        for j in range(r.d):
            out[j * step] = single[j * r.col]
    else:
        double_ = point(<const double*> r.x, r, i)
        for j in range(r.d):
            out[j * step] = double_[j * r.col]


cdef inline const double* row_at(const Rows* r, Py_ssize_t i, double* buffer) noexcept nogil:
    """The values of point i where they lie, or else in the buffer."""
    if r.col == 1 and not r.single:
        return point(<const double*> r.x, r, i)
    read_row(r, i, buffer, 1)
    return buffer


cdef inline int poll_signals(Py_ssize_t* done, Py_ssize_t work, Py_ssize_t most) except -1 nogil:
    """Raise KeyboardInterrupt if Ctrl-C was pressed; that is looked for whenever more than ``most`` work was done.

    INOUT done : the work since it was last looked for, to which ``work`` is added
    """
    done[0] += work
    if done[0] > most:
        done[0] = 0
        with gil:
            PyErr_CheckSignals()
    return 0
