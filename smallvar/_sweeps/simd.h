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
SV_CHOOSE(sv_distances)

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
 * IN rows: n pointers to d values; z: n, the centers; c: k x d.  OUT out: n. */
static void SV_(sv_own_distances_d)(ptrdiff_t n, const double *const *rows, const int *z, const double *c, ptrdiff_t d,
                               double *out)
{
    ptrdiff_t q, j;
    for (q = 0; q < n; q++) {
        const double *x = rows[q], *y = c + z[q] * d;
        double s = 0.0;
        if (q + 12 < n)
            for (j = 0; j < d && j < 64; j += 8) SV_PREFETCH(rows[q + 12] + j);
#pragma omp simd reduction(+ : s)
        for (j = 0; j < d; j++) s += (x[j] - y[j]) * (x[j] - y[j]);
        out[q] = s;
    }
}

static void SV_(sv_own_distances_f)(ptrdiff_t n, const float *const *rows, const int *z, const double *c, ptrdiff_t d,
                               double *out)
{
    ptrdiff_t q, j;
    for (q = 0; q < n; q++) {
        const float *x = rows[q];
        const double *y = c + z[q] * d;
        double s = 0.0;
        if (q + 12 < n)
            for (j = 0; j < d && j < 128; j += 16) SV_PREFETCH(rows[q + 12] + j);
#pragma omp simd reduction(+ : s)
        for (j = 0; j < d; j++) s += ((double)x[j] - y[j]) * ((double)x[j] - y[j]);
        out[q] = s;
    }
}

/* Squared distances of one point to k centers stored in columns: IN row: d; columns: d x room.  OUT out: k. */
static void SV_(sv_distances)(const double *SV_RESTRICT row, ptrdiff_t d, const double *SV_RESTRICT columns, ptrdiff_t room,
                         ptrdiff_t k, double *SV_RESTRICT out)
{
    ptrdiff_t i, j;
    for (i = 0; i < k; i++) out[i] = 0.0;
    for (j = 0; j < d; j++) {
        const double *c = columns + j * room;
        double x = row[j];
#pragma omp simd
        for (i = 0; i < k; i++) {
            double t = x - c[i];
            out[i] += t * t;
        }
    }
}

#endif
