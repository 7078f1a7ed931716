"""Collapsed BP-means (MB13 eq. 10): rows of Z are chosen for the features that are least squares for the other rows.

The objective is tr X'(W - WZ (Z'WZ)^-1 Z'W) X + lam K, in Z alone. P = (Z'WZ)^-1, A = P Z'WX and G = A A' are brought
up to date after every change of a row z of point x and weight w, by rank-one updates (Sherman and Morrison). With the
leverage h = w z P z' and the residual r = x - z A, the problem of the other rows (marked by a minus sign) has

    f = 1 / (1 - h),  t = w f,  P- = P + t Pz zP,  A- = A - t Pz r,  x - z A- = f r,  1 + w z P- z' = f,

and a row z costs w ||x - z A-||^2 / (1 + w z P- z') more than the other rows alone. Both parts are quadratic in z: they
follow for all 2^k rows from what each flip of a bit of the row as it was, and each pair of flips, adds to them. With
more than ``most_tried`` features single bits are flipped until none helps.
"""

from libc.math cimport fabs, sqrt
from libc.string cimport memcpy, memset

from smallvar._sweeps.features.state cimport (
    DEPENDENT,
    MAX_PASSES,
    Collapsed,
    FeatureProblem,
    FeatureState,
    add_feature,
    add_round,
    begin_row,
    bit,
    check_interrupt,
    compact,
    independent,
    least_squares,
    read_sums,
    remove,
    sf_axpy,
    sf_dot,
    solve,
    update_all_tables,
)
from smallvar._sweeps.rows cimport row_at, weight_of

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


cdef struct CollapsedRow:       # a row that is reconsidered; its vectors are in State.collapsed
    Py_ssize_t i
    Py_ssize_t size             # columns of the problem
    Py_ssize_t dropped          # the column that depends on others without this row, or -1
    double* inverse             # P, G and A with this row, without that column
    double* gram
    double* features
    double weight
    double square               # ||r||^2
    double f                    # these two as above
    double t
    double numerator            # ||x - z A-||^2, z the row as it would be
    double denominator          # 1 + w z P- z'
    double cost                 # w numerator / denominator
    double old_cost             # of the row as it was, or the penalty of the column that only it keeps
    double margin               # what costs have to differ by, more than rounding


cdef int refresh(const FeatureProblem* problem, FeatureState* state) except -1 nogil:
    """Compute P, A and G from the sums. Columns that depend on earlier ones are dropped."""
    cdef Py_ssize_t k = state.k, d = problem.d, capacity = state.capacity, i, rank
    cdef double* inverse = state.collapsed.inverse
    read_sums(problem, state)
    rank = independent(state.sums.zz, capacity, k, state.solver.factor, state.solver.kept)
    if rank < k:
        state.progress.n_removed += k - rank
        compact(problem, state, rank)
        read_sums(problem, state)
        k = rank
    for i in range(k):
        memset(inverse + i * capacity, 0, k * sizeof(double))
        inverse[i * capacity + i] = 1.0
    solve(state.solver.factor, capacity, k, inverse, k, capacity)
    memcpy(state.features.rows, state.sums.zx, k * d * sizeof(double))
    solve(state.solver.factor, capacity, k, state.features.rows, d, d)
    update_all_tables(problem, state)
    state.collapsed.n_updates = 0
    return 0


cdef void reduce_problem(FeatureState* state, Py_ssize_t dropped, Py_ssize_t d) noexcept nogil:
    """Compute P, G and A of the problem without column ``dropped``, into the reduced ones."""
    cdef Py_ssize_t k = state.k, capacity = state.capacity, i, j, a = 0, b
    cdef Collapsed* collapsed = &state.collapsed
    cdef const double* p = collapsed.inverse
    cdef const double* g = state.features.gram
    cdef double ci, cj
    for i in range(k):
        if i == dropped:
            continue
        ci = p[i * capacity + dropped] / p[dropped * capacity + dropped]
        b = 0
        for j in range(k):
            if j == dropped:
                continue
            cj = p[j * capacity + dropped] / p[dropped * capacity + dropped]
            collapsed.reduced_inverse[a * capacity + b] = p[i * capacity + j] - ci * p[dropped * capacity + j]
            collapsed.reduced_gram[a * capacity + b] = (
                g[i * capacity + j] - ci * g[dropped * capacity + j] - cj * g[dropped * capacity + i]
                + ci * cj * g[dropped * capacity + dropped]
            )
            b += 1
        memcpy(collapsed.reduced_features + a * d, state.features.rows + i * d, d * sizeof(double))
        sf_axpy(d, -ci, state.features.rows + dropped * d, collapsed.reduced_features + a * d)
        a += 1


cdef double leverage(const FeatureState* state, const CollapsedRow* row) noexcept nogil:
    """The leverage h = w z P z' of a row; sets P z."""
    cdef Py_ssize_t j, size = row.size, capacity = state.capacity
    cdef const double* inverse = row.inverse
    cdef const double* z = state.collapsed.z
    cdef double* p_z = state.collapsed.p_z
    cdef double w = row.weight, h = 0.0
    for j in range(size):
        p_z[j] = sf_dot(size, inverse + j * capacity, z)
        h += w * z[j] * p_z[j]
    return h


cdef double drop_column(FeatureState* state, CollapsedRow* row, Py_ssize_t d) noexcept nogil:
    """Drop the last column that depends on others without this row; returns the leverage then, 1 if there is none.

    These are the columns where P z is not zero.
    """
    cdef Py_ssize_t j
    cdef Collapsed* collapsed = &state.collapsed
    cdef double largest = 0.0
    for j in range(row.size):
        largest = max(largest, fabs(collapsed.p_z[j]))
    for j in range(row.size):
        if fabs(collapsed.p_z[j]) > ZERO_ENTRY * largest:
            row.dropped = j
    if row.dropped < 0:
        return 1.0
    reduce_problem(state, row.dropped, d)
    row.inverse, row.gram = collapsed.reduced_inverse, collapsed.reduced_gram
    row.features = collapsed.reduced_features
    row.size -= 1
    for j in range(row.dropped, row.size):
        collapsed.z[j] = collapsed.z[j + 1]
    return leverage(state, row)


cdef double set_residual(const FeatureState* state, const CollapsedRow* row, Py_ssize_t d) noexcept nogil:
    """Set the residual r = x - z A; returns ||r||^2."""
    cdef Py_ssize_t j, size = row.size
    cdef const double* features = row.features
    cdef const double* z = state.collapsed.z
    cdef double* residual = state.collapsed.residual
    memcpy(residual, state.collapsed.x, d * sizeof(double))
    for j in range(size):
        if z[j] != 0.0:
            sf_axpy(d, -1.0, features + j * d, residual)
    return sf_dot(d, residual, residual)


cdef double set_other_residual(const FeatureState* state, const CollapsedRow* row, Py_ssize_t d) noexcept nogil:
    """Set the residual x - z A- of a new row z, which is x - z A + t (z P z0) r for the row z0 as it was."""
    cdef Py_ssize_t j
    cdef const double* z = state.collapsed.z
    cdef double* residual = state.collapsed.other_residual
    cdef double z_p_z = 0.0
    memcpy(residual, state.collapsed.x, d * sizeof(double))
    for j in range(row.size):
        if z[j] != 0.0:
            sf_axpy(d, -1.0, row.features + j * d, residual)
            z_p_z += state.collapsed.p_z[j]
    sf_axpy(d, row.t * z_p_z, state.collapsed.residual, residual)
    return sf_dot(d, residual, residual)


cdef double set_products(const FeatureState* state, const CollapsedRow* row, Py_ssize_t d) noexcept nogil:
    """Set A r, and A r and P z of the other rows; returns the sum of squares of x and the features."""
    cdef Py_ssize_t j, size = row.size, capacity = state.capacity
    cdef const double* features = row.features
    cdef const double* gram = row.gram
    cdef const double* residual = state.collapsed.residual
    cdef const double* p_z = state.collapsed.p_z
    cdef double* a_r = state.collapsed.a_r
    cdef double* other_a_r = state.collapsed.other_a_r
    cdef double* other_p_z = state.collapsed.other_p_z
    cdef double f = row.f, t = row.t, rr = row.square, squares = sf_dot(d, state.collapsed.x, state.collapsed.x)
    for j in range(size):
        a_r[j] = sf_dot(d, features + j * d, residual)
        other_a_r[j] = (a_r[j] - t * p_z[j] * rr) * f
        other_p_z[j] = p_z[j] * f
        squares += gram[j * capacity + j]
    return squares


cdef bint take_out(const FeatureProblem* problem, FeatureState* state, CollapsedRow* row, Py_ssize_t i) noexcept nogil:
    """Set up the problem of the other rows, and what row i costs in it; returns False if it cannot be solved."""
    cdef Py_ssize_t j, d = problem.d
    cdef Collapsed* collapsed = &state.collapsed
    cdef double h, squares
    row.i, row.size, row.dropped, row.weight = i, state.k, -1, weight_of(&problem.rows, i)
    row.inverse, row.gram, row.features = collapsed.inverse, state.features.gram, state.features.rows
    collapsed.x = row_at(&problem.rows, i, collapsed.row)
    for j in range(state.k):
        collapsed.z[j] = bit(state, i, j)[0]
    h = leverage(state, row)
    if 1.0 - h < DEPENDENT:
        h = drop_column(state, row, d)
        if 1.0 - h < DEPENDENT:
            return False
    row.square = set_residual(state, row, d)
    row.f = 1.0 / (1.0 - h)
    row.t = row.weight * row.f
    squares = set_products(state, row, d)
    row.numerator, row.denominator = row.square * row.f * row.f, row.f
    row.cost = row.weight * row.numerator / row.denominator
    row.old_cost = row.cost if row.dropped < 0 else problem.lam
    row.margin = (
        COST_ROUNDING * sqrt(max(row.cost, row.old_cost)) * sqrt(row.weight * squares)
        + ZERO_COST * row.weight * squares
    )
    return True


cdef inline double other_inverse(
    const FeatureState* state, const CollapsedRow* row, Py_ssize_t i, Py_ssize_t j
) noexcept nogil:
    """An entry of P-."""
    cdef const double* pz = state.collapsed.p_z
    return row.inverse[i * state.capacity + j] + row.t * pz[i] * pz[j]


cdef inline double other_gram(
    const FeatureState* state, const CollapsedRow* row, Py_ssize_t i, Py_ssize_t j
) noexcept nogil:
    """An entry of A- A-'."""
    cdef const double* pz = state.collapsed.p_z
    cdef const double* ar = state.collapsed.a_r
    cdef double t = row.t
    return row.gram[i * state.capacity + j] - t * (pz[i] * ar[j] + ar[i] * pz[j]) + t * t * row.square * pz[i] * pz[j]


cdef void flip(const FeatureState* state, const CollapsedRow* row, Py_ssize_t j) noexcept nogil:
    """Flip bit j of z, and bring A r and P z of the other rows up to date."""
    cdef double sign = 1.0 - 2.0 * state.collapsed.z[j]
    cdef Py_ssize_t k
    for k in range(row.size):
        state.collapsed.other_a_r[k] -= sign * other_gram(state, row, j, k)
        state.collapsed.other_p_z[k] += sign * other_inverse(state, row, j, k)
    state.collapsed.z[j] += sign


cdef inline double numerator_step(const FeatureState* state, const CollapsedRow* row, Py_ssize_t j) noexcept nogil:
    """By what the numerator of the cost changes where bit j of z flips."""
    cdef double sign = 1.0 - 2.0 * state.collapsed.z[j]
    return other_gram(state, row, j, j) - 2.0 * sign * state.collapsed.other_a_r[j]


cdef inline double denominator_step(const FeatureState* state, const CollapsedRow* row, Py_ssize_t j) noexcept nogil:
    """By what the denominator of the cost changes where bit j of z flips."""
    cdef double sign = 1.0 - 2.0 * state.collapsed.z[j]
    return row.weight * (other_inverse(state, row, j, j) + 2.0 * sign * state.collapsed.other_p_z[j])


cdef bint flip_bits(const FeatureState* state, CollapsedRow* row) noexcept nogil:
    """Flip each bit of z in turn where the cost falls by more than rounding, until none does; returns if any did."""
    cdef Py_ssize_t j
    cdef double numerator, denominator, cost = row.cost
    cdef bint flipped = True, any_flipped = False
    cdef int passes = 0
    while flipped and passes < MAX_PASSES:
        flipped = False
        passes += 1
        for j in range(row.size):
            numerator = max(0.0, row.numerator + numerator_step(state, row, j))
            denominator = row.denominator + denominator_step(state, row, j)
            if row.weight * numerator / denominator < cost - row.margin:
                flip(state, row, j)
                row.numerator, row.denominator = numerator, denominator
                cost = row.weight * numerator / denominator
                flipped = any_flipped = True
    return any_flipped


cdef void add_steps(double* values, double* step, const double* terms, Py_ssize_t n_bits) noexcept nogil:
    """Fill the upper half of ``values``, 2^(n_bits + 1), where bit n_bits is flipped, too.

    INOUT step: 2^n_bits, what that changes where no other bit is flipped, as number 0; terms: what is added for each
    lower bit that is
    """
    cdef Py_ssize_t j, m, size
    for j in range(n_bits):
        size = <Py_ssize_t> 1 << j
        for m in range(size):
            step[size + m] = step[m] + terms[j]
    size = <Py_ssize_t> 1 << n_bits
    for m in range(size):
        values[size + m] = values[m] + step[m]


cdef Py_ssize_t best_flips(const FeatureState* state, const CollapsedRow* row) noexcept nogil:
    """Which bits of z to flip for the row that costs least of all 2^size, the last feature's bit the lowest; 0: none.

    At a tie these are the lowest number: z stays, or its first features do.
    """
    cdef Py_ssize_t size = row.size, i, j, a, b, flips, best = 0
    cdef double* numerators = state.collapsed.numerators
    cdef double* denominators = state.collapsed.denominators
    cdef double* step = state.collapsed.flip_step
    cdef const double* z = state.collapsed.z
    cdef double[C_MOST_TRIED] numerator_terms
    cdef double[C_MOST_TRIED] denominator_terms
    cdef double w = row.weight, sign, bound = row.cost - row.margin
    numerators[0], denominators[0] = row.numerator, row.denominator
    for i in range(size):
        a = size - 1 - i
        for j in range(i):
            b = size - 1 - j
            sign = 2.0 * (1.0 - 2.0 * z[a]) * (1.0 - 2.0 * z[b])
            numerator_terms[j] = sign * other_gram(state, row, a, b)
            denominator_terms[j] = sign * w * other_inverse(state, row, a, b)
        step[0] = numerator_step(state, row, a)
        add_steps(numerators, step, numerator_terms, i)
        step[0] = denominator_step(state, row, a)
        add_steps(denominators, step, denominator_terms, i)
    for flips in range(1, <Py_ssize_t> 1 << size):
        if w * max(0.0, numerators[flips]) < bound * denominators[flips]:
            best, bound = flips, w * max(0.0, numerators[flips]) / denominators[flips] - row.margin
    return best


cdef void choose_row(const FeatureProblem* problem, FeatureState* state, CollapsedRow* row) noexcept nogil:
    """Choose the bits of the row, all together or one by one; they stay if that is a gain by rounding only."""
    cdef Py_ssize_t j, flips
    cdef double cost
    cdef bint is_new
    cdef Collapsed* collapsed = &state.collapsed
    memcpy(collapsed.old_z, collapsed.z, row.size * sizeof(double))
    if row.size <= problem.most_tried:
        flips = best_flips(state, row)
        is_new = flips != 0
        for j in range(row.size):
            if (flips >> (row.size - 1 - j)) & 1:
                row.denominator += denominator_step(state, row, j)
                flip(state, row, j)
    else:
        is_new = flip_bits(state, row)
    if is_new:
        # steps may be so much larger than the cost that it is rounding: it is computed anew
        row.numerator = set_other_residual(state, row, problem.d)
        cost = row.weight * row.numerator / row.denominator
        if cost < row.cost - row.margin:
            row.cost = cost
        else:
            memcpy(collapsed.z, collapsed.old_z, row.size * sizeof(double))


cdef void write_row(const FeatureProblem* problem, FeatureState* state, Py_ssize_t i, const double* z) noexcept nogil:
    """Make row i of Z z, a round of its own, and bring the sums up to date."""
    cdef Py_ssize_t k
    begin_row(state, i)
    for k in range(state.k):
        bit(state, i, k)[0] = z[k] != 0.0
    add_round(problem, state, i + 1, True)


cdef int replace_row(const FeatureProblem* problem, FeatureState* state, const CollapsedRow* row) except -1 nogil:
    """Take the new row over the same columns: two rank-one updates, one for the old row and one for the new."""
    cdef Py_ssize_t d = problem.d, size = row.size, j, k
    cdef Collapsed* collapsed = &state.collapsed
    cdef double* u = collapsed.step  # w P- z / (1 + w z P- z')
    cdef const double* g = collapsed.other_a_r
    cdef const double* q = collapsed.other_p_z
    cdef const double* pz = collapsed.p_z
    cdef const double* ar = collapsed.a_r
    cdef double* pj
    cdef double* gj
    cdef double t = row.t, rr = row.square
    write_row(problem, state, row.i, collapsed.z)
    for j in range(size):
        pj, gj = row.inverse + j * state.capacity, row.gram + j * state.capacity
        sf_axpy(d, -t * pz[j], collapsed.residual, row.features + j * d)
        for k in range(size):
            pj[k] += t * pz[j] * pz[k]
            gj[k] += t * t * rr * pz[j] * pz[k] - t * (pz[j] * ar[k] + ar[j] * pz[k])
    rr = row.numerator
    for j in range(size):
        u[j] = row.weight * q[j] / row.denominator
    for j in range(size):
        pj, gj = row.inverse + j * state.capacity, row.gram + j * state.capacity
        sf_axpy(d, u[j], collapsed.other_residual, row.features + j * d)
        for k in range(size):
            pj[k] -= u[j] * q[k]
            gj[k] += u[j] * g[k] + g[j] * u[k] + u[j] * u[k] * rr
    collapsed.n_updates += 1
    if collapsed.n_updates >= max(<Py_ssize_t> REFRESH, size) or row.f > STRETCH or row.denominator > STRETCH:
        refresh(problem, state)
    return 0


cdef int replace_columns(
    const FeatureProblem* problem, FeatureState* state, const CollapsedRow* row, bint creates
) except -1 nogil:
    """Take the new row where columns change: one is dropped, or created for this row alone, or both."""
    cdef Py_ssize_t j, i = row.i, dropped = row.dropped
    cdef double* full_z = state.collapsed.full_z
    for j in range(row.size):
        full_z[j if dropped < 0 or j < dropped else j + 1] = state.collapsed.z[j]
    if dropped >= 0:
        full_z[dropped] = 0.0
    write_row(problem, state, i, full_z)
    if dropped >= 0:
        remove(problem, state, dropped)
        state.progress.n_removed += 1
    if creates:
        add_feature(problem, state, NULL)
        full_z = state.collapsed.full_z  # the memory may be new
        for j in range(state.k):
            full_z[j] = bit(state, i, j)[0]
        full_z[state.k - 1] = 1.0
        write_row(problem, state, i, full_z)
        state.progress.n_created += 1
    refresh(problem, state)
    return 0


cdef int reconsider(const FeatureProblem* problem, FeatureState* state, Py_ssize_t i) except -1 nogil:
    """Take row i out, find the best new row, and take that if the objective falls by more than rounding."""
    cdef CollapsedRow row
    cdef bint creates
    if not take_out(problem, state, &row, i):
        return 0
    choose_row(problem, state, &row)
    # with a feature of its own the row costs lam, whatever its other bits are
    creates = problem.lam < row.cost - row.margin and row.size < problem.max_features
    if not (problem.lam if creates else row.cost) < row.old_cost - row.margin:
        return 0
    state.progress.n_changed += 1
    if row.dropped < 0 and not creates:  # the row is new, or it would cost as much as before
        replace_row(problem, state, &row)
    else:
        replace_columns(problem, state, &row, creates)
    return 0


cdef int collapsed_sweep(const FeatureProblem* problem, FeatureState* state) except -1 nogil:
    """Sweep once over the rows: each is reconsidered, in order."""
    cdef Py_ssize_t i, tried
    for i in range(problem.n):
        reconsider(problem, state, i)
        tried = <Py_ssize_t> 1 << state.k if state.k <= problem.most_tried else 0
        check_interrupt(state, (2 * state.k + 1) * problem.d + 3 * state.k * state.k + 8 * tried)
    least_squares(problem, state)  # without features that are zero
    refresh(problem, state)
    return 0
