/* Inner loops of the block-distance engine. Nothing here decides anything: see nearest.pyx. */
#ifndef SV_SET

#ifndef SMALLVAR_SIMD_H
#define SMALLVAR_SIMD_H

#include "_sets.h"

/* Above every real score: data are scaled into [-1, 1] before they come here. */
#define HUGE_SCORE_f 1e30f
#define HUGE_SCORE_d 1e30

/* One ulp or more outwards, so that bounds stay bounds after float32 rounding. */
#define SV_UP(x) ((x) * 1.0000005f)
#define SV_DOWN(x) ((x) * 0.9999995f)

#define SV_KERNELS "simd.h"
#include "_each.h"

SV_CHOOSE(tile_top2_f)
SV_CHOOSE(tile_top2_d)
SV_CHOOSE(sv_images)
SV_CHOOSE(sv_filter)
SV_CHOOSE(sv_filter_opened)
SV_CHOOSE(sv_own_distances_f)
SV_CHOOSE(sv_own_distances_d)
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

/* Drift of the bounds after the centers moved, and the test that lets a point pass without a distance:
 *     u + p_z < max(l - r_z, h_z),  and  u + p_z < limit  (limit: the penalty, as a distance).
 * Where it fails, l is a bound on the calm centers only: l - calm_z.
 * IN label, p, r, calm, h.  INOUT u, l.  OUT fail: 1 where the test fails. */
static void SV_(sv_filter)(ptrdiff_t n, float *SV_RESTRICT u, float *SV_RESTRICT l, const int *SV_RESTRICT label,
                      const float *SV_RESTRICT p, const float *SV_RESTRICT r, const float *SV_RESTRICT calm,
                      const float *SV_RESTRICT h, float limit, unsigned char *SV_RESTRICT fail)
{
    ptrdiff_t i;
#pragma omp simd
    for (i = 0; i < n; i++) {
        int z = label[i];
        float uu = SV_UP(u[i] + p[z]);
        float ll = SV_DOWN(l[i] - r[z]), lc = SV_DOWN(l[i] - calm[z]);
        float bound = ll > h[z] ? ll : h[z];
        int failed;
        bound = bound < limit ? bound : limit;
        failed = !(uu < bound);
        u[i] = uu;
        ll = failed ? lc : ll;
        l[i] = ll > 0.0f ? ll : 0.0f;
        fail[i] = (unsigned char)failed;
    }
}

/* The same where centres were opened in the last sweep (l is lowered by fresh_z - u, fresh_z the distance from
 * centre z to the nearest of them) or in this one (u < hd_z, half such a distance), or where points have weights. */
static void SV_(sv_filter_opened)(ptrdiff_t n, float *SV_RESTRICT u, float *SV_RESTRICT l, const int *SV_RESTRICT label,
                             const float *SV_RESTRICT p, const float *SV_RESTRICT r, const float *SV_RESTRICT calm,
                             const float *SV_RESTRICT h, const float *SV_RESTRICT hd, const float *SV_RESTRICT fresh, const double *SV_RESTRICT weight,
                             int aside, double limit, unsigned char *SV_RESTRICT fail)
{
    ptrdiff_t i;
    const double squared = limit * limit;
    const float radius = weight ? 1e15f : (float)limit;
#pragma omp simd
    for (i = 0; i < n; i++) {
        int z = label[i], failed;
        float uu = SV_UP(u[i] + p[z]);
        float before = SV_DOWN(fresh[z]) - u[i], calm_before, ll, lc, bound;
        before = before < l[i] ? before : l[i];
        calm_before = aside ? l[i] : before;
        ll = SV_DOWN(before - r[z]);
        lc = SV_DOWN(calm_before - calm[z]);
        bound = ll > h[z] ? ll : h[z];
        bound = bound < hd[z] ? bound : hd[z];
        bound = bound < radius ? bound : radius;
        failed = !(uu < bound);
        u[i] = uu;
        ll = failed ? lc : ll;
        l[i] = ll > 0.0f ? ll : 0.0f;
        fail[i] = (unsigned char)failed;
    }
    if (weight)
        for (i = 0; i < n; i++) fail[i] |= !(weight[i] * u[i] * u[i] < squared);
}

/* Squared distances of rows to one center each, close to the deciding ones: within 1e-12 relative for d < 4000.
 * Eight rows go side by side: one alone would wait for its own sum.
 * IN rows: n pointers to d values; z: n, the centers; c: k x d.  OUT out: n. */
#define OWN_DISTANCES(X, TAKE, PREFETCHED)                                                         \
    ptrdiff_t q = 0, j, m;                                                                         \
    for (; q + 8 <= n; q += 8) {                                                                   \
        const X *const *x = rows + q;                                                              \
        const double *y[8];                                                                        \
        double part[8 * V_LANES];                                                                  \
        SV_EIGHT(CLEAR)                                                                            \
        for (m = 0; m < 8; m++) {                                                                  \
            y[m] = c + z[q + m] * d;                                                               \
            if (q + m + 12 < n)                                                                    \
                for (j = 0; j < d && j < 8 * PREFETCHED; j += PREFETCHED) SV_PREFETCH(rows[q + m + 12] + j); \
        }                                                                                          \
        for (j = 0; j + V_LANES <= d; j += V_LANES) { SV_EIGHT(TAKE) }                             \
        SV_EIGHT(KEEP)                                                                             \
        for (m = 0; m < 8; m++) {                                                                  \
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
#define SV_EIGHT(f) f(0) f(1) f(2) f(3) f(4) f(5) f(6) f(7)
#define CLEAR(m) V s##m = V_SPREAD(0.0);
#define KEEP(m) V_STORE(part + m * V_LANES, s##m);
#define TAKE_D(m) { const V t = V_SUB(V_LOAD(x[m] + j), V_LOAD(y[m] + j)); s##m = V_MULADD(t, t, s##m); }
#define TAKE_F(m) { const V t = V_SUB(V_TAKE_SINGLE(x[m] + j), V_LOAD(y[m] + j)); s##m = V_MULADD(t, t, s##m); }

static void SV_(sv_own_distances_d)(ptrdiff_t n, const double *const *rows, const int *z, const double *c,
                                    ptrdiff_t d, double *out)
{
    OWN_DISTANCES(double, TAKE_D, 8)
}

static void SV_(sv_own_distances_f)(ptrdiff_t n, const float *const *rows, const int *z, const double *c,
                                    ptrdiff_t d, double *out)
{
    OWN_DISTANCES(float, TAKE_F, 16)
}

#undef OWN_DISTANCES
#undef SV_EIGHT
#undef CLEAR
#undef KEEP
#undef TAKE_D
#undef TAKE_F

/* A full tile from rows: block[j * LANES + l] = (rows[l][j] - shift[j]) * scale and its square sum over j, in order.
 * The first letter is the type of the rows, the second that of the block.
 * IN rows: LANES pointers to d values (a row may come twice); shift: d.  OUT block: d x LANES; squares: LANES. */
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
                GIVE(block + (j + m) * LANES + l, t);                                              \
            }                                                                                      \
        }                                                                                          \
        V_STORE(squares + l, total);                                                               \
        for (m = 0; m < V_LANES; m++) {                                                            \
            ptrdiff_t i;                                                                           \
            double s = squares[l + m];                                                             \
            for (i = j; i < d; i++) {                                                              \
                const double t = ((double)rows[l + m][i] - shift[i]) * scale;                      \
                s += t * t;                                                                        \
                block[i * LANES + l + m] = (TO)t;                                                  \
            }                                                                                      \
            squares[l + m] = s;                                                                    \
        }                                                                                          \
    }

static void SV_(sv_gather_ff)(const float *const *rows, ptrdiff_t d, const double *shift, double scale,
                              float *SV_RESTRICT block, double *SV_RESTRICT squares)
{
    GATHER(V_TAKE_SINGLE, V_GIVE_SINGLE, 16, float)
}

static void SV_(sv_gather_fd)(const float *const *rows, ptrdiff_t d, const double *shift, double scale,
                              double *SV_RESTRICT block, double *SV_RESTRICT squares)
{
    GATHER(V_TAKE_SINGLE, V_STORE, 8, double)
}

static void SV_(sv_gather_df)(const double *const *rows, ptrdiff_t d, const double *shift, double scale,
                              float *SV_RESTRICT block, double *SV_RESTRICT squares)
{
    GATHER(V_LOAD, V_GIVE_SINGLE, 16, float)
}

static void SV_(sv_gather_dd)(const double *const *rows, ptrdiff_t d, const double *shift, double scale,
                              double *SV_RESTRICT block, double *SV_RESTRICT squares)
{
    GATHER(V_LOAD, V_STORE, 8, double)
}

#undef GATHER

#endif
