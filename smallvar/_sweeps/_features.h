/* Inner loops of feature allocations: SF_LANES points side by side in the lanes of vectors.
 *
 * A tile holds SF_LANES points, value j of lane l at x[j * SF_LANES + l]; rows of Z likewise. The features A come
 * transposed, value j of feature k at transposed[j * capacity + k], so that the loop over k reads along memory.
 */
#ifndef SV_SET

#ifndef SMALLVAR_FEATURES_H
#define SMALLVAR_FEATURES_H

#include "_sets.h"

#define SF_LANES 8
#define SF_TIE 0x1p-44 /* squares that differ by no more than this share are equal */

/* Memory on a cache line's boundary, so that no vector straddles two. */
static void *sf_allocate(size_t bytes)
{
    char *raw = (char *)malloc(bytes + 64 + sizeof(void *)), *start;
    if (!raw) return NULL;
    start = raw + sizeof(void *);
    start += (64 - (size_t)start % 64) % 64;
    memcpy(start - sizeof(void *), &raw, sizeof(void *));
    return start;
}

static void sf_free(void *start)
{
    char *raw;
    if (!start) return;
    memcpy(&raw, (char *)start - sizeof(void *), sizeof(void *));
    free(raw);
}

static void sf_load_bits(ptrdiff_t k, const unsigned char *bits, double *z)
{
    ptrdiff_t i;
    for (i = 0; i < k * SF_LANES; i++) z[i] = bits[i];
}

static void sf_store_bits(ptrdiff_t k, const double *z, unsigned char *bits)
{
    ptrdiff_t i;
    for (i = 0; i < k * SF_LANES; i++) bits[i] = z[i] != 0.0;
}

#define SV_KERNELS "_features.h"
#include "_each.h"

SV_CHOOSE(sf_gather_d)
SV_CHOOSE(sf_gather_f)
SV_CHOOSE(sf_residual)
SV_CHOOSE(sf_dots)
SV_CHOOSE(sf_flip)
SV_CHOOSE(sf_exact)
SV_CHOOSE(sf_with)
SV_CHOOSE(sf_dot)
SV_CHOOSE(sf_axpy)
SV_CHOOSE(sf_largest)
SV_CHOOSE(sf_add_up)
SV_CHOOSE(sf_cut_d)
SV_CHOOSE(sf_cut_f)

#endif

#else /* for each instruction set */

#define SV_SINGLE 0
#include "_vector.h"
#undef V_TRANSPOSE
#define V_TRANSPOSE SV_(sf_transpose)
#include "_transpose.h"
#undef SV_SINGLE

/* Registers decide how many vectors of a row of lanes go through a loop together: PARTS. */
#define EACH_2(f, p) f(0, p) f(1, p)
#define EACH_3(f, p) EACH_2(f, p) f(2, p)
#define EACH_4(f, p) EACH_3(f, p) f(3, p)
#define EACH_1(f, p) f(0, p)
#define EACH_5(f, p) EACH_4(f, p) f(4, p)
#define EACH_6(f, p) EACH_5(f, p) f(5, p)
#define EACH_7(f, p) EACH_6(f, p) f(6, p)
#define EACH_8(f, p) EACH_7(f, p) f(7, p)
#if SV_SET == 4
#define PARTS 1
#define FOR_PARTS(f, b) f(b, 0)
#else
#define PARTS 2
#define FOR_PARTS(f, b) f(b, 0) f(b, 1)
#endif
#define GROUP (PARTS * V_LANES)
#define AT(base, i, p) ((base) + (i) * SF_LANES + q + (p) * V_LANES) /* part p of row i */

/* A tile from contiguous rows; returns how many of the d values of each row are in it, the caller adds the others.
 * IN x: SF_LANES rows, row elements apart.  OUT out: d x LANES. */
#define GATHER(TAKE)                                                                                           \
    ptrdiff_t j, l, m, most = d - d % V_LANES;                                                                 \
    for (j = 0; j < most; j += V_LANES) {                                                                      \
        for (l = 0; l < SF_LANES; l += V_LANES) {                                                              \
            V v[V_LANES];                                                                                      \
            SV_UNROLL for (m = 0; m < V_LANES; m++) {                                                          \
                v[m] = TAKE(x + (l + m) * row + j);                                                            \
                SV_PREFETCH(x + (SF_LANES + l + m) * row + j); /* the next tile's */                           \
            }                                                                                                  \
            V_TRANSPOSE(v);                                                                                    \
            SV_UNROLL for (m = 0; m < V_LANES; m++) V_STORE(out + (j + m) * SF_LANES + l, v[m]);               \
        }                                                                                                      \
    }                                                                                                          \
    return most;

static ptrdiff_t SV_(sf_gather_d)(const double *x, ptrdiff_t row, ptrdiff_t d, double *out) { GATHER(V_LOAD) }
static ptrdiff_t SV_(sf_gather_f)(const float *x, ptrdiff_t row, ptrdiff_t d, double *out) { GATHER(V_LOAD_SINGLE) }

/* r = x - z A and rr = ||r||^2.
 * IN x: d x LANES; z: k x LANES; transposed: d x capacity.  OUT r: d x LANES; rr: LANES. */
static void SV_(sf_residual)(ptrdiff_t d, ptrdiff_t k, ptrdiff_t capacity, const double *SV_RESTRICT x,
                             const double *SV_RESTRICT z, const double *SV_RESTRICT transposed, double *SV_RESTRICT r,
                             double *SV_RESTRICT rr)
{
    ptrdiff_t i, j, q;
#define CLEAR(_, p) V sum##p = V_SPREAD(0.0);
#define START_PART(b, p) V r##b##_##p = V_LOAD(AT(x, j + b, p));
#define START(b, _) FOR_PARTS(START_PART, b)
#define TAKE(_, p) const V z##p = V_LOAD(AT(z, i, p));
#define STEP_PART(b, p) r##b##_##p = V_MULSUB(z##p, a, r##b##_##p);
#define STEP(b, _) { const V a = V_SPREAD(transposed[(j + b) * capacity + i]); FOR_PARTS(STEP_PART, b) }
#define GIVE_PART(b, p) V_STORE(AT(r, j + b, p), r##b##_##p);
#define GIVE(b, _) FOR_PARTS(GIVE_PART, b)
#define SUM(_, p)                                                                                      \
    sum##p = V_ADD(sum##p, V_ADD(V_MULADD(r1_##p, r1_##p, V_MUL(r0_##p, r0_##p)),                      \
                                 V_MULADD(r3_##p, r3_##p, V_MUL(r2_##p, r2_##p))));
#define SUM_ONE(_, p) sum##p = V_MULADD(r0_##p, r0_##p, sum##p);
#define END(_, p) V_STORE(AT(rr, 0, p), sum##p);
    for (q = 0; q < SF_LANES; q += GROUP) {
        FOR_PARTS(CLEAR, 0)
        for (j = 0; j + 4 <= d; j += 4) { /* independent chains hide the latency of a multiply-add */
            EACH_4(START, 0)
            for (i = 0; i < k; i++) { FOR_PARTS(TAKE, 0) EACH_4(STEP, 0) }
            EACH_4(GIVE, 0)
            FOR_PARTS(SUM, 0)
        }
        for (; j < d; j++) {
            START(0, 0)
            for (i = 0; i < k; i++) { FOR_PARTS(TAKE, 0) STEP(0, 0) }
            GIVE(0, 0)
            FOR_PARTS(SUM_ONE, 0)
        }
        FOR_PARTS(END, 0)
    }
#undef CLEAR
#undef START_PART
#undef START
#undef TAKE
#undef STEP_PART
#undef STEP
#undef GIVE_PART
#undef GIVE
#undef SUM
#undef SUM_ONE
#undef END
}

/* g = A r, in two chains for each feature: parts, or even and odd j.
 * IN r: d x LANES; transposed: d x capacity.  OUT g: k x LANES. */
static void SV_(sf_dots)(ptrdiff_t d, ptrdiff_t k, ptrdiff_t capacity, const double *SV_RESTRICT r,
                         const double *SV_RESTRICT transposed, double *SV_RESTRICT g)
{
    ptrdiff_t i, j, q;
#define START(b, _) V s##b##_0 = V_SPREAD(0.0), s##b##_1 = s##b##_0;
#if PARTS == 1
#define MOST 8
#define STEP_0(b, _) s##b##_0 = V_MULADD(r0, V_SPREAD(transposed[j * capacity + i + b]), s##b##_0);
#define STEP_1(b, _) s##b##_1 = V_MULADD(r1, V_SPREAD(transposed[(j + 1) * capacity + i + b]), s##b##_1);
#define GIVE(b, _) V_STORE(AT(g, i + b, 0), V_ADD(s##b##_0, s##b##_1));
#define DOTS(U)                                                                      \
    {                                                                                \
        EACH_##U(START, 0)                                                           \
        for (j = 0; j + 2 <= d; j += 2) {                                            \
            const V r0 = V_LOAD(AT(r, j, 0)), r1 = V_LOAD(AT(r, j + 1, 0));          \
            EACH_##U(STEP_0, 0)                                                      \
            EACH_##U(STEP_1, 0)                                                      \
        }                                                                            \
        if (j < d) { const V r0 = V_LOAD(AT(r, j, 0)); EACH_##U(STEP_0, 0) }         \
        EACH_##U(GIVE, 0)                                                            \
    }
#else
#define MOST 6
#define STEP(b, _)                                              \
    {                                                           \
        const V a = V_SPREAD(transposed[j * capacity + i + b]); \
        s##b##_0 = V_MULADD(r0, a, s##b##_0);                   \
        s##b##_1 = V_MULADD(r1, a, s##b##_1);                   \
    }
#define GIVE(b, _) V_STORE(AT(g, i + b, 0), s##b##_0); V_STORE(AT(g, i + b, 1), s##b##_1);
#define DOTS(U)                                                                 \
    {                                                                           \
        EACH_##U(START, 0)                                                      \
        for (j = 0; j < d; j++) {                                               \
            const V r0 = V_LOAD(AT(r, j, 0)), r1 = V_LOAD(AT(r, j, 1));         \
            EACH_##U(STEP, 0)                                                   \
        }                                                                       \
        EACH_##U(GIVE, 0)                                                       \
    }
#endif
    for (q = 0; q < SF_LANES; q += GROUP) {
        for (i = 0; i + MOST <= k; i += MOST)
#if MOST == 8
            DOTS(8)
#else
            DOTS(6)
#endif
        switch (k - i) {
#if MOST == 8
        case 7: DOTS(7) break;
        case 6: DOTS(6) break;
#endif
        case 5: DOTS(5) break;
        case 4: DOTS(4) break;
        case 3: DOTS(3) break;
        case 2: DOTS(2) break;
        case 1: DOTS(1) break;
        }
    }
#undef START
#undef MOST
#undef STEP
#undef STEP_0
#undef STEP_1
#undef GIVE
#undef DOTS
}

/* Coordinate steps (Broderick, Kulis & Jordan 2013, eq. 6): for each k in turn, flip z_k where that lowers
 * ||x - z A||^2, less the removal gain of a feature that would lose its last user. A flip changes ||x - z A||^2 by
 * ||a_k||^2 - 2 s r.a_k with s = 1 - 2 z_k, and r.a_j by -s a_k.a_j for all j.
 * IN gram: A A', k x capacity; removed: k, features to leave as they are; removal_gain: k, or NULL; mask: lanes to
 * visit.  INOUT z, g: k x LANES; rr: LANES.
 * OUT flipped: LANES, sums of the squared norms of the features flipped: rounding in rr is relative to these.
 * Returns the lanes that changed. */
static int SV_(sf_flip)(ptrdiff_t k, ptrdiff_t capacity, const double *SV_RESTRICT gram,
                        const unsigned char *SV_RESTRICT removed, const double *SV_RESTRICT removal_gain, int mask,
                        double *SV_RESTRICT z, double *SV_RESTRICT g, double *SV_RESTRICT rr,
                        double *SV_RESTRICT flipped)
{
    const V zero = V_SPREAD(0.0), one = V_SPREAD(1.0), two = V_SPREAD(2.0), tie = V_SPREAD(-SF_TIE);
    double visit[SF_LANES], n_flipped[SF_LANES];
    ptrdiff_t i, j, l, q;
    int changed = 0;
    for (l = 0; l < SF_LANES; l++) visit[l] = (double)((mask >> l) & 1);
    for (q = 0; q < SF_LANES; q += V_LANES) {
        const V active = V_LOAD(visit + q);
        V square = V_LOAD(rr + q), norms = zero, flips = zero;
        for (i = 0; i < k; i++) {
            if (removed[i]) continue; /* its norm is 0, and rounding could make that a gain */
            const double *row = gram + i * capacity;
            const V norm = V_SPREAD(row[i]), zi = V_LOAD(AT(z, i, 0));
            const V sign = V_MULSUB(two, zi, one);
            const V change = V_MULSUB(V_MUL(two, sign), V_LOAD(AT(g, i, 0)), norm);
            const V cost = removal_gain ? V_MULSUB(zi, V_SPREAD(removal_gain[i]), change) : change;
            const V flip = V_PICK(V_LESS(cost, V_MUL(tie, V_ADD(norm, square))), active, zero);
            const V step = V_MUL(flip, sign);
            V_STORE(AT(z, i, 0), V_ADD(zi, step));
            for (j = 0; j < k; j++) V_STORE(AT(g, j, 0), V_MULSUB(step, V_SPREAD(row[j]), V_LOAD(AT(g, j, 0))));
            square = V_MULADD(flip, change, square);
            norms = V_MULADD(flip, norm, norms);
            flips = V_ADD(flips, flip);
        }
        V_STORE(rr + q, square);
        V_STORE(flipped + q, norms);
        V_STORE(n_flipped + q, flips);
    }
    for (l = 0; l < SF_LANES; l++) changed |= (n_flipped[l] != 0.0) << l;
    return changed;
}

/* The best of all 2^k rows, in Gray code: ||x - z A||^2 = ||x||^2 - 2 z.c + z G z', c = A x.
 * IN quadratic: 2^k, z G z' in Gray order; flips: 2^k, the bit that each step flips; z, g: k x LANES.
 * OUT twice_dots: k x LANES, 2 c; best: LANES, codes as doubles; decrease: LANES, how much lower the best row is
 * than z. */
static void SV_(sf_exact)(ptrdiff_t k, ptrdiff_t capacity, const double *SV_RESTRICT gram,
                          const double *SV_RESTRICT quadratic, const int *SV_RESTRICT flips,
                          const double *SV_RESTRICT z, const double *SV_RESTRICT g, double *SV_RESTRICT twice_dots,
                          double *SV_RESTRICT best, double *SV_RESTRICT decrease)
{
    const ptrdiff_t codes = (ptrdiff_t)1 << k;
    ptrdiff_t i, j, q, step;
#define START(_, p) V sum##p = V_SPREAD(0.0), least##p = sum##p, arg##p = sum##p;
#define TAKE(_, p) const V c##p = V_LOAD(AT(twice_dots, bit, p));
#define GROW(_, p) sum##p = V_ADD(sum##p, c##p);
#define SHRINK(_, p) sum##p = V_SUB(sum##p, c##p);
#define TRY(_, p)                                              \
    {                                                          \
        const V value = V_SUB(quad, sum##p);                   \
        const V_MASK lower = V_LESS(value, least##p);          \
        least##p = V_LEAST(value, least##p);                   \
        arg##p = V_PICK(lower, now, arg##p);                   \
    }
#define END(_, p)                                                                     \
    V_STORE(AT(best, 0, p), arg##p);                                                  \
    V_STORE(AT(decrease, 0, p), V_SUB(V_LOAD(AT(decrease, 0, p)), least##p));
    for (q = 0; q < SF_LANES; q += V_LANES) {
        V here = V_SPREAD(0.0); /* -(zGz' - 2 z.c) = z.c + z.g */
        for (i = 0; i < k; i++) { /* c = A x = A r + G z' */
            const V gi = V_LOAD(AT(g, i, 0));
            V t = gi;
            for (j = 0; j < k; j++) t = V_MULADD(V_LOAD(AT(z, j, 0)), V_SPREAD(gram[i * capacity + j]), t);
            V_STORE(AT(twice_dots, i, 0), V_ADD(t, t));
            here = V_MULADD(V_LOAD(AT(z, i, 0)), V_ADD(gi, t), here);
        }
        V_STORE(AT(decrease, 0, 0), V_SUB(V_SPREAD(0.0), here));
    }
    for (q = 0; q < SF_LANES; q += GROUP) {
        ptrdiff_t code = 0;
        FOR_PARTS(START, 0)
        for (step = 1; step < codes; step++) {
            const int bit = flips[step];
            const V quad = V_SPREAD(quadratic[step]);
            V now;
            FOR_PARTS(TAKE, 0)
            code ^= (ptrdiff_t)1 << bit;
            now = V_SPREAD((double)code);
            if ((code >> bit) & 1) { FOR_PARTS(GROW, 0) } else { FOR_PARTS(SHRINK, 0) }
            FOR_PARTS(TRY, 0)
        }
        FOR_PARTS(END, 0)
    }
#undef START
#undef TAKE
#undef GROW
#undef SHRINK
#undef TRY
#undef END
}

/* What a new feature f does: rf = ||r - f||^2.  IN r: d x LANES; f: d.  OUT rf: LANES. */
static void SV_(sf_with)(ptrdiff_t d, const double *SV_RESTRICT r, const double *SV_RESTRICT f, double *SV_RESTRICT rf)
{
    ptrdiff_t j, q;
#define START(b, _) V s##b = V_SPREAD(0.0);
#define STEP(b, _)                                                             \
    {                                                                          \
        const V t = V_SUB(V_LOAD(AT(r, j + b, 0)), V_SPREAD(f[j + b]));        \
        s##b = V_MULADD(t, t, s##b);                                           \
    }
    for (q = 0; q < SF_LANES; q += V_LANES) {
        EACH_4(START, 0)
        for (j = 0; j + 4 <= d; j += 4) { EACH_4(STEP, 0) }
        for (; j < d; j++) STEP(0, 0)
        V_STORE(AT(rf, 0, 0), V_ADD(V_ADD(s0, s1), V_ADD(s2, s3)));
    }
#undef START
#undef STEP
}

static double SV_(sf_dot)(ptrdiff_t d, const double *SV_RESTRICT a, const double *SV_RESTRICT b)
{
    V s0 = V_SPREAD(0.0), s1 = s0, s2 = s0, s3 = s0;
    double part[V_LANES], s = 0.0;
    ptrdiff_t j, l;
    for (j = 0; j + 4 * V_LANES <= d; j += 4 * V_LANES) {
        s0 = V_MULADD(V_LOAD(a + j), V_LOAD(b + j), s0);
        s1 = V_MULADD(V_LOAD(a + j + V_LANES), V_LOAD(b + j + V_LANES), s1);
        s2 = V_MULADD(V_LOAD(a + j + 2 * V_LANES), V_LOAD(b + j + 2 * V_LANES), s2);
        s3 = V_MULADD(V_LOAD(a + j + 3 * V_LANES), V_LOAD(b + j + 3 * V_LANES), s3);
    }
    for (; j + V_LANES <= d; j += V_LANES) s0 = V_MULADD(V_LOAD(a + j), V_LOAD(b + j), s0);
    V_STORE(part, V_ADD(V_ADD(s0, s1), V_ADD(s2, s3)));
    for (; j < d; j++) s += a[j] * b[j];
    for (l = 0; l < V_LANES; l++) s += part[l];
    return s;
}

/* y += s x */
static void SV_(sf_axpy)(ptrdiff_t d, double s, const double *SV_RESTRICT x, double *SV_RESTRICT y)
{
    const V factor = V_SPREAD(s);
    ptrdiff_t j;
    for (j = 0; j + V_LANES <= d; j += V_LANES) V_STORE(y + j, V_MULADD(factor, V_LOAD(x + j), V_LOAD(y + j)));
    for (; j < d; j++) y[j] += s * x[j];
}

/* The largest of w a.  IN a, w (or NULL: 1 each): n, >= 0. */
static double SV_(sf_largest)(ptrdiff_t n, const double *SV_RESTRICT a, const double *SV_RESTRICT w)
{
    double top[SF_LANES] = {0.0}, largest = 0.0;
    ptrdiff_t i = 0, l;
    for (; i + SF_LANES <= n; i += SF_LANES) {
        for (l = 0; l < SF_LANES; l++) {
            const double t = w ? w[i + l] * a[i + l] : a[i + l];
            top[l] = t > top[l] ? t : top[l];
        }
    }
    for (; i < n; i++) {
        const double t = w ? w[i] * a[i] : a[i];
        largest = t > largest ? t : largest;
    }
    for (l = 0; l < SF_LANES; l++) largest = top[l] > largest ? top[l] : largest;
    return largest;
}

/* w a cut to the pieces of three bins and added to their sums, exactly, see _sums.h.  INOUT sum: 3. */
static void SV_(sf_add_up)(ptrdiff_t n, const double *SV_RESTRICT a, const double *SV_RESTRICT w,
                           const double *SV_RESTRICT magic, double *SV_RESTRICT sum)
{
    const V m0 = V_SPREAD(magic[0]), m1 = V_SPREAD(magic[1]), m2 = V_SPREAD(magic[2]);
    V s0 = V_SPREAD(0.0), s1 = s0, s2 = s0, t, piece;
    double part[3][V_LANES];
    ptrdiff_t i = 0, l;
    for (; i + V_LANES <= n; i += V_LANES) {
        t = V_LOAD(a + i);
        if (w) t = V_MUL(V_LOAD(w + i), t);
        piece = V_SUB(V_ADD(t, m0), m0);
        s0 = V_ADD(s0, piece);
        t = V_SUB(t, piece);
        piece = V_SUB(V_ADD(t, m1), m1);
        s1 = V_ADD(s1, piece);
        t = V_SUB(t, piece);
        s2 = V_ADD(s2, V_SUB(V_ADD(t, m2), m2));
    }
    V_STORE(part[0], s0);
    V_STORE(part[1], s1);
    V_STORE(part[2], s2);
    for (l = 0; l < V_LANES; l++) {
        sum[0] += part[0][l];
        sum[1] += part[1][l];
        sum[2] += part[2][l];
    }
    for (; i < n; i++) {
        const double x = w ? w[i] * a[i] : a[i], p0 = (x + magic[0]) - magic[0];
        const double p1 = ((x - p0) + magic[1]) - magic[1];
        sum[0] += p0;
        sum[1] += p1;
        sum[2] += ((x - p0 - p1) + magic[2]) - magic[2];
    }
}

/* w x cut to the pieces of the bins, see _sums.h.  IN x: d, col apart; magic: bins x (d + 1).  OUT piece: bins x d. */
#define SF_CUT(real, name)                                                                                             \
    static void name(ptrdiff_t d, ptrdiff_t bins, double w, const real *SV_RESTRICT x, ptrdiff_t col,                  \
                     const double *SV_RESTRICT magic, double *SV_RESTRICT piece)                                       \
    {                                                                                                                  \
        ptrdiff_t j, b;                                                                                                \
        if (bins == 2 && col == 1) {                                                                                   \
            for (j = 0; j < d; j++) {                                                                                  \
                const double t = w * (double)x[j], first = (t + magic[j]) - magic[j];                                  \
                piece[j] = first;                                                                                      \
                piece[d + j] = ((t - first) + magic[d + 1 + j]) - magic[d + 1 + j];                                    \
            }                                                                                                          \
            return;                                                                                                    \
        }                                                                                                              \
        for (j = 0; j < d; j++) {                                                                                      \
            double t = w * (double)x[j * col];                                                                         \
            for (b = 0; b < bins; b++) {                                                                               \
                const double m = magic[b * (d + 1) + j], part = (t + m) - m;                                           \
                t -= part;                                                                                             \
                piece[b * d + j] = part;                                                                               \
            }                                                                                                          \
        }                                                                                                              \
    }

SF_CUT(float, SV_(sf_cut_f))
SF_CUT(double, SV_(sf_cut_d))

#undef SF_CUT
#undef EACH_1
#undef EACH_2
#undef EACH_3
#undef EACH_4
#undef EACH_5
#undef EACH_6
#undef EACH_7
#undef EACH_8
#undef PARTS
#undef FOR_PARTS
#undef GROUP
#undef AT
#undef GATHER

#endif
