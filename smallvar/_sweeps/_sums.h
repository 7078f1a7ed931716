/* Sums that depend neither on the order of the rows nor on how they were shared out.
 *
 * Column by column, each row is cut into pieces, one for each bin, that are multiples of the grain of the bin. A bin
 * adds up its pieces: integers times its grain, so exactly, as long as the sum stays below 2^53 grains. With unit a
 * power of two >= |t|, t = w (x - origin), and grain_b = unit 2^(-width (b + 1)), b = 0, 1, ...,
 *
 *     piece_b = t rounded to a multiple of grain_b = (t + magic_b) - magic_b,   magic_b = 1.5 2^52 grain_b,
 *     t <- t - piece_b   (exact; at most grain_b / 2 is left)
 *
 * t + magic_b lies between 2^52 and 2^53 grains, where float64 numbers are one grain apart: that rounds t. A piece is
 * at most 2^width grains, so a bin holds the pieces of 2^(53 - width) rows; at most half the last grain of each row is
 * cut off. Every operation must be rounded as written: no contraction, no reassociation. (After Ahrens, Demmel & Nguyen
 * 2020, Algorithms for efficient reproducible floating point summation, with grains that are fixed beforehand.)
 */
#ifndef SV_SET

#ifndef SMALLVAR_SUMS_H
#define SMALLVAR_SUMS_H

#include <math.h>
#include <stdint.h>
#include "_sets.h"

typedef struct {
    ptrdiff_t d;          /* columns */
    ptrdiff_t bins;
    int weighted;         /* whether rows have weights; else a cluster's weight is its count */
    const double *origin; /* d */
    const double *magic;  /* bins x (d + 1), the last column for the weights themselves; 0 where the unit is */
    double *cell;         /* clusters x bins x (d + 1) */
    double *count;        /* clusters: members */
} sums_t;

#define SUMS_STRIDE(sums) ((sums)->d + 1)
#define SUMS_CELL(sums, k) ((sums)->cell + (k) * (sums)->bins * SUMS_STRIDE(sums))

#define SV_KERNELS "_sums.h"
#include "_each.h"

SV_CHOOSE(sums_move_f)
SV_CHOOSE(sums_move_d)
SV_CHOOSE(sums_entries_f)
SV_CHOOSE(sums_entries_d)
SV_CHOOSE(sums_range_f)
SV_CHOOSE(sums_range_d)
SV_CHOOSE(sums_small_f)
SV_CHOOSE(sums_small_d)

/* The sum of w (x - origin) of cluster k in column j, from the last bin up. */
static inline double sums_total(const sums_t *sums, ptrdiff_t k, ptrdiff_t j)
{
    const double *cell = SUMS_CELL(sums, k) + j;
    ptrdiff_t b = sums->bins - 1;
    double total = cell[b * SUMS_STRIDE(sums)];
    while (b-- > 0) total += cell[b * SUMS_STRIDE(sums)];
    return total;
}

/* That sum divided by a number, the weight of the cluster for its mean, and rounded once. */
static inline double sums_quotient(const sums_t *sums, ptrdiff_t k, ptrdiff_t j, double divisor)
{
    const double *cell = SUMS_CELL(sums, k) + j;
    ptrdiff_t b = sums->bins - 1;
    double high = cell[b * SUMS_STRIDE(sums)], low = 0.0, quotient;
    while (b-- > 0) {
        const double addend = cell[b * SUMS_STRIDE(sums)], sum = high + addend, part = sum - high;
        low += (high - (sum - part)) + (addend - part); /* what this addition has rounded off (Knuth) */
        high = sum;
    }
    quotient = high / divisor;
    return quotient + (fma(-quotient, divisor, high) + low) / divisor; /* the remainder is exact */
}

/* The sum of the weights of cluster k. */
static inline double sums_weight(const sums_t *sums, ptrdiff_t k)
{
    return sums->weighted ? sums_total(sums, k, sums->d) : sums->count[k];
}

/* Remove all members of clusters k0..k1-1. */
static inline void sums_clear(const sums_t *sums, ptrdiff_t k0, ptrdiff_t k1)
{
    if (k1 <= k0) return;
    memset(SUMS_CELL(sums, k0), 0, (size_t)((k1 - k0) * sums->bins * SUMS_STRIDE(sums)) * sizeof(double));
    memset(sums->count + k0, 0, (size_t)(k1 - k0) * sizeof(double));
}

/* Add to cluster a all members of cluster b of ``theirs``, sums with the same bins; b keeps them. */
static inline void sums_unite(const sums_t *sums, ptrdiff_t a, const sums_t *theirs, ptrdiff_t b)
{
    double *SV_RESTRICT cell = SUMS_CELL(sums, a);
    const double *SV_RESTRICT their_cell = SUMS_CELL(theirs, b);
    ptrdiff_t i, size = sums->bins * SUMS_STRIDE(sums);
    for (i = 0; i < size; i++) cell[i] += their_cell[i];
    sums->count[a] += theirs->count[b];
}

/* Make cluster a a copy of cluster b. */
static inline void sums_copy(const sums_t *sums, ptrdiff_t a, ptrdiff_t b)
{
    if (a == b) return;
    memcpy(SUMS_CELL(sums, a), SUMS_CELL(sums, b), (size_t)(sums->bins * SUMS_STRIDE(sums)) * sizeof(double));
    sums->count[a] = sums->count[b];
}

/* An accumulator: the exact sum of any float64 numbers, as an integer in digits of 32 bits, digit q counting
 * 2^(32 q - 1075) (after Neal 2015, Fast exact summation using small and large superaccumulators). Digits are stored in
 * 64 bits, so that carries can wait. Where the numbers allow, only the digits first..first+size-1 are stored. */
#define ACCUMULATOR_DIGITS 68
#define ADDS_PER_CARRY 1024 /* numbers that are added between two carries; a digit could take 2^31 */

/* Add the 53 bits of one number to the two digits that they lie in. */
static inline void accumulator_add_one(int64_t *digit, ptrdiff_t first, double value)
{
    uint64_t bits, mantissa;
    int64_t low, high;
    ptrdiff_t exponent, q;
    memcpy(&bits, &value, 8);
    exponent = (ptrdiff_t)(bits >> 52 & 2047);
    mantissa = bits & 0xfffffffffffffULL;
    if (exponent) mantissa |= 0x10000000000000ULL;
    else exponent = 1;
    q = (exponent >> 5) - first;
    low = (int64_t)(mantissa << (exponent & 31) & 0xffffffffULL);
    high = (int64_t)(mantissa >> (32 - (exponent & 31)));
    if (bits >> 63) low = -low, high = -high;
    if (low) digit[q] += low; /* 0 is not added: that digit may lie outside of the window */
    if (high) digit[q + 1] += high;
}

/* Bring every digit but the last into 0..2^32-1. */
static inline void accumulator_carry(int64_t *digit, ptrdiff_t size)
{
    ptrdiff_t q;
    for (q = 0; q < size - 1; q++) {
        digit[q + 1] += digit[q] >> 32; /* rounds down, also below 0: a negative digit borrows from the next one */
        digit[q] = (int64_t)((uint64_t)digit[q] & 0xffffffffULL);
    }
}

/* Add n numbers to all digits of an accumulator. */
static inline void accumulator_add(int64_t *digit, const double *values, ptrdiff_t n)
{
    ptrdiff_t i, stop;
    for (i = 0; i < n;) {
        stop = i + ADDS_PER_CARRY < n ? i + ADDS_PER_CARRY : n;
        for (; i < stop; i++) accumulator_add_one(digit, 0, values[i]);
        accumulator_carry(digit, ACCUMULATOR_DIGITS);
    }
}

/* Add another accumulator. */
static inline void accumulator_merge(int64_t *digit, const int64_t *addend)
{
    ptrdiff_t q;
    for (q = 0; q < ACCUMULATOR_DIGITS; q++) digit[q] += addend[q];
    accumulator_carry(digit, ACCUMULATOR_DIGITS);
}

/* The nearest float64, at a tie the even one.  INOUT digit: carried. */
static inline double accumulator_round(int64_t *digit, ptrdiff_t first, ptrdiff_t size)
{
    ptrdiff_t q, top = size - 1;
    uint64_t lead, next, bits, rest = 0;
    int exponent, shift = 0;
    double power;
    accumulator_carry(digit, size);
    if (digit[size - 1] < 0) {
        double value;
        for (q = 0; q < size; q++) digit[q] = -digit[q];
        value = -accumulator_round(digit, first, size);
        for (q = 0; q < size; q++) digit[q] = -digit[q];
        accumulator_carry(digit, size);
        return value;
    }
    while (top > 0 && digit[top] == 0) top--;
    lead = (uint64_t)digit[top] << 32 | (top > 0 ? (uint64_t)digit[top - 1] : 0); /* no carry reaches the last digit */
    next = top > 1 ? (uint64_t)digit[top - 2] : 0;
    for (q = 0; q + 2 < top; q++) rest |= (uint64_t)digit[q];
    if (lead == 0) return 0.0;
#if defined(__GNUC__)
    shift = __builtin_clzll(lead);
    lead <<= shift;
#else
    while (!(lead >> 63)) lead <<= 1, shift++;
#endif
    lead |= next >> (32 - shift); /* shift < 32: the leading digit is not 0 */
    next = next << shift & 0xffffffffULL;
    if (next | rest) lead |= 1;
    exponent = (int)(32 * (first + top - 1) - 1075 - shift);
    if (exponent < -1022 || exponent > 1023) return ldexp((double)lead, exponent);
    bits = (uint64_t)(exponent + 1023) << 52; /* 2^exponent */
    memcpy(&power, &bits, 8);
    return (double)lead * power;
}

#endif

#else /* for each instruction set */

/* Move the pieces of a row from one cluster's cells to another one's (NULL: no cluster).  bins and d are constants where
 * this is inlined, so that the loops are unrolled. */
#define SUMS_ROW(real, name)                                                                                           \
    SV_INLINE void name(const real *SV_RESTRICT x, ptrdiff_t col, double w, const sums_t *sums,                        \
                        ptrdiff_t bins, ptrdiff_t d, double *SV_RESTRICT from, double *SV_RESTRICT to)                 \
    {                                                                                                                  \
        const double *SV_RESTRICT origin = sums->origin, *SV_RESTRICT magic = sums->magic;                             \
        ptrdiff_t j, b, stride = d + 1;                                                                                \
        if (from && to) {                                                                                              \
            for (j = 0; j < d; j++) {                                                                                  \
                double t = w * ((double)x[j * col] - origin[j]);                                                       \
                for (b = 0; b < bins; b++) {                                                                           \
                    double piece = (t + magic[b * stride + j]) - magic[b * stride + j];                                \
                    t -= piece;                                                                                        \
                    from[b * stride + j] -= piece;                                                                     \
                    to[b * stride + j] += piece;                                                                       \
                }                                                                                                      \
            }                                                                                                          \
        } else {                                                                                                       \
            double *SV_RESTRICT cell = to ? to : from;                                                                 \
            const double v = to ? w : -w;                                                                              \
            for (j = 0; j < d; j++) {                                                                                  \
                double t = v * ((double)x[j * col] - origin[j]);                                                       \
                for (b = 0; b < bins; b++) {                                                                           \
                    double piece = (t + magic[b * stride + j]) - magic[b * stride + j];                                \
                    t -= piece;                                                                                        \
                    cell[b * stride + j] += piece;                                                                     \
                }                                                                                                      \
            }                                                                                                          \
        }                                                                                                              \
    }

SUMS_ROW(float, SV_(sums_row_f))
SUMS_ROW(double, SV_(sums_row_d))

/* Move the rows at x + at[i] from cluster from[i] to cluster to[i], -1: no cluster; rows of weight 0 are skipped.
 * IN x: elements of a row are col apart; at, to, from (or NULL: -1 each), w (or NULL: 1 each): n. */
#define SUMS_MOVE(real, name, row)                                                                                     \
    static void name(const real *x, ptrdiff_t col, ptrdiff_t n, const ptrdiff_t *at, const int *from, const int *to,   \
                     const double *w, const sums_t *sums)                                                              \
    {                                                                                                                  \
        ptrdiff_t i, b, stride = SUMS_STRIDE(sums);                                                                    \
        for (i = 0; i < n; i++) {                                                                                      \
            const double wi = w ? w[i] : 1.0;                                                                          \
            const int a = from ? from[i] : -1, c = to[i];                                                              \
            const real *xi = x + at[i];                                                                                \
            double *left = a < 0 ? NULL : SUMS_CELL(sums, a), *joined = c < 0 ? NULL : SUMS_CELL(sums, c);             \
            if (wi == 0.0 || a == c) continue;                                                                         \
            if (sums->bins == 2 && col == 1 && sums->d == 2)                                                           \
                row(xi, 1, wi, sums, 2, 2, left, joined);                                                              \
            else if (sums->bins == 2 && col == 1 && sums->d == 3)                                                      \
                row(xi, 1, wi, sums, 2, 3, left, joined);                                                              \
            else if (sums->bins == 2 && col == 1)                                                                      \
                row(xi, 1, wi, sums, 2, sums->d, left, joined);                                                        \
            else if (sums->bins == 3 && col == 1)                                                                      \
                row(xi, 1, wi, sums, 3, sums->d, left, joined);                                                        \
            else                                                                                                       \
                row(xi, col, wi, sums, sums->bins, sums->d, left, joined);                                             \
            if (a >= 0) sums->count[a] -= 1.0;                                                                         \
            if (c >= 0) sums->count[c] += 1.0;                                                                         \
            if (sums->weighted) {                                                                                      \
                double t = wi;                                                                                         \
                for (b = 0; b < sums->bins; b++) {                                                                     \
                    const double magic = sums->magic[b * stride + sums->d];                                            \
                    const double piece = (t + magic) - magic;                                                          \
                    t -= piece;                                                                                        \
                    if (left) left[b * stride + sums->d] -= piece;                                                     \
                    if (joined) joined[b * stride + sums->d] += piece;                                                 \
                }                                                                                                      \
            }                                                                                                          \
        }                                                                                                              \
    }

SUMS_MOVE(float, SV_(sums_move_f), SV_(sums_row_f))
SUMS_MOVE(double, SV_(sums_move_d), SV_(sums_row_d))

/* Add a sparse row, its entries with their columns, to a cluster (w < 0: take it out). Its other entries are 0, and so
 * are their pieces: a column in which a row of positive weight has a 0 has the origin 0 (see Layout in sums.pyx). */
#define SUMS_ENTRIES(real, name)                                                                                       \
    static void name(const real *SV_RESTRICT x, const int *SV_RESTRICT column, ptrdiff_t n, double w,                  \
                     const sums_t *sums, ptrdiff_t k)                                                                  \
    {                                                                                                                  \
        const double *SV_RESTRICT origin = sums->origin, *SV_RESTRICT magic = sums->magic;                             \
        double *SV_RESTRICT cell = SUMS_CELL(sums, k);                                                                 \
        const ptrdiff_t stride = SUMS_STRIDE(sums), bins = sums->bins;                                                 \
        ptrdiff_t m, b;                                                                                                \
        double t;                                                                                                      \
        for (m = 0; m < n; m++) {                                                                                      \
            const ptrdiff_t j = column[m];                                                                             \
            t = w * ((double)x[m] - origin[j]);                                                                        \
            for (b = 0; b < bins; b++) {                                                                               \
                const double piece = (t + magic[b * stride + j]) - magic[b * stride + j];                              \
                t -= piece;                                                                                            \
                cell[b * stride + j] += piece;                                                                         \
            }                                                                                                          \
        }                                                                                                              \
        sums->count[k] += w < 0.0 ? -1.0 : 1.0;                                                                        \
        if (!sums->weighted) return;                                                                                   \
        t = w;                                                                                                         \
        for (b = 0; b < bins; b++) {                                                                                   \
            const double piece = (t + magic[b * stride + sums->d]) - magic[b * stride + sums->d];                      \
            t -= piece;                                                                                                \
            cell[b * stride + sums->d] += piece;                                                                       \
        }                                                                                                              \
    }

SUMS_ENTRIES(float, SV_(sums_entries_f))
SUMS_ENTRIES(double, SV_(sums_entries_d))

/* Of each column: the least and the greatest value; how many values are within limit of the origin but not on it.
 * INOUT low, high, count: d. */
#define SUMS_SURVEY(real, range_, small_)                                                                              \
    static void range_(const real *x, ptrdiff_t row, ptrdiff_t col, ptrdiff_t n, ptrdiff_t d, const double *w,         \
                             real *SV_RESTRICT low, real *SV_RESTRICT high)                                            \
    {                                                                                                                  \
        ptrdiff_t i, j;                                                                                                \
        for (i = 0; i < n; i++) {                                                                                      \
            const real *SV_RESTRICT xi = x + i * row;                                                                  \
            if (w && w[i] == 0.0) continue;                                                                            \
            if (col == 1) {                                                                                            \
                for (j = 0; j < d; j++) {                                                                              \
                    low[j] = xi[j] < low[j] ? xi[j] : low[j];                                                          \
                    high[j] = xi[j] > high[j] ? xi[j] : high[j];                                                       \
                }                                                                                                      \
            } else {                                                                                                   \
                for (j = 0; j < d; j++) {                                                                              \
                    low[j] = xi[j * col] < low[j] ? xi[j * col] : low[j];                                              \
                    high[j] = xi[j * col] > high[j] ? xi[j * col] : high[j];                                           \
                }                                                                                                      \
            }                                                                                                          \
        }                                                                                                              \
    }                                                                                                                  \
    static void small_(const real *x, ptrdiff_t row, ptrdiff_t col, ptrdiff_t n, ptrdiff_t d, const double *w,         \
                     const double *SV_RESTRICT origin, const double *SV_RESTRICT limit, double *SV_RESTRICT count)     \
    {                                                                                                                  \
        ptrdiff_t i, j;                                                                                                \
        for (i = 0; i < n; i++) {                                                                                      \
            const real *SV_RESTRICT xi = x + i * row;                                                                  \
            if (w && w[i] == 0.0) continue;                                                                            \
            for (j = 0; j < d; j++) {                                                                                  \
                const double t = fabs((double)xi[j * col] - origin[j]);                                                \
                count[j] += ((t < limit[j]) & (t > 0.0)) ? 1.0 : 0.0;                                                  \
            }                                                                                                          \
        }                                                                                                              \
    }

SUMS_SURVEY(float, SV_(sums_range_f), SV_(sums_small_f))
SUMS_SURVEY(double, SV_(sums_range_d), SV_(sums_small_d))

#undef SUMS_VALUE
#undef SUMS_ROW
#undef SUMS_MOVE
#undef SUMS_ENTRIES
#undef SUMS_SURVEY

#endif
