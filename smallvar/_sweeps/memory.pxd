"""Blocks of C memory that are freed together, so that what is in them needs no Python objects."""

from cpython.pyport cimport PY_SSIZE_T_MAX
from libc.stdlib cimport calloc, free
from libc.string cimport memcpy

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


cdef inline bint widen(
    Memory* memory, void** block, Py_ssize_t rows, Py_ssize_t old, Py_ssize_t new, size_t size
) noexcept nogil:
    """Make each row of a block longer, from ``old`` elements to ``new``, with 0 behind them. A block NULL is made.

    Returns whether there was memory for it; else the block is as it was.
    """
    cdef char* before = <char*> block[0]
    cdef char* longer = <char*> take(memory, rows, new, size)
    cdef Py_ssize_t m
    if longer == NULL:
        return False
    block[0] = longer
    if before != NULL:
        for m in range(rows):
            memcpy(longer + m * new * size, before + m * old * size, old * size)
        memory.n -= 1
        for m in range(memory.n):
            if memory.blocks[m] == before:
                memory.blocks[m] = longer
        free(before)
    return True


cdef inline void free_all(Memory* memory) noexcept nogil:
    """Free all blocks."""
    cdef int m
    for m in range(memory.n):
        free(memory.blocks[m])
    memory.n = 0
