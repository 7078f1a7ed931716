/* Probabilities of clusters from logarithms of weights: exponentials whose sum over a row is 1.
 *
 * Plain loops, which compilers turn into vectors of every instruction set; additions are in an order of their own, four
 * sums side by side.
 */
#ifndef SV_SET

#ifndef SMALLVAR_MEMBERSHIPS_H
#define SMALLVAR_MEMBERSHIPS_H

#include <math.h>
#include "_sets.h"

#define SM_LOG2_HIGH 0.69314718036912382 /* log 2: its first bits, and the rest */
#define SM_LOG2_LOW 1.9082149292705877e-10
#define SM_SIDE 4 /* sums side by side */

#define SV_KERNELS "_memberships.h"
#include "_each.h"

SV_CHOOSE(sm_student)
SV_CHOOSE(sm_softmax)

#endif

#else /* for each instruction set */

#define SV_SINGLE 0
#include "_vector.h"
#undef SV_SINGLE

/* a b + c, fused where the set can: probabilities of other sets may differ in their last bits */
#undef SM_MULADD
#if (defined(__GNUC__) || defined(__clang__)) && (SV_SET > 2 || defined(__aarch64__))
#define SM_MULADD(a, b, c) __builtin_fma(a, b, c)
#else
#define SM_MULADD(a, b, c) ((a) * (b) + (c))
#endif

/* e^x for x <= 0, to 1e-14 of it; for less than -708 what it is for -708, 3e-308.
 * x = n log 2 + r with |r| <= log(2) / 2, e^x = 2^n (1 + r + r^2 / 2! + ... + r^11 / 11!). */
SV_INLINE double SV_(sm_exp)(double x)
{
    const double shift = 6755399441055744.0; /* 1.5 2^52: adding it rounds to whole numbers */
    double t, n, r, p, scale;
    long long bits;
    x = x < -708.0 ? -708.0 : x;
    t = SM_MULADD(x, 1.4426950408889634, shift);
    n = t - shift;
    r = SM_MULADD(n, -SM_LOG2_LOW, SM_MULADD(n, -SM_LOG2_HIGH, x));
    p = 1.0 / 39916800.0;
    p = SM_MULADD(p, r, 1.0 / 3628800.0);
    p = SM_MULADD(p, r, 1.0 / 362880.0);
    p = SM_MULADD(p, r, 1.0 / 40320.0);
    p = SM_MULADD(p, r, 1.0 / 5040.0);
    p = SM_MULADD(p, r, 1.0 / 720.0);
    p = SM_MULADD(p, r, 1.0 / 120.0);
    p = SM_MULADD(p, r, 1.0 / 24.0);
    p = SM_MULADD(p, r, 1.0 / 6.0);
    p = SM_MULADD(p, r, 0.5);
    p = SM_MULADD(p, r, 1.0);
    p = SM_MULADD(p, r, 1.0);
    memcpy(&bits, &t, 8);
    bits = (long long)((unsigned long long)(bits + 1023) << 52); /* the low bits of t are n */
    memcpy(&scale, &bits, 8);
    return p * scale;
}

/* Probabilities from logarithms of weights, in place, of n rows; those whose weights are all 0 get ``shares``.
 * INOUT table: n x k.  IN shares: k. */
static void SV_(sm_softmax)(ptrdiff_t n, ptrdiff_t k, const double *SV_RESTRICT shares, double *SV_RESTRICT table)
{
    double part[SM_SIDE], largest, total;
    ptrdiff_t i, l, m;
    for (m = 0; m < n; m++) {
        double *row = table + m * k;
        for (l = 0; l < SM_SIDE; l++) part[l] = -HUGE_VAL;
        for (i = 0; i + SM_SIDE <= k; i += SM_SIDE)
            for (l = 0; l < SM_SIDE; l++) part[l] = row[i + l] > part[l] ? row[i + l] : part[l];
        largest = part[0];
        for (l = 1; l < SM_SIDE; l++) largest = part[l] > largest ? part[l] : largest;
        for (; i < k; i++) largest = row[i] > largest ? row[i] : largest;
        if (largest > -HUGE_VAL)
            for (i = 0; i < k; i++) /* NaN, of distances beyond float64, has no weight */
                row[i] = row[i] <= largest ? row[i] - largest : -HUGE_VAL;
        else
            for (i = 0; i < k; i++) row[i] = log(shares[i]);
    }
    for (i = 0; i < n * k; i++) table[i] = SV_(sm_exp)(table[i]);
    for (m = 0; m < n; m++) {
        double *row = table + m * k;
        for (l = 0; l < SM_SIDE; l++) part[l] = 0.0;
        for (i = 0; i + SM_SIDE <= k; i += SM_SIDE)
            for (l = 0; l < SM_SIDE; l++) part[l] += row[i + l];
        total = (part[0] + part[1]) + (part[2] + part[3]);
        for (; i < k; i++) total += row[i];
        total = 1.0 / total;
        for (i = 0; i < k; i++) row[i] *= total;
    }
}

/* log x for normal numbers x > 0, to 1e-15 of it or of 1. x = 2^e m with m from sqrt(1/2) to sqrt(2),
 * log m = 2 (s + s^3 / 3 + ... + s^19 / 19), s = (m - 1) / (m + 1). */
SV_INLINE double SV_(sm_log)(double x)
{
    const unsigned long long half = 0x3fe6a09e667f3bcdULL; /* sqrt(1/2) */
    const double shift = 6755399441055744.0;
    unsigned long long bits, exponent;
    double m, s, t, p, e;
    memcpy(&bits, &x, 8);
    exponent = (bits - half) & 0xfff0000000000000ULL;
    bits -= exponent;
    memcpy(&m, &bits, 8);
    /* the exponent, a signed number of 12 bits, by way of the low bits of a large number */
    exponent = ((exponent >> 52) ^ 0x800ULL) + 0x4338000000000000ULL;
    memcpy(&e, &exponent, 8);
    e -= shift + 2048.0;
    s = (m - 1.0) / (m + 1.0);
    t = s * s;
    p = 1.0 / 19.0;
    p = SM_MULADD(p, t, 1.0 / 17.0);
    p = SM_MULADD(p, t, 1.0 / 15.0);
    p = SM_MULADD(p, t, 1.0 / 13.0);
    p = SM_MULADD(p, t, 1.0 / 11.0);
    p = SM_MULADD(p, t, 1.0 / 9.0);
    p = SM_MULADD(p, t, 1.0 / 7.0);
    p = SM_MULADD(p, t, 1.0 / 5.0);
    p = SM_MULADD(p, t, 1.0 / 3.0);
    p = p * t;
    p = SM_MULADD(p, s, s);
    return SM_MULADD(e, SM_LOG2_HIGH, SM_MULADD(e, SM_LOG2_LOW, 2.0 * p));
}

/* The same of squared distances q, for weights exp(offset_k - factor_k q) or, if power > 0,
 * exp(offset_k) (1 + factor_k q)^(-power).  IN offset, factor: k.  INOUT table: n x k. */
static void SV_(sm_student)(ptrdiff_t n, ptrdiff_t k, const double *SV_RESTRICT offset,
                            const double *SV_RESTRICT factor, double power, const double *SV_RESTRICT shares,
                            double *SV_RESTRICT table)
{
    ptrdiff_t i, m;
    if (power > 0.0) {
        for (m = 0; m < n; m++)
            for (i = 0; i < k; i++) table[m * k + i] = SM_MULADD(factor[i], table[m * k + i], 1.0);
        for (i = 0; i < n * k; i++) table[i] = table[i] < HUGE_VAL ? SV_(sm_log)(table[i]) : HUGE_VAL;
        for (m = 0; m < n; m++)
            for (i = 0; i < k; i++) table[m * k + i] = offset[i] - power * table[m * k + i];
    } else {
        for (m = 0; m < n; m++)
            for (i = 0; i < k; i++) table[m * k + i] = offset[i] - factor[i] * table[m * k + i];
    }
    SV_(sm_softmax)(n, k, shares, table);
}

#endif
