"""A lower bound of their own for the few centers that move far (the restless), so that l stays tight for the others."""

from smallvar._sweeps.rows cimport real_x
from smallvar._sweeps.scores cimport BATCH, Batch, batch_error, fill, pad, score
from smallvar._sweeps.state cimport (
    BIG,
    CHUNK,
    State,
    exact_distance,
    lower,
    padded,
    real_c,
    record_move,
    surely_far,
    upper,
)
from smallvar._sweeps.tolerances cimport DISTANCE_MARGIN

cdef extern from "simd.h" nogil:
    const Py_ssize_t SV_PANEL

cdef enum:
    MAX_RANKS = 12  # thresholds of the drift that are tried: the centers above one would be restless
    SAMPLE = 1000   # points that the cost of a choice is estimated from
    GATHER = 40     # centers that are scored in the time that it takes to gather a point

cdef extern from *:
    """
    #define SMALLVAR_SMALLEST_DRIFT 3e-19
    """
    # scaled distance: a center that moved less did not move, since its square is 0 in float32
    const double SMALLEST_DRIFT "SMALLVAR_SMALLEST_DRIFT"


cdef void flush_restless(
    const real_x* x, State* s, Batch* b, real_c* tiles, unsigned char* flag
) noexcept nogil:
    """Score the batch against the restless centers. Calm ones but the own one are farther than l, which is above u."""
    cdef real_c m1[BATCH]
    cdef real_c m2[BATCH]
    cdef int best[BATCH]
    cdef Py_ssize_t m, q, i, chunk = b.index[0] // CHUNK
    cdef double error, own, other, distance, t
    cdef int label, z
    fill(x, s, b, tiles)
    error = batch_error(s, b)
    score(s, b.size, tiles, s.restless_scaled, s.restless_norm, 0, padded(s.n_restless), m1, m2, best)
    for m in range(b.size):
        i = b.index[m]
        z = s.label[i]
        distance = b.own[m]
        own = distance * s.scale * s.scale
        label = s.restless[best[m]]
        # the least score may be that of the own center, if that is restless: then the second counts
        other = b.squares[m] + <double> (m2[m] if label == z else m1[m]) - error
        if other > own * (1.0 + DISTANCE_MARGIN):
            label = z
        elif (
            label != z
            and other + 2.0 * error < own * (1.0 - DISTANCE_MARGIN)
            and <double> m2[m] - <double> m1[m] > 2.0 * error
        ):
            distance = exact_distance(x, s, i, label)
        else:
            label = z
            distance = exact_distance(x, s, i, z)
            for q in range(s.n_restless):
                t = exact_distance(x, s, i, s.restless[q])
                if t < distance or (t == distance and s.restless[q] < label):
                    distance = t
                    label = s.restless[q]
            s.n_exact[chunk] += 1
        if label != z:
            own = own * (1.0 - DISTANCE_MARGIN)
            other = min(own, b.squares[m] + <double> m2[m] - error)
            s.l[i] = min(s.l[i], lower(own))
            record_move(s, i, label)
            s.u[i] = upper(distance, s.scale)
        s.g[i] = lower(other)
        if s.seek and surely_far(x, s, i, distance):
            flag[i - chunk * CHUNK] = 2
    s.n_searched[chunk] += b.size * s.n_restless
    b.size = 0


cdef void copy_center(
    const real_c* scaled, const real_c* norm, Py_ssize_t d, Py_ssize_t k, real_c* to, real_c* to_norm, Py_ssize_t m
) noexcept nogil:
    """Copy the entry of center k to number m of other tables."""
    cdef Py_ssize_t j
    scaled = scaled + k // SV_PANEL * SV_PANEL * d + k % SV_PANEL
    to = to + m // SV_PANEL * SV_PANEL * d + m % SV_PANEL
    for j in range(d):
        to[j * SV_PANEL] = scaled[j * SV_PANEL]
    to_norm[m] = norm[k]


cdef void copy_restless(State* s) noexcept nogil:
    """What the scores need of the restless centers, padded."""
    cdef Py_ssize_t m
    for m in range(s.n_restless):
        if s.single:
            copy_center(<const float*> s.scaled, <const float*> s.norm, s.d, s.restless[m],
                        <float*> s.restless_scaled, <float*> s.restless_norm, m)
        else:
            copy_center(<const double*> s.scaled, <const double*> s.norm, s.d, s.restless[m],
                        <double*> s.restless_scaled, <double*> s.restless_norm, m)
    pad(s, s.restless_scaled, s.restless_norm, s.n_restless)


cdef void forget_restless(State* s) noexcept nogil:
    """All centers are calm from now on, and l is a bound for all of them."""
    cdef Py_ssize_t i, m
    if s.n_restless == 0:
        return
    for m in range(s.n_restless):
        s.is_restless[s.restless[m]] = False
    s.n_restless = 0
    for i in range(s.n):
        s.l[i] = s.l[i] if s.l[i] < s.g[i] else s.g[i]
    for i in range(s.n):
        s.g[i] = BIG


cdef void drift_of_others(State* s) noexcept nogil:
    """r and rg from p: the largest drift among the calm and among the restless centers other than z."""
    cdef float[2] first, second
    cdef Py_ssize_t[2] farthest
    cdef Py_ssize_t k, t
    first[0], first[1], second[0], second[1], farthest[0], farthest[1] = 0.0, 0.0, 0.0, 0.0, -1, -1
    for k in range(s.k):
        t = s.is_restless[k]
        if s.p[k] > first[t]:
            second[t] = first[t]
            first[t] = s.p[k]
            farthest[t] = k
        else:
            second[t] = max(second[t], s.p[k])
    for k in range(s.k):
        s.r[k] = second[0] if k == farthest[0] else first[0]
        s.rg[k] = second[1] if k == farthest[1] else first[1]


cdef void choose_restless(State* s, Py_ssize_t opened_alone, Py_ssize_t least_k) noexcept nogil:
    """Give the m centers that moved farthest a bound g of their own, so that their drift does not spoil l.

    A point that fails the test only because of g is scored against the m restless centers only, and has a fresh g
    afterward. A new choice worsens the bounds, so the present one is kept unless another is clearly cheaper; what the
    next sweep would cost with each is estimated from a sample of the points. The center that was the only one opened in
    a sweep (opened_alone, or -1) is always restless; others may be so from least_k centers on.
    """
    cdef Py_ssize_t k, q, m, best_m = 0, i, n_ranks = 0, step = max(<Py_ssize_t> 1, s.n // SAMPLE)
    cdef Py_ssize_t failed = 0, kept_failed = 0, kept_still = 0
    cdef double cost, best_cost, full = s.k + GATHER
    cdef Py_ssize_t rank_m[MAX_RANKS]
    cdef float rank_drift[MAX_RANKS]
    cdef Py_ssize_t still[MAX_RANKS]
    cdef float threshold, slack, low, u, most = 0.0
    s.opened_restless = opened_alone >= 0 and s.lazy
    if not s.lazy or s.k < (4 if s.opened_restless else least_k):
        forget_restless(s)
    else:
        drift_of_others(s)
        # candidate thresholds: halves of the largest drift, with the number of centers above each
        for k in range(s.k):
            most = max(most, s.p[k])
        threshold = most
        while n_ranks < MAX_RANKS:
            threshold = threshold * <float> 0.5 if n_ranks < MAX_RANKS - 1 else <float> SMALLEST_DRIFT
            m = 0
            slack = 0.0
            for k in range(s.k):
                if s.p[k] > threshold:
                    m += 1
                else:
                    slack = max(slack, s.p[k])
            rank_m[n_ranks] = m
            rank_drift[n_ranks] = slack
            still[n_ranks] = 0
            n_ranks += 1
        for m in range((s.n + step - 1) // step):
            i = m * step
            k = s.label[i]
            u = s.u[i] + s.p[k]
            if u < s.h[k]:
                continue
            if not u < min(s.l[i] - s.r[k], s.g[i] - s.rg[k]):
                kept_failed += 1
                kept_still += not u < s.l[i] - s.r[k]
            low = min(s.l[i], s.g[i])
            if not u < low - most:
                failed += 1
                for q in range(n_ranks):
                    still[q] += not u < low - rank_drift[q]
        # a new choice must be 30% cheaper: it takes two more passes over the bounds and makes them worse
        best_cost = 0.7 * (kept_still * full + (kept_failed - kept_still) * (s.n_restless + GATHER))
        best_m = -1
        if s.n_restless > 0 and failed * full < best_cost:
            best_cost = failed * full
            best_m = 0
        for q in range(n_ranks):
            cost = (failed - still[q]) * (rank_m[q] + GATHER) + still[q] * full
            if cost < best_cost and rank_m[q] * 4 <= s.k:
                best_cost = cost
                best_m = q + 1
        if best_m >= 0:
            forget_restless(s)
        if best_m > 0:
            for k in range(s.k):
                if s.p[k] > rank_drift[best_m - 1]:
                    s.restless[s.n_restless] = <int> k
                    s.is_restless[k] = True
                    s.n_restless += 1
            for i in range(s.n):
                s.g[i] = s.l[i]
    if s.opened_restless and not s.is_restless[opened_alone]:
        s.restless[s.n_restless] = <int> opened_alone
        s.is_restless[opened_alone] = True
        s.n_restless += 1
    drift_of_others(s)
    copy_restless(s)
