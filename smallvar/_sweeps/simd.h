/* Inner loops of the block-distance engine. Nothing here decides anything: see nearest.pyx.
 *
 * SMALLVAR_CLONES compiles a function for several instruction sets, the best one chosen when the library is
 * loaded, and lets multiply-adds contract (the rest of the library is compiled without contraction).
 */
#ifndef SMALLVAR_SIMD_H
#define SMALLVAR_SIMD_H

#include <stddef.h>
#include <stdlib.h>

#if defined(__GNUC__) && !defined(__clang__) && defined(__x86_64__) && defined(__GLIBC__) && !defined(SMALLVAR_DEBUG)
#if __GNUC__ >= 12
#define SMALLVAR_CLONES \
    __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default"), optimize("fp-contract=fast")))
#else
#define SMALLVAR_CLONES __attribute__((target_clones("avx512f", "avx2", "default"), optimize("fp-contract=fast")))
#endif
#else
#define SMALLVAR_CLONES
#endif

#if defined(__clang__)
#define SMALLVAR_COMPILER __VERSION__
#elif defined(__GNUC__)
#define SMALLVAR_COMPILER "gcc " __VERSION__
#elif defined(_MSC_VER)
#define SMALLVAR_COMPILER "msvc"
#else
#define SMALLVAR_COMPILER "unknown"
#endif

#if defined(__GNUC__)
#define SMALLVAR_VECTORS 1
typedef float sv_vfloat __attribute__((vector_size(64)));
typedef int sv_vint __attribute__((vector_size(64)));
typedef double sv_vdouble __attribute__((vector_size(64)));
typedef long long sv_vlong __attribute__((vector_size(64)));
#else
#define SMALLVAR_VECTORS 0
#define restrict
#endif

#if defined(__GNUC__)
#define SV_PREFETCH(address) __builtin_prefetch(address)
#else
#define SV_PREFETCH(address) ((void)0)
#endif

/* Above every real score: data are scaled into [-1, 1] before they come here. */
#define HUGE_SCORE_f 1e30f
#define HUGE_SCORE_d 1e30

#define NAME(x) x##_f
#define REAL float
#define INT int
#define VREAL sv_vfloat
#define VINT sv_vint
#define LANES 16
#include "_tile.h"
#undef NAME
#undef REAL
#undef INT
#undef VREAL
#undef VINT
#undef LANES

#define NAME(x) x##_d
#define REAL double
#define INT long long
#define VREAL sv_vdouble
#define VINT sv_vlong
#define LANES 8
#include "_tile.h"
#undef NAME
#undef REAL
#undef INT
#undef VREAL
#undef VINT
#undef LANES

/* One ulp or more outwards, so that bounds stay bounds after float32 rounding. */
#define SV_UP(x) ((x) * 1.0000005f)
#define SV_DOWN(x) ((x) * 0.9999995f)

/* Drift of the bounds after the centers moved, and the test that lets a point pass without a distance:
 *     u + p_z < max(l - r_z, h_z),  and  u + p_z < limit  (limit: the penalty, as a distance).
 * Where it fails, l is a bound on the calm centers only: l - calm_z.
 * IN label, p, r, calm, h.  INOUT u, l.  OUT fail: 1 where the test fails. */
SMALLVAR_CLONES
static void sv_filter(ptrdiff_t n, float *restrict u, float *restrict l, const int *restrict label,
                      const float *restrict p, const float *restrict r, const float *restrict calm,
                      const float *restrict h, float limit, unsigned char *restrict fail)
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
SMALLVAR_CLONES
static void sv_filter_opened(ptrdiff_t n, float *restrict u, float *restrict l, const int *restrict label,
                             const float *restrict p, const float *restrict r, const float *restrict calm,
                             const float *restrict h, const float *restrict hd, const float *restrict fresh, const double *restrict weight,
                             int aside, double limit, unsigned char *restrict fail)
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
SMALLVAR_CLONES
static void sv_own_distances_d(ptrdiff_t n, const double *const *rows, const int *z, const double *c, ptrdiff_t d,
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

SMALLVAR_CLONES
static void sv_own_distances_f(ptrdiff_t n, const float *const *rows, const int *z, const double *c, ptrdiff_t d,
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
SMALLVAR_CLONES
static void sv_distances(const double *restrict row, ptrdiff_t d, const double *restrict columns, ptrdiff_t room,
                         ptrdiff_t k, double *restrict out)
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

/* Squared lengths of the images of 16 points under W, in float32.
 * IN x: d x 16, 64-byte aligned; w: r x d.  OUT image: 16. */
SMALLVAR_CLONES
static void sv_images(const float *restrict x, ptrdiff_t d, const float *restrict w, ptrdiff_t r,
                      float *restrict image)
{
    ptrdiff_t i = 0, j, m;
#if SMALLVAR_VECTORS
    const sv_vfloat *v = (const sv_vfloat *)x;
    const sv_vfloat zero = (sv_vfloat){0};
    sv_vfloat total = zero;
    for (; i + 6 <= r; i += 6) {
        const float *w0 = w + i * d, *w1 = w0 + d, *w2 = w1 + d, *w3 = w2 + d, *w4 = w3 + d, *w5 = w4 + d;
        sv_vfloat s0 = zero, s1 = zero, s2 = zero, s3 = zero, s4 = zero, s5 = zero;
        for (j = 0; j < d; j++) {
            sv_vfloat xj = v[j];
            s0 += xj * w0[j]; s1 += xj * w1[j]; s2 += xj * w2[j];
            s3 += xj * w3[j]; s4 += xj * w4[j]; s5 += xj * w5[j];
        }
        total += s0 * s0 + s1 * s1 + s2 * s2 + s3 * s3 + s4 * s4 + s5 * s5;
    }
    for (; i < r; i++) {
        sv_vfloat s = zero;
        for (j = 0; j < d; j++) s += v[j] * w[i * d + j];
        total += s * s;
    }
    for (m = 0; m < 16; m++) image[m] = total[m];
#else
    for (m = 0; m < 16; m++) image[m] = 0.0f;
    for (; i < r; i++) {
        float s[16] = {0};
        for (j = 0; j < d; j++)
            for (m = 0; m < 16; m++) s[m] += x[j * 16 + m] * w[i * d + j];
        for (m = 0; m < 16; m++) image[m] += s[m] * s[m];
    }
#endif
}

#endif
