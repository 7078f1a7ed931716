"""Rows sorted by cluster, and their projections on lines between clusters: the counts of a histogram (boundary.pyx).

Products of matrices are left to BLAS. The functions here visit rows of clusters one by one.
"""

from cython.parallel cimport prange
from libc.math cimport HUGE_VAL

from smallvar._sweeps.parallel cimport PAYS, ParallelLoop, begin_chunk, begin_loop, end_loop
from smallvar._sweeps.rows cimport Rows, is_sparse, read_row, row_at, rows_of, weight_of

import numpy as np

cdef enum:
    ROWS = 1 << 12      # of a chunk
    FEW = 512           # rows whose nearest clusters are found at once, in the fastest cache


cdef inline const double* values_of(const Rows* rows, Py_ssize_t i, double* buffer) noexcept nogil:
    """The values of a row where they lie, or else in the buffer."""
    if is_sparse(rows):
        read_row(rows, i, buffer, 1)
        return buffer
    return row_at(rows, i, buffer)


# ---- rows sorted by cluster ------------------------------------------------------------------------------------------


def sort_rows(const Py_ssize_t[::1] labels, const double[::1] weight, Py_ssize_t k):
    """Rows of positive weight by cluster, in the order given: their numbers, and where each cluster starts, (k + 1,).

    labels : IN array (n,), those below 0 and from k on are left out;  weight : IN array (n,) or None
    """
    cdef Py_ssize_t n = labels.shape[0], i, c
    first_array = np.zeros(k + 1, dtype=np.intp)
    cdef Py_ssize_t[::1] first = first_array
    with nogil:
        for i in range(n):
            if 0 <= labels[i] < k and (weight is None or weight[i] > 0.0):
                first[labels[i] + 1] += 1
        for c in range(k):
            first[c + 1] += first[c]
    order_array = np.empty(first_array[k], dtype=np.intp)
    cdef Py_ssize_t[::1] order = order_array, place = first_array[:k].copy()
    with nogil:
        for i in range(n):
            if 0 <= labels[i] < k and (weight is None or weight[i] > 0.0):
                order[place[labels[i]]] = i
                place[labels[i]] += 1
    return order_array, first_array


def add_rows(X, const double[::1] weight, const Py_ssize_t[::1] labels, double scale, const double[:, ::1] origin,
             double[:, ::1] sums):
    """Add the rows of each cluster, less its origin and times scale, to its sums.  INOUT sums: k x d

    X : IN array or CSR rows (n, d);  weight : IN array (n,) or None;  labels : IN array (n,)
    """
    cdef Rows rows = rows_of(X, weight, None)
    cdef double[::1] buffer = np.empty(rows.d)
    cdef Py_ssize_t i, j, k = sums.shape[0]
    cdef double w
    cdef const double* x
    cdef const double* from_
    cdef double* to
    with nogil:
        for i in range(rows.n):
            w = scale * weight_of(&rows, i)
            if w > 0.0 and 0 <= labels[i] < k:
                x, from_, to = values_of(&rows, i, &buffer[0]), &origin[labels[i], 0], &sums[labels[i], 0]
                for j in range(rows.d):
                    to[j] += w * (x[j] - from_[j])


cdef void read_chunk(
    const Rows* rows, Py_ssize_t chunk, int thread, double scale, const double* center, double* buffer, double* out
) noexcept nogil:
    """Rows of a chunk less a center, times scale."""
    cdef Py_ssize_t i, j, d = rows.d
    cdef const double* x
    for i in range(chunk * ROWS, min(rows.n, (chunk + 1) * ROWS)):
        x = values_of(rows, i, buffer + thread * d)
        for j in range(d):
            out[i * d + j] = scale * (x[j] - center[j])


def read_rows(X, const Py_ssize_t[::1] order, double scale, const double[::1] center, int n_threads):
    """Rows of one cluster less its center, times scale: (len(order), d).  X : IN array or CSR rows (n, d)"""
    cdef Rows rows = rows_of(X, None, None)
    rows.n = order.shape[0]
    cdef Py_ssize_t n_chunks = (rows.n + ROWS - 1) // ROWS, chunk
    out_array = np.empty((rows.n, rows.d))
    cdef double[:, ::1] out = out_array, buffer = np.empty((max(n_threads, 1), rows.d))
    cdef ParallelLoop loop
    if rows.n == 0:
        return out_array
    rows.order = &order[0]
    with nogil:
        loop = begin_loop(n_chunks, n_threads if rows.n * rows.d > PAYS else 1)
        for chunk in prange(n_chunks, schedule="dynamic", chunksize=1, num_threads=loop.threads):
            read_chunk(&rows, chunk, begin_chunk(&loop), scale, &center[0], &buffer[0, 0], &out[0, 0])
        end_loop(&loop)
    return out_array


cdef void nearest_of_chunk(
    const double[:, ::1] products, const double[::1] half, Py_ssize_t own, Py_ssize_t start, Py_ssize_t size,
    double* best, double* nearest
) noexcept nogil:
    """The nearest other cluster of a few rows, as a double, so that one comparison of vectors chooses two numbers."""
    cdef Py_ssize_t i, c
    cdef const double* product
    cdef double nearness, bound
    for i in range(size):
        best[i], nearest[i] = -HUGE_VAL, 0.0
    for c in range(products.shape[0]):
        if c == own:
            continue
        product, bound = &products[c, start], half[c]
        for i in range(size):
            nearness = product[i] - bound
            nearest[i] = <double> c if nearness > best[i] else nearest[i]
            best[i] = nearness if nearness > best[i] else best[i]


def count_nearest(const double[:, ::1] products, const double[::1] half, Py_ssize_t own, const double[::1] weight,
                  double[::1] contacts):
    """Add the weight of rows of a cluster to the other cluster that each is nearest to.

    products : IN array (k, n), of rows and means of clusters;  half : IN array (k,), half the squared norms of means
    weight : IN array (n,) or None;  contacts : INOUT array (k,)
    """
    cdef Py_ssize_t n = products.shape[1], chunk, start, size, i
    cdef double[::1] scratch = np.empty(2 * FEW)
    cdef double* best = &scratch[0]
    cdef double* nearest = &scratch[FEW]
    with nogil:
        for chunk in range((n + FEW - 1) // FEW):
            start = chunk * FEW
            size = min(n - start, <Py_ssize_t> FEW)
            nearest_of_chunk(products, half, own, start, size, best, nearest)
            for i in range(size):
                contacts[<Py_ssize_t> nearest[i]] += 1.0 if weight is None else weight[start + i]


cdef void face_chunk(
    const double[:, ::1] products, const double[::1] half, Py_ssize_t own, Py_ssize_t neighbor,
    const double[:, ::1] ratios, Py_ssize_t line, Py_ssize_t start, Py_ssize_t size, double* room
) noexcept nogil:
    """How much nearer than all third clusters a few rows would be to the neighbor."""
    cdef Py_ssize_t i, c
    cdef const double* near = &products[neighbor, start]
    cdef const double* product
    cdef double ratio, bound, left
    for i in range(size):
        room[i] = HUGE_VAL
    for c in range(products.shape[0]):
        if c == own or c == neighbor:
            continue
        product, ratio = &products[c, start], ratios[line, c]
        bound = ratio * half[neighbor] - half[c]
        for i in range(size):
            left = ratio * near[i] - product[i] - bound
            room[i] = left if left < room[i] else room[i]


def face(const double[:, ::1] products, const double[::1] half, Py_ssize_t own, const Py_ssize_t[::1] neighbors,
         const double[:, ::1] ratios, unsigned char[:, :] facing):
    """Which rows of a cluster face each neighbor: moved straight to the boundary, none is nearer to a third cluster.

    With o the means less that of the cluster: products : IN array (k, n), of o and rows;  half : IN array (k,), half
    the squared norms of o;  ratios : IN array (m, k), o_c o_b / |o_b|^2 for each neighbor b;  facing : OUT array (m, n)
    """
    cdef Py_ssize_t n = products.shape[1], chunk, start, size, i, j
    cdef double[::1] scratch = np.empty(FEW)
    cdef double* room = &scratch[0]
    with nogil:
        for chunk in range((n + FEW - 1) // FEW):
            start = chunk * FEW
            size = min(n - start, <Py_ssize_t> FEW)
            for j in range(neighbors.shape[0]):
                face_chunk(products, half, own, neighbors[j], ratios, j, start, size, room)
                for i in range(size):
                    facing[j, start + i] = room[i] >= 0.0


# ---- projections -----------------------------------------------------------------------------------------------------


def places_without_itself(const double[::1] q, const double[::1] u, double D, const double[::1] weight, double size,
                          double n, double side, double same):
    """Places of rows of one cluster between the means of two, -1/2 and 1/2, by means and scatter without each row.

    q = x A^-1 x' of the residual x of each row from its mean, u = x A^-1 (m_b - m_a)', D = (m_b - m_a) A^-1 (m_b -
    m_a)'. Without weight v of a row, the mean of its cluster of ``size`` is m - e x, e = v / (size - v), and A is A - k
    x' x, k = e size / n; the inverse follows from that of A (Sherman & Morrison). v is at most 1, as weight 2 is two
    rows, and 0 for a row that is alone.

    weight : IN array or None;  side : 1 for b, -1 for a;  same : of D, the least squared distance of two means
    """
    cdef Py_ssize_t i
    cdef double v, e, k, left, q_i, u_i, D_i, distance
    place_array = np.empty(q.shape[0])
    cdef double[::1] places = place_array
    with nogil:
        for i in range(q.shape[0]):
            v = 1.0 if weight is None else min(weight[i], 1.0)
            if v >= size:
                v = 0.0
            e = v / (size - v)
            k = e * size / n
            left = 1.0 - k * q[i]
            q_i, u_i, D_i = q[i] / left, u[i] / left, D + k * u[i] * u[i] / left
            distance = D_i - 2.0 * side * e * u_i + e * e * q_i
            places[i] = (u_i + side * (0.5 * D_i - e * (1.0 + 0.5 * e) * q_i)) / max(distance, same * D_i)
    return place_array


cdef void count_line(
    const double[:, ::1] t, const double[::1] weight, const unsigned char[:, :] facing, Py_ssize_t line, double low,
    double step, double[:, ::1] counts
) noexcept nogil:
    """Count rows in the cells of one line."""
    cdef Py_ssize_t i
    cdef double cell, top = counts.shape[1] - 1.0
    for i in range(t.shape[0]):
        if facing[line, i]:
            cell = min(max((t[i, line] - low) * step, 0.0), top)
            counts[line, <Py_ssize_t> cell] += 1.0 if weight is None else weight[i]


def count_cells(const double[:, ::1] t, const double[::1] weight, const unsigned char[:, :] facing,
                const double[::1] low, const double[::1] step, double[:, ::1] counts, int n_threads):
    """Add the weight in each cell of m lines: cell i has (t - low) * step from i to i + 1, the outer ones all beyond.

    t : IN array (n, m);  weight : IN array (n,) or None;  low, step : IN arrays (m,);  counts : INOUT (m, n_cells)
    facing : IN array (m, n), the rows that count on each line
    """
    cdef Py_ssize_t m = t.shape[1], j
    cdef ParallelLoop loop
    with nogil:
        loop = begin_loop(m, n_threads if 8 * t.shape[0] * m > PAYS else 1)
        for j in prange(m, schedule="dynamic", chunksize=1, num_threads=loop.threads):
            begin_chunk(&loop)
            count_line(t, weight, facing, j, low[j], step[j], counts)
        end_loop(&loop)


# ---- histograms ------------------------------------------------------------------------------------------------------


cdef Py_ssize_t distinct_values(
    const double* v, const double* w, Py_ssize_t n, double tie, double* value, double* reached
) noexcept nogil:
    """How many values differ by more than tie from the one before; these values, and the weight up to each."""
    cdef Py_ssize_t i, m = 0, begin = 0
    cdef double total = 0.0
    for i in range(n):
        total += 1.0 if w == NULL else w[i]
        if i == n - 1 or v[i + 1] - v[i] > tie:
            value[m], reached[m] = 0.5 * (v[begin] + v[i]), total
            begin = i + 1
            m += 1
    return m


cdef inline double between(double x, double x0, double x1, double y0, double y1) noexcept nogil:
    return (y1 - y0) / (x1 - x0) * (x - x0) + y0


def histogram(const double[::1] v, const double[::1] w, Py_ssize_t n_bins, double tail, double same, Py_ssize_t least):
    """Edges of equal bins, and the weight in each; None for fewer than ``least`` distinct values.

    A value stands for the interval up to the middles between it and its neighbors, in which its rows are taken to be
    spread evenly. So values recorded in steps do not leave bins empty, and values that no rows have in between are no
    gap. The bins are between two quantiles, and the outer ones have the weight of all beyond.

    v : IN array (n,), ascending;  w : IN array (n,), positive weights, or None
    tail : share of the weight below the first edge, and above the last;  same : of the range, nearer values are one
    """
    cdef Py_ssize_t n = v.shape[0], m, i, b
    cdef double total, x, before
    if n < least:
        return None, None
    cdef double[::1] value = np.empty(n), reached = np.empty(n), ends = np.empty(n + 1)
    edge_array, count_array = np.empty(n_bins + 1), np.empty(n_bins)
    cdef double[::1] edges = edge_array, counts = count_array
    with nogil:
        m = distinct_values(&v[0], NULL if w is None else &w[0], n, same * (v[n - 1] - v[0]), &value[0], &reached[0])
        if m >= least:
            for i in range(1, m):
                ends[i] = 0.5 * (value[i - 1] + value[i])
            ends[0], ends[m] = 2.0 * value[0] - ends[1], 2.0 * value[m - 1] - ends[m - 1]
            total = reached[m - 1]
            i = 0
            while reached[i] <= tail * total:
                i += 1
            edges[0] = between(tail * total, reached[i - 1] if i else 0.0, reached[i], ends[i], ends[i + 1])
            while i < m - 1 and reached[i] <= (1.0 - tail) * total:
                i += 1
            x = (1.0 - tail) * total
            edges[n_bins] = between(x, reached[i - 1] if i else 0.0, reached[i], ends[i], ends[i + 1])
            before, i = 0.0, 0
            for b in range(1, n_bins):
                edges[b] = edges[0] + b * ((edges[n_bins] - edges[0]) / n_bins)
                while i < m - 1 and ends[i + 1] <= edges[b]:
                    i += 1
                x = between(edges[b], ends[i], ends[i + 1], reached[i - 1] if i else 0.0, reached[i])
                counts[b - 1], before = x - before, x
            counts[n_bins - 1] = total - before
    if m < least:
        return None, None
    return edge_array, count_array
