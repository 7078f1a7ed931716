/* All kernels of smallvar in one file, for tools/kernels.py and asv_bench/simd.py: exported, so that they are kept and
 * can be called, and a program that compares every one with the plain loop it stands for.
 */
#include <math.h>
#include <stdio.h>

#include "simd.h"
#include "_exact.h"
#include "_features.h"

#if defined(_WIN32)
#define EXPORT __declspec(dllexport)
#else
#define EXPORT __attribute__((visibility("default")))
#endif

EXPORT const char *set_name(void);
EXPORT const char *set_name(void) { return sv_set_name(); }

/* Loops around the kernels whose throughput is measured. */
#define TIMES(name, parameters, arguments) \
    EXPORT void times_##name parameters;   \
    EXPORT void times_##name parameters { while (times--) name arguments; }
TIMES(tile_top2_f, (long times, const float *x, ptrdiff_t d, const float *c, const float *norm, ptrdiff_t k, float *m1,
                    float *m2, int *best), (x, d, c, norm, 0, k, 0, m1, m2, best))
TIMES(tile_top2_d, (long times, const double *x, ptrdiff_t d, const double *c, const double *norm, ptrdiff_t k,
                    double *m1, double *m2, int *best), (x, d, c, norm, 0, k, 0, m1, m2, best))
TIMES(sc_squares, (long times, const double *x, ptrdiff_t d, const double *columns, ptrdiff_t room, ptrdiff_t k,
                   double *cost), (x, d, columns, room, k, cost))
TIMES(sv_assigned_distances_f, (long times, ptrdiff_t n, const float *const *rows, const int *z, const double *c,
                           ptrdiff_t d, double *out), (n, rows, z, c, d, out))
TIMES(sv_assigned_distances_d, (long times, ptrdiff_t n, const double *const *rows, const int *z, const double *c,
                           ptrdiff_t d, double *out), (n, rows, z, c, d, out))
TIMES(sv_gather_ff, (long times, const float *const *rows, ptrdiff_t d, const double *shift, double scale,
                     float *block, double *squares), (rows, d, shift, scale, block, squares))
TIMES(sv_gather_dd, (long times, const double *const *rows, ptrdiff_t d, const double *shift, double scale,
                     double *block, double *squares), (rows, d, shift, scale, block, squares))
TIMES(sf_residual, (long times, ptrdiff_t d, ptrdiff_t k, ptrdiff_t room, const double *x, const double *z,
                    const double *at, double *r, double *rr), (d, k, room, x, z, at, r, rr))
TIMES(sf_dots, (long times, ptrdiff_t d, ptrdiff_t k, ptrdiff_t room, const double *r, const double *at, double *g),
      (d, k, room, r, at, g))

/* ---- the comparison */

enum { D = 37, K = 36, ROOM = 40, ROWS = 20, CODES = 1 << 5 };

static int wrong = 0;

static void check(const char *name, double got, double expected, double tolerance)
{
    if (!(fabs(got - expected) <= tolerance * (1.0 + fabs(expected)))) {
        if (wrong++ < 20) printf("%s: %.17g, expected %.17g\n", name, got, expected);
    }
}

static unsigned long long state = 1;
static double draw(void) /* in [-1, 1) */
{
    state = state * 6364136223846793005ULL + 1442695040888963407ULL;
    return (double)(long long)(state >> 11) / 4503599627370496.0 - 1.0;
}

/* Where value j of center i is. */
#define AT(i, j) ((i) / SV_PANEL * SV_PANEL * d + (j) * SV_PANEL + (i) % SV_PANEL)

#define CHECK_TILE(REAL, T, LANES, TOLERANCE)                                                       \
    static void check_tile_##T(ptrdiff_t d, ptrdiff_t k)                                            \
    {                                                                                               \
        REAL x[D * LANES], c[K * D], norm[K], m1[LANES], m2[LANES], scores[K * LANES];              \
        int best[16];                                                                               \
        ptrdiff_t i, j, l;                                                                          \
        for (i = 0; i < d * LANES; i++) x[i] = (REAL)draw();                                        \
        for (i = 0; i < k; i++) {                                                                   \
            double s = 0.0;                                                                         \
            for (j = 0; j < d; j++) {                                                               \
                const double t = draw();                                                            \
                s += t * t;                                                                         \
                c[AT(i, j)] = (REAL)(-2.0 * t);                                                    \
            }                                                                                       \
            norm[i] = (REAL)s;                                                                      \
        }                                                                                           \
        if (k > 3) { /* a tie: the first counts */                                                  \
            for (j = 0; j < d; j++) c[AT(k - 1, j)] = c[AT(1, j)];                                  \
            norm[k - 1] = norm[1];                                                                  \
        }                                                                                           \
        tile_distances_##T(x, d, c, norm, 0, k, scores);                                            \
        tile_top2_##T(x, d, c, norm, 0, k / 2, 0, m1, m2, best);                                    \
        if (k / 2 < k) /* the others later */                                                       \
            tile_top2_##T(x, d, c, norm, k / 2, k, 1, m1, m2, best);                                \
        for (l = 0; l < LANES; l++) {                                                               \
            double least = 1e30, second = 1e30;                                                     \
            ptrdiff_t arg = 0;                                                                      \
            for (i = 0; i < k; i++) {                                                               \
                double s = norm[i];                                                                 \
                for (j = 0; j < d; j++) s += (double)x[j * LANES + l] * c[AT(i, j)];                \
                check("tile_distances_" #T, scores[i * LANES + l], s, TOLERANCE);                   \
                if (s < least) { second = least; least = s; arg = i; }                              \
                else if (s < second) second = s;                                                    \
            }                                                                                       \
            check("tile_top2_" #T " least", m1[l], least, TOLERANCE);                               \
            check("tile_top2_" #T " second", m2[l], second, TOLERANCE);                             \
            if (second - least > 100 * TOLERANCE || second == least)                                \
                check("tile_top2_" #T " best", best[l], (double)arg, 0.0);                          \
        }                                                                                           \
    }
CHECK_TILE(float, f, 16, 1e-5)
CHECK_TILE(double, d, 8, 1e-13)

#define CHECK_ROWS(REAL, T)                                                                              \
    static void check_rows_##T(ptrdiff_t d)                                                              \
    {                                                                                                    \
        REAL data[ROWS * D];                                                                             \
        const REAL *rows[ROWS];                                                                          \
        double c[K * D], out[ROWS], shift[D], squares[16], wide[D * 8];                                  \
        float narrow[D * 16];                                                                            \
        int z[ROWS];                                                                                     \
        volatile ptrdiff_t n = ROWS; /* gcc warns of a loop over a constant number of rows */            \
        ptrdiff_t i, j;                                                                                  \
        for (i = 0; i < ROWS * D; i++) data[i] = (REAL)draw();                                           \
        for (i = 0; i < K * d; i++) c[i] = draw();                                                       \
        for (j = 0; j < d; j++) shift[j] = draw();                                                       \
        for (i = 0; i < ROWS; i++) { rows[i] = data + i * D; z[i] = (int)((i * 7) % K); }                \
        sv_assigned_distances_##T(n, rows, z, c, d, out);                                                \
        for (i = 0; i < ROWS; i++) {                                                                     \
            double s = 0.0;                                                                              \
            for (j = 0; j < d; j++) s += (rows[i][j] - c[z[i] * d + j]) * (rows[i][j] - c[z[i] * d + j]); \
            check("sv_assigned_distances_" #T, out[i], s, 1e-14);                                        \
        }                                                                                                \
        sv_gather_##T##f(rows, d, shift, 0.25, narrow, squares);                                         \
        for (i = 0; i < 16; i++) {                                                                       \
            double s = 0.0;                                                                              \
            for (j = 0; j < d; j++) {                                                                    \
                const double t = ((double)rows[i][j] - shift[j]) * 0.25;                                 \
                s += t * t;                                                                              \
                check("sv_gather_" #T "f", narrow[j * 16 + i], (float)t, 0.0);                           \
            }                                                                                            \
            check("sv_gather_" #T "f squares", squares[i], s, 0.0);                                      \
        }                                                                                                \
        sv_gather_##T##d(rows, d, shift, 0.25, wide, squares);                                           \
        for (i = 0; i < 8; i++) {                                                                        \
            double s = 0.0;                                                                              \
            for (j = 0; j < d; j++) {                                                                    \
                const double t = ((double)rows[i][j] - shift[j]) * 0.25;                                 \
                s += t * t;                                                                              \
                check("sv_gather_" #T "d", wide[j * 8 + i], t, 0.0);                                     \
            }                                                                                            \
            check("sv_gather_" #T "d squares", squares[i], s, 0.0);                                      \
        }                                                                                                \
    }
CHECK_ROWS(float, f)
CHECK_ROWS(double, d)

static void check_costs(ptrdiff_t d, ptrdiff_t k) /* they decide: not a bit may differ */
{
    double x[D], columns[D * ROOM], offset[ROOM], weight[ROOM], cost[ROOM], square[ROOM], least, second;
    double best = HUGE_VAL, next = HUGE_VAL, cheapest = HUGE_VAL;
    ptrdiff_t i, j, arg = -1, cheap = -1, self = k / 2;
    for (j = 0; j < d; j++) x[j] = draw();
    for (i = 0; i < d * ROOM; i++) columns[i] = draw();
    for (i = 0; i < k; i++) { offset[i] = draw(); weight[i] = i % 5 == 3 ? 0.0 : 1.5 + draw(); }
    weight[self] = 2.5;
    if (k > 9) { /* a tie */
        for (j = 0; j < d; j++) columns[j * ROOM + 9] = columns[j * ROOM + 2] = x[j];
        offset[9] = offset[2] = -3.0;
    }
    sc_squares(x, d, columns, ROOM, k, cost);
    for (i = 0; i < k; i++) {
        square[i] = 0.0;
        for (j = 0; j < d; j++) square[i] += (x[j] - columns[j * ROOM + i]) * (x[j] - columns[j * ROOM + i]);
        check("sc_squares", cost[i], square[i], 0.0);
    }
    for (i = 0; i < k; i++) {
        const double t = offset[i] + weight[i] * square[i];
        const double ward = weight[i] > 0.0 ? 2.5 * weight[i] / (2.5 + weight[i]) * square[i] : HUGE_VAL;
        if (t < best) { next = best; best = t; arg = i; }
        else if (t < next) next = t;
        if (i != self && ward < cheapest) { cheapest = ward; cheap = i; }
    }
    check("sc_least", (double)sc_least(x, d, columns, ROOM, k, offset, weight, cost, &least, &second), (double)arg,
          0.0);
    check("sc_least least", least, best, 0.0);
    if (k > 1) check("sc_least second", second, next, 0.0);
    check("sc_cheapest", (double)sc_cheapest(x, d, columns, ROOM, k, weight, self, cost, &least), (double)cheap, 0.0);
    if (cheap >= 0) check("sc_cheapest least", least, cheapest, 0.0);
}

static void check_lanes(ptrdiff_t d, ptrdiff_t k)
{
    static const unsigned char removed[K]; /* none */
    static double x[D * 8], z[K * 8], at[D * ROOM], r[D * 8], g[ROOM * 8], gram[K * ROOM];
    static double zz[K * 8], work[K * 8], quadratic[CODES];
    static int flips[CODES];
    double rr[8], swing[8], best[8], fall[8], f[D], y[D], removal_gain[K];
    ptrdiff_t i, j, l, m;
    int changed, expected = 0;
    for (i = 0; i < d * 8; i++) x[i] = draw();
    for (i = 0; i < k * 8; i++) z[i] = draw() > 0.0;
    for (i = 0; i < d * ROOM; i++) at[i] = draw();
    for (i = 0; i < k; i++) removal_gain[i] = 0.25 * (draw() + 1.0);
    sf_residual(d, k, ROOM, x, z, at, r, rr);
    for (l = 0; l < 8; l++) {
        double s = 0.0;
        for (j = 0; j < d; j++) {
            double t = x[j * 8 + l];
            for (i = 0; i < k; i++) t -= z[i * 8 + l] * at[j * ROOM + i];
            s += t * t;
            check("sf_residual", r[j * 8 + l], t, 1e-13);
        }
        check("sf_residual norm", rr[l], s, 1e-13);
    }
    sf_dots(d, k, ROOM, r, at, g);
    for (i = 0; i < k; i++)
        for (l = 0; l < 8; l++) {
            double s = 0.0;
            for (j = 0; j < d; j++) s += r[j * 8 + l] * at[j * ROOM + i];
            check("sf_dots", g[i * 8 + l], s, 1e-12);
        }
    for (j = 0; j < d; j++) { f[j] = draw(); y[j] = draw(); }
    {
        double s = 0.0, copy[D];
        for (j = 0; j < d; j++) { s += f[j] * y[j]; copy[j] = y[j]; }
        check("sf_dot", sf_dot(d, f, y), s, 1e-13);
        sf_axpy(d, 0.5, f, copy);
        for (j = 0; j < d; j++) check("sf_axpy", copy[j], y[j] + 0.5 * f[j], 1e-14);
    }
    for (i = 0; i < k; i++)
        for (m = 0; m < k; m++) {
            gram[i * ROOM + m] = 0.0;
            for (j = 0; j < d; j++) gram[i * ROOM + m] += at[j * ROOM + i] * at[j * ROOM + m];
        }
    if (k <= 5) { /* all rows by brute force */
        const ptrdiff_t codes = (ptrdiff_t)1 << k;
        ptrdiff_t code = 0, step;
        quadratic[0] = 0.0;
        for (step = 1; step < codes; step++) {
            int bit = 0;
            while (!(step >> bit & 1)) bit++;
            flips[step] = bit;
            code ^= (ptrdiff_t)1 << bit;
            quadratic[step] = 0.0;
            for (i = 0; i < k; i++)
                for (m = 0; m < k; m++)
                    if (code >> i & 1 && code >> m & 1) quadratic[step] += gram[i * ROOM + m];
        }
        sf_exact(k, ROOM, gram, quadratic, flips, z, g, work, best, fall);
        for (l = 0; l < 8; l++) {
            double least = HUGE_VAL;
            ptrdiff_t arg = 0;
            for (code = 0; code < codes; code++) {
                double s = 0.0;
                for (j = 0; j < d; j++) {
                    double t = x[j * 8 + l];
                    for (i = 0; i < k; i++) t -= (double)(code >> i & 1) * at[j * ROOM + i];
                    s += t * t;
                }
                if (s < least) { least = s; arg = code; }
            }
            check("sf_exact", best[l], (double)arg, 0.0);
            check("sf_exact fall", fall[l], rr[l] - least, 1e-12);
        }
    }
    for (i = 0; i < k * 8; i++) zz[i] = z[i];
    changed = sf_flip(k, ROOM, gram, removed, removal_gain, 0xb7, z, g, rr, swing);
    for (l = 0; l < 8; l++) {
        double gl[K], e = 0.0, turned = 0.0;
        for (j = 0; j < d; j++) {
            double t = x[j * 8 + l];
            for (i = 0; i < k; i++) t -= zz[i * 8 + l] * at[j * ROOM + i];
            e += t * t;
        }
        for (i = 0; i < k; i++) { /* from the residual that the flips so far leave */
            double t, gain, sign = 1.0 - 2.0 * zz[i * 8 + l];
            gl[i] = 0.0;
            for (j = 0; j < d; j++) {
                t = x[j * 8 + l];
                for (m = 0; m < k; m++) t -= zz[m * 8 + l] * at[j * ROOM + m];
                gl[i] += t * at[j * ROOM + i];
            }
            gain = gram[i * ROOM + i] - 2.0 * sign * gl[i];
            if ((0xb7 >> l & 1) && gain - zz[i * 8 + l] * removal_gain[i] < 0.0) {
                zz[i * 8 + l] += sign;
                e += gain;
                turned += gram[i * ROOM + i];
                expected |= 1 << l;
            }
            check("sf_flip", z[i * 8 + l], zz[i * 8 + l], 0.0);
        }
        check("sf_flip norm", rr[l], e, 1e-11);
        check("sf_flip swing", swing[l], turned, 1e-12);
    }
    check("sf_flip changed", changed, expected, 0.0);
}

static void check_filter(ptrdiff_t n)
{
    float u[ROWS], l[ROWS], g[ROWS], v[ROWS], m[ROWS], o[ROWS], p[K], r[K], rg[K], h[K], hd[K], fresh[K];
    unsigned char fail[ROWS];
    unsigned short place[ROWS + 8];
    double weight[ROWS];
    int label[ROWS] = {0}, verdict[ROWS], kind;
    ptrdiff_t i, listed, seen;
    for (i = 0; i < K; i++) {
        p[i] = (float)(draw() + 1) / 8; r[i] = (float)(draw() + 1) / 8; rg[i] = (float)(draw() + 1) / 8;
        h[i] = (float)(draw() + 1) / 2; hd[i] = (float)(draw() + 1); fresh[i] = (float)(draw() + 2);
    }
    for (i = 0; i < n; i++) {
        v[i] = (float)(draw() + 1) / 2; m[i] = (float)(draw() + 1); o[i] = (float)(draw() + 1);
        label[i] = (int)((i * 5) % K); weight[i] = draw() + 1.0;
    }
    for (kind = 0; kind < 4; kind++) { /* plain, with fast centers, after one of them or a calm one was opened */
        for (i = 0; i < n; i++) { u[i] = v[i]; l[i] = m[i]; g[i] = kind == 0 ? 1e15f : o[i]; }
        if (kind < 2) sv_filter(n, u, l, label, p, r, h, 0.75f, fail);
        else sv_filter_opened(n, u, l, label, p, r, h, hd, fresh, weight, kind == 2, 0.75, fail);
        if (kind > 0) sv_filter_fast(n, u, g, label, rg, h, fresh, kind > 1, fail);
        for (i = 0; i < n; i++) {
            const int z = label[i];
            const double up = v[i] + p[z], before = fresh[z] - v[i];
            double low = m[i], of_fast = kind == 0 ? 1e15 : o[i], bound, far = 0.0;
            if (kind > 1) of_fast = fmin(of_fast, before - p[z]);
            if (kind == 3) low = fmin(low, before);
            low = fmax(0.0, low - r[z]);
            of_fast = kind == 0 ? 1e15 : fmax(0.0, of_fast - rg[z]);
            bound = fmax(fmin(low, of_fast), h[z]);
            bound = kind > 1 ? fmin(bound, hd[z]) : fmin(bound, 0.75);
            if (kind > 1) far = weight[i] * up * up;
            check("sv_filter u", u[i], up, 1e-6);
            check("sv_filter l", l[i], low, 1e-6);
            check("sv_filter g", g[i], of_fast, 4e-6); /* four careful steps */
            if (fabs(up - bound) > 1e-5 && fabs(far - 0.5625) > 1e-4)
                check("sv_filter", fail[i], up >= bound || far >= 0.5625, 0.0);
        }
        listed = sv_list(n, fail, place);
        for (i = seen = 0; i < n; i++)
            if (fail[i]) check("sv_list", place[seen++], (double)i, 0.0);
        check("sv_list", (double)listed, (double)seen, 0.0);
        sv_filter_again(n, label, v, m, o, h, hd, kind > 1, verdict);
        for (i = 0; i < n; i++) {
            const double radius = kind > 1 ? hd[label[i]] : 1e15;
            const double bound = fmin(fmax(fmin(m[i], o[i]), h[label[i]]), radius);
            check("sv_filter_again", verdict[i], v[i] < bound ? 0 : v[i] < fmin(m[i], radius) ? 1 : 2, 0.0);
        }
    }
}

int main(void)
{
    ptrdiff_t d, k;
    for (d = 1; d <= D; d++) {
        check_rows_f(d);
        check_rows_d(d);
        for (k = 1; k <= K; k += 1 + (d % 3)) {
            check_tile_f(d, k);
            check_tile_d(d, k);
            check_costs(d, k);
            check_lanes(d, k);
        }
    }
    for (k = 0; k <= ROWS; k++) check_filter(k);
    printf("%s: %d wrong\n", sv_set_name(), wrong);
    return wrong != 0;
}
