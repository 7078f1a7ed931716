"""The rows of some data, whatever their strides, type, order and weights; and the check for signals."""

from cpython.exc cimport PyErr_CheckSignals
from libc.stdint cimport int64_t

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
    # sparse rows (CSR, columns ascending): x are the entries, of which row m has begin[m]..begin[m + 1] - 1; of these
    # begins one is not NULL, or both are where the rows are dense
    const int* column           # of each entry
    const int* begin_int
    const int64_t* begin_long


cdef Rows rows_of(X, const double[::1] weight, const Py_ssize_t[::1] order) except *
cdef int refuse_rows() except -1 nogil


cdef inline bint is_sparse(const Rows* r) noexcept nogil:
    return r.column != NULL


cdef inline Py_ssize_t entries_of(const Rows* r, Py_ssize_t i, Py_ssize_t* stop) noexcept nogil:
    """Number of the first entry of point i of sparse rows, and of the first one after it."""
    cdef Py_ssize_t row = i if r.order == NULL else r.order[i]
    if r.begin_int != NULL:
        stop[0] = r.begin_int[row + 1]
        return r.begin_int[row]
    stop[0] = r.begin_long[row + 1]
    return r.begin_long[row]


cdef inline double entry(const Rows* r, Py_ssize_t m) noexcept nogil:
    """Value of entry m of sparse rows."""
    return (<const float*> r.x)[m] if r.single else (<const double*> r.x)[m]


cdef inline Py_ssize_t start_of(const Rows* r, Py_ssize_t i) noexcept nogil:
    """Number of the first element of point i."""
    return (i if r.order == NULL else r.order[i]) * r.row


cdef inline const real_x* point(const real_x* x, const Rows* r, Py_ssize_t i) noexcept nogil:
    """First element of point i of data whose type is known."""
    return x + start_of(r, i)


cdef inline double weight_of(const Rows* r, Py_ssize_t i) noexcept nogil:
    """The weight of the point visited as number i: unlike the rows, weights lie in the order of visits already."""
    return 1.0 if r.weight == NULL else r.weight[i]


cdef inline double value_of(const Rows* r, Py_ssize_t i, Py_ssize_t j) noexcept nogil:
    if r.single:
        return point(<const float*> r.x, r, i)[j * r.col]
    return point(<const double*> r.x, r, i)[j * r.col]


cdef inline void read_row(const Rows* r, Py_ssize_t i, double* out, Py_ssize_t step) noexcept nogil:
    """The values of point i, ``step`` apart."""
    cdef const float* single
    cdef const double* double_
    cdef Py_ssize_t j, m, stop
    if is_sparse(r):
        for j in range(r.d):
            out[j * step] = 0.0
        m = entries_of(r, i, &stop)
        while m < stop:
            out[r.column[m] * step] = entry(r, m)
            m += 1
    elif r.single:
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
