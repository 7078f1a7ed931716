/* Instruction sets. One body of each kernel is compiled once for every set, with vectors of the set's own width, and
 * the best one that the processor has is chosen when the library is loaded, without help of the C library.
 *
 *     v4  AVX-512, 64 bytes      v3  AVX2 and FMA, 32 bytes      v2  what every x86-64 has: SSE2, 16 bytes
 *
 * Elsewhere there is one set: NEON, or whatever vectors of 16 bytes become. SMALLVAR_SIMD=2 or 3 leaves out the
 * higher ones. Kernels are written in a file that _each.h includes for every set, with the functions of _vector.h;
 * contraction is off everywhere, what may be fused says so with V_MULADD.
 */
#ifndef SMALLVAR_SETS_H
#define SMALLVAR_SETS_H

#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include "_assumptions.h"

#ifndef SMALLVAR_SIMD
#define SMALLVAR_SIMD 4
#endif

#define SV_GLUE_(a, b) a##b
#define SV_GLUE(a, b) SV_GLUE_(a, b)

#if defined(__clang__)
#define SMALLVAR_COMPILER __VERSION__
#elif defined(__GNUC__)
#define SMALLVAR_COMPILER "gcc " __VERSION__
#elif defined(_MSC_VER)
#define SMALLVAR_COMPILER "msvc"
#else
#define SMALLVAR_COMPILER "unknown"
#endif

#if defined(__GNUC__) || defined(__clang__)
#define SV_RESTRICT __restrict__
#define SV_INLINE static inline __attribute__((always_inline))
#define SV_PREFETCH(address) __builtin_prefetch(address)
#define SV_UNROLL _Pragma("GCC unroll 8")
#elif defined(_MSC_VER)
#define SV_RESTRICT __restrict
#define SV_INLINE static __forceinline
#define SV_PREFETCH(address) ((void)0)
#define SV_UNROLL
#else
#define SV_RESTRICT
#define SV_INLINE static
#define SV_PREFETCH(address) ((void)0)
#define SV_UNROLL
#endif

#if defined(__x86_64__) || defined(_M_X64)
#define SV_X86 1
#include <immintrin.h>
#else
#define SV_X86 0
#endif
#if defined(__aarch64__) || defined(_M_ARM64)
#define SV_NEON 1
#include <arm_neon.h>
#else
#define SV_NEON 0
#endif

/* The set that the whole library is compiled for (more than v2 with, say, -march=native or /arch:AVX2). */
#if SV_X86 && defined(__AVX512F__) && defined(__AVX512BW__) && defined(__AVX512DQ__) && defined(__AVX512VL__)
#define SV_BASE 4
#elif SV_X86 && defined(__AVX2__) && (defined(__FMA__) || defined(_MSC_VER))
#define SV_BASE 3
#else
#define SV_BASE 2
#endif
#if defined(_MSC_VER) && !defined(__clang__) && _MSC_VER < 1939 /* has no __typeof__ yet */
#define SV_BUILT_3 0
#define SV_BUILT_4 0
#else
#define SV_BUILT_3 (SV_X86 && SMALLVAR_SIMD >= 3 && SV_BASE < 3)
#define SV_BUILT_4 (SV_X86 && SMALLVAR_SIMD >= 4 && SV_BASE < 4)
#endif

/* SV_AT_LOAD(function) { body } is run when the library is loaded. */
#if defined(_MSC_VER)
#pragma section(".CRT$XCU", read)
#define SV_AT_LOAD(function) \
    static void __cdecl function(void); \
    __declspec(allocate(".CRT$XCU")) void(__cdecl * function##_at_load)(void) = function; \
    __pragma(comment(linker, "/include:" #function "_at_load")) static void __cdecl function(void)
#else
#define SV_AT_LOAD(function) static __attribute__((constructor)) void function(void)
#endif

#if SV_BUILT_3 || SV_BUILT_4

#if defined(_MSC_VER)
#include <intrin.h>
static int sv_best_set(void)
{
    int r[4], features;
    unsigned long long saved;
    __cpuid(r, 0);
    if (r[0] < 7) return SV_BASE;
    __cpuid(r, 1);
    if (!(r[2] >> 27 & 1) || !(r[2] >> 12 & 1)) return SV_BASE; /* OSXSAVE, FMA */
    saved = _xgetbv(0); /* registers that the system saves */
    __cpuidex(r, 7, 0);
    features = r[1];
    if ((saved & 0x06) != 0x06 || !(features >> 5 & 1) || !(features >> 3 & 1) || !(features >> 8 & 1)) return SV_BASE;
    if ((saved & 0xe6) != 0xe6) return 3;
    return (features >> 16 & 1) && (features >> 17 & 1) && (features >> 30 & 1) && (features >> 31 & 1) ? 4 : 3;
}
#else
static int sv_best_set(void)
{
    __builtin_cpu_init();
    if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma") || !__builtin_cpu_supports("bmi") ||
        !__builtin_cpu_supports("bmi2"))
        return SV_BASE;
    return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                   __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl")
               ? 4
               : 3;
}
#endif

/* SV_CHOOSE(kernel) makes a pointer of that name and sets it when the library is loaded. */
#if SV_BUILT_4
#define SV_IF_4(kernel) if (set == 4) kernel = kernel##_v4;
#else
#define SV_IF_4(kernel)
#endif
#if SV_BUILT_3
#define SV_IF_3(kernel) if (set >= 3) kernel = kernel##_v3;
#else
#define SV_IF_3(kernel)
#endif
#define SV_CHOOSE(kernel) \
    static __typeof__(kernel##_base) *kernel = kernel##_base; \
    SV_AT_LOAD(kernel##_choose) \
    { \
        const int set = sv_best_set(); \
        SV_IF_3(kernel) \
        SV_IF_4(kernel) \
    }
#define SV_SUFFIX_BASE _base

#else

#define sv_best_set() SV_BASE
#define SV_CHOOSE(kernel)
#define SV_SUFFIX_BASE

#endif

/* Name of the set that runs, and of those that are built. */
static const char *sv_set_name(void)
{
    const int best = sv_best_set();
    const int set = SV_BUILT_4 && best == 4 ? 4 : SV_BUILT_3 && best >= 3 ? 3 : SV_BASE;
    if (!SV_X86) return SV_NEON ? "neon" : "portable";
    return set == 4 ? "v4" : set == 3 ? "v3" : "v2";
}

static const char *sv_set_names(void)
{
    if (!SV_X86) return SV_NEON ? "neon" : "portable";
    if (SV_BASE == 4) return "v4";
    if (SV_BASE == 3) return SV_BUILT_4 ? "v3, v4" : "v3";
    return SV_BUILT_4 ? "v2, v3, v4" : SV_BUILT_3 ? "v2, v3" : "v2";
}

#endif
