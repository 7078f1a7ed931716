/* Inner loops of the sweeps over nearest centers: bounds and distances. What they decide is said in nearest.pyx. */
#ifndef SV_SET

#ifndef SMALLVAR_SIMD_H
#define SMALLVAR_SIMD_H

#include <math.h>
#include <stdint.h>
#include "_sets.h"
#include "_tolerances.h"

enum {
    SV_PANEL = 12,       /* centers whose values lie side by side; a multiple of every block of _tile.h */
    SV_LANES_SINGLE = 16 /* points of a tile of floats, see _tile.h */
};

/* Above every real squared distance: data are scaled into [-1, 1] before they come here. */
#define HUGE_DISTANCE_f 1e30f
#define HUGE_DISTANCE_d 1e30
#define SV_NO_LIMIT 1e15f /* a distance above every real one, whose square is still a float: BIG of state.pxd */

/* One ulp or more outward, so that bounds stay bounds after float32 rounding. */
#define SV_UP(x) ((x) * (float)SV_ROUND_UP)
#define SV_DOWN(x) ((x) * (float)SV_ROUND_DOWN)

/* Exact squared distances of rows to one center each, where columns are few: returns 1, or 0 if they are not.
 * IN rows: n pointers to d values; z: n, the center of each row; c: k x d, the centers.  OUT out: n. */
#define SV_SQUARE(j) { const double t = (double)x[j] - y[j]; s += t * t; }
#define SV_FEW(X, D, SQUARES)                            \
    case D:                                              \
        for (q = 0; q < n; q++) {                        \
            const X *x = rows[q];                        \
            const double *y = c + (ptrdiff_t)z[q] * D;   \
            double s = 0.0;                              \
            SQUARES                                      \
            out[q] = s;                                  \
        }                                                \
        return 1;
#define SV_FEW_DISTANCES(X)                                                                         \
    ptrdiff_t q;                                                                                    \
    switch (d) {                                                                                    \
        SV_FEW(X, 1, SV_SQUARE(0))                                                                  \
        SV_FEW(X, 2, SV_SQUARE(0) SV_SQUARE(1))                                                     \
        SV_FEW(X, 3, SV_SQUARE(0) SV_SQUARE(1) SV_SQUARE(2))                                        \
        SV_FEW(X, 4, SV_SQUARE(0) SV_SQUARE(1) SV_SQUARE(2) SV_SQUARE(3))                           \
        SV_FEW(X, 5, SV_SQUARE(0) SV_SQUARE(1) SV_SQUARE(2) SV_SQUARE(3) SV_SQUARE(4))              \
        SV_FEW(X, 6, SV_SQUARE(0) SV_SQUARE(1) SV_SQUARE(2) SV_SQUARE(3) SV_SQUARE(4) SV_SQUARE(5)) \
    }                                                                                               \
    return 0;

static int sv_few_distances_d(ptrdiff_t n, const double *const *rows, const int *z, const double *c, ptrdiff_t d,
                              double *out)
{
    SV_FEW_DISTANCES(double)
}

static int sv_few_distances_f(ptrdiff_t n, const float *const *rows, const int *z, const double *c, ptrdiff_t d,
                              double *out)
{
    SV_FEW_DISTANCES(float)
}

/* List the positions of the ones among flags, 0 or 1; returns how many there are. Without branches, which would be hard
 * to predict: eight flags make a byte, and a table has the positions of its bits.  OUT position: n + 8, as up to 8
 * entries too many are written. */
static uint16_t sv_positions[256][8];

SV_AT_LOAD(sv_positions_at_load)
{
    int byte, bit, count;
    for (byte = 0; byte < 256; byte++)
        for (bit = count = 0; bit < 8; bit++)
            if (byte >> bit & 1) sv_positions[byte][count++] = (uint16_t)bit;
}

static ptrdiff_t sv_list(ptrdiff_t n, const unsigned char *flag, unsigned short *position)
{
    ptrdiff_t i = 0, count = 0;
    for (; i + 8 <= n; i += 8) {
        const unsigned char *f = flag + i;
        const uint64_t eight = f[0] | (uint64_t)f[1] << 8 | (uint64_t)f[2] << 16 | (uint64_t)f[3] << 24 |
                               (uint64_t)f[4] << 32 | (uint64_t)f[5] << 40 | (uint64_t)f[6] << 48 |
                               (uint64_t)f[7] << 56;
        const uint16_t *bits = sv_positions[(eight * 0x0102040810204080ULL) >> 56];
        ptrdiff_t b;
        for (b = 0; b < 8; b++) position[count + b] = (unsigned short)(bits[b] + i);
        count += (ptrdiff_t)((eight * 0x0101010101010101ULL) >> 56);
    }
    for (; i < n; i++) {
        position[count] = (unsigned short)i;
        count += flag[i];
    }
    return count;
}

#define SV_KERNELS "simd.h"
#include "_each.h"

SV_CHOOSE(tile_top2_f)
SV_CHOOSE(tile_top2_d)
SV_CHOOSE(tile_distances_f)
SV_CHOOSE(tile_distances_d)
SV_CHOOSE(sv_upper)
SV_CHOOSE(sv_filter_again)
SV_CHOOSE(sv_lower)
SV_CHOOSE(sv_filter)
SV_CHOOSE(sv_filter_fast)
SV_CHOOSE(sv_filter_opened)
SV_CHOOSE(sv_assigned_distances_f)
SV_CHOOSE(sv_assigned_distances_d)
SV_CHOOSE(sv_gather_ff)
SV_CHOOSE(sv_gather_fd)
SV_CHOOSE(sv_gather_df)
SV_CHOOSE(sv_gather_dd)

#endif

#else /* for each instruction set */

#define SV_SINGLE 1
#define REAL float
#define T(name) name##_f
#include "_vector.h"
#include "_tile.h"
#undef SV_SINGLE
#undef REAL
#undef T

#define SV_SINGLE 0
#define REAL double
#define T(name) name##_d
#include "_vector.h"
#include "_tile.h"
#undef V_TRANSPOSE
#define V_TRANSPOSE SV_(sv_transpose)
#include "_transpose.h"
#undef SV_SINGLE
#undef REAL
#undef T

/* Loops that read tables at labels: without simdlen gcc takes four vectors of points at a time, because the results are
 * bytes, and runs out of registers. */
#if SV_SET == 4
#define SV_LOOKUPS _Pragma("omp simd simdlen(16)")
#elif SV_SET == 3
#define SV_LOOKUPS _Pragma("omp simd simdlen(8)")
#else
#define SV_LOOKUPS _Pragma("omp simd simdlen(4)")
#endif

#define SV_EIGHT(table) _mm256_setr_ps(table[z[0]], table[z[1]], table[z[2]], table[z[3]], \
                                       table[z[4]], table[z[5]], table[z[6]], table[z[7]])

/* Bounds after the centers moved, and the test by which a point keeps its label without any distance computed:
 *     upper + shift_z < max(lower - max_other_shift_z, half_z),  and  upper + shift_z < limit
 * with z the label, half_z half the distance from center z to the nearest other one, and limit the penalty, as a
 * distance.  INOUT upper, lower.  OUT fail: 1 where the test fails. */
static void SV_(sv_filter)(ptrdiff_t n, float *SV_RESTRICT upper, float *SV_RESTRICT lower,
                           const int *SV_RESTRICT label, const float *SV_RESTRICT shift,
                           const float *SV_RESTRICT max_other_shift, const float *SV_RESTRICT half, float limit,
                           unsigned char *SV_RESTRICT fail)
{
    ptrdiff_t i = 0, rest;
#if SV_X86 && SV_SET == 3 /* eight loads take half the time of a gather */
    const __m256 up = _mm256_set1_ps((float)SV_ROUND_UP), down = _mm256_set1_ps((float)SV_ROUND_DOWN);
    const __m256 most = _mm256_set1_ps(limit), zero = _mm256_setzero_ps();
    for (; i + 8 <= n; i += 8) {
        const int *z = label + i;
        const __m256 u = _mm256_mul_ps(_mm256_add_ps(_mm256_loadu_ps(upper + i), SV_EIGHT(shift)), up);
        const __m256 l = _mm256_max_ps(
            _mm256_mul_ps(_mm256_sub_ps(_mm256_loadu_ps(lower + i), SV_EIGHT(max_other_shift)), down), zero);
        const __m256 bound = _mm256_min_ps(_mm256_max_ps(l, SV_EIGHT(half)), most);
        const __m256i failed = _mm256_castps_si256(_mm256_cmp_ps(u, bound, _CMP_NLT_UQ));
        const __m128i words = _mm_packs_epi32(_mm256_castsi256_si128(failed), _mm256_extracti128_si256(failed, 1));
        _mm_storel_epi64((__m128i *)(fail + i), _mm_and_si128(_mm_packs_epi16(words, words), _mm_set1_epi8(1)));
        _mm256_storeu_ps(upper + i, u);
        _mm256_storeu_ps(lower + i, l);
    }
#endif
    rest = i;
    SV_LOOKUPS
    for (i = rest; i < n; i++) {
        int z = label[i];
        float u = SV_UP(upper[i] + shift[z]), l = SV_DOWN(lower[i] - max_other_shift[z]), bound;
        l = l > 0.0f ? l : 0.0f;
        bound = l > half[z] ? l : half[z];
        bound = bound < limit ? bound : limit;
        upper[i] = u;
        lower[i] = l;
        fail[i] = (unsigned char)!(u < bound);
    }
}

/* sv_filter where centers were opened in the last sweep or in this one, or where points have weights.
 *     last_new  of a center: distance to the nearest center opened in the last sweep; by the triangle inequality lower
 *               is at most last_new_z - upper. It need not be if the only new center is a fast one (new_is_fast).
 *     new_half  of a center: half the distance to the nearest center opened in this sweep: upper < new_half_z */
static void SV_(sv_filter_opened)(ptrdiff_t n, float *SV_RESTRICT upper, float *SV_RESTRICT lower,
                                  const int *SV_RESTRICT label, const float *SV_RESTRICT shift,
                                  const float *SV_RESTRICT max_other_shift, const float *SV_RESTRICT half,
                                  const float *SV_RESTRICT new_half, const float *SV_RESTRICT last_new,
                                  const double *SV_RESTRICT weight, int new_is_fast, double limit,
                                  unsigned char *SV_RESTRICT fail)
{
    ptrdiff_t i;
    const double squared = limit * limit;
    if (!new_is_fast) {
        SV_LOOKUPS
        for (i = 0; i < n; i++) {
            const float before = SV_DOWN(last_new[label[i]]) - upper[i];
            lower[i] = before < lower[i] ? before : lower[i];
        }
    }
    SV_(sv_filter)(n, upper, lower, label, shift, max_other_shift, half, weight ? SV_NO_LIMIT : (float)limit, fail);
    SV_LOOKUPS
    for (i = 0; i < n; i++) fail[i] |= (unsigned char)!(upper[i] < new_half[label[i]]);
    if (weight)
        for (i = 0; i < n; i++) fail[i] |= !(weight[i] * upper[i] * upper[i] < squared);
}

/* The lower bound of the fast centers after these moved, and its test, upper < max(lower_fast - max_other_shift_fast_z,
 * half_z), with upper as it is after sv_filter. Some fast centers may have been opened in the last sweep.
 * INOUT lower_fast, fail. */
static void SV_(sv_filter_fast)(ptrdiff_t n, const float *SV_RESTRICT upper, float *SV_RESTRICT lower_fast,
                                const int *SV_RESTRICT label, const float *SV_RESTRICT max_other_shift_fast,
                                const float *SV_RESTRICT half, const float *SV_RESTRICT last_new, int opened,
                                unsigned char *SV_RESTRICT fail)
{
    ptrdiff_t i;
    if (opened) { /* upper has grown by the shift already, so the bound is lower than it need be, but valid */
        SV_LOOKUPS
        for (i = 0; i < n; i++) {
            const float before = SV_DOWN(last_new[label[i]]) - upper[i];
            lower_fast[i] = before < lower_fast[i] ? before : lower_fast[i];
        }
    }
    SV_LOOKUPS
    for (i = 0; i < n; i++) {
        int z = label[i];
        float l = SV_DOWN(lower_fast[i] - max_other_shift_fast[z]), bound;
        l = l > 0.0f ? l : 0.0f;
        bound = l > half[z] ? l : half[z];
        lower_fast[i] = l;
        fail[i] |= (unsigned char)!(upper[i] < bound);
    }
}

#undef SV_LOOKUPS
#undef SV_EIGHT

/* A full tile from rows: tile[j * LANES + l] = (rows[l][j] - shift[j]) * scale and its square sum over j, in order.
 * The first letter is the type of the rows, the second that of the tile.
 * IN rows: LANES pointers to d values (a row may come twice); shift: d.  OUT tile: d x LANES; squares: LANES. */
#if SV_X86 && SV_BYTES == 32
#define COLUMNS_LEFT(GIVE, LANES, TO)                                                                          \
    for (; j < d; j++) {                                                                                       \
        const V x = _mm256_setr_pd(rows[l][j], rows[l + 1][j], rows[l + 2][j], rows[l + 3][j]);                \
        const V t = V_MUL(V_SUB(x, V_SPREAD(shift[j])), factor);                                               \
        total = V_ADD(total, V_MUL(t, t));                                                                     \
        GIVE(tile + j * LANES + l, t);                                                                         \
    }                                                                                                          \
    V_STORE(squares + l, total);
#else
#define COLUMNS_LEFT(GIVE, LANES, TO)                                                                          \
    V_STORE(squares + l, total);                                                                               \
    for (m = 0; m < V_LANES; m++) {                                                                            \
        ptrdiff_t i;                                                                                           \
        double s = squares[l + m];                                                                             \
        for (i = j; i < d; i++) {                                                                              \
            const double t = ((double)rows[l + m][i] - shift[i]) * scale;                                      \
            s += t * t;                                                                                        \
            tile[i * LANES + l + m] = (TO)t;                                                                   \
        }                                                                                                      \
        squares[l + m] = s;                                                                                    \
    }
#endif
#define GATHER(TAKE, GIVE, LANES, TO)                                                              \
    ptrdiff_t j, l, m;                                                                             \
    for (l = 0; l < LANES; l += V_LANES) {                                                         \
        const V factor = V_SPREAD(scale);                                                          \
        V total = V_SPREAD(0.0);                                                                   \
        for (j = 0; j + V_LANES <= d; j += V_LANES) {                                              \
            V v[V_LANES];                                                                          \
            SV_UNROLL for (m = 0; m < V_LANES; m++) v[m] = TAKE(rows[l + m] + j);                  \
            V_TRANSPOSE(v);                                                                        \
            SV_UNROLL for (m = 0; m < V_LANES; m++) {                                              \
                const V t = V_MUL(V_SUB(v[m], V_SPREAD(shift[j + m])), factor);                    \
                total = V_ADD(total, V_MUL(t, t));                                                 \
                GIVE(tile + (j + m) * LANES + l, t);                                               \
            }                                                                                      \
        }                                                                                          \
        COLUMNS_LEFT(GIVE, LANES, TO)                                                              \
    }

static void SV_(sv_gather_ff)(const float *const *rows, ptrdiff_t d, const double *shift, double scale,
                              float *SV_RESTRICT tile, double *SV_RESTRICT squares)
{
    GATHER(V_LOAD_SINGLE, V_STORE_SINGLE, SV_LANES_SINGLE, float)
}

static void SV_(sv_gather_fd)(const float *const *rows, ptrdiff_t d, const double *shift, double scale,
                              double *SV_RESTRICT tile, double *SV_RESTRICT squares)
{
    GATHER(V_LOAD_SINGLE, V_STORE, 8, double)
}

static void SV_(sv_gather_df)(const double *const *rows, ptrdiff_t d, const double *shift, double scale,
                              float *SV_RESTRICT tile, double *SV_RESTRICT squares)
{
    GATHER(V_LOAD, V_STORE_SINGLE, SV_LANES_SINGLE, float)
}

static void SV_(sv_gather_dd)(const double *const *rows, ptrdiff_t d, const double *shift, double scale,
                              double *SV_RESTRICT tile, double *SV_RESTRICT squares)
{
    GATHER(V_LOAD, V_STORE, 8, double)
}

#undef GATHER
#undef COLUMNS_LEFT

/* Upper bounds: scaled distances from squared ones, as float32 that are not below. */
static void SV_(sv_upper)(ptrdiff_t n, const double *squared, double scale, float *out)
{
    const V factor = V_SPREAD(scale * scale), up = V_SPREAD(SV_ROUND_UP), least = V_SPREAD(SV_SMALLEST_DISTANCE);
    ptrdiff_t i = 0;
    for (; i + V_LANES <= n; i += V_LANES)
        V_STORE_SINGLE(out + i, V_ADD(V_MUL(V_ROOT(V_MUL(V_LOAD(squared + i), factor)), up), least));
    for (; i < n; i++) out[i] = (float)(sqrt(squared[i] * (scale * scale)) * SV_ROUND_UP + SV_SMALLEST_DISTANCE);
}

/* Lower bounds: distances from squared ones, scaled already, as float32 that are not above; 0 where rounding made the
 * squares negative. */
static void SV_(sv_lower)(ptrdiff_t n, const double *squared, float *out)
{
    const V down = V_SPREAD(SV_ROUND_DOWN), zero = V_SPREAD(0.0);
    ptrdiff_t i = 0;
    for (; i + V_LANES <= n; i += V_LANES)
        V_STORE_SINGLE(out + i, V_MUL(V_ROOT(V_MOST(V_LOAD(squared + i), zero)), down));
    for (; i < n; i++) out[i] = (float)(sqrt(squared[i] > 0.0 ? squared[i] : 0.0) * SV_ROUND_DOWN);
}

/* The test once more for points whose upper bound is the distance itself by now:
 *     passes     upper < max(min(lower, lower_fast), half_z)  (and, if opened in this sweep, upper < new_half_z)
 *     fast only  upper < lower: only fast centers can be nearer
 * OUT verdict: n, 0: passes, 1: fast only, 2: neither. */
static void SV_(sv_filter_again)(ptrdiff_t n, const int *SV_RESTRICT label, const float *SV_RESTRICT upper,
                                 const float *SV_RESTRICT lower, const float *SV_RESTRICT lower_fast,
                                 const float *SV_RESTRICT half, const float *SV_RESTRICT new_half, int opened,
                                 int *SV_RESTRICT verdict)
{
    ptrdiff_t q;
#pragma omp simd
    for (q = 0; q < n; q++) {
        const int z = label[q];
        const float radius = opened ? new_half[z] : SV_NO_LIMIT, slow = lower[q] < radius ? lower[q] : radius;
        float bound = lower[q] < lower_fast[q] ? lower[q] : lower_fast[q];
        bound = bound > half[z] ? bound : half[z];
        bound = bound < radius ? bound : radius;
        verdict[q] = upper[q] < bound ? 0 : upper[q] < slow ? 1 : 2;
    }
}

#if SV_BYTES == 64
#undef SV_BYTES
#define SV_BYTES 32
#define SV_SINGLE 0
#include "_vector.h"
#undef SV_SINGLE
#endif

/* Squared distances of rows to one center each, within 1e-12 of the exact ones, relative, for d < 4000.
 * Several rows go side by side, because the additions of one row wait for each other. Vectors of 64 bytes would
 * leave too many columns over at the end of a row.
 * IN rows: n pointers to d values; z: n, the center of each row; c: k x d, the centers.  OUT out: n. */
#define ASSIGNED_DISTANCES(X, TAKE, PREFETCHED)                                                              \
    ptrdiff_t q = 0, j, m;                                                                                   \
    for (; q + ROWS <= n; q += ROWS) {                                                                       \
        const X *const *x = rows + q;                                                                        \
        const double *y[ROWS];                                                                               \
        double part[ROWS * V_LANES];                                                                         \
        FOR_ROWS(CLEAR)                                                                                      \
        for (m = 0; m < ROWS; m++) {                                                                         \
            y[m] = c + z[q + m] * d;                                                                         \
            if (q + m + 12 < n)                                                                              \
                for (j = 0; j < d && j < 8 * PREFETCHED; j += PREFETCHED) SV_PREFETCH(rows[q + m + 12] + j); \
        }                                                                                                    \
        for (j = 0; j + V_LANES <= d; j += V_LANES) { FOR_ROWS(TAKE) }                                       \
        FOR_ROWS(KEEP)                                                                                       \
        for (m = 0; m < ROWS; m++) {                                                                         \
            double s = 0.0, t;                                                                               \
            ptrdiff_t i;                                                                                     \
            for (i = j; i < d; i++) { t = (double)x[m][i] - y[m][i]; s += t * t; }                           \
            for (i = 0; i < V_LANES; i++) s += part[m * V_LANES + i];                                        \
            out[q + m] = s;                                                                                  \
        }                                                                                                    \
    }                                                                                                        \
    for (; q < n; q++) {                                                                                     \
        const X *x = rows[q];                                                                                \
        const double *y = c + z[q] * d;                                                                      \
        double s = 0.0, t;                                                                                   \
        for (j = 0; j < d; j++) { t = (double)x[j] - y[j]; s += t * t; }                                     \
        out[q] = s;                                                                                          \
    }
#if SV_X86 && SV_BYTES == 16 /* there are 16 registers, and each row takes two */
#define ROWS 4
#define FOR_ROWS(f) f(0) f(1) f(2) f(3)
#else
#define ROWS 8
#define FOR_ROWS(f) f(0) f(1) f(2) f(3) f(4) f(5) f(6) f(7)
#endif
#define CLEAR(m) V s##m = V_SPREAD(0.0);
#define KEEP(m) V_STORE(part + m * V_LANES, s##m);
#define TAKE_D(m) { const V t = V_SUB(V_LOAD(x[m] + j), V_LOAD(y[m] + j)); s##m = V_MULADD(t, t, s##m); }
#define TAKE_F(m) { const V t = V_SUB(V_LOAD_SINGLE(x[m] + j), V_LOAD(y[m] + j)); s##m = V_MULADD(t, t, s##m); }

static void SV_(sv_assigned_distances_d)(ptrdiff_t n, const double *const *rows, const int *z, const double *c,
                                    ptrdiff_t d, double *out)
{
    ASSIGNED_DISTANCES(double, TAKE_D, 8)
}

static void SV_(sv_assigned_distances_f)(ptrdiff_t n, const float *const *rows, const int *z, const double *c,
                                    ptrdiff_t d, double *out)
{
    ASSIGNED_DISTANCES(float, TAKE_F, 16)
}

#undef ASSIGNED_DISTANCES
#undef ROWS
#undef FOR_ROWS
#undef CLEAR
#undef KEEP
#undef TAKE_D
#undef TAKE_F

#endif
