"""D-Means in C memory (Campbell, Kulis & How, section 4): one step after the other, without Python objects.

Sweeps are those of dynamic.pyx, for one thread, in the order of the points that is given; here are the checks, the
memory, and what MovingClusters (_time/moving.py) does from one step to the next. Letters are those of dynamic.pyx.
"""

from libc.math cimport HUGE_VAL, INFINITY, fabs
from libc.stdint cimport int64_t
from libc.stdlib cimport calloc, free
from libc.string cimport memcpy, memset

from smallvar._sweeps.direct cimport (
    AT_FIRST,
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
from smallvar._sweeps.dynamic cimport (
    DynamicState,
    advance,
    begin_run,
    move_centers,
    objective_of,
    propose,
    reserve_dynamic,
    reserve_points,
)
from smallvar._sweeps.in_order cimport InOrderClusters, InOrderPoints, InOrderScratch, begin_scratch
from smallvar._sweeps.memory cimport Memory, free_all, take
from smallvar._sweeps.rows cimport Rows, value_of, weight_of
from smallvar._sweeps.sums cimport sums_weight
from smallvar._sweeps.tolerances cimport C_LARGEST_ERROR, C_LARGEST_REACH, C_LARGEST_WEIGHT_RATIO, C_SMALLEST_REACH


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


cdef bint reserve_old(OldClusters* clusters, Py_ssize_t n, Py_ssize_t d) noexcept nogil:
    """Memory for n clusters; returns whether there was any. The caller frees it, also where this fails."""
    memset(clusters, 0, sizeof(clusters[0]))
    clusters.centers = <double*> take(&clusters.memory, n, d, sizeof(double))
    clusters.weights = <double*> take(&clusters.memory, 1, n, sizeof(double))
    clusters.ages = <int64_t*> take(&clusters.memory, 1, n, sizeof(int64_t))
    clusters.ids = <int64_t*> take(&clusters.memory, 1, n, sizeof(int64_t))
    return clusters.memory.n == 4


cdef bint dies(const DynamicMeans* state, int64_t age) noexcept nogil:
    """Whether a cluster of this age is forgotten: to revive it would cost more than a new one."""
    return state.q * age > state.lam


# ---- a step ----------------------------------------------------------------------------------------------------------


cdef struct DirectStep:
    DirectTable table
    InOrderPoints points
    InOrderClusters clusters
    InOrderScratch scratch
    DynamicState state      # its pointers are into this struct and its memory
    int64_t* number         # of each of its old clusters, those that are alive before the step: its place among all
    int64_t* ids            # of each cluster that has points, after the step


cdef int step(
    DynamicMeans* means, const Rows* rows, int64_t elapsed, int max_iter, int64_t* ids, double* objective, int* n_iter
) noexcept nogil:
    """One step of D-Means, ``elapsed`` after the last; see smallvar/cython_api.pxd. A failed one leaves the state.

    Rows n = 0 is a step without points.
    """
    cdef DirectStep work
    cdef OldClusters after
    cdef int status = check_step(means, rows, elapsed, max_iter, ids)
    cdef double value = 0.0
    cdef int sweeps = 0
    if status != OK:
        return status
    memset(&work, 0, sizeof(work))
    memset(&after, 0, sizeof(after))
    status = begin_step(&work, means, rows, elapsed)
    if status == OK and rows.n > 0:
        status = run(&work, max_iter, &value, &sweeps)
    if status >= 0:
        work.ids = <int64_t*> take(&work.table.memory, 1, work.clusters.k, sizeof(int64_t))
        if work.ids == NULL or not reserve_old(&after, work.clusters.k, means.d):
            status = NO_MEMORY
        else:
            end_step(&work, means, elapsed, &after, ids)
            means.old, after = after, means.old
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


cdef int begin_step(DirectStep* work, const DynamicMeans* means, const Rows* rows, int64_t elapsed) noexcept nogil:
    """Set up the old clusters that are alive, and memory for points and clusters."""
    cdef const OldClusters* old = &means.old
    cdef DynamicState* state = &work.state
    cdef Memory* memory = &work.table.memory
    cdef Py_ssize_t k, m = 0, d = means.d, n = max(<Py_ssize_t> 1, old.n)
    cdef double* zeros
    cdef double* phi
    cdef double* gamma
    cdef int64_t age
    cdef int status
    if rows.n > 0:
        zeros = <double*> calloc(d, sizeof(double))
        if zeros == NULL:
            return NO_MEMORY
        # sums from 0: theta is a mean of points and phi
        status = begin_table(&work.table, rows, zeros, old.n + AT_FIRST)
        free(zeros)
        if status != OK:
            return status
    phi, gamma = <double*> take(memory, n, d, sizeof(double)), <double*> take(memory, 2, n, sizeof(double))
    work.number = <int64_t*> take(memory, 1, n, sizeof(int64_t))
    if phi == NULL or gamma == NULL or work.number == NULL:
        return NO_MEMORY
    for k in range(old.n):
        age = old.ages[k] + elapsed - 1
        if elapsed > 1 and dies(means, age):
            continue  # in the gap before this step
        work.number[m] = k
        memcpy(phi + m * d, old.centers + k * d, d * sizeof(double))
        # gamma_k = 1 / (1 / v_k + tau D_k); rounding may take Q D beyond lam
        gamma[m] = 1.0 / (1.0 / old.weights[k] + means.tau * age)
        gamma[n + m] = min(means.q * age, means.lam)
        m += 1
    work.points.rows, work.points.n, work.points.d = work.table.rows, rows.n, d
    state.points, state.clusters, state.scratch = &work.points, &work.clusters, &work.scratch
    state.sums, state.lam, state.n_old = &work.table.sums, means.lam, m
    state.phi, state.gamma, state.penalty = phi, gamma, gamma + n
    if not (
        reserve_points(state, memory)
        and begin_scratch(&work.points, &work.scratch, memory, 1)
        and reserve_dynamic(state, memory, old.n + AT_FIRST)
    ):
        return NO_MEMORY
    work.clusters.k = m
    return OK


cdef int run(DirectStep* work, int max_iter, double* objective, int* n_iter) noexcept nogil:
    """Sweeps until the objective stops falling, as DynamicStep.run has them."""
    cdef DynamicState* state = &work.state
    cdef Py_ssize_t start, proposed, changes, capacity, n = work.points.n
    cdef double previous = HUGE_VAL
    begin_run(state)
    while True:
        start = proposed = changes = 0
        if n_iter[0] > 0:
            propose(state, 0, n, True)
            objective[0] = objective_of(state)
            if not objective[0] < previous:
                return OK
            if n_iter[0] >= max_iter:
                return NOT_CONVERGED
            previous = objective[0]
            proposed = n
        while start < n:
            if work.clusters.k == work.clusters.capacity:
                capacity = 2 * work.clusters.capacity
                if not reserve_dynamic(state, &work.table.memory, capacity):
                    return NO_MEMORY
                if reserve_sums(&work.table, capacity) != OK:
                    return NO_MEMORY
            start = advance(state, start, &proposed, &changes)
        n_iter[0] += 1
        if changes == 0:
            return OK
        move_centers(state)


cdef void end_step(
    const DirectStep* work, DynamicMeans* means, int64_t elapsed, OldClusters* after, int64_t* ids
) noexcept nogil:
    """The clusters that live after the step, and the number of each point's cluster."""
    cdef const OldClusters* old = &means.old
    cdef const DynamicState* state = &work.state
    cdef Py_ssize_t i, k, m, d = means.d
    cdef double weight
    for k in range(work.clusters.k):
        if state.count[k] > 0:
            weight, work.ids[k] = sums_weight(state.sums, k), means.next_id
            if k < state.n_old:
                weight, work.ids[k] = state.gamma[k] + weight, old.ids[work.number[k]]
            else:
                means.next_id += 1
            add_living(means, after, state.theta + k * d, weight, 1, work.ids[k])
        elif k < state.n_old:
            m = work.number[k]
            add_living(means, after, old.centers + m * d, old.weights[m], old.ages[m] + elapsed, old.ids[m])
    for i in range(work.points.n):
        ids[i] = work.ids[state.label[i]]


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
