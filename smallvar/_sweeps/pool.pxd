"""Loops whose items are shared out to threads."""

cdef enum:
    PAYS = 1 << 20  # multiply-adds from which a loop is shared out: they take 30 to 300 us, waking a thread 5 to 50

ctypedef void (*Body)(void* context, Py_ssize_t item, int slot) noexcept nogil

cdef Py_ssize_t item_now(Py_ssize_t* place) noexcept nogil
cdef Py_ssize_t next_item(Py_ssize_t* place) noexcept nogil
cdef void run(Body body, void* context, Py_ssize_t first, Py_ssize_t last, int threads) noexcept nogil
