/* Values of the candidates for the row at which the last piece of a record begins: see segments.pyx. Plain float64,
 * nothing fused, so that all instruction sets give the same bits. (sp_: pieces; the macros are those of _vector.h.)
 */
#ifndef SV_SET

#ifndef SMALLVAR_PIECES_H
#define SMALLVAR_PIECES_H

#include <math.h>
#include "_sets.h"

#define SV_KERNELS "_pieces.h"
#include "_each.h"

SV_CHOOSE(sp_best)
SV_CHOOSE(sp_count)

#endif

#else /* for each instruction set */

#define SV_SINGLE 0
#include "_vector.h"
#undef SV_SINGLE

/* The least of k values, none of them NaN. */
SV_INLINE double SV_(sp_min)(const double *value, ptrdiff_t k)
{
    V least = V_SPREAD(HUGE_VAL), second = least;
    double part[V_LANES], best = HUGE_VAL;
    ptrdiff_t i = 0, l;
    for (; i + 2 * V_LANES <= k; i += 2 * V_LANES) {
        const V a = V_LOAD(value + i), b = V_LOAD(value + i + V_LANES);
        least = V_PICK(V_LESS(a, least), a, least);
        second = V_PICK(V_LESS(b, second), b, second);
    }
    V_STORE(part, V_PICK(V_LESS(second, least), second, least));
    for (; i < k; i++) best = value[i] < best ? value[i] : best;
    for (l = 0; l < V_LANES; l++) best = part[l] < best ? part[l] : best;
    return best;
}

/* The first of the candidates of least value, at a prefix of these squares and weight, where candidate c is at a
 * prefix of before[c], weight[c] and least[c].
 * INOUT value: k; IN the squared distances of their sums.  OUT the values */
static ptrdiff_t SV_(sp_best)(double squares, double total, const double *SV_RESTRICT before,
                              const double *SV_RESTRICT weight, const double *SV_RESTRICT least, ptrdiff_t k,
                              double *SV_RESTRICT value)
{
    ptrdiff_t c;
    double best;
    for (c = 0; c < k; c++) {
        /* 0 where a heavy row before leaves nothing of light ones: these explain nothing */
        const double left = total - weight[c], divisor = left > 0.0 ? left : HUGE_VAL;
        value[c] = least[c] + ((squares - before[c]) - value[c] / divisor);
    }
    best = SV_(sp_min)(value, k);
    for (c = 0; c < k && value[c] != best; c++) {}
    return c < k ? c : 0;
}

/* How many of k values are not below a limit. */
static ptrdiff_t SV_(sp_count)(const double *value, ptrdiff_t k, double limit)
{
    ptrdiff_t c, count = 0;
    for (c = 0; c < k; c++) count += value[c] >= limit;
    return count;
}

#endif
