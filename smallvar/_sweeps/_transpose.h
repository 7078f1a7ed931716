/* V_TRANSPOSE turns V_LANES rows of as many doubles into columns. The including file defines what it is called. */
SV_INLINE void V_TRANSPOSE(V *v)
{
#if SV_X86 && SV_BYTES == 64
#define PICK(a, b, which) _mm512_shuffle_f64x2(a, b, which) /* two quarters of a, then two of b */
    const V t0 = _mm512_unpacklo_pd(v[0], v[1]), t1 = _mm512_unpackhi_pd(v[0], v[1]);
    const V t2 = _mm512_unpacklo_pd(v[2], v[3]), t3 = _mm512_unpackhi_pd(v[2], v[3]);
    const V t4 = _mm512_unpacklo_pd(v[4], v[5]), t5 = _mm512_unpackhi_pd(v[4], v[5]);
    const V t6 = _mm512_unpacklo_pd(v[6], v[7]), t7 = _mm512_unpackhi_pd(v[6], v[7]);
    const V a = PICK(t0, t2, 0x88), b = PICK(t4, t6, 0x88), c = PICK(t1, t3, 0x88), d = PICK(t5, t7, 0x88);
    const V e = PICK(t0, t2, 0xdd), f = PICK(t4, t6, 0xdd), g = PICK(t1, t3, 0xdd), h = PICK(t5, t7, 0xdd);
    v[0] = PICK(a, b, 0x88); v[1] = PICK(c, d, 0x88); v[2] = PICK(e, f, 0x88); v[3] = PICK(g, h, 0x88);
    v[4] = PICK(a, b, 0xdd); v[5] = PICK(c, d, 0xdd); v[6] = PICK(e, f, 0xdd); v[7] = PICK(g, h, 0xdd);
#undef PICK
#elif SV_X86 && SV_BYTES == 32
    const V t0 = _mm256_unpacklo_pd(v[0], v[1]), t1 = _mm256_unpackhi_pd(v[0], v[1]);
    const V t2 = _mm256_unpacklo_pd(v[2], v[3]), t3 = _mm256_unpackhi_pd(v[2], v[3]);
    v[0] = _mm256_permute2f128_pd(t0, t2, 0x20); v[1] = _mm256_permute2f128_pd(t1, t3, 0x20);
    v[2] = _mm256_permute2f128_pd(t0, t2, 0x31); v[3] = _mm256_permute2f128_pd(t1, t3, 0x31);
#elif SV_X86
    const V t0 = _mm_unpacklo_pd(v[0], v[1]), t1 = _mm_unpackhi_pd(v[0], v[1]);
    v[0] = t0; v[1] = t1;
#elif SV_NEON
    const V t0 = vzip1q_f64(v[0], v[1]), t1 = vzip2q_f64(v[0], v[1]);
    v[0] = t0; v[1] = t1;
#else
    (void)v;
#endif
}
