/* Template for one compute type: included by simd.h with REAL, INT, LANES, VREAL, VINT and NAME defined.
 *
 * Scores are s_k = ||c_k||^2 - 2 x.c_k, the squared distance without ||x||^2. Centres are stored times -2,
 * so a score is one chain of multiply-adds that starts from the norm. They are approximate (any contraction,
 * any vector width): callers bound the error and decide close calls in plain float64 arithmetic.
 */

#if SMALLVAR_VECTORS

#define SPREAD(value) ((VREAL){0} + (value))
#define PICK(mask, a, b) ((VREAL)(((VINT)(a) & (mask)) | ((VINT)(b) & ~(mask))))
/* Running least and second least score of every lane, and the first centre to reach the least. */
#define RANK(s, index)                                       \
    do {                                                     \
        VINT below = (s) < m1;                               \
        VREAL larger = PICK(below, m1, s);                   \
        VINT second = larger < m2;                           \
        m2 = PICK(second, larger, m2);                       \
        m1 = PICK(below, s, m1);                             \
        arg = (((VINT){0} + (INT)(index)) & below) | (arg & ~below); \
    } while (0)

/* One tile of LANES points against centres 0..k-1.
 * IN  x: d x LANES, 64-byte aligned; c: k x d, times -2; norm: k.   OUT m1, m2: LANES scores; best: LANES indices. */
SMALLVAR_CLONES
static void NAME(tile_top2)(const REAL *restrict x, ptrdiff_t d, const REAL *restrict c, const REAL *restrict norm,
                            ptrdiff_t k, REAL *restrict out1, REAL *restrict out2, int *restrict best)
{
    const VREAL *v = (const VREAL *)x;
    VREAL m1 = SPREAD(NAME(HUGE_SCORE)), m2 = m1;
    VINT arg = (VINT){0};
    ptrdiff_t i = 0, j;
    for (; i + 6 <= k; i += 6) { /* six independent chains hide the latency of a multiply-add */
        const REAL *c0 = c + i * d, *c1 = c0 + d, *c2 = c1 + d, *c3 = c2 + d, *c4 = c3 + d, *c5 = c4 + d;
        VREAL s0 = SPREAD(norm[i]), s1 = SPREAD(norm[i + 1]), s2 = SPREAD(norm[i + 2]);
        VREAL s3 = SPREAD(norm[i + 3]), s4 = SPREAD(norm[i + 4]), s5 = SPREAD(norm[i + 5]);
        for (j = 0; j < d; j++) {
            VREAL xj = v[j];
            s0 += xj * c0[j]; s1 += xj * c1[j]; s2 += xj * c2[j];
            s3 += xj * c3[j]; s4 += xj * c4[j]; s5 += xj * c5[j];
        }
        RANK(s0, i); RANK(s1, i + 1); RANK(s2, i + 2); RANK(s3, i + 3); RANK(s4, i + 4); RANK(s5, i + 5);
    }
    for (; i < k; i++) {
        VREAL s = SPREAD(norm[i]);
        for (j = 0; j < d; j++) s += v[j] * c[i * d + j];
        RANK(s, i);
    }
    for (i = 0; i < LANES; i++) { out1[i] = m1[i]; out2[i] = m2[i]; best[i] = (int)arg[i]; }
}

#undef RANK
#undef PICK
#undef SPREAD

#else

static void NAME(tile_top2)(const REAL *x, ptrdiff_t d, const REAL *c, const REAL *norm,
                            ptrdiff_t k, REAL *out1, REAL *out2, int *best)
{
    ptrdiff_t i, j, w;
    for (w = 0; w < LANES; w++) { out1[w] = NAME(HUGE_SCORE); out2[w] = NAME(HUGE_SCORE); best[w] = 0; }
    for (i = 0; i < k; i++) {
        REAL s[LANES];
        for (w = 0; w < LANES; w++) s[w] = norm[i];
        for (j = 0; j < d; j++)
            for (w = 0; w < LANES; w++) s[w] += x[j * LANES + w] * c[i * d + j];
        for (w = 0; w < LANES; w++) {
            REAL larger = s[w] < out1[w] ? out1[w] : s[w];
            out2[w] = larger < out2[w] ? larger : out2[w];
            best[w] = s[w] < out1[w] ? (int)i : best[w];
            out1[w] = s[w] < out1[w] ? s[w] : out1[w];
        }
    }
}

#endif
