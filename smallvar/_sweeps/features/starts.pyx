"""Whole starts of BP-means and K-features: seeding, sweeps, least squares, until nothing changes.

A start of a small problem takes less time than a call from Python, so a start is compiled as a whole. Small problems
run in parallel over starts, large ones over points.
"""

from cpython.ref cimport Py_DECREF, Py_INCREF, PyObject
from libc.math cimport HUGE_VAL
from libc.stdint cimport uint64_t
from libc.string cimport memcpy, memset

from smallvar._sweeps.features.collapsed cimport collapsed_sweep, refresh
from smallvar._sweeps.features.search cimport search
from smallvar._sweeps.features.solver cimport add_feature, least_squares, place_features, read_sums, recount, remove
from smallvar._sweeps.features.state cimport (
    COLLAPSED,
    COORDINATE,
    EXACT,
    FREE,
    LANES,
    PACKED,
    PART,
    PASSES,
    RUN,
    SMALL,
    ZERO_SQUARE,
    Pass,
    Problem,
    Scratch,
    Start,
    allocate,
    bit,
    check_interrupt,
    cleared,
    copy_state,
    evaluate,
    pack,
    push,
    release,
    residual_of,
    round_tiles,
    set_energy,
    sf_free,
    sf_load_bits,
    sf_residual,
    sf_with,
    share,
    new_memory,
    threads_for,
    tile_of,
    total,
)
from smallvar._sweeps.features.sweeps cimport encode_pass, fixed_sweep, free_sweep
from smallvar._sweeps.pool cimport next_item, run
from smallvar._sweeps.rows cimport rows_of, weight_of
from smallvar._sweeps.stopping cimport Stopping, begin_sweeps, record_sweep, should_continue

from smallvar._sweeps.sums import Layout

import numpy as np

cdef extern from *:
    """
    #define SMALLVAR_CANCELLATION 1e-3
    #define SMALLVAR_SWAP_GAIN 1e-12
    """
    # of the error before least squares: below, most digits of the difference are lost, and all rows are added up again
    const double CANCELLATION "SMALLVAR_CANCELLATION"
    # of the objective, plus the first of the start: what a swap of features must gain
    const double SWAP_GAIN "SMALLVAR_SWAP_GAIN"

RULES = {"sweep": FREE, "collapsed": COLLAPSED, "coordinate": COORDINATE, "exact": EXACT}


# ----------------------------------------------------------------------------------------------------------------------
# Seeding


cdef inline double uniform(uint64_t* state) noexcept nogil:
    """The next number in [0, 1) of the generator splitmix64."""
    cdef uint64_t z
    state[0] += <uint64_t> 0x9E3779B97F4A7C15
    z = state[0]
    z = (z ^ (z >> 30)) * <uint64_t> 0xBF58476D1CE4E5B9
    z = (z ^ (z >> 27)) * <uint64_t> 0x94D049BB133111EB
    z = z ^ (z >> 31)
    return <double> (z >> 11) * (1.0 / 9007199254740992.0)


cdef void join_run(const Pass* r, Py_ssize_t t0, Py_ssize_t t1, Scratch* w) noexcept nogil:
    """Points whose residual strictly shrinks take up the last feature, f (MB13, section 5)."""
    cdef const Problem* p = r.p
    cdef Start* s = r.s
    cdef Py_ssize_t t, l, i, k = s.k - 1
    cdef const double* f = s.features + k * p.d
    cdef double rr[LANES]
    cdef double rf[LANES]
    cdef const double* x
    for t in range(t0, t1):
        x = tile_of(p, t, w.x)
        sf_load_bits(k, s.z + t * s.room * LANES, w.z)
        sf_residual(p.d, k, s.room, x, w.z, s.at, w.residual, rr)
        sf_with(p.d, w.residual, f, rf)
        for l in range(LANES):
            i = t * LANES + l
            if i < p.n and rf[l] < rr[l]:
                s.z[(t * s.room + k) * LANES + l] = 1
                s.squares[i] = rf[l]


cdef void join(const Problem* p, Start* s) noexcept nogil:
    share(join_run, p, s, 0, p.tiles, 0, 0)


cdef Py_ssize_t draw(const Problem* p, Start* s, double error) noexcept nogil:
    """A point with probability proportional to its weighted squared residual (MB13, section 5)."""
    cdef double target = uniform(&s.rng) * error, sum0 = 0.0, part
    cdef Py_ssize_t i = 0, last = 0, length = PART * LANES
    while i + length < p.n and not sum0 + s.parts[i // length] > target:  # as total left them
        sum0 += s.parts[i // length]
        i += length
    for i in range(i, p.n):
        part = weight_of(&p.rows, i) * s.squares[i]
        if part > 0.0:
            last = i
            sum0 += part
            if sum0 > target:
                return i
    return last


cdef int seed(const Problem* p, Start* s, int mode) except -1 nogil:
    """The greedy start of MB13 section 5, like k-means++. Leaves A as seeded, not as least squares."""
    cdef Py_ssize_t i
    cdef double error, before
    s.k = s.vacant = 0
    memset(s.z, 0, p.tiles * s.room * LANES)
    if mode == 0:
        memcpy(s.spare, p.mean, p.d * sizeof(double))
        add_feature(p, s)
        for i in range(p.n):
            bit(s, i, 0)[0] = 1
    error = evaluate(p, s)
    while s.k < p.cap and error > ZERO_SQUARE * p.energy:
        i = draw(p, s, error)
        residual_of(p, s, i, s.spare)
        add_feature(p, s)
        join(p, s)
        before = error
        error = total(p, s)
        check_interrupt(s, p.n * p.d * (s.k + 2))
        if not p.fixed and not error + p.lam < before:
            remove(p, s, s.k - 1)
            break
    while p.fixed and s.k < p.cap:  # no residual is left: features without users
        memset(s.spare, 0, p.d * sizeof(double))
        add_feature(p, s)
    s.solved = False
    return 0


# ----------------------------------------------------------------------------------------------------------------------
# Starts


cdef int converge(const Problem* p, Start* s) except -1 nogil:
    """Sweeps until nothing changes, or tol or max_iter ends them."""
    cdef Stopping stopping
    cdef bint was_solved, fixed_point
    cdef double fall, previous
    begin_sweeps(&stopping, p.max_iter, p.tol, p.n)
    s.converged = False
    while should_continue(&stopping):
        was_solved = s.solved
        s.changes = s.created = s.removed = 0
        if p.rule == COLLAPSED:
            collapsed_sweep(p, s)
            s.error = evaluate(p, s)
        else:
            if p.fixed:
                fixed_sweep(p, s)
            else:
                free_sweep(p, s)
            previous = total(p, s)
            fall = least_squares(p, s) if s.changes or s.created or s.removed or not was_solved else 0.0
            s.error = previous - fall
            if s.error < CANCELLATION * previous:
                s.error = evaluate(p, s)
        check_interrupt(s, p.n)
        s.error = cleared(p, s.error)
        s.n_iter += 1
        s.objective = s.error + (0.0 if p.fixed else p.lam * s.k)
        push(s, s.objective)
        if p.callback != NULL:
            with gil:  # what it raises ends the fit
                (<object> p.callback)(s.number + 1, s.n_iter, s.k, s.objective, s.changes, s.created)
        fixed_point = was_solved and not (s.changes or s.created or s.removed)
        previous = s.path[s.n_path - 2] if s.n_path > 1 else s.objective
        record_sweep(&stopping, s.objective, previous, s.path[0], not fixed_point, s.created > 0, fixed_point)
    s.converged = stopping.converged or stopping.within_tol
    return 0


cdef int swap(const Problem* p, Start* s, Start* trial) except -1 nogil:
    """Move one feature elsewhere and sweep again; keep the result if it is better.

    Where K is free, a draw decides whether a feature is only taken away, only seeded, or both.
    """
    cdef Py_ssize_t k, known, n_path = s.n_path
    cdef double error
    cdef bint converged = s.converged, drops_one = True, adds_one = True
    if not p.fixed:
        k = <Py_ssize_t> (uniform(&s.rng) * 3)
        drops_one, adds_one = k != 1 and s.k > 0, k != 2 or s.k == 0
    if trial.room < s.room:
        release(trial)
        allocate(p, trial, s.room, s.threads)
    copy_state(p, s, trial)
    if drops_one:
        remove(p, s, <Py_ssize_t> (uniform(&s.rng) * s.k))
        least_squares(p, s)
    error = evaluate(p, s)
    known = s.k
    if adds_one and s.k < p.cap and error > ZERO_SQUARE * p.energy:
        k = draw(p, s, error)
        residual_of(p, s, k, s.spare)
        add_feature(p, s)
        join(p, s)
    while p.fixed and s.k < p.cap:
        memset(s.spare, 0, p.d * sizeof(double))
        add_feature(p, s)
    if s.k > known:
        recount(p, s, known)
    least_squares(p, s)
    if p.rule == COLLAPSED:
        refresh(p, s)
    s.round = round_tiles(p)
    converge(p, s)
    s.n_path = n_path
    if s.objective < trial.objective - SWAP_GAIN * (trial.objective + s.path[0]):
        push(s, s.objective)
    else:
        copy_state(p, trial, s)
        s.converged = converged
    return 0


cdef int run_start(const Problem* p, Start* s, Start* trial, int mode, bint given) except -1 nogil:
    """One start, from seeding to a fixed point. ``given``: Z is there already."""
    cdef Py_ssize_t _
    s.n_path = s.n_iter = 0
    s.removed = 0
    s.round = round_tiles(p)
    if not given:
        seed(p, s, mode)
    recount(p, s, 0)
    if given or p.rule == COLLAPSED:
        least_squares(p, s)
    if p.rule == COLLAPSED:
        refresh(p, s)
    converge(p, s)
    for _ in range(p.n_swaps):
        swap(p, s, trial)
    # the error from the data themselves
    least_squares(p, s)
    s.error = cleared(p, evaluate(p, s))
    s.objective = s.error + (0.0 if p.fixed else p.lam * s.k)
    s.path[s.n_path - 1] = s.objective
    return 0


cdef bint better(const Start* a, const Start* b) noexcept nogil:
    """Whether a has the lower objective; at a tie, the lower number."""
    return b.number < 0 or a.objective < b.objective or (a.objective == b.objective and a.number < b.number)


cdef struct Copies:             # Z, for Python
    Py_ssize_t n                # points
    Py_ssize_t k                # features
    Start* s                    # whose Z it is
    int* out                    # n x k


cdef void copy_item(void* context, Py_ssize_t item, int slot) noexcept nogil:
    cdef const Copies* a = <const Copies*> context
    cdef Py_ssize_t i, j
    for i in range(item * RUN * LANES, min(a.n, (item + 1) * RUN * LANES)):
        for j in range(a.k):
            a.out[i * a.k + j] = bit(a.s, i, j)[0]


cdef struct Starts:
    const Problem* p            # what they share
    Start* slots                # three for each thread
    Py_ssize_t next             # the start to be made next
    Py_ssize_t count            # starts in all
    const uint64_t* states      # of the generator of each start
    const int* modes            # 0: the first feature is the mean, 1: there is none yet
    double* objectives          # of each start
    Py_ssize_t* stop            # not 0 once they are to end
    Py_ssize_t failed           # starts that an error ended
    PyObject* error             # the first of these errors


cdef int one(
    const Problem* p, Start* slot, Py_ssize_t number, uint64_t state, int mode, double* objective
) except -1 nogil:
    """A start in a thread's slot: the best so far, the present one, and one for swaps."""
    cdef Start better_one
    slot[1].number = number
    slot[1].rng = state
    run_start(p, slot + 1, slot + 2, mode, False)
    objective[0] = slot[1].objective
    if slot[0].number < 0 or better(slot + 1, slot):
        better_one = slot[1]
        slot[1] = slot[0]
        slot[0] = better_one
    return 0


cdef void starts_item(void* context, Py_ssize_t item, int slot) noexcept with gil:
    """Starts, one after the other, until none is left; each writes to its own objective and its thread's slot.

    What may raise an error needs a Python thread state, which takes the GIL to make: once for all starts.
    """
    cdef Starts* a = <Starts*> context
    cdef Py_ssize_t i
    try:
        with nogil:
            while True:
                i = next_item(&a.next)
                if i >= a.count:
                    break
                one(a.p, a.slots + 3 * slot, i, a.states[i], a.modes[i], &a.objectives[i])
    except BaseException as error:
        if next_item(&a.failed) == 0:
            Py_INCREF(error)
            a.error = <PyObject*> error
        next_item(a.stop)


cdef class FeatureSweep:
    """Starts of BP-means or K-features on one set of data; the best one is kept.

    X : IN array (n, d), float32 or float64, any strides, may be read-only
    weight : IN array (n,), float64, > 0, or None
    rule : "sweep", "collapsed" (penalty lam), "coordinate" or "exact" (K fixed)
    cap : largest number of features; K where it is fixed
    """

    cdef Problem p
    cdef Start best                     # of all starts so far
    cdef Start trial                    # memory for swaps
    cdef Py_ssize_t stopped             # not 0 once all starts are to end
    cdef readonly object X, weight
    cdef readonly int n_threads
    cdef readonly object objectives     # of all starts
    cdef object layout, mean            # of the sums
    cdef object callback                # called after each sweep of each start, unless it is None

    def __cinit__(self):
        memset(&self.p, 0, sizeof(Problem))
        memset(&self.best, 0, sizeof(Start))
        memset(&self.trial, 0, sizeof(Start))
        self.best.number = -1

    def __dealloc__(self):
        release(&self.best)
        release(&self.trial)
        sf_free(self.p.packed)

    def __init__(
        self, X, weight, str rule, double lam, Py_ssize_t cap, int max_iter, double tol, Py_ssize_t n_swaps,
        int n_threads, callback,
    ):
        cdef Py_ssize_t n = X.shape[0], d = X.shape[1]
        self.X, self.weight, self.n_threads = X, weight, n_threads
        self.p.n, self.p.d, self.p.tiles = n, d, (n + LANES - 1) // LANES
        self.p.rows = rows_of(X, weight, None)
        self.p.rule = RULES[rule]
        self.p.fixed = rule in ("coordinate", "exact")
        self.p.lam, self.p.cap, self.p.max_iter, self.p.tol = lam, cap, max_iter, tol
        self.p.n_swaps, self.callback = n_swaps, callback
        self.p.callback = NULL if callback is None else <void*> callback
        set_energy(&self.p, 0.0)
        self.p.bins = self.p.layers = 1
        if self.p.tiles * LANES * d <= PACKED:
            self.p.packed = <double*> new_memory(self.p.tiles * LANES * d * sizeof(double))
            pack(&self.p)

    cdef prepare(self):
        """The bins of the sums, which only starts need."""
        cdef const double[:, ::1] magic
        cdef const double[::1] mean
        if self.layout is not None:
            return
        release(&self.best)
        self.best.number = -1
        # about 0: a sum of w x is asked for
        self.layout = Layout(self.X, self.weight, self.n_threads, origin=np.zeros(self.p.d))
        self.mean = self.layout.mean(self.X, self.weight, self.n_threads)
        magic, mean = self.layout.magic, self.mean
        self.p.magic, self.p.mean = &magic[0, 0], &mean[0]
        self.p.bins = self.layout.bins
        self.p.layers = 1 if self.weight is None else self.layout.bins

    cdef Py_ssize_t first_room(self):
        return min(self.p.cap, <Py_ssize_t> 16) if not self.p.fixed else self.p.cap

    def measure(self):
        """Sum of w ||x||^2, which is also the error without any feature."""
        if self.best.room == 0:
            allocate(&self.p, &self.best, self.first_room(), self.n_threads)
        cdef Py_ssize_t k = self.best.k
        self.best.k = 0
        with nogil:
            set_energy(&self.p, evaluate(&self.p, &self.best))
        self.p.zero_square = ZERO_SQUARE * self.p.energy / (self.p.n if self.weight is None else self.weight.sum())
        self.best.k = k
        return self.p.energy

    def farthest_first(self):
        """The least that one of ``cap`` features saves, each the longest residual that the earlier ones leave.

        Only features with a positive residual count; 1 where there is none, that is, where X is zero.
        """
        cdef Py_ssize_t i, farthest
        cdef double before, after = self.measure(), least = HUGE_VAL
        while self.best.k < self.p.cap and after > ZERO_SQUARE * self.p.energy:
            farthest = 0
            for i in range(self.p.n):
                if self.best.squares[i] > self.best.squares[farthest]:
                    farthest = i
            residual_of(&self.p, &self.best, farthest, self.best.spare)
            add_feature(&self.p, &self.best)
            with nogil:
                join(&self.p, &self.best)
            before, after = after, total(&self.p, &self.best)
            least = min(least, before - after)
            check_interrupt(&self.best, self.p.n * self.p.d)
        return least if least < HUGE_VAL else 1.0

    def run_given(self, unsigned char[:, ::1] Z, uint64_t state):
        """One start from the rows of Z (IN)."""
        cdef Py_ssize_t i, j
        if Z.shape[0] != self.p.n or Z.shape[1] > self.p.cap:
            raise ValueError(f"Z must be ({self.p.n}, at most {self.p.cap}), got ({Z.shape[0]}, {Z.shape[1]})")
        self.prepare()
        self.measure()
        release(&self.best)
        allocate(&self.p, &self.best, max(Z.shape[1], self.first_room()), self.n_threads)
        self.best.k, self.best.number, self.best.rng = Z.shape[1], 0, state
        for i in range(self.p.n):
            for j in range(Z.shape[1]):
                bit(&self.best, i, j)[0] = Z[i, j]
        if self.p.n_swaps:
            release(&self.trial)
            allocate(&self.p, &self.trial, self.best.room, self.n_threads)
        with nogil:
            run_start(&self.p, &self.best, &self.trial, 0, True)
        self.objectives = np.array([self.best.objective])

    def run(self, const uint64_t[::1] states, const int[::1] modes):
        """One start from each state of the generator (IN), by the mean (mode 0) or the data (1)."""
        cdef Py_ssize_t count = states.shape[0], i, slots
        cdef int threads = self.n_threads, inner
        cdef double[::1] objectives
        cdef Start* starts
        cdef Starts a
        self.objectives = np.empty(count)
        objectives = self.objectives
        self.prepare()
        self.measure()
        inner = 1 if self.p.n * self.p.d <= SMALL else threads
        slots = min(<Py_ssize_t> (threads if inner == 1 else 1), count)
        starts = <Start*> new_memory(3 * slots * sizeof(Start))
        memset(starts, 0, 3 * slots * sizeof(Start))
        try:
            for i in range(3 * slots):
                if i % 3 < 2 or self.p.n_swaps:
                    allocate(&self.p, &starts[i], self.first_room(), inner)
                starts[i].number = -1
                starts[i].stop = &self.stopped
            self.stopped = 0
            a = Starts(&self.p, starts, 0, count, &states[0], &modes[0], &objectives[0], &self.stopped, 0, NULL)
            with nogil:
                run(starts_item, &a, 0, slots, slots)
            if a.error != NULL:
                error = <object> a.error
                Py_DECREF(error)
                raise error
            for i in range(slots):
                if starts[3 * i].number >= 0 and better(&starts[3 * i], &self.best):
                    release(&self.best)
                    self.best = starts[3 * i]
                    self.best.stop = NULL
                    memset(&starts[3 * i], 0, sizeof(Start))
        finally:
            for i in range(3 * slots):
                release(&starts[i])
            sf_free(starts)

    @property
    def k(self):
        """Number of features."""
        return self.best.k

    @property
    def objective(self):
        """Error + lam K; the error alone where K is fixed."""
        return self.best.objective

    @property
    def error(self):
        """Sum of w ||x - z A||^2."""
        return self.best.error

    @property
    def n_iter(self):
        """Sweeps."""
        return self.best.n_iter

    @property
    def converged(self):
        """Whether the sweeps came to a fixed point, or tol ended them."""
        return bool(self.best.converged)

    def sums(self):
        """Z'WZ, Z'WX and the number of users of each feature, as kept up."""
        cdef Py_ssize_t k = self.best.k, room = self.best.room
        read_sums(&self.p, &self.best)
        return (
            np.array([[self.best.zz[i * room + j] for j in range(k)] for i in range(k)]).reshape(k, k),
            np.array([[self.best.zx[i * self.p.d + j] for j in range(self.p.d)] for i in range(k)]),
            np.array([self.best.count[i] for i in range(k)]),
        )

    def path(self):
        """The objective after every sweep."""
        return np.array([self.best.path[i] for i in range(self.best.n_path)])

    def components(self):
        """A, (k, d)."""
        cdef double[:, ::1] out
        result = np.empty((self.best.k, self.p.d))
        if self.best.k:
            out = result
            memcpy(&out[0, 0], self.best.features, self.best.k * self.p.d * sizeof(double))
        return result

    def assignments(self):
        """Z, (n, k), int32."""
        cdef int[:, ::1] out
        cdef Copies a
        result = np.empty((self.p.n, self.best.k), dtype=np.int32)
        if self.best.k:
            out = result
            a = Copies(self.p.n, self.best.k, &self.best, &out[0, 0])
            with nogil:
                run(copy_item, &a, 0, self.p.tiles // RUN + 1, threads_for(&self.p, &self.best, self.p.tiles))
        return result

    def encode(self, const double[:, ::1] components):
        """Rows of Z for the data given these features (IN): coordinate passes from zero, then a search for better ones.

        Returns Z and the sum of w ||x - z A||^2.
        """
        cdef Py_ssize_t k = components.shape[0]
        cdef int passes = 0
        if k and components.shape[1] != self.p.d:
            raise ValueError(f"components must have {self.p.d} columns, got {components.shape[1]}")
        cdef bint changed = True
        self.measure()
        release(&self.best)
        allocate(&self.p, &self.best, k, self.n_threads)
        self.best.k = k
        if k:
            memcpy(self.best.features, &components[0, 0], k * self.p.d * sizeof(double))
        place_features(&self.p, &self.best)
        with nogil:
            while changed and passes < PASSES:
                changed = encode_pass(&self.p, &self.best)
                passes += 1
            if k:
                search(&self.p, &self.best)
            self.best.error = evaluate(&self.p, &self.best)
        return self.assignments(), self.best.error
