"""Sweeps over clusters with covariances: the cheapest cluster of each point, moments, log determinants of mergers.

A point x costs ||W_k (x - mu_k)||^2 + charge_k in cluster k, with W_k lower triangular, W_k' W_k = S_k^-1 (``root``).

*What is left out.* Between two sweeps only some clusters have changed; costs in others are what they were, to the last
bit. Kept of each point are the cost in its cluster (``least``), and a number that the costs in all others are not below
(``second``). The point is compared with its own cluster, where that has changed, and with the changed ones. If the
least of these costs is below ``second``, no cluster that has not changed is cheaper, nor as cheap; the new ``second``
is the least of the old one and the costs found for other clusters. Otherwise the point is compared with all clusters.

*Tiles.* The points of a chunk are taken by cluster, eight at a time: these need the same comparisons. A comparison ends
once the cost is above what could change ``least`` or ``second`` (see _gaussians.h). Nothing of this changes a result,
nor do chunks and threads.
"""

from cython.parallel cimport prange
from libc.math cimport HUGE_VAL, fabs, log, sqrt
from libc.string cimport memmove, memset

from smallvar._sweeps.parallel cimport PAYS, ParallelLoop, begin_chunk, begin_loop, end_loop
from smallvar._sweeps.rows cimport Rows, poll_signals, read_row, refuse_rows, rows_of, weight_of

import numpy as np

cdef extern from "_gaussians.h" nogil:
    enum:
        SG_POINTS
        SG_RESIDUALS
        SG_PAD
    void sg_compare(const double*, Py_ssize_t, const double*, const double*, double, Py_ssize_t, const double*, double*,
                    double*, double*, double*)
    void sg_add_products(const double*, const double*, Py_ssize_t, Py_ssize_t, double*)

cdef enum:
    GAUSSIAN_CHUNK = 2048  # points of a chunk
    GAUSSIAN_WORK = 1 << 27  # multiply-adds between two checks for signals


cdef struct GaussianClusters:
    Py_ssize_t k
    Py_ssize_t d
    const double* centers       # k x d
    const double* roots         # k x d x d
    const double* charges       # k
    const int* numbers          # k: the changed clusters, then the others
    const unsigned char* changed    # k
    Py_ssize_t n_changed


cdef struct GaussianPoints:
    Rows rows
    int* labels                 # n
    double* least               # n: cost in the own cluster
    double* second              # n: what the costs in others are not below


cdef struct Tile:               # memory of one thread
    double* x                   # d x SG_POINTS
    double* apart               # d x SG_POINTS, scratch
    double* least               # SG_POINTS, as the following
    double* arg
    double* second
    double* bound               # what costs in clusters that have not changed are not below
    int* starts                 # k + 1: where the points of each cluster begin
    int* order                  # GAUSSIAN_CHUNK: points of the chunk by cluster
    int* open                   # GAUSSIAN_CHUNK: those to be compared with all clusters


cdef inline Tile tile_of(double* doubles, int* ints, const GaussianClusters* clusters, int thread) noexcept nogil:
    """The memory of a thread: tile_doubles and tile_ints of it each."""
    cdef Tile tile
    tile.x = doubles + thread * tile_doubles(clusters.d)
    tile.apart = tile.x + clusters.d * SG_POINTS
    tile.least = tile.apart + clusters.d * SG_POINTS
    tile.arg = tile.least + SG_POINTS
    tile.second = tile.arg + SG_POINTS
    tile.bound = tile.second + SG_POINTS
    tile.starts = ints + thread * tile_ints(clusters.k)
    tile.order = tile.starts + clusters.k + 1
    tile.open = tile.order + GAUSSIAN_CHUNK
    return tile


cdef inline Py_ssize_t tiles_of(Py_ssize_t points) noexcept nogil:
    return (points + SG_POINTS - 1) // SG_POINTS


cdef inline Py_ssize_t tile_doubles(Py_ssize_t d) noexcept nogil:
    return (2 * d + 4) * SG_POINTS


cdef inline Py_ssize_t tile_ints(Py_ssize_t k) noexcept nogil:
    return k + 1 + 2 * GAUSSIAN_CHUNK


cdef GaussianClusters clusters_of(
    const Rows* rows, const double[:, ::1] centers, const double[:, :, ::1] roots, const double[::1] charges
) except *:
    cdef Py_ssize_t k = centers.shape[0], d = centers.shape[1]
    if k < 1 or d != rows.d or (roots.shape[0], roots.shape[1], roots.shape[2]) != (k, d, d) or charges.shape[0] != k:
        raise ValueError("X, centers, roots and charges must match each other")
    return GaussianClusters(
        k=k, d=d, centers=&centers[0, 0], roots=&roots[0, 0, 0], charges=&charges[0],
        numbers=NULL, changed=NULL, n_changed=0
    )


cdef int check_labels(const int[::1] labels, Py_ssize_t k) except -1:
    """Raise if a label is not the number of a cluster, as -1, where assign_gaussians has found no finite cost."""
    cdef int low = 0, high = 0
    cdef Py_ssize_t i
    for i in range(labels.shape[0]):
        low, high = min(low, labels[i]), max(high, labels[i])
    if low < 0 or high >= k:
        raise ValueError(f"labels must be >= 0 and < {k}, got {low if low < 0 else high}")
    return 0


# ---- the cheapest cluster of each point ------------------------------------------------------------------------------


cdef inline void read_tile(const GaussianPoints* points, const int* which, Py_ssize_t size, Tile* tile) noexcept nogil:
    """Values of up to SG_POINTS points; the last one stands for those that are missing."""
    cdef Py_ssize_t l
    for l in range(SG_POINTS):
        read_row(&points.rows, which[min(l, size - 1)], tile.x + l, SG_POINTS)
        tile.least[l] = tile.second[l] = tile.bound[l] = HUGE_VAL
        tile.arg[l] = -1.0


cdef inline void compare(const GaussianClusters* clusters, Py_ssize_t k, Tile* tile) noexcept nogil:
    """Compare the points of a tile with a cluster."""
    sg_compare(tile.x, clusters.d, clusters.centers + k * clusters.d, clusters.roots + k * clusters.d * clusters.d,
               clusters.charges[k], k, tile.bound, tile.least, tile.arg, tile.second, tile.apart)


cdef Py_ssize_t compare_changed(
    const GaussianPoints* points, const GaussianClusters* clusters, const int* which, Py_ssize_t size,
    Py_ssize_t assigned, Tile* tile, Py_ssize_t n_open
) noexcept nogil:
    """Update points of one cluster by the clusters that have changed, if that decides; others are added to tile.open.

    Returns how many are there then.
    """
    cdef Py_ssize_t l, m, k, i
    cdef bint all_changed = clusters.n_changed == clusters.k
    read_tile(points, which, size, tile)
    if clusters.changed[assigned]:
        compare(clusters, assigned, tile)
    else:
        for l in range(SG_POINTS):
            tile.least[l] = points.least[which[min(l, size - 1)]]
            tile.arg[l] = assigned
    if not all_changed:
        for l in range(SG_POINTS):
            tile.bound[l] = points.second[which[min(l, size - 1)]]
    for m in range(clusters.n_changed):
        k = clusters.numbers[m]
        if k != assigned:
            compare(clusters, k, tile)
    for l in range(size):
        i = which[l]
        if tile.least[l] < tile.bound[l] or all_changed:
            points.labels[i] = <int> tile.arg[l]
            points.least[i] = tile.least[l]
            points.second[i] = min(tile.second[l], tile.bound[l])
        else:
            tile.open[n_open] = <int> i
            n_open += 1
    return n_open


cdef void compare_all(
    const GaussianPoints* points, const GaussianClusters* clusters, const int* which, Py_ssize_t size, Tile* tile
) noexcept nogil:
    """Update points by all clusters, their own first."""
    cdef Py_ssize_t l, m, k, assigned = points.labels[which[0]]
    read_tile(points, which, size, tile)
    compare(clusters, assigned, tile)
    for m in range(clusters.k):
        k = clusters.numbers[m]
        if k != assigned:
            compare(clusters, k, tile)
    for l in range(size):
        points.labels[which[l]] = <int> tile.arg[l]
        points.least[which[l]] = tile.least[l]
        points.second[which[l]] = tile.second[l]


cdef void assign_chunk(
    const GaussianPoints* points, const GaussianClusters* clusters, Py_ssize_t chunk, double* doubles, int* ints,
    int thread
) noexcept nogil:
    """Update the points of a chunk."""
    cdef Tile tile = tile_of(doubles, ints, clusters, thread)
    cdef Py_ssize_t start = chunk * GAUSSIAN_CHUNK, stop = min(points.rows.n, start + GAUSSIAN_CHUNK), i, k, m, t
    cdef Py_ssize_t begin, n_open = 0
    memset(tile.starts, 0, (clusters.k + 1) * sizeof(int))
    for i in range(start, stop):
        tile.starts[points.labels[i] + 1] += 1
    for k in range(clusters.k):
        tile.starts[k + 1] += tile.starts[k]
    for i in range(start, stop):
        k = points.labels[i]
        tile.order[tile.starts[k]] = <int> i
        tile.starts[k] += 1
    begin = 0
    for k in range(clusters.k):  # starts have become ends
        for t in range(tiles_of(tile.starts[k] - begin)):
            m = begin + t * SG_POINTS
            n_open = compare_changed(
                points, clusters, tile.order + m, min(<Py_ssize_t> SG_POINTS, tile.starts[k] - m), k, &tile, n_open
            )
        begin = tile.starts[k]
    for t in range(tiles_of(n_open)):
        m = t * SG_POINTS
        compare_all(points, clusters, tile.open + m, min(<Py_ssize_t> SG_POINTS, n_open - m), &tile)


def assign_gaussians(X, const double[:, ::1] centers, const double[:, :, ::1] roots, const double[::1] charges,
                     const unsigned char[::1] changed, int[::1] labels, double[::1] least, double[::1] second,
                     int n_threads):
    """Cheapest cluster of each point, of equal costs the lowest number; -1 where no cost is finite.

    X : IN array (n, d)
    centers, roots, charges : IN arrays (k, d), (k, d, d), (k,)
    changed : IN array (k,), 1 for clusters that have changed since the last sweep; all at first
    labels : INOUT array (n,), where points were
    least, second : INOUT arrays (n,), costs in the own cluster and bounds of those in the others; set at first
    """
    cdef GaussianPoints points
    points.rows = rows_of(X, None, None)
    cdef GaussianClusters clusters = clusters_of(&points.rows, centers, roots, charges)
    flags = np.array(changed, dtype=bool)
    if 2 * flags.sum() > len(flags):  # then ``second`` is better found anew
        flags[:] = True
    cdef const int[::1] numbers = np.argsort(~flags, kind="stable").astype(np.int32)
    cdef const unsigned char[::1] used = flags.view(np.uint8)
    cdef Py_ssize_t n_chunks, first = 0, last, chunk, work = 0, per_point
    if changed.shape[0] != clusters.k or not labels.shape[0] == least.shape[0] == second.shape[0] == points.rows.n:
        raise ValueError("changed, labels, least and second must match X and centers")
    check_labels(labels, clusters.k)
    points.labels, points.least, points.second = &labels[0], &least[0], &second[0]
    clusters.numbers, clusters.changed, clusters.n_changed = &numbers[0], &used[0], flags.sum()
    n_chunks = (points.rows.n + GAUSSIAN_CHUNK - 1) // GAUSSIAN_CHUNK
    per_point = clusters.k * clusters.d * (clusters.d + 3) // 2
    cdef int threads = n_threads if points.rows.n * per_point > PAYS else 1
    cdef double[:, ::1] doubles = np.empty((threads, tile_doubles(clusters.d)))
    cdef int[:, ::1] ints = np.empty((threads, tile_ints(clusters.k)), dtype=np.int32)
    cdef ParallelLoop loop
    with nogil:
        while first < n_chunks:
            last = min(n_chunks, first + max(<Py_ssize_t> 2 * threads, GAUSSIAN_WORK // (GAUSSIAN_CHUNK * per_point)))
            loop = begin_loop(last - first, threads)
            for chunk in prange(first, last, schedule="dynamic", chunksize=1, num_threads=loop.threads):
                assign_chunk(&points, &clusters, chunk, &doubles[0, 0], &ints[0, 0], begin_chunk(&loop))
            end_loop(&loop)
            poll_signals(&work, (last - first) * GAUSSIAN_CHUNK * per_point, GAUSSIAN_WORK)
            first = last


def gaussian_costs(X, const double[:, ::1] centers, const double[:, :, ::1] roots, const double[::1] charges):
    """Costs of points in all clusters, (n, k), with the bits of assign_gaussians; 1e308 and more may be infinite.

    X : IN array (n, d);  centers, roots, charges : IN arrays (k, d), (k, d, d), (k,)
    """
    cdef Rows rows = rows_of(X, None, None)
    cdef GaussianClusters clusters = clusters_of(&rows, centers, roots, charges)
    cdef double[::1] doubles = np.empty(tile_doubles(clusters.d))
    cdef Tile tile = tile_of(&doubles[0], NULL, &clusters, 0)
    cdef Py_ssize_t i, k, l, t
    out_array = np.empty((rows.n, clusters.k))
    cdef double[:, ::1] out = out_array
    with nogil:
        for t in range(tiles_of(rows.n)):
            i = t * SG_POINTS
            for l in range(SG_POINTS):
                read_row(&rows, min(i + l, rows.n - 1), tile.x + l, SG_POINTS)
                tile.bound[l] = HUGE_VAL
            for k in range(clusters.k):
                for l in range(SG_POINTS):
                    tile.least[l] = tile.second[l] = HUGE_VAL
                    tile.arg[l] = -1.0
                compare(&clusters, k, &tile)
                for l in range(min(<Py_ssize_t> SG_POINTS, rows.n - i)):
                    out[i + l, k] = tile.least[l]
    return out_array


# ---- moments ---------------------------------------------------------------------------------------------------------


cdef struct Moments:            # of one cluster
    Py_ssize_t d
    Py_ssize_t width            # d, padded
    const double* center        # d
    double* products            # d x width
    double* low                 # d: range of the members
    double* high                # d


cdef void add_members(
    const Rows* rows, const Py_ssize_t* members, Py_ssize_t size, const Moments* moments, double* scratch
) noexcept nogil:
    """Add members to the moments of their cluster.  OUT scratch: 2 SG_RESIDUALS x width, its padding 0."""
    cdef Py_ssize_t i, j, l, t, width = moments.width
    cdef double* weighted = scratch + SG_RESIDUALS * width
    cdef double* residual
    cdef double w, x
    for t in range((size + SG_RESIDUALS - 1) // SG_RESIDUALS):
        i = t * SG_RESIDUALS
        for l in range(SG_RESIDUALS):
            residual = scratch + l * width
            if i + l >= size:
                memset(residual, 0, moments.d * sizeof(double))
                memset(weighted + l * width, 0, moments.d * sizeof(double))
                continue
            read_row(rows, members[i + l], residual, 1)
            w = weight_of(rows, members[i + l])
            for j in range(moments.d):
                x = residual[j]
                moments.low[j] = x if x < moments.low[j] else moments.low[j]
                moments.high[j] = x if x > moments.high[j] else moments.high[j]
                residual[j] = x - moments.center[j]
                weighted[l * width + j] = w * residual[j]
        sg_add_products(scratch, weighted, moments.d, width, moments.products)


def cluster_moments(X, const double[::1] weight, const Py_ssize_t[::1] order, const int[::1] labels,
                    const unsigned char[::1] wanted, double[:, ::1] centers, double[:, :, ::1] scatter, int n_threads):
    """Sums of w (x - center)(x - center)' over the members of clusters, for those that are wanted.

    X : IN array (n, d);  weight : IN array (n,) or None
    order : IN array (n,), in which members are added, so that sums do not depend on that of the rows
    labels : IN array (n,)
    wanted : IN array (k,), 1 or 0; these must have members
    centers : INOUT array (k, d), means but for rounding; they are moved into the range of the members
    scatter : OUT array (k, d, d)
    """
    cdef Rows rows = rows_of(X, weight, None)
    cdef Py_ssize_t k, j, i, m, d = rows.d, size = centers.shape[0]
    cdef Py_ssize_t width = (d + SG_PAD - 1) // SG_PAD * SG_PAD
    cdef Py_ssize_t[::1] starts = np.zeros(size + 1, dtype=np.intp), members
    cdef Py_ssize_t[::1] clusters = np.flatnonzero(wanted)
    cdef bint again = False
    if not rows.n == labels.shape[0] == order.shape[0] or not size == wanted.shape[0] == scatter.shape[0]:
        raise ValueError("order and labels must match X, wanted and scatter must match centers")
    check_labels(labels, size)
    with nogil:
        for i in range(rows.n):
            if wanted[labels[i]]:
                starts[labels[i] + 1] += 1
        for k in range(size):
            starts[k + 1] += starts[k]
    members = np.empty(max(starts[size], 1), dtype=np.intp)
    with nogil:
        for m in range(rows.n):
            i = order[m]
            if wanted[labels[i]]:
                members[starts[labels[i]]] = i
                starts[labels[i]] += 1
        for k in range(size, 0, -1):  # ends become starts
            starts[k] = starts[k - 1]
        starts[0] = 0
    products_array, low, high = np.empty((size, d, width)), np.empty((size, d)), np.empty((size, d))
    cdef double[:, :, ::1] products = products_array
    while clusters.shape[0]:
        rest = np.asarray(clusters)
        products_array[rest], low[rest], high[rest] = 0.0, np.inf, -np.inf
        add_clusters(&rows, members, starts, clusters, centers, products, low, high, n_threads)
        old = np.asarray(centers)[rest]
        new = np.minimum(np.maximum(old, low[rest]), high[rest]) + 0.0  # the mean of equal rows is exact
        np.asarray(centers)[rest] = new
        clusters = rest[(new != old).any(axis=1)]  # about these centers once more: no further, as ranges stay
        if clusters.shape[0] and again:
            refuse_rows()
        again = True
    for m in range(size):
        if wanted[m]:
            for i in range(d):
                for j in range(i, d):
                    scatter[m, i, j] = scatter[m, j, i] = products[m, i, j]


cdef add_clusters(const Rows* rows, const Py_ssize_t[::1] members, const Py_ssize_t[::1] starts,
                  const Py_ssize_t[::1] clusters, const double[:, ::1] centers, double[:, :, ::1] products,
                  double[:, ::1] low, double[:, ::1] high, int n_threads):
    """Add up the members of these clusters, as many of each at a time as leave time for signals."""
    cdef Py_ssize_t d = rows.d, width = products.shape[2], c, first = 0, size = clusters.shape[0], most = 0, work = 0
    cdef Py_ssize_t step = max(<Py_ssize_t> SG_RESIDUALS, GAUSSIAN_WORK // (size * d * (d + 16)))
    cdef int threads = n_threads if members.shape[0] * d * (d + 16) // 2 > PAYS else 1
    cdef double[:, ::1] scratch = np.zeros((threads, 2 * SG_RESIDUALS * width))
    cdef ParallelLoop loop
    for c in range(size):
        most = max(most, starts[clusters[c] + 1] - starts[clusters[c]])
    with nogil:
        while first < most:
            loop = begin_loop(size, threads)
            for c in prange(size, schedule="dynamic", chunksize=1, num_threads=loop.threads):
                add_some(rows, &members[0], &starts[0], clusters[c], first, step, &centers[0, 0],
                         &products[0, 0, 0], &low[0, 0], &high[0, 0], width, &scratch[0, 0], begin_chunk(&loop))
            end_loop(&loop)
            poll_signals(&work, 1, 0)
            first += step


cdef void add_some(
    const Rows* rows, const Py_ssize_t* members, const Py_ssize_t* starts, Py_ssize_t k, Py_ssize_t first,
    Py_ssize_t step, const double* centers, double* products, double* low, double* high, Py_ssize_t width,
    double* scratch, int thread
) noexcept nogil:
    """Add the members first..first+step-1 of cluster k."""
    cdef Py_ssize_t begin = starts[k] + first, d = rows.d
    cdef Moments moments = Moments(d, width, centers + k * d, products + k * d * width, low + k * d, high + k * d)
    if begin < starts[k + 1]:
        add_members(rows, members + begin, min(step, starts[k + 1] - begin), &moments,
                    scratch + thread * (2 * SG_RESIDUALS * width))


# ---- covariances -----------------------------------------------------------------------------------------------------


cdef double factor(const double* S, Py_ssize_t d, double* L, double* logdet, Py_ssize_t* work) except? -1.0 nogil:
    """Cholesky's factor of a symmetric matrix: S = L L', L lower triangular, and log |det S|.

    Returns the least part of a variance that is left once the columns before it are known; 0 where S is not positive
    definite.  OUT L: d x d, which may be S;  INOUT work: see poll_signals
    """
    cdef Py_ssize_t i, j, m
    cdef double value = 0.0, left = HUGE_VAL
    logdet[0] = 0.0
    for i in range(d):
        for j in range(i + 1):
            value = S[i * d + j]
            for m in range(j):
                value -= L[i * d + m] * L[j * d + m]
            if j < i:
                L[i * d + j] = value / L[j * d + j]
        left = min(left, value / S[i * d + i]) if value > 0.0 else 0.0
        L[i * d + i] = sqrt(fabs(value))
        logdet[0] += 2.0 * log(L[i * d + i])
        poll_signals(work, i * i, GAUSSIAN_WORK)
    return left


cdef int invert(const double* L, Py_ssize_t d, double* W, Py_ssize_t* work) except -1 nogil:
    """Compute W = L^-1 of a lower triangular matrix.  OUT W: d x d"""
    cdef Py_ssize_t i, j, m
    memset(W, 0, d * d * sizeof(double))
    for i in range(d):
        for m in range(i):
            for j in range(m + 1):
                W[i * d + j] -= L[i * d + m] * W[m * d + j]
        for j in range(i):
            W[i * d + j] /= L[i * d + i]
        W[i * d + i] = 1.0 / L[i * d + i]
        poll_signals(work, i * i, GAUSSIAN_WORK)
    return 0


def inverse_roots(const double[:, :, ::1] covariances):
    """Lower triangular W with S^-1 = W'W for each covariance S, log det S, and what ``factor`` returns.

    W is not computed where that is 0.

    covariances : IN array (k, d, d)
    """
    cdef Py_ssize_t k, d = covariances.shape[1], size = covariances.shape[0], work = 0
    arrays = np.empty((size, d, d)), np.empty(size), np.empty(size)
    cdef double[:, :, ::1] roots = arrays[0]
    cdef double[::1] logdet = arrays[1], left = arrays[2], L = np.empty(d * d)
    with nogil:
        for k in range(size):
            left[k] = factor(&covariances[k, 0, 0], d, &L[0], &logdet[k], &work)
            if left[k] > 0.0:
                invert(&L[0], d, &roots[k, 0, 0], &work)
    return arrays


# ---- mergers ---------------------------------------------------------------------------------------------------------


def union_log_determinants(const double[::1] weights, const double[:, ::1] centers, const double[:, :, ::1] scatter,
                           double reg, double scale, const Py_ssize_t[::1] first, const Py_ssize_t[::1] second):
    """log det of the covariances that pairs of clusters would have as one cluster, (m,).

    weights, centers, scatter : IN arrays (k,), (k, d), (k, d, d), moments of the clusters
    reg, scale : of the prior: the covariance is (scatter + reg I) / (weight + scale)
    first, second : IN arrays (m,), the clusters of each pair
    """
    cdef Py_ssize_t q, i, j, a, b, d = centers.shape[1], work = 0
    cdef double total, pull
    cdef double[::1] A = np.empty(d * d), way = np.empty(d)
    out_array = np.empty(first.shape[0])
    cdef double[::1] out = out_array
    with nogil:
        for q in range(first.shape[0]):
            a, b = first[q], second[q]
            total = weights[a] + weights[b]
            pull = weights[a] * weights[b] / total
            for j in range(d):
                way[j] = centers[b, j] - centers[a, j]
            for i in range(d):
                for j in range(i + 1):
                    A[i * d + j] = (scatter[a, i, j] + scatter[b, i, j] + pull * way[i] * way[j]) / (total + scale)
                A[i * d + i] += reg / (total + scale)
            factor(&A[0], d, &A[0], &out[q], &work)
    return out_array


def without_entry(array, Py_ssize_t k):
    """The array without its entry k along the first axis, in the same memory.

    array : INOUT C-contiguous array
    """
    cdef Py_ssize_t size = array.nbytes // len(array)
    cdef unsigned char[::1] at = array.reshape(-1).view(np.uint8)
    if not 0 <= k < len(array):
        raise ValueError(f"k must be >= 0 and < {len(array)}, got {k}")
    if k + 1 < len(array):
        memmove(&at[k * size], &at[(k + 1) * size], at.shape[0] - (k + 1) * size)
    return array[:-1]
