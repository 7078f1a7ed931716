/* Vectors of SV_BYTES bytes of floats (SV_SINGLE 1) or doubles (0), the same words for every instruction set. V is the
 * type, V_LANES its elements. Memory need not be aligned. V_MULADD and V_MULSUB round once where the set can. V_LEAST
 * and V_MOST return b where neither is less. V_INDEX holds an integer in every lane, to be moved but not computed with;
 * stored it takes as many bytes as an element.
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
#undef V_LEAST
#undef V_MOST
#undef V_MASK
#undef V_LESS
#undef V_PICK
#undef V_INDEX

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
#define V_OP(op) _mm512_##op##_ps
#define V_MASK __mmask16
#define V_LESS(a, b) _mm512_cmp_ps_mask(a, b, _CMP_LT_OQ)
#define V_INDEX(i) _mm512_castsi512_ps(_mm512_set1_epi32((int)(i)))
#else
#define V __m512d
#define V_OP(op) _mm512_##op##_pd
#define V_MASK __mmask8
#define V_LESS(a, b) _mm512_cmp_pd_mask(a, b, _CMP_LT_OQ)
#define V_INDEX(i) _mm512_castsi512_pd(_mm512_set1_epi64((long long)(i)))
#endif
#define V_PICK(mask, a, b) V_OP(mask_blend)(mask, b, a)
#elif SV_BYTES == 32
#if SV_SINGLE
#define V __m256
#define V_OP(op) _mm256_##op##_ps
#define V_LESS(a, b) _mm256_cmp_ps(a, b, _CMP_LT_OQ)
#define V_INDEX(i) _mm256_castsi256_ps(_mm256_set1_epi32((int)(i)))
#else
#define V __m256d
#define V_OP(op) _mm256_##op##_pd
#define V_LESS(a, b) _mm256_cmp_pd(a, b, _CMP_LT_OQ)
#define V_INDEX(i) _mm256_castsi256_pd(_mm256_set1_epi64x((long long)(i)))
#endif
#define V_MASK V
#define V_PICK(mask, a, b) V_OP(blendv)(b, a, mask)
#else
#if SV_SINGLE
#define V __m128
#define V_OP(op) _mm_##op##_ps
#define V_INDEX(i) _mm_castsi128_ps(_mm_set1_epi32((int)(i)))
#else
#define V __m128d
#define V_OP(op) _mm_##op##_pd
#define V_INDEX(i) _mm_castsi128_pd(_mm_set1_epi64x((long long)(i)))
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
#define V_INDEX(i) vreinterpretq_f32_s32(vdupq_n_s32((int)(i)))
#else
#define V float64x2_t
#define V_OP(op) v##op##q_f64
#define V_MASK uint64x2_t
#define V_SPREAD(r) vdupq_n_f64(r)
#define V_INDEX(i) vreinterpretq_f64_s64(vdupq_n_s64((long long)(i)))
#endif
#define V_LOAD(p) V_OP(ld1)((const V_REAL *)(p))
#define V_STORE(p, a) V_OP(st1)((V_REAL *)(p), a)
#define V_ADD(a, b) V_OP(add)(a, b)
#define V_SUB(a, b) V_OP(sub)(a, b)
#define V_MUL(a, b) V_OP(mul)(a, b)
#define V_MULADD(a, b, c) V_OP(fma)(c, a, b)
#define V_MULSUB(a, b, c) V_OP(fms)(c, a, b)
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
#define V_LEAST(a, b) ((a) < (b) ? (a) : (b))
#define V_MOST(a, b) ((a) > (b) ? (a) : (b))
#define V_LESS(a, b) ((a) < (b))
#define V_PICK(mask, a, b) ((mask) ? (a) : (b))
#if SV_SINGLE
#define V_INDEX(i) sv_index_f((int)(i))
#else
#define V_INDEX(i) sv_index_d((long long)(i))
#endif

#endif
