/* Lower bounds of what it costs to merge one cluster with each of others, by a Bregman divergence, over the factor of
 * their weights: see DivergencePairs. They decide which costs are computed, so results do not depend on their last
 * bits. (sd_: kernels of divergences; loops that compilers vectorize.)
 */
#ifndef SV_SET

#ifndef SMALLVAR_DIVERGENCE_BOUNDS_H
#define SMALLVAR_DIVERGENCE_BOUNDS_H

#include <math.h>
#include "_sets.h"

enum { SD_BLOCK = 256 }; /* clusters whose bounds stay in the first cache from column to column */

#define SD_TERM_ROUNDING 0x1p-40     /* of t (t / m for positive values): a summand of a cost may be too low by this */
#define SD_LEAST_DIVISOR 1e-300      /* absolute: added to divisors that are 0 where t is 0 */
#define SD_FRACTION_ROUNDING 0x1p-50 /* absolute: of 1 - m for a fraction m */

#define SV_KERNELS "_divergence_bounds.h"
#include "_each.h"

SV_CHOOSE(sd_counts)
SV_CHOOSE(sd_positive)
SV_CHOOSE(sd_fractions)

#endif

#else /* for each instruction set */

/* IN x: d, the mean of the cluster; columns: d x capacity, those of the others in columns, k of them; share: k, of b in
 *    the joint mean.  OUT bound: k */
#define SD_BOUND(name, TERM) \
    static void SV_(name)(const double *SV_RESTRICT x, ptrdiff_t d, const double *SV_RESTRICT columns, \
                          ptrdiff_t capacity, ptrdiff_t k, const double *SV_RESTRICT share, double *SV_RESTRICT bound) \
    { \
        ptrdiff_t start, j, b; \
        for (start = 0; start < k; start += SD_BLOCK) { \
            const ptrdiff_t stop = start + SD_BLOCK < k ? start + SD_BLOCK : k; \
            for (b = start; b < stop; b++) bound[b] = 0.0; \
            for (j = 0; j < d; j++) { \
                const double a = x[j], *SV_RESTRICT column = columns + j * capacity; \
                for (b = start; b < stop; b++) { \
                    const double y = column[b], t = fabs(y - a), m = a + share[b] * (y - a); \
                    bound[b] += TERM; \
                } \
            } \
        } \
    }

SD_BOUND(sd_counts, t * (1.5 * t / (a + y + m + SD_LEAST_DIVISOR) - SD_TERM_ROUNDING))
SD_BOUND(sd_positive, (t / m) * (1.5 * (t / m) * (m / (2.0 * (a + y) - m)) - SD_TERM_ROUNDING))
SD_BOUND(sd_fractions, t * (4.5 * t / ((a + y + m + SD_LEAST_DIVISOR) *
                                       ((1.0 - a) + (1.0 - y) + (1.0 - m) + SD_FRACTION_ROUNDING)) - SD_TERM_ROUNDING))
#undef SD_BOUND

#endif
