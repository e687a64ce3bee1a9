#include "statistics_kernels.h"

#include <math.h>
#include <stdatomic.h>
#include <string.h>

#define INFINITY_F64 INT64_C(0x7FF0000000000000)
#define VECTOR(type, bytes) type __attribute__((vector_size(bytes)))
#define UNROLL _Pragma("GCC unroll 8")
/* A call from a function for AVX2 to one for less costs more than what is done here. */
#define INLINE static inline __attribute__((always_inline))

/* Of eight numbers that follow each other in memory. */
INLINE double add_eight(const void *sums)
{
    double s[8];
    memcpy(s, sums, sizeof s);
    return ((s[0] + s[4]) + (s[1] + s[5])) + ((s[2] + s[6]) + (s[3] + s[7]));
}

INLINE uint32_t count_eight(const void *counts)
{
    uint32_t c[8];
    memcpy(c, counts, sizeof c);
    return ((c[0] + c[4]) + (c[1] + c[5])) + ((c[2] + c[6]) + (c[3] + c[7]));
}

INLINE int32_t largest_of_eight(const void *values)
{
    int32_t v[8];
    memcpy(v, values, sizeof v);
    for (int k = 1; k < 8; k++) {
        v[0] = v[k] > v[0] ? v[k] : v[0];
    }
    return v[0];
}

INLINE int32_t smallest_of_eight(const void *values)
{
    int32_t v[8];
    memcpy(v, values, sizeof v);
    for (int k = 1; k < 8; k++) {
        v[0] = v[k] < v[0] ? v[k] : v[0];
    }
    return v[0];
}

/* ---- 16 bytes at a time, as every processor can ---- */

typedef VECTOR(int32_t, 16) i32x4;
typedef VECTOR(uint32_t, 16) u32x4;
typedef VECTOR(float, 16) f32x4;
typedef VECTOR(int64_t, 16) i64x2;
typedef VECTOR(double, 16) f64x2;
typedef VECTOR(float, 8) f32x2;
typedef VECTOR(uint16_t, 8) u16x4;

#define CHOOSE(type, mask, test, a, b) ((type)(((mask)(a) & (mask)(test)) | ((mask)(b) & ~(mask)(test))))
#define NAME(x) x##_portable
#define TARGET
#define BYTES 16
#define I32 i32x4
#define U32 u32x4
#define F32 f32x4
#define I64 i64x2
#define F64 f64x2
#define HALF_F32 f32x2
#define HALF_U16 u16x4
#define MAX_I32(a, b) CHOOSE(i32x4, i32x4, (a) > (b), a, b)
#define MIN_I32(a, b) CHOOSE(i32x4, i32x4, (a) < (b), a, b)
#define MAX_F64(a, b) CHOOSE(f64x2, i64x2, (a) > (b), a, b)
#define MIN_F64(a, b) CHOOSE(f64x2, i64x2, (a) < (b), a, b)
#define WIDEN(x) __builtin_convertvector(x, f64x2)
#define ADD_SQUARE(sum, x) ((sum) + (x) * (x))
#include "statistics_loops.h"

static _Atomic bool portable;

bool tgd_statistics_portable(bool on)
{
    return atomic_exchange(&portable, on);
}

/* ---- 32 bytes at a time ---- */

#if defined(__x86_64__)
#include <immintrin.h>

typedef VECTOR(int32_t, 32) i32x8;
typedef VECTOR(uint32_t, 32) u32x8;
typedef VECTOR(float, 32) f32x8;
typedef VECTOR(int64_t, 32) i64x4;
typedef VECTOR(double, 32) f64x4;
typedef VECTOR(uint16_t, 16) u16x8;

#undef NAME
#undef TARGET
#undef BYTES
#undef I32
#undef U32
#undef F32
#undef I64
#undef F64
#undef HALF_F32
#undef HALF_U16
#undef MAX_I32
#undef MIN_I32
#undef MAX_F64
#undef MIN_F64
#undef WIDEN
#undef ADD_SQUARE
#define NAME(x) x##_avx2
#define TARGET __attribute__((target("avx2,fma")))
#define BYTES 32
#define I32 i32x8
#define U32 u32x8
#define F32 f32x8
#define I64 i64x4
#define F64 f64x4
#define HALF_F32 f32x4
#define HALF_U16 u16x8
#define MAX_I32(a, b) ((i32x8)_mm256_max_epi32((__m256i)(a), (__m256i)(b)))
#define MIN_I32(a, b) ((i32x8)_mm256_min_epi32((__m256i)(a), (__m256i)(b)))
#define MAX_F64(a, b) ((f64x4)_mm256_max_pd((__m256d)(a), (__m256d)(b)))
#define MIN_F64(a, b) ((f64x4)_mm256_min_pd((__m256d)(a), (__m256d)(b)))
#define WIDEN(x) ((f64x4)_mm256_cvtps_pd((__m128)(x)))
#define ADD_SQUARE(sum, x) ((f64x4)_mm256_fmadd_pd((__m256d)(x), (__m256d)(x), (__m256d)(sum)))
#include "statistics_loops.h"

const tgd_kernels *tgd_kernels_choose(void)
{
    const bool fast = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
                      !atomic_load_explicit(&portable, memory_order_relaxed);
    return fast ? &kernels_avx2 : &kernels_portable;
}
#else
const tgd_kernels *tgd_kernels_choose(void)
{
    return &kernels_portable;
}
#endif
