"""The best row of Z for given features, by branch and bound.

For z in {0, 1}^k, z_i^2 = z_i, so for any alpha > 0

    ||x - z A||^2 + alpha sum_i (z_i - 1/2)^2 = ||R z' - y||^2 + const,  R'R = A A' + alpha I,  R'y = A x + alpha / 2,

and the second term on the left is alpha k / 4 for all z. With R upper triangular the square is a sum over i of
(y_i - sum_{j >= i} R_ij z_j)^2: bits are chosen from the last to the first, the nearer value first, and a choice whose
sum exceeds that of the best row so far is left with all rows that begin with it (Schnorr and Euchner, 1994). alpha
makes what is summed first count where features nearly depend on each other, or outnumber the columns.
"""

from libc.math cimport sqrt

from smallvar._sweeps.features.state cimport (
    LANES,
    TIE,
    Pass,
    Problem,
    Scratch,
    Start,
    check_interrupt,
    sf_dots,
    sf_load_bits,
    sf_residual,
    share,
    tile_of,
    work_tiles,
)
from smallvar._sweeps.features.sweeps cimport keep_better

cdef enum:
    NODES = 1 << 13     # choices of a bit for a row: enough for all there are where k = 12

cdef extern from *:
    """
    #define SMALLVAR_RIDGE 0.01
    """
    const double RIDGE "SMALLVAR_RIDGE"  # alpha, as a share of the mean square of a feature


cdef double factor(Start* s) noexcept nogil:
    """R, in s.small, for the features in the order s.kept; returns alpha, 0 if the features are.

    Of those left the one with the least pivot comes first, so that the bits that decide most are chosen first.
    """
    cdef Py_ssize_t k = s.k, room = s.room, i, j, m, least, number
    cdef double* r = s.small
    cdef double* pivot = s.refund
    cdef double alpha = 0.0, value
    for i in range(k):
        alpha += s.gram[i * room + i]
    alpha *= RIDGE / k
    for i in range(k):
        s.kept[i] = i
        pivot[i] = s.gram[i * room + i] + alpha
    if not alpha > 0.0:
        return 0.0
    for i in range(k):
        least = i
        for j in range(i + 1, k):
            if pivot[j] < pivot[least]:
                least = j
        number, s.kept[i] = s.kept[i], s.kept[least]
        s.kept[least] = number
        value, pivot[i] = pivot[i], pivot[least]
        pivot[least] = value
        for m in range(i):
            value, r[m * room + i] = r[m * room + i], r[m * room + least]
            r[m * room + least] = value
        r[i * room + i] = sqrt(pivot[i])
        for j in range(i + 1, k):
            value = s.gram[s.kept[i] * room + s.kept[j]]
            for m in range(i):
                value -= r[m * room + i] * r[m * room + j]
            value /= r[i * room + i]
            r[i * room + j] = value
            pivot[j] = max(alpha, pivot[j] - value * value)
    return alpha


cdef bint search_row(const Start* s, double alpha, int l, Scratch* w) noexcept nogil:
    """A better row for lane l of a tile, whose row is in w.z and A x in w.dots; returns whether there is one."""
    cdef Py_ssize_t k = s.k, room = s.room, i, j, nodes = 0
    cdef const double* r = s.small
    cdef double* y = w.work                 # room each: the right-hand side,
    cdef double* rest = w.work + room       # what is left of it by the bits chosen,
    cdef double* z = w.work + 2 * room      # these bits,
    cdef double* tried = w.work + 3 * room  # how many values of each were tried,
    cdef double* best = w.work + 4 * room   # the best row,
    cdef double* sums = w.work + 5 * room   # and the squares of the bits from i on
    cdef double value, bound = 0.0, part
    cdef bint found = False
    for i in range(k):
        value = w.dots[s.kept[i] * LANES + l] + 0.5 * alpha
        for j in range(i):
            value -= r[j * room + i] * y[j]
        y[i] = value / r[i * room + i]
        z[i] = w.z[s.kept[i] * LANES + l]
    for i in range(k):
        value = y[i]
        for j in range(i, k):
            value -= r[i * room + j] * z[j]
        bound += value * value
    bound *= 1.0 - TIE
    i = k - 1
    rest[i], tried[i] = y[i], 0.0
    while nodes < NODES:
        if tried[i] == 2.0:
            i += 1
            if i == k:
                break
            continue
        if tried[i] == 0.0:
            z[i] = 1.0 if rest[i] > 0.5 * r[i * room + i] else 0.0
        else:
            z[i] = 1.0 - z[i]
        tried[i] += 1.0
        nodes += 1
        value = rest[i] - r[i * room + i] * z[i]
        part = value * value + (sums[i + 1] if i + 1 < k else 0.0)
        if not part < bound:  # nor is the other value better, which is farther
            tried[i] = 2.0
        elif i == 0:
            bound, found = part, True
            for j in range(k):
                best[j] = z[j]
        else:
            sums[i] = part
            i -= 1
            value = y[i]
            for j in range(i + 1, k):
                value -= r[i * room + j] * z[j]
            rest[i], tried[i] = value, 0.0
    if found:
        for i in range(k):
            w.z[s.kept[i] * LANES + l] = best[i]
    return found


cdef void search_run(const Pass* a, Py_ssize_t t0, Py_ssize_t t1, Scratch* w) noexcept nogil:
    cdef const Problem* p = a.p
    cdef Start* s = a.s
    cdef Py_ssize_t t
    cdef double alpha = s.spare[0]
    cdef double before[LANES]
    cdef const double* x
    cdef int changed, l
    for t in range(t0, t1):
        x = tile_of(p, t, w.x)
        sf_load_bits(s.k, s.z + t * s.room * LANES, w.z)
        sf_residual(p.d, s.k, s.room, x, w.z, s.at, w.residual, before)
        sf_dots(p.d, s.k, s.room, x, s.at, w.dots)
        changed = 0
        for l in range(min(p.n - t * LANES, <Py_ssize_t> LANES)):
            s.squares[t * LANES + l] = before[l]
            if before[l] > 0.0 and search_row(s, alpha, l, w):
                changed |= 1 << l
        if changed:
            keep_better(p, s, t, changed, before, w)


cdef int search(const Problem* p, Start* s) except -1 nogil:
    """The best row for each point, or the best of those met in so many steps; never a worse one than it has."""
    cdef Py_ssize_t start = 0, stop, each = p.d * (2 * s.k + 1) + NODES * s.k
    s.spare[0] = factor(s)
    if not s.spare[0] > 0.0:
        return 0
    while start < p.n:
        stop = min(p.n, start + work_tiles(p, each) * LANES)
        share(search_run, p, s, start // LANES, (stop + LANES - 1) // LANES, start, stop)
        check_interrupt(s, (stop - start) * each)
        start = stop
    return 0
