/* Kernels on a tile of points, for one compute type and one instruction set: included by simd.h with REAL and T (the
 * names' ending) defined. A tile is 64 bytes wide whatever the set: LANES points, value j of lane l at
 * x[j * LANES + l].
 *
 * Registers decide the shape of a block: BLOCK centers times PARTS vectors of a tile are as many independent chains of
 * multiply-adds (they hide its latency) and fit the registers together with the tile's values and one center's. Every
 * value of a center is spread once for PARTS multiply-adds. A block is finished before it is compared with the result,
 * which stays in memory (no restrict here: compilers would keep it in registers, of which there are too few).
 *
 * Centers come in panels of SV_PANEL, value j of center i at
 * c[i / SV_PANEL * SV_PANEL * d + j * SV_PANEL + i % SV_PANEL]: a block reads one stream (as many streams as centers
 * cost a third of the speed), and all of a panel is there even if the last of its centers are not.
 */

#define REST_1(f, p)
#define REST_2(f, p) f(1, p)
#define REST_6(f, p) f(1, p) f(2, p) f(3, p) f(4, p) f(5, p)
#define REST_12(f, p) REST_6(f, p) f(6, p) f(7, p) f(8, p) f(9, p) f(10, p) f(11, p)
#define REST_3(f, p) f(1, p) f(2, p)
#define FOR_1(f, p) f(0, p)
#define FOR_2(f, p) f(0, p) REST_2(f, p)
#define FOR_3(f, p) f(0, p) REST_3(f, p)
#define FOR_6(f, p) f(0, p) REST_6(f, p)
#define FOR_12(f, p) f(0, p) REST_12(f, p)
#if SV_SET == 4 /* 32 registers of a whole row of the tile */
#define PARTS 1
#define BLOCK 12
#define FOR_BLOCK FOR_12
#define REST_BLOCK REST_12
#define FOR_PARTS(f, b) f(b, 0)
#elif SV_SET == 3 /* 16 of half a row */
#define PARTS 2
#define BLOCK 6
#define FOR_BLOCK FOR_6
#define REST_BLOCK REST_6
#define FOR_PARTS(f, b) f(b, 0) f(b, 1)
#else
#define PARTS 4
#define FOR_PARTS(f, b) f(b, 0) f(b, 1) f(b, 2) f(b, 3)
#if SV_NEON /* 32 of a quarter; gcc wants several for values that it reads ahead */
#define BLOCK 3
#define FOR_BLOCK FOR_3
#define REST_BLOCK REST_3
#else /* 16, and no fused multiply-add: a product needs a register too */
#define BLOCK 2
#define FOR_BLOCK FOR_2
#define REST_BLOCK REST_2
#endif
#endif
#define LANES ((ptrdiff_t)(64 / sizeof(REAL)))

#define START_PART(b, p) V s##b##_##p = V_SPREAD(start[b]);
#define START(b, _) FOR_PARTS(START_PART, b)
#define LOAD(_, p) const V x##p = V_LOAD(x + j * LANES + p * V_LANES);
#define STEP_PART(b, p) s##b##_##p = V_MULADD(x##p, y, s##b##_##p);
#define STEP(b, _) { const V y = V_SPREAD(row[j * SV_PANEL + b]); FOR_PARTS(STEP_PART, b) }
#define ROW(i) (c + (i) / SV_PANEL * SV_PANEL * d + (i) % SV_PANEL)
/* s_b += x . row_b for all b of a block */
#define DOTS(FOR) for (j = 0; j < d; j++) { FOR_PARTS(LOAD, 0) FOR(STEP, 0) }

/* The block's least distance, the first center that has it and the second least distance; then those of all so far. */
#define RANK(b, p)                                             \
    {                                                          \
        const V_MASK below = V_LESS(s##b##_##p, least);        \
        second = V_LEAST(second, V_MOST(least, s##b##_##p));   \
        least = V_LEAST(s##b##_##p, least);                    \
        index = VI_PICK(below, VI_SPREAD(b), index);           \
    }
#define RANK_BLOCK(REST, p)                                                       \
    {                                                                             \
        V least = s0_##p, second = V_SPREAD(T(HUGE_DISTANCE)), before;            \
        VI index = VI_SPREAD(0), arg;                                             \
        V_MASK below;                                                             \
        REST(RANK, p)                                                             \
        before = V_LOAD(out1 + p * V_LANES);                                      \
        below = V_LESS(least, before);                                            \
        second = V_LEAST(second, V_MOST(least, before));                          \
        V_STORE(out1 + p * V_LANES, V_LEAST(least, before));                      \
        V_STORE(out2 + p * V_LANES, V_LEAST(second, V_LOAD(out2 + p * V_LANES))); \
        memcpy(&arg, first + p * sizeof(V), sizeof(V));                           \
        arg = VI_PICK(below, VI_ADD(index, VI_SPREAD(i)), arg);                   \
        memcpy(first + p * sizeof(V), &arg, sizeof(V));                           \
    }
#define CLEAR(_, p)                                          \
    V_STORE(out1 + p * V_LANES, V_SPREAD(T(HUGE_DISTANCE))); \
    V_STORE(out2 + p * V_LANES, V_SPREAD(T(HUGE_DISTANCE)));

#define COMPARE(COUNT)                                     \
    {                                                      \
        const REAL *row = ROW(i), *start = norm + i;       \
        FOR_##COUNT(START, 0)                              \
        DOTS(FOR_##COUNT)                                  \
        FOR_PARTS(RANK_BLOCK, REST_##COUNT)                \
        i += COUNT;                                        \
    }

/* One tile against centers k0..k1-1: the least distance of every lane, the first center to reach it, the second least.
 * Distances here are ||c_k||^2 - 2 x.c_k, squared distances without ||x||^2, which is the same for all k. Centers are
 * stored times -2, so that this is one chain of multiply-adds that starts from the norm. It is approximate (fused or
 * not): callers bound the error, and where two distances are nearer to each other decide in plain float64 arithmetic.
 * If continues, the results go on from what they are.
 * IN  x: d x LANES; c: panels, times -2; norm: one a center.
 * INOUT out1, out2: LANES distances; best: LANES indices, in 64 bytes. */
static void SV_(T(tile_top2))(const REAL *x, ptrdiff_t d, const REAL *c, const REAL *norm, ptrdiff_t k0, ptrdiff_t k1,
                              int continues, REAL *out1, REAL *out2, int *best)
{
    char *first = (char *)best; /* an index takes an element's bytes */
    ptrdiff_t q, i, j;
    if (!continues) memset(best, 0, 64);
#if !SV_SINGLE
    for (i = LANES - 1; i >= 0; i--) {
        const long long index = best[i];
        memcpy((char *)best + i * (ptrdiff_t)sizeof(index), &index, sizeof(index));
    }
#endif
    for (q = 0; q < LANES; q += PARTS * V_LANES) {
        if (!continues) { FOR_PARTS(CLEAR, 0) }
        i = k0;
        while (i < k1 && i % BLOCK) COMPARE(1)
        while (i + BLOCK <= k1) COMPARE(BLOCK)
#if BLOCK == 12
        if (i + 6 <= k1) COMPARE(6)
#endif
        while (i < k1) COMPARE(1)
        x += PARTS * V_LANES;
        out1 += PARTS * V_LANES;
        out2 += PARTS * V_LANES;
        first += PARTS * sizeof(V);
    }
#if !SV_SINGLE
    for (i = 0; i < LANES; i++) {
        long long index;
        memcpy(&index, (const char *)best + i * (ptrdiff_t)sizeof(index), sizeof(index));
        best[i] = (int)index;
    }
#endif
}

#define STORE_PART(b, p) V_STORE(distance + (i - k0 + b) * LANES + p * V_LANES, s##b##_##p);
#define STORE(b, _) FOR_PARTS(STORE_PART, b)

/* The distances of tile_top2 to all centers k0..k1-1, k0 the first of a block.  OUT distance: (k1 - k0) x LANES. */
static void SV_(T(tile_distances))(const REAL *x, ptrdiff_t d, const REAL *c, const REAL *norm, ptrdiff_t k0,
                                ptrdiff_t k1, REAL *distance)
{
    ptrdiff_t q, i, j;
    for (q = 0; q < LANES; q += PARTS * V_LANES) {
        for (i = k0; i + BLOCK <= k1; i += BLOCK) {
            const REAL *row = ROW(i), *start = norm + i;
            FOR_BLOCK(START, 0)
            DOTS(FOR_BLOCK)
            FOR_BLOCK(STORE, 0)
        }
        for (; i < k1; i++) {
            const REAL *row = ROW(i), *start = norm + i;
            FOR_1(START, 0)
            DOTS(FOR_1)
            FOR_1(STORE, 0)
        }
        x += PARTS * V_LANES;
        distance += PARTS * V_LANES;
    }
}
#undef STORE_PART
#undef STORE

#undef REST_1
#undef REST_2
#undef REST_3
#undef REST_6
#undef REST_12
#undef FOR_1
#undef FOR_2
#undef FOR_3
#undef FOR_6
#undef FOR_12
#undef FOR_BLOCK
#undef REST_BLOCK
#undef FOR_PARTS
#undef PARTS
#undef BLOCK
#undef LANES
#undef START_PART
#undef START
#undef LOAD
#undef STEP_PART
#undef STEP
#undef DOTS
#undef RANK
#undef RANK_BLOCK
#undef COMPARE
#undef ROW
#undef CLEAR
