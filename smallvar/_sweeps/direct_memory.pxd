"""Blocks of C memory that are freed together, for callers that hold no Python objects."""

from cpython.pyport cimport PY_SSIZE_T_MAX
from libc.stdlib cimport calloc, free, realloc
from libc.string cimport memset

cdef enum:
    MAX_BLOCKS = 40


cdef struct Memory:
    int n
    void* blocks[MAX_BLOCKS]


cdef inline bint overflows(Py_ssize_t n, Py_ssize_t m) noexcept nogil:
    """Whether n m numbers of 8 bytes are more than can be addressed; n, m >= 0."""
    return m > 0 and n > PY_SSIZE_T_MAX // 8 // m


cdef inline void* take(Memory* memory, Py_ssize_t n, Py_ssize_t m, size_t size) noexcept nogil:
    """A new block of n m elements of up to 8 bytes, all 0; NULL: there is no memory."""
    cdef void* block = NULL
    if memory.n < MAX_BLOCKS and not overflows(n, m):
        block = calloc(max(<Py_ssize_t> 1, n * m), size)
    if block != NULL:
        memory.blocks[memory.n] = block
        memory.n += 1
    return block


cdef inline bint extend(Memory* memory, void** block, Py_ssize_t old, Py_ssize_t new) noexcept nogil:
    """Make a block of ``old`` bytes longer, with 0 behind them; returns whether there was memory for it."""
    cdef void* longer
    cdef int m
    for m in range(memory.n):
        if memory.blocks[m] == block[0]:
            longer = realloc(block[0], new)
            if longer == NULL:
                return False
            memset(<char*> longer + old, 0, new - old)
            memory.blocks[m] = block[0] = longer
            return True
    return False


cdef inline void free_all(Memory* memory) noexcept nogil:
    """Free all blocks."""
    cdef int m
    for m in range(memory.n):
        free(memory.blocks[m])
    memory.n = 0
