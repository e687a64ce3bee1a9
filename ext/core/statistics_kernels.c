#include "statistics_kernels.h"

#include <math.h>
#include <stdatomic.h>
#include <string.h>

typedef float f32x4 __attribute__((vector_size(16)));
typedef float f32x8 __attribute__((vector_size(32)));
typedef double f64x4 __attribute__((vector_size(32)));
typedef int32_t i32x8 __attribute__((vector_size(32)));
typedef uint32_t u32x8 __attribute__((vector_size(32)));
typedef uint16_t u16x8 __attribute__((vector_size(16)));
typedef int64_t i64x4 __attribute__((vector_size(32)));

#define INFINITY_F64 INT64_C(0x7FF0000000000000)

#define NAME(x) x##_portable
#define TARGET
#define CHOOSE(type, mask, test, a, b) ((type)(((mask)(a) & (mask)(test)) | ((mask)(b) & ~(mask)(test))))
#define MAX_I32(a, b) CHOOSE(i32x8, i32x8, (a) > (b), a, b)
#define MIN_I32(a, b) CHOOSE(i32x8, i32x8, (a) < (b), a, b)
#define MAX_F64(a, b) CHOOSE(f64x4, i64x4, (a) > (b), a, b)
#define MIN_F64(a, b) CHOOSE(f64x4, i64x4, (a) < (b), a, b)
#include "statistics_loops.h"
#undef NAME
#undef TARGET
#undef MAX_I32
#undef MIN_I32
#undef MAX_F64
#undef MIN_F64

static _Atomic bool portable;

#if defined(__x86_64__)
#include <immintrin.h>
#define NAME(x) x##_avx2
#define TARGET __attribute__((target("avx2")))
#define MAX_I32(a, b) ((i32x8)_mm256_max_epi32((__m256i)(a), (__m256i)(b)))
#define MIN_I32(a, b) ((i32x8)_mm256_min_epi32((__m256i)(a), (__m256i)(b)))
#define MAX_F64(a, b) ((f64x4)_mm256_max_pd((__m256d)(a), (__m256d)(b)))
#define MIN_F64(a, b) ((f64x4)_mm256_min_pd((__m256d)(a), (__m256d)(b)))
#include "statistics_loops.h"

const tgd_kernels *tgd_kernels_choose(void)
{
    const bool avx2 = __builtin_cpu_supports("avx2") && !atomic_load_explicit(&portable, memory_order_relaxed);
    return avx2 ? &kernels_avx2 : &kernels_portable;
}
#else
const tgd_kernels *tgd_kernels_choose(void)
{
    return &kernels_portable;
}
#endif

bool tgd_kernels_portable(bool on)
{
    return atomic_exchange(&portable, on);
}
