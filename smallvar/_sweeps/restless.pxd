"""The restless centers: see __init__.py."""

from smallvar._sweeps.rows cimport real_x
from smallvar._sweeps.scores cimport Batch
from smallvar._sweeps.state cimport State, real_c

cdef void flush_restless(
    const real_x* x, State* s, Batch* b, real_c* tiles, unsigned char* flag
) noexcept nogil
cdef void copy_restless(State* s) noexcept nogil
cdef void forget_restless(State* s) noexcept nogil
cdef void choose_restless(State* s, Py_ssize_t opened_alone, Py_ssize_t least_k) noexcept nogil
