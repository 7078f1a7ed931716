/* Squared distances to many centers, stored in columns, and costs made of them. They decide: plain float64, nothing
 * fused, columns added in their order, so that all instruction sets give the same bits.
 */
#ifndef SV_SET

#ifndef SMALLVAR_EXACT_H
#define SMALLVAR_EXACT_H

#include <math.h>
#include "_sets.h"

#define SC_POINTS 8 /* points of a tile */

#define SV_KERNELS "_exact.h"
#include "_each.h"

SV_CHOOSE(sc_squares)
SV_CHOOSE(sc_least)
SV_CHOOSE(sc_least_block)
SV_CHOOSE(sc_cheapest)

#endif

#else /* for each instruction set */

#define SV_SINGLE 0
#include "_vector.h"
#undef SV_SINGLE

/* Squared distances ||x - c_k||^2 to all centers.  IN x: d; columns: d x room.  OUT cost: k. */
static void SV_(sc_squares)(const double *SV_RESTRICT x, ptrdiff_t d, const double *SV_RESTRICT columns,
                            ptrdiff_t room, ptrdiff_t k, double *SV_RESTRICT cost)
{
    ptrdiff_t i = 0, j;
#define STEP(s, m)                                                      \
    t = V_SUB(xj, V_LOAD(columns + j * room + i + (m) * V_LANES));      \
    s = V_ADD(s, V_MUL(t, t));
    for (; i + 4 * V_LANES <= k; i += 4 * V_LANES) {
        V s0 = V_SPREAD(0.0), s1 = s0, s2 = s0, s3 = s0, t;
        for (j = 0; j < d; j++) {
            const V xj = V_SPREAD(x[j]);
            STEP(s0, 0)
            STEP(s1, 1)
            STEP(s2, 2)
            STEP(s3, 3)
        }
        V_STORE(cost + i, s0);
        V_STORE(cost + i + V_LANES, s1);
        V_STORE(cost + i + 2 * V_LANES, s2);
        V_STORE(cost + i + 3 * V_LANES, s3);
    }
    for (; i + V_LANES <= k; i += V_LANES) {
        V s = V_SPREAD(0.0), t;
        for (j = 0; j < d; j++) {
            const V xj = V_SPREAD(x[j]);
            STEP(s, 0)
        }
        V_STORE(cost + i, s);
    }
#undef STEP
    for (; i < k; i++) {
        double s = 0.0;
        for (j = 0; j < d; j++) {
            const double t = x[j] - columns[j * room + i];
            s += t * t;
        }
        cost[i] = s;
    }
}

/* The least of k costs, HUGE_VAL if there are none. */
SV_INLINE double SV_(sc_min)(const double *cost, ptrdiff_t k)
{
    V least = V_SPREAD(HUGE_VAL), other = least;
    double part[V_LANES], best = HUGE_VAL;
    ptrdiff_t i = 0, l;
    for (; i + 2 * V_LANES <= k; i += 2 * V_LANES) {
        const V a = V_LOAD(cost + i), b = V_LOAD(cost + i + V_LANES);
        least = V_PICK(V_LESS(a, least), a, least);
        other = V_PICK(V_LESS(b, other), b, other);
    }
    V_STORE(part, V_PICK(V_LESS(other, least), other, least));
    for (; i < k; i++) best = cost[i] < best ? cost[i] : best;
    for (l = 0; l < V_LANES; l++) best = part[l] < best ? part[l] : best;
    return best;
}

/* The least of offset_k + factor_k ||x - c_k||^2, the first k that has it (-1: there is none) and the least of the
 * others.  IN x: d; columns: d x room, the centers; offset, factor: k.  OUT cost: room; least; second. */
static ptrdiff_t SV_(sc_least)(const double *SV_RESTRICT x, ptrdiff_t d, const double *SV_RESTRICT columns,
                               ptrdiff_t room, ptrdiff_t k, const double *SV_RESTRICT offset,
                               const double *SV_RESTRICT factor, double *SV_RESTRICT cost, double *least,
                               double *second)
{
    ptrdiff_t i, arg = -1;
    double best;
    SV_(sc_squares)(x, d, columns, room, k, cost);
    if (factor)
        for (i = 0; i < k; i++) cost[i] = offset[i] + factor[i] * cost[i];
    else
        for (i = 0; i < k; i++) cost[i] = offset[i] + cost[i];
    best = SV_(sc_min)(cost, k);
    if (best < HUGE_VAL) {
        for (arg = 0; cost[arg] != best; arg++) {}
        cost[arg] = HUGE_VAL;
    }
    *least = best;
    *second = SV_(sc_min)(cost, k);
    return arg;
}

/* sc_least for SC_POINTS points side by side, with the same bits, without factor and second.
 * IN x: d x SC_POINTS.  OUT least, arg: SC_POINTS. */
static void SV_(sc_least_block)(const double *SV_RESTRICT x, ptrdiff_t d, const double *SV_RESTRICT columns,
                                ptrdiff_t room, ptrdiff_t k, const double *SV_RESTRICT offset,
                                double *SV_RESTRICT least, double *SV_RESTRICT arg)
{
    ptrdiff_t i, j, l;
#define STEP(s, m)                       \
    t = V_SUB(xj, V_SPREAD(c[m]));       \
    s = V_ADD(s, V_MUL(t, t));
#define TAKE(s, m)                                                \
    t = V_ADD(V_SPREAD(offset[i + (m)]), s);                      \
    first = V_PICK(V_LESS(t, best), V_SPREAD((double)(i + (m))), first); \
    best = V_LEAST(t, best);
    for (l = 0; l < SC_POINTS; l += V_LANES) {
        V best = V_SPREAD(HUGE_VAL), first = V_SPREAD(-1.0);
        for (i = 0; i + 4 <= k; i += 4) { /* four sums hide each other's latency */
            V s0 = V_SPREAD(0.0), s1 = s0, s2 = s0, s3 = s0, t;
            for (j = 0; j < d; j++) {
                const V xj = V_LOAD(x + j * SC_POINTS + l);
                const double *c = columns + j * room + i;
                STEP(s0, 0)
                STEP(s1, 1)
                STEP(s2, 2)
                STEP(s3, 3)
            }
            TAKE(s0, 0)
            TAKE(s1, 1)
            TAKE(s2, 2)
            TAKE(s3, 3)
        }
        for (; i < k; i++) {
            V s0 = V_SPREAD(0.0), t;
            for (j = 0; j < d; j++) {
                const V xj = V_LOAD(x + j * SC_POINTS + l);
                const double *c = columns + j * room + i;
                STEP(s0, 0)
            }
            TAKE(s0, 0)
        }
        V_STORE(least + l, best);
        V_STORE(arg + l, first);
    }
#undef STEP
#undef TAKE
}

/* Ward's costs w_self w_k / (w_self + w_k) ||x - c_k||^2 of cluster self with all others of weight > 0; returns the
 * first one that has the least (-1: there is none).  IN x: d, its mean; columns: d x room, the means; weight: k.
 * OUT cost: room, infinite for itself and those of no weight; least. */
static ptrdiff_t SV_(sc_cheapest)(const double *SV_RESTRICT x, ptrdiff_t d, const double *SV_RESTRICT columns,
                                  ptrdiff_t room, ptrdiff_t k, const double *SV_RESTRICT weight, ptrdiff_t self,
                                  double *SV_RESTRICT cost, double *least)
{
    ptrdiff_t i, arg = -1;
    const double w = weight[self];
    double best;
    SV_(sc_squares)(x, d, columns, room, k, cost);
    for (i = 0; i < k; i++) cost[i] = weight[i] > 0.0 ? w * weight[i] / (w + weight[i]) * cost[i] : HUGE_VAL;
    cost[self] = HUGE_VAL;
    best = SV_(sc_min)(cost, k);
    if (best < HUGE_VAL)
        for (arg = 0; cost[arg] != best; arg++) {}
    *least = best;
    return arg;
}

#endif
