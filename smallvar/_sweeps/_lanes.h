/* Inner loops of feature allocations: SF_LANES points side by side in the lanes of a vector.
 *
 * A tile holds SF_LANES points, value j of lane l at x[j * SF_LANES + l]; rows of Z likewise. The features A come
 * transposed, value j of feature k at at[j * room + k], so that the loop over k reads along memory.
 */
#ifndef SMALLVAR_LANES_H
#define SMALLVAR_LANES_H

#include <string.h>
#include "simd.h"

#if SMALLVAR_VECTORS
#define SF_LANES 8
typedef sv_vdouble sf_v;
typedef double sf_any __attribute__((vector_size(64), aligned(8))); /* anywhere in memory */
typedef unsigned char sf_bytes __attribute__((vector_size(8), aligned(1)));
#define SF_WHERE(mask) (-__builtin_convertvector((mask), sf_v)) /* 1.0 where true, else 0.0 */
#define SF_LANE(v, l) ((v)[l])
#define SF_INLINE static inline __attribute__((always_inline))
#define SF_UNROLL _Pragma("GCC unroll 8")
#else
#define SF_LANES 1
typedef double sf_v;
typedef double sf_any;
#define SF_WHERE(mask) ((double)(mask))
#define SF_LANE(v, l) (v)
#define SF_INLINE static inline
#define SF_UNROLL
#endif

#define SF_TIE 0x1p-44 /* share of the squares compared by which rounding may miss a tie */
#define SF_DEAD 1e300 /* squared norm of a removed feature: no point takes it up */

/* Memory on a cache line's boundary, so that no vector straddles two. */
static void *sf_take(size_t bytes)
{
    char *raw = (char *)malloc(bytes + 64 + sizeof(void *)), *start;
    if (!raw) return NULL;
    start = raw + sizeof(void *);
    start += (64 - (size_t)start % 64) % 64;
    memcpy(start - sizeof(void *), &raw, sizeof(void *));
    return start;
}

static void sf_give(void *start)
{
    char *raw;
    if (!start) return;
    memcpy(&raw, (char *)start - sizeof(void *), sizeof(void *));
    free(raw);
}

static void sf_load_bits(ptrdiff_t k, const unsigned char *bits, double *z)
{
    ptrdiff_t i;
    for (i = 0; i < k * SF_LANES; i++) z[i] = bits[i];
}

static void sf_store_bits(ptrdiff_t k, const double *z, unsigned char *bits)
{
    ptrdiff_t i;
    for (i = 0; i < k * SF_LANES; i++) bits[i] = z[i] != 0.0;
}

#if SMALLVAR_VECTORS
typedef float sf_floats __attribute__((vector_size(32), aligned(4)));

#define SF_PAIR(a, b, i0, i1, i2, i3, i4, i5, i6, i7) \
    __builtin_shuffle(a, b, (sv_vlong){i0, i1, i2, i3, i4, i5, i6, i7})
#define SF_LOW(a, b) SF_PAIR(a, b, 0, 8, 2, 10, 4, 12, 6, 14)
#define SF_HIGH(a, b) SF_PAIR(a, b, 1, 9, 3, 11, 5, 13, 7, 15)

/* Eight rows of eight values to eight columns. */
SF_INLINE void sf_transpose(const sf_v *v, sf_v *out)
{
    sf_v t[8], u[8];
    int i;
    for (i = 0; i < 8; i += 2) { t[i] = SF_LOW(v[i], v[i + 1]); t[i + 1] = SF_HIGH(v[i], v[i + 1]); }
    for (i = 0; i < 8; i += 4) {
        u[i] = SF_PAIR(t[i], t[i + 2], 0, 1, 8, 9, 4, 5, 12, 13);
        u[i + 1] = SF_PAIR(t[i + 1], t[i + 3], 0, 1, 8, 9, 4, 5, 12, 13);
        u[i + 2] = SF_PAIR(t[i], t[i + 2], 2, 3, 10, 11, 6, 7, 14, 15);
        u[i + 3] = SF_PAIR(t[i + 1], t[i + 3], 2, 3, 10, 11, 6, 7, 14, 15);
    }
    for (i = 0; i < 4; i++) {
        out[i] = SF_PAIR(u[i], u[i + 4], 0, 1, 2, 3, 8, 9, 10, 11);
        out[i + 4] = SF_PAIR(u[i], u[i + 4], 4, 5, 6, 7, 12, 13, 14, 15);
    }
}

/* A tile from rows that are contiguous: how many of the d values of each it moved (the rest is the caller's).
 * IN x: SF_LANES rows, row elements apart.  OUT out: d x LANES. */
SMALLVAR_CLONES
static ptrdiff_t sf_gather_d(const double *x, ptrdiff_t row, ptrdiff_t d, double *out)
{
    ptrdiff_t j, l;
    for (j = 0; j + 8 <= d; j += 8) {
        sf_v v[8];
        for (l = 0; l < 8; l++) {
            v[l] = *(const sf_any *)(x + l * row + j);
            SV_PREFETCH(x + (8 + l) * row + j); /* the next tile's */
        }
        sf_transpose(v, (sf_v *)out + j);
    }
    return j;
}

SMALLVAR_CLONES
static ptrdiff_t sf_gather_f(const float *x, ptrdiff_t row, ptrdiff_t d, double *out)
{
    ptrdiff_t j, l;
    for (j = 0; j + 8 <= d; j += 8) {
        sf_v v[8];
        for (l = 0; l < 8; l++) {
            v[l] = __builtin_convertvector(*(const sf_floats *)(x + l * row + j), sf_v);
            SV_PREFETCH(x + (8 + l) * row + j);
        }
        sf_transpose(v, (sf_v *)out + j);
    }
    return j;
}
#else
#define sf_gather_d(x, row, d, out) 0
#define sf_gather_f(x, row, d, out) 0
#endif

/* r = x - z A and rr = ||r||^2.  IN x: d x LANES; z: k x LANES; at: d x room.  OUT r: d x LANES; rr: LANES. */
SMALLVAR_CLONES
static void sf_residual(ptrdiff_t d, ptrdiff_t k, ptrdiff_t room, const double *restrict x, const double *restrict z,
                        const double *restrict at, double *restrict r, double *restrict rr)
{
    const sf_v *xv = (const sf_v *)x, *zv = (const sf_v *)z;
    sf_v *rv = (sf_v *)r, s0 = {0}, s1 = {0}, s2 = {0}, s3 = {0};
    ptrdiff_t i, j = 0;
    for (; j + 4 <= d; j += 4) { /* four independent chains hide the latency of a multiply-add */
        const double *a = at + j * room;
        sf_v r0 = xv[j], r1 = xv[j + 1], r2 = xv[j + 2], r3 = xv[j + 3];
        for (i = 0; i < k; i++) {
            sf_v zi = zv[i];
            r0 -= zi * a[i];
            r1 -= zi * a[room + i];
            r2 -= zi * a[2 * room + i];
            r3 -= zi * a[3 * room + i];
        }
        rv[j] = r0; rv[j + 1] = r1; rv[j + 2] = r2; rv[j + 3] = r3;
        s0 += r0 * r0; s1 += r1 * r1; s2 += r2 * r2; s3 += r3 * r3;
    }
    for (; j < d; j++) {
        sf_v r0 = xv[j];
        for (i = 0; i < k; i++) r0 -= zv[i] * at[j * room + i];
        rv[j] = r0;
        s0 += r0 * r0;
    }
    *(sf_any *)rr = (s0 + s1) + (s2 + s3);
}

#define SF_DOTS(U)                                                                           \
    do {                                                                                     \
        sf_v even[U], odd[U];                                                                \
        ptrdiff_t u, j;                                                                      \
        SF_UNROLL for (u = 0; u < U; u++) even[u] = odd[u] = zero;                           \
        for (j = 0; j + 2 <= d; j += 2) {                                                    \
            sf_v r0 = rv[j], r1 = rv[j + 1];                                                 \
            SF_UNROLL for (u = 0; u < U; u++) even[u] += r0 * at[j * room + i + u];          \
            SF_UNROLL for (u = 0; u < U; u++) odd[u] += r1 * at[(j + 1) * room + i + u];     \
        }                                                                                    \
        if (j < d) { SF_UNROLL for (u = 0; u < U; u++) even[u] += rv[j] * at[j * room + i + u]; } \
        SF_UNROLL for (u = 0; u < U; u++) gv[i + u] = even[u] + odd[u];                      \
    } while (0)

/* g = A r.  IN r: d x LANES; at: d x room.  OUT g: k x LANES. */
SMALLVAR_CLONES
static void sf_dots(ptrdiff_t d, ptrdiff_t k, ptrdiff_t room, const double *restrict r, const double *restrict at,
                    double *restrict g)
{
    const sf_v zero = {0}, *rv = (const sf_v *)r;
    sf_v *gv = (sf_v *)g;
    ptrdiff_t i = 0;
    for (; i + 8 <= k; i += 8) SF_DOTS(8);
    switch (k - i) {
    case 7: SF_DOTS(7); break;
    case 6: SF_DOTS(6); break;
    case 5: SF_DOTS(5); break;
    case 4: SF_DOTS(4); break;
    case 3: SF_DOTS(3); break;
    case 2: SF_DOTS(2); break;
    case 1: SF_DOTS(1); break;
    }
}

SF_INLINE int sf_mask(sf_v flags)
{
    int mask = 0, l;
    for (l = 0; l < SF_LANES; l++) mask |= (SF_LANE(flags, l) != 0.0) << l;
    return mask;
}

SF_INLINE sf_v sf_lanes(int mask)
{
    sf_v v = {0};
#if SMALLVAR_VECTORS
    int l;
    for (l = 0; l < SF_LANES; l++) v[l] = (double)((mask >> l) & 1);
#else
    v = (double)(mask & 1);
#endif
    return v;
}

/* Coordinate steps: for each k in turn, flip z_k where that makes ||x - z A||^2, less the refund of a feature that
 * would lose its last user, smaller: turning z_k changes it by ||a_k||^2 - 2 s r.a_k with s = 1 - 2 z_k.
 * IN gram: A A', k x room; refund: k, or NULL; mask: lanes to visit.  INOUT z, g: k x LANES; rr: LANES.
 * OUT swing: LANES, squared norms of the features flipped (what rounding in rr is relative to).
 * Returns the lanes that changed. */
SMALLVAR_CLONES
static int sf_flip(ptrdiff_t k, ptrdiff_t room, const double *restrict gram, const double *restrict refund, int mask,
                   double *restrict z, double *restrict g, double *restrict rr, double *restrict swing)
{
    sf_v *zv = (sf_v *)z, *gv = (sf_v *)g, active = sf_lanes(mask), zero = {0};
    sf_v changed = zero, e = *(sf_any *)rr, moved = zero;
    ptrdiff_t i, j;
    for (i = 0; i < k; i++) {
        const double *row = gram + i * room;
        sf_v sign = 1.0 - 2.0 * zv[i];
        sf_v gain = row[i] - 2.0 * sign * gv[i];
        sf_v refunded = refund ? gain - zv[i] * refund[i] : gain;
        sf_v flip = SF_WHERE(refunded < -SF_TIE * (row[i] + e)) * active;
        sf_v step = flip * sign;
        zv[i] += step;
        for (j = 0; j < k; j++) gv[j] -= step * row[j];
        e += flip * gain;
        moved += flip * row[i];
        changed += flip;
    }
    *(sf_any *)rr = e;
    *(sf_any *)swing = moved;
    return sf_mask(changed);
}

/* The best of all 2^k rows, in Gray code: ||x - z A||^2 = ||x||^2 - 2 z.c + z G z', c = A x.
 * IN quadratic: 2^k, z G z' in Gray order; flips: 2^k, the bit that each step turns; z, g: k x LANES.
 * OUT best: LANES, codes as doubles; fall: LANES, how much lower the best row is than z. */
SMALLVAR_CLONES
static void sf_exact(ptrdiff_t k, ptrdiff_t room, const double *restrict gram, const double *restrict quadratic,
                     const int *restrict flips, const double *restrict z, const double *restrict g,
                     double *restrict work, double *restrict best, double *restrict fall)
{
    const sf_v *zv = (const sf_v *)z, *gv = (const sf_v *)g;
    sf_v *c = (sf_v *)work, zero = {0}, least, arg = zero, sum = zero, now = zero;
    ptrdiff_t i, j, step, codes = (ptrdiff_t)1 << k;
    ptrdiff_t code = 0;
    for (i = 0; i < k; i++) { /* c = A x = A r + G z' */
        sf_v t = gv[i];
        for (j = 0; j < k; j++) t += zv[j] * gram[i * room + j];
        c[i] = 2.0 * t;
        now += zv[i] * (gv[i] + t); /* z.c + z.g: zGz' - 2 z.c = -(z.c + z.g) */
    }
    least = zero;
    for (step = 1; step < codes; step++) {
        int bit = flips[step];
        sf_v value, lower;
        code ^= (ptrdiff_t)1 << bit;
        sum = (code >> bit) & 1 ? sum + c[bit] : sum - c[bit];
        value = quadratic[step] - sum;
        lower = SF_WHERE(value < least);
        least += lower * (value - least);
        arg += lower * ((double)code - arg);
    }
    *(sf_any *)best = arg;
    *(sf_any *)fall = -now - least;
}

/* What a new feature f does: rr = ||r||^2 without it, rf = ||r - f||^2 with it. */
SMALLVAR_CLONES
static void sf_with(ptrdiff_t d, const double *restrict r, const double *restrict f, double *restrict rf)
{
    const sf_v *rv = (const sf_v *)r;
    sf_v s0 = {0}, s1 = {0}, s2 = {0}, s3 = {0};
    ptrdiff_t j = 0;
    for (; j + 4 <= d; j += 4) {
        sf_v t0 = rv[j] - f[j], t1 = rv[j + 1] - f[j + 1], t2 = rv[j + 2] - f[j + 2], t3 = rv[j + 3] - f[j + 3];
        s0 += t0 * t0; s1 += t1 * t1; s2 += t2 * t2; s3 += t3 * t3;
    }
    for (; j < d; j++) { sf_v t = rv[j] - f[j]; s0 += t * t; }
    *(sf_any *)rf = (s0 + s1) + (s2 + s3);
}

SMALLVAR_CLONES
static double sf_dot(ptrdiff_t d, const double *restrict a, const double *restrict b)
{
    double s = 0.0;
    ptrdiff_t j;
#pragma omp simd reduction(+ : s)
    for (j = 0; j < d; j++) s += a[j] * b[j];
    return s;
}

/* y += s x */
SMALLVAR_CLONES
static void sf_axpy(ptrdiff_t d, double s, const double *restrict x, double *restrict y)
{
    ptrdiff_t j;
#pragma omp simd
    for (j = 0; j < d; j++) y[j] += s * x[j];
}

SMALLVAR_CLONES
static void sf_axpy_f(ptrdiff_t d, double s, const float *restrict x, double *restrict y)
{
    ptrdiff_t j;
#pragma omp simd
    for (j = 0; j < d; j++) y[j] += s * (double)x[j];
}

#endif
