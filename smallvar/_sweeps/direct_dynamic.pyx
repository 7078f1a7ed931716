"""D-Means in C memory (Campbell, Kulis & How, section 4): one step after the other, without Python objects.

The same clusters as DynamicStep (dynamic.pyx) and MovingClusters (_time/moving.py) make, for one order of the points:
that given. Here points are visited one by one, and each meets all clusters. Letters are those of dynamic.pyx.
"""

from libc.math cimport HUGE_VAL, INFINITY, fabs
from libc.stdint cimport int64_t
from libc.stdlib cimport calloc, free
from libc.string cimport memcpy, memset

from smallvar._sweeps.direct cimport (
    BAD_SIZE,
    BAD_VALUE,
    NO_MEMORY,
    NOT_CONVERGED,
    OK,
    OUT_OF_RANGE,
    DirectTable,
    begin_table,
    check_rows,
    reserve_sums,
)
from smallvar._sweeps.direct_memory cimport Memory, extend, free_all, take
from smallvar._sweeps.in_order cimport sc_least, squared_distance
from smallvar._sweeps.rows cimport Rows, read_row, value_of, weight_of
from smallvar._sweeps.sums cimport (
    ACCUMULATOR_DIGITS,
    Accumulator,
    accumulator_add,
    accumulator_round,
    move_points,
    sums_quotient,
    sums_total,
    sums_weight,
)
from smallvar._sweeps.tolerances cimport C_LARGEST_ERROR, C_LARGEST_REACH, C_LARGEST_WEIGHT_RATIO, C_SMALLEST_REACH

cdef enum:
    SQUARES = 512           # squared distances that are added up at a time


# ---- the state -------------------------------------------------------------------------------------------------------


cdef DynamicMeans* new_state(Py_ssize_t d, double lam, double q, double tau) noexcept nogil:
    """A state before the first step; NULL where an argument is wrong or there is no memory."""
    cdef DynamicMeans* state
    if d < 1 or not (0.0 < lam < INFINITY and 0.0 <= q < INFINITY and 0.0 <= tau < INFINITY):
        return NULL
    state = <DynamicMeans*> calloc(1, sizeof(DynamicMeans))
    if state != NULL:
        state.d, state.lam, state.q, state.tau = d, lam, q, tau
    return state


cdef void free_state(DynamicMeans* state) noexcept nogil:
    """Free a state; NULL is none."""
    if state != NULL:
        free_all(&state.old.memory)
        free(state)


cdef int reserve_clusters(OldClusters* clusters, Py_ssize_t n, Py_ssize_t d) noexcept nogil:
    """Memory for n clusters; the caller frees it, also where this fails."""
    memset(clusters, 0, sizeof(clusters[0]))
    clusters.centers = <double*> take(&clusters.memory, n, d, sizeof(double))
    clusters.weights = <double*> take(&clusters.memory, 1, n, sizeof(double))
    clusters.ages = <int64_t*> take(&clusters.memory, 1, n, sizeof(int64_t))
    clusters.ids = <int64_t*> take(&clusters.memory, 1, n, sizeof(int64_t))
    return OK if clusters.memory.n == 4 else NO_MEMORY


cdef bint dies(const DynamicMeans* state, int64_t age) noexcept nogil:
    """Whether a cluster of this age is forgotten: to revive it would cost more than a new one."""
    return state.q * age > state.lam


# ---- a step ----------------------------------------------------------------------------------------------------------


cdef struct DirectStep:
    DirectTable table
    Py_ssize_t d
    Py_ssize_t n_old        # old clusters that were alive before the step; they come first
    Py_ssize_t k            # clusters, with those opened in this step
    Py_ssize_t capacity     # of all tables over clusters
    double lam
    # of each old cluster: its weight faded by age, and Q D, the price of reviving it
    double* gamma
    double* price
    const double* old_centers
    # of each cluster
    int64_t* number         # its place among the old ones, or the id of a new one
    double* columns         # d x capacity: the center that points pay for
    double* offset          # joining costs offset + factor ||y - c||^2 for a point of weight 1
    double* factor
    double* factors         # the same for a point of another weight
    double* cost            # scratch
    double* theta           # capacity x d: means after a sweep
    Py_ssize_t* count       # points
    # of each point
    int* label
    double* y               # d: one point
    double* revived         # d: scratch
    double fixed            # the objective but for the distances of points to their centers


cdef int step(
    DynamicMeans* state, const Rows* rows, int64_t elapsed, int max_iter, int64_t* ids, double* objective, int* n_iter
) noexcept nogil:
    """One step of D-Means, ``elapsed`` after the last; see smallvar/cython_api.pxd. A failed one leaves the state.

    Rows n = 0 is a step without points.
    """
    cdef DirectStep work
    cdef OldClusters after
    cdef int status = check_step(state, rows, elapsed, max_iter, ids)
    cdef double value = 0.0
    cdef int sweeps = 0
    if status != OK:
        return status
    memset(&work, 0, sizeof(work))
    memset(&after, 0, sizeof(after))
    status = begin_step(&work, state, rows, elapsed)
    if status == OK and rows.n > 0:
        status = run(&work, max_iter, &value, &sweeps)
    if status >= 0:
        if reserve_clusters(&after, max(<Py_ssize_t> 1, work.k), state.d) != OK:
            status = NO_MEMORY
        else:
            end_step(&work, state, elapsed, &after, ids)
            state.old, after = after, state.old
            if objective != NULL:
                objective[0] = value
            if n_iter != NULL:
                n_iter[0] = sweeps
    free_all(&after.memory)
    free_all(&work.table.memory)
    return status


cdef int check_step(
    const DynamicMeans* state, const Rows* rows, int64_t elapsed, int max_iter, const int64_t* ids
) noexcept nogil:
    """OK where a step can be made of these arguments."""
    cdef Py_ssize_t i, j
    cdef double reach = 0.0, lightest = HUGE_VAL, heaviest = 0.0, total = 0.0
    cdef int status
    if state == NULL or rows.n < 0 or elapsed < 1 or elapsed > 0x7fffffff or max_iter < 1:
        return BAD_SIZE
    if rows.n == 0:
        return OK
    if ids == NULL or rows.d != state.d:
        return BAD_SIZE
    status = check_rows(rows)
    if status != OK:
        return status
    for i in range(rows.n):
        for j in range(rows.d):
            reach = max(reach, fabs(value_of(rows, i, j)))
        lightest, heaviest = min(lightest, weight_of(rows, i)), max(heaviest, weight_of(rows, i))
        total += weight_of(rows, i)
    if not lightest > 0.0:
        return BAD_VALUE
    if heaviest > C_LARGEST_WEIGHT_RATIO * lightest:
        return OUT_OF_RANGE
    if reach > 0.0 and not C_SMALLEST_REACH < reach < C_LARGEST_REACH:
        return OUT_OF_RANGE
    return OUT_OF_RANGE if rows.weight != NULL and total * reach * reach > C_LARGEST_ERROR else OK


cdef int begin_step(DirectStep* work, const DynamicMeans* state, const Rows* rows, int64_t elapsed) noexcept nogil:
    """Set up the old clusters that are alive, and memory for points and clusters."""
    cdef const OldClusters* old = &state.old
    cdef Memory* memory = &work.table.memory
    cdef Py_ssize_t k, d = state.d, n = max(<Py_ssize_t> 1, old.n)
    cdef double* zeros
    cdef int64_t age
    cdef int status
    work.d, work.lam, work.old_centers, work.capacity = d, state.lam, old.centers, old.n + 8
    if rows.n > 0:
        zeros = <double*> calloc(d, sizeof(double))
        if zeros == NULL:
            return NO_MEMORY
        # sums from 0: theta is a mean of points and phi
        status = begin_table(&work.table, rows, zeros, work.capacity)
        free(zeros)
        if status != OK:
            return status
    work.number = <int64_t*> take(memory, 1, work.capacity, sizeof(int64_t))
    work.gamma = <double*> take(memory, 2, n, sizeof(double))
    work.label = <int*> take(memory, 1, rows.n, sizeof(int))
    work.y = <double*> take(memory, 2, d, sizeof(double))
    work.columns = <double*> take(memory, d, work.capacity, sizeof(double))
    work.offset = <double*> take(memory, 4, work.capacity, sizeof(double))
    work.theta = <double*> take(memory, d, work.capacity, sizeof(double))
    work.count = <Py_ssize_t*> take(memory, 1, work.capacity, sizeof(Py_ssize_t))
    if work.number == NULL or work.gamma == NULL or work.label == NULL or work.y == NULL:
        return NO_MEMORY
    if work.columns == NULL or work.offset == NULL or work.theta == NULL or work.count == NULL:
        return NO_MEMORY
    set_parts(work)
    work.price, work.revived = work.gamma + n, work.y + d
    for k in range(old.n):
        age = old.ages[k] + elapsed - 1
        if elapsed > 1 and dies(state, age):
            continue  # in the gap before this step
        work.number[work.n_old] = k
        # gamma_k = 1 / (1 / v_k + tau D_k); rounding may take Q D beyond lam
        work.gamma[work.n_old] = 1.0 / (1.0 / old.weights[k] + state.tau * age)
        work.price[work.n_old] = min(state.q * age, state.lam)
        work.n_old += 1
    work.k = work.n_old
    return OK


cdef void set_parts(DirectStep* work) noexcept nogil:
    """The four tables that share a block."""
    work.factor = work.offset + work.capacity
    work.factors = work.offset + 2 * work.capacity
    work.cost = work.offset + 3 * work.capacity


cdef int run(DirectStep* work, int max_iter, double* objective, int* n_iter) noexcept nogil:
    """Sweeps until the objective stops falling, as DynamicStep.run has them."""
    cdef Py_ssize_t i, k, changes, n = work.table.rows.n
    cdef double previous = HUGE_VAL
    cdef int status
    for i in range(n):
        work.label[i] = -1
    for k in range(work.n_old):
        retire(work, k)
    while True:
        if n_iter[0] > 0:
            objective[0] = work.fixed + total_distance(work)
            if not objective[0] < previous:
                return OK
            if n_iter[0] >= max_iter:
                return NOT_CONVERGED
            previous = objective[0]
        changes = 0
        for i in range(n):
            if work.k == work.capacity:
                status = grow(work)
                if status != OK:
                    return status
            changes += visit(work, i)
        n_iter[0] += 1
        if changes == 0:
            return OK
        move_centers(work)


cdef int grow(DirectStep* work) noexcept nogil:
    """Twice the memory for clusters."""
    cdef Memory* memory = &work.table.memory
    cdef Py_ssize_t j, k, part, old = work.capacity, new = 2 * old
    cdef bint enough = (
        extend(memory, <void**> &work.columns, work.d * old * sizeof(double), work.d * new * sizeof(double))
        and extend(memory, <void**> &work.offset, 4 * old * sizeof(double), 4 * new * sizeof(double))
        and extend(memory, <void**> &work.theta, work.d * old * sizeof(double), work.d * new * sizeof(double))
        and extend(memory, <void**> &work.number, old * sizeof(int64_t), new * sizeof(int64_t))
        and extend(memory, <void**> &work.count, old * sizeof(Py_ssize_t), new * sizeof(Py_ssize_t))
    )
    if not enough or reserve_sums(&work.table, new) != OK:
        return NO_MEMORY
    # columns, and the tables in one block, are farther apart now: the last one moves first
    for j in range(work.d - 1, 0, -1):
        for k in range(work.k - 1, -1, -1):
            work.columns[j * new + k] = work.columns[j * old + k]
    for part in range(3, 0, -1):
        for k in range(work.k - 1, -1, -1):
            work.offset[part * new + k] = work.offset[part * old + k]
    work.capacity = new
    set_parts(work)
    return OK


cdef bint visit(DirectStep* work, Py_ssize_t i) noexcept nogil:
    """Point i joins the cheapest cluster, or opens one if that costs less; returns whether its label has changed."""
    cdef const Rows* rows = &work.table.rows
    cdef const double* factor = work.factor
    cdef double least, second, w = weight_of(rows, i)
    cdef Py_ssize_t k
    read_row(rows, i, work.y, 1)
    if rows.weight != NULL:
        # w, or w gamma / (w + gamma) for an old cluster without points
        for k in range(work.k):
            work.factors[k] = w
        for k in range(work.n_old):
            if work.count[k] == 0:
                work.factors[k] = w * (work.gamma[k] / (w + work.gamma[k]))
        factor = work.factors
    k = sc_least(work.y, work.d, work.columns, work.capacity, work.k, work.offset, factor, work.cost, &least, &second)
    if k < 0 or not least <= work.lam:
        k = work.k
    if k == work.label[i]:
        return False
    commit(work, i, k, w)
    return True


cdef void commit(DirectStep* work, Py_ssize_t i, Py_ssize_t joined, double w) noexcept nogil:
    """Point i, whose values are in work.y, leaves its cluster and joins another one, or opens it."""
    cdef int left = work.label[i], to = <int> joined
    cdef Py_ssize_t j
    cdef double gamma
    cdef const double* phi
    if left >= 0:
        work.count[left] -= 1
    if joined == work.k:
        work.k += 1
        work.count[joined] = 0
        open_at(work, joined, work.y)
    work.count[joined] += 1
    work.label[i] = to
    move_points(&work.table.rows, i, i + 1, &left, &to, &work.table.sums)
    if work.count[joined] == 1 and joined < work.n_old:
        # the point revives it, at theta = (gamma phi + w y) / (gamma + w)
        gamma, phi = work.gamma[joined], work.old_centers + work.number[joined] * work.d
        for j in range(work.d):
            work.revived[j] = (gamma * phi[j] + w * work.y[j]) / (gamma + w)
        open_at(work, joined, work.revived)
    if left >= 0 and work.count[left] == 0:
        retire(work, left)


cdef void set_center(DirectStep* work, Py_ssize_t k, const double* center) noexcept nogil:
    """Set the center that points pay for."""
    cdef Py_ssize_t j
    for j in range(work.d):
        work.columns[j * work.capacity + k] = center[j]


cdef void open_at(DirectStep* work, Py_ssize_t k, const double* center) noexcept nogil:
    """Open cluster k at this center: from now on points pay ||y - center||^2 to join it."""
    set_center(work, k, center)
    work.offset[k], work.factor[k] = 0.0, 1.0


cdef void retire(DirectStep* work, Py_ssize_t k) noexcept nogil:
    """Close cluster k, which has no points; an old one can be revived at Q D + gamma / (1 + gamma) ||y - phi||^2."""
    if k < work.n_old:
        set_center(work, k, work.old_centers + work.number[k] * work.d)
        work.offset[k], work.factor[k] = work.price[k], work.gamma[k] / (1.0 + work.gamma[k])
    else:
        work.offset[k] = HUGE_VAL


cdef void move_centers(DirectStep* work) noexcept nogil:
    """Move clusters that have points to their means, and set what they cost beside the distances of points."""
    cdef Py_ssize_t j, k, d = work.d
    cdef double gamma, weight, difference
    cdef double* theta
    cdef const double* phi = NULL
    work.fixed = 0.0
    for k in range(work.k):
        if work.count[k] == 0:
            continue
        theta, weight, gamma = work.theta + k * d, sums_weight(&work.table.sums, k), 0.0
        if k < work.n_old:
            phi, gamma = work.old_centers + work.number[k] * d, work.gamma[k]
        work.fixed += work.price[k] if k < work.n_old else work.lam
        for j in range(d):
            if k < work.n_old:  # theta = (gamma phi + sum w y) / (gamma + sum w)
                theta[j] = (gamma * phi[j] + sums_total(&work.table.sums, k, j)) / (gamma + weight)
                difference = theta[j] - phi[j]
                work.fixed += gamma * difference * difference
            else:
                theta[j] = sums_quotient(&work.table.sums, k, j, weight)
        set_center(work, k, theta)


cdef double total_distance(DirectStep* work) noexcept nogil:
    """The sum of the weighted squared distances of the points from their means, rounded once."""
    cdef Accumulator total
    cdef double[SQUARES] squares
    cdef const Rows* rows = &work.table.rows
    cdef Py_ssize_t i, m = 0
    memset(&total, 0, sizeof(total))
    for i in range(rows.n):
        read_row(rows, i, work.y, 1)
        squares[m] = squared_distance(work.y, work.theta + work.label[i] * work.d, work.d)
        if rows.weight != NULL:
            squares[m] = rows.weight[i] * squares[m]
        m += 1
        if m == SQUARES:
            accumulator_add(total.digit, squares, m)
            m = 0
    accumulator_add(total.digit, squares, m)
    return accumulator_round(total.digit, 0, ACCUMULATOR_DIGITS)


cdef void end_step(
    const DirectStep* work, DynamicMeans* state, int64_t elapsed, OldClusters* after, int64_t* ids
) noexcept nogil:
    """The clusters that live after the step, and the number of each point's cluster."""
    cdef const OldClusters* old = &state.old
    cdef Py_ssize_t i, k, m, d = state.d
    cdef double weight
    for k in range(work.n_old):
        m = work.number[k]
        if work.count[k] > 0:
            weight = work.gamma[k] + sums_weight(&work.table.sums, k)
            add_living(state, after, work.theta + k * d, weight, 1, old.ids[m])
        else:
            add_living(state, after, old.centers + m * d, old.weights[m], old.ages[m] + elapsed, old.ids[m])
    for k in range(work.n_old, work.k):
        if work.count[k] > 0:
            work.number[k] = state.next_id
            add_living(state, after, work.theta + k * d, sums_weight(&work.table.sums, k), 1, state.next_id)
            state.next_id += 1
    for i in range(work.table.rows.n):
        k = work.label[i]
        ids[i] = old.ids[work.number[k]] if k < work.n_old else work.number[k]


cdef void add_living(
    const DynamicMeans* state, OldClusters* after, const double* center, double weight, int64_t age, int64_t number
) noexcept nogil:
    """Add a cluster behind those that there are, unless it is forgotten."""
    cdef Py_ssize_t d = state.d, k = after.n
    if dies(state, age):
        return
    memcpy(after.centers + k * d, center, d * sizeof(double))
    after.weights[k], after.ages[k], after.ids[k] = weight, age, number
    after.n += 1
