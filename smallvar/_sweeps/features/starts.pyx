"""Whole starts of BP-means and K-features: seeding, then sweeps and least squares in turn until nothing changes.

A start of a small problem takes less time than a call from Python, so a start is compiled as a whole. Small problems
share out their starts to threads, large ones the points of each start.
"""

from cpython.ref cimport PyObject
from cython.parallel cimport prange
from libc.math cimport HUGE_VAL
from libc.stdint cimport uint64_t
from libc.stdlib cimport free
from libc.string cimport memcpy, memset

from smallvar._sweeps.features.collapsed cimport C_MOST_TRIED, collapsed_sweep, refresh
from smallvar._sweeps.features.sweeps cimport (
    draw,
    encode_pass,
    fill_up,
    fixed_sweep,
    free_sweep,
    join,
    search,
    seed,
    uniform,
)
from smallvar._sweeps.features.state cimport (
    COLLAPSED,
    COORDINATE,
    EXACT,
    FREE,
    LANES,
    MAX_PASSES,
    PACKED,
    SMALL,
    ZERO_SQUARE,
    FeatureProblem,
    FeatureState,
    Progress,
    add_residual,
    aligned,
    allocate,
    bit,
    check_interrupt,
    copy_state,
    evaluate,
    least_squares,
    new_memory,
    push,
    read_sums,
    recount,
    release,
    remove,
    round_tiles,
    set_energy,
    tile_count,
    tile_of,
    total,
    update_all_tables,
    zero_if_rounding,
)
from smallvar._sweeps.parallel cimport ParallelLoop, atomic_increment, atomic_read, begin_chunk, begin_loop, end_loop
from smallvar._sweeps.rows cimport rows_of
from smallvar._sweeps.stopping cimport Stopping, begin_sweeps, record_sweep, should_continue

from smallvar._sweeps.sums import Layout

import numpy as np

cdef extern from *:
    """
    #define SMALLVAR_CANCELLATION 1e-3
    #define SMALLVAR_SWAP_GAIN 1e-12
    #define SMALLVAR_SAME_OBJECTIVE 1e-9
    #define SMALLVAR_SWEEPS_LEFT 20.0
    """
    # of the error before least squares: below, most digits of the difference are lost, and all rows are added up again
    const double CANCELED_SHARE "SMALLVAR_CANCELLATION"
    # of the objective, plus the first of the start: what a swap of features must gain
    const double SWAP_GAIN "SMALLVAR_SWAP_GAIN"
    # of an objective: starts that differ by no more have found the same, though features may be in another order
    const double SAME_OBJECTIVE "SMALLVAR_SAME_OBJECTIVE"
    # a swap is given up where so many sweeps that gain as much as the last one would not be enough
    const double SWEEPS_LEFT "SMALLVAR_SWEEPS_LEFT"

FEATURE_RULES = {"sweep": FREE, "collapsed": COLLAPSED, "coordinate": COORDINATE, "exact": EXACT}
MOST_TRIED = C_MOST_TRIED  # the same number for Python

cdef enum:
    STATES = 3          # of a thread: its best start, the present one, and memory for swaps


# ----------------------------------------------------------------------------------------------------------------------
# Starts


cdef inline void set_error(const FeatureProblem* problem, FeatureState* state, double error) noexcept nogil:
    """Set error and objective, given the sum of w ||r||^2."""
    state.progress.error = zero_if_rounding(problem, error)
    state.progress.objective = state.progress.error + (0.0 if problem.fixed else problem.lam * state.k)


cdef inline bint has_changed(const Progress* progress) noexcept nogil:
    """Whether the last sweep changed anything."""
    return progress.n_changed > 0 or progress.n_created > 0 or progress.n_removed > 0


cdef double sweep(const FeatureProblem* problem, FeatureState* state) except? -1.0 nogil:
    """Sweep over the rows of Z, then set A to least squares; returns the sum of w ||r||^2."""
    cdef Progress* progress = &state.progress
    cdef bint was_solved = progress.solved
    cdef double before, error
    progress.n_changed = progress.n_created = progress.n_removed = 0
    if problem.rule == COLLAPSED:
        collapsed_sweep(problem, state)
        return evaluate(problem, state)
    if problem.fixed:
        fixed_sweep(problem, state)
    else:
        free_sweep(problem, state)
    error = before = total(problem, state)
    if has_changed(progress) or not was_solved:
        error = before - least_squares(problem, state)
    return error if not error < CANCELED_SHARE * before else evaluate(problem, state)


cdef int converge(const FeatureProblem* problem, FeatureState* state, double limit) except -1 nogil:
    """Sweep until nothing changes, tol or max_iter ends it, or the objective will hardly come down to the limit."""
    cdef Stopping stopping
    cdef Progress* progress = &state.progress
    cdef bint was_solved, fixed_point
    cdef double previous, excess
    begin_sweeps(&stopping, problem.max_iter, problem.tol, problem.n)
    progress.converged = False
    while should_continue(&stopping):
        was_solved = progress.solved
        set_error(problem, state, sweep(problem, state))
        check_interrupt(state, problem.n)
        progress.n_iter += 1
        push(progress, progress.objective)
        if problem.callback != NULL:
            with gil:  # an error raised in it ends the fit
                (<object> problem.callback)(
                    progress.number + 1, progress.n_iter, state.k, progress.objective, progress.n_changed,
                    progress.n_created,
                )
        fixed_point = was_solved and not has_changed(progress)
        previous = progress.path[progress.n_path - 2] if progress.n_path > 1 else progress.objective
        record_sweep(
            &stopping, progress.objective, previous, progress.path[0], not fixed_point, progress.n_created > 0,
            fixed_point, state.k,
        )
        excess = progress.objective - limit
        if stopping.n_iter > 1 and excess > 0.0 and excess > SWEEPS_LEFT * (previous - progress.objective):
            break
    progress.converged = stopping.converged or stopping.within_tol
    return 0


cdef int reseed_feature(
    const FeatureProblem* problem, FeatureState* state, bint drops_one, bint adds_one
) except -1 nogil:
    """Remove a feature drawn at random, seed one at the residuals, or both; then set A to least squares."""
    cdef Py_ssize_t n_counted
    cdef double error
    if drops_one:
        remove(problem, state, <Py_ssize_t> (uniform(&state.rng) * state.k))
        least_squares(problem, state)
    error = evaluate(problem, state)
    n_counted = state.k
    if adds_one and state.k < problem.max_features and error > ZERO_SQUARE * problem.energy:
        add_residual(problem, state, draw(problem, state, error))
        join(problem, state)
    fill_up(problem, state)
    if state.k > n_counted:
        recount(problem, state, n_counted)
    least_squares(problem, state)
    if problem.rule == COLLAPSED:
        refresh(problem, state)
    return 0


cdef int swap(const FeatureProblem* problem, FeatureState* state, FeatureState* before) except -1 nogil:
    """Move one feature elsewhere and sweep again; keep the result if it is better.

    Where K is free, a draw decides whether a feature is only removed, only seeded, or both.
    OUT before: memory for the state as it was.
    """
    cdef Progress* progress = &state.progress
    cdef Py_ssize_t choice, n_path = progress.n_path
    cdef bint converged = progress.converged, drops_one = True, adds_one = True
    cdef double least_gain
    if not problem.fixed:
        choice = <Py_ssize_t> (uniform(&state.rng) * 3)
        drops_one, adds_one = choice != 1 and state.k > 0, choice != 2 or state.k == 0
    if before.capacity < state.capacity:
        release(before)
        allocate(problem, before, state.capacity, state.threads)
    copy_state(problem, state, before)
    reseed_feature(problem, state, drops_one, adds_one)
    state.round.n_tiles = round_tiles(problem)
    least_gain = SWAP_GAIN * (before.progress.objective + progress.path[0])
    converge(problem, state, before.progress.objective - least_gain)
    progress.n_path = n_path
    if progress.objective < before.progress.objective - least_gain:
        push(progress, progress.objective)
    else:
        copy_state(problem, before, state)
        progress.converged = converged
    return 0


cdef int run_start(
    const FeatureProblem* problem, FeatureState* state, FeatureState* before, int mode, bint given
) except -1 nogil:
    """Run one start, from seeding to a fixed point. ``given``: Z is there already."""
    cdef Py_ssize_t _
    cdef Progress* progress = &state.progress
    progress.n_path = progress.n_iter = 0
    progress.n_removed = 0
    state.round.n_tiles = round_tiles(problem)
    if not given:
        seed(problem, state, mode)
    recount(problem, state, 0)
    if given or problem.rule == COLLAPSED:
        least_squares(problem, state)
    if problem.rule == COLLAPSED:
        refresh(problem, state)
    converge(problem, state, HUGE_VAL)
    for _ in range(problem.n_swaps):
        swap(problem, state, before)
    least_squares(problem, state)
    set_error(problem, state, evaluate(problem, state))  # from the data themselves
    progress.path[progress.n_path - 1] = progress.objective
    return 0


cdef bint is_better(const Progress* progress, const Progress* best) noexcept nogil:
    """Whether a start has a lower objective than the best one or, at a tie, the lower number."""
    return (
        best.number < 0
        or progress.objective < best.objective
        or (progress.objective == best.objective and progress.number < best.number)
    )


cdef void run_in_thread(
    const FeatureProblem* problem, FeatureState* states, Py_ssize_t capacity, int threads, Py_ssize_t number,
    uint64_t rng, int mode, double* objectives, PyObject* errors
) noexcept with gil:
    """Run a start with the states of a thread, which get their memory as the thread begins its first start.

    An error ends all starts. It is added to the list ``errors``, before it stops starts in other threads, so that the
    first one is not theirs.
    """
    cdef FeatureState present
    cdef int i
    if atomic_read(states.progress.stop):
        return
    try:
        with nogil:
            for i in range(2):  # what swaps need, they allocate
                if states[i].capacity == 0:
                    allocate(problem, states + i, capacity, threads)
            states[1].progress.number, states[1].rng = number, rng
            run_start(problem, states + 1, states + 2, mode, False)
            objectives[number] = states[1].progress.objective
            if is_better(&states[1].progress, &states[0].progress):
                present = states[1]
                states[1] = states[0]
                states[0] = present
    except BaseException as error:
        (<list> errors).append(error)
        atomic_increment(states.progress.stop)


cdef int run_starts(
    const FeatureProblem* problem, FeatureState* states, Py_ssize_t capacity, Py_ssize_t first, Py_ssize_t last,
    const uint64_t* rngs, const int* modes, double* objectives, int n_threads
) except -1:
    """Run the starts first..last-1, those of a small problem in parallel. OUT objectives: of these starts."""
    cdef bint is_small = problem.n * problem.d <= SMALL
    cdef int threads = 1 if is_small else n_threads  # of each start
    cdef Py_ssize_t i
    cdef list raised = []
    cdef PyObject* errors = <PyObject*> raised
    cdef ParallelLoop loop
    with nogil:
        loop = begin_loop(last - first, n_threads if is_small else 1)
        if loop.threads == 1:
            for i in range(first, last):
                run_in_thread(problem, states, capacity, threads, i, rngs[i], modes[i], objectives, errors)
        else:
            for i in prange(first, last, schedule="dynamic", chunksize=1, num_threads=loop.threads):
                run_in_thread(
                    problem, states + STATES * begin_chunk(&loop), capacity, threads, i, rngs[i], modes[i], objectives,
                    errors,
                )
        end_loop(&loop)
    if raised:
        raise raised[0]
    return 0


def count_needed(objectives, int enough, objectives_before):
    """How many starts are needed, those up to the one with which enough have found the lowest objective; and whether
    enough have. Starts before them count, too. Where ``enough`` is 0, all are needed.
    """
    cdef double lowest = HUGE_VAL, tie
    cdef int n_found = 0
    cdef Py_ssize_t i, n_before = len(objectives_before)
    for i, objective in enumerate([*objectives_before, *objectives]):
        tie = SAME_OBJECTIVE * lowest
        if n_found == 0 or objective < lowest - tie:
            n_found, lowest = 1, objective
        elif objective <= lowest + tie:
            n_found += 1
        if i >= n_before and n_found == enough:
            return i + 1 - n_before, True
    return len(objectives), n_found >= enough > 0


# ----------------------------------------------------------------------------------------------------------------------
# For Python


cdef class FeatureSweep:
    """Starts of BP-means or K-features on one set of data; the best one is kept.

    X : IN array (n, d), float32 or float64, any strides, may be read-only
    weight : IN array (n,), float64, > 0, or None
    rule : "sweep" or "collapsed" (with a penalty lam), "coordinate" or "exact" (K fixed)
    max_features : largest number of features; K where it is fixed
    most_tried : "collapsed" chooses the best of all rows while there are at most so many features, at most MOST_TRIED,
        and bit by bit with more
    """

    cdef FeatureProblem problem
    cdef void* packed                   # memory of problem.packed
    cdef FeatureState best              # of all starts
    cdef Py_ssize_t stopped             # not 0 once all starts are to end
    cdef readonly object X, weight
    cdef readonly int n_threads
    cdef readonly object objectives     # of the starts
    cdef readonly bint agreed           # whether enough of them have found the lowest
    cdef object layout, mean            # of the sums
    cdef object callback                # called after each sweep of each start, unless it is None

    def __cinit__(self):
        self.best.progress.number = -1  # no start yet; all other fields are 0 here

    def __dealloc__(self):
        release(&self.best)
        free(self.packed)

    def __init__(
        self, X, weight, str rule, double lam, Py_ssize_t max_features, int max_iter, double tol, Py_ssize_t n_swaps,
        int n_threads, callback, Py_ssize_t most_tried=C_MOST_TRIED,
    ):
        if not 0 <= most_tried <= C_MOST_TRIED:
            raise ValueError(f"most_tried must be >= 0 and <= {C_MOST_TRIED}, got {most_tried}")
        cdef Py_ssize_t n = X.shape[0], d = X.shape[1], n_tiles = tile_count(n), tile
        cdef FeatureProblem* problem = &self.problem
        self.X, self.weight, self.n_threads, self.callback = X, weight, n_threads, callback
        problem.rows = rows_of(X, weight, None)
        problem.n, problem.d, problem.n_tiles = n, d, n_tiles
        problem.rule, problem.fixed = FEATURE_RULES[rule], rule in ("coordinate", "exact")
        problem.most_tried = most_tried
        problem.lam, problem.max_features, problem.n_swaps = lam, max_features, n_swaps
        problem.max_iter, problem.tol = max_iter, tol
        problem.callback = NULL if callback is None else <void*> callback
        set_energy(problem, 0.0)
        problem.bins_of_zx = problem.bins_of_zz = 1
        if n_tiles * LANES * d <= PACKED:
            self.packed = new_memory(n_tiles * LANES * d * sizeof(double))
            for tile in range(n_tiles):
                tile_of(problem, tile, aligned(self.packed) + tile * d * LANES)
            problem.packed = aligned(self.packed)

    cdef prepare(self):
        """Set the bins of the sums, which only starts need."""
        cdef const double[:, ::1] magic
        cdef const double[::1] mean
        if self.layout is not None:
            return
        release(&self.best)
        self.best.progress.number = -1
        # about 0: a sum of w x is asked for
        self.layout = Layout(self.X, self.weight, self.n_threads, origin=np.zeros(self.problem.d))
        self.mean = self.layout.mean(self.X, self.weight, self.n_threads)
        magic, mean = self.layout.magic, self.mean
        self.problem.magic, self.problem.mean = &magic[0, 0], &mean[0]
        self.problem.bins_of_zx = self.layout.bins
        self.problem.bins_of_zz = 1 if self.weight is None else self.layout.bins

    cdef Py_ssize_t first_capacity(self):
        return self.problem.max_features if self.problem.fixed else min(self.problem.max_features, <Py_ssize_t> 16)

    cdef int replace_best(self, Py_ssize_t capacity) except -1:
        """Make the best start an empty one."""
        release(&self.best)
        allocate(&self.problem, &self.best, capacity, self.n_threads)
        return 0

    def measure(self):
        """Sum of w ||x||^2, which is also the error without any feature."""
        if self.best.capacity == 0:
            allocate(&self.problem, &self.best, self.first_capacity(), self.n_threads)
        cdef Py_ssize_t k = self.best.k
        self.best.k = 0
        with nogil:
            set_energy(&self.problem, evaluate(&self.problem, &self.best))
        self.problem.zero_square = (
            ZERO_SQUARE * self.problem.energy / (self.problem.n if self.weight is None else self.weight.sum())
        )
        self.best.k = k
        return self.problem.energy

    def farthest_first(self):
        """The least that one of ``max_features`` features saves, each the longest residual that the earlier ones leave.

        Only features with a positive residual count; 1 where there is none, that is, where X is zero.
        """
        cdef Py_ssize_t i, farthest, n = self.problem.n
        cdef double before, after = self.measure(), least = HUGE_VAL
        cdef const double* squares
        while self.best.k < self.problem.max_features and after > ZERO_SQUARE * self.problem.energy:
            farthest, squares = 0, self.best.assignments.squares
            for i in range(n):
                if squares[i] > squares[farthest]:
                    farthest = i
            add_residual(&self.problem, &self.best, farthest)
            with nogil:
                join(&self.problem, &self.best)
            before, after = after, total(&self.problem, &self.best)
            least = min(least, before - after)
            check_interrupt(&self.best, n * self.problem.d)
        return least if least < HUGE_VAL else 1.0

    def run_given(self, unsigned char[:, ::1] Z, uint64_t state):
        """One start from the rows of Z (IN)."""
        cdef Py_ssize_t i, j, n = self.problem.n, max_features = self.problem.max_features
        cdef FeatureState before
        if Z.shape[0] != n or Z.shape[1] > max_features:
            raise ValueError(f"Z must be ({n}, at most {max_features}), got ({Z.shape[0]}, {Z.shape[1]})")
        self.prepare()
        self.measure()
        self.replace_best(max(Z.shape[1], self.first_capacity()))
        self.best.k, self.best.progress.number, self.best.rng = Z.shape[1], 0, state
        for i in range(n):
            for j in range(Z.shape[1]):
                bit(&self.best, i, j)[0] = Z[i, j]
        memset(&before, 0, sizeof(FeatureState))
        try:
            with nogil:
                run_start(&self.problem, &self.best, &before, 0, True)
        finally:
            release(&before)
        self.objectives = np.array([self.best.progress.objective])

    def run(self, const uint64_t[::1] states, const int[::1] modes, int enough=0, objectives_before=()):
        """One start from each state of the random generator (IN), by the mean (mode 0) or the data (1).

        They end with the one by which ``enough`` of them, if that is not 0, have found the lowest objective; starts
        before them, whose objectives are ``objectives_before``, count, too. Sets ``agreed``: whether enough have.
        """
        cdef Py_ssize_t n_starts = states.shape[0], i, n_states = STATES * self.n_threads, first, last = 0
        cdef Py_ssize_t length = self.n_threads if enough else n_starts, needed = 0, capacity, best
        cdef double[::1] objectives = np.full(n_starts, np.nan)
        cdef FeatureState* memory
        self.prepare()
        self.measure()
        capacity, self.stopped = self.first_capacity(), 0
        memory = <FeatureState*> new_memory(n_states * sizeof(FeatureState))
        for i in range(n_states):
            memory[i].progress.number, memory[i].progress.stop = -1, &self.stopped
        try:
            self.agreed = False
            while needed == last < n_starts and not self.agreed:
                first, last = last, min(n_starts, last + length)
                run_starts(
                    &self.problem, memory, capacity, first, last, &states[0], &modes[0], &objectives[0], self.n_threads
                )
                needed, self.agreed = count_needed(objectives[:last], enough, objectives_before)
            self.objectives = np.array(objectives[:needed])
            best = min(range(needed), key=self.objectives.__getitem__)  # the first at a tie
            for i in range(0, n_states, STATES):
                if memory[i].progress.number == best:
                    break
            else:  # a thread has lost it to a start that is not needed
                i, memory[0].progress.number = 0, -1
                run_starts(
                    &self.problem, memory, capacity, best, best + 1, &states[0], &modes[0], &objectives[0],
                    self.n_threads,
                )
            release(&self.best)
            self.best = memory[i]
            self.best.progress.stop = NULL
            memset(&memory[i], 0, sizeof(FeatureState))
        finally:
            for i in range(n_states):
                release(&memory[i])
            free(memory)

    @property
    def k(self):
        """Number of features."""
        return self.best.k

    @property
    def objective(self):
        """Error + lam K; the error alone where K is fixed."""
        return self.best.progress.objective

    @property
    def error(self):
        """Sum of w ||x - z A||^2."""
        return self.best.progress.error

    @property
    def n_iter(self):
        """Number of sweeps."""
        return self.best.progress.n_iter

    @property
    def converged(self):
        """Whether the sweeps came to a fixed point, or tol ended them."""
        return bool(self.best.progress.converged)

    def sums(self):
        """Z'WZ, Z'WX and the number of users of each feature, as kept up."""
        cdef Py_ssize_t k = self.best.k, capacity = self.best.capacity, d = self.problem.d
        read_sums(&self.problem, &self.best)
        zz, zx = <double[:capacity, :capacity]> self.best.sums.zz, <double[:capacity, :d]> self.best.sums.zx
        return np.array(zz)[:k, :k], np.array(zx)[:k], np.array(<double[:capacity]> self.best.sums.users)[:k]

    def path(self):
        """The objective after every sweep."""
        return np.array([self.best.progress.path[i] for i in range(self.best.progress.n_path)])

    def components(self):
        """A, (k, d)."""
        return np.array(<double[:self.best.capacity, :self.problem.d]> self.best.features.rows)[:self.best.k]

    def assignments(self):
        """Z, (n, k), int32."""
        cdef Py_ssize_t n_tiles = self.problem.n_tiles
        bits = np.asarray(<unsigned char[:n_tiles, :self.best.capacity, :LANES]> self.best.assignments.bits)
        rows = bits[:, :self.best.k].transpose(0, 2, 1).reshape(n_tiles * LANES, self.best.k)
        return rows[:self.problem.n].astype(np.int32)

    def encode(self, const double[:, ::1] components):
        """Rows of Z for the data given these features (IN): coordinate passes from zero, then a search for better ones.

        The search is by branch and bound; not for the rule "exact". Z is kept as the best start. Returns Z and the sum
        of w ||x - z A||^2.
        """
        cdef Py_ssize_t k = components.shape[0], d = self.problem.d
        cdef int passes = 0
        if k and components.shape[1] != d:
            raise ValueError(f"components must have {d} columns, got {components.shape[1]}")
        cdef bint changed = True
        self.measure()
        self.replace_best(k)
        self.best.k = k
        if k:
            memcpy(self.best.features.rows, &components[0, 0], k * d * sizeof(double))
        update_all_tables(&self.problem, &self.best)
        with nogil:
            while changed and passes < MAX_PASSES:
                changed = encode_pass(&self.problem, &self.best)
                passes += 1
            if k:
                search(&self.problem, &self.best)
            self.best.progress.error = evaluate(&self.problem, &self.best)
        return self.assignments(), self.best.progress.error
