/*
 * The loops of statistics_kernels.c that must be fast, in GCC's vector extension; included once for each instruction set, with
 *   NAME(x)            what a function is called there
 *   TARGET             the attribute that makes the compiler use the instruction set
 *   MAX_I32, MIN_I32   of two i32x8
 *   MAX_F64, MIN_F64   of two f64x4; which one for a NaN does not matter
 * Eight elements at a time everywhere, and a product is never fused with its sum (-std=c11), so that every
 * instruction set adds in the same order and gives the same bits.
 */

/* x[0..n). hi, lo: bit patterns of magnitudes. n_small counts zeros too. Non-finite elements spoil all sums. */
TARGET static void NAME(block_f32)(const float *x, size_t n, int32_t tiny, tgd_block_f32 *out)
{
    f64x4 sum0 = {0}, sum1 = {0}, square0 = {0}, square1 = {0};
    i32x8 zero = {0}, small = {0}, hi = {0};
    const i32x8 magnitude = (i32x8){0} + INT32_MAX, limit = (i32x8){0} + tiny;
    i32x8 lo = magnitude;
    float rest[8] = {0};
    for (size_t i = 0; i < n; i += 8) {
        const float *at = x + i;
        if (n - i < 8) {
            memcpy(rest, at, (n - i) * sizeof *rest);
            at = rest;
        }
        i32x8 bits;
        f32x4 first, second;
        memcpy(&bits, at, sizeof bits);
        memcpy(&first, at, sizeof first);
        memcpy(&second, at + 4, sizeof second);
        const i32x8 a = bits & magnitude;
        const i32x8 is_zero = a == 0;
        zero -= is_zero;
        small -= a < limit;
        hi = MAX_I32(hi, a);
        lo = MIN_I32(lo, a | (is_zero & magnitude));
        const f64x4 d0 = __builtin_convertvector(first, f64x4), d1 = __builtin_convertvector(second, f64x4);
        sum0 += d0;
        sum1 += d1;
        square0 += d0 * d0;
        square1 += d1 * d1;
    }
    const size_t padding = (8 - n % 8) % 8;
    sum0 += sum1;
    square0 += square1;
    out->sum = (sum0[0] + sum0[1]) + (sum0[2] + sum0[3]);
    out->squares = (square0[0] + square0[1]) + (square0[2] + square0[3]);
    out->n_zero = out->n_small = 0;
    out->hi = 0;
    out->lo = INT32_MAX;
    for (int k = 0; k < 8; k++) {
        out->n_zero += (uint32_t)zero[k];
        out->n_small += (uint32_t)small[k];
        out->hi = hi[k] > out->hi ? hi[k] : out->hi;
        out->lo = lo[k] < out->lo ? lo[k] : out->lo;
    }
    out->n_zero -= (uint32_t)padding;
    out->n_small -= (uint32_t)padding;
}

/* As above. hi and lo say nothing where squares is not finite. */
TARGET static void NAME(block_f64)(const double *x, size_t n, tgd_block_f64 *out)
{
    f64x4 sum0 = {0}, sum1 = {0}, square0 = {0}, square1 = {0}, hi = {0};
    i64x4 zero0 = {0}, zero1 = {0};
    const i64x4 magnitude = (i64x4){0} + INT64_MAX, infinity = (i64x4){0} + INFINITY_F64;
    f64x4 lo = (f64x4)infinity;
    double rest[8] = {0};
    for (size_t i = 0; i < n; i += 8) {
        const double *at = x + i;
        if (n - i < 8) {
            memcpy(rest, at, (n - i) * sizeof *rest);
            at = rest;
        }
        f64x4 d0, d1;
        memcpy(&d0, at, sizeof d0);
        memcpy(&d1, at + 4, sizeof d1);
        const i64x4 a0 = (i64x4)d0 & magnitude, a1 = (i64x4)d1 & magnitude;
        const i64x4 is_zero0 = a0 == 0, is_zero1 = a1 == 0;
        zero0 -= is_zero0;
        zero1 -= is_zero1;
        hi = MAX_F64(hi, MAX_F64((f64x4)a0, (f64x4)a1));
        lo = MIN_F64(lo, MIN_F64((f64x4)(a0 | (is_zero0 & infinity)), (f64x4)(a1 | (is_zero1 & infinity))));
        sum0 += d0;
        sum1 += d1;
        square0 += d0 * d0;
        square1 += d1 * d1;
    }
    const i64x4 zero = zero0 + zero1;
    sum0 += sum1;
    square0 += square1;
    out->sum = (sum0[0] + sum0[1]) + (sum0[2] + sum0[3]);
    out->squares = (square0[0] + square0[1]) + (square0[2] + square0[3]);
    out->n_zero = (uint64_t)(zero[0] + zero[1] + zero[2] + zero[3]) - (8 - n % 8) % 8;
    out->hi = 0;
    out->lo = INFINITY;
    for (int k = 0; k < 4; k++) {
        out->hi = hi[k] > out->hi ? hi[k] : out->hi;
        out->lo = lo[k] < out->lo ? lo[k] : out->lo;
    }
}

/* Does x[0..n) hold a NaN or an infinity? */
TARGET static bool NAME(nonfinite_f32)(const float *x, size_t n)
{
    i32x8 hi = {0};
    const i32x8 magnitude = (i32x8){0} + INT32_MAX;
    size_t i = 0;
    for (; i + 8 <= n; i += 8) {
        i32x8 bits;
        memcpy(&bits, x + i, sizeof bits);
        hi = MAX_I32(hi, bits & magnitude);
    }
    int32_t most = 0;
    for (int k = 0; k < 8; k++) {
        most = hi[k] > most ? hi[k] : most;
    }
    for (; i < n; i++) {
        int32_t bits;
        memcpy(&bits, x + i, sizeof bits);
        bits &= INT32_MAX;
        most = bits > most ? bits : most;
    }
    return most >= TGD_INFINITY_F32;
}

TARGET static bool NAME(nonfinite_f64)(const double *x, size_t n)
{
    i64x4 any = {0};
    const i64x4 infinity = (i64x4){0} + INFINITY_F64;
    size_t i = 0;
    for (; i + 4 <= n; i += 4) {
        i64x4 bits;
        memcpy(&bits, x + i, sizeof bits);
        any |= (bits & infinity) == infinity;
    }
    bool found = (any[0] | any[1] | any[2] | any[3]) != 0;
    for (; i < n; i++) {
        int64_t bits;
        memcpy(&bits, x + i, sizeof bits);
        found = found || (bits & INFINITY_F64) == INFINITY_F64;
    }
    return found;
}

/* Subnormal numbers come out by a subtraction, so that none is met on the way. */
TARGET static void NAME(widen_16)(float *to, const uint16_t *from, size_t n, int shift, int32_t rebias, int32_t special)
{
    uint16_t rest[8] = {0};
    for (size_t i = 0; i < n; i += 8) {
        const uint16_t *at = from + i;
        const size_t m = n - i < 8 ? n - i : 8;
        if (m < 8) {
            memcpy(rest, at, m * sizeof *rest);
            at = rest;
        }
        u16x8 half;
        memcpy(&half, at, sizeof half);
        const u32x8 bits = __builtin_convertvector(half, u32x8);
        i32x8 value = (i32x8)((bits & 0x7FFF) << shift);
        if (rebias != 0) {
            const i32x8 is_subnormal = value < (1 << 23), is_special = value >= special;
            const f32x8 least = (f32x8)((i32x8){0} + (rebias + (1 << 23)));
            const f32x8 subnormal = (f32x8)(value + (rebias + (1 << 23))) - least;
            value += rebias + (is_special & rebias);
            value = (value & ~is_subnormal) | ((i32x8)subnormal & is_subnormal);
        }
        value |= (i32x8)((bits & 0x8000) << 16);
        memcpy(to + i, &value, m * sizeof *to);
    }
}

static const tgd_kernels NAME(kernels) = {NAME(block_f32), NAME(block_f64), NAME(nonfinite_f32), NAME(nonfinite_f64),
                                      NAME(widen_16)};
