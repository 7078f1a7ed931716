"""What mergers need to know of the clusters: means, weights, and which one is cheapest to merge with.

What a partner is, and when it is searched again, is told in merge.pyx, whose compiler inlines these functions.

*Known squares.* In many columns the squared distances Q of all pairs of means are kept. Those of a union follow from
Lance and Williams' equation: with p = w_a / (w_a + w_b) and q = 1 - p,

    Q(union, c) = p Q(a, c) + q Q(b, c) - p q Q(a, b).

Costs made of these are off by rounding; what is off by more than the bound below is decided by them, and among the
others costs are computed from the means. So partners, and the costs of mergers, have the same bits as without Q.

*Error bound.* Let Q(a, c) be off by e_a + e_c at most, e_a being ``error`` of cluster a. By the equation Q(union, c) is
off by e_union + e_c, with e_union = p e_a + q e_b + p q (e_a + e_b) + r, where r stands for the rounding of the
equation and of the means. No distance is above 2 sqrt(d) / scale (see Frame), and u is the unit roundoff: a squared
distance that is computed from the means is off by (d + 2) u times its value at most, and the three products of the
equation, the weights and p and q by some 10 u. A mean is off by ``rounding``, a squared distance; that of the union is
compared with one made of two other means.
"""

from libc.math cimport HUGE_VAL

from smallvar._sweeps.state cimport squared_distance

cdef extern from "_exact.h" nogil:
    void sc_squares(const double* x, Py_ssize_t d, const double* columns, Py_ssize_t capacity, Py_ssize_t k,
                    double* squares)
    # OUT list: the clusters whose cost, less error, is finite and not above bound; returns how many
    Py_ssize_t sc_not_above(const double* cost, double error, const double* bound, Py_ssize_t k, int* list)
    Py_ssize_t sc_first(const double* cost, Py_ssize_t k, double* least)
    # returns the first cluster that is cheapest to merge with cluster ``self``, whose mean is x; -1, and HUGE_VAL as
    # least, if there is no other.  OUT costs: k, HUGE_VAL for the cluster itself and for rows without weight; least
    Py_ssize_t sc_cheapest(const double* x, Py_ssize_t d, const double* columns, Py_ssize_t capacity, Py_ssize_t k,
                           const double* weight, Py_ssize_t self, double* costs, double* least)
    # the same with squared distances that are known: square, k
    Py_ssize_t sc_ward(const double* square, Py_ssize_t k, const double* weight, Py_ssize_t self, double* costs,
                       double* least)

cdef enum:
    # clusters, at most, whose squared distances from each other are all kept: 32 MB; in fewer columns than these, they
    # take less time to be computed than to be read and written
    MOST_PAIRED = 2048
    PAIRED_COLUMNS = 16
    PAIRED_BLOCK = 32   # means that are compared with all others while they are in the cache
    NEARLY_CHEAPEST = 16    # where more than one in so many may be the cheapest, all costs are those of the means


cdef struct MergeClusters:  # what mergers need to know of the clusters, those merged into another one included
    Py_ssize_t k            # clusters
    Py_ssize_t d            # columns
    Py_ssize_t capacity     # clusters there is memory for
    double* mean            # capacity x d
    double* columns         # d x capacity: the means in columns, for vector instructions
    double* weight          # capacity; 0: merged into another one
    int* partner            # capacity; -1: to be found
    double* partner_cost    # capacity: Ward's cost of merging with the partner, or a bound that no cost is below
    double* scratch_costs   # threads x capacity: costs of merging one cluster with each of the others
    int* number             # capacity: the number of each before the call of merge
    Py_ssize_t pitch        # >= k: columns of squares
    double* squares         # k x pitch: squared distances of the means; NULL: computed when they are needed
    double* error           # capacity: bounds on the error of squares, see above
    double largest_error    # of a cluster that is a union; 0: squares are those of the means
    double first_error      # e_a of a cluster whose squares are those of the means
    double error_of_union   # r above


cdef inline double cost_of_pair(MergeClusters* clusters, Py_ssize_t a, Py_ssize_t b) noexcept nogil:
    """Ward's cost of two clusters of weight > 0, computed from their means."""
    cdef double w = clusters.weight[a], v = clusters.weight[b]
    return w * v / (w + v) * squared_distance(
        clusters.mean + a * clusters.d, 1, clusters.mean + b * clusters.d, clusters.d
    )


cdef inline double cost_error(MergeClusters* clusters, double weight) noexcept nogil:
    """Bound on the difference of a cost by ``squares`` from that by means, where one cluster has this weight."""
    # the factor of Q is below either weight; Q is off by twice largest_error, the cost by means by first_error
    return 4.0 * weight * clusters.largest_error


cdef inline void find_partner_by_means(MergeClusters* clusters, Py_ssize_t k, double* costs) noexcept nogil:
    """Find the partner of cluster k among all others by their means.  OUT costs."""
    clusters.partner[k] = <int> sc_cheapest(
        clusters.mean + k * clusters.d, clusters.d, clusters.columns, clusters.capacity, clusters.k, clusters.weight, k,
        costs, &clusters.partner_cost[k]
    )


cdef inline void find_partner(MergeClusters* clusters, Py_ssize_t k, int thread) noexcept nogil:
    """Find the partner of cluster k among all others; scratch_costs of the thread get its costs with them."""
    cdef double* costs = clusters.scratch_costs + thread * clusters.capacity
    cdef double least, second, cost, limit
    cdef Py_ssize_t c, first, close = 0
    if clusters.squares == NULL:
        find_partner_by_means(clusters, k, costs)
        return
    first = sc_ward(clusters.squares + k * clusters.pitch, clusters.k, clusters.weight, k, costs, &least)
    clusters.partner[k], clusters.partner_cost[k] = <int> first, least
    if clusters.largest_error == 0.0 or first < 0:
        return
    limit = least + 2.0 * cost_error(clusters, clusters.weight[k])
    clusters.partner_cost[k] = cost_of_pair(clusters, k, first)
    costs[first] = HUGE_VAL
    sc_first(costs, clusters.k, &second)
    costs[first] = least
    if second > limit:
        return
    for c in range(clusters.k):
        close += costs[c] <= limit
    if close * NEARLY_CHEAPEST > clusters.k:
        find_partner_by_means(clusters, k, costs)
        return
    for c in range(clusters.k):
        if costs[c] <= limit:
            cost = cost_of_pair(clusters, k, c)
            if cost < clusters.partner_cost[k] or (cost == clusters.partner_cost[k] and c < clusters.partner[k]):
                clusters.partner[k], clusters.partner_cost[k] = <int> c, cost


cdef inline void find_squares(MergeClusters* clusters, Py_ssize_t k) noexcept nogil:
    """Set the squared distances of cluster k from all others by the means."""
    cdef double* squares = clusters.squares + k * clusters.pitch
    cdef Py_ssize_t c
    sc_squares(
        clusters.mean + k * clusters.d, clusters.d, clusters.columns, clusters.capacity, clusters.k, squares
    )
    for c in range(clusters.k):
        clusters.squares[c * clusters.pitch + k] = squares[c]
    clusters.error[k] = clusters.first_error


cdef inline void find_squares_of_block(MergeClusters* clusters, Py_ssize_t block) noexcept nogil:
    """Set the squared distances of the clusters of a block from each other and from those of later blocks."""
    cdef Py_ssize_t start = block * PAIRED_BLOCK, size = min(<Py_ssize_t> PAIRED_BLOCK, clusters.k - start), k, c
    cdef double* squares
    for k in range(start, clusters.k):
        squares = clusters.squares + k * clusters.pitch + start
        sc_squares(
            clusters.mean + k * clusters.d, clusters.d, clusters.columns + start, clusters.capacity, size, squares
        )
        for c in range(size):
            clusters.squares[(start + c) * clusters.pitch + k] = squares[c]
    for c in range(start, start + size):
        clusters.error[c] = clusters.first_error


cdef inline void unite_squares(MergeClusters* clusters, Py_ssize_t a, Py_ssize_t b, double p) noexcept nogil:
    """Set the squared distances of cluster a to those of the union of a and b, by Lance and Williams' equation."""
    cdef double* of_a = clusters.squares + a * clusters.pitch
    cdef const double* of_b = clusters.squares + b * clusters.pitch
    cdef double q = 1.0 - p, between = p * q * of_a[b]
    cdef double* error = clusters.error
    cdef Py_ssize_t c
    for c in range(clusters.k):
        of_a[c] = p * of_a[c] + q * of_b[c] - between
    of_a[a] = 0.0
    for c in range(clusters.k):
        if clusters.weight[c] > 0.0:
            clusters.squares[c * clusters.pitch + a] = of_a[c]
    error[a] = p * error[a] + q * error[b] + p * q * (error[a] + error[b]) + clusters.error_of_union
    clusters.largest_error = max(clusters.largest_error, error[a])


cdef inline void set_mean(MergeClusters* clusters, Py_ssize_t k, const double* mean) noexcept nogil:
    """Set the mean of cluster k, in both tables."""
    cdef Py_ssize_t j
    for j in range(clusters.d):
        clusters.mean[k * clusters.d + j] = mean[j]
        clusters.columns[j * clusters.capacity + k] = mean[j]
