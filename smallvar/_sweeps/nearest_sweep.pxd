"""The sweep over nearest centers as a class, for the sweeps that build on it. See nearest_sweep.pyx."""

from smallvar._sweeps.state cimport State


cdef class NearestSweep:
    cdef State state
    cdef readonly int n_threads
    cdef Py_ssize_t min_fast_centers    # centers from which some may be fast without one of them being new
    cdef Py_ssize_t capacity            # centers there is memory for
    cdef Py_ssize_t n_chunks
    cdef object frame                   # as it was given
    cdef object label_array             # the caller's
    cdef list arrays                    # keep the memory of the points alive,
    cdef dict center_arrays             # that of the centers,
    cdef list packed_arrays             # and of what is computed from them
    cdef Py_ssize_t work                # elements read since the last check for signals

    cdef keep(self, array)
    cdef allocate_results(self)
    cdef allocate_scratch(self)
    cpdef reserve(self, Py_ssize_t capacity, Py_ssize_t spare=*, int parts=*)
    cdef reserve_packed(self)
    cdef void pack(self, Py_ssize_t first) noexcept nogil
    # chunks between two checks for signals: of a sweep that may compute all distances, of a loop that reads rows once
    cdef Py_ssize_t chunks_at_once(self) noexcept nogil
    cdef Py_ssize_t chunks_of_rows(self) noexcept nogil
    cdef int check_signals(self, Py_ssize_t rows) except -1 nogil
    cdef int threads_for(self, Py_ssize_t points) noexcept nogil
    cdef void assign_chunks(self, Py_ssize_t first, Py_ssize_t last) noexcept nogil
