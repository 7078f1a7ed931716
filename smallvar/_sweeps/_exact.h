/* Squared distances to many centers, which are stored in columns (value j of center k at columns[j * capacity + k]),
 * and costs made of them. These are the exact ones that results depend on: plain float64, nothing fused, columns added
 * in their order, so that all instruction sets give the same bits. (sc_: squared distances and costs; the macros are
 * those of _vector.h.)
 */
#ifndef SV_SET

#ifndef SMALLVAR_EXACT_H
#define SMALLVAR_EXACT_H

#include <math.h>
#include "_sets.h"

#define SC_POINTS 8 /* points of a tile */
#define SC_AT_ONCE 32 /* costs that are compared before the first one is looked for */

/* Whether a cost ties with the least: a root of a cost is right up to SC_ROOT_ROUNDING, and the distance in it is off by up
 * to the root of ``rounding`` (times the weight). SC_NEAR a + SC_FAR b is a bound for a quick test: it is above
 * (sqrt(a) + 2 sqrt(b))^2 <= (1 + e) a + (4 + 4 / e) b, for every e > 0. */
#define SC_ROOT_ROUNDING (1.0 + 0x1p-48)
#define SC_NEAR 1.001
#define SC_FAR 5000.0

static inline int sc_ties(double least, double cost, double rounding)
{
    if (!(cost <= SC_NEAR * least + SC_FAR * rounding)) return 0;
    return cost == least || sqrt(cost) <= SC_ROOT_ROUNDING * (sqrt(least) + 2.0 * sqrt(rounding));
}

#define SV_KERNELS "_exact.h"
#include "_each.h"

SV_CHOOSE(sc_squares)
SV_CHOOSE(sc_roots_f)
SV_CHOOSE(sc_roots_d)
SV_CHOOSE(sc_least)
SV_CHOOSE(sc_least_block)
SV_CHOOSE(sc_first)
SV_CHOOSE(sc_not_above)
SV_CHOOSE(sc_ward)
SV_CHOOSE(sc_cheapest)

#endif

#else /* for each instruction set */

#define SV_SINGLE 0
#include "_vector.h"
#undef SV_SINGLE

/* Squared distances ||x - c_k||^2 to all centers.  IN x: d; columns: d x capacity.  OUT cost: k. */
static void SV_(sc_squares)(const double *SV_RESTRICT x, ptrdiff_t d, const double *SV_RESTRICT columns,
                            ptrdiff_t capacity, ptrdiff_t k, double *SV_RESTRICT cost)
{
    ptrdiff_t i = 0, j;
#define STEP(sum, m)                                                            \
    difference = V_SUB(xj, V_LOAD(columns + j * capacity + i + (m) * V_LANES)); \
    sum = V_ADD(sum, V_MUL(difference, difference));
    for (; i + 4 * V_LANES <= k; i += 4 * V_LANES) {
        V sum0 = V_SPREAD(0.0), sum1 = sum0, sum2 = sum0, sum3 = sum0, difference;
        for (j = 0; j < d; j++) {
            const V xj = V_SPREAD(x[j]);
            STEP(sum0, 0)
            STEP(sum1, 1)
            STEP(sum2, 2)
            STEP(sum3, 3)
        }
        V_STORE(cost + i, sum0);
        V_STORE(cost + i + V_LANES, sum1);
        V_STORE(cost + i + 2 * V_LANES, sum2);
        V_STORE(cost + i + 3 * V_LANES, sum3);
    }
    for (; i + V_LANES <= k; i += V_LANES) {
        V sum = V_SPREAD(0.0), difference;
        for (j = 0; j < d; j++) {
            const V xj = V_SPREAD(x[j]);
            STEP(sum, 0)
        }
        V_STORE(cost + i, sum);
    }
#undef STEP
    for (; i < k; i++) {
        double sum = 0.0;
        for (j = 0; j < d; j++) {
            const double difference = x[j] - columns[j * capacity + i];
            sum += difference * difference;
        }
        cost[i] = sum;
    }
}

/* Distances from squared ones; returns the largest, as a double.  IN squares: n.  OUT out: n. */
#define ROOTS(GIVE, TO)                                          \
    V most = V_SPREAD(0.0);                                      \
    double part[V_LANES], largest = 0.0;                         \
    ptrdiff_t i = 0, l;                                          \
    for (; i + V_LANES <= n; i += V_LANES) {                     \
        const V root = V_ROOT(V_LOAD(squares + i));              \
        most = V_MOST(most, root);                               \
        GIVE(out + i, root);                                     \
    }                                                            \
    V_STORE(part, most);                                         \
    for (l = 0; l < V_LANES; l++) largest = part[l] > largest ? part[l] : largest; \
    for (; i < n; i++) {                                         \
        const double root = sqrt(squares[i]);                    \
        largest = root > largest ? root : largest;               \
        out[i] = (TO)root;                                       \
    }                                                            \
    return largest;

static double SV_(sc_roots_f)(ptrdiff_t n, const double *SV_RESTRICT squares, float *SV_RESTRICT out)
{
    ROOTS(V_STORE_SINGLE, float)
}

static double SV_(sc_roots_d)(ptrdiff_t n, const double *SV_RESTRICT squares, double *SV_RESTRICT out)
{
    ROOTS(V_STORE, double)
}

#undef ROOTS

/* The least of k costs, HUGE_VAL if there are none. */
SV_INLINE double SV_(sc_min)(const double *cost, ptrdiff_t k)
{
    V least = V_SPREAD(HUGE_VAL), second = least;
    double part[V_LANES], best = HUGE_VAL;
    ptrdiff_t i = 0, l;
    for (; i + 2 * V_LANES <= k; i += 2 * V_LANES) {
        const V a = V_LOAD(cost + i), b = V_LOAD(cost + i + V_LANES);
        least = V_PICK(V_LESS(a, least), a, least);
        second = V_PICK(V_LESS(b, second), b, second);
    }
    V_STORE(part, V_PICK(V_LESS(second, least), second, least));
    for (; i < k; i++) best = cost[i] < best ? cost[i] : best;
    for (l = 0; l < V_LANES; l++) best = part[l] < best ? part[l] : best;
    return best;
}

/* The first of k costs that is the least, which is stored in least; -1 if all are infinite. */
static ptrdiff_t SV_(sc_first)(const double *cost, ptrdiff_t k, double *least)
{
    ptrdiff_t arg = 0, l;
    const double best = SV_(sc_min)(cost, k);
    *least = best;
    if (!(best < HUGE_VAL)) return -1;
    for (; arg + SC_AT_ONCE <= k; arg += SC_AT_ONCE) {
        int any = 0;
        for (l = 0; l < SC_AT_ONCE; l++) any |= cost[arg + l] == best;
        if (any) break;
    }
    while (cost[arg] != best) arg++;
    return arg;
}

/* Lists the k whose cost, less error, is finite and not above that in bound; returns how many. */
static ptrdiff_t SV_(sc_not_above)(const double *SV_RESTRICT cost, double error, const double *SV_RESTRICT bound,
                                   ptrdiff_t k, int *SV_RESTRICT list)
{
    ptrdiff_t i, l, n = 0;
    for (i = 0; i < k; i += SC_AT_ONCE) {
        const ptrdiff_t size = k - i < SC_AT_ONCE ? k - i : SC_AT_ONCE;
        int any = size < SC_AT_ONCE;
        if (!any)
            for (l = 0; l < SC_AT_ONCE; l++) any |= cost[i + l] - error <= bound[i + l];
        for (l = 0; any && l < size; l++)
            if (cost[i + l] - error <= bound[i + l] && cost[i + l] < HUGE_VAL) list[n++] = (int)(i + l);
    }
    return n;
}

/* The least of the costs offset_k + factor_k ||x - c_k||^2; returns the first k that has it (-1: all are infinite).
 * IN x: d; columns: d x capacity, the centers; offset: k; factor: k, or NULL: all 1.
 * OUT cost: k, scratch, infinite for the returned one; least; second: the least of the others. */
static ptrdiff_t SV_(sc_least)(const double *SV_RESTRICT x, ptrdiff_t d, const double *SV_RESTRICT columns,
                               ptrdiff_t capacity, ptrdiff_t k, const double *SV_RESTRICT offset,
                               const double *SV_RESTRICT factor, double *SV_RESTRICT cost, double *least,
                               double *second)
{
    ptrdiff_t i, arg = -1;
    double best;
    SV_(sc_squares)(x, d, columns, capacity, k, cost);
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

/* sc_least for SC_POINTS points side by side, with the same bits, for factors 1 and without second.
 * IN x: d x SC_POINTS, value j of point l at x[j * SC_POINTS + l].
 * OUT least, arg: SC_POINTS, both as doubles.
 * Returns whether it is clear that no center before arg ties, see sc_ties, for any of the points. */
static int SV_(sc_least_block)(const double *SV_RESTRICT x, ptrdiff_t d, const double *SV_RESTRICT columns,
                                ptrdiff_t capacity, ptrdiff_t k, const double *SV_RESTRICT offset,
                                double rounding, double *SV_RESTRICT least, double *SV_RESTRICT arg)
{
    ptrdiff_t i, j, l;
    int clear = 1;
#define STEP(sum, m)                        \
    difference = V_SUB(xj, V_SPREAD(c[m])); \
    sum = V_ADD(sum, V_MUL(difference, difference));
#define TAKE(sum, m)                                                         \
    total = V_ADD(V_SPREAD(offset[i + (m)]), sum);                           \
    less = V_LESS(total, best);                                              \
    first = V_PICK(less, at, first);                                         \
    at = V_ADD(at, V_SPREAD(1.0));                                           \
    beaten = V_PICK(less, best, beaten);                                     \
    best = V_LEAST(total, best);
    for (l = 0; l < SC_POINTS; l += V_LANES) {
        V best = V_SPREAD(HUGE_VAL), beaten = best, first = V_SPREAD(-1.0), at = V_SPREAD(0.0), total;
        V_MASK less;
        for (i = 0; i + 4 <= k; i += 4) { /* four sums hide each other's latency */
            V sum0 = V_SPREAD(0.0), sum1 = sum0, sum2 = sum0, sum3 = sum0, difference;
            for (j = 0; j < d; j++) {
                const V xj = V_LOAD(x + j * SC_POINTS + l);
                const double *c = columns + j * capacity + i;
                STEP(sum0, 0)
                STEP(sum1, 1)
                STEP(sum2, 2)
                STEP(sum3, 3)
            }
            TAKE(sum0, 0)
            TAKE(sum1, 1)
            TAKE(sum2, 2)
            TAKE(sum3, 3)
        }
        for (; i < k; i++) {
            V sum0 = V_SPREAD(0.0), difference;
            for (j = 0; j < d; j++) {
                const V xj = V_LOAD(x + j * SC_POINTS + l);
                const double *c = columns + j * capacity + i;
                STEP(sum0, 0)
            }
            TAKE(sum0, 0)
        }
        V_STORE(least + l, best);
        V_STORE(arg + l, first);
        clear &= V_ALL(V_LESS(V_ADD(V_MUL(V_SPREAD(SC_NEAR), best), V_SPREAD(SC_FAR * rounding)), beaten));
    }
    return clear;
#undef STEP
#undef TAKE
}

/* Ward's costs w_self w_k / (w_self + w_k) square_k of cluster self with all others of weight > 0; returns the first one
 * that has the least (-1: there is no other).
 * IN square: k, squared distances of the means (may be cost); weight: k.
 * OUT cost: k, infinite for itself and those of weight 0; least. */
static ptrdiff_t SV_(sc_ward)(const double *square, ptrdiff_t k, const double *SV_RESTRICT weight, ptrdiff_t self,
                              double *cost, double *least)
{
    const double w = weight[self];
    ptrdiff_t i;
    int equal = 1; /* as before the first merger: then one division is enough */
    for (i = 0; i < k; i++) equal &= weight[i] == w;
    if (equal) {
        const double factor = w * w / (w + w);
        for (i = 0; i < k; i++) cost[i] = factor * square[i];
    } else {
        for (i = 0; i < k; i++) { /* the quotient for all, so that the loop has no branch */
            const double paid = w * weight[i] / (w + weight[i]) * square[i];
            cost[i] = weight[i] > 0.0 ? paid : HUGE_VAL;
        }
    }
    cost[self] = HUGE_VAL;
    return SV_(sc_first)(cost, k, least);
}

/* sc_ward with the squared distances ||x - c_k||^2.  IN x: d, the mean of self; columns: d x capacity, the means. */
static ptrdiff_t SV_(sc_cheapest)(const double *SV_RESTRICT x, ptrdiff_t d, const double *SV_RESTRICT columns,
                                  ptrdiff_t capacity, ptrdiff_t k, const double *SV_RESTRICT weight, ptrdiff_t self,
                                  double *SV_RESTRICT cost, double *least)
{
    SV_(sc_squares)(x, d, columns, capacity, k, cost);
    return SV_(sc_ward)(cost, k, weight, self, cost, least);
}

#endif
