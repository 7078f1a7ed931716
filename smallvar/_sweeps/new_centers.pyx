"""Centers that are opened during a sweep: the points after them are compared with them.

In Algorithm 1 of Kulis & Jordan (2012) a point sees the clusters that points before it have opened. Centers are
opened by points in their order, in batches; then the points after the first of them, which have labels already, are
compared with those of the batch that were opened before their turn.

Let u be the upper bound of a point, and t the distance from its center to the nearest center of the batch. If 2 u < t
no new center is nearer, by the triangle inequality.
"""

from cython.parallel cimport prange

from smallvar._sweeps.parallel cimport ParallelLoop, begin_chunk, begin_loop, end_loop
from smallvar._sweeps.state cimport (
    CHUNK,
    Batch,
    State,
    add_to_batch,
    knows_center_distances,
    lower_bound,
    reduce_lower_bounds,
    upper_bound,
)
from smallvar._sweeps.tolerances cimport DISTANCE_MARGIN


cdef bint is_nearer(const State* state, Py_ssize_t i, Py_ssize_t k, Py_ssize_t other, int thread) noexcept nogil:
    """Whether point i is nearer to center k than to another one, in exact arithmetic."""
    cdef double distance, error, other_distance, other_error
    state.backend.distances(state, i, k, k + 1, &distance, &error)
    state.backend.distances(state, i, other, other + 1, &other_distance, &other_error)
    if distance + error < other_distance - other_error:
        return True
    if distance - error > other_distance + other_error:
        return False
    if error == 0.0 and other_error == 0.0:     # a tie of exact distances
        return False
    return state.backend.exact_distance(state, i, k, thread) < state.backend.exact_distance(state, i, other, thread)


cdef int nearest_of_new(
    const State* state, Py_ssize_t i, double cutoff, Py_ssize_t first, Py_ssize_t last, int thread
) noexcept nogil:
    """The nearest of centers first..last-1 to point i, exactly."""
    cdef Batch batch
    batch.size = 0
    add_to_batch(&batch, i, -1.0)
    state.backend.nearest_exactly(state, &batch, &cutoff, first, last, thread)
    return batch.nearest[0]


cdef void compare_batch(
    State* state, Batch* batch, Py_ssize_t first_new, Py_ssize_t last_new, int thread
) noexcept nogil:
    """Compare points with the new centers first_new..last_new-1: labels and bounds."""
    cdef double square = state.frame.scale * state.frame.scale, upper, assigned, distance
    cdef Py_ssize_t m, i
    cdef int label
    cdef unsigned short at_start = 0
    state.backend.two_nearest(state, batch, &state.centers.packed, first_new, last_new, thread)
    for m in range(batch.size):
        i = batch.points[m]
        upper = <double> state.bounds.upper_bounds[i] * state.bounds.upper_bounds[i]
        if batch.assigned[m] >= 0.0:
            upper = batch.assigned[m] * square * (1.0 + DISTANCE_MARGIN)
        # the label stays where the nearest new center is surely farther than the assigned one
        if batch.least[m] - batch.error[m] > upper:
            reduce_lower_bounds(state, i, lower_bound(batch.least[m] - batch.error[m]))
            continue
        # else the nearest new center, exactly, and then whether it is nearer than the assigned one, surely or exactly
        label = batch.nearest[m]
        if not batch.second[m] - batch.least[m] > 2.0 * batch.error[m]:
            label = nearest_of_new(state, i, batch.least[m] + 2.0 * batch.error[m], first_new, last_new, thread)
        # the distance of the assigned one at least; where it is not known there are no lower bounds
        assigned = max(0.0, batch.assigned[m]) * square * (1.0 - DISTANCE_MARGIN)
        if not batch.least[m] + batch.error[m] < assigned:
            if not is_nearer(state, i, label, state.points.labels[i], thread):
                reduce_lower_bounds(state, i, lower_bound(batch.least[m] - batch.error[m]))
                continue
        # the center that is left becomes one of the others
        reduce_lower_bounds(state, i, lower_bound(min(assigned, batch.second[m] - batch.error[m])))
        state.backend.assigned_distances(state, i, &at_start, 1, &label, &distance)
        state.bounds.upper_bounds[i] = upper_bound(distance, state.frame.scale)
        state.points.labels[i] = label
    batch.size = 0


cdef void compare_chunk(
    State* state, Py_ssize_t start, Py_ssize_t stop, Py_ssize_t first_new, const Py_ssize_t* opened_at, int thread
) noexcept nogil:
    """Compare points start..stop-1 of one chunk with the new centers that were opened before them."""
    cdef Batch batch
    cdef unsigned short listed[CHUNK]   # points that may be nearer to a new center, less start,
    cdef int assigned[CHUNK]            # their centers,
    cdef double distances[CHUNK]        # and the squared distances to these, if those between centers are known
    cdef Py_ssize_t i, q, n_listed = 0, n_new = state.centers.n - first_new, n_before = 0, n_batch = 0
    cdef bint by_center_distances = knows_center_distances(state)
    cdef float* upper_bounds = state.bounds.upper_bounds
    cdef const float* batch_distances = state.bounds.batch_distances
    cdef int z
    for i in range(start, stop):
        z = state.points.labels[i]
        if opened_at[0] >= i or z >= first_new:
            continue  # none was opened before it, or it has opened or joined one of the batch itself
        # 2 u < t, first with the bound at hand, then with that of the distance
        if by_center_distances and 2.0 * upper_bounds[i] < batch_distances[z]:
            continue
        listed[n_listed], assigned[n_listed], distances[n_listed] = <unsigned short> (i - start), z, -1.0
        n_listed += 1
    if by_center_distances:
        state.backend.assigned_distances(state, start, listed, n_listed, assigned, distances)
    batch.size = 0
    for q in range(n_listed):
        i = start + listed[q]
        if by_center_distances:
            upper_bounds[i] = upper_bound(distances[q], state.frame.scale)
            if 2.0 * upper_bounds[i] < batch_distances[assigned[q]]:
                continue
        while n_before < n_new and opened_at[n_before] < i:
            n_before += 1
        if batch.size > 0 and n_batch != n_before:  # points of a batch are compared with the same centers
            compare_batch(state, &batch, first_new, first_new + n_batch, thread)
        n_batch = n_before
        add_to_batch(&batch, i, distances[q])
        if batch.size == state.scratch.batch:
            compare_batch(state, &batch, first_new, first_new + n_batch, thread)
    if batch.size > 0:
        compare_batch(state, &batch, first_new, first_new + n_batch, thread)


cdef void compare_part(
    State* state, Py_ssize_t chunk, Py_ssize_t start, Py_ssize_t stop, Py_ssize_t first_new,
    const Py_ssize_t* opened_at, int thread
) noexcept nogil:
    """Those of points start..stop-1 that are in a chunk."""
    compare_chunk(
        state, max(start, chunk * CHUNK), min(stop, (chunk + 1) * CHUNK), first_new, opened_at, thread
    )


cdef void assign_to_new_centers(
    State* state, Py_ssize_t start, Py_ssize_t stop, Py_ssize_t first_new, const Py_ssize_t* opened_at, int threads
) noexcept nogil:
    """Give points start..stop-1 the labels of centers from first_new on where these are nearer.

    opened_at : the point at which each of these was opened, ascending; it is compared with points after it
    """
    cdef Py_ssize_t chunk, first = start // CHUNK, last = (stop + CHUNK - 1) // CHUNK
    cdef ParallelLoop loop = begin_loop(last - first, threads)
    if loop.threads == 1:
        for chunk in range(first, last):
            compare_part(state, chunk, start, stop, first_new, opened_at, 0)
    else:
        for chunk in prange(first, last, schedule="dynamic", chunksize=1, num_threads=loop.threads):
            compare_part(state, chunk, start, stop, first_new, opened_at, begin_chunk(&loop))
    end_loop(&loop)


cdef void reduce_bounds_of_chunk(State* state, Py_ssize_t chunk, int thread) noexcept nogil:
    """Lower bounds of a chunk's points: the last center has become one of the others."""
    cdef Batch batch
    cdef Py_ssize_t i, m, last = state.centers.n - 1
    batch.size = 0
    for i in range(chunk * CHUNK, min(state.points.n, (chunk + 1) * CHUNK)):
        add_to_batch(&batch, i, -1.0)
        if batch.size < state.scratch.batch and i + 1 < min(state.points.n, (chunk + 1) * CHUNK):
            continue
        state.backend.two_nearest(state, &batch, &state.centers.packed, last, last + 1, thread)
        for m in range(batch.size):
            if state.points.labels[batch.points[m]] != last:
                reduce_lower_bounds(state, batch.points[m], lower_bound(batch.least[m] - batch.error[m]))
        batch.size = 0


cdef void reduce_bounds_to_last(State* state, int threads) noexcept nogil:
    """Compare all points with the last center, which is new, where distances between centers are not known."""
    cdef Py_ssize_t chunk, n_chunks = (state.points.n + CHUNK - 1) // CHUNK
    cdef ParallelLoop loop = begin_loop(n_chunks, threads)
    for chunk in prange(n_chunks, schedule="dynamic", chunksize=1, num_threads=loop.threads):
        reduce_bounds_of_chunk(state, chunk, begin_chunk(&loop))
    end_loop(&loop)
