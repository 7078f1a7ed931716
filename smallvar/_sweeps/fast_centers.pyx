"""A lower bound of their own for the few centers that move far.

The lower bound of a point falls by the largest shift among the other centers, in each sweep. Where a few centers move
far and the others hardly at all, these few would spoil the bounds of all points. So the centers are in two groups, each
with a lower bound (Yinyang's idea, Ding et al. 2015, with a group that changes): a point whose bound for the slow
centers holds is compared with the m fast ones only.
"""

from smallvar._sweeps.state cimport BIG, State

cdef enum:
    N_THRESHOLDS = 12   # thresholds of the shift that are tried: centers above one would be the fast ones
    FAST_SAMPLE = 1000  # points that the cost of a choice is estimated from
    GATHER = 40         # centers that a point is compared with in the time that it takes to load it
    MIN_SLOW = 3        # slow centers for each fast one, at least
    MIN_NUMBERS = 4096  # numbers of all centers from which comparing a point with one of them saves time

cdef extern from *:
    """
    #define SMALLVAR_SMALLEST_SHIFT 3e-19
    #define SMALLVAR_WORTH_A_CHANGE 0.7
    """
    # scaled distance: a center that moved less did not move, since its square is 0 in float32
    const double SMALLEST_SHIFT "SMALLVAR_SMALLEST_SHIFT"
    # of the present cost: a new choice takes two more passes over the bounds and makes them worse, so it must cost less
    const double WORTH_A_CHANGE "SMALLVAR_WORTH_A_CHANGE"


cdef struct Thresholds:             # the choices of fast centers that are compared
    double[N_THRESHOLDS] n_fast     # centers that move more than the threshold
    float[N_THRESHOLDS] max_slow    # the largest shift of all others
    double[N_THRESHOLDS] n_all      # sampled points that would be compared with all centers
    double n_failed                 # sampled points that would be if no center were fast
    double present_failed           # sampled points that fail the test with the present choice,
    double present_all              # and those of them that are compared with all centers


cdef void clear_fast_centers(State* state) noexcept nogil:
    """All centers are slow from now on: the lower bound is one for all of them."""
    cdef float* lower_bounds = state.bounds.lower_bounds
    cdef float* lower_bounds_fast = state.bounds.lower_bounds_fast
    cdef Py_ssize_t i, m
    if state.fast.n == 0:
        return
    for m in range(state.fast.n):
        state.fast.is_fast[state.fast.indices[m]] = False
    state.fast.n = 0
    # the smaller of both holds for all centers
    for i in range(state.points.n):
        lower_bounds[i] = lower_bounds[i] if lower_bounds[i] < lower_bounds_fast[i] else lower_bounds_fast[i]
    for i in range(state.points.n):
        lower_bounds_fast[i] = BIG


cdef void add_fast_center(State* state, Py_ssize_t k) noexcept nogil:
    state.fast.indices[state.fast.n] = <int> k
    state.fast.is_fast[k] = True
    state.fast.n += 1


cdef void update_max_other_shifts(State* state) noexcept nogil:
    """The largest shift among the slow and among the fast centers, each center left out of its own."""
    cdef const float* shift = state.bounds.center_shift
    cdef float[2] first, second         # the two largest shifts of a group: slow ones, fast ones
    cdef Py_ssize_t[2] farthest
    cdef Py_ssize_t k, group
    first[0], first[1], second[0], second[1], farthest[0], farthest[1] = 0.0, 0.0, 0.0, 0.0, -1, -1
    for k in range(state.centers.n):
        group = state.fast.is_fast[k]
        if shift[k] > first[group]:
            second[group] = first[group]
            first[group] = shift[k]
            farthest[group] = k
        else:
            second[group] = max(second[group], shift[k])
    for k in range(state.centers.n):
        state.bounds.max_other_shift[k] = second[0] if k == farthest[0] else first[0]
        state.bounds.max_other_shift_fast[k] = second[1] if k == farthest[1] else first[1]


cdef void set_thresholds(const State* state, float largest, Thresholds* thresholds) noexcept nogil:
    """Halves of the largest shift, and last the smallest one that counts."""
    cdef const float* shift = state.bounds.center_shift
    cdef float threshold = largest
    cdef Py_ssize_t q, k
    for q in range(N_THRESHOLDS):
        threshold = threshold * <float> 0.5 if q < N_THRESHOLDS - 1 else <float> SMALLEST_SHIFT
        thresholds.n_fast[q], thresholds.max_slow[q], thresholds.n_all[q] = 0.0, 0.0, 0.0
        for k in range(state.centers.n):
            if shift[k] > threshold:
                thresholds.n_fast[q] += 1.0
            else:
                thresholds.max_slow[q] = max(thresholds.max_slow[q], shift[k])


cdef void count_failures(const State* state, float largest, Thresholds* thresholds) noexcept nogil:
    """How many points of a sample would fail the test of the next sweep with each choice."""
    cdef Py_ssize_t n = state.points.n, step = max(<Py_ssize_t> 1, n // FAST_SAMPLE), i = 0, q
    cdef float upper, lower, slow, fast
    cdef int z
    thresholds.n_failed = thresholds.present_failed = thresholds.present_all = 0.0
    while i < n:
        z = state.points.labels[i]
        upper = state.bounds.upper_bounds[i] + state.bounds.center_shift[z]
        if not upper < state.bounds.center_half_distances[z]:  # these pass whatever the choice
            slow = state.bounds.lower_bounds[i] - state.bounds.max_other_shift[z]
            fast = state.bounds.lower_bounds_fast[i] - state.bounds.max_other_shift_fast[z]
            if not upper < min(slow, fast):
                thresholds.present_failed += 1.0
                thresholds.present_all += not upper < slow
            # a new choice begins with one bound for all centers, see clear_fast_centers
            lower = min(state.bounds.lower_bounds[i], state.bounds.lower_bounds_fast[i])
            if not upper < lower - largest:
                thresholds.n_failed += 1.0
                for q in range(N_THRESHOLDS):
                    thresholds.n_all[q] += not upper < lower - thresholds.max_slow[q]
        i += step


cdef Py_ssize_t cheapest(const State* state, const Thresholds* thresholds) noexcept nogil:
    """The threshold that costs least, N_THRESHOLDS for no fast center, or -1: the present choice is as good.

    A point that is compared with m centers costs m + GATHER.
    """
    cdef double n = state.centers.n, all_centers = n + GATHER, cost
    cdef double least = WORTH_A_CHANGE * (
        thresholds.present_all * all_centers
        + (thresholds.present_failed - thresholds.present_all) * (state.fast.n + GATHER)
    )
    cdef Py_ssize_t q, best = -1
    if state.fast.n > 0 and thresholds.n_failed * all_centers < least:
        least, best = thresholds.n_failed * all_centers, N_THRESHOLDS
    for q in range(N_THRESHOLDS):
        cost = (thresholds.n_failed - thresholds.n_all[q]) * (thresholds.n_fast[q] + GATHER)
        cost += thresholds.n_all[q] * all_centers
        if cost < least and thresholds.n_fast[q] * (MIN_SLOW + 1) <= n:
            least, best = cost, q
    return best


cdef void reconsider(State* state) noexcept nogil:
    """Choose the centers that are fast from now on, if that is clearly cheaper than the present choice."""
    cdef const float* shift = state.bounds.center_shift
    cdef Thresholds thresholds
    cdef float largest = 0.0
    cdef Py_ssize_t k, i, best
    update_max_other_shifts(state)
    for k in range(state.centers.n):
        largest = max(largest, shift[k])
    set_thresholds(state, largest, &thresholds)
    count_failures(state, largest, &thresholds)
    best = cheapest(state, &thresholds)
    if best < 0:
        return
    clear_fast_centers(state)
    if best == N_THRESHOLDS:
        return
    for k in range(state.centers.n):
        if shift[k] > thresholds.max_slow[best]:
            add_fast_center(state, k)
    # what holds for all centers holds for those of each group
    for i in range(state.points.n):
        state.bounds.lower_bounds_fast[i] = state.bounds.lower_bounds[i]


cdef void choose_fast_centers(State* state, Py_ssize_t new_center, Py_ssize_t min_centers) noexcept nogil:
    """Fast centers for the next sweep, after the centers have moved.

    new_center : the only one opened in this sweep, or -1; among many numbers it is always fast: so lower_bounds
        need not be reduced; sv_filter_fast reduces lower_bounds_fast
    min_centers : centers from which others may be fast
    """
    cdef bint may_be = state.bounds.valid and state.bounds.lower_bounds_fast != NULL
    state.fast.has_new = new_center >= 0 and may_be and state.centers.n * state.points.d >= MIN_NUMBERS
    if may_be and state.centers.n >= (MIN_SLOW + 1 if state.fast.has_new else min_centers):
        reconsider(state)
    else:
        clear_fast_centers(state)
    if state.fast.has_new and not state.fast.is_fast[new_center]:
        add_fast_center(state, new_center)
    update_max_other_shifts(state)
    if state.fast.n > 0:
        state.backend.copy_fast(state)
