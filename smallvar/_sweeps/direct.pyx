"""Clustering of tables in C memory: nearest centers, means of labels, and DP-means, without Python objects.

These functions are for callers that cluster many tables in loops of their own, without the GIL (see
smallvar/cython_api.pxd). They give the bits of the estimators: what a pass over the rows does is in nearest.pyx,
dpmeans.pyx and means.pyx, and sums are those of sums.pyx. Here are the checks, the memory, and the order of the passes,
for one thread and dense rows; the rules are those of RowsFrame, Layout, DPSweep and Start.run.

A function returns OK, or a negative number that says what is wrong with its arguments, and frees what it allocates. One
that returns a bint returns whether there was memory.
"""

from libc.limits cimport INT_MAX
from libc.math cimport HUGE_VAL, INFINITY, fabs, frexp, ldexp
from libc.string cimport memcpy, memset

from smallvar._sweeps.dpmeans cimport (
    NEW_CENTERS,
    Listed,
    farthest_listed,
    has_next,
    listed_points,
    next_step,
    open_alone,
    open_batch,
    penalty_limit,
)
from smallvar._sweeps.means cimport (
    add_chunk,
    add_squares_of_chunk,
    center_of,
    count_moves,
    drop_empty_centers,
    follow_centers,
    shift_centers,
)
from smallvar._sweeps.memory cimport Memory, free_all, overflows, take, widen
from smallvar._sweeps.nearest cimport float64_pays
from smallvar._sweeps.nearest_sweep cimport Sweep, assign_chunks, begin_sweep, reserve, set_centers, use_float64
from smallvar._sweeps.ranges cimport chunks_of, count_small_of_chunk, range_of_values
from smallvar._sweeps.rows cimport Rows, point, real_x
from smallvar._sweeps.state cimport (
    BIG, CHUNK, Centers, ChunkResults, State, record_move, squared_distance
)
from smallvar._sweeps.stopping cimport Stopping, begin_sweeps, record_sweep, should_continue
from smallvar._sweeps.sums cimport (
    ACCUMULATOR_DIGITS,
    RARE_ONE_IN,
    Accumulator,
    Bins,
    accumulator_round,
    add_bin,
    begin_bins,
    limits_of_bins,
    magic_of_bins,
    mean_of_sums,
    move_points,
    origin_of_column,
    sums_clear,
    sums_t,
    sums_weight,
)
from smallvar._sweeps.tolerances cimport (
    C_CANCELLATION,
    C_COLUMN_ROUNDING,
    C_LARGEST_ERROR,
    C_LARGEST_REACH,
    C_LARGEST_WEIGHT,
    C_SMALLEST_REACH,
    C_SMALLEST_WEIGHT,
)

# ---- rows ------------------------------------------------------------------------------------------------------------


cdef Rows plain_rows(
    const void* x, bint single, Py_ssize_t n, Py_ssize_t d, Py_ssize_t stride, const double* weight
) noexcept nogil:
    """n rows of d numbers each, ``stride`` apart, float32 or float64; weights, or NULL: 1 each."""
    cdef Rows rows
    memset(&rows, 0, sizeof(rows))
    rows.x, rows.single, rows.n, rows.d, rows.row, rows.col, rows.weight = x, single, n, d, stride, 1, weight
    return rows


cdef bint are_finite(const Rows* rows, const real_x* x) noexcept nogil:
    """Whether no number of the rows is NaN or infinite."""
    cdef bint one_piece = rows.row == rows.d
    cdef Py_ssize_t size = rows.n * rows.d if one_piece else rows.d, i, j, l
    cdef const real_x* row
    cdef real_x[8] zero                 # x - x is NaN where x is not finite; eight sums do not wait for each other
    for i in range(1 if one_piece else rows.n):
        row, j = point(x, rows, i), 0
        for l in range(8):
            zero[l] = 0
        while j + 8 <= size:
            for l in range(8):
                zero[l] += row[j + l] - row[j + l]
            j += 8
        while j < size:
            zero[0] += row[j] - row[j]
            j += 1
        for l in range(8):
            if zero[l] != 0:
                return False
    return True


cdef int check_rows(const Rows* rows) noexcept nogil:
    """OK where there are rows of finite numbers, and weights >= 0 that are not all 0."""
    cdef Py_ssize_t i
    cdef double largest = 0.0
    cdef int status = OK
    if rows.x == NULL or rows.n < 1 or rows.d < 1 or rows.row < rows.d or overflows(rows.n, rows.row):
        return BAD_SIZE
    if not (are_finite(rows, <const float*> rows.x) if rows.single else are_finite(rows, <const double*> rows.x)):
        return BAD_VALUE
    if rows.weight == NULL:
        return OK
    for i in range(rows.n):
        if not 0.0 <= rows.weight[i] < INFINITY:
            return BAD_VALUE
        if 0.0 < rows.weight[i] < C_SMALLEST_WEIGHT or rows.weight[i] > C_LARGEST_WEIGHT:
            status = OUT_OF_RANGE
        largest = max(largest, rows.weight[i])
    return status if largest > 0.0 else BAD_VALUE


# ---- the frame and the sums of a table -------------------------------------------------------------------------------


cdef int begin_table(DirectTable* table, const Rows* rows, const double* sums_from, Py_ssize_t capacity) noexcept nogil:
    """Set up checked rows as RowsFrame and Layout do, with memory for the sums of so many clusters.

    sums_from : IN d: the origin of the sums, or NULL: a round point near the rows

    The caller frees ``table.memory``, also where this fails.
    """
    cdef Py_ssize_t i, j, n_used = 0, d = rows.d
    cdef double lightest = HUGE_VAL, heaviest = 0.0, total = 0.0, reach = 0.0, rounding
    cdef bint ones = True, zeros = False
    cdef double *low
    cdef double *high
    memset(table, 0, sizeof(table[0]))
    table.rows = rows[0]
    if rows.weight != NULL:
        for i in range(rows.n):
            if rows.weight[i] > 0.0:
                n_used += 1
                lightest, heaviest = min(lightest, rows.weight[i]), max(heaviest, rows.weight[i])
            total += rows.weight[i]
            ones, zeros = ones and rows.weight[i] == 1.0, zeros or rows.weight[i] == 0.0
        if ones:
            table.rows.weight = NULL  # as check_weights has it
    if table.rows.weight == NULL:
        n_used, lightest, heaviest, total = rows.n, 0.0, 0.0, 0.0
    low = <double*> take(&table.memory, 2, d, sizeof(double))
    table.origin = <double*> take(&table.memory, 1, d, sizeof(double))
    if low == NULL or table.origin == NULL:
        return NO_MEMORY
    high = low + d
    range_of_values(&table.rows, False, low, high)
    # the spread of all rows about the origin of those that have weight
    if zeros:
        range_of_values(&table.rows, True, low, high)
    for j in range(d):
        table.origin[j] = origin_of_column(low[j], high[j]) if sums_from == NULL else sums_from[j]
        rounding = C_COLUMN_ROUNDING * max(fabs(low[j]), fabs(high[j])) if high[j] > low[j] else 0.0
        table.rounding += rounding * rounding
    if zeros:
        reach = reach_of_rows(&table.rows, table.origin)
    else:
        for j in range(d):
            reach = max(reach, max(high[j] - table.origin[j], table.origin[j] - low[j]))
    table.reach = reach
    if (reach > 0.0 and not C_SMALLEST_REACH < reach < C_LARGEST_REACH) or total * reach * reach > C_LARGEST_ERROR:
        return OUT_OF_RANGE
    return begin_sums(table, low, high, n_used, lightest, heaviest, capacity)


cdef double reach_of_rows(const Rows* rows, const double* origin) noexcept nogil:
    """The largest difference of any number of the rows from the origin of its column."""
    cdef double reach = 0.0, x
    cdef Py_ssize_t i, j
    for i in range(rows.n):
        for j in range(rows.d):
            x = point(<const float*> rows.x, rows, i)[j] if rows.single else point(<const double*> rows.x, rows, i)[j]
            reach = max(reach, fabs(x - origin[j]))
    return reach


cdef int begin_sums(
    DirectTable* table, const double* low, const double* high, Py_ssize_t n_used, double lightest, double heaviest,
    Py_ssize_t capacity
) noexcept nogil:
    """Choose the bins of the sums, as Layout does, and make memory for so many clusters."""
    cdef Py_ssize_t d = table.rows.d, chunk, j
    cdef Bins bins
    cdef bint again
    cdef double* magic
    cdef double* reach = <double*> take(&table.memory, 4, d + 1, sizeof(double))
    if reach == NULL:
        return NO_MEMORY
    cdef double* limit = reach + d
    cdef double* small = reach + 2 * d
    cdef double* unit = reach + 3 * d
    if not begin_bins(low, high, table.origin, d, n_used, lightest, heaviest, reach, unit, &bins):
        return OUT_OF_RANGE
    again = True
    while again:
        limits_of_bins(reach, d, &bins, limit)
        for j in range(d):
            small[j] = 0.0
        for chunk in range(chunks_of(&table.rows)):
            count_small_of_chunk(&table.rows, chunk, 0, table.origin, limit, small)
        again = add_bin(small, d, <double> n_used / RARE_ONE_IN, &bins)
    magic = <double*> take(&table.memory, bins.count, d + 1, sizeof(double))
    table.sums.cell = <double*> take(&table.memory, capacity * bins.count, d + 1, sizeof(double))
    table.sums.count = <double*> take(&table.memory, 1, capacity, sizeof(double))
    if magic == NULL or table.sums.cell == NULL or table.sums.count == NULL:
        return NO_MEMORY
    magic_of_bins(unit, d, &bins, magic)
    table.sums.d, table.sums.bins, table.sums.weighted = d, bins.count, table.rows.weight != NULL
    table.sums.origin, table.sums.magic, table.capacity = table.origin, magic, capacity
    return OK


cdef int reserve_sums(DirectTable* table, Py_ssize_t k) noexcept nogil:
    """Make the memory of the sums suffice for k clusters; those that are there stay, and new memory is 0."""
    cdef Py_ssize_t size = table.sums.bins * (table.sums.d + 1), old = table.capacity, new = 2 * k + 8
    if k <= old:
        return OK
    if not widen(&table.memory, <void**> &table.sums.cell, 1, old * size, new * size, sizeof(double)):
        return NO_MEMORY
    if not widen(&table.memory, <void**> &table.sums.count, 1, old, new, sizeof(double)):
        return NO_MEMORY
    table.capacity = new
    return OK


# ---- passes ----------------------------------------------------------------------------------------------------------


cdef double scale_of(double reach) noexcept nogil:
    """The power of two that brings numbers up to ``reach`` into [-1, 1], as Frame has it."""
    cdef int exponent = 0
    cdef double fraction = frexp(reach, &exponent)
    return ldexp(1.0, (fraction == 0.5) - exponent) if reach > 0.0 else 1.0


cdef void end_pass(Sweep* sweep) noexcept nogil:
    """Shifts are taken off the bounds; approximate distances in float64 from now on, if too many are ambiguous."""
    sweep.state.bounds.shifts_taken = True
    if float64_pays(&sweep.state, sweep.n_chunks):
        use_float64(sweep)


cdef void assign(Sweep* sweep) noexcept nogil:
    """Each point joins its nearest center."""
    assign_chunks(sweep, 0, sweep.n_chunks)
    end_pass(sweep)


cdef bint create(Sweep* sweep, double lam, Py_ssize_t max_clusters) noexcept nogil:
    """One sweep of KJ12, Algorithm 1, as DPSweep.create."""
    cdef State* state = &sweep.state
    cdef Listed listed
    cdef Py_ssize_t position = 0, end, before
    state.penalty.lam = lam
    state.penalty.find_exceeding = state.centers.n < max_clusters
    state.penalty.limit = penalty_limit(state, lam) if state.penalty.find_exceeding else BIG
    while position < state.points.n:
        end, before = min(state.points.n, position + sweep.step), state.centers.n
        assign_chunks(sweep, position // CHUNK, (end + CHUNK - 1) // CHUNK)
        if state.penalty.find_exceeding:
            # in the order of the points, as each new center may be near to points that come later
            listed = listed_points(position, end)
            while has_next(state, &listed):
                if sweep.capacity < state.centers.n + NEW_CENTERS:
                    if not reserve(sweep, 2 * state.centers.n + NEW_CENTERS):
                        return False
                if not open_batch(state, &listed, max_clusters, 1):
                    break
            if state.centers.n >= max_clusters:
                state.penalty.find_exceeding, state.penalty.limit = False, BIG
        sweep.step = next_step(sweep.step, state.centers.n - before)
        position = end
    state.penalty.find_exceeding, state.penalty.limit = False, BIG
    end_pass(sweep)
    return True


cdef bint assign_and_open(Sweep* sweep, double lam) noexcept nogil:
    """One sweep of delayed creation: the point farthest beyond the penalty, if any, opens a cluster at the end."""
    cdef State* state = &sweep.state
    cdef const ChunkResults* results = &state.results
    cdef double distance = 0.0
    cdef Py_ssize_t i, m, first
    cdef bint is_listed = False
    if not reserve(sweep, state.centers.n + 1):
        return False
    state.penalty.lam, state.penalty.find_farthest = lam, True
    assign_chunks(sweep, 0, sweep.n_chunks)
    state.penalty.find_farthest = False
    i = farthest_listed(state, &distance)
    if i >= 0:
        first = i // CHUNK * CHUNK
        for m in range(results.n_moved[i // CHUNK]):
            is_listed |= first + results.moved[first + m] == i
        if not is_listed:
            record_move(state, i, state.points.labels[i])  # to where open_alone puts it
        open_alone(state, i, 1)
    end_pass(sweep)
    return True


# ---- sums and centers ------------------------------------------------------------------------------------------------


cdef void add_to_sums(Sweep* sweep, bint moves, const sums_t* sums) noexcept nogil:
    """Sums follow the labels: by the moves that are listed, or made anew of all points. The lists are empty then."""
    cdef Py_ssize_t c
    if not moves:
        sums_clear(sums, 0, sweep.state.centers.n)
    for c in range(sweep.n_chunks):
        add_chunk(&sweep.state, c, moves, sums)
    memset(sweep.state.results.n_moved, 0, sweep.n_chunks * sizeof(int))


cdef double move_centers(
    Sweep* sweep, const sums_t* sums, double total, double* mean, Py_ssize_t n_before, bint one_is_new
) noexcept nogil:
    """Means from sums, empty clusters dropped, bounds and tables made ready; returns the error, from the sums.

    total : sum of w ||x - origin||^2;  mean : d, scratch;  n_before, one_is_new : see follow_centers
    """
    cdef Py_ssize_t n_unassigned, n_after = sweep.state.centers.n
    cdef double error = shift_centers(sweep, sums, False, total, mean, &n_unassigned)
    sums_clear(sums, sweep.state.centers.n, n_after)
    follow_centers(sweep, n_before, n_after, one_is_new)
    return error


cdef double squared_error(const Sweep* sweep, const double* place) noexcept nogil:
    """The sum of the weighted squared distances from a place, or from the assigned centers (NULL), rounded once."""
    cdef Accumulator total
    cdef Py_ssize_t c
    memset(&total, 0, sizeof(total))
    for c in range(sweep.n_chunks):
        add_squares_of_chunk(&sweep.state, c, place, total.digit, 0)
    return accumulator_round(total.digit, 0, ACCUMULATOR_DIGITS)


# ---- nearest centers -------------------------------------------------------------------------------------------------


cdef int nearest_centers(
    const Rows* rows, const double* centers, Py_ssize_t k, int* labels, double* squares
) noexcept nogil:
    """The nearest center of each row, the first one at a tie, and the squared distance to it."""
    cdef Memory memory
    cdef Rows of_centers
    cdef int status = check_rows(rows)
    if status != OK:
        return status
    if centers == NULL or labels == NULL or k < 1 or k > INT_MAX:
        return BAD_SIZE
    of_centers = plain_rows(centers, False, k, rows.d, rows.d, NULL)
    status = check_rows(&of_centers)
    if status == OK:
        memset(&memory, 0, sizeof(memory))
        status = nearest_in(&memory, rows, centers, k, labels, squares)
        free_all(&memory)
    return status


cdef int nearest_in(
    Memory* memory, const Rows* rows, const double* centers, Py_ssize_t k, int* labels, double* squares
) noexcept nogil:
    """The same by a sweep in this memory, where numbers are in the range of one."""
    cdef Sweep sweep
    cdef Py_ssize_t c, j, d = rows.d
    cdef double reach = 0.0
    cdef double* low = <double*> take(memory, 3, d, sizeof(double))
    if low == NULL:
        return NO_MEMORY
    range_of_values(rows, False, low, low + d)
    for j in range(d):
        low[2 * d + j] = origin_of_column(low[j], low[d + j])
        reach = max(reach, max(low[d + j] - low[2 * d + j], low[2 * d + j] - low[j]))
        for c in range(k):
            reach = max(reach, fabs(centers[c * d + j] - low[2 * d + j]))
    if not C_SMALLEST_REACH < reach < C_LARGEST_REACH:
        return nearest_one_by_one(rows, centers, k, labels, squares)
    memset(labels, 0, rows.n * sizeof(int))
    if not begin_sweep(&sweep, memory, rows, labels, low + 2 * d, scale_of(reach), 0.0, False, 1):
        return NO_MEMORY
    if not set_centers(&sweep, centers, k):
        return NO_MEMORY
    assign(&sweep)
    if squares != NULL:
        for c in range(sweep.n_chunks):
            sweep.state.backend.squares(&sweep.state, c, NULL, squares + c * CHUNK, 0)
    return OK


cdef int nearest_one_by_one(
    const Rows* rows, const double* centers, Py_ssize_t k, int* labels, double* squares
) noexcept nogil:
    """The same by all exact distances, for numbers of any size; OUT_OF_RANGE where squares leave float64."""
    cdef Py_ssize_t i, c, d = rows.d
    cdef double distance, least
    cdef int status = OK
    for i in range(rows.n):
        least, labels[i] = INFINITY, -1
        for c in range(k):
            if rows.single:
                distance = squared_distance(point(<const float*> rows.x, rows, i), 1, centers + c * d, d)
            else:
                distance = squared_distance(point(<const double*> rows.x, rows, i), 1, centers + c * d, d)
            if distance < least:
                least, labels[i] = distance, <int> c
        if labels[i] < 0:
            status = OUT_OF_RANGE
        if squares != NULL:
            squares[i] = least
    return status


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
    Sweep sweep
    double lam
    Py_ssize_t cap          # largest number of clusters
    Py_ssize_t allowed      # clusters beyond which the caller's memory does not suffice
    double* mean            # d
    double total            # sum of w ||x - origin||^2


cdef int dp_means(
    const Rows* rows, double lam, bint delayed, Py_ssize_t max_clusters, int max_iter, int* labels, double* centers,
    Py_ssize_t capacity, Py_ssize_t* n_clusters, double* objective, int* n_iter
) noexcept nogil:
    """DP-means from the mean of the rows: DPMeans(lam, algorithm="serial" or "delayed").  See smallvar/cython_api.pxd.

    KJ12, Algorithm 1: a row opens a cluster where w ||x - c||^2 > lam for every center c. With delayed creation
    (Dinari & Freifeld 2022) a sweep opens one cluster at most, at the row farthest beyond the penalty.
    """
    cdef DirectFit fit
    cdef const State* state = &fit.sweep.state
    cdef int status = check_rows(rows)
    if status != OK:
        return status
    if labels == NULL or centers == NULL or n_clusters == NULL or capacity < 1 or max_clusters < 0 or max_iter < 1:
        return BAD_SIZE
    if overflows(capacity, rows.d):
        return BAD_SIZE
    if not 0.0 <= lam < INFINITY or (lam == 0.0 and max_clusters == 0):
        return BAD_VALUE
    status = begin_table(&fit.table, rows, NULL, AT_FIRST)
    if status == OK:
        fit.lam, fit.cap = lam, INT_MAX if max_clusters == 0 else min(max_clusters, <Py_ssize_t> INT_MAX)
        # one more than the caller has memory for: the first cluster, at the mean, often loses all its rows
        fit.allowed = capacity + 1
        status = OK if begin_fit(&fit, labels) else NO_MEMORY
    if status == OK:
        status = run(&fit, delayed, max_iter, objective, n_iter)
    if status >= 0 and state.centers.n > capacity:
        status = FULL
    if status >= 0:
        n_clusters[0] = state.centers.n
        memcpy(centers, state.centers.coordinates, state.centers.n * rows.d * sizeof(double))
    free_all(&fit.table.memory)
    return status


cdef bint begin_fit(DirectFit* fit, int* labels) noexcept nogil:
    """One cluster of all rows, at their mean."""
    cdef DirectTable* table = &fit.table
    fit.mean = <double*> take(&table.memory, 1, table.rows.d, sizeof(double))
    if fit.mean == NULL:
        return False
    memset(labels, 0, table.rows.n * sizeof(int))
    if not begin_sweep(
        &fit.sweep, &table.memory, &table.rows, labels, table.origin, scale_of(table.reach), table.rounding, True, 1
    ):
        return False
    move_points(&table.rows, 0, table.rows.n, NULL, labels, &table.sums)
    mean_of_sums(&table.sums, 0, fit.mean, 1)
    fit.total = squared_error(&fit.sweep, table.origin)
    return set_centers(&fit.sweep, fit.mean, 1)


cdef int run(DirectFit* fit, bint delayed, int max_iter, double* objective, int* n_iter) noexcept nogil:
    """Sweeps until nothing changes, or max_iter ends them, as Start.run has them."""
    cdef Sweep* sweep = &fit.sweep
    cdef Centers* centers = &sweep.state.centers
    cdef Stopping stopping
    cdef Py_ssize_t k_before
    cdef double first = 0.0, previous = 0.0, value = 0.0
    cdef bint changed, opened
    cdef int status
    begin_sweeps(&stopping, max_iter, 0.0, fit.table.rows.n)
    while should_continue(&stopping):
        k_before = centers.n
        status = assign_or_open(fit, delayed)
        if status != OK:
            return status
        opened = centers.n > k_before
        changed = opened or count_moves(sweep) > 0
        if changed or stopping.n_iter == 0:  # else the objective is that of the sweep before
            add_to_sums(sweep, delayed or not opened, &fit.table.sums)
            value = move_centers(sweep, &fit.table.sums, fit.total, fit.mean, k_before, delayed and opened)
            if not value > C_CANCELLATION * fit.total:
                value = squared_error(sweep, NULL)
            value += fit.lam * centers.n
        if stopping.n_iter == 0:
            first = previous = value
        record_sweep(&stopping, value, previous, first, changed, opened, not changed, centers.n)
        previous = value
    if not stopping.converged:  # labels of the nearest centers, and no empty cluster
        assign(sweep)
        add_to_sums(sweep, True, &fit.table.sums)
        k_before = centers.n
        if drop_empty_centers(sweep, &fit.table.sums) < k_before:
            assign(sweep)
    if n_iter != NULL:
        n_iter[0] = <int> stopping.n_iter
    if objective != NULL:
        objective[0] = squared_error(sweep, NULL) + fit.lam * centers.n
    return OK if stopping.converged else NOT_CONVERGED


cdef int assign_or_open(DirectFit* fit, bint delayed) noexcept nogil:
    """Rows join their nearest centers, or open clusters."""
    cdef Sweep* sweep = &fit.sweep
    cdef bint there_is_memory = True
    if not delayed:
        there_is_memory = create(sweep, fit.lam, min(fit.cap, fit.allowed + 1))
    elif sweep.state.centers.n < fit.cap:
        there_is_memory = assign_and_open(sweep, fit.lam)
    else:
        assign(sweep)
    if not there_is_memory:
        return NO_MEMORY
    return FULL if sweep.state.centers.n > fit.allowed else reserve_sums(&fit.table, sweep.state.centers.n)
