"""The state of a fit: points, centers, and bounds on their distances. Words and letters: see __init__.py."""

from libc.math cimport sqrtf
from libc.string cimport memchr

from smallvar._sweeps.rows cimport Rows, point, real_x
from smallvar._sweeps.tolerances cimport (
    PENALTY_MARGIN,
    ROUND_DOWN,
    ROUND_UP,
    SMALLEST_DISTANCE,
    SMALLEST_SQUARE,
)

ctypedef fused real_c:  # element type in which scores are computed
    float
    double

cdef enum:
    CHUNK = 1024    # points scanned by one thread at a time; results do not depend on it
    WORK = 1 << 29  # multiply-adds, or elements read, between two checks for signals


cdef extern from *:
    """
    #define SMALLVAR_BIG 1e15f
    """
    const float BIG "SMALLVAR_BIG"  # as a distance: above every real one, its square still a float32


cdef enum:
    PAD = 6         # centers are padded to a multiple of this, that of all but one block of the kernels


cdef struct State:
    # data
    Rows rows
    Py_ssize_t n            # points, as in rows
    Py_ssize_t d            # columns, likewise
    const double* shift     # d: origin of the scores
    double scale            # power of two that brings the data into [-1, 1]
    # centers
    double* c               # capacity x d: the centers, as they are
    void* scaled            # the same for the scores, in panels: -2 * (c - shift) * scale
    void* norm              # squared norms of (c - shift) * scale
    double longest          # largest of those norms
    bint single             # scores in float32
    Py_ssize_t k            # number of centers
    # the restless: a few centers that move far, with a bound of their own
    Py_ssize_t n_restless
    int* restless           # which centers these are
    unsigned char* is_restless  # of every center
    void* restless_scaled   # their rows of scaled and norm, padded likewise
    void* restless_norm
    # state of every point
    int* label              # number of the own center, the one that the point is labeled with
    float* u                # upper bound of the distance to the own center, scaled
    float* l                # lower bound of the distance to every other center that is calm, scaled
    float* g                # the same for the restless: BIG as long as there are none
    # tables over centers, scaled distances
    float* p                # how far a center moved
    float* r                # how far any other calm center moved, at most
    float* rg               # how far any other restless center moved, at most
    float* h                # half the distance to the nearest other center
    float* hd               # half the distance to the nearest center opened in this sweep
    float* fresh            # distance to the nearest center opened in the last sweep
    float* near             # distance to the nearest center of the lot just opened
    bint lazy               # u + p, l - r and g - rg are bounds, so the filter may be used
    bint swept              # a sweep has brought the bounds up to date with p, r and rg
    bint opened             # a center was opened in this sweep or the last one: hd or fresh matter
    bint opened_restless    # the one center opened in the last sweep is among the restless
    double lam              # penalty of a cluster
    double limit            # sqrt(lam), scaled, rounded down; BIG where no cluster may be opened
    double rounding         # a squared distance up to this may be the rounding of a mean
    bint seek               # list the points that are far
    bint farthest           # find the point with the largest weighted distance beyond lam
    # lists of each chunk, at the chunk's own place
    unsigned short* moved   # points with a new label, from the beginning of the chunk
    int* moved_from         # their old labels
    unsigned short* far     # points that are far
    int* n_moved
    int* n_far
    Py_ssize_t* n_searched  # scores computed
    int* n_exact            # points that were close
    double* farthest_distance   # of the point with the largest weighted distance beyond lam
    Py_ssize_t* farthest_index  # that point, or -1
    # memory of each thread for the tiles of a batch, on cache lines of its own
    char* tiles
    Py_ssize_t tile_size    # bytes of it
    Py_ssize_t batch        # points that are scored together


cdef inline char* tile_of(const State* s, int thread) noexcept nogil:
    """The memory for tiles of a thread."""
    return s.tiles + thread * s.tile_size


cdef inline double squared_distance(
    const real_x* x, Py_ssize_t col, const double* c, Py_ssize_t d
) noexcept nogil:
    """The deciding distance: float64 differences, squared and summed in index order."""
    cdef double total = 0.0, t
    cdef Py_ssize_t j
    for j in range(d):
        t = <double> x[j * col] - c[j]
        total += t * t
    return total


cdef inline float upper(double squared, double scale) noexcept nogil:
    """A float32 not below the scaled distance."""
    return sqrtf(<float> (squared * scale * scale)) * <float> ROUND_UP + <float> SMALLEST_DISTANCE


cdef inline float lower(double squared) noexcept nogil:
    """A float32 not above the scaled distance whose square is given."""
    if not squared > SMALLEST_SQUARE:
        return 0.0
    return sqrtf(<float> squared) * <float> ROUND_DOWN


cdef inline void set_lower(State* s, Py_ssize_t i, float low) noexcept nogil:
    """All other centers are at least so far from point i."""
    s.l[i] = low
    if s.n_restless > 0:
        s.g[i] = low


cdef inline void reduce_lower(State* s, Py_ssize_t i, float low) noexcept nogil:
    """A center at least so far from point i has become one of the others."""
    s.l[i] = min(s.l[i], low)
    if s.n_restless > 0:
        s.g[i] = min(s.g[i], low)


cdef inline bint is_far(const State* s, Py_ssize_t i, double distance) noexcept nogil:
    """The test of KJ12, Algorithm 1: w ||x - c||^2 > lam (and above what rounding makes of zero)."""
    return (distance if s.rows.weight == NULL else s.rows.weight[i] * distance) > s.lam and distance > s.rounding


cdef inline double exact_distance(const real_x* x, const State* s, Py_ssize_t i, Py_ssize_t k) noexcept nogil:
    return squared_distance(point(x, &s.rows, i), s.rows.col, s.c + k * s.d, s.d)


cdef inline void record_move(State* s, Py_ssize_t i, int label) noexcept nogil:
    """Give point i its new label and list the move (points of weight zero move nothing)."""
    cdef Py_ssize_t chunk = i // CHUNK, place
    if s.rows.weight == NULL or s.rows.weight[i] > 0.0:
        place = chunk * CHUNK + s.n_moved[chunk]
        s.moved[place] = <unsigned short> (i - chunk * CHUNK)
        s.moved_from[place] = s.label[i]
        s.n_moved[chunk] += 1
    s.label[i] = label


cdef inline void list_far(State* s, Py_ssize_t chunk, const unsigned char* flag, Py_ssize_t size) noexcept nogil:
    """List the points of a chunk whose flag is 2 as far."""
    cdef const unsigned char* at = <const unsigned char*> memchr(flag, 2, size)
    while at != NULL:
        s.far[chunk * CHUNK + s.n_far[chunk]] = <unsigned short> (at - flag)
        s.n_far[chunk] += 1
        at = <const unsigned char*> memchr(at + 1, 2, flag + size - at - 1)


cdef inline Py_ssize_t padded(Py_ssize_t k) noexcept nogil:
    return (k + PAD - 1) // PAD * PAD


cdef inline bint surely_far(const real_x* x, const State* s, Py_ssize_t i, double distance) noexcept nogil:
    """is_far for a distance to the own center that is good to DISTANCE_MARGIN."""
    cdef double weighted = distance if s.rows.weight == NULL else s.rows.weight[i] * distance
    if weighted < s.lam * (1.0 - PENALTY_MARGIN):
        return False
    if weighted < s.lam * (1.0 + PENALTY_MARGIN) or distance < 2.0 * s.rounding:
        distance = exact_distance(x, s, i, s.label[i])
    return is_far(s, i, distance)
