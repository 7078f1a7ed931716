/* Squared Mahalanobis distances of tiles of points, and sums of products of residuals. Results depend on them: plain
 * float64, nothing fused, additions in one order, so that all instruction sets give the same bits. (sg_: kernels of
 * Gaussian clusters; the macros are those of _vector.h.)
 */
#ifndef SV_SET

#ifndef SMALLVAR_GAUSSIANS_H
#define SMALLVAR_GAUSSIANS_H

#include <math.h>
#include "_sets.h"

enum {
    SG_POINTS = 8,    /* points of a tile */
    SG_RESIDUALS = 4, /* residuals that are added at a time */
    SG_PAD = 8        /* their columns are padded with zeros to a multiple of this */
};

#define SV_KERNELS "_gaussians.h"
#include "_each.h"

SV_CHOOSE(sg_compare)
SV_CHOOSE(sg_add_products)

#endif

#else /* for each instruction set */

#define SV_SINGLE 0
#include "_vector.h"
#undef SV_SINGLE

/* V_BEFORE(a, m, b, n): a mask, where (a, m) is before (b, n). */
#undef V_BEFORE
#if SV_X86 && SV_BYTES == 64
#define V_BEFORE(a, m, b, n) (V_LESS(a, b) | (_mm512_cmp_pd_mask(a, b, _CMP_EQ_OQ) & V_LESS(m, n)))
#elif SV_X86 && SV_BYTES == 32
#define V_BEFORE(a, m, b, n) \
    _mm256_or_pd(V_LESS(a, b), _mm256_and_pd(_mm256_cmp_pd(a, b, _CMP_EQ_OQ), V_LESS(m, n)))
#elif SV_X86
#define V_BEFORE(a, m, b, n) _mm_or_pd(V_LESS(a, b), _mm_and_pd(_mm_cmpeq_pd(a, b), V_LESS(m, n)))
#elif SV_NEON
#define V_BEFORE(a, m, b, n) vorrq_u64(V_LESS(a, b), vandq_u64(vceqq_f64(a, b), V_LESS(m, n)))
#else
#define V_BEFORE(a, m, b, n) ((a) < (b) || ((a) == (b) && (m) < (n)))
#endif
#define PARTS (SG_POINTS / V_LANES)
#define APART(j) V_LOAD(apart + (j) * SG_POINTS + l)
#define SUBTRACT(j) V_STORE(apart + (j) * SG_POINTS + l, V_SUB(V_LOAD(x + (j) * SG_POINTS + l), V_SPREAD(center[j])));
#define STEP(m) s##m = V_ADD(s##m, V_MUL(V_SPREAD(row##m[i]), t));
#define SQUARE(m) squares[p] = V_ADD(squares[p], V_MUL(s##m, s##m));

/* The costs of a tile's points in cluster k, charge + ||z||^2 with z = root (x - center); they update the least cost of
 * each point so far, its cluster (of equal costs the lowest number) and the least of the others.
 *
 * Sums of squares never fall: once charge + z_0^2 + ... + z_j^2 is above ``second`` or ``bound`` for each point, the rest
 * is left out and nothing is updated.
 *
 * IN x: d x SG_POINTS, value j of point l at x[j * SG_POINTS + l]; center: d; root: d x d, lower triangular;
 *    bound: SG_POINTS.
 * INOUT least, arg, second: SG_POINTS, the clusters as doubles.  OUT apart: d x SG_POINTS, scratch. */
static void SV_(sg_compare)(const double *SV_RESTRICT x, ptrdiff_t d, const double *SV_RESTRICT center,
                            const double *SV_RESTRICT root, double charge, ptrdiff_t k,
                            const double *SV_RESTRICT bound, double *SV_RESTRICT least, double *SV_RESTRICT arg,
                            double *SV_RESTRICT second, double *SV_RESTRICT apart)
{
    const V offset = V_SPREAD(charge), number = V_SPREAD((double)k);
    V squares[PARTS];
    ptrdiff_t i, j = 0, l, p;
    for (p = 0; p < PARTS; p++) squares[p] = V_SPREAD(0.0);
    for (; j + 4 <= d; j += 4) { /* four sums hide each other's latency */
        const double *row0 = root + j * d, *row1 = row0 + d, *row2 = row1 + d, *row3 = row2 + d;
        int beyond = 1;
        for (p = 0; p < PARTS; p++) {
            V s0 = V_SPREAD(0.0), s1 = s0, s2 = s0, s3 = s0, t;
            l = p * V_LANES;
            SUBTRACT(j) SUBTRACT(j + 1) SUBTRACT(j + 2) SUBTRACT(j + 3)
            for (i = 0; i <= j; i++) { t = APART(i); STEP(0) STEP(1) STEP(2) STEP(3) }
            t = APART(i); STEP(1) STEP(2) STEP(3) i++;
            t = APART(i); STEP(2) STEP(3) i++;
            t = APART(i); STEP(3)
            SQUARE(0) SQUARE(1) SQUARE(2) SQUARE(3)
            beyond &= V_ALL(V_LESS(V_LEAST(V_LOAD(second + l), V_LOAD(bound + l)), V_ADD(squares[p], offset)));
        }
        if (beyond) return;
    }
    if (j + 2 <= d) {
        const double *row0 = root + j * d, *row1 = row0 + d;
        for (p = 0; p < PARTS; p++) {
            V s0 = V_SPREAD(0.0), s1 = s0, t;
            l = p * V_LANES;
            SUBTRACT(j) SUBTRACT(j + 1)
            for (i = 0; i <= j; i++) { t = APART(i); STEP(0) STEP(1) }
            t = APART(i); STEP(1)
            SQUARE(0) SQUARE(1)
        }
        j += 2;
    }
    if (j < d) {
        const double *row0 = root + j * d;
        for (p = 0; p < PARTS; p++) {
            V s0 = V_SPREAD(0.0), t;
            l = p * V_LANES;
            SUBTRACT(j)
            for (i = 0; i <= j; i++) { t = APART(i); STEP(0) }
            SQUARE(0)
        }
    }
    for (p = 0; p < PARTS; p++) {
        V cost = V_ADD(squares[p], offset), before, label, displaced;
        V_MASK better;
        l = p * V_LANES;
        before = V_LOAD(least + l);
        label = V_LOAD(arg + l);
        better = V_BEFORE(cost, number, before, label);
        displaced = V_PICK(better, before, cost);
        V_STORE(second + l, V_PICK(V_LESS(displaced, V_LOAD(second + l)), displaced, V_LOAD(second + l)));
        V_STORE(least + l, V_PICK(better, cost, before));
        V_STORE(arg + l, V_PICK(better, number, label));
    }
}

/* Add to the upper triangle of a symmetric matrix the products weighted_m residual_m', of SG_RESIDUALS residuals in
 * their order; what is below it is undefined.
 * IN residual, weighted: SG_RESIDUALS x width, padded with zeros.  INOUT sum: d x width. */
static void SV_(sg_add_products)(const double *SV_RESTRICT residual, const double *SV_RESTRICT weighted, ptrdiff_t d,
                                 ptrdiff_t width, double *SV_RESTRICT sum)
{
    ptrdiff_t i, j;
    for (i = 0; i < d; i++) {
        const V w0 = V_SPREAD(weighted[i]), w1 = V_SPREAD(weighted[width + i]);
        const V w2 = V_SPREAD(weighted[2 * width + i]), w3 = V_SPREAD(weighted[3 * width + i]);
        double *row = sum + i * width;
        for (j = i / V_LANES * V_LANES; j < d; j += V_LANES) {
            V s = V_LOAD(row + j);
            s = V_ADD(s, V_MUL(w0, V_LOAD(residual + j)));
            s = V_ADD(s, V_MUL(w1, V_LOAD(residual + width + j)));
            s = V_ADD(s, V_MUL(w2, V_LOAD(residual + 2 * width + j)));
            s = V_ADD(s, V_MUL(w3, V_LOAD(residual + 3 * width + j)));
            V_STORE(row + j, s);
        }
    }
}

#undef PARTS
#undef APART
#undef SUBTRACT
#undef STEP
#undef SQUARE

#endif
