"""Mergers of the cheapest pair of clusters by a Bregman divergence.

Merging clusters a and b, of weights w and means mu, costs

    w_a D(mu_a, m) + w_b D(mu_b, m),

m being the joint mean. Each cluster has a partner, of those after it the one that is cheapest to merge with, the first
at a tie; the cheapest pair is a cluster and its partner. A cluster whose partner was merged keeps the old cost as a
bound, and searches again once that is the least of all.

*Bounds.* Logarithms are computed only where a lower bound of the cost does not decide. With K = w_a w_b / (w_a + w_b)
and t = |mu_a - mu_b|, from

    x log(x / m) - x + m >= 3 (x - m)^2 / (4 m + 2 x),
    x / m - log(x / m) - 1 >= 3 (x - m)^2 / (m (4 x + 2 m))

and the convexity of 1 / y, a column costs at least 1.5 K t^2 over

    s = mu_a + mu_b + m                for counts,
    m (2 (mu_a + mu_b) - m)            for positive values,
    s (3 - s) / 3                      for fractions, the sum of 1 / s and 1 / (3 - s) being 3 / (s (3 - s)).
"""

from libc.math cimport HUGE_VAL

from smallvar._sweeps.divergences cimport C_ITAKURA_SAITO, C_KULLBACK_LEIBLER, summand
from smallvar._sweeps.rows cimport poll_signals, refuse_rows
from smallvar._sweeps.sums cimport Sums, mean_of_sums, sums_clear, sums_unite, sums_weight

import numpy as np

from smallvar._sweeps.sums import SMALLEST_POSITIVE

cdef extern from "_divergence_bounds.h" nogil:
    # OUT the last argument: the sum over columns of the bounds above, divided by K
    void sd_counts(const double*, Py_ssize_t, const double*, Py_ssize_t, Py_ssize_t, const double*, double*)
    void sd_positive(const double*, Py_ssize_t, const double*, Py_ssize_t, Py_ssize_t, const double*, double*)
    void sd_fractions(const double*, Py_ssize_t, const double*, Py_ssize_t, Py_ssize_t, const double*, double*)

cdef enum:
    DIVERGENCE_MERGE_WORK = 1 << 26     # summands between two checks for signals

cdef extern from *:
    """
    #define SMALLVAR_BOUND_ROUNDING (1.0 - 0x1p-30)
    """
    const double BOUND_ROUNDING "SMALLVAR_BOUND_ROUNDING"   # a factor: makes up for the rounding of sums


cdef struct DivergenceClusters:
    int kind
    Py_ssize_t k
    Py_ssize_t d
    double smallest         # SMALLEST_POSITIVE
    double* mean            # k x d
    double* columns         # d x k: the same in columns
    double* weight          # k; 0: merged into another one
    Py_ssize_t* united      # k: which merger made it, counted from 1; 0: none
    Py_ssize_t* partner     # k: its own number if there is none
    double* least           # k: cost of merging with the partner, or a lower bound of it
    unsigned char* stale    # k: whether it is only a bound
    double* bounds          # k, scratch, as the following
    double* shares          # k


cdef double cost_of(const DivergenceClusters* clusters, Py_ssize_t a, Py_ssize_t b, double most) noexcept nogil:
    """The cost of merging two clusters; where it is above ``most``, a number that is, too."""
    cdef Py_ssize_t j, d = clusters.d
    cdef double share, joint, x, y, value, from_a = 0.0, from_b = 0.0
    if clusters.united[b] > clusters.united[a] or clusters.united[a] == clusters.united[b] and b < a:
        a, b = b, a     # the order decides about rounding: the joint mean is computed from the latest union
    share = clusters.weight[b] / (clusters.weight[a] + clusters.weight[b])
    for j in range(d):
        x, y = clusters.mean[a * d + j], clusters.mean[b * d + j]
        joint = x + share * (y - x)
        if joint == 0.0 and x != y:  # it has underflowed: the divergence would be infinite
            joint = clusters.smallest
        value = summand(clusters.kind, x, joint)
        from_a += 0.0 if value <= 0.0 else value    # NaN stays
        value = summand(clusters.kind, y, joint)
        from_b += 0.0 if value <= 0.0 else value
        if clusters.weight[a] * from_a + clusters.weight[b] * from_b > most:
            break   # no later summand lowers the cost
    return clusters.weight[a] * from_a + clusters.weight[b] * from_b


cdef void bound_costs(const DivergenceClusters* clusters, Py_ssize_t a, Py_ssize_t first) noexcept nogil:
    """Lower bounds of the costs of merging cluster a with those from ``first`` on; NaN beyond float64."""
    cdef Py_ssize_t b, k = clusters.k, d = clusters.d
    cdef double w = clusters.weight[a]
    cdef const double* mean = clusters.mean + a * d
    cdef const double* columns = clusters.columns + first
    cdef const double* weight = clusters.weight
    cdef double* bounds = clusters.bounds
    cdef double* shares = clusters.shares
    for b in range(first, k):
        shares[b] = weight[b] / (w + weight[b])
    if clusters.kind == C_KULLBACK_LEIBLER:
        sd_counts(mean, d, columns, k, k - first, shares + first, bounds + first)
    elif clusters.kind == C_ITAKURA_SAITO:
        sd_positive(mean, d, columns, k, k - first, shares + first, bounds + first)
    else:
        sd_fractions(mean, d, columns, k, k - first, shares + first, bounds + first)
    # w shares[b] is K; a cluster is no partner of itself, nor one that was merged of any
    for b in range(first, k):
        bounds[b] = w * shares[b] * bounds[b] * BOUND_ROUNDING if b != a and weight[b] > 0.0 else HUGE_VAL


cdef void consider(const DivergenceClusters* clusters, Py_ssize_t a, Py_ssize_t b) noexcept nogil:
    """Make b > a the partner of a if it is cheaper, or as cheap and of a lower number.

    If ``least`` is only a bound, others may be as cheap.
    """
    cdef double cost = cost_of(clusters, a, b, clusters.least[a])
    if not cost >= clusters.least[a] or (
        cost == clusters.least[a] and b < clusters.partner[a] and not clusters.stale[a]
    ):
        # NaN comes before all others, so that it is seen
        clusters.partner[a], clusters.least[a] = b, cost if cost == cost else -HUGE_VAL
        clusters.stale[a] = False


cdef void find_partner(const DivergenceClusters* clusters, Py_ssize_t a) noexcept nogil:
    """Find the partner of cluster a among those after it, by bounds."""
    cdef Py_ssize_t b, first = a
    clusters.partner[a], clusters.least[a], clusters.stale[a] = a, HUGE_VAL, False
    for b in range(a + 1, clusters.k):
        if clusters.bounds[b] < clusters.bounds[first]:
            first = b
    if first > a:   # so that few of the others have to be compared
        consider(clusters, a, first)
    for b in range(a + 1, clusters.k):
        if b != first and not clusters.bounds[b] > clusters.least[a] and clusters.weight[b] > 0.0:
            consider(clusters, a, b)


cdef void follow_union(const DivergenceClusters* clusters, Py_ssize_t a, Py_ssize_t b) noexcept nogil:
    """Bring the partners up to date after cluster b was merged into a < b."""
    cdef Py_ssize_t c
    clusters.least[b], clusters.stale[b] = HUGE_VAL, False
    bound_costs(clusters, a, 0)
    find_partner(clusters, a)
    for c in range(b):
        if clusters.weight[c] > 0.0 and c != a:
            if clusters.partner[c] == b or clusters.partner[c] == a:
                clusters.stale[c] = True    # other costs are not below ``least``
            if c < a and not clusters.bounds[c] > clusters.least[c]:
                consider(clusters, c, a)


cdef Py_ssize_t cheapest(const DivergenceClusters* clusters) noexcept nogil:
    """The first cluster of a cheapest pair."""
    cdef Py_ssize_t a, best
    while True:
        best = 0
        for a in range(1, clusters.k):
            if clusters.least[a] < clusters.least[best]:
                best = a
        if not clusters.stale[best]:
            return best
        bound_costs(clusters, best, best)
        find_partner(clusters, best)


def merge_cheapest(int kind, double[:, ::1] mean, double[::1] weight, Sums sums, Py_ssize_t count):
    """Merge the cheapest pair, ``count`` times over; of equal ones the first.

    mean, weight : INOUT arrays (k, d), (k,), of the clusters; those of a union replace those of its first cluster, and
        the weight of the second becomes 0
    sums : INOUT, sums of the members

    Returns the pairs a < b, (count, 2), as numbered before, and what they cost, (count,).
    """
    cdef Py_ssize_t a, b, j, m, k = mean.shape[0], d = mean.shape[1], work = 0
    cdef double[:, ::1] columns = np.array(np.asarray(mean).T, order="C")
    cdef double[:, ::1] scratch = np.empty((3, k))
    cdef Py_ssize_t[:, ::1] numbers = np.zeros((2, k), dtype=np.intp), pairs = np.empty((count, 2), dtype=np.intp)
    cdef unsigned char[::1] stale = np.zeros(k, dtype=np.uint8)
    cdef double[::1] costs = np.empty(count)
    cdef DivergenceClusters clusters = DivergenceClusters(
        kind, k, d, SMALLEST_POSITIVE, &mean[0, 0], &columns[0, 0], &weight[0], &numbers[0, 0], &numbers[1, 0],
        &scratch[0, 0], &stale[0], &scratch[1, 0], &scratch[2, 0]
    )
    if weight.shape[0] != k or sums.capacity < k or count >= k:
        raise ValueError("mean, weight, sums and count must match")
    with nogil:
        for a in range(k):
            bound_costs(&clusters, a, a)
            find_partner(&clusters, a)
            poll_signals(&work, k * d, DIVERGENCE_MERGE_WORK)
        for m in range(count):
            a = cheapest(&clusters)
            if not -HUGE_VAL < clusters.least[a] < HUGE_VAL:
                refuse_rows()
            b = clusters.partner[a]
            pairs[m, 0], pairs[m, 1], costs[m] = a, b, clusters.least[a]
            sums_unite(&sums.table, a, &sums.table, b)
            sums_clear(&sums.table, b, b + 1)
            mean_of_sums(&sums.table, a, &mean[a, 0], 1)
            weight[a], weight[b], clusters.united[a] = sums_weight(&sums.table, a), 0.0, m + 1
            for j in range(d):
                columns[j, a] = mean[a, j]
            follow_union(&clusters, a, b)
            poll_signals(&work, 4 * k * d, DIVERGENCE_MERGE_WORK)
    return np.asarray(pairs), np.asarray(costs)
