/* Scores of a row whose columns are of several kinds, for all clusters. Plain float64, nothing fused, additions in one
 * order, so that all instruction sets give the same bits. (sm_: kernels of mixed columns; the macros are those of
 * _vector.h.)
 */
#ifndef SV_SET

#ifndef SMALLVAR_MIXED_H
#define SMALLVAR_MIXED_H

#include "_sets.h"

enum { SM_PAD = 8 }; /* clusters are padded to a multiple of this */

#define SV_KERNELS "_mixed.h"
#include "_each.h"

SV_CHOOSE(sm_scores)

#endif

#else /* for each instruction set */

#define SV_SINGLE 0
#include "_vector.h"
#undef SV_SINGLE

#define PARTS (SM_PAD / V_LANES)

/* score[k] = sum over m of (x[m] slopes[at[m]][k] + offsets[at[m]][k]) + sum over m of costs[level[m]][k].
 *
 * IN x, at: the values and columns of the numbers that are there; level: the levels that are there; slopes, offsets,
 *    costs: rows of ``padded`` numbers.
 * OUT score: padded. */
static void SV_(sm_scores)(const double *SV_RESTRICT x, const ptrdiff_t *SV_RESTRICT at, ptrdiff_t n_numbers,
                           const double *SV_RESTRICT slopes, const double *SV_RESTRICT offsets,
                           const ptrdiff_t *SV_RESTRICT level, ptrdiff_t n_levels, const double *SV_RESTRICT costs,
                           ptrdiff_t padded, double *SV_RESTRICT score)
{
    ptrdiff_t k, m, p;
    for (k = 0; k < padded; k += SM_PAD) {
        V sum[PARTS];
        for (p = 0; p < PARTS; p++) sum[p] = V_SPREAD(0.0);
        for (m = 0; m < n_numbers; m++) {
            const double *slope = slopes + at[m] * padded + k, *offset = offsets + at[m] * padded + k;
            const V t = V_SPREAD(x[m]);
            for (p = 0; p < PARTS; p++) {
                const V s = V_ADD(V_MUL(t, V_LOAD(slope + p * V_LANES)), V_LOAD(offset + p * V_LANES));
                sum[p] = V_ADD(sum[p], s);
            }
        }
        for (m = 0; m < n_levels; m++) {
            const double *cost = costs + level[m] * padded + k;
            for (p = 0; p < PARTS; p++) sum[p] = V_ADD(sum[p], V_LOAD(cost + p * V_LANES));
        }
        for (p = 0; p < PARTS; p++) V_STORE(score + k + p * V_LANES, sum[p]);
    }
}

#undef PARTS

#endif
