"""What the starts of a feature allocation share, what each one owns, and loops over its points.

X is about Z A, with rows of Z in {0, 1}^k (which features a point has) and rows of A in R^d (the features). Points are
handled in tiles of LANES, side by side in the lanes of vectors (see _features.h), and tiles in chunks of FEATURE_CHUNK.
"""

from libc.stdint cimport uint64_t

from smallvar._sweeps.rows cimport Rows

cdef extern from "_features.h" nogil:
    enum:
        LANES "SF_LANES"
    const double FEATURE_TIE "SF_TIE"  # squares that differ by no more than this share are equal
    void sf_residual(Py_ssize_t, Py_ssize_t, Py_ssize_t, const double*, const double*, const double*, double*, double*)
    void sf_dots(Py_ssize_t, Py_ssize_t, Py_ssize_t, const double*, const double*, double*)
    int sf_flip(Py_ssize_t, Py_ssize_t, const double*, const unsigned char*, const double*, int, double*, double*,
                double*, double*)
    void sf_exact(Py_ssize_t, Py_ssize_t, const double*, const double*, const int*, const double*, const double*,
                  double*, double*, double*)
    double sf_dot(Py_ssize_t, const double*, const double*)
    void sf_axpy(Py_ssize_t, double, const double*, double*)
    void sf_cut(Py_ssize_t, Py_ssize_t, double, const double*, const double*, double*)

cdef enum:
    ROUND = 8192        # tiles of a round, at most: proposed in parallel, then committed in order
    FEATURE_CHUNK = 16  # tiles that a thread takes at a time
    PACKED = 1 << 21    # data of at most this many values are held as tiles, larger ones gathered in each sweep
    SMALL = 1 << 18     # values up to which the starts are shared out to threads instead of the points
    PARTIALS = 16       # partial sums of a round,
    SUMS = 1 << 22      # and values they may have in all
    # over the bits of a row, at most, where they go on until none flips: a few, but for ties that rounding hides
    MAX_PASSES = 1000
    CALL = 2000         # multiply-adds that take as long as all other work of a small sweep
    FEATURE_WORK = 1 << 26  # multiply-adds between two checks for signals

cdef extern from *:
    """
    #define SMALLVAR_ZERO_SQUARE 1e-26
    #define SMALLVAR_DEPENDENT 1e-9
    """
    # of the weighted square of the data: errors, residuals and features that are no more are rounding
    const double ZERO_SQUARE "SMALLVAR_ZERO_SQUARE"
    # of the square of a column of Z: one of which the columns before it (or the other rows) leave less is dropped
    const double DEPENDENT "SMALLVAR_DEPENDENT"

# What a sweep does: the "rule" of a problem. MB13 is Broderick, Kulis & Jordan (2013)
cdef enum:
    FREE = 0            # BP-means, MB13 eq. 6: coordinates, features created and removed in order
    COLLAPSED = 1       # collapsed BP-means, MB13 eq. 10
    COORDINATE = 2      # K-features, MB13 eq. 14
    EXACT = 3           # K-features, the best of all 2^K rows

# ----------------------------------------------------------------------------------------------------------------------
# What all starts share and only read


cdef struct FeatureProblem:
    Rows rows                   # X and the weights
    Py_ssize_t n                # points, as in rows
    Py_ssize_t d                # columns, likewise
    Py_ssize_t n_tiles          # n / LANES, rounded up
    double* packed              # n_tiles x d x LANES, or NULL: tiles are gathered from the rows
    # bins of the exact sums of w x, about 0, see _sums.h
    Py_ssize_t bins_of_zx       # of an entry of Z'WX
    Py_ssize_t bins_of_zz       # of an entry of Z'WZ: as many, or 1 without weights, where it counts rows
    const double* magic         # bins_of_zx x (d + 1)
    const double* mean          # d: the weighted mean of X
    double energy               # sum of w ||x||^2
    double zero_square          # what counts as zero of a point's ||x||^2, for rows that are compared by residuals
    int rule                    # one of those above
    bint fixed                  # K-features: the number of features stays
    Py_ssize_t max_features     # K where it is fixed
    Py_ssize_t most_tried       # COLLAPSED: features up to which a row is the best of all; bit by bit with more
    double lam                  # penalty of a feature
    double threshold            # w ||r||^2 above which a point creates one: lam, or all that counts as zero
    int max_iter                # parameters of the estimators
    double tol
    Py_ssize_t n_swaps
    void* callback              # called after each sweep, unless NULL; the FeatureSweep holds it


# ----------------------------------------------------------------------------------------------------------------------
# What a start owns. All buffers lie in one arena, see lay_out in state.pyx


cdef struct Assignments:
    unsigned char* bits         # n_tiles x capacity x LANES: the rows of Z, zero behind the features there are
    double* squares             # n_tiles x LANES: squared residuals, those of padding 0
    double* chunk_sums          # weighted sums of these over each chunk, as of the last `total`


cdef struct Round:              # new rows of Z for consecutive tiles
    Py_ssize_t n_tiles          # of the next round of BP-means
    Py_ssize_t start            # first point of the round,
    Py_ssize_t first_tile       # and its tile, which comes first in the arrays
    unsigned char* old_bits     # tiles x capacity x LANES: the rows of Z before the round
    unsigned char* changed      # of each tile: mask of the lanes whose rows changed
    unsigned char* may_create   # of each tile: whether w ||r||^2 of a point exceeds the threshold
    double* removal_gain        # capacity: what leaving each feature saves a point that alone uses it


cdef struct Features:
    double* rows                # capacity x d: A
    double* transposed          # d x capacity
    double* gram                # capacity x capacity: A A'
    unsigned char* removed      # capacity: whether a feature was removed in this sweep, at whose end its number is free
    Py_ssize_t n_removed        # how many were


cdef struct FeatureSums:        # over the rows of Z
    double* users               # capacity: points that have each feature
    double* zz_bins             # bins_of_zz x capacity x capacity: those of Z'WZ, nothing above the diagonal
    double* zx_bins             # capacity x bins_of_zx x d: those of Z'WX
    double* zz                  # capacity x capacity: Z'WZ, as last read from its bins
    double* zx                  # capacity x d: Z'WX likewise
    double* partial             # partials x (zz_bins, users, zx_bins): what a round changes


cdef struct Solver:             # scratch memory of least squares
    double* factor              # capacity x capacity: Cholesky factor of Z'WZ
    double* dependent           # capacity x capacity: columns of Z that depend on others, as combinations of these
    double* dependent_factor    # capacity x capacity: Cholesky factor of I + the products of these combinations
    double* solution            # capacity x d: right-hand sides, then solutions
    Py_ssize_t* kept            # capacity: numbers of the features that are kept, then, for least_norm, of the others


cdef struct GrayCode:           # an order of all 2^k rows, of which each differs from the one before in a bit
    int* flips                  # 2^k: the bit that each step flips
    double* quadratic           # 2^k: z A A' z' after each step


cdef struct RowSearch:          # for the best rows, see sweeps.pyx
    double alpha                # added to the diagonal of A A'
    double* factor              # capacity x capacity: R
    double* pivots              # capacity: of the features that are not in R yet
    Py_ssize_t* order           # capacity: of the features in R


cdef struct Collapsed:          # see collapsed.pyx
    Py_ssize_t n_updates        # rank-one updates since the last refresh
    double* inverse             # capacity x capacity: P = (Z'WZ)^-1
    double* reduced_inverse     # capacity x capacity: P, A A' and A without one column
    double* reduced_gram
    double* reduced_features    # capacity x d
    const double* x             # d: a point, where it lies or in
    double* row                 # d,
    double* residual            # d: its residual,
    double* other_residual      # d: and that of its new row, where A is that of the other rows
    double* z                   # capacity: its row of Z,
    double* old_z               # capacity: and as it was
    double* p_z                 # capacity: P z,
    double* a_r                 # capacity: and A r
    double* other_p_z           # capacity: P z and A r, where P and A are those of the other rows
    double* other_a_r
    double* step                # capacity: by what a row changes A, as a multiple of r
    double* full_z              # capacity: the row over all columns
    double* numerators          # those of the costs of all rows that are tried,
    double* denominators        # likewise,
    double* flip_step           # and by what either changes where one more bit flips


cdef struct Progress:
    Py_ssize_t number           # which start this is; -1: none yet
    double error                # sum of w ||x - z A||^2
    double objective            # error + lam k; the error alone where K is fixed
    double* path                # the objective after every sweep, in memory of its own that grows
    Py_ssize_t n_path           # entries of it
    Py_ssize_t path_capacity    # entries there is memory for
    Py_ssize_t n_changed        # in the last sweep: rows changed,
    Py_ssize_t n_created        # features created,
    Py_ssize_t n_removed        # features removed or made anew
    bint solved                 # A is the least squares solution for Z
    bint converged              # a fixed point was reached, or tol ended the sweeps
    int n_iter                  # sweeps
    Py_ssize_t* stop            # not 0 where all starts are to end, or NULL
    Py_ssize_t work             # multiply-adds since the last check for signals


cdef struct Level:              # of the search for a row: a bit
    double target               # y_i, the right-hand side
    double left                 # what the bits chosen leave of it
    double bit                  # the value tried last,
    int n_tried                 # how many were,
    double sum                  # and the sum of squares from here on
    double best                 # the value in the best row so far


cdef struct FeatureScratch:     # of one thread
    double* x                   # d x LANES: the values of a tile
    double* residual            # d x LANES: x - z A
    double* z                   # capacity x LANES: the rows of Z of a tile, as numbers
    double* dots                # capacity x LANES: A r (or A x) of each point
    double* twice_dots          # capacity x LANES: 2 A x, for the best of all rows
    double* pieces              # (bins_of_zx + 1) x d: the pieces of w x of a point, one a bin, and what is left
    double* weight_pieces       # bins_of_zx: those of its weight
    Level* levels               # capacity: of the search for a row


cdef struct FeatureState:
    Py_ssize_t k                # features, those removed in this sweep included
    Py_ssize_t capacity         # features there is memory for, a multiple of 8
    int threads                 # that a loop over points may use
    uint64_t rng                # state of the random generator
    char* arena
    Assignments assignments     # Z
    Features features           # A
    Round round
    FeatureSums sums
    Solver solver
    GrayCode gray_code
    RowSearch search
    Collapsed collapsed
    Progress progress
    FeatureScratch* scratch            # one for each thread


cdef inline Py_ssize_t sums_size(const FeatureProblem* problem, Py_ssize_t k) noexcept nogil:
    """Values in a partial sum: changes of zz_bins, users and zx_bins."""
    return k * (k * problem.bins_of_zz + 1 + problem.bins_of_zx * problem.d)


cdef inline Py_ssize_t round_tiles(const FeatureProblem* problem) noexcept nogil:
    """Tiles of the largest round."""
    return max(<Py_ssize_t> 1, min(problem.n_tiles, <Py_ssize_t> ROUND))


cdef inline Py_ssize_t tile_count(Py_ssize_t points) noexcept nogil:
    return (points + LANES - 1) // LANES


cdef inline int lanes_of(const FeatureProblem* problem, Py_ssize_t tile) noexcept nogil:
    """Mask of the lanes that hold points."""
    return (1 << min(<Py_ssize_t> LANES, problem.n - tile * LANES)) - 1


cdef inline unsigned char* bits_of(const FeatureState* state, Py_ssize_t tile) noexcept nogil:
    """The rows of Z of a tile, capacity x LANES."""
    return state.assignments.bits + tile * state.capacity * LANES


cdef inline unsigned char* old_bits_of(const FeatureState* state, Py_ssize_t tile) noexcept nogil:
    """The rows of Z of a tile of the round, as they were before it, capacity x LANES."""
    return state.round.old_bits + (tile - state.round.first_tile) * state.capacity * LANES


cdef inline unsigned char* changed_of(const FeatureState* state, Py_ssize_t tile) noexcept nogil:
    """Where the mask of the changed lanes of a tile of the round lies."""
    return state.round.changed + (tile - state.round.first_tile)


cdef inline unsigned char* bit(const FeatureState* state, Py_ssize_t i, Py_ssize_t k) noexcept nogil:
    """Where z_k of point i lies."""
    return bits_of(state, i // LANES) + k * LANES + i % LANES


cdef inline void set_energy(FeatureProblem* problem, double energy) noexcept nogil:
    """Set what counts as zero; without that, features created by rounding come and go for ever."""
    problem.energy = energy
    problem.threshold = max(problem.lam, ZERO_SQUARE * energy)


cdef inline double zero_if_rounding(const FeatureProblem* problem, double error) noexcept nogil:
    """A squared error, or zero where it is nothing but rounding."""
    return 0.0 if error <= ZERO_SQUARE * problem.energy else error


cdef inline Py_ssize_t row_work(const FeatureProblem* problem, const FeatureState* state) noexcept nogil:
    """Multiply-adds of a new row of Z, K fixed."""
    return problem.d * (2 * state.k + 1) + ((state.k + 4) << state.k if problem.rule == EXACT else 0)


cdef inline Py_ssize_t work_tiles(const FeatureProblem* problem, Py_ssize_t work) noexcept nogil:
    """Tiles of the next round, given the multiply-adds of a row: no more than may pass between checks for signals."""
    return min(round_tiles(problem), max(<Py_ssize_t> 64, FEATURE_WORK // (LANES * work)))


# what is done for the tiles first..last-1, a chunk, by a thread with scratch memory of its own
ctypedef void (*ChunkFunction)(
    const FeatureProblem* problem, FeatureState* state, Py_ssize_t chunk, Py_ssize_t first, Py_ssize_t last, int thread
) noexcept nogil

cdef void each_chunk(
    const FeatureProblem* problem, FeatureState* state, ChunkFunction function, Py_ssize_t first, Py_ssize_t last,
    Py_ssize_t length
) noexcept nogil
cdef void* new_memory(size_t bytes) except NULL nogil
cdef double* aligned(void* memory) noexcept nogil
cdef void release(FeatureState* state) noexcept nogil
cdef int allocate(const FeatureProblem* problem, FeatureState* state, Py_ssize_t capacity, int threads) except -1 nogil
cdef void copy_state(const FeatureProblem* problem, const FeatureState* source, FeatureState* target) noexcept nogil
cdef int check_interrupt(FeatureState* state, Py_ssize_t work) except -1 nogil
cdef int push(Progress* progress, double value) except -1 nogil
cdef const double* tile_of(const FeatureProblem* problem, Py_ssize_t tile, double* space) noexcept nogil
# OUT scratch: z, the rows of Z of the tile, and residual, x - z A; squares: LANES, ||x - z A||^2. Returns x, d x LANES
cdef const double* residuals(
    const FeatureProblem* problem, const FeatureState* state, Py_ssize_t tile, FeatureScratch* scratch, double* squares
) noexcept nogil
cdef void residual_of(const FeatureProblem* problem, FeatureState* state, Py_ssize_t i, double* residual) noexcept nogil
cdef double total(const FeatureProblem* problem, FeatureState* state) noexcept nogil
cdef double evaluate(const FeatureProblem* problem, FeatureState* state) noexcept nogil
cdef void add_round(
    const FeatureProblem* problem, FeatureState* state, Py_ssize_t stop, bint counts_users
) noexcept nogil
cdef void begin_row(FeatureState* state, Py_ssize_t i) noexcept nogil
cdef void read_sums(const FeatureProblem* problem, FeatureState* state) noexcept nogil
cdef int recount(const FeatureProblem* problem, FeatureState* state, Py_ssize_t n_counted) except -1 nogil
cdef void update_tables(const FeatureProblem* problem, FeatureState* state, Py_ssize_t k) noexcept nogil
cdef void update_all_tables(const FeatureProblem* problem, FeatureState* state) noexcept nogil
cdef int add_feature(const FeatureProblem* problem, FeatureState* state, const double* feature) except -1 nogil
cdef int add_residual(const FeatureProblem* problem, FeatureState* state, Py_ssize_t i) except -1 nogil
cdef void compact(const FeatureProblem* problem, FeatureState* state, Py_ssize_t n_kept) noexcept nogil
cdef void remove(const FeatureProblem* problem, FeatureState* state, Py_ssize_t k) noexcept nogil
cdef Py_ssize_t independent(
    const double* zz, Py_ssize_t capacity, Py_ssize_t k, double* factor, Py_ssize_t* kept
) noexcept nogil
cdef void solve(
    const double* factor, Py_ssize_t capacity, Py_ssize_t k, double* y, Py_ssize_t width, Py_ssize_t stride
) noexcept nogil
cdef double least_squares(const FeatureProblem* problem, FeatureState* state) noexcept nogil
