/* Inner loops of the engine: scores, bounds, distances. What they decide is said in nearest.pyx. */
#ifndef SV_SET

#ifndef SMALLVAR_SIMD_H
#define SMALLVAR_SIMD_H

#include <math.h>
#include <stdint.h>
#include "_sets.h"
#include "_tolerances.h"

enum { SV_PANEL = 12 }; /* centers whose values lie side by side; a multiple of every block of _tile.h */

/* Above every real score: data are scaled into [-1, 1] before they come here. */
#define HUGE_DISTANCE_f 1e30f
#define HUGE_DISTANCE_d 1e30

/* One ulp or more outward, so that bounds stay bounds after float32 rounding. */
#define SV_UP(x) ((x) * (float)SV_ROUND_UP)
#define SV_DOWN(x) ((x) * (float)SV_ROUND_DOWN)

/* The deciding distances of rows to one center each, where columns are few; 0 if they are not.
 * IN rows: n pointers to d values; z: n, the centers; c: k x d.  OUT out: n. */
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
#define SV_FEW_DISTANCES(X)                                                                    \
    ptrdiff_t q;                                                                               \
    switch (d) {                                                                               \
        SV_FEW(X, 1, SV_SQUARE(0))                                                             \
        SV_FEW(X, 2, SV_SQUARE(0) SV_SQUARE(1))                                                \
        SV_FEW(X, 3, SV_SQUARE(0) SV_SQUARE(1) SV_SQUARE(2))                                   \
        SV_FEW(X, 4, SV_SQUARE(0) SV_SQUARE(1) SV_SQUARE(2) SV_SQUARE(3))                      \
        SV_FEW(X, 5, SV_SQUARE(0) SV_SQUARE(1) SV_SQUARE(2) SV_SQUARE(3) SV_SQUARE(4))         \
        SV_FEW(X, 6, SV_SQUARE(0) SV_SQUARE(1) SV_SQUARE(2) SV_SQUARE(3) SV_SQUARE(4) SV_SQUARE(5)) \
    }                                                                                          \
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

/* Places of the ones in a list of flags, 0 or 1; returns how many there are. Without branches, which would be hard to
 * predict: eight flags make a byte, and a table has the places of its bits.  OUT place: n + 8, as up to 8 entries too
 * many are written. */
static uint16_t sv_places[256][8];

SV_AT_LOAD(sv_places_at_load)
{
    int byte, bit, count;
    for (byte = 0; byte < 256; byte++)
        for (bit = count = 0; bit < 8; bit++)
            if (byte >> bit & 1) sv_places[byte][count++] = (uint16_t)bit;
}

static ptrdiff_t sv_list(ptrdiff_t n, const unsigned char *flag, unsigned short *place)
{
    ptrdiff_t i = 0, count = 0;
    for (; i + 8 <= n; i += 8) {
        const unsigned char *f = flag + i;
        const uint64_t eight = f[0] | (uint64_t)f[1] << 8 | (uint64_t)f[2] << 16 | (uint64_t)f[3] << 24 |
                               (uint64_t)f[4] << 32 | (uint64_t)f[5] << 40 | (uint64_t)f[6] << 48 |
                               (uint64_t)f[7] << 56;
        const uint16_t *bits = sv_places[(eight * 0x0102040810204080ULL) >> 56];
        ptrdiff_t b;
        for (b = 0; b < 8; b++) place[count + b] = (unsigned short)(bits[b] + i);
        count += (ptrdiff_t)((eight * 0x0101010101010101ULL) >> 56);
    }
    for (; i < n; i++) {
        place[count] = (unsigned short)i;
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
SV_CHOOSE(sv_images)
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

/* Drift of the bounds after the centers moved, and the test that lets a point pass without a distance:
 *     u + p_z < max(l - r_z, h_z),  and  u + p_z < limit  (limit: the penalty, as a distance).
 * IN label, p, r, h.  INOUT u, l.  OUT fail: 1 where the test fails. */
static void SV_(sv_filter)(ptrdiff_t n, float *SV_RESTRICT u, float *SV_RESTRICT l, const int *SV_RESTRICT label,
                           const float *SV_RESTRICT p, const float *SV_RESTRICT r, const float *SV_RESTRICT h,
                           float limit, unsigned char *SV_RESTRICT fail)
{
    ptrdiff_t i;
    SV_LOOKUPS
    for (i = 0; i < n; i++) {
        int z = label[i];
        float uu = SV_UP(u[i] + p[z]), ll = SV_DOWN(l[i] - r[z]), bound;
        ll = ll > 0.0f ? ll : 0.0f;
        bound = ll > h[z] ? ll : h[z];
        bound = bound < limit ? bound : limit;
        u[i] = uu;
        l[i] = ll;
        fail[i] = (unsigned char)!(uu < bound);
    }
}

/* The same where centers were opened in the last sweep (l is at most fresh_z - u, fresh_z the distance from center z
 * to the nearest of them; not if the only one is restless) or in this one (u < hd_z, half such a distance), or where
 * points have weights.  IN restless: whether the only one is. */
static void SV_(sv_filter_opened)(ptrdiff_t n, float *SV_RESTRICT u, float *SV_RESTRICT l, const int *SV_RESTRICT label,
                                  const float *SV_RESTRICT p, const float *SV_RESTRICT r, const float *SV_RESTRICT h,
                                  const float *SV_RESTRICT hd, const float *SV_RESTRICT fresh,
                                  const double *SV_RESTRICT weight, int restless, double limit,
                                  unsigned char *SV_RESTRICT fail)
{
    ptrdiff_t i;
    const double squared = limit * limit;
    if (!restless) {
        SV_LOOKUPS
        for (i = 0; i < n; i++) {
            const float before = SV_DOWN(fresh[label[i]]) - u[i];
            l[i] = before < l[i] ? before : l[i];
        }
    }
    SV_(sv_filter)(n, u, l, label, p, r, h, weight ? 1e15f : (float)limit, fail);
    SV_LOOKUPS
    for (i = 0; i < n; i++) fail[i] |= (unsigned char)!(u[i] < hd[label[i]]);
    if (weight)
        for (i = 0; i < n; i++) fail[i] |= !(weight[i] * u[i] * u[i] < squared);
}

/* Drift of g, the bound for the restless centers, and its test, u < max(g - rg_z, h_z), u as it is
 * after the filter. Some of them may have been opened in the last sweep.
 * IN u, label, rg, h, fresh, p.  INOUT g, fail. */
static void SV_(sv_filter_fast)(ptrdiff_t n, const float *SV_RESTRICT u, float *SV_RESTRICT g,
                                    const int *SV_RESTRICT label, const float *SV_RESTRICT rg,
                                    const float *SV_RESTRICT h, const float *SV_RESTRICT fresh, int opened,
                                    unsigned char *SV_RESTRICT fail)
{
    ptrdiff_t i;
    if (opened) { /* u has grown by its drift already, so the bound is lower than it need be, but valid */
        SV_LOOKUPS
        for (i = 0; i < n; i++) {
            const float before = SV_DOWN(fresh[label[i]]) - u[i];
            g[i] = before < g[i] ? before : g[i];
        }
    }
    SV_LOOKUPS
    for (i = 0; i < n; i++) {
        int z = label[i];
        float gg = SV_DOWN(g[i] - rg[z]), bound;
        gg = gg > 0.0f ? gg : 0.0f;
        bound = gg > h[z] ? gg : h[z];
        g[i] = gg;
        fail[i] |= (unsigned char)!(u[i] < bound);
    }
}

#undef SV_LOOKUPS

/* A full tile from rows: tile[j * LANES + l] = (rows[l][j] - shift[j]) * scale and its square sum over j, in order.
 * The first letter is the type of the rows, the second that of the tile.
 * IN rows: LANES pointers to d values (a row may come twice); shift: d.  OUT tile: d x LANES; squares: LANES. */
#define GATHER(TAKE, GIVE, LANES, TO)                                                              \
    ptrdiff_t j, l, m;                                                                             \
    for (l = 0; l < LANES; l += V_LANES) {                                                         \
        const V factor = V_SPREAD(scale);                                                          \
        V total = V_SPREAD(0.0);                                                                   \
        for (j = 0; j + V_LANES <= d; j += V_LANES) {                                              \
            V v[V_LANES];                                                                          \
            SV_UNROLL for (m = 0; m < V_LANES; m++) v[m] = TAKE(rows[l + m] + j);                  \
            V_TRANSPOSE(v);                                                                  \
            SV_UNROLL for (m = 0; m < V_LANES; m++) {                                              \
                const V t = V_MUL(V_SUB(v[m], V_SPREAD(shift[j + m])), factor);                    \
                total = V_ADD(total, V_MUL(t, t));                                                 \
                GIVE(tile + (j + m) * LANES + l, t);                                              \
            }                                                                                      \
        }                                                                                          \
        V_STORE(squares + l, total);                                                               \
        for (m = 0; m < V_LANES; m++) {                                                            \
            ptrdiff_t i;                                                                           \
            double s = squares[l + m];                                                             \
            for (i = j; i < d; i++) {                                                              \
                const double t = ((double)rows[l + m][i] - shift[i]) * scale;                      \
                s += t * t;                                                                        \
                tile[i * LANES + l + m] = (TO)t;                                                  \
            }                                                                                      \
            squares[l + m] = s;                                                                    \
        }                                                                                          \
    }

static void SV_(sv_gather_ff)(const float *const *rows, ptrdiff_t d, const double *shift, double scale,
                              float *SV_RESTRICT tile, double *SV_RESTRICT squares)
{
    GATHER(V_LOAD_SINGLE, V_STORE_SINGLE, 16, float)
}

static void SV_(sv_gather_fd)(const float *const *rows, ptrdiff_t d, const double *shift, double scale,
                              double *SV_RESTRICT tile, double *SV_RESTRICT squares)
{
    GATHER(V_LOAD_SINGLE, V_STORE, 8, double)
}

static void SV_(sv_gather_df)(const double *const *rows, ptrdiff_t d, const double *shift, double scale,
                              float *SV_RESTRICT tile, double *SV_RESTRICT squares)
{
    GATHER(V_LOAD, V_STORE_SINGLE, 16, float)
}

static void SV_(sv_gather_dd)(const double *const *rows, ptrdiff_t d, const double *shift, double scale,
                              double *SV_RESTRICT tile, double *SV_RESTRICT squares)
{
    GATHER(V_LOAD, V_STORE, 8, double)
}

#undef GATHER

/* Scaled distances from squared ones, as float32 that are not below. */
static void SV_(sv_upper)(ptrdiff_t n, const double *squared, double scale, float *out)
{
    const V factor = V_SPREAD(scale * scale), up = V_SPREAD(SV_ROUND_UP), least = V_SPREAD(SV_SMALLEST_DISTANCE);
    ptrdiff_t i = 0;
    for (; i + V_LANES <= n; i += V_LANES)
        V_STORE_SINGLE(out + i, V_ADD(V_MUL(V_ROOT(V_MUL(V_LOAD(squared + i), factor)), up), least));
    for (; i < n; i++) out[i] = (float)(sqrt(squared[i] * (scale * scale)) * SV_ROUND_UP + SV_SMALLEST_DISTANCE);
}

/* Distances from squared ones, scaled already, as float32 that are not above; 0 where rounding made them negative. */
static void SV_(sv_lower)(ptrdiff_t n, const double *squared, float *out)
{
    const V down = V_SPREAD(SV_ROUND_DOWN), zero = V_SPREAD(0.0);
    ptrdiff_t i = 0;
    for (; i + V_LANES <= n; i += V_LANES)
        V_STORE_SINGLE(out + i, V_MUL(V_ROOT(V_MOST(V_LOAD(squared + i), zero)), down));
    for (; i < n; i++) out[i] = (float)(sqrt(squared[i] > 0.0 ? squared[i] : 0.0) * SV_ROUND_DOWN);
}

/* The test once more for points whose u is exact by now:
 *     passes    u < max(min(l, g), h_z)  (and, where centers were opened in this sweep, u < hd_z)
 *     restless  u < l: only restless centers can be nearer
 * IN label, u, l, g: n.  OUT verdict: n, 0: passes, 1: restless, 2: neither. */
static void SV_(sv_filter_again)(ptrdiff_t n, const int *SV_RESTRICT label, const float *SV_RESTRICT u,
                           const float *SV_RESTRICT l, const float *SV_RESTRICT g, const float *SV_RESTRICT h,
                           const float *SV_RESTRICT hd, int opened, int *SV_RESTRICT verdict)
{
    ptrdiff_t q;
#pragma omp simd
    for (q = 0; q < n; q++) {
        const int z = label[q];
        const float radius = opened ? hd[z] : 1e15f;
        float bound = l[q] < g[q] ? l[q] : g[q], of_calm = l[q] < radius ? l[q] : radius;
        bound = bound > h[z] ? bound : h[z];
        bound = bound < radius ? bound : radius;
        verdict[q] = u[q] < bound ? 0 : u[q] < of_calm ? 1 : 2;
    }
}

#if SV_BYTES == 64
#undef SV_BYTES
#define SV_BYTES 32
#define SV_SINGLE 0
#include "_vector.h"
#undef SV_SINGLE
#endif

/* Squared distances of rows to one center each, within 1e-12 of the deciding ones, relative, for d < 4000.
 * Several rows go side by side, because the additions of one row wait for each other. Vectors of 64 bytes would
 * leave too many columns over at the end of a row.
 * IN rows: n pointers to d values; z: n, the centers; c: k x d.  OUT out: n. */
#define ASSIGNED_DISTANCES(X, TAKE, PREFETCHED)                                                         \
    ptrdiff_t q = 0, j, m;                                                                         \
    for (; q + ROWS <= n; q += ROWS) {                                                                   \
        const X *const *x = rows + q;                                                              \
        const double *y[ROWS];                                                                     \
        double part[ROWS * V_LANES];                                                               \
        FOR_ROWS(CLEAR)                                                                            \
        for (m = 0; m < ROWS; m++) {                                                                  \
            y[m] = c + z[q + m] * d;                                                               \
            if (q + m + 12 < n)                                                                    \
                for (j = 0; j < d && j < 8 * PREFETCHED; j += PREFETCHED) SV_PREFETCH(rows[q + m + 12] + j); \
        }                                                                                          \
        for (j = 0; j + V_LANES <= d; j += V_LANES) { FOR_ROWS(TAKE) }                             \
        FOR_ROWS(KEEP)                                                                             \
        for (m = 0; m < ROWS; m++) {                                                                  \
            double s = 0.0, t;                                                                     \
            ptrdiff_t i;                                                                           \
            for (i = j; i < d; i++) { t = (double)x[m][i] - y[m][i]; s += t * t; }                 \
            for (i = 0; i < V_LANES; i++) s += part[m * V_LANES + i];                              \
            out[q + m] = s;                                                                        \
        }                                                                                          \
    }                                                                                              \
    for (; q < n; q++) {                                                                           \
        const X *x = rows[q];                                                                      \
        const double *y = c + z[q] * d;                                                            \
        double s = 0.0, t;                                                                         \
        for (j = 0; j < d; j++) { t = (double)x[j] - y[j]; s += t * t; }                           \
        out[q] = s;                                                                                \
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
