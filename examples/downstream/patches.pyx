# cython: freethreading_compatible=True
"""The number of groups in each of many small tables, such as the patches of an image.

An example of a compiled package that calls smallvar in a loop with threads of its own, without the GIL.
"""

from cython.parallel cimport prange
from libc.stdlib cimport free, malloc

from smallvar.cython_api cimport NO_MEMORY, dp_means_d

import numpy as np


cdef int groups_of(
    const double* table, Py_ssize_t n, Py_ssize_t d, double lam, int* labels, Py_ssize_t* n_groups
) noexcept nogil:
    """Cluster one table; labels and number of groups."""
    cdef double* centers = <double*> malloc(n * d * sizeof(double))
    cdef int outcome = NO_MEMORY
    if centers != NULL:
        # no weights, Algorithm 1, no bound on the number of clusters, 300 sweeps; n clusters are always enough
        outcome = dp_means_d(table, n, d, d, NULL, lam, 0, 0, 300, labels, centers, n, n_groups, NULL, NULL)
    free(centers)
    return outcome


def count_groups(const double[:, :, ::1] tables, double lam):
    """Labels of the rows of each table, and the number of groups in it.

    Parameters
    ----------
    tables : ndarray of shape (n_tables, n_rows, n_columns), float64
        The tables.
    lam : float
        Squared distance from all groups at which a row opens another one.

    Returns
    -------
    labels : ndarray of shape (n_tables, n_rows), int32
    counts : ndarray of shape (n_tables,), intp
    """
    cdef Py_ssize_t t, n = tables.shape[1], d = tables.shape[2]
    cdef int[:, ::1] labels = np.empty((tables.shape[0], n), dtype=np.intc)
    cdef Py_ssize_t[::1] counts = np.zeros(tables.shape[0], dtype=np.intp)
    cdef int[::1] outcome = np.zeros(tables.shape[0], dtype=np.intc)
    if n == 0 or d == 0:
        raise ValueError(f"tables must have rows and columns, got {n} and {d}")
    for t in prange(tables.shape[0], nogil=True, schedule="dynamic"):
        outcome[t] = groups_of(&tables[t, 0, 0], n, d, lam, &labels[t, 0], &counts[t])
    for t in range(tables.shape[0]):
        if outcome[t] < 0:
            raise ValueError(f"table {t} cannot be clustered: outcome {outcome[t]}")
    return np.asarray(labels), np.asarray(counts)
