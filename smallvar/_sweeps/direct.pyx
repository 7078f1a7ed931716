"""Clustering of tables in C memory: nearest centers, means of labels, and DP-means, without Python objects.

These functions are for callers that cluster many tables in loops of their own, without the GIL (see
smallvar/cython_api.pxd). They give the bits of the estimators: the same exact distances, the same exact sums, the same
rule for when sweeps end. Sweeps over few rows and centers compute the n k distances of all rows to all centers, eight
rows side by side, without bounds. From MANY_DISTANCES on they are those of the estimators (direct_sweep.pyx).

A function returns OK, or a negative number that says what is wrong with its arguments, and frees what it allocates.
"""

from libc.limits cimport INT_MAX
from libc.math cimport HUGE_VAL, INFINITY, fabs
from libc.string cimport memcpy, memset

from smallvar._sweeps cimport direct_sweep
from smallvar._sweeps.direct_memory cimport Memory, extend, free_all, overflows, take
from smallvar._sweeps.direct_sweep cimport DirectSweep
from smallvar._sweeps.direct_table cimport (
    BAD_SIZE,
    BAD_VALUE,
    FULL,
    NO_MEMORY,
    NOT_CONVERGED,
    OK,
    OUT_OF_RANGE,
    SQUARES,
    DirectTable,
    begin_table,
    check_rows,
    plain_rows,
    reserve_sums,
)
from smallvar._sweeps.means cimport center_of
from smallvar._sweeps.ranges cimport range_of_values
from smallvar._sweeps.rows cimport Rows, point, read_row, weight_of
from smallvar._sweeps.state cimport squared_distance
from smallvar._sweeps.stopping cimport Stopping, begin_sweeps, record_sweep, should_continue
from smallvar._sweeps.sums cimport (
    ACCUMULATOR_DIGITS,
    Accumulator,
    accumulator_add,
    accumulator_round,
    mean_of_sums,
    move_points,
    origin_of_column,
    sums_clear,
    sums_copy,
    sums_weight,
)
from smallvar._sweeps.tolerances cimport C_CANCELLATION, C_LARGEST_REACH, C_SMALLEST_REACH

cdef extern from "_exact.h" nogil:
    bint sc_least_block(const double*, Py_ssize_t, const double*, Py_ssize_t, Py_ssize_t, const double*, double,
                        double*, double*)
    enum:
        TILE "SC_POINTS"        # rows that are compared with the centers side by side

cdef enum:
    AT_FIRST = 8                # clusters that there is memory for at first
    # of all rows to all centers, from which a sweep is by bounds and approximate distances: to set that up, and to
    # update its tables, takes less than a tenth of the time of these exact distances
    MANY_DISTANCES = 100000
    FIRST_CLUSTERS = 4          # that the first sweep is taken to have on average


# ---- centers ---------------------------------------------------------------------------------------------------------


cdef struct DirectCenters:
    Py_ssize_t n
    Py_ssize_t d
    Py_ssize_t capacity
    double* columns         # d x capacity: value j of center k at [j * capacity + k]
    double* zero            # capacity: costs beside the distance, all 0


cdef int reserve_centers(DirectCenters* centers, Memory* memory, Py_ssize_t capacity) noexcept nogil:
    """Make the memory of the centers suffice for so many; those that are there stay."""
    cdef Py_ssize_t j, old = centers.capacity
    cdef bint first = centers.columns == NULL
    if capacity <= old:
        return OK
    if first:
        centers.columns = <double*> take(memory, centers.d, capacity, sizeof(double))
        centers.zero = <double*> take(memory, 1, capacity, sizeof(double))
        if centers.columns == NULL or centers.zero == NULL:
            return NO_MEMORY
    else:
        if not extend(memory, <void**> &centers.columns, centers.d * old * sizeof(double),
                      centers.d * capacity * sizeof(double)):
            return NO_MEMORY
        if not extend(memory, <void**> &centers.zero, old * sizeof(double), capacity * sizeof(double)):
            return NO_MEMORY
        # columns are farther apart now: the last one moves first
        for j in range(centers.d - 1, 0, -1):
            memcpy_back(centers.columns + j * capacity, centers.columns + j * old, centers.n)
    centers.capacity = capacity
    return OK


cdef void memcpy_back(double* target, const double* source, Py_ssize_t n) noexcept nogil:
    """Copy n numbers to a place behind theirs, which may overlap it."""
    cdef Py_ssize_t k
    for k in range(n - 1, -1, -1):
        target[k] = source[k]


cdef void set_center(DirectCenters* centers, Py_ssize_t k, const double* values, Py_ssize_t step) noexcept nogil:
    """Set center k to d values that lie ``step`` apart."""
    cdef Py_ssize_t j
    for j in range(centers.d):
        centers.columns[j * centers.capacity + k] = values[j * step]


cdef double distance_in_tile(const DirectCenters* centers, Py_ssize_t k, const double* x) noexcept nogil:
    """The exact squared distance of a row of a tile from center k."""
    cdef double total = 0.0, t
    cdef Py_ssize_t j
    for j in range(centers.d):
        t = x[j * TILE] - centers.columns[j * centers.capacity + k]
        total += t * t
    return total


cdef Py_ssize_t load_tile(const Rows* rows, Py_ssize_t start, double* x) noexcept nogil:
    """Read the rows from ``start`` on side by side, the last one as often as there is room; returns their number."""
    cdef Py_ssize_t lane, size = min(<Py_ssize_t> TILE, rows.n - start)
    for lane in range(TILE):
        read_row(rows, start + min(lane, size - 1), x + lane, TILE)
    return size


# ---- nearest centers -------------------------------------------------------------------------------------------------


cdef int nearest_centers(
    const Rows* rows, const double* centers, Py_ssize_t k, int* labels, double* squares
) noexcept nogil:
    """The nearest center of each row, the first one at a tie, and the squared distance to it."""
    cdef Memory memory
    cdef DirectCenters table
    cdef Rows of_centers
    cdef double[TILE] least
    cdef double[TILE] nearest
    cdef double* x
    cdef Py_ssize_t start = 0, size, lane, c
    cdef int status = check_rows(rows)
    if status != OK:
        return status
    if centers == NULL or labels == NULL or k < 1 or k > INT_MAX:
        return BAD_SIZE
    of_centers = plain_rows(centers, False, k, rows.d, rows.d, NULL)
    status = check_rows(&of_centers)
    if status != OK:
        return status
    if rows.n > MANY_DISTANCES // k and nearest_by_sweep(rows, centers, k, labels, squares):
        return OK
    memset(&memory, 0, sizeof(memory))
    memset(&table, 0, sizeof(table))
    table.d = rows.d
    x = <double*> take(&memory, rows.d, TILE, sizeof(double))
    status = NO_MEMORY if x == NULL else reserve_centers(&table, &memory, k)
    if status == OK:
        table.n = k
        for c in range(k):
            set_center(&table, c, centers + c * rows.d, 1)
        while start < rows.n:
            size = load_tile(rows, start, x)
            sc_least_block(x, rows.d, table.columns, table.capacity, k, table.zero, 0.0, least, nearest)
            for lane in range(size):
                labels[start + lane] = <int> nearest[lane]
                if nearest[lane] < 0.0 or not least[lane] < INFINITY:
                    status = OUT_OF_RANGE  # squares beyond float64
                if squares != NULL:
                    squares[start + lane] = least[lane]
            start += size
    free_all(&memory)
    return status


cdef bint nearest_by_sweep(
    const Rows* rows, const double* centers, Py_ssize_t k, int* labels, double* squares
) noexcept nogil:
    """The same by approximate distances first; returns whether there was memory, and numbers were in their range."""
    cdef Memory memory
    cdef DirectSweep sweep
    cdef Py_ssize_t c, j, d = rows.d
    cdef double reach = 0.0
    cdef bint done = False
    memset(&memory, 0, sizeof(memory))
    cdef double* low = <double*> take(&memory, 3, d, sizeof(double))
    if low != NULL:
        range_of_values(rows, False, low, low + d)
        for j in range(d):
            low[2 * d + j] = origin_of_column(low[j], low[d + j])
            reach = max(reach, max(low[d + j] - low[2 * d + j], low[2 * d + j] - low[j]))
            for c in range(k):
                reach = max(reach, fabs(centers[c * d + j] - low[2 * d + j]))
        if C_SMALLEST_REACH < reach < C_LARGEST_REACH:
            memset(labels, 0, rows.n * sizeof(int))
            done = direct_sweep.begin_sweep(&sweep, &memory, rows, labels, low + 2 * d, reach, 0.0, False)
            done = done and direct_sweep.set_centers(&sweep, centers, k)
    if done:
        direct_sweep.assign(&sweep)
        if squares != NULL:
            direct_sweep.write_squares(&sweep, squares)
    free_all(&memory)
    return done


# ---- means of labels -------------------------------------------------------------------------------------------------


cdef int means_of_labels(
    const Rows* rows, const int* labels, Py_ssize_t k, double* means, double* weights
) noexcept nogil:
    """The mean of the rows of each label 0..k-1, and their weight; NaN and 0 where there are none."""
    cdef DirectTable table
    cdef Py_ssize_t i, c, j
    cdef double error
    cdef int status = check_rows(rows)
    if status != OK:
        return status
    if labels == NULL or means == NULL or k < 1 or k > INT_MAX or overflows(k, rows.d):
        return BAD_SIZE
    for i in range(rows.n):
        if not -1 <= labels[i] < k:
            return BAD_VALUE
    status = begin_table(&table, rows, NULL, k)
    if status == OK:
        move_points(&table.rows, 0, rows.n, NULL, labels, &table.sums)
        for c in range(k):
            if center_of(&table.sums, c, False, means + c * rows.d, &error) == 0:
                for j in range(rows.d):
                    means[c * rows.d + j] = HUGE_VAL - HUGE_VAL
            if weights != NULL:
                weights[c] = sums_weight(&table.sums, c)
    free_all(&table.memory)
    return status


# ---- DP-means --------------------------------------------------------------------------------------------------------


cdef struct DirectFit:
    DirectTable table
    DirectCenters centers
    double lam
    Py_ssize_t cap          # largest number of clusters
    Py_ssize_t allowed      # clusters beyond which the caller's memory does not suffice
    int* labels             # n
    int* before             # n: labels of the sweep before
    double* x               # d x TILE: rows of a tile
    double* mean            # d
    int* remap              # new number of each cluster, of which there is memory for centers.capacity
    double total            # sum of w ||x - origin||^2
    bint moved              # whether a row of positive weight got another label in this sweep
    Py_ssize_t farthest     # row farthest beyond the penalty, -1: there is none
    double farthest_distance
    bint by_bounds          # sweeps are those of ``sweep``, which has the centers; centers.n is their number
    DirectSweep sweep


cdef int dp_means(
    const Rows* rows, double lam, bint delayed, Py_ssize_t max_clusters, int max_iter, int* labels, double* centers,
    Py_ssize_t capacity, Py_ssize_t* n_clusters, double* objective, int* n_iter
) noexcept nogil:
    """DP-means from the mean of the rows: DPMeans(lam, algorithm="serial" or "delayed").  See smallvar/cython_api.pxd.

    KJ12, Algorithm 1: a row opens a cluster where w ||x - c||^2 > lam for every center c. With delayed creation
    (Dinari & Freifeld 2022) a sweep opens one cluster at most, at the row farthest beyond the penalty.
    """
    cdef DirectFit fit
    cdef int status = check_rows(rows)
    cdef Py_ssize_t k, j
    if status != OK:
        return status
    if labels == NULL or centers == NULL or n_clusters == NULL or capacity < 1 or max_clusters < 0 or max_iter < 1:
        return BAD_SIZE
    if overflows(capacity, rows.d):
        return BAD_SIZE
    if not 0.0 <= lam < INFINITY or (lam == 0.0 and max_clusters == 0):
        return BAD_VALUE
    memset(&fit, 0, sizeof(fit))
    status = begin_table(&fit.table, rows, NULL, AT_FIRST)
    if status == OK:
        fit.lam, fit.cap = lam, INT_MAX if max_clusters == 0 else min(max_clusters, <Py_ssize_t> INT_MAX)
        # one more than the caller has memory for: the first cluster, at the mean, often loses all its rows
        fit.allowed, fit.labels = capacity + 1, labels
        status = begin_fit(&fit)
    if status == OK:
        status = run(&fit, delayed, max_iter, objective, n_iter)
    if status >= 0 and fit.centers.n > capacity:
        status = FULL
    if status >= 0:
        n_clusters[0] = fit.centers.n
        for k in range(fit.centers.n):
            for j in range(rows.d):
                centers[k * rows.d + j] = coordinate(&fit, k, j)
    free_all(&fit.table.memory)
    return status


cdef int begin_fit(DirectFit* fit) noexcept nogil:
    """One cluster of all rows, at their mean."""
    cdef Memory* memory = &fit.table.memory
    cdef Py_ssize_t n = fit.table.rows.n, d = fit.table.rows.d
    fit.centers.d = d
    fit.before = <int*> take(memory, 1, n, sizeof(int))
    fit.x = <double*> take(memory, d, TILE, sizeof(double))
    fit.mean = <double*> take(memory, 1, d, sizeof(double))
    fit.remap = <int*> take(memory, 1, AT_FIRST, sizeof(int))
    if fit.before == NULL or fit.x == NULL or fit.mean == NULL or fit.remap == NULL:
        return NO_MEMORY
    if reserve_centers(&fit.centers, memory, AT_FIRST) != OK:
        return NO_MEMORY
    memset(fit.labels, 0, n * sizeof(int))
    move_points(&fit.table.rows, 0, n, NULL, fit.labels, &fit.table.sums)
    mean_of_sums(&fit.table.sums, 0, fit.mean, 1)
    set_center(&fit.centers, 0, fit.mean, 1)
    fit.centers.n = 1
    fit.total = squared_error(fit, fit.table.origin)
    return OK


cdef inline double coordinate(const DirectFit* fit, Py_ssize_t k, Py_ssize_t j) noexcept nogil:
    """Value j of center k."""
    if fit.by_bounds:
        return fit.sweep.state.centers.coordinates[k * fit.centers.d + j]
    return fit.centers.columns[j * fit.centers.capacity + k]


cdef int run(DirectFit* fit, bint delayed, int max_iter, double* objective, int* n_iter) noexcept nogil:
    """Sweeps until nothing changes, or max_iter ends them, as Start.run has them."""
    cdef Stopping stopping
    cdef Py_ssize_t k_before, expected
    cdef double first = 0.0, previous = 0.0, value = 0.0
    cdef bint changed, opened
    cdef int status = OK
    begin_sweeps(&stopping, max_iter, 0.0, fit.table.rows.n)
    while should_continue(&stopping):
        k_before = fit.centers.n
        # the first sweep of KJ12 opens most clusters, so that each row meets many of them
        expected = max(k_before, FIRST_CLUSTERS) if stopping.n_iter == 0 and not delayed else k_before
        if not fit.by_bounds and fit.table.rows.n > MANY_DISTANCES // expected:
            status = begin_bounds(fit)
        if status == OK:
            status = sweep_by_bounds(fit, delayed) if fit.by_bounds else sweep_all(fit, delayed)
        if status != OK:
            return status
        opened = fit.centers.n > k_before
        changed = fit.moved or opened
        if changed or stopping.n_iter == 0:  # else the objective is that of the sweep before
            value = end_by_bounds(fit, k_before, delayed) if fit.by_bounds else move_centers(fit)
            if not value > C_CANCELLATION * fit.total:
                value = squared_error(fit, NULL)
            value += fit.lam * fit.centers.n
        if stopping.n_iter == 0:
            first = previous = value
        record_sweep(&stopping, value, previous, first, changed, opened, not changed, fit.centers.n)
        previous = value
    if not stopping.converged:  # labels of the nearest centers, and no empty cluster
        status = finish_by_bounds(fit) if fit.by_bounds else finish(fit)
        if status != OK:
            return status
    if n_iter != NULL:
        n_iter[0] = <int> stopping.n_iter
    if objective != NULL:
        objective[0] = squared_error(fit, NULL) + fit.lam * fit.centers.n
    return OK if stopping.converged else NOT_CONVERGED


# ---- sweeps by bounds ------------------------------------------------------------------------------------------------


cdef int begin_bounds(DirectFit* fit) noexcept nogil:
    """Sweeps are by bounds from now on."""
    cdef DirectTable* table = &fit.table
    cdef Py_ssize_t k, j, d = fit.centers.d
    cdef double* centers = <double*> take(&table.memory, fit.centers.n, d, sizeof(double))
    if centers == NULL:
        return NO_MEMORY
    for k in range(fit.centers.n):
        for j in range(d):
            centers[k * d + j] = coordinate(fit, k, j)
    if not direct_sweep.begin_sweep(
        &fit.sweep, &table.memory, &table.rows, fit.labels, table.origin, table.reach, table.rounding, True
    ) or not direct_sweep.set_centers(&fit.sweep, centers, fit.centers.n):
        return NO_MEMORY
    fit.by_bounds = True
    return OK


cdef int sweep_by_bounds(DirectFit* fit, bint delayed) noexcept nogil:
    """Rows join their nearest centers, or open clusters."""
    cdef DirectSweep* sweep = &fit.sweep
    cdef bint opened = False
    cdef bint there_is_memory = True
    if not delayed:
        there_is_memory = direct_sweep.create(sweep, fit.lam, min(fit.cap, fit.allowed + 1))
    elif fit.centers.n < fit.cap:
        there_is_memory = direct_sweep.assign_and_open(sweep, fit.lam, &opened)
    else:
        direct_sweep.assign(sweep)
    if not there_is_memory:
        return NO_MEMORY
    fit.centers.n = sweep.state.centers.n
    fit.moved = direct_sweep.count_moves(sweep) > 0
    return FULL if fit.centers.n > fit.allowed else reserve_sums(&fit.table, fit.centers.n)


cdef double end_by_bounds(DirectFit* fit, Py_ssize_t n_before, bint delayed) noexcept nogil:
    """Centers become the means of their rows, empty clusters are dropped; returns the error, a difference of sums."""
    cdef double error
    cdef bint opened = fit.centers.n > n_before
    direct_sweep.add_to_sums(&fit.sweep, delayed or not opened, &fit.table.sums)
    error = direct_sweep.move_centers(&fit.sweep, &fit.table.sums, fit.total, fit.mean, n_before, delayed and opened)
    fit.centers.n = fit.sweep.state.centers.n
    return error


cdef int finish_by_bounds(DirectFit* fit) noexcept nogil:
    """Labels of the nearest centers, and no empty cluster."""
    direct_sweep.assign(&fit.sweep)
    direct_sweep.add_to_sums(&fit.sweep, True, &fit.table.sums)
    if direct_sweep.drop_empty(&fit.sweep, &fit.table.sums):
        direct_sweep.assign(&fit.sweep)
    fit.centers.n = fit.sweep.state.centers.n
    return OK


# ---- sweeps over all distances ---------------------------------------------------------------------------------------


cdef int sweep_all(DirectFit* fit, bint delayed) noexcept nogil:
    """Rows join their nearest centers, or open clusters."""
    cdef int status
    memcpy(fit.before, fit.labels, fit.table.rows.n * sizeof(int))
    status = assign(fit, not delayed, delayed and fit.centers.n < fit.cap)
    return open_at(fit, fit.farthest) if status == OK and fit.farthest >= 0 else status


cdef int finish(DirectFit* fit) noexcept nogil:
    """Labels of the nearest centers, and no empty cluster."""
    cdef int status
    memcpy(fit.before, fit.labels, fit.table.rows.n * sizeof(int))
    status = assign(fit, False, False)
    move_points(&fit.table.rows, 0, fit.table.rows.n, fit.before, fit.labels, &fit.table.sums)
    return assign(fit, False, False) if drop_empty(fit) and status == OK else status


cdef int assign(DirectFit* fit, bint create, bint seek) noexcept nogil:
    """One sweep: each row joins its nearest center, or, with ``create``, opens a cluster where it exceeds the penalty.

    With ``seek`` the row farthest beyond the penalty is found.
    """
    cdef double[TILE] least
    cdef double[TILE] nearest
    cdef Rows* rows = &fit.table.rows
    cdef DirectCenters* centers = &fit.centers
    cdef Py_ssize_t start = 0, size, lane, i, k, new, first_new
    cdef double w, distance, new_distance
    cdef int status
    fit.moved, fit.farthest, fit.farthest_distance = False, -1, fit.lam
    while start < rows.n:
        size = load_tile(rows, start, fit.x)
        first_new = centers.n
        sc_least_block(fit.x, rows.d, centers.columns, centers.capacity, first_new, centers.zero, 0.0, least, nearest)
        for lane in range(size):
            if nearest[lane] < 0.0:  # no center is at a finite distance
                return OUT_OF_RANGE
            i, w, k = start + lane, weight_of(rows, start + lane), <Py_ssize_t> nearest[lane]
            distance = least[lane]
            for new in range(first_new, centers.n):  # opened by rows of this tile
                new_distance = distance_in_tile(centers, new, fit.x + lane)
                if new_distance < distance:
                    distance, k = new_distance, new
            if w * distance > fit.lam and distance > fit.table.rounding:
                if create and centers.n < fit.cap:
                    fit.labels[i] = -1
                    status = open_at(fit, i)
                    if status != OK:
                        return status
                    continue
                if seek and w * distance > fit.farthest_distance:
                    fit.farthest, fit.farthest_distance = i, w * distance
            if fit.labels[i] != k and w > 0.0:
                fit.moved = True
            fit.labels[i] = <int> k
        start += size
    return OK


cdef int open_at(DirectFit* fit, Py_ssize_t i) noexcept nogil:
    """Row i opens a cluster."""
    cdef DirectCenters* centers = &fit.centers
    cdef Py_ssize_t capacity = 2 * centers.capacity
    if centers.n == fit.allowed:
        return FULL
    if centers.n == centers.capacity:
        if not extend(&fit.table.memory, <void**> &fit.remap, centers.capacity * sizeof(int), capacity * sizeof(int)):
            return NO_MEMORY
        if reserve_centers(centers, &fit.table.memory, capacity) != OK or reserve_sums(&fit.table, capacity) != OK:
            return NO_MEMORY
    read_row(&fit.table.rows, i, fit.mean, 1)
    set_center(centers, centers.n, fit.mean, 1)
    fit.labels[i] = <int> centers.n
    centers.n += 1
    return OK


cdef double move_centers(DirectFit* fit) noexcept nogil:
    """Centers become the means of their rows, empty clusters are dropped; returns the error, a difference of sums."""
    cdef double error = fit.total
    cdef Py_ssize_t k, kept = 0, n = fit.centers.n
    move_points(&fit.table.rows, 0, fit.table.rows.n, fit.before, fit.labels, &fit.table.sums)
    for k in range(n):
        fit.remap[k] = -1
        if center_of(&fit.table.sums, k, False, fit.mean, &error) > 0:
            set_center(&fit.centers, kept, fit.mean, 1)
            keep(fit, k, kept)
            kept += 1
    end_moves(fit, n, kept)
    return error


cdef bint drop_empty(DirectFit* fit) noexcept nogil:
    """Drop clusters without a member of positive weight; the other centers stay. Returns whether there were any."""
    cdef Py_ssize_t j, k, kept = 0, n = fit.centers.n
    for k in range(n):
        fit.remap[k] = -1
        if fit.table.sums.count[k] > 0.0:
            for j in range(fit.centers.d):
                fit.centers.columns[j * fit.centers.capacity + kept] = fit.centers.columns[j * fit.centers.capacity + k]
            keep(fit, k, kept)
            kept += 1
    end_moves(fit, n, kept)
    return kept < n


cdef void keep(DirectFit* fit, Py_ssize_t k, Py_ssize_t kept) noexcept nogil:
    """Cluster k goes on as number ``kept``."""
    fit.remap[k] = <int> kept
    sums_copy(&fit.table.sums, kept, k)


cdef void end_moves(DirectFit* fit, Py_ssize_t n, Py_ssize_t kept) noexcept nogil:
    """Labels after n clusters have become fewer; sums of numbers that are free again are 0."""
    cdef Py_ssize_t i
    if kept == n:
        return
    sums_clear(&fit.table.sums, kept, n)
    for i in range(fit.table.rows.n):
        fit.labels[i] = max(0, fit.remap[fit.labels[i]])
    fit.centers.n = kept


cdef double squared_error(DirectFit* fit, const double* place) noexcept nogil:
    """The sum of the weighted squared distances from a place, or from the assigned centers (NULL), rounded once."""
    cdef Accumulator total
    cdef double[SQUARES] squares
    cdef const Rows* rows = &fit.table.rows
    cdef const double* c = place
    cdef Py_ssize_t i, j, m = 0
    memset(&total, 0, sizeof(total))
    if place == NULL and fit.by_bounds:
        direct_sweep.add_squares(&fit.sweep, total.digit)
        return accumulator_round(total.digit, 0, ACCUMULATOR_DIGITS)
    for i in range(rows.n):
        if place == NULL:
            for j in range(rows.d):
                fit.mean[j] = fit.centers.columns[j * fit.centers.capacity + fit.labels[i]]
            c = fit.mean
        if rows.single:
            squares[m] = squared_distance(point(<const float*> rows.x, rows, i), 1, c, rows.d)
        else:
            squares[m] = squared_distance(point(<const double*> rows.x, rows, i), 1, c, rows.d)
        squares[m] *= weight_of(rows, i)
        m += 1
        if m == SQUARES:
            accumulator_add(total.digit, squares, m)
            m = 0
    accumulator_add(total.digit, squares, m)
    return accumulator_round(total.digit, 0, ACCUMULATOR_DIGITS)
