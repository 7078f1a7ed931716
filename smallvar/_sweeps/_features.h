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

#define SV_KERNELS "_features.h"
#include "_each.h"

SV_CHOOSE(sf_residual)
SV_CHOOSE(sf_dots)
SV_CHOOSE(sf_flip)
SV_CHOOSE(sf_exact)
SV_CHOOSE(sf_dot)
SV_CHOOSE(sf_axpy)
SV_CHOOSE(sf_cut)

#endif

#else /* for each instruction set */

#define SV_SINGLE 0
#include "_vector.h"
#undef SV_SINGLE

#define BLOCK 8                    /* features whose products are summed side by side; capacity is a multiple */
#define PAIR (SF_LANES / V_LANES < 2 ? 1 : 2) /* vectors of a row for which a value of A is read once */
#define AT(base, i) ((base) + (i) * SF_LANES + q) /* the vector of row i that begins with lane q */

/* r = x - z A and rr = ||r||^2.
 * IN x: d x LANES; z: k x LANES; transposed: d x capacity.  OUT r: d x LANES; rr: LANES. */
static void SV_(sf_residual)(ptrdiff_t d, ptrdiff_t k, ptrdiff_t capacity, const double *SV_RESTRICT x,
                             const double *SV_RESTRICT z, const double *SV_RESTRICT transposed, double *SV_RESTRICT r,
                             double *SV_RESTRICT rr)
{
    ptrdiff_t b, i, j, p, q;
    for (q = 0; q < SF_LANES; q += PAIR * V_LANES) {
        V sum[PAIR], part[4][PAIR];
        SV_UNROLL for (p = 0; p < PAIR; p++) sum[p] = V_SPREAD(0.0);
        for (j = 0; j + 4 <= d; j += 4) { /* independent chains hide the latency of a multiply-add */
            SV_UNROLL for (b = 0; b < 4; b++)
                SV_UNROLL for (p = 0; p < PAIR; p++) part[b][p] = V_LOAD(AT(x, j + b) + p * V_LANES);
            for (i = 0; i < k; i++) {
                SV_UNROLL for (b = 0; b < 4; b++) {
                    const V a = V_SPREAD(transposed[(j + b) * capacity + i]);
                    SV_UNROLL for (p = 0; p < PAIR; p++)
                        part[b][p] = V_MULSUB(V_LOAD(AT(z, i) + p * V_LANES), a, part[b][p]);
                }
            }
            SV_UNROLL for (p = 0; p < PAIR; p++) {
                SV_UNROLL for (b = 0; b < 4; b++) V_STORE(AT(r, j + b) + p * V_LANES, part[b][p]);
                sum[p] = V_ADD(sum[p], V_ADD(V_MULADD(part[1][p], part[1][p], V_MUL(part[0][p], part[0][p])),
                                             V_MULADD(part[3][p], part[3][p], V_MUL(part[2][p], part[2][p]))));
            }
        }
        for (; j < d; j++) {
            for (p = 0; p < PAIR; p++) {
                V last = V_LOAD(AT(x, j) + p * V_LANES);
                for (i = 0; i < k; i++)
                    last = V_MULSUB(V_LOAD(AT(z, i) + p * V_LANES), V_SPREAD(transposed[j * capacity + i]), last);
                V_STORE(AT(r, j) + p * V_LANES, last);
                sum[p] = V_MULADD(last, last, sum[p]);
            }
        }
        for (p = 0; p < PAIR; p++) V_STORE(AT(rr, 0) + p * V_LANES, sum[p]);
    }
}

/* g = A r. Entries behind the last feature, up to a multiple of BLOCK, are of no use.
 * IN r: d x LANES; transposed: d x capacity.  OUT g: capacity x LANES. */
static void SV_(sf_dots)(ptrdiff_t d, ptrdiff_t k, ptrdiff_t capacity, const double *SV_RESTRICT r,
                         const double *SV_RESTRICT transposed, double *SV_RESTRICT g)
{
    ptrdiff_t b, i, j, q;
    for (q = 0; q < SF_LANES; q += V_LANES) {
        for (i = 0; i < k; i += BLOCK) {
            V sum[BLOCK];
            SV_UNROLL for (b = 0; b < BLOCK; b++) sum[b] = V_SPREAD(0.0);
            for (j = 0; j < d; j++) {
                const V rj = V_LOAD(AT(r, j));
                SV_UNROLL for (b = 0; b < BLOCK; b++)
                    sum[b] = V_MULADD(rj, V_SPREAD(transposed[j * capacity + i + b]), sum[b]);
            }
            SV_UNROLL for (b = 0; b < BLOCK; b++) V_STORE(AT(g, i + b), sum[b]);
        }
    }
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
            const V norm = V_SPREAD(row[i]), zi = V_LOAD(AT(z, i));
            const V sign = V_MULSUB(two, zi, one);
            const V change = V_MULSUB(V_MUL(two, sign), V_LOAD(AT(g, i)), norm);
            const V cost = removal_gain ? V_MULSUB(zi, V_SPREAD(removal_gain[i]), change) : change;
            const V flip = V_PICK(V_LESS(cost, V_MUL(tie, V_ADD(norm, square))), active, zero);
            const V step = V_MUL(flip, sign);
            V_STORE(AT(z, i), V_ADD(zi, step));
            for (j = 0; j < k; j++) V_STORE(AT(g, j), V_MULSUB(step, V_SPREAD(row[j]), V_LOAD(AT(g, j))));
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
    ptrdiff_t code, i, j, p, q, step;
    for (q = 0; q < SF_LANES; q += V_LANES) {
        V here = V_SPREAD(0.0); /* -(zGz' - 2 z.c) = z.c + z.g */
        for (i = 0; i < k; i++) { /* c = A x = A r + G z' */
            const V gi = V_LOAD(AT(g, i));
            V t = gi;
            for (j = 0; j < k; j++) t = V_MULADD(V_LOAD(AT(z, j)), V_SPREAD(gram[i * capacity + j]), t);
            V_STORE(AT(twice_dots, i), V_ADD(t, t));
            here = V_MULADD(V_LOAD(AT(z, i)), V_ADD(gi, t), here);
        }
        V_STORE(AT(decrease, 0), V_SUB(V_SPREAD(0.0), here));
    }
    for (q = 0; q < SF_LANES; q += PAIR * V_LANES) { /* more vectors would not stay in registers */
        V sum[PAIR], least[PAIR], number[PAIR];
        for (p = 0; p < PAIR; p++) sum[p] = least[p] = number[p] = V_SPREAD(0.0);
        for (code = 0, step = 1; step < codes; step++) {
            const ptrdiff_t bit = flips[step];
            const V quad = V_SPREAD(quadratic[step]);
            code ^= (ptrdiff_t)1 << bit;
            /* the sign that takes 2 c_bit in or out */
            const V sign = V_SPREAD((code >> bit) & 1 ? 1.0 : -1.0), now = V_SPREAD((double)code);
            SV_UNROLL for (p = 0; p < PAIR; p++) {
                V value;
                V_MASK lower;
                sum[p] = V_MULADD(sign, V_LOAD(AT(twice_dots, bit) + p * V_LANES), sum[p]);
                value = V_SUB(quad, sum[p]);
                lower = V_LESS(value, least[p]);
                least[p] = V_LEAST(value, least[p]);
                number[p] = V_PICK(lower, now, number[p]);
            }
        }
        for (p = 0; p < PAIR; p++) {
            V_STORE(AT(best, 0) + p * V_LANES, number[p]);
            V_STORE(AT(decrease, 0) + p * V_LANES, V_SUB(V_LOAD(AT(decrease, 0) + p * V_LANES), least[p]));
        }
    }
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

/* w x cut to the pieces of the bins, see _sums.h.
 * IN x: d; magic: bins x (d + 1).  OUT piece: (bins + 1) x d, the last ones what is left. */
static void SV_(sf_cut)(ptrdiff_t d, ptrdiff_t bins, double w, const double *SV_RESTRICT x,
                        const double *SV_RESTRICT magic, double *piece)
{
    ptrdiff_t j, b;
    for (j = 0; j < d; j++) piece[j] = w * x[j];
    for (b = 0; b < bins; b++, magic += d + 1, piece += d) {
        for (j = 0; j < d; j++) {
            const double part = (piece[j] + magic[j]) - magic[j];
            piece[d + j] = piece[j] - part;
            piece[j] = part;
        }
    }
}

#undef PAIR
#undef BLOCK
#undef AT

#endif
