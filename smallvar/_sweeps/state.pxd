"""What the sweeps over nearest centers work on: points, centers, and bounds on the distances between them.

Bounds, and tables of distances between centers, are float32 distances (not squared) times ``Frame.scale``, rounded
outward. "Exact" is one arithmetic: float64 differences, squared and summed in the order of the columns. All that a
result depends on is decided in it, so that it depends neither on threads nor on the instruction set.
"""

from libc.math cimport sqrtf

from smallvar._sweeps.rows cimport Rows, real_x
from smallvar._sweeps.tolerances cimport PENALTY_MARGIN, ROUND_DOWN, ROUND_UP, SMALLEST_DISTANCE, SMALLEST_SQUARE

cdef enum:
    CHUNK = 1024            # points that a thread handles at a time; results do not depend on it
    WORK = 1 << 29          # multiply-adds, or elements read, between two checks for signals
    BATCH = 64              # points whose distances to all centers are approximated together, at most

cdef extern from *:
    """
    #define SMALLVAR_BIG 1e15f
    """
    const float BIG "SMALLVAR_BIG"  # as a distance: above every real one, its square still a float32


cdef struct Frame:              # brings the data into [-1, 1] before distances are approximated
    const double* origin        # d: taken from every row
    double scale                # a power of two, which every row is multiplied by
    double rounding             # squared distance of the data: up to here it may be the rounding of a mean


cdef struct Points:
    Rows rows
    Py_ssize_t n                # as in rows
    Py_ssize_t d
    int* labels                 # n: the assigned center of each point


cdef struct Packed:             # some centers as approximate distances need them, in float32 or float64
    void* values                # -2 scale (c - origin), side by side; see the backends
    void* norms                 # ||scale (c - origin)||^2, one a center
    Py_ssize_t stride           # of sparse rows: centers there is room for in each row of values


cdef struct Centers:
    Py_ssize_t n
    double* coordinates         # n x d
    Packed packed
    double largest_norm         # of packed.norms
    double* squared_norms       # of sparse rows: ||c||^2 in float64
    bint single                 # packed in float32, else in float64


cdef struct FastCenters:        # the few centers that move far and have a lower bound of their own
    Py_ssize_t n
    int* indices                # n
    unsigned char* is_fast      # of every center
    Packed packed
    # the last sweep opened one center (open_farthest), and it is fast: only lower_bounds_fast is reduced for it
    bint has_new


cdef struct Bounds:
    # of each point; NULL where every sweep computes all distances, and the last where there were no fast centers yet
    float* upper_bounds         # of the distance to the assigned center
    float* lower_bounds         # of the distance to every other center, but for fast ones
    float* lower_bounds_fast    # of the distance to every other fast center; BIG where there are none
    # of each center
    float* center_shift         # how far it moved in the last update
    float* max_other_shift      # how far any other one moved, but for fast ones
    float* max_other_shift_fast     # how far any other fast one moved
    # half the distance to the nearest other center; BIG where there is none, 0 where it is not known
    float* center_half_distances
    # half the distance to the nearest other center opened in this sweep, BIG where there is none; for a center that was
    # opened in it too, only those of its own batch and later ones count. The lower bound of a point that joins it holds
    # for earlier ones already: it was compared with them, or they are no nearer than the center that it leaves
    float* new_center_half_distances
    float* last_new_center_distances    # distance (not half) to these, of the sweep before
    float* batch_distances      # distance to the nearest other center of the batch that was opened last
    bint valid                  # bounds held for the centers before they moved, and hold once the shifts are taken off
    bint shifts_taken           # a sweep has taken the shifts off
    bint opened                 # a center was opened in this sweep or in the one before


cdef struct Penalty:
    double lam                  # of a cluster
    float limit                 # scale sqrt(lam), rounded down; BIG where no cluster may be opened
    bint find_exceeding         # list the points beyond the penalty from every center
    bint find_farthest          # find the one of them with the largest weighted squared distance


cdef struct ChunkResults:       # of each chunk, or at the place of its first point
    unsigned short* moved       # points with a new label, counted from the first of the chunk
    int* moved_from             # the labels these had
    int* n_moved
    unsigned short* exceeding   # points beyond the penalty from every center, likewise
    int* n_exceeding
    double* farthest_distance   # largest weighted squared distance beyond the penalty
    Py_ssize_t* farthest        # the first point that has it, or -1
    Py_ssize_t* n_approximate   # distances that were approximated
    int* n_ambiguous            # points that approximate distances could not decide


cdef struct Scratch:            # memory of each thread, on cache lines of its own
    char* memory                # for the backend
    Py_ssize_t size             # bytes of it
    double* distances           # of sparse rows: one distance to each center, and some more
    Py_ssize_t stride           # numbers of it
    Py_ssize_t batch            # points in a batch


# Three units: of distances in a batch, ``assigned`` is squared, in the units of the data; what is approximate is
# squared times scale squared; bounds are distances times scale, as float32.
cdef struct Batch:              # points whose distances to many centers are approximated together
    Py_ssize_t size
    Py_ssize_t points[BATCH]    # which ones these are
    double assigned[BATCH]      # squared distance to the assigned center, as by assigned_distances; -1: not known
    # what the approximation finds: squared distances, times scale squared
    double least[BATCH]         # to the nearest center,
    int nearest[BATCH]          # which is this one,
    double second[BATCH]        # and to the second nearest
    double error[BATCH]         # of the approximate distance to any of the centers, at most


cdef struct Backend


cdef struct State:
    Frame frame
    Points points
    Centers centers
    FastCenters fast
    Bounds bounds
    Penalty penalty
    ChunkResults results
    Scratch scratch
    const Backend* backend


# Rows are dense or sparse: what they do not share. Functions of a point and a thread may use that thread's scratch.
cdef struct Backend:
    # approximate distances of a batch to centers first..last-1 of a packed table
    void (*two_nearest)(
        const State*, Batch*, const Packed*, Py_ssize_t first, Py_ssize_t last, int thread
    ) noexcept nogil
    # nearest of centers first..last-1 for each point of a batch: exactly, the lowest index at a tie. Left out may be
    # centers whose approximate distance, squared and scaled, is above the cutoff of the point. In the batch, nearest is
    # that center and assigned the squared distance to it, or slightly more
    void (*nearest_exactly)(
        const State*, Batch*, const double* cutoffs, Py_ssize_t first, Py_ssize_t last, int thread
    ) noexcept nogil
    # squared distances of one point to centers first..last-1, and how far each may be from the exact one
    void (*distances)(
        const State*, Py_ssize_t i, Py_ssize_t first, Py_ssize_t last, double* out, double* error
    ) noexcept nogil
    # squared distances of points start + offsets to one center each: of dense rows good to DISTANCE_MARGIN, of sparse
    # rows not below the exact ones, and above by no more than rounding makes of the squared norms
    void (*assigned_distances)(
        const State*, Py_ssize_t start, const unsigned short* offsets, Py_ssize_t n, const int* centers, double* out
    ) noexcept nogil
    double (*exact_distance)(const State*, Py_ssize_t i, Py_ssize_t k, int thread) noexcept nogil
    # squared distances of a chunk's points to their centers, or to one place where that is not NULL, for objectives:
    # exact, or closer to it than what rounding leaves of a sum
    void (*squares)(const State*, Py_ssize_t chunk, const double* place, double* out, int thread) noexcept nogil
    void (*pack)(State*, Py_ssize_t first, int threads) noexcept nogil   # centers first.. into centers.packed
    # NULL where distances between centers are not worth their time, as for sparse rows. There is no fast center then.
    void (*copy_fast)(State*) noexcept nogil        # fast centers into fast.packed
    # table[k] = min(table[k], distance from center k to the nearest other one of first..last-1), for all centers
    void (*reduce_to_nearest)(
        const State*, Py_ssize_t first, Py_ssize_t last, float* table, int threads
    ) noexcept nogil


cdef inline bint knows_center_distances(const State* state) noexcept nogil:
    """Whether there are distances between centers; else bounds say nothing about centers opened in a sweep."""
    return state.backend.reduce_to_nearest != NULL


cdef inline char* memory_of(const State* state, int thread) noexcept nogil:
    """The scratch memory of a thread."""
    return state.scratch.memory + thread * state.scratch.size


cdef inline void add_to_batch(Batch* batch, Py_ssize_t i, double assigned) noexcept nogil:
    batch.points[batch.size] = i
    batch.assigned[batch.size] = assigned
    batch.size += 1


cdef inline double squared_distance(
    const real_x* x, Py_ssize_t stride, const double* c, Py_ssize_t d
) noexcept nogil:
    """The exact squared distance: float64 differences, squared and summed in the order of the columns."""
    cdef double total = 0.0, t
    cdef Py_ssize_t j
    for j in range(d):
        t = <double> x[j * stride] - c[j]
        total += t * t
    return total


cdef inline float upper_bound(double squared, double scale) noexcept nogil:
    """A float32 not below the scaled distance."""
    return sqrtf(<float> (squared * scale * scale)) * <float> ROUND_UP + <float> SMALLEST_DISTANCE


cdef inline float lower_bound(double squared) noexcept nogil:
    """A float32 not above the scaled distance whose square is given."""
    if not squared > SMALLEST_SQUARE:
        return 0.0
    return sqrtf(<float> squared) * <float> ROUND_DOWN


cdef inline void set_lower_bounds(State* state, Py_ssize_t i, float bound) noexcept nogil:
    """All other centers are at least so far from point i."""
    state.bounds.lower_bounds[i] = bound
    if state.fast.n > 0:
        state.bounds.lower_bounds_fast[i] = bound


cdef inline void reduce_lower_bounds(State* state, Py_ssize_t i, float bound) noexcept nogil:
    """A center at least so far from point i has become one of the others."""
    state.bounds.lower_bounds[i] = min(state.bounds.lower_bounds[i], bound)
    if state.fast.n > 0:
        state.bounds.lower_bounds_fast[i] = min(state.bounds.lower_bounds_fast[i], bound)


cdef inline double weight_at(const State* state, Py_ssize_t i) noexcept nogil:
    return 1.0 if state.points.rows.weight == NULL else state.points.rows.weight[i]


cdef inline bint is_beyond(const State* state, Py_ssize_t i, double squared) noexcept nogil:
    """The test of KJ12, Algorithm 1, with weights: w ||x - c||^2 > lam (and above what rounding makes of zero)."""
    return weight_at(state, i) * squared > state.penalty.lam and squared > state.frame.rounding


cdef inline bint is_surely_within(const State* state, Py_ssize_t i, double squared) noexcept nogil:
    """Whether a squared distance, good to DISTANCE_MARGIN or too large, is clearly below the penalty."""
    return weight_at(state, i) * squared < state.penalty.lam * (1.0 - PENALTY_MARGIN)


cdef inline void record_move(State* state, Py_ssize_t i, int label) noexcept nogil:
    """Give point i its new label and list the move (points of weight zero move nothing)."""
    cdef ChunkResults* results = &state.results
    cdef Py_ssize_t chunk = i // CHUNK, place
    if state.points.rows.weight == NULL or state.points.rows.weight[i] > 0.0:
        place = chunk * CHUNK + results.n_moved[chunk]
        results.moved[place] = <unsigned short> (i - chunk * CHUNK)
        results.moved_from[place] = state.points.labels[i]
        results.n_moved[chunk] += 1
    state.points.labels[i] = label
