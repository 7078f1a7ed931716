/* Costs with an offset for each cluster, decided in plain float64: no contraction, columns added in order. */
#ifndef SMALLVAR_COSTS_H
#define SMALLVAR_COSTS_H

#include <math.h>
#include <stddef.h>

#if defined(__GNUC__) && !defined(__clang__) && defined(__x86_64__) && defined(__GLIBC__) && !defined(SMALLVAR_DEBUG)
#if __GNUC__ >= 12
#define SMALLVAR_EXACT_CLONES __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
#else
#define SMALLVAR_EXACT_CLONES __attribute__((target_clones("avx512f", "avx2", "default")))
#endif
#else
#define SMALLVAR_EXACT_CLONES
#endif

#if !defined(__GNUC__)
#define restrict
#endif

#if defined(__GNUC__)
#define SC_INLINE static inline __attribute__((always_inline)) /* into each clone, to be compiled like it */
#else
#define SC_INLINE static
#endif

/* Squared distances ||x - c_k||^2 to all centers.  IN x: d; columns: d x room.  OUT cost: k. */
SC_INLINE void sc_squares(const double *restrict x, ptrdiff_t d, const double *restrict columns, ptrdiff_t room,
                          ptrdiff_t k, double *restrict cost)
{
    ptrdiff_t i, j;
    for (i = 0; i < k; i++) cost[i] = 0.0;
    for (j = 0; j < d; j++) {
        const double *c = columns + j * room;
        const double xj = x[j];
#pragma omp simd
        for (i = 0; i < k; i++) {
            double t = xj - c[i];
            cost[i] += t * t;
        }
    }
}

/* The least of offset_k + factor_k ||x - c_k||^2, the first k that has it (-1: there is none) and the least of the others.
 * IN x: d; columns: d x room, the centers; offset, factor: k.  OUT cost: room; least; second. */
SMALLVAR_EXACT_CLONES
static ptrdiff_t sc_least(const double *restrict x, ptrdiff_t d, const double *restrict columns, ptrdiff_t room,
                          ptrdiff_t k, const double *restrict offset, const double *restrict factor,
                          double *restrict cost, double *least, double *second)
{
    ptrdiff_t i, arg = -1;
    double best = HUGE_VAL, next = HUGE_VAL;
    sc_squares(x, d, columns, room, k, cost);
    if (factor) {
#pragma omp simd
        for (i = 0; i < k; i++) cost[i] = offset[i] + factor[i] * cost[i];
    } else {
#pragma omp simd
        for (i = 0; i < k; i++) cost[i] = offset[i] + cost[i];
    }
#pragma omp simd reduction(min : best)
    for (i = 0; i < k; i++) best = cost[i] < best ? cost[i] : best;
    if (best < HUGE_VAL) {
        for (arg = 0; cost[arg] != best; arg++) {}
        cost[arg] = HUGE_VAL;
    }
#pragma omp simd reduction(min : next)
    for (i = 0; i < k; i++) next = cost[i] < next ? cost[i] : next;
    *least = best;
    *second = next;
    return arg;
}

/* sc_least for SC_POINTS points side by side, with the same bits, without factor and second.
 * IN x: d x SC_POINTS.  OUT cost: k x SC_POINTS; least, arg: SC_POINTS. */
#define SC_POINTS 8
SMALLVAR_EXACT_CLONES
static void sc_least_block(const double *restrict x, ptrdiff_t d, const double *restrict columns, ptrdiff_t room,
                           ptrdiff_t k, const double *restrict offset, double *restrict cost, double *restrict least,
                           double *restrict arg)
{
    double best[SC_POINTS], first[SC_POINTS];
    ptrdiff_t i, j, start;
    int l;
    for (i = 0; i < k * SC_POINTS; i++) cost[i] = 0.0;
    for (start = 0; start < k; start += 128) { /* costs that stay in the nearest cache */
        const ptrdiff_t stop = start + 128 < k ? start + 128 : k;
        for (j = 0; j < d; j++) {
            const double *xj = x + j * SC_POINTS, *c = columns + j * room;
            for (i = start; i < stop; i++) {
                double *cost_i = cost + i * SC_POINTS;
                const double ci = c[i];
#pragma omp simd
                for (l = 0; l < SC_POINTS; l++) {
                    double t = xj[l] - ci;
                    cost_i[l] += t * t;
                }
            }
        }
    }
    for (l = 0; l < SC_POINTS; l++) { best[l] = HUGE_VAL; first[l] = -1.0; }
    for (i = 0; i < k; i++) {
        double *cost_i = cost + i * SC_POINTS;
        const double o = offset[i];
#pragma omp simd
        for (l = 0; l < SC_POINTS; l++) {
            cost_i[l] = o + cost_i[l];
            best[l] = cost_i[l] < best[l] ? cost_i[l] : best[l];
        }
    }
    for (i = k - 1; i >= 0; i--) {
        const double *cost_i = cost + i * SC_POINTS;
        const double number = (double)i;
#pragma omp simd
        for (l = 0; l < SC_POINTS; l++) first[l] = cost_i[l] == best[l] ? number : first[l];
    }
    for (l = 0; l < SC_POINTS; l++) { least[l] = best[l]; arg[l] = first[l]; }
}

/* Ward's costs w_self w_k / (w_self + w_k) ||x - c_k||^2 of cluster self with all others of weight > 0; returns the
 * first one that has the least (-1: there is none).  IN x: d, its mean; columns: d x room, the means; weight: k.
 * OUT cost: room, infinite for itself and those of no weight; least. */
SMALLVAR_EXACT_CLONES
static ptrdiff_t sc_cheapest(const double *restrict x, ptrdiff_t d, const double *restrict columns, ptrdiff_t room,
                             ptrdiff_t k, const double *restrict weight, ptrdiff_t self, double *restrict cost,
                             double *least)
{
    ptrdiff_t i, arg = -1;
    const double w = weight[self];
    double best = HUGE_VAL;
    sc_squares(x, d, columns, room, k, cost);
#pragma omp simd
    for (i = 0; i < k; i++) cost[i] = weight[i] > 0.0 ? w * weight[i] / (w + weight[i]) * cost[i] : HUGE_VAL;
    cost[self] = HUGE_VAL;
#pragma omp simd reduction(min : best)
    for (i = 0; i < k; i++) best = cost[i] < best ? cost[i] : best;
    if (best < HUGE_VAL)
        for (arg = 0; cost[arg] != best; arg++) {}
    *least = best;
    return arg;
}

#endif
