"""Sweeps over the rows of Z: BP-means, whose features come and go, and K-features, whose number is fixed.

MB13 is Broderick, Kulis & Jordan (2013). X (n x d) is explained by Z A: row z of Z in {0, 1}^k says which features a
point x has, the rows of A are the features. BP-means (MB13 eq. 6) minimizes

    sum_i w_i ||x_i - z_i A||^2 + lam k        over Z, A and k.

A is set to least squares for Z between the sweeps (state.pyx). A sweep visits the points in order, A fixed. It

1. flips each bit of z in turn, once, where this lowers w ||x - z A||^2. The last user of a feature gains lam by leaving
   it, which removes the feature;
2. creates a feature equal to the residual r = x - z A, used by this point alone, where w ||r||^2 > lam, as long as
   there are fewer than max_features. (``threshold`` is lam, or what counts as zero where lam is less.)

K-features (MB13 eq. 14) is step 1 with lam = 0 and k fixed, or the best of all 2^k rows (the rule EXACT). No feature is
created or removed; one that is without users after a sweep is replaced by the longest residual.

What a point does depends on the points before it only through the features that are there and, for the last user of a
feature, through its being the last. So a sweep goes in rounds. All points of a round propose new rows at once, in
parallel, as if they were the last user of nothing (`propose`). K-features are done with that: as features stay, every
proposal holds. For BP-means the proposals are committed in order (`commit`): points that are the last user of a feature
are visited again, now with the gain. Once a feature is created or removed, later proposals are void: they are taken
back, and the next round begins at the next point. Thus the result is that of visiting one point after the other, for
any length of the rounds and any number of threads.

Points are handled in tiles of LANES, one in each lane of a vector. Which lanes of a tile are to be visited, or have
changed, is a mask with a bit for each lane. A round keeps the rows of its tiles as they were before it (`old_bits_of`):
from these the sums over Z are brought up to date and proposals taken back.
"""

from libc.math cimport sqrt
from libc.string cimport memcpy, memset

from smallvar._sweeps.features.state cimport (
    EXACT,
    FEATURE_CHUNK,
    FEATURE_TIE,
    LANES,
    ZERO_SQUARE,
    FeatureProblem,
    FeatureScratch,
    FeatureState,
    Level,
    RowSearch,
    add_feature,
    add_residual,
    add_round,
    begin_row,
    bit,
    bits_of,
    changed_of,
    check_interrupt,
    each_chunk,
    compact,
    evaluate,
    lanes_of,
    old_bits_of,
    remove,
    residual_of,
    residuals,
    row_work,
    sf_dots,
    sf_exact,
    sf_flip,
    sf_residual,
    tile_count,
    total,
    update_tables,
    work_tiles,
)
from smallvar._sweeps.rows cimport weight_of

cdef extern from *:
    """
    #define SMALLVAR_FLIP_ROUNDING 3e-15
    #define SMALLVAR_RESIDUAL_ROUNDING 1e-12
    """
    # rounding error of a squared residual that flips have updated, relative to the sum of ||a_k||^2 over the features
    # flipped in this row of Z
    const double FLIP_ROUNDING "SMALLVAR_FLIP_ROUNDING"
    # the error tolerated, relative to the squared residual; where there may be more, it is computed from the data
    const double RESIDUAL_ROUNDING "SMALLVAR_RESIDUAL_ROUNDING"

# ----------------------------------------------------------------------------------------------------------------------
# New rows for given features


cdef inline void residuals_of_rows(
    const FeatureProblem* problem, const FeatureState* state, const double* x, FeatureScratch* scratch, double* squares
) noexcept nogil:
    """Compute residuals (scratch.residual) and their squares for the rows in scratch.z.  IN x: d x LANES."""
    sf_residual(
        problem.d, state.k, state.capacity, x, scratch.z, state.features.transposed, scratch.residual, squares
    )


cdef int keep_better(
    const FeatureProblem* problem, FeatureState* state, Py_ssize_t tile, const double* x, int changed,
    const double* squares, FeatureScratch* scratch
) noexcept nogil:
    """Store those rows of scratch.z, proposed for a tile, whose residuals are shorter; returns their lanes.

    Proposals minimize z G z' - 2 z A x, G = A A', up to a constant. These terms may be so much larger than ||r||^2 that
    a gain is rounding: residuals are computed anew.
    IN x: d x LANES; changed: mask of the lanes with a proposal; squares: LANES, of the residuals so far, as stored.
    """
    cdef double new_squares[LANES]
    cdef unsigned char* bits = bits_of(state, tile)
    cdef Py_ssize_t i, lane
    residuals_of_rows(problem, state, x, scratch, new_squares)
    for lane in range(LANES):
        if (changed >> lane) & 1:
            if new_squares[lane] < (1.0 - FEATURE_TIE) * squares[lane] - problem.zero_square:
                state.assignments.squares[tile * LANES + lane] = new_squares[lane]
                for i in range(state.k):
                    bits[i * LANES + lane] = scratch.z[i * LANES + lane] != 0.0
            else:
                changed &= ~(1 << lane)
    return changed


cdef int best_rows(const FeatureState* state, int mask, FeatureScratch* scratch) noexcept nogil:
    """Write the best of all 2^k rows for the lanes in ``mask`` to scratch.z; returns the lanes that change."""
    cdef double best[LANES]
    cdef double decrease[LANES]
    cdef double* z = scratch.z
    cdef Py_ssize_t i, code
    cdef int lane, changed = 0
    sf_exact(
        state.k, state.capacity, state.features.gram, state.gray_code.quadratic, state.gray_code.flips, z,
        scratch.dots, scratch.twice_dots, best, decrease,
    )
    # bit i of the code of a row is z_i
    for lane in range(LANES):
        if (mask >> lane) & 1 and decrease[lane] > 0.0:
            code = <Py_ssize_t> best[lane]
            for i in range(state.k):
                if (z[i * LANES + lane] != 0.0) != ((code >> i) & 1):
                    z[i * LANES + lane] = (code >> i) & 1
                    changed |= 1 << lane
    return changed


cdef int flip_rows(
    const FeatureProblem* problem, FeatureState* state, Py_ssize_t tile, int mask, const double* removal_gain,
    const double* x, double* squares, FeatureScratch* scratch
) noexcept nogil:
    """Flip bits of the rows of a tile one after the other, where that is a gain; returns the lanes that changed.

    IN scratch: z, and dots of the residuals.  INOUT squares: LANES, of the residuals.
    """
    cdef double flipped[LANES]
    cdef double new_squares[LANES]
    cdef bint is_rough = False
    cdef int lane, changed
    cdef Py_ssize_t i
    cdef unsigned char* bits = bits_of(state, tile)
    changed = sf_flip(
        state.k, state.capacity, state.features.gram, state.features.removed, removal_gain, mask, scratch.z,
        scratch.dots, squares, flipped,
    )
    if changed:
        for i in range(state.k * LANES):
            bits[i] = scratch.z[i] != 0.0
        for lane in range(LANES):
            is_rough |= flipped[lane] * FLIP_ROUNDING > RESIDUAL_ROUNDING * squares[lane]
        if is_rough:  # the features flipped are much longer than the residual: its square is mostly rounding
            residuals_of_rows(problem, state, x, scratch, new_squares)
            for lane in range(LANES):  # lane by lane, so that it does not matter which points share the tile
                if flipped[lane] * FLIP_ROUNDING > RESIDUAL_ROUNDING * squares[lane]:
                    squares[lane] = new_squares[lane]
    return changed


cdef int visit(
    const FeatureProblem* problem, FeatureState* state, Py_ssize_t tile, int mask, const double* removal_gain,
    FeatureScratch* scratch
) noexcept nogil:
    """Store new rows of Z and squared residuals for the lanes of a tile in ``mask``; returns the lanes that changed.

    IN removal_gain: k, what leaving each feature gains as it is removed, or NULL.
    """
    cdef double squares[LANES]
    cdef const double* x = residuals(problem, state, tile, scratch, squares)  # loads z and residual of scratch, too
    cdef int changed = 0, lane
    if state.k > 0:
        sf_dots(
            problem.d, state.k, state.capacity, scratch.residual, state.features.transposed, scratch.dots
        )
        if problem.rule == EXACT:
            changed = best_rows(state, mask, scratch)
        else:
            changed = flip_rows(problem, state, tile, mask, removal_gain, x, squares, scratch)
    for lane in range(LANES):
        if (mask >> lane) & 1:
            state.assignments.squares[tile * LANES + lane] = squares[lane]
    if problem.rule == EXACT and changed:
        changed = keep_better(problem, state, tile, x, changed, squares, scratch)
    return changed


cdef void propose_chunk(
    const FeatureProblem* problem, FeatureState* state, Py_ssize_t _, Py_ssize_t first, Py_ssize_t last, int thread
) noexcept nogil:
    cdef Py_ssize_t tile, index, i
    cdef int mask
    for tile in range(first, last):
        index = tile - state.round.first_tile
        mask = lanes_of(problem, tile)
        if index == 0:  # points before the round are committed
            mask &= ~((1 << (state.round.start % LANES)) - 1)
        memcpy(old_bits_of(state, tile), bits_of(state, tile), state.k * LANES)
        state.round.changed[index] = visit(problem, state, tile, mask, NULL, state.scratch + thread)
        state.round.may_create[index] = False
        # points before the round may count, too: then commit looks at the tile in vain
        for i in range(tile * LANES, min(problem.n, (tile + 1) * LANES)):
            state.round.may_create[index] |= exceeds_penalty(problem, state, i)


cdef void propose(const FeatureProblem* problem, FeatureState* state, Py_ssize_t start, Py_ssize_t stop) noexcept nogil:
    """Store new rows of Z for the points start..stop-1, a round, all chosen given the same features.

    ``stop`` is the end of a tile, or n. Sets the round's old bits and, for each tile, which lanes changed and whether a
    point may create a feature.
    """
    state.round.start, state.round.first_tile = start, start // LANES
    each_chunk(problem, state, propose_chunk, start // LANES, tile_count(stop), FEATURE_CHUNK)


cdef bint encode_pass(const FeatureProblem* problem, FeatureState* state) except -1 nogil:
    """Choose new rows of Z for all points, the features fixed; returns whether any row changed.

    If none did, another pass would change nothing. Sums over Z are not kept up to date. Not for the rule EXACT, whose
    table fixed_sweep fills.
    """
    cdef Py_ssize_t start = 0, stop, index, n = problem.n, work = row_work(problem, state)
    cdef bint changed = False
    while start < n:
        stop = min(n, start + work_tiles(problem, work) * LANES)
        propose(problem, state, start, stop)
        for index in range(tile_count(stop - start)):
            changed |= state.round.changed[index] != 0
        check_interrupt(state, (stop - start) * work)
        start = stop
    return changed


# ----------------------------------------------------------------------------------------------------------------------
# K-features


cdef void fill_gray_code(FeatureState* state) noexcept nogil:
    """Tabulate the Gray code of all 2^k rows z, where one bit flips at a time, and z G z' of each, G = A A'.

    Entry 0, of z = 0, is neither written nor read: sf_exact begins there, with 0.
    """
    cdef Py_ssize_t step, code = 0, i, capacity = state.capacity
    cdef int flipped
    cdef double value = 0.0, change
    cdef const double* gram = state.features.gram
    for step in range(1, <Py_ssize_t> 1 << state.k):
        flipped = 0
        while not (step >> flipped) & 1:  # the lowest bit of the step is the one that flips
            flipped += 1
        state.gray_code.flips[step] = flipped
        code ^= <Py_ssize_t> 1 << flipped
        change = 0.0
        for i in range(state.k):
            if i != flipped and (code >> i) & 1:
                change += 2.0 * gram[flipped * capacity + i]
        change += gram[flipped * capacity + flipped]
        value = value + change if (code >> flipped) & 1 else value - change
        state.gray_code.quadratic[step] = value


cdef inline int bits_set(int mask) noexcept nogil:
    """How many bits of a mask are 1."""
    cdef int count = 0
    while mask:
        mask &= mask - 1
        count += 1
    return count


cdef bint replace_unused(const FeatureProblem* problem, FeatureState* state, Py_ssize_t k) noexcept nogil:
    """Replace feature k, which has no users, by the longest weighted residual, and make the point of that its user.

    Returns False, and does nothing, where all residuals are zero but for rounding.
    """
    cdef Py_ssize_t i, farthest = 0
    cdef double square, largest = 0.0
    for i in range(problem.n):
        square = weight_of(&problem.rows, i) * state.assignments.squares[i]
        if square > largest:
            farthest, largest = i, square
    if not largest > ZERO_SQUARE * problem.energy:
        return False
    residual_of(problem, state, farthest, state.features.rows + k * problem.d)
    update_tables(problem, state, k)
    begin_row(state, farthest)
    bit(state, farthest, k)[0] = 1
    add_round(problem, state, farthest + 1, counts_users=True)
    state.assignments.squares[farthest] = 0.0
    state.progress.n_removed += 1
    return True


cdef int fixed_sweep(const FeatureProblem* problem, FeatureState* state) except -1 nogil:
    """Sweep once over the rows for K-features (MB13 eq. 14), then replace the features without users.

    Proposals are final: nothing is to be committed in order.
    """
    cdef Py_ssize_t start = 0, stop, index, k, n = problem.n, work = row_work(problem, state)
    if problem.rule == EXACT:
        fill_gray_code(state)
    while start < n:
        stop = min(n, start + work_tiles(problem, work) * LANES)
        propose(problem, state, start, stop)
        for index in range(tile_count(stop - start)):
            state.progress.n_changed += bits_set(state.round.changed[index])
        add_round(problem, state, stop, counts_users=True)
        check_interrupt(state, (stop - start) * work)
        start = stop
    for k in range(state.k):
        if state.sums.users[k] == 0.0 and not replace_unused(problem, state, k):
            break
    return 0


# ----------------------------------------------------------------------------------------------------------------------
# BP-means


cdef inline bint exceeds_penalty(const FeatureProblem* problem, const FeatureState* state, Py_ssize_t i) noexcept nogil:
    """Whether w ||r||^2 of point i is more than a feature of its own costs: lam, and more than rounding."""
    return weight_of(&problem.rows, i) * state.assignments.squares[i] > problem.threshold


cdef inline Py_ssize_t single_user_count(const FeatureState* state) noexcept nogil:
    """Number of features with one user."""
    cdef Py_ssize_t k, count = 0
    for k in range(state.k):
        count += state.sums.users[k] == 1.0
    return count


cdef bint has_single_user(const FeatureState* state, Py_ssize_t tile) noexcept nogil:
    """Whether a point of a tile had, before the round, a feature that has one user now.

    Points that are not committed yet count as users with their old rows, so one of them may be that user.
    """
    cdef Py_ssize_t k, lane
    cdef const unsigned char* old = old_bits_of(state, tile)
    cdef unsigned char is_user
    for k in range(state.k):
        if state.sums.users[k] == 1.0:
            is_user = 0
            for lane in range(LANES):
                is_user |= old[k * LANES + lane]
            if is_user:
                return True
    return False


cdef void visit_single_user(const FeatureProblem* problem, FeatureState* state, Py_ssize_t i) noexcept nogil:
    """Choose the row of point i anew if it is the last user of a feature: leaving that gains lam (MB13 eq. 6).

    The choice starts from its old row, as the proposal was made without the gain. Flips compare ||r||^2 without the
    weight w of the point, so the gain is lam / w.
    """
    cdef Py_ssize_t k, tile = i // LANES, lane = i % LANES
    cdef unsigned char* bits = bits_of(state, tile) + lane
    cdef const unsigned char* old = old_bits_of(state, tile) + lane
    cdef unsigned char* changed = changed_of(state, tile)
    cdef bint is_single_user = False
    for k in range(state.k):
        state.round.removal_gain[k] = 0.0
        if state.sums.users[k] == 1.0 and old[k * LANES]:
            state.round.removal_gain[k] = problem.lam / weight_of(&problem.rows, i)
            is_single_user = True
    if is_single_user:
        for k in range(state.k):  # the proposal is void
            bits[k * LANES] = old[k * LANES]
        changed[0] &= ~(1 << lane)
        changed[0] |= visit(problem, state, tile, 1 << lane, state.round.removal_gain, state.scratch)


cdef void remove_unused(const FeatureProblem* problem, FeatureState* state, Py_ssize_t k) noexcept nogil:
    """Mark a feature without users as removed, so that no point takes it; its number is free after the sweep."""
    memset(state.features.rows + k * problem.d, 0, problem.d * sizeof(double))
    update_tables(problem, state, k)
    state.features.removed[k] = True
    state.features.n_removed += 1
    state.progress.n_removed += 1


cdef bint commit_row(const FeatureProblem* problem, FeatureState* state, Py_ssize_t i) noexcept nogil:
    """Count point i out of the users of features it left and into those it took; returns whether one was removed."""
    cdef Py_ssize_t k
    cdef const unsigned char* bits = bits_of(state, i // LANES) + i % LANES
    cdef const unsigned char* old = old_bits_of(state, i // LANES) + i % LANES
    cdef bint is_removed = False
    state.progress.n_changed += 1
    for k in range(state.k):
        if bits[k * LANES] != old[k * LANES]:
            state.sums.users[k] += 1.0 if bits[k * LANES] else -1.0
            if state.sums.users[k] == 0.0:
                remove_unused(problem, state, k)
                is_removed = True
    return is_removed


cdef int create(
    const FeatureProblem* problem, FeatureState* state, Py_ssize_t i, Py_ssize_t last_tile
) except -1 nogil:
    """Create a feature equal to the residual of point i, in a round up to, but without, ``last_tile``.

    It counts in n_created, not in n_changed, where commit_row has counted the point if step 1 changed its row.
    """
    cdef Py_ssize_t k = state.k, tile
    add_residual(problem, state, i)
    bit(state, i, k)[0] = 1
    state.sums.users[k] = 1.0
    for tile in range(state.round.first_tile, last_tile):  # no point of this round had it before
        memset(old_bits_of(state, tile) + k * LANES, 0, LANES)
    changed_of(state, i // LANES)[0] |= 1 << (i % LANES)
    state.assignments.squares[i] = 0.0
    state.progress.n_created += 1
    return 0


cdef void take_back(FeatureState* state, Py_ssize_t start, Py_ssize_t stop) noexcept nogil:
    """Set the rows of the points start..stop-1 of the round back to the old ones.

    Their squared residuals stay those of the proposals: the next round begins at ``start`` and computes them anew.
    """
    cdef Py_ssize_t i, k
    cdef const unsigned char* old
    for i in range(start, stop):
        old = old_bits_of(state, i // LANES) + i % LANES
        if (changed_of(state, i // LANES)[0] >> (i % LANES)) & 1:
            for k in range(state.k):
                bit(state, i, k)[0] = old[k * LANES]
            changed_of(state, i // LANES)[0] &= ~(1 << (i % LANES))


cdef Py_ssize_t commit(
    const FeatureProblem* problem, FeatureState* state, Py_ssize_t start, Py_ssize_t stop
) except -1 nogil:
    """Commit the proposals for the points start..stop-1 in order; returns the point at which the next round begins.

    A proposal holds while the features are those of the round's beginning and every feature that the point had before
    has another user. So the last users of features are visited again, and a feature created or removed ends the round.
    """
    cdef Py_ssize_t i = start, tile
    cdef Py_ssize_t n_single = single_user_count(state)  # features with one user
    cdef bint ends_round
    while i < stop:
        tile = i // LANES
        if not changed_of(state, tile)[0] and not state.round.may_create[tile - state.round.first_tile] and not (
            n_single and has_single_user(state, tile)
        ):
            i = (tile + 1) * LANES  # nothing more happens in this tile
            continue
        ends_round = False
        # step 1 of a sweep for this point, given those before it
        if n_single:
            visit_single_user(problem, state, i)
        if (changed_of(state, tile)[0] >> (i % LANES)) & 1:
            ends_round = commit_row(problem, state, i)
            n_single = single_user_count(state)
        # step 2
        if exceeds_penalty(problem, state, i) and state.k - state.features.n_removed < problem.max_features:
            create(problem, state, i, tile_count(stop))
            ends_round = True
        i += 1
        if ends_round:
            take_back(state, i, stop)
            return i
    return stop


cdef void compact_removed(const FeatureProblem* problem, FeatureState* state) noexcept nogil:
    """Number the features that were not removed in this sweep 0, 1, ... in their order."""
    cdef Py_ssize_t k, n_kept = 0
    for k in range(state.k):
        if not state.features.removed[k]:
            state.solver.kept[n_kept] = k
            n_kept += 1
    memset(state.features.removed, 0, state.k)
    state.features.n_removed = 0
    compact(problem, state, n_kept)


cdef int free_sweep(const FeatureProblem* problem, FeatureState* state) except -1 nogil:
    """Sweep once over the rows for BP-means (MB13 eq. 6), in rounds."""
    cdef Py_ssize_t start = 0, stop, reached, n = problem.n
    while start < n:
        stop = min(n, (start // LANES + state.round.n_tiles) * LANES)
        propose(problem, state, start, stop)
        reached = commit(problem, state, start, stop)
        add_round(problem, state, reached, counts_users=False)  # commit has counted them
        check_interrupt(state, (stop - start) * problem.d * (2 * state.k + 1))
        # a round that was cut short is followed by a short one: while features come and go, most proposals of a long
        # round would be taken back
        if reached < stop:
            state.round.n_tiles = 1
        else:
            state.round.n_tiles = min(2 * state.round.n_tiles, work_tiles(problem, row_work(problem, state)))
        start = reached
    if state.features.n_removed:
        compact_removed(problem, state)
    return 0


# ---- the best row of Z for given features, by branch and bound -------------------------------------------------------
#
# For z in {0, 1}^k, z_i^2 = z_i, so for any alpha > 0
#
#     ||x - z A||^2 + alpha sum_i (z_i - 1/2)^2 = ||R z' - y||^2 + const,  R'R = A A' + alpha I,  R'y = A x + alpha / 2,
#
# and the second term on the left is alpha k / 4 for all z. With R upper triangular the square is a sum over i of
# (y_i - sum_{j >= i} R_ij z_j)^2: bits are chosen from the last to the first, the nearer value first, and a choice
# whose sum exceeds that of the best row so far is left with all rows that begin with it (Schnorr and Euchner, 1994).
# alpha makes what is summed first count where features nearly depend on each other, or outnumber the columns.


cdef enum:
    NODES = 1 << 13     # choices of a bit for a row: enough for all there are where k = 12

cdef extern from *:
    """
    #define SMALLVAR_RIDGE 0.01
    """
    const double RIDGE "SMALLVAR_RIDGE"  # alpha, as a share of the mean square of a feature


cdef void exchange(RowSearch* search, Py_ssize_t capacity, Py_ssize_t i, Py_ssize_t j) noexcept nogil:
    """Exchange the features i and j of the order, of which only the rows of R above i are known."""
    cdef Py_ssize_t m, number = search.order[i]
    cdef double value = search.pivots[i]
    cdef double* r = search.factor
    search.order[i] = search.order[j]
    search.order[j] = number
    search.pivots[i] = search.pivots[j]
    search.pivots[j] = value
    for m in range(i):
        value = r[m * capacity + i]
        r[m * capacity + i] = r[m * capacity + j]
        r[m * capacity + j] = value


cdef bint factorize(FeatureState* state) noexcept nogil:
    """Compute alpha, the order of the features and R for these; returns False if all features are zero.

    Of the features left the one with the least pivot comes first. Bits are chosen from the last one on, so those that
    decide most are chosen first.
    """
    cdef Py_ssize_t k = state.k, capacity = state.capacity, i, j, m, least
    cdef RowSearch* search = &state.search
    cdef const double* gram = state.features.gram
    cdef double* r = search.factor
    cdef double value
    search.alpha = 0.0
    for i in range(k):
        search.alpha += gram[i * capacity + i]
    search.alpha *= RIDGE / k
    if not search.alpha > 0.0:
        return False
    for i in range(k):
        search.order[i] = i
        search.pivots[i] = gram[i * capacity + i] + search.alpha
    for i in range(k):
        least = i
        for j in range(i + 1, k):
            if search.pivots[j] < search.pivots[least]:
                least = j
        exchange(search, capacity, i, least)
        r[i * capacity + i] = sqrt(search.pivots[i])
        for j in range(i + 1, k):
            value = gram[search.order[i] * capacity + search.order[j]]
            for m in range(i):
                value -= r[m * capacity + i] * r[m * capacity + j]
            value /= r[i * capacity + i]  # the diagonal is positive: no pivot is below alpha
            r[i * capacity + j] = value
            search.pivots[j] = max(search.alpha, search.pivots[j] - value * value)
    return True


cdef double set_targets(const FeatureState* state, int lane, FeatureScratch* scratch) noexcept nogil:
    """Set y and the bits for a lane, whose row is in scratch.z and A x in scratch.dots; returns ||R z' - y||^2."""
    cdef Py_ssize_t k = state.k, capacity = state.capacity, i, j
    cdef const double* r = state.search.factor
    cdef const Py_ssize_t* order = state.search.order
    cdef Level* levels = scratch.levels
    cdef double value, square = 0.0
    # R'y = A x + alpha / 2, forward
    for i in range(k):
        value = scratch.dots[order[i] * LANES + lane] + 0.5 * state.search.alpha
        for j in range(i):
            value -= r[j * capacity + i] * levels[j].target
        levels[i].target = value / r[i * capacity + i]
        levels[i].bit = scratch.z[order[i] * LANES + lane]
    for i in range(k):
        value = levels[i].target
        for j in range(i, k):
            value -= r[i * capacity + j] * levels[j].bit
        square += value * value
    return square


cdef bint search_row(const FeatureState* state, int lane, FeatureScratch* scratch) noexcept nogil:
    """Find a better row for a lane of a tile, depth first; returns whether there is one, then in scratch.z."""
    cdef Py_ssize_t k = state.k, capacity = state.capacity, i = k - 1, j, n_nodes = 0
    cdef const double* r = state.search.factor
    cdef Level* levels = scratch.levels
    cdef Level* level = levels + i
    cdef double bound = set_targets(state, lane, scratch) * (1.0 - FEATURE_TIE), value, sum_
    cdef bint is_better = False
    # the row so far is the bound; each step chooses a bit of level i, given those above
    level.left, level.n_tried = level.target, 0
    while n_nodes < NODES:
        if level.n_tried == 2:  # back to the bit above
            i += 1
            if i == k:
                break
            level = levels + i
            continue
        if level.n_tried == 0:  # the nearer value first
            level.bit = 1.0 if level.left > 0.5 * r[i * capacity + i] else 0.0
        else:
            level.bit = 1.0 - level.bit
        level.n_tried += 1
        n_nodes += 1
        value = level.left - r[i * capacity + i] * level.bit
        sum_ = value * value + (levels[i + 1].sum if i + 1 < k else 0.0)
        if not sum_ < bound:  # nor is the other value better, which is farther
            level.n_tried = 2
        elif i == 0:
            bound, is_better = sum_, True
            for j in range(k):
                levels[j].best = levels[j].bit
        else:
            level.sum = sum_
            i -= 1
            level = levels + i
            value = level.target
            for j in range(i + 1, k):
                value -= r[i * capacity + j] * levels[j].bit
            level.left, level.n_tried = value, 0
    if is_better:
        for i in range(k):
            scratch.z[state.search.order[i] * LANES + lane] = levels[i].best
    return is_better


cdef void search_chunk(
    const FeatureProblem* problem, FeatureState* state, Py_ssize_t _, Py_ssize_t first, Py_ssize_t last, int thread
) noexcept nogil:
    """Find better rows for the points of these tiles."""
    cdef Py_ssize_t tile
    cdef FeatureScratch* scratch = state.scratch + thread
    cdef double squares[LANES]
    cdef const double* x
    cdef int changed, lane
    for tile in range(first, last):
        x = residuals(problem, state, tile, scratch, squares)
        sf_dots(problem.d, state.k, state.capacity, x, state.features.transposed, scratch.dots)
        changed = 0
        for lane in range(min(problem.n - tile * LANES, <Py_ssize_t> LANES)):
            state.assignments.squares[tile * LANES + lane] = squares[lane]
            if squares[lane] > 0.0 and search_row(state, lane, scratch):
                changed |= 1 << lane
        if changed:
            keep_better(problem, state, tile, x, changed, squares, scratch)


cdef int search(const FeatureProblem* problem, FeatureState* state) except -1 nogil:
    """Find the best row for each point, or the best of those met in so many steps; never a worse one than it has."""
    cdef Py_ssize_t start = 0, stop, work = problem.d * (2 * state.k + 1) + NODES * state.k
    if not factorize(state):
        return 0
    while start < problem.n:
        stop = min(problem.n, start + work_tiles(problem, work) * LANES)
        each_chunk(problem, state, search_chunk, start // LANES, tile_count(stop), FEATURE_CHUNK)
        check_interrupt(state, (stop - start) * work)
        start = stop
    return 0


# ---- how a start is seeded: features at residuals drawn at random, like k-means++ ------------------------------------


cdef void join_chunk(
    const FeatureProblem* problem, FeatureState* state, Py_ssize_t _, Py_ssize_t first, Py_ssize_t last, int thread
) noexcept nogil:
    """Points of these tiles whose residual strictly shrinks take the last feature."""
    cdef Py_ssize_t tile, lane, i, k = state.k - 1
    cdef FeatureScratch* scratch = state.scratch + thread
    cdef double squares[LANES]
    cdef double new_squares[LANES]
    cdef const double* x
    for tile in range(first, last):
        x = residuals(problem, state, tile, scratch, squares)
        for lane in range(LANES):
            scratch.z[k * LANES + lane] = 1.0
        residuals_of_rows(problem, state, x, scratch, new_squares)
        for lane in range(LANES):
            i = tile * LANES + lane
            if i < problem.n and new_squares[lane] < squares[lane]:
                bit(state, i, k)[0] = 1
                state.assignments.squares[i] = new_squares[lane]


cdef void join(const FeatureProblem* problem, FeatureState* state) noexcept nogil:
    """Points whose residual strictly shrinks take the last feature, which has no users yet (MB13, section 5)."""
    each_chunk(problem, state, join_chunk, 0, problem.n_tiles, FEATURE_CHUNK)


cdef Py_ssize_t draw(const FeatureProblem* problem, FeatureState* state, double error) noexcept nogil:
    """A point with probability proportional to its weighted squared residual (MB13, section 5).

    Whole chunks are passed over by their sums, so ``error`` has to come from `total`, with which `evaluate` ends.
    """
    cdef double target = uniform(&state.rng) * error, cumulated = 0.0, part
    cdef Py_ssize_t i = 0, last = 0, length = FEATURE_CHUNK * LANES, n = problem.n
    cdef const double* chunk_sums = state.assignments.chunk_sums
    while i + length < n and not cumulated + chunk_sums[i // length] > target:
        cumulated += chunk_sums[i // length]
        i += length
    for i in range(i, n):
        part = weight_of(&problem.rows, i) * state.assignments.squares[i]
        if part > 0.0:
            last = i
            cumulated += part
            if cumulated > target:
                return i
    return last


cdef int fill_up(const FeatureProblem* problem, FeatureState* state) except -1 nogil:
    """Add features without users up to K, where that is fixed and no residual is left to make one of."""
    while problem.fixed and state.k < problem.max_features:
        add_feature(problem, state, NULL)
    return 0


cdef int seed(const FeatureProblem* problem, FeatureState* state, int mode) except -1 nogil:
    """Seed features greedily (MB13, section 5), like k-means++. Leaves A as seeded, not as least squares."""
    cdef Py_ssize_t i
    cdef double error, before
    state.k = 0
    memset(state.assignments.bits, 0, problem.n_tiles * state.capacity * LANES)
    if mode == 0:
        add_feature(problem, state, problem.mean)
        for i in range(problem.n):
            bit(state, i, 0)[0] = 1
    error = evaluate(problem, state)
    while state.k < problem.max_features and error > ZERO_SQUARE * problem.energy:
        add_residual(problem, state, draw(problem, state, error))
        join(problem, state)
        before = error
        error = total(problem, state)
        check_interrupt(state, problem.n * problem.d * (state.k + 2))
        if not problem.fixed and not error + problem.lam < before:
            remove(problem, state, state.k - 1)
            break
    fill_up(problem, state)
    state.progress.solved = False
    return 0
