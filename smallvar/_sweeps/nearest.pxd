"""The nearest center of every point, for the sweeps that build on it."""

from smallvar._sweeps.state cimport State


cdef class Engine:
    cdef State s                    # all that the sweeps work on
    cdef readonly int n_threads
    cdef Py_ssize_t restless_from   # centers from which some may be restless without one of them being new
    cdef Py_ssize_t capacity        # centers there is memory for
    cdef Py_ssize_t n_chunks
    cdef list arrays            # keeps every buffer alive
    cdef object center_arrays   # raw centers, tables, what scores are computed from, the restless
    cdef Py_ssize_t work            # elements read since the last check for signals

    cdef keep(self, array)
    cpdef reserve(self, Py_ssize_t capacity)
    cdef tuple reserve_scores(self, Py_ssize_t capacity)
    cdef void place(self) noexcept nogil
    cdef void place_last(self) noexcept nogil
    cdef Py_ssize_t chunks_at_once(self) noexcept nogil
    cdef int check_signals(self, Py_ssize_t rows) except -1 nogil
    cdef int threads_for(self, Py_ssize_t points) noexcept nogil
    cdef void assign_chunks(self, Py_ssize_t first, Py_ssize_t last) noexcept nogil
    cdef void attract(
        self, Py_ssize_t start, Py_ssize_t stop, Py_ssize_t k0, const Py_ssize_t* creator
    ) noexcept nogil
    cdef void lower_table(self, Py_ssize_t k0, Py_ssize_t k1, float* table) noexcept nogil
