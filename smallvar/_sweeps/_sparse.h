/* Inner loops for sparse rows: approximate distances to all centers, and exact distances of eight rows at a time. */
#ifndef SV_SET

#ifndef SMALLVAR_SPARSE_H
#define SMALLVAR_SPARSE_H

#include "_sets.h"

enum {
    CSR_PAD = 16,   /* the table and the norms have so many numbers more than centers: vectors may reach beyond */
    CSR_LANES = 8,  /* rows side by side in a tile of exact distances */
    CSR_AHEAD = 6  /* entries that rows of the table are fetched ahead */
};
#define CSR_HUGE 1e30 /* above every real distance, as in simd.h */

#define SV_KERNELS "_sparse.h"
#include "_each.h"

SV_CHOOSE(csr_distances_ff)
SV_CHOOSE(csr_distances_fd)
SV_CHOOSE(csr_distances_df)
SV_CHOOSE(csr_distances_dd)
SV_CHOOSE(csr_least_f)
SV_CHOOSE(csr_least_d)
SV_CHOOSE(csr_tile)

#endif

#else /* for each instruction set */

/* out[k] = norm[k] + sum_m x_m scale table[column_m, k]: a piece of PIECES vectors of centers, held in registers. */
#define CSR_PIECE(X, name)                                                                                             \
    SV_INLINE void name(const int pieces, const X *SV_RESTRICT x, const int *SV_RESTRICT column, ptrdiff_t n,          \
                        double scale, const V_REAL *SV_RESTRICT table, ptrdiff_t stride,                               \
                        const V_REAL *SV_RESTRICT norm, V_REAL *SV_RESTRICT out)                                       \
    {                                                                                                                  \
        V sum[8];                                                                                                      \
        ptrdiff_t m;                                                                                                   \
        int q;                                                                                                         \
        SV_UNROLL                                                                                                      \
        for (q = 0; q < pieces; q++) sum[q] = V_LOAD(norm + q * V_LANES);                                              \
        for (m = 0; m < n; m++) {                                                                                      \
            const V_REAL *row = table + column[m] * stride;                                                            \
            const V factor = V_SPREAD((V_REAL)((double)x[m] * scale));                                                 \
            const V_REAL *next = table + column[m + CSR_AHEAD < n ? m + CSR_AHEAD : n - 1] * stride;                   \
            SV_UNROLL                                                                                                  \
            for (q = 0; q < pieces; q++) {                                                                             \
                if ((size_t)(q * V_LANES) * sizeof(V_REAL) % 64 == 0) SV_PREFETCH(next + q * V_LANES);                  \
                sum[q] = V_MULADD(factor, V_LOAD(row + q * V_LANES), sum[q]);                                          \
            }                                                                                                          \
        }                                                                                                              \
        SV_UNROLL                                                                                                      \
        for (q = 0; q < pieces; q++) V_STORE(out + q * V_LANES, sum[q]);                                               \
    }

/* The same for k centers. IN x, column: n entries; table: rows of ``stride``, one a column; norm: k, and CSR_PAD more.
 * OUT out: k, and CSR_PAD more. */
#define CSR_DISTANCES(X, name, piece)                                                                                  \
    static void name(const X *x, const int *column, ptrdiff_t n, double scale, const V_REAL *table, ptrdiff_t stride,  \
                     const V_REAL *norm, ptrdiff_t k, V_REAL *out)                                                     \
    {                                                                                                                  \
        ptrdiff_t done = 0;                                                                                            \
        for (; k - done > 7 * V_LANES; done += 8 * V_LANES)                                                            \
            piece(8, x, column, n, scale, table + done, stride, norm + done, out + done);                              \
        switch ((k - done + V_LANES - 1) / V_LANES) {                                                                  \
        case 7: piece(7, x, column, n, scale, table + done, stride, norm + done, out + done); break;                   \
        case 6: piece(6, x, column, n, scale, table + done, stride, norm + done, out + done); break;                   \
        case 5: piece(5, x, column, n, scale, table + done, stride, norm + done, out + done); break;                   \
        case 4: piece(4, x, column, n, scale, table + done, stride, norm + done, out + done); break;                   \
        case 3: piece(3, x, column, n, scale, table + done, stride, norm + done, out + done); break;                   \
        case 2: piece(2, x, column, n, scale, table + done, stride, norm + done, out + done); break;                   \
        case 1: piece(1, x, column, n, scale, table + done, stride, norm + done, out + done); break;                   \
        default: break;                                                                                                \
        }                                                                                                              \
    }

/* Least and second least of k distances, and the first that has the least.
 * INOUT distance: k, and CSR_PAD more, which are overwritten.  OUT least: 2. */
#define CSR_LEAST(name)                                                                                                \
    static int name(V_REAL *distance, ptrdiff_t k, double *least)                                                      \
    {                                                                                                                  \
        V first = V_SPREAD((V_REAL)CSR_HUGE), second = first;                                                          \
        V_REAL firsts[64], seconds[64];                                                                                \
        ptrdiff_t i;                                                                                                   \
        double a = CSR_HUGE, b = CSR_HUGE;                                                                             \
        for (i = 0; i < CSR_PAD; i++) distance[k + i] = (V_REAL)CSR_HUGE;                                              \
        for (i = 0; i < k; i += V_LANES) {                                                                             \
            const V s = V_LOAD(distance + i);                                                                          \
            second = V_LEAST(second, V_MOST(first, s));                                                                \
            first = V_LEAST(first, s);                                                                                 \
        }                                                                                                              \
        V_STORE(firsts, first);                                                                                        \
        V_STORE(seconds, second);                                                                                      \
        for (i = 0; i < V_LANES; i++) {                                                                                \
            if (firsts[i] < a) {                                                                                       \
                b = a < seconds[i] ? a : seconds[i];                                                                   \
                a = firsts[i];                                                                                         \
            } else if (firsts[i] < b) {                                                                                \
                b = firsts[i];                                                                                         \
            }                                                                                                          \
        }                                                                                                              \
        least[0] = a;                                                                                                  \
        least[1] = b;                                                                                                  \
        for (i = 0; i < k; i++)                                                                                        \
            if (distance[i] <= a) return (int)i;                                                                       \
        return 0;                                                                                                      \
    }

#define SV_SINGLE 1
#include "_vector.h"
CSR_PIECE(float, SV_(csr_piece_ff))
CSR_PIECE(double, SV_(csr_piece_df))
CSR_DISTANCES(float, SV_(csr_distances_ff), SV_(csr_piece_ff))
CSR_DISTANCES(double, SV_(csr_distances_df), SV_(csr_piece_df))
CSR_LEAST(SV_(csr_least_f))
#undef SV_SINGLE

#define SV_SINGLE 0
#include "_vector.h"
CSR_PIECE(float, SV_(csr_piece_fd))
CSR_PIECE(double, SV_(csr_piece_dd))
CSR_DISTANCES(float, SV_(csr_distances_fd), SV_(csr_piece_fd))
CSR_DISTANCES(double, SV_(csr_distances_dd), SV_(csr_piece_dd))
CSR_LEAST(SV_(csr_least_d))

/* Exact distances of CSR_LANES rows from one center: column by column, rounded as squared_distance is.
 * IN tile: element j of row m at [j * CSR_LANES + m]; c: d.  OUT out: CSR_LANES. */
static void SV_(csr_tile)(const double *SV_RESTRICT tile, const double *SV_RESTRICT c, ptrdiff_t d, double *out)
{
    V sum[CSR_LANES];
    ptrdiff_t j;
    int q;
    SV_UNROLL
    for (q = 0; q < CSR_LANES / V_LANES; q++) sum[q] = V_SPREAD(0.0);
    for (j = 0; j < d; j++) {
        const V center = V_SPREAD(c[j]);
        SV_UNROLL
        for (q = 0; q < CSR_LANES / V_LANES; q++) {
            const V t = V_SUB(V_LOAD(tile + j * CSR_LANES + q * V_LANES), center);
            sum[q] = V_ADD(sum[q], V_MUL(t, t));
        }
    }
    SV_UNROLL
    for (q = 0; q < CSR_LANES / V_LANES; q++) V_STORE(out + q * V_LANES, sum[q]);
}
#undef SV_SINGLE

#undef CSR_PIECE
#undef CSR_DISTANCES
#undef CSR_LEAST

#endif
