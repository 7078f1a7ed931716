/* What the code assumes of machine and compiler. Elsewhere it does not compile, instead of giving wrong results.
 *
 *     exact sums   float64 and float32 of IEEE 754, each operation rounded to its type as it is written; the bits of a
 *                  float64 in a 64-bit integer, in the order of its bytes, whichever that is
 *     arrays       int of 32 bits and unsigned short of 16, which are int32 and uint16 of numpy
 *     sizes        64 bits: products such as rows x columns x clusters are not checked for overflow
 */
#ifndef SMALLVAR_ASSUMPTIONS_H
#define SMALLVAR_ASSUMPTIONS_H

#include <float.h>
#include <limits.h>
#include <stddef.h>
#include <stdint.h>

#if defined(__cplusplus)
#define SV_ASSUME(name, condition, message) static_assert(condition, message)
#elif defined(__STDC_VERSION__) && __STDC_VERSION__ >= 201112L
#define SV_ASSUME(name, condition, message) _Static_assert(condition, message)
#else /* C99, and MSVC without /std:c11 */
#define SV_ASSUME(name, condition, message) typedef char sv_assume_##name[(condition) ? 1 : -1]
#endif

#if defined(__FAST_MATH__) || defined(_M_FP_FAST) || (defined(__FINITE_MATH_ONLY__) && __FINITE_MATH_ONLY__) || \
    defined(__ASSOCIATIVE_MATH__) || defined(__RECIPROCAL_MATH__)
#error "smallvar: compile without -ffast-math, -Ofast, -fp-model=fast or /fp:fast, which change the order of roundings"
#endif
#if defined(FLT_EVAL_METHOD) && (FLT_EVAL_METHOD < 0 || FLT_EVAL_METHOD == 2)
#error "smallvar: float64 must be rounded to float64; on 32-bit x86 that takes -mfpmath=sse"
#endif
#if defined(__FLOAT_WORD_ORDER__) && __FLOAT_WORD_ORDER__ != __BYTE_ORDER__
#error "smallvar: the bytes of a float64 must be in the order of those of an integer"
#endif

SV_ASSUME(pointer, sizeof(void *) == 8 && sizeof(ptrdiff_t) == 8 && sizeof(size_t) == 8,
          "smallvar: needs a 64-bit platform");
#if defined(Py_PYTHON_H)
SV_ASSUME(py_ssize_t, sizeof(Py_ssize_t) == sizeof(ptrdiff_t), "smallvar: Py_ssize_t must be ptrdiff_t");
#endif
SV_ASSUME(bytes, CHAR_BIT == 8, "smallvar: needs bytes of 8 bits");
SV_ASSUME(integers, sizeof(short) == 2 && sizeof(int) == 4 && sizeof(long long) == 8,
          "smallvar: short, int and long long must have 16, 32 and 64 bits");
SV_ASSUME(shift, (int64_t)-3 >> 1 == -2, "smallvar: a shift of a negative integer must round down");
SV_ASSUME(float32, FLT_RADIX == 2 && sizeof(float) == 4 && FLT_MANT_DIG == 24 && FLT_MAX_EXP == 128,
          "smallvar: float must be IEEE 754 binary32");
SV_ASSUME(float64, sizeof(double) == 8 && DBL_MANT_DIG == 53 && DBL_MAX_EXP == 1024 && DBL_MIN_EXP == -1021,
          "smallvar: double must be IEEE 754 binary64");

#endif
