"""Collapsed BP-means (MB13 eq. 10): rows of Z are chosen for the features that are least squares for the other rows.

The objective is tr X'(W - WZ (Z'WZ)^-1 Z'W) X + lam K, in Z alone. P = (Z'WZ)^-1, A = P Z'WX and G = A A' are brought
up to date after every change of a row, by rank-one updates.
"""

from libc.math cimport fabs, sqrt
from libc.string cimport memcpy, memset

from smallvar._sweeps.features.solver cimport (
    add_feature,
    add_round,
    compact,
    independent,
    place_features,
    read_sums,
    remove,
    solve,
)
from smallvar._sweeps.features.state cimport (
    DEPENDENT,
    LANES,
    PASSES,
    Problem,
    Start,
    bit,
    check_interrupt,
    sf_axpy,
    sf_dot,
)
from smallvar._sweeps.rows cimport read_row, weight_of

cdef enum:
    REFRESH = 32        # rank-one updates between two fresh inverses

cdef extern from *:
    """
    #define SMALLVAR_COST_ROUNDING 1e-11
    #define SMALLVAR_ZERO_COST 1e-22
    #define SMALLVAR_ZERO_ENTRY 1e-7
    #define SMALLVAR_STRETCH 1e4
    """
    # of the root of a cost times that of w times the squares of row and features: costs that are closer tie
    const double COST_ROUNDING "SMALLVAR_COST_ROUNDING"
    const double ZERO_COST "SMALLVAR_ZERO_COST"  # of w times these squares: the same where a cost is near 0
    # of the largest entry of P z: columns with smaller ones have no part in a dependence
    const double ZERO_ENTRY "SMALLVAR_ZERO_ENTRY"
    const double STRETCH "SMALLVAR_STRETCH"  # factor of an update beyond which inverses are made afresh


cdef void row_of(const Problem* p, Py_ssize_t i, double* out) noexcept nogil:
    cdef Py_ssize_t j
    if p.packed != NULL:
        for j in range(p.d):
            out[j] = p.packed[((i // LANES) * p.d + j) * LANES + i % LANES]
    else:
        read_row(&p.rows, i, out, 1)


cdef int refresh(const Problem* p, Start* s) except -1 nogil:
    """P, A and G from the sums, columns that depend on earlier ones dropped."""
    cdef Py_ssize_t k = s.k, room = s.room, i, rank
    read_sums(p, s)
    rank = independent(s.zz, room, k, s.small, s.kept)
    if rank < k:
        s.removed += k - rank
        s.updates = 0
        compact(p, s, rank)
        read_sums(p, s)
        k = rank
    cdef double* inverse = s.small + room * room
    memset(inverse, 0, k * k * sizeof(double))
    for i in range(k):
        inverse[i * k + i] = 1.0
    solve(s.small, room, k, inverse, k)
    memcpy(s.spare, s.zx, k * p.d * sizeof(double))
    solve(s.small, room, k, s.spare, p.d)
    for i in range(k):
        memcpy(s.inverse + i * room, inverse + i * k, k * sizeof(double))
    memcpy(s.features, s.spare, k * p.d * sizeof(double))
    place_features(p, s)
    s.updates = 0
    return 0


cdef void without(const Problem* p, Start* s, Py_ssize_t gone, double* pp, double* gg, double* aa) noexcept nogil:
    """P, G and A of the problem without column ``gone``."""
    cdef Py_ssize_t k = s.k, room = s.room, i, j, a = 0, b
    cdef double ci, cj
    for i in range(k):
        if i == gone:
            continue
        ci = s.inverse[i * room + gone] / s.inverse[gone * room + gone]
        b = 0
        for j in range(k):
            if j == gone:
                continue
            cj = s.inverse[j * room + gone] / s.inverse[gone * room + gone]
            pp[a * room + b] = s.inverse[i * room + j] - ci * s.inverse[gone * room + j]
            gg[a * room + b] = (
                s.gram[i * room + j] - ci * s.gram[gone * room + j] - cj * s.gram[gone * room + i]
                + ci * cj * s.gram[gone * room + gone]
            )
            b += 1
        memcpy(aa + a * p.d, s.features + i * p.d, p.d * sizeof(double))
        sf_axpy(p.d, -ci, s.features + gone * p.d, aa + a * p.d)
        a += 1


cdef int write_row(const Problem* p, Start* s, Py_ssize_t i, const double* z) except -1 nogil:
    """Row i of Z becomes z, and the sums follow."""
    cdef Py_ssize_t t = i // LANES, k
    memcpy(s.old, s.z + t * s.room * LANES, s.k * LANES)
    for k in range(s.k):
        bit(s, i, k)[0] = z[k] != 0.0
    s.touched[0] = 1 << (i % LANES)
    add_round(p, s, t * LANES, t * LANES + 1)
    return 0


cdef int reconsider(const Problem* p, Start* s, Py_ssize_t i) except -1 nogil:
    """Take row i out, find the best new row, and take that if the objective falls by more than rounding.

    With P, A and G of the other rows, row z costs w ||x - z A||^2 / (1 + w z P z'), and a feature of its own costs lam.
    """
    cdef Py_ssize_t k = s.k, size = s.k, room = s.room, d = p.d, j, l, gone = -1
    cdef double* z = s.vec                  # the row, first as it was, then as it would be
    cdef double* pz = s.vec + room          # P z of the row as it was, P with the row
    cdef double* ar = s.vec + 2 * room      # A r likewise
    cdef double* g = s.vec + 3 * room       # A r of the row as it would be, A without it
    cdef double* q = s.vec + 4 * room       # P z likewise
    cdef double* u = s.vec + 5 * room       # w P z / (1 + w z P z'), by which the new row changes A
    cdef double* full = s.vec + 6 * room    # z over all columns, the one that was dropped included
    cdef double* x = s.wide
    cdef double* r = s.wide + d
    cdef double* pp = s.inverse             # P, G and A, or those without the column that was dropped
    cdef double* gg = s.gram
    cdef double* aa = s.features
    cdef double w = weight_of(&p.rows, i), h = 0.0, top = 0.0, rr, xx, f, t, sign, num, den, cost, old, margin
    cdef double new_num, new_den
    cdef bint alone, flipped = True
    cdef int passes = 0
    row_of(p, i, x)
    for j in range(k):
        z[j] = bit(s, i, j)[0]
    for j in range(k):
        pz[j] = sf_dot(k, pp + j * room, z)
        h += w * z[j] * pz[j]
    if 1.0 - h < DEPENDENT:
        # without this row columns depend on each other, those where P z is not zero: the last of them is dropped
        for j in range(k):
            top = max(top, fabs(pz[j]))
        for j in range(k):
            if fabs(pz[j]) > ZERO_ENTRY * top:
                gone = j
        if gone < 0:
            return 0
        pp, gg, aa = s.rest, s.rest + room * room, s.rest + 2 * room * room
        without(p, s, gone, pp, gg, aa)
        size = k - 1
        for j in range(gone, size):
            z[j] = z[j + 1]
        h = 0.0
        for j in range(size):
            pz[j] = sf_dot(size, pp + j * room, z)
            h += w * z[j] * pz[j]
        if 1.0 - h < DEPENDENT:
            return 0
    memcpy(r, x, d * sizeof(double))
    for j in range(size):
        if z[j] != 0.0:
            sf_axpy(d, -1.0, aa + j * d, r)
    rr, xx = sf_dot(d, r, r), sf_dot(d, x, x)
    for j in range(size):
        ar[j] = sf_dot(d, aa + j * d, r)
    f = 1.0 / (1.0 - h)
    t = w * f
    for j in range(size):
        g[j] = (ar[j] - t * pz[j] * rr) * f
        q[j] = pz[j] * f
    num, den = rr * f * f, f
    cost = w * num / den
    old = cost if gone < 0 else p.lam
    for j in range(size):
        xx += gg[j * room + j]
    margin = COST_ROUNDING * sqrt(max(cost, old)) * sqrt(w * xx) + ZERO_COST * w * xx
    while flipped and passes < PASSES:
        flipped = False
        passes += 1
        for j in range(size):
            sign = 1.0 - 2.0 * z[j]
            new_num = num - 2.0 * sign * g[j] + gg[j * room + j] - 2.0 * t * pz[j] * ar[j] + t * t * rr * pz[j] * pz[j]
            new_den = den + w * (2.0 * sign * q[j] + pp[j * room + j] + t * pz[j] * pz[j])
            if not w * max(new_num, 0.0) / new_den < cost - margin:
                continue
            for l in range(size):
                g[l] -= sign * (
                    gg[j * room + l] - t * (pz[j] * ar[l] + ar[j] * pz[l]) + t * t * rr * pz[j] * pz[l]
                )
                q[l] += sign * (pp[j * room + l] + t * pz[j] * pz[l])
            z[j] += sign
            num, den = max(new_num, 0.0), new_den
            cost = w * num / den
            flipped = True
    alone = p.lam < cost - margin and size < p.cap
    if not (p.lam if alone else cost) < old - margin:
        return 0
    s.changes += 1
    if gone < 0 and not alone:
        write_row(p, s, i, z)
        for j in range(size):
            sf_axpy(d, -t * pz[j], r, aa + j * d)
            for l in range(size):
                pp[j * room + l] += t * pz[j] * pz[l]
                gg[j * room + l] += t * t * rr * pz[j] * pz[l] - t * (pz[j] * ar[l] + ar[j] * pz[l])
        memcpy(r, x, d * sizeof(double))
        for j in range(size):
            if z[j] != 0.0:
                sf_axpy(d, -1.0, aa + j * d, r)
        rr = sf_dot(d, r, r)
        for j in range(size):
            u[j] = w * q[j] / den
        for j in range(size):
            sf_axpy(d, u[j], r, aa + j * d)
            for l in range(size):
                pp[j * room + l] -= u[j] * q[l]
                gg[j * room + l] += u[j] * g[l] + g[j] * u[l] + u[j] * u[l] * rr
        s.updates += 1
        if s.updates >= max(<Py_ssize_t> REFRESH, k) or f > STRETCH or den > STRETCH:
            refresh(p, s)
        return 0
    for j in range(size):  # the new row over all columns
        full[j if gone < 0 or j < gone else j + 1] = z[j]
    if gone >= 0:
        full[gone] = 0.0
    write_row(p, s, i, full)
    if gone >= 0:
        remove(p, s, gone)
        s.removed += 1
    if alone:
        memset(s.spare, 0, d * sizeof(double))
        add_feature(p, s)
        for j in range(s.k):
            s.vec[j] = bit(s, i, j)[0]
        s.vec[s.k - 1] = 1.0
        write_row(p, s, i, s.vec)
        s.created += 1
    s.updates = 0
    refresh(p, s)
    return 0


cdef int collapsed_sweep(const Problem* p, Start* s) except -1 nogil:
    """Every row reconsidered, in order."""
    cdef Py_ssize_t i
    for i in range(p.n):
        reconsider(p, s, i)
        check_interrupt(s, (2 * s.k + 1) * p.d + 3 * s.k * s.k)
    refresh(p, s)
    return 0
