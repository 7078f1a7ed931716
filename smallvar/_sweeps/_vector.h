/* Vectors of SV_BYTES bytes of floats (SV_SINGLE 1) or doubles (0), with the same names for every instruction set.
 * V is the type, V_LANES the number of its elements, VI a vector of as many integers of the same size. V_SPREAD has one
 * number in all elements. Memory need not be aligned. V_MULADD(a, b, c), a b + c, and V_MULSUB, c - a b, round once
 * where the set has fused multiply-adds, so results that must not depend on the set are made without them. V_PICK takes
 * a where the mask is set, else b. Signs of zeros, and what becomes of NaN, differ between the sets: no kernel may
 * depend on them.
 *
 * Of doubles only: V_LOAD_SINGLE and V_STORE_SINGLE read and write V_LANES floats; V_ALL says whether a mask is set for
 * all elements.
 */
#undef V
#undef V_REAL
#undef V_LANES
#undef V_OP
#undef V_LOAD
#undef V_STORE
#undef V_SPREAD
#undef V_ADD
#undef V_SUB
#undef V_MUL
#undef V_MULADD
#undef V_MULSUB
#undef V_ROOT
#undef V_LEAST
#undef V_MOST
#undef V_MASK
#undef V_LESS
#undef V_PICK
#undef V_LOAD_SINGLE
#undef V_STORE_SINGLE
#undef V_ALL
#undef VI
#undef VI_SPREAD
#undef VI_ADD
#undef VI_PICK

#if SV_SINGLE
#define V_REAL float
#else
#define V_REAL double
#endif

#if SV_X86

#define V_LANES (SV_BYTES / (ptrdiff_t)sizeof(V_REAL))
#if SV_BYTES == 64
#if SV_SINGLE
#define V __m512
#define VI __m512i
#define V_OP(op) _mm512_##op##_ps
#define V_MASK __mmask16
#define V_LESS(a, b) _mm512_cmp_ps_mask(a, b, _CMP_LT_OQ)
#define VI_SPREAD(i) _mm512_set1_epi32((int)(i))
#define VI_ADD(a, b) _mm512_add_epi32(a, b)
#define VI_PICK(mask, a, b) _mm512_mask_blend_epi32(mask, b, a)
#else
#define V __m512d
#define VI __m512i
#define V_OP(op) _mm512_##op##_pd
#define V_MASK __mmask8
#define V_LESS(a, b) _mm512_cmp_pd_mask(a, b, _CMP_LT_OQ)
#define VI_SPREAD(i) _mm512_set1_epi64((long long)(i))
#define VI_ADD(a, b) _mm512_add_epi64(a, b)
#define VI_PICK(mask, a, b) _mm512_mask_blend_epi64(mask, b, a)
#endif
#define V_PICK(mask, a, b) V_OP(mask_blend)(mask, b, a)
#elif SV_BYTES == 32
#if SV_SINGLE
#define V __m256
#define VI __m256i
#define V_OP(op) _mm256_##op##_ps
#define V_LESS(a, b) _mm256_cmp_ps(a, b, _CMP_LT_OQ)
#define VI_SPREAD(i) _mm256_set1_epi32((int)(i))
#define VI_ADD(a, b) _mm256_add_epi32(a, b)
#define VI_PICK(mask, a, b) _mm256_blendv_epi8(b, a, _mm256_castps_si256(mask))
#else
#define V __m256d
#define VI __m256i
#define V_OP(op) _mm256_##op##_pd
#define V_LESS(a, b) _mm256_cmp_pd(a, b, _CMP_LT_OQ)
#define VI_SPREAD(i) _mm256_set1_epi64x((long long)(i))
#define VI_ADD(a, b) _mm256_add_epi64(a, b)
#define VI_PICK(mask, a, b) _mm256_blendv_epi8(b, a, _mm256_castpd_si256(mask))
#endif
#define V_MASK V
#define V_PICK(mask, a, b) V_OP(blendv)(b, a, mask)
#else
#if SV_SINGLE
#define V __m128
#define VI __m128i
#define V_OP(op) _mm_##op##_ps
#define VI_SPREAD(i) _mm_set1_epi32((int)(i))
#define VI_ADD(a, b) _mm_add_epi32(a, b)
#define VI_PICK(mask, a, b) _mm_or_si128(_mm_and_si128(_mm_castps_si128(mask), a), \
                                         _mm_andnot_si128(_mm_castps_si128(mask), b))
#else
#define V __m128d
#define VI __m128i
#define V_OP(op) _mm_##op##_pd
#define VI_SPREAD(i) _mm_set1_epi64x((long long)(i))
#define VI_ADD(a, b) _mm_add_epi64(a, b)
#define VI_PICK(mask, a, b) _mm_or_si128(_mm_and_si128(_mm_castpd_si128(mask), a), \
                                         _mm_andnot_si128(_mm_castpd_si128(mask), b))
#endif
#define V_MASK V
#define V_LESS(a, b) V_OP(cmplt)(a, b)
#define V_PICK(mask, a, b) V_OP(or)(V_OP(and)(mask, a), V_OP(andnot)(mask, b))
#endif
#define V_LOAD(p) V_OP(loadu)((const V_REAL *)(p))
#define V_STORE(p, a) V_OP(storeu)((V_REAL *)(p), a)
#define V_SPREAD(r) V_OP(set1)(r)
#define V_ADD(a, b) V_OP(add)(a, b)
#define V_SUB(a, b) V_OP(sub)(a, b)
#define V_MUL(a, b) V_OP(mul)(a, b)
#define V_ROOT(a) V_OP(sqrt)(a)
#define V_LEAST(a, b) V_OP(min)(a, b)
#define V_MOST(a, b) V_OP(max)(a, b)
#if SV_SET >= 3
#define V_MULADD(a, b, c) V_OP(fmadd)(a, b, c)
#define V_MULSUB(a, b, c) V_OP(fnmadd)(a, b, c)
#else
#define V_MULADD(a, b, c) V_ADD(V_MUL(a, b), c)
#define V_MULSUB(a, b, c) V_SUB(c, V_MUL(a, b))
#endif

#elif SV_NEON

#define V_LANES (16 / (ptrdiff_t)sizeof(V_REAL))
#if SV_SINGLE
#define V float32x4_t
#define V_OP(op) v##op##q_f32
#define V_MASK uint32x4_t
#define V_SPREAD(r) vdupq_n_f32(r)
#define VI int32x4_t
#define VI_SPREAD(i) vdupq_n_s32((int)(i))
#define VI_ADD(a, b) vaddq_s32(a, b)
#define VI_PICK(mask, a, b) vbslq_s32(mask, a, b)
#else
#define V float64x2_t
#define V_OP(op) v##op##q_f64
#define V_MASK uint64x2_t
#define V_SPREAD(r) vdupq_n_f64(r)
#define VI int64x2_t
#define VI_SPREAD(i) vdupq_n_s64((long long)(i))
#define VI_ADD(a, b) vaddq_s64(a, b)
#define VI_PICK(mask, a, b) vbslq_s64(mask, a, b)
#endif
#define V_LOAD(p) V_OP(ld1)((const V_REAL *)(p))
#define V_STORE(p, a) V_OP(st1)((V_REAL *)(p), a)
#define V_ADD(a, b) V_OP(add)(a, b)
#define V_SUB(a, b) V_OP(sub)(a, b)
#define V_MUL(a, b) V_OP(mul)(a, b)
#define V_MULADD(a, b, c) V_OP(fma)(c, a, b)
#define V_MULSUB(a, b, c) V_OP(fms)(c, a, b)
#define V_ROOT(a) V_OP(sqrt)(a)
#define V_LEAST(a, b) V_OP(min)(a, b)
#define V_MOST(a, b) V_OP(max)(a, b)
#define V_LESS(a, b) V_OP(clt)(a, b)
#define V_PICK(mask, a, b) V_OP(bsl)(mask, a, b)

#else /* one element at a time, in loops that a compiler may put together */

#define V_LANES 1
#define V V_REAL
#define V_MASK int
#define V_LOAD(p) (*(const V_REAL *)(p))
#define V_STORE(p, a) ((void)(*(V_REAL *)(p) = (a)))
#define V_SPREAD(r) (r)
#define V_ADD(a, b) ((a) + (b))
#define V_SUB(a, b) ((a) - (b))
#define V_MUL(a, b) ((a) * (b))
#define V_MULADD(a, b, c) ((a) * (b) + (c))
#define V_MULSUB(a, b, c) ((c) - (a) * (b))
#define V_ROOT(a) ((V_REAL)sqrt(a))
#define V_LEAST(a, b) ((a) < (b) ? (a) : (b))
#define V_MOST(a, b) ((a) > (b) ? (a) : (b))
#define V_LESS(a, b) ((a) < (b))
#define V_PICK(mask, a, b) ((mask) ? (a) : (b))
#if SV_SINGLE
#define VI int
#else
#define VI long long
#endif
#define VI_SPREAD(i) ((VI)(i))
#define VI_ADD(a, b) ((a) + (b))
#define VI_PICK(mask, a, b) ((mask) ? (a) : (b))

#endif

#if !SV_SINGLE
#if SV_X86 && SV_BYTES == 64
#define V_LOAD_SINGLE(p) _mm512_cvtps_pd(_mm256_loadu_ps(p))
#define V_STORE_SINGLE(p, a) _mm256_storeu_ps(p, _mm512_cvtpd_ps(a))
#define V_ALL(mask) ((mask) == 0xff)
#elif SV_X86 && SV_BYTES == 32
#define V_LOAD_SINGLE(p) _mm256_cvtps_pd(_mm_loadu_ps(p))
#define V_STORE_SINGLE(p, a) _mm_storeu_ps(p, _mm256_cvtpd_ps(a))
#define V_ALL(mask) (_mm256_movemask_pd(mask) == 0xf)
#elif SV_X86
#define V_LOAD_SINGLE(p) _mm_cvtps_pd(_mm_castsi128_ps(_mm_loadl_epi64((const __m128i *)(p))))
#define V_STORE_SINGLE(p, a) _mm_storel_epi64((__m128i *)(p), _mm_castps_si128(_mm_cvtpd_ps(a)))
#define V_ALL(mask) (_mm_movemask_pd(mask) == 0x3)
#elif SV_NEON
#define V_LOAD_SINGLE(p) vcvt_f64_f32(vld1_f32(p))
#define V_STORE_SINGLE(p, a) vst1_f32(p, vcvt_f32_f64(a))
#define V_ALL(mask) (vminvq_u32(vreinterpretq_u32_u64(mask)) != 0)
#else
#define V_LOAD_SINGLE(p) ((double)*(p))
#define V_STORE_SINGLE(p, a) ((void)(*(p) = (float)(a)))
#define V_ALL(mask) (mask)
#endif
#endif
