"""Starts of feature allocations: what they share, what each owns, and passes over its tiles of points.

X is about Z A, with rows of Z in {0, 1}^k (which features a point has) and rows of A in R^d (the features). Rows of Z
and values of X are handled in tiles of LANES points, side by side in the lanes of vectors: see _features.h.
"""

from libc.stdint cimport uint64_t

from smallvar._sweeps.pool cimport PAYS
from smallvar._sweeps.rows cimport Rows

cdef extern from "_features.h" nogil:
    enum:
        LANES "SF_LANES"
    const double VACANT "SF_VACANT"
    const double TIE "SF_TIE"
    void* sf_allocate(size_t)
    void sf_free(void*)
    Py_ssize_t sf_gather_d(const double*, Py_ssize_t, Py_ssize_t, double*)
    Py_ssize_t sf_gather_f(const float*, Py_ssize_t, Py_ssize_t, double*)
    void sf_load_bits(Py_ssize_t, const unsigned char*, double*)
    void sf_store_bits(Py_ssize_t, const double*, unsigned char*)
    void sf_residual(Py_ssize_t, Py_ssize_t, Py_ssize_t, const double*, const double*, const double*, double*, double*)
    void sf_dots(Py_ssize_t, Py_ssize_t, Py_ssize_t, const double*, const double*, double*)
    int sf_flip(Py_ssize_t, Py_ssize_t, const double*, const double*, int, double*, double*, double*, double*)
    void sf_exact(Py_ssize_t, Py_ssize_t, const double*, const double*, const int*, const double*, const double*,
                  double*, double*, double*)
    void sf_with(Py_ssize_t, const double*, const double*, double*)
    double sf_dot(Py_ssize_t, const double*, const double*)
    double sf_largest(Py_ssize_t, const double*, const double*)
    void sf_add_up(Py_ssize_t, const double*, const double*, const double*, double*)
    void sf_axpy(Py_ssize_t, double, const double*, double*)
    void sf_cut_d(Py_ssize_t, Py_ssize_t, double, const double*, Py_ssize_t, const double*, double*)
    void sf_cut_f(Py_ssize_t, Py_ssize_t, double, const float*, Py_ssize_t, const double*, double*)

cdef enum:
    ROUND = 8192        # tiles of a round: proposals are made for it in parallel, then taken up in order
    RUN = 16            # tiles that a thread takes at a time
    PART = 16           # tiles of a partial sum of squared residuals, for draws; no run ends within one
    PACKED = 1 << 21    # data of at most this many values are held as tiles, larger ones gathered in each sweep
    SMALL = 1 << 18     # values up to which threads share out starts instead of points
    PARTIALS = 16       # partial sums of a round,
    SUMS = 1 << 22      # and values they may have in all
    PASSES = 1000       # over the bits of a row: a few, but for ties that rounding hides
    CALL = 2000         # multiply-adds that take as long as all other work of a small sweep
    WORK = 1 << 26      # multiply-adds between two checks for signals

cdef extern from *:
    """
    #define SMALLVAR_ZERO_SQUARE 1e-26
    #define SMALLVAR_DEPENDENT 1e-9
    """
    # of the weighted square of the data: errors, residuals and features that are no more are rounding
    const double ZERO_SQUARE "SMALLVAR_ZERO_SQUARE"
    # of the square of a column of Z: one with less left, the columns before it (or the other rows) known, is dropped
    const double DEPENDENT "SMALLVAR_DEPENDENT"

# What a sweep does: the "rule" of a problem. MB13 is Broderick, Kulis & Jordan (2013)
cdef enum:
    FREE = 0            # BP-means, MB13 eq. 6: coordinates, features created and removed in order
    COLLAPSED = 1       # collapsed BP-means, MB13 eq. 10
    COORDINATE = 2      # K-features, MB13 eq. 14
    EXACT = 3           # K-features, the best of all 2^K rows


cdef struct Problem:            # what all starts share and only read
    Rows rows
    Py_ssize_t n                # points, as in rows
    Py_ssize_t d                # columns, likewise
    Py_ssize_t tiles            # n / LANES, rounded up
    double* packed              # tiles x d x LANES, or NULL
    double energy               # sum of w ||x||^2
    double zero_square          # for the exact best row: what counts as zero of a point's ||x||^2
    double lam                  # penalty of a feature
    double floor                # w ||r||^2 above which a point opens one: lam, or all that counts as zero
    int rule                    # one of those above
    bint fixed                  # K-features: the number of features stays
    Py_ssize_t cap              # largest number of features
    int max_iter                # parameters of the estimators
    double tol
    Py_ssize_t n_swaps
    void* callback              # called after each sweep, unless NULL; the FeatureSweep holds it
    # exact sums of w x, about 0, see _sums.h
    Py_ssize_t bins             # of Z'WX
    Py_ssize_t layers           # bins of Z'WZ: as many, or 1 without weights, where its entries count rows
    const double* magic         # bins x (d + 1), see _sums.h
    const double* mean          # d: the weighted mean of X


cdef struct Scratch:            # one thread's
    double* x                   # d x LANES: the values of a tile
    double* residual            # d x LANES: x - z A
    double* z                   # room x LANES: the rows of Z of a tile, as numbers
    double* dots                # room x LANES: A r of each point, see _features.h
    double* work                # room x LANES: 2 A x, for the exact best row
    double* piece               # bins x d: the pieces of one row, then those of its weight, one a bin
    double[3] bins              # of a sum of squared residuals


cdef struct Start:              # one start: scalars, and buffers that lie in one arena, see lay_out in state.pyx
    Py_ssize_t k                # features, the vacant included
    Py_ssize_t vacant           # features removed in this sweep, whose numbers are given back at its end
    Py_ssize_t room             # features there is memory for, a multiple of 8
    int threads                 # that a pass may use
    char* arena                 # the memory of all buffers but the path
    # Z
    unsigned char* z            # tiles x room x LANES: the rows of Z, zero behind the features there are
    unsigned char* old          # the same for the tiles of a round, as they were before the round
    unsigned char* touched      # of each tile of a round: mask of the lanes whose rows changed
    unsigned char* far          # of each tile of a round: whether a point's squared residual exceeds the floor
    double* squares             # tiles x LANES: squared residuals, those of padding 0
    double* parts               # their weighted sums over PART tiles each
    double[3] magic             # for their exact sum, see _sums.h
    # A
    double* features            # room x d: A
    double* at                  # d x room: A transposed
    double* gram                # room x room: A A'
    # sums
    double* zz_bins             # layers x room x room: the bins of Z'WZ, nothing above the diagonal
    double* zx_bins             # room x bins x d: those of Z'WX
    double* zz                  # room x room: Z'WZ, as last read
    double* zx                  # room x d: Z'WX likewise
    double* count               # room: users of each feature
    double* partial             # partials x (layers x k x k + k + k x bins x d): changes of zz_bins, count, zx_bins
    # scratch memory
    double* refund              # room: what leaving each feature saves a point that alone uses it
    double* small               # 3 x room x room: small systems
    double* spare               # room x d: their right-hand sides and solutions; a new feature, in the first row
    Py_ssize_t* kept            # 2 x room: numbers of the features that are kept, then of the others
    Scratch* scratch            # one for each thread
    # the exact best of all rows
    double* quadratic           # 2^k: z A A' z' in Gray order
    int* flips                  # 2^k: the bit that each step of the Gray code flips
    # collapsed
    double* inverse             # room x room: P = (Z'WZ)^-1
    double* vec                 # 12 x room: vectors over features, named in reconsider
    double* wide                # 4 x d: a point and its residual
    double* rest                # 2 x room x room + room x d: P, A A' and A without one column
    Py_ssize_t updates          # rank-one updates since the last refresh
    # the run
    uint64_t rng                # state of the generator
    double error                # sum of w ||x - z A||^2
    double objective            # error + lam k; the error alone where K is fixed
    double* path                # the objective after every sweep, in memory of its own that grows
    Py_ssize_t n_path           # entries of it
    Py_ssize_t path_room        # entries there is memory for
    Py_ssize_t changes          # of the last sweep: rows changed,
    Py_ssize_t created          # features opened,
    Py_ssize_t removed          # features removed or placed anew
    Py_ssize_t round            # tiles of the next round
    bint solved                 # A is the least squares solution for Z
    bint converged              # a fixed point was reached, or tol ended the sweeps
    int n_iter                  # sweeps
    Py_ssize_t number           # which start this is
    Py_ssize_t* stop            # not 0 where the other starts are to end, or NULL
    Py_ssize_t work             # multiply-adds since the last check for signals


cdef struct Pass:               # a pass over the tiles first..last-1, or over the points start..stop-1 in them
    void (*each)(const Pass*, Py_ssize_t, Py_ssize_t, Scratch*) noexcept nogil  # what is done to a run of tiles
    const Problem* p            # what all starts share
    Start* s                    # the start that the pass is for
    Py_ssize_t first
    Py_ssize_t last
    Py_ssize_t start
    Py_ssize_t stop


cdef inline Py_ssize_t sums_size(const Problem* p, Py_ssize_t k) noexcept nogil:
    """Values in a partial sum: changes of zz_bins, count and zx_bins."""
    return k * (k * p.layers + 1 + p.bins * p.d)


cdef inline Py_ssize_t partial_count(const Problem* p, Py_ssize_t k, Py_ssize_t tiles) noexcept nogil:
    """Partial sums over so many tiles."""
    cdef Py_ssize_t partials = min(<Py_ssize_t> PARTIALS, tiles // 64)
    return max(<Py_ssize_t> 1, min(partials, <Py_ssize_t> SUMS // max(<Py_ssize_t> 1, sums_size(p, k))))


cdef inline Py_ssize_t round_tiles(const Problem* p) noexcept nogil:
    return max(<Py_ssize_t> 1, min(p.tiles, <Py_ssize_t> ROUND))


cdef inline int threads_for(const Problem* p, const Start* s, Py_ssize_t tiles) noexcept nogil:
    """One thread where a pass over so many tiles is too short to be shared out."""
    return s.threads if tiles * LANES * p.d * (2 * s.k + 1) >= PAYS else 1


cdef inline int lanes_of(const Problem* p, Py_ssize_t tile) noexcept nogil:
    """Mask of the lanes that hold points."""
    return (1 << min(<Py_ssize_t> LANES, p.n - tile * LANES)) - 1


cdef inline unsigned char* bit(Start* s, Py_ssize_t i, Py_ssize_t k) noexcept nogil:
    return s.z + ((i // LANES) * s.room + k) * LANES + i % LANES


cdef inline void set_energy(Problem* p, double energy) noexcept nogil:
    """Set what counts as zero; without that, features opened by rounding come and go for ever."""
    p.energy = energy
    p.floor = max(p.lam, ZERO_SQUARE * energy)


cdef inline double cleared(const Problem* p, double error) noexcept nogil:
    """A squared error, or zero where it is nothing but rounding."""
    return error if error > ZERO_SQUARE * p.energy else 0.0


cdef inline Py_ssize_t row_work(const Problem* p, const Start* s) noexcept nogil:
    """Multiply-adds of a new row of Z, K fixed."""
    return p.d * (2 * s.k + 1) + ((s.k + 4) << s.k if p.rule == EXACT else 0)


cdef inline Py_ssize_t work_tiles(const Problem* p, Py_ssize_t each) noexcept nogil:
    """Tiles of the next round, so much work a row: not more than are done before the next check for signals."""
    return min(round_tiles(p), max(<Py_ssize_t> 64, WORK // (LANES * each)))


cdef void* new_memory(size_t bytes) except NULL nogil
cdef void release(Start* s) noexcept nogil
cdef int allocate(const Problem* p, Start* s, Py_ssize_t room, int threads) except -1 nogil
cdef void copy_state(const Problem* p, const Start* a, Start* b) noexcept nogil
cdef int grow(const Problem* p, Start* s) except -1 nogil
cdef int check_interrupt(Start* s, Py_ssize_t work) except -1 nogil
cdef int push(Start* s, double value) except -1 nogil
cdef void pack(Problem* p) noexcept nogil
cdef const double* tile_of(const Problem* p, Py_ssize_t tile, double* space) noexcept nogil
cdef void residuals(const Problem* p, Start* s, Py_ssize_t tile, Scratch* w) noexcept nogil
cdef void residual_of(const Problem* p, Start* s, Py_ssize_t i, double* r) noexcept nogil
cdef double total(const Problem* p, Start* s) noexcept nogil
cdef double evaluate(const Problem* p, Start* s) noexcept nogil
cdef void share(
    void (*each)(const Pass*, Py_ssize_t, Py_ssize_t, Scratch*) noexcept nogil,
    const Problem* p, Start* s, Py_ssize_t first, Py_ssize_t last, Py_ssize_t start, Py_ssize_t stop
) noexcept nogil
