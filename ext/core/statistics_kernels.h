/* The fast loops over blocks of float32 and float64, for the processor at hand. Pure, any thread. */
#ifndef TGD_STATISTICS_KERNELS_H
#define TGD_STATISTICS_KERNELS_H

#include "statistics.h"

enum { TGD_INFINITY_F32 = 0x7F800000 }; /* its bits */

typedef struct tgd_block_f32 {
    double sum, squares;
    uint32_t n_zero, n_small; /* n_small: magnitude below tiny, zeros too */
    int32_t hi, lo;           /* bits of magnitudes; lo: of what is not zero, INT32_MAX where there is none */
} tgd_block_f32;

typedef struct tgd_block_f64 {
    double sum, squares, hi, lo; /* lo: of what is not zero, infinite where there is none */
    uint64_t n_zero;
} tgd_block_f64;

/* Arrays need no alignment. tiny is the bits of a float32. What is not finite spoils sums, squares and magnitudes: then
   hi is at least TGD_INFINITY_F32, and of float64 squares is not finite. */
typedef struct tgd_kernels {
    void (*block_f32)(const float *x, size_t n, int32_t tiny, tgd_block_f32 *out);
    void (*block_f64)(const double *x, size_t n, tgd_block_f64 *out);
    bool (*nonfinite_f32)(const float *x, size_t n);
    bool (*nonfinite_f64)(const double *x, size_t n);
    /* float32 from a 16-bit type: shift moves its exponent to where float32's is, rebias is added to a normal number's,
       special is the least magnitude, shifted, that is infinite or NaN. */
    void (*widen_16)(float *to, const uint16_t *from, size_t n, int shift, int32_t rebias, int32_t special);
} tgd_kernels;

/* For ever. */
const tgd_kernels *tgd_kernels_choose(void);

#endif
