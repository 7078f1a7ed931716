"""The threads of all sweeps: a small pool of smallvar's own, which does not suffer from busy processors.

OpenMP is asked only how many threads it would use, so that OMP_NUM_THREADS and threadpoolctl are respected.
"""

import os

cdef extern from *:
    """
    #ifdef _OPENMP
    #include <omp.h>
    #define SMALLVAR_OPENMP _OPENMP
    #else
    #define SMALLVAR_OPENMP 0
    static int omp_get_max_threads(void) { return 0; }
    #endif
    """
    int SMALLVAR_OPENMP
    int omp_get_max_threads()

cdef extern from "_pool.h" nogil:
    enum:
        POOL_ROOM
    void pool_begin(Py_ssize_t)
    Py_ssize_t pool_add(Py_ssize_t*, Py_ssize_t)
    Py_ssize_t pool_read(Py_ssize_t*)
    void pool_run(Body, void*, Py_ssize_t, Py_ssize_t, int)


MOST_THREADS = POOL_ROOM     # of one loop


def openmp_version():
    """Date of the OpenMP standard this build asks for the number of threads (201511 is 4.5), 0 without OpenMP."""
    return SMALLVAR_OPENMP


def max_threads():
    """Threads OpenMP would use now: OMP_NUM_THREADS, affinity and surrounding limits respected; 0 without OpenMP."""
    return omp_get_max_threads()


cdef Py_ssize_t item_now(Py_ssize_t* place) noexcept nogil:
    return pool_read(place)


cdef Py_ssize_t next_item(Py_ssize_t* place) noexcept nogil:
    """The number at this place, which is then raised by one; safe where several threads call it at the same time."""
    return pool_add(place, 1)


cdef void run(Body body, void* context, Py_ssize_t first, Py_ssize_t last, int threads) noexcept nogil:
    """body(context, item, slot) for all items first..last-1, in any order, several at the same time.

    Each thread has its own slot, 0..threads-1, for scratch memory. Items write only what no other item reads or
    writes, and an item may call run itself.
    """
    pool_run(body, context, first, last, threads)


pool_begin(os.cpu_count() or 1)
