/* Includes SV_KERNELS, a file of kernels, once for every instruction set of _sets.h, with
 *     SV_SET    the set: 2, 3 or 4
 *     SV_BYTES  the width of its vectors, for _vector.h
 *     SV_(f)    the name of f in this set
 */

#if SV_BUILT_4
#define SV_SET 4
#define SV_BYTES 64
#define SV_(f) SV_GLUE(f, _v4)
#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,bmi,bmi2"))), \
                             apply_to = function)
#elif defined(__GNUC__)
#pragma GCC push_options
#pragma GCC target("avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,bmi,bmi2")
#endif
#include SV_KERNELS
#if defined(__clang__)
#pragma clang attribute pop
#elif defined(__GNUC__)
#pragma GCC pop_options
#endif
#undef SV_SET
#undef SV_BYTES
#undef SV_
#endif

#if SV_BUILT_3
#define SV_SET 3
#define SV_BYTES 32
#define SV_(f) SV_GLUE(f, _v3)
#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx2,fma,bmi,bmi2"))), apply_to = function)
#elif defined(__GNUC__)
#pragma GCC push_options
#pragma GCC target("avx2,fma,bmi,bmi2")
#endif
#include SV_KERNELS
#if defined(__clang__)
#pragma clang attribute pop
#elif defined(__GNUC__)
#pragma GCC pop_options
#endif
#undef SV_SET
#undef SV_BYTES
#undef SV_
#endif

#define SV_SET SV_BASE
#if SV_BASE == 4
#define SV_BYTES 64
#elif SV_BASE == 3
#define SV_BYTES 32
#else
#define SV_BYTES 16
#endif
#define SV_(f) SV_GLUE(f, SV_SUFFIX_BASE)
#include SV_KERNELS
#undef SV_SET
#undef SV_BYTES
#undef SV_

#undef SV_KERNELS
