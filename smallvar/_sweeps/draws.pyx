"""Systematic draws, by which as many are drawn of each stratum as its probabilities add up to, but for one."""

from libc.math cimport ldexp, rint
from libc.stdint cimport int64_t

from smallvar._sweeps.rows cimport poll_signals, refuse_rows

import numpy as np

cdef enum:
    DRAW_WORK = 1 << 25  # rows between two checks for signals

cdef extern from *:
    """
    #define SMALLVAR_SURE (1.0 - 1e-12)
    #define SMALLVAR_LEAST_SUM 0.5
    #define SMALLVAR_MOST_SUM 1.5
    """
    # a probability from which on a row is drawn for sure: some 1e-16 of one are lost to rounding
    const double C_CERTAIN_SHARE "SMALLVAR_SURE"
    # of the rows to draw: between these lies the sum of their probabilities, which is their number but for rounding.
    # Lengths then add up to less than 1.5 * 2^61, and twice that is within 64 bits
    const double LEAST_SUM "SMALLVAR_LEAST_SUM"
    const double MOST_SUM "SMALLVAR_MOST_SUM"

CERTAIN_SHARE = C_CERTAIN_SHARE  # the same number for Python


cdef inline int64_t length_of(double probability, double unit) noexcept nogil:
    """The length of a row on the line, in integers, which add up without rounding; 0 for what is drawn for sure."""
    return 0 if probability >= C_CERTAIN_SHARE else <int64_t> rint(probability * unit)


def systematic_draw(const double[::1] probability, const int[::1] stratum, Py_ssize_t n_strata, Py_ssize_t size,
                    double start):
    """Flags of the rows drawn, as many as the probabilities add up to, each with its probability (Madow 1949).

    The rows lie side by side on a line, by stratum and then in their order, each as long as its probability. One is
    drawn wherever ``start``, ``start`` + 1, ... lie. Rows of probability 1 are drawn and have no length.

    probability : IN array (n,), 0 to 1;  stratum : IN array (n,), below n_strata
    size : how many to draw: what the probabilities add up to;  start : >= 0 and < 1, a uniform number
    """
    cdef Py_ssize_t i, s, n = probability.shape[0], left = size
    cdef int64_t first, step, end, total = 0, length, number
    # of each stratum: its length, then where it begins, then where its next row does, so that rows need not be sorted
    cdef int64_t[::1] place = np.zeros(n_strata, dtype=np.int64)
    cdef int64_t[::1] next_step = np.empty(n_strata, dtype=np.int64)    # the first of the steps not before that place
    cdef double unit, rest = 0.0
    cdef Py_ssize_t work = 0
    drawn_array = np.zeros(n, dtype=np.uint8)
    cdef unsigned char[::1] drawn = drawn_array
    for i in range(n):
        if probability[i] >= C_CERTAIN_SHARE:
            drawn[i] = 1
            left -= 1
        else:
            rest += probability[i]
    if stratum.shape[0] != n:
        raise ValueError("stratum must match probability")
    if n and not 0 <= np.min(stratum) <= np.max(stratum) < n_strata:
        raise ValueError(f"stratum must be >= 0 and < {n_strata}")
    if left <= 0:
        return drawn_array.astype(bool)
    if not LEAST_SUM * left < rest < MOST_SUM * left:  # size does not match, or rows are not finite
        refuse_rows()
    unit = ldexp(1.0, 61) / left
    with nogil:
        for i in range(n):
            place[stratum[i]] += length_of(probability[i], unit)
            poll_signals(&work, 1, DRAW_WORK)
        for s in range(n_strata):
            length = place[s]
            place[s] = total
            total += length
        step = total // left
        first = <int64_t> (start * step)
        end = first + left * step  # step is rounded down: one more might fit in
        for s in range(n_strata):
            number = (place[s] - first + step - 1) // step if place[s] > first else 0
            next_step[s] = first + number * step
        for i in range(n):
            s = stratum[i]
            place[s] += length_of(probability[i], unit)
            if next_step[s] < place[s] and next_step[s] < end:
                drawn[i] = 1
                next_step[s] += step
            poll_signals(&work, 1, DRAW_WORK)
    return drawn_array.astype(bool)
