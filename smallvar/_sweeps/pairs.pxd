"""Mergers of the cheapest pair of clusters. See pairs.pyx."""


cdef class Pairs:
    cdef Py_ssize_t k               # clusters, those merged into another one included
    cdef Py_ssize_t per_pair        # about how many multiply-adds one cost takes
    cdef Py_ssize_t work            # since the last check for signals
    cdef int n_threads
    cdef double[::1] least          # k: cost of merging with the partner, or a lower bound of it
    cdef Py_ssize_t[::1] partner    # k: its own number if there is none
    cdef Py_ssize_t[::1] united     # k: which merger made it, counted from 1; 0: none
    cdef unsigned char[::1] stale   # k: whether ``least`` is only a bound
    cdef unsigned char[::1] gone    # k: whether it was merged into another one

    cdef begin(self, Py_ssize_t k, Py_ssize_t per_pair, int n_threads)
    cdef double cost(self, Py_ssize_t a, Py_ssize_t b, double most) noexcept nogil
    cdef void unite(self, Py_ssize_t a, Py_ssize_t b) noexcept nogil
    cdef const double* bound_costs(self, Py_ssize_t a, Py_ssize_t first, int thread) noexcept nogil
    cdef void consider(self, Py_ssize_t a, Py_ssize_t b) noexcept nogil
    cdef void find_partner(self, Py_ssize_t a, const double* bounds) noexcept nogil
    cdef void remove(self, Py_ssize_t b) noexcept nogil
    cdef Py_ssize_t first_of_cheapest(self) except -1 nogil
